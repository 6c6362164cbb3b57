//! The blocks of all allocators of one target.

use crate::claimed::Claimed;
use crate::glibc::{Chunks, Mapped};
use crate::jemalloc::Jemalloc;
use crate::mallocng::Mallocng;
use crate::memory::Space;
use crate::mimalloc::Mimalloc;
use crate::oldmalloc::Oldmalloc;
use crate::pymalloc::Pools;
use crate::rows::{answers, Place};
use crate::tcmalloc::Tcmalloc;
use gdbheap_core::allocators::{self, SharedHeaps};
use gdbheap_core::memory_use::{Owners, Sweep};
use pyo3::prelude::*;

answers! {
    /// The number of blocks that some words point into, and the addresses and sizes of the largest of these blocks.
    struct LedTo { count: u64, rows: Vec<Place> }
}

/// A source of blocks: all blocks of one allocator.
#[derive(FromPyObject)]
pub enum Store {
    Pools(Py<Pools>),
    Mimalloc(Py<Mimalloc>),
    Jemalloc(Py<Jemalloc>),
    Tcmalloc(Py<Tcmalloc>),
    Mallocng(Py<Mallocng>),
    Oldmalloc(Py<Oldmalloc>),
    Chunks(Py<Chunks>),
    Mapped(Py<Mapped>),
    Claimed(Py<Claimed>),
}

impl Store {
    pub fn store(&self) -> allocators::Store {
        match self {
            Store::Pools(pools) => allocators::Store::Pools(pools.get().0.clone()),
            Store::Mimalloc(mimalloc) => allocators::Store::Mimalloc(mimalloc.get().0.clone()),
            Store::Tcmalloc(tcmalloc) => allocators::Store::Runs(tcmalloc.get().0.runs.clone()),
            Store::Jemalloc(jemalloc) => allocators::Store::Runs(jemalloc.get().0.runs.clone()),
            Store::Mallocng(mallocng) => allocators::Store::Mallocng(mallocng.get().0.clone()),
            Store::Oldmalloc(old) => allocators::Store::Oldmalloc(old.get().0.clone()),
            Store::Chunks(chunks) => allocators::Store::Chunks(chunks.get().0.clone()),
            Store::Mapped(mapped) => allocators::Store::Mapped(mapped.get().0.clone()),
            Store::Claimed(claimed) => allocators::Store::Claimed(claimed.get().0.clone()),
        }
    }
}

impl Store {
    /// Add to a sweep all parts of the region of this store that begins at `start`. Return where the region ends.
    pub fn add_to(&self, sweep: &mut Sweep, space: &Space, start: u64, owners: Owners) -> gdbheap_core::Result<u64> {
        match self {
            Store::Tcmalloc(tcmalloc) => sweep.add_parts(tcmalloc.get().0.as_ref(), start, owners),
            Store::Jemalloc(jemalloc) => sweep.add_parts(jemalloc.get().0.as_ref(), start, owners),
            _ => sweep.add_blocks(&space.0, &self.store(), start, owners),
        }
    }
}

/// All stores of one target. An address that is in several stores belongs to the first of them.
#[pyclass(frozen)]
pub struct Heaps(pub SharedHeaps);

#[pymethods]
impl Heaps {
    #[new]
    fn new(space: &Space, stores: Vec<Store>) -> Heaps {
        Heaps(SharedHeaps { space: space.0.clone(), stores: stores.iter().map(Store::store).collect() })
    }

    /// Return the blocks that words in [start, end) point into, each block once, largest first, at most `top` blocks.
    fn led_to(&self, py: Python<'_>, start: u64, end: u64, top: usize) -> LedTo {
        let mut rows = py.detach(|| self.0.lend().led_to(start, end));
        let count = rows.len() as u64;
        rows.truncate(top);
        LedTo { count, rows }
    }
}
