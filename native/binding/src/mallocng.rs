//! The classes and functions for musl's mallocng that Python sees.

use crate::detaching::detached;
use crate::heaps::ListedStore;
use crate::memory::Space;
use crate::rows::{all, answers, exports, size_class, used, Damage, Member, Range, SizeClass};
use crate::watch::watched;
use gdbheap_core::allocators::mallocng;
use gdbheap_core::allocators::Store;
use pyo3::prelude::*;
use std::sync::Arc;

answers! {
    /// A possible `__malloc_context`. `groups`: the number of groups in its first page of metadata that were checked.
    /// `fit`: the number of these groups that point back to the metadata.
    struct FoundContext of mallocng::FoundContext { address: u64, groups: u64, fit: u64 }

    /// An inconsistency. `transient`: whether it may only be an unfinished change by a thread inside mallocng.
    struct Misfit { damage: Damage, transient: bool }

    /// The slots of one size: the number that was found, and the number that mallocng's `usage_by_class` states.
    struct ClassUsage of mallocng::Usage { size: u64, walked: u64, said: u64 }

    /// The used slots of one size, and the bytes that were requested for them.
    struct AskedOfClass { size: u64, used: u64, asked: u64 }

    /// A slot. `address`: where the block begins, or, for a free slot, where the slot begins. `size`: the slot's size.
    /// `end`: where the block ends. `state`: "used" or "free". `list`: the mask that contains a free slot.
    struct SlotBlock { address: u64, size: u64, end: u64, state: &'static str, list: Option<&'static str> }
}

exports! {
    classes: Mallocng;
    functions: read_mallocng, find_contexts;
}

/// All blocks of one mallocng, by address.
#[pyclass(frozen, extends = ListedStore)]
pub struct Mallocng(Arc<mallocng::Mallocng>);

#[pymethods]
impl Mallocng {
    /// Return the mappings, and the memory that the dynamic linker donated, ascending. Adjacent ranges stay separate.
    fn regions(&self) -> Vec<Range> {
        self.0.regions()
    }

    /// Return the same ranges as `regions`, with adjacent ones merged.
    fn stretches(&self) -> Vec<Range> {
        self.0.stretches()
    }

    /// Return the ranges of the pages of metadata, ascending.
    fn areas(&self) -> Vec<Range> {
        self.0.areas().to_vec()
    }

    /// The number of slots that were taken but not written yet, or were about to be freed.
    #[getter]
    fn moving(&self) -> u64 {
        self.0.moving
    }

    /// Return how many used and free blocks each slot size has.
    fn classes(&self) -> Vec<SizeClass> {
        self.0.classes().into_iter().map(size_class).collect()
    }

    /// Return, for each size class, the number of slots that was found by walking, and the number that mallocng states.
    fn usage(&self) -> Vec<ClassUsage> {
        all(self.0.usage.iter().copied())
    }

    /// Return for each slot size how many bytes the program requested for the used blocks.
    fn asked_by_class(&self, py: Python<'_>) -> Vec<AskedOfClass> {
        let rows = detached(py, || self.0.asked_by_class());
        rows.into_iter().map(|(size, used, asked)| AskedOfClass { size, used, asked }).collect()
    }

    /// Return the mappings without a used block, ascending.
    fn empty(&self) -> Vec<Range> {
        self.0.empty()
    }

    /// Return the slot that contains `address`; None outside every block.
    fn find(&self, address: u64) -> Option<SlotBlock> {
        let (address, size, state, end, list) = self.0.find(address)?;
        Some(SlotBlock { address, size, end, state, list })
    }

    /// Return the use of an address outside of blocks: "slack", "header" or "free"; None outside every group.
    fn own_part(&self, address: u64) -> Option<&'static str> {
        self.0.own_part(address)
    }

    /// Return the used blocks of the mapping that contains `address`.
    fn used_with(&self, address: u64) -> Vec<Member> {
        self.0.used_with(address).into_iter().map(used).collect()
    }

    /// The inconsistencies that were found. Threads inside mallocng may have left some of them.
    #[getter]
    fn misfits(&self) -> Vec<Misfit> {
        let row = |found: &mallocng::Misfit| Misfit { damage: found.damage.clone().into(), transient: found.transient };
        self.0.misfits.iter().map(row).collect()
    }
}

/// Read all memory of the mallocng that has its context at the address `context`. Raises Fault if the context cannot be
/// read.
#[pyfunction]
pub fn read_mallocng(py: Python<'_>, space: &Space, context: u64) -> PyResult<Py<Mallocng>> {
    let found = watched(py, None, |watcher| mallocng::read_mallocng(watcher, &space.0, context))?;
    let found = Arc::new(found);
    let base = ListedStore::base(Store::Mallocng(found.clone()), found.clone());
    Py::new(py, base.add_subclass(Mallocng(found)))
}

/// Return the contexts of mallocng in `ranges` of static data. Adjacent ranges must be merged.
#[pyfunction]
pub fn find_contexts(py: Python<'_>, space: &Space, ranges: Vec<Range>) -> PyResult<Vec<FoundContext>> {
    Ok(all(watched(py, None, |watcher| mallocng::find_contexts(watcher, &space.0, &ranges))?))
}
