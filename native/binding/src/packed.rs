//! Reads files that were compressed with zstd or lz4.

use crate::detaching::detached;
use crate::rows::{answers, exports};
use crate::watch::raised;
use gdbheap_core::packed;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

answers! {}

exports! {
    classes: Unpacker;
}

/// A reader of a file that was compressed as a stream of frames. `kind`: "zstd" or "lz4". Raises OSError if the file
/// cannot be read, and ValueError if `kind` is unknown.
#[pyclass]
pub struct Unpacker(packed::Unpacker);

#[pymethods]
impl Unpacker {
    #[new]
    fn new(path: &str, kind: &str) -> PyResult<Unpacker> {
        packed::Unpacker::open(path, kind).map(Unpacker).map_err(raised)
    }

    /// The number of bytes of the compressed file that were read.
    #[getter]
    fn position(&self) -> u64 {
        self.0.position()
    }

    /// Return at most `size` uncompressed bytes; empty at the end of the file. If the file is damaged or truncated, the
    /// bytes before the damage are returned first. The next call raises ValueError.
    fn read<'py>(&mut self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = detached(py, || self.0.read(size)).map_err(raised)?;
        Ok(PyBytes::new(py, &bytes))
    }
}
