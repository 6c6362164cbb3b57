//! Blocks that only objects' own fields tell of.

use crate::rows::{Place, Range};
use gdbheap_core::allocators;
use pyo3::prelude::*;
use std::sync::Arc;

/// Blocks `[start, end)` that objects' own fields tell of, ascending and disjoint; an object's begins with what precedes
/// it, as its PyGC_Head.
#[pyclass(frozen)]
pub struct Claimed(pub Arc<allocators::Claimed>);

#[pymethods]
impl Claimed {
    /// Memory `[start, end)` that was mapped for somebody, ascending and disjoint; its bytes are never read.
    #[new]
    fn new(places: Vec<Range>) -> Claimed {
        Claimed(Arc::new(allocators::Claimed { places, closed: true }))
    }

    fn __len__(&self) -> usize {
        self.0.places.len()
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// At most `most` places, evenly spread, each `(start, size)`.
    fn sample(&self, most: usize) -> Vec<Place> {
        self.0.sample(most)
    }

    /// `(start, size)` of the place that holds `address`, None where none does.
    fn find(&self, address: u64) -> Option<Place> {
        self.0.find(address)
    }
}
