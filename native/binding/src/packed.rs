//! Packed files.

use crate::watch::raised;
use gdbheap_core::packed;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A file packed as a stream of frames, as the bytes that were packed. `kind`: "zstd" or "lz4". Raises OSError, ValueError.
#[pyclass]
pub struct Unpacker(packed::Unpacker);

#[pymethods]
impl Unpacker {
    #[new]
    fn new(path: &str, kind: &str) -> PyResult<Unpacker> {
        packed::Unpacker::open(path, kind).map(Unpacker).map_err(raised)
    }

    /// How many bytes of the packed file were read.
    #[getter]
    fn position(&self) -> u64 {
        self.0.position()
    }

    /// At most `size` bytes, none at the end. What comes before a damaged place, or the place where the file was cut off, is
    /// given first; then that raises ValueError.
    fn read<'py>(&mut self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| self.0.read(size)).map_err(raised)?;
        Ok(PyBytes::new(py, &bytes))
    }
}
