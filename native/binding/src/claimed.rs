//! Blocks that are known only from fields of objects.

use crate::rows::{Place, Range};
use gdbheap_core::allocators;
use pyo3::prelude::*;
use std::sync::Arc;

/// Blocks `[start, end)` that are known only from fields of objects, ascending and disjoint. An object's block includes
/// what precedes the object, such as its PyGC_Head.
#[pyclass(frozen)]
pub struct Claimed(pub Arc<allocators::Claimed>);

#[pymethods]
impl Claimed {
    /// Memory `[start, end)` that was mapped for known owners, ascending and disjoint. Its bytes are never read.
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

    /// Return at most `most` blocks as `(start, size)`, evenly spread.
    fn sample(&self, most: usize) -> Vec<Place> {
        self.0.sample(most)
    }

    /// Return `(start, size)` of the block that contains `address`; None if there is none.
    fn find(&self, address: u64) -> Option<Place> {
        self.0.find(address)
    }
}
