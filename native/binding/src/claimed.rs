//! Blocks that are known only because fields of objects point to them.

use crate::rows::{Place, Range};
use gdbheap_core::allocators;
use pyo3::prelude::*;
use std::sync::Arc;

/// Blocks `[start, end)` that are known only because fields of objects point to them, ascending and disjoint. The block
/// of an object includes what precedes the object, such as its PyGC_Head.
#[pyclass(frozen)]
pub struct Claimed(pub Arc<allocators::Claimed>);

#[pymethods]
impl Claimed {
    /// Create the list from the ranges `[start, end)` of memory that was mapped for known owners, ascending and
    /// disjoint. The bytes in these ranges are never read.
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

    /// Return at most `most` of the blocks as `(start, size)`, evenly spread over all blocks.
    fn sample(&self, most: usize) -> Vec<Place> {
        self.0.sample(most)
    }

    /// Return `(start, size)` of the block that contains `address`; None if no block contains it.
    fn find(&self, address: u64) -> Option<Place> {
        self.0.find(address)
    }
}
