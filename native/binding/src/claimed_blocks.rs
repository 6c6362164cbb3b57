//! Blocks that are known only because fields of objects point to them.

use crate::heaps::BlockStore;
use crate::rows::{answers, exports, Place, Range};
use gdbheap_core::allocators;
use pyo3::prelude::*;
use std::sync::Arc;

answers! {}

exports! {
    classes: Claimed;
}

/// Blocks `[start, end)` that are known only because fields of objects point to them, ascending and disjoint. The block
/// of an object includes the data before the object, such as its PyGC_Head.
#[pyclass(frozen, extends = BlockStore)]
pub struct Claimed(Arc<allocators::ClaimedBlocks>);

impl Claimed {
    /// Return the Python object for these blocks, and the BlockStore that is its base class.
    pub fn of(claimed: allocators::ClaimedBlocks) -> (Claimed, BlockStore) {
        let claimed = Arc::new(claimed);
        (Claimed(claimed.clone()), BlockStore(allocators::Store::Claimed(claimed)))
    }
}

#[pymethods]
impl Claimed {
    /// Create the list from the ranges `[start, end)` of memory that was mapped for known owners, ascending and
    /// disjoint. The bytes in these ranges are never read.
    #[new]
    fn new(places: Vec<Range>) -> (Claimed, BlockStore) {
        Claimed::of(allocators::ClaimedBlocks { places, closed: true })
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
