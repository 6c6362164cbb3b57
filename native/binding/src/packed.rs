//! Reads compressed files.

use crate::rows::{answers, exports};
use crate::watch::raised;
use gdbheap_core::packed;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

answers! {}

exports! {
    classes: Unpacker;
}

/// A reader of a file that was compressed as a stream of frames. `kind`: "zstd" or "lz4". Raises OSError, ValueError.
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

    /// Return at most `size` uncompressed bytes; empty at the end of the file. If a place in the file is damaged or
    /// truncated, everything before it is returned first; the next call raises ValueError.
    fn read<'py>(&mut self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.read(size)).map_err(raised)?;
        Ok(PyBytes::new(py, &bytes))
    }
}
