//! The classes and functions for musl's malloc before 1.2.1 that Python sees.

use crate::detaching::detached;
use crate::heaps::ListedStore;
use crate::memory::Space;
use crate::rows::{answers, damage_rows, exports, Damage, Range};
use crate::watch::watched;
use gdbheap_core::allocators::oldmalloc;
use gdbheap_core::allocators::Store;
use pyo3::prelude::*;
use std::sync::Arc;

answers! {
    /// A chunk. `address`: the address that the program got. `size`: the size of the chunk, including its header.
    /// `state`: "used" or "free".
    struct OldChunk { address: u64, size: u64, end: u64, state: &'static str }

    /// The chunks of one size, which includes the header: the numbers of used and of free chunks.
    struct OldSize { size: u64, used: u64, free: u64 }
}

exports! {
    classes: Oldmalloc;
    functions: read_oldmalloc, find_bins;
}

/// All chunks of musl's malloc before 1.2.1, by address.
#[pyclass(frozen, extends = ListedStore)]
pub struct Oldmalloc(Arc<oldmalloc::Oldmalloc>);

#[pymethods]
impl Oldmalloc {
    /// Return the heaps, the memory that the dynamic linker donated, and the mappings of single chunks, ascending.
    /// Adjacent ranges stay separate.
    fn regions(&self) -> Vec<Range> {
        self.0.regions()
    }

    /// Return how many used and free chunks each size has.
    fn sizes(&self, py: Python<'_>) -> Vec<OldSize> {
        let rows = detached(py, || self.0.sizes());
        rows.into_iter().map(|(size, used, free)| OldSize { size, used, free }).collect()
    }

    /// Return the chunk that contains `address`; None outside all chunks.
    fn find(&self, address: u64) -> Option<OldChunk> {
        let (address, size, state, end) = self.0.find(address)?;
        Some(OldChunk { address, size, end, state })
    }

    /// Free chunks that are in no bin, and entries of bins that are not free chunks.
    #[getter]
    fn unbinned(&self) -> Vec<Damage> {
        damage_rows(&self.0.unbinned)
    }
}

/// Read all chunks. `anonymous`: private anonymous memory that has no other owner. `data`: static data of modules. In
/// both lists, adjacent ranges must be merged. Raises Fault if the variable `mal` cannot be read.
#[pyfunction]
pub fn read_oldmalloc(
    py: Python<'_>,
    space: &Space,
    mal: u64,
    anonymous: Vec<Range>,
    data: Vec<Range>,
) -> PyResult<Py<Oldmalloc>> {
    let given = oldmalloc::ChunkRanges { anonymous: &anonymous, data: &data };
    let found = watched(py, None, |watcher| oldmalloc::read_oldmalloc(watcher, &space.0, mal, &given))?;
    let found = Arc::new(found);
    let base = ListedStore::base(Store::Oldmalloc(found.clone()), found.clone());
    Py::new(py, base.add_subclass(Oldmalloc(found)))
}

/// Return the addresses where the variable `mal`, with its 64 bins, may be in `ranges` of static data. Adjacent ranges
/// must be merged.
#[pyfunction]
pub fn find_bins(py: Python<'_>, space: &Space, ranges: Vec<Range>) -> PyResult<Vec<u64>> {
    watched(py, None, |watcher| oldmalloc::find_bins(watcher, &space.0, &ranges))
}
