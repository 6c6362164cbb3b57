//! musl's malloc before 1.2.1.

use crate::memory::Space;
use crate::records::Given;
use crate::rows::{answers, block, damage_rows, used, BlockList, Damage, Hole, Member, Range};
use crate::watch::watched;
use gdbheap_core::allocators::oldmalloc::{self, OldHole};
use gdbheap_core::allocators::Asked;
use pyo3::prelude::*;
use std::sync::Arc;

answers! {
    /// A chunk: what the program would be given, its size with the header, where it ends, and used or free.
    struct OldChunk { address: u64, size: u64, end: u64, state: &'static str }

    /// Chunks of one size with the header: how many are used and free.
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
    /// Heaps, what the dynamic linker gave, and mappings of one chunk, ascending; one such after the other.
    fn regions(&self) -> Vec<Range> {
        self.0.regions()
    }

    /// By size.
    fn sizes(&self, py: Python<'_>) -> Vec<OldSize> {
        let rows = py.detach(|| self.0.sizes());
        rows.into_iter().map(|(size, used, free)| OldSize { size, used, free }).collect()
    }

    /// The chunk that holds `address`; None outside of all.
    fn find(&self, address: u64) -> Option<OldChunk> {
        let (address, size, state, end) = self.0.find(address)?;
        Some(OldChunk { address, size, end, state })
    }

    /// The blocks that are meant.
    fn list_blocks(&self, py: Python<'_>, asked: Given<Asked>) -> BlockList {
        py.detach(|| self.0.list_blocks(&asked.0)).into()
    }

    /// The first `most` used blocks of chunks of `least` to `largest` bytes, ascending.
    fn first_used(&self, py: Python<'_>, least: u64, largest: u64, most: usize) -> Vec<Member> {
        py.detach(|| self.0.first_used(least, largest, most)).into_iter().map(used).collect()
    }

    /// The `most` largest used blocks of at least `least` bytes, largest first.
    fn largest_used(&self, py: Python<'_>, least: u64, most: usize) -> Vec<Member> {
        py.detach(|| self.0.largest_used(least, most)).into_iter().map(used).collect()
    }

    /// What is wrong in chunks' heads.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }

    /// Free chunks that are in no bin, and bins that hold something else.
    #[getter]
    fn unbinned(&self) -> Vec<Damage> {
        damage_rows(&self.0.unbinned)
    }

    /// Free chunks of at least `minimum` bytes.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<Hole>> {
        let holes = watched(py, None, |watcher| self.0.holes(watcher, minimum))?;
        Ok(holes.into_iter().map(hole).collect())
    }
}

/// Reads all chunks. `anonymous`: private anonymous memory that nobody else owns; `data`: static data of modules; each
/// joined where ranges touch. Raises Fault where `mal` cannot be read.
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

/// Where `mal` with its 64 bins is in `ranges` of static data, joined where they touch.
#[pyfunction]
pub fn find_bins(py: Python<'_>, space: &Space, ranges: Vec<Range>) -> PyResult<Vec<u64>> {
    watched(py, None, |watcher| oldmalloc::find_bins(watcher, &space.0, &ranges))
}
