//! All that hands out blocks of one target.

use crate::claimed::Claimed;
use crate::glibc::{Chunks, Mapped};
use crate::memory::Space;
use crate::mimalloc::Mimalloc;
use crate::pymalloc::Pools;
use gdbheap_core::allocators::{SharedHeaps, Store};
use pyo3::prelude::*;

/// What hands out blocks, of any kind.
#[derive(FromPyObject)]
pub enum GivenStore {
    Pools(Py<Pools>),
    Mimalloc(Py<Mimalloc>),
    Chunks(Py<Chunks>),
    Mapped(Py<Mapped>),
    Claimed(Py<Claimed>),
}

impl GivenStore {
    pub fn store(&self) -> Store {
        match self {
            GivenStore::Pools(pools) => Store::Pools(pools.get().0.clone()),
            GivenStore::Mimalloc(mimalloc) => Store::Mimalloc(mimalloc.get().0.clone()),
            GivenStore::Chunks(chunks) => Store::Chunks(chunks.get().0.clone()),
            GivenStore::Mapped(mapped) => Store::Mapped(mapped.get().0.clone()),
            GivenStore::Claimed(claimed) => Store::Claimed(claimed.get().0.clone()),
        }
    }
}

/// All that hands out blocks of one target. Where several know an address the first one has it.
#[pyclass(frozen)]
pub struct Heaps(pub SharedHeaps);

#[pymethods]
impl Heaps {
    #[new]
    fn new(space: &Space, stores: Vec<GivenStore>) -> Heaps {
        Heaps(SharedHeaps { space: space.0.clone(), stores: stores.iter().map(GivenStore::store).collect() })
    }
}
