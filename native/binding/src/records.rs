//! Reads records of the core from Python objects: each field of a record from the attribute with the same name.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// A type that can be read from a Python object.
pub trait FromObject: Sized {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Self>;
}

/// An argument of a Python function that is a record of the core, or contains such records.
pub struct Argument<T>(pub T);

impl<'a, 'py, T: FromObject> FromPyObject<'a, 'py> for Argument<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Argument<T>> {
        T::read(&object).map(Argument)
    }
}

macro_rules! plain {
    ($($type:ty),*) => {
        $(impl FromObject for $type {
            fn read(object: &Bound<'_, PyAny>) -> PyResult<$type> {
                object.extract()
            }
        })*
    };
}

plain!(bool, u8, u32, u64, i8, i32, i64, usize, f64, String);

impl<T: FromObject> FromObject for Option<T> {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
        (!object.is_none()).then(|| T::read(object)).transpose()
    }
}

impl<T: FromObject> FromObject for Vec<T> {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
        object.try_iter()?.map(|item| T::read(&item?)).collect()
    }
}

impl<A: FromObject, B: FromObject> FromObject for (A, B) {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<(A, B)> {
        let (one, two): (Bound<'_, PyAny>, Bound<'_, PyAny>) = object.extract()?;
        Ok((A::read(&one)?, B::read(&two)?))
    }
}

/// Read a field of a record. An error names the record and the field.
pub fn field<T: FromObject>(object: &Bound<'_, PyAny>, record: &str, name: &str) -> PyResult<T> {
    object.getattr(name).and_then(|value| T::read(&value)).map_err(|error| {
        let told = PyTypeError::new_err(format!("{record}.{name} cannot be read"));
        told.set_cause(object.py(), Some(error));
        told
    })
}

/// Makes records of the core readable from Python objects, by the names of all their fields.
macro_rules! records {
    ($($record:ident { $($field:ident),* $(,)? })*) => {
        $(impl $crate::records::FromObject for $record {
            fn read(object: &pyo3::Bound<'_, pyo3::PyAny>) -> pyo3::PyResult<$record> {
                Ok($record { $($field: $crate::records::field(object, stringify!($record), stringify!($field))?),* })
            }
        })*
    };
}
pub(crate) use records;
