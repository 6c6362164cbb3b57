//! The classes and functions for musl's malloc before 1.2.1 that Python sees.

use crate::memory::Space;
use crate::records::Given;
use crate::rows::{answers, block, damage_rows, used, BlockList, Damage, Hole, Member, Range};
use crate::watch::watched;
use gdbheap_core::allocators::oldmalloc::{self, OldHole};
use gdbheap_core::allocators::Asked;
use pyo3::prelude::*;
use std::sync::Arc;

answers! {
    /// A chunk. `address`: the address that the program got. `size`: the size of the chunk, including its header.
    /// `state`: "used" or "free".
    struct OldChunk { address: u64, size: u64, end: u64, state: &'static str }

    /// The chunks of one size, which includes the header: how many of them are used, and how many are free.
    struct OldSize { size: u64, used: u64, free: u64 }
}

fn hole(found: OldHole) -> Hole {
    let OldHole { start, end, before, after } = found;
    Hole { start, end, address: start, arena: None, before: before.map(block), after: after.map(block) }
}

/// All chunks, by address.
#[pyclass(frozen)]
pub struct Oldmalloc(pub Arc<oldmalloc::Oldmalloc>);

#[pymethods]
impl Oldmalloc {
    /// Return the heaps, the memory that the dynamic linker donated, and the mappings of single chunks, ascending.
    /// Adjacent ranges stay separate.
    fn regions(&self) -> Vec<Range> {
        self.0.regions()
    }

    /// Return the chunks by size.
    fn sizes(&self, py: Python<'_>) -> Vec<OldSize> {
        let rows = py.detach(|| self.0.sizes());
        rows.into_iter().map(|(size, used, free)| OldSize { size, used, free }).collect()
    }

    /// Return the chunk that contains `address`; None outside all chunks.
    fn find(&self, address: u64) -> Option<OldChunk> {
        let (address, size, state, end) = self.0.find(address)?;
        Some(OldChunk { address, size, end, state })
    }

    /// Return the blocks that match the request `asked`.
    fn list_blocks(&self, py: Python<'_>, asked: Given<Asked>) -> BlockList {
        py.detach(|| self.0.list_blocks(&asked.0)).into()
    }

    /// Return the first `most` used blocks whose chunks have `least` to `largest` bytes, ascending.
    fn first_used(&self, py: Python<'_>, least: u64, largest: u64, most: usize) -> Vec<Member> {
        py.detach(|| self.0.first_used(least, largest, most)).into_iter().map(used).collect()
    }

    /// Return the `most` largest used blocks of at least `least` bytes, largest first.
    fn largest_used(&self, py: Python<'_>, least: u64, most: usize) -> Vec<Member> {
        py.detach(|| self.0.largest_used(least, most)).into_iter().map(used).collect()
    }

    /// The damage that was found in the headers of chunks.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }

    /// Free chunks that are in no bin, and entries of bins that are not free chunks.
    #[getter]
    fn unbinned(&self) -> Vec<Damage> {
        damage_rows(&self.0.unbinned)
    }

    /// Return the free chunks of at least `minimum` bytes.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<Hole>> {
        let holes = watched(py, None, |watcher| self.0.holes(watcher, minimum))?;
        Ok(holes.into_iter().map(hole).collect())
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
) -> PyResult<Oldmalloc> {
    let given = oldmalloc::Given { anonymous: &anonymous, data: &data };
    let found = watched(py, None, |watcher| oldmalloc::read_oldmalloc(watcher, &space.0, mal, &given))?;
    Ok(Oldmalloc(Arc::new(found)))
}

/// Return the addresses where the variable `mal`, with its 64 bins, may be in `ranges` of static data. Adjacent ranges
/// must be merged.
#[pyfunction]
pub fn find_bins(py: Python<'_>, space: &Space, ranges: Vec<Range>) -> PyResult<Vec<u64>> {
    watched(py, None, |watcher| oldmalloc::find_bins(watcher, &space.0, &ranges))
}
