//! musl's mallocng.

use crate::memory::Space;
use crate::records::Given;
use crate::rows::{
    all, answers, block, damage_rows, size_class, used, BlockList, Damage, Hole, Member, Range, SizeClass,
};
use crate::watch::watched;
use gdbheap_core::allocators::mallocng::{self, SlotHole};
use gdbheap_core::allocators::Asked;
use pyo3::prelude::*;
use std::sync::Arc;

answers! {
    /// `__malloc_context`; of how many groups of its first page of metadata it was asked whether they name it, and how many
    /// do.
    struct FoundContext of mallocng::FoundContext { address: u64, groups: u64, fit: u64 }

    /// What does not fit; `transient` where a thread leaves it so that stands inside of mallocng.
    struct Misfit { damage: Damage, transient: bool }

    /// The slots of one size in the groups that were walked, and as many as `usage_by_class` says.
    struct ClassUsage of mallocng::Usage { size: u64, walked: u64, said: u64 }

    /// The used slots of one size, and the bytes that were asked for of these.
    struct AskedOfClass { size: u64, used: u64, asked: u64 }

    /// A slot: the block, or the slot where it is free; the size of the slot; where the block ends; used or free; of a free
    /// one the mask that it is in.
    struct SlotBlock { address: u64, size: u64, end: u64, state: &'static str, list: Option<&'static str> }
}

fn hole(found: SlotHole) -> Hole {
    let SlotHole { start, end, before, after } = found;
    Hole { start, end, address: start, arena: None, before: before.map(block), after: after.map(block) }
}

/// All that one mallocng has, by address.
#[pyclass(frozen)]
pub struct Mallocng(pub Arc<mallocng::Mallocng>);

#[pymethods]
impl Mallocng {
    /// Mappings, and what the dynamic linker gave, ascending; one such after the other.
    fn regions(&self) -> Vec<Range> {
        self.0.regions()
    }

    /// The same, those that touch as one.
    fn stretches(&self) -> Vec<Range> {
        self.0.stretches()
    }

    /// The pages of metadata, ascending.
    fn areas(&self) -> Vec<Range> {
        self.0.areas().to_vec()
    }

    #[getter]
    fn group_count(&self) -> usize {
        self.0.group_count()
    }

    /// Slots that are taken and not written yet, or on their way back.
    #[getter]
    fn moving(&self) -> u64 {
        self.0.moving
    }

    /// By the size of slots.
    fn classes(&self) -> Vec<SizeClass> {
        self.0.classes().into_iter().map(size_class).collect()
    }

    /// Of each class what was walked and what mallocng says.
    fn usage(&self) -> Vec<ClassUsage> {
        all(self.0.usage.iter().copied())
    }

    /// What was asked for, by the size of slots.
    fn asked_by_class(&self, py: Python<'_>) -> Vec<AskedOfClass> {
        let rows = py.detach(|| self.0.asked_by_class());
        rows.into_iter().map(|(size, used, asked)| AskedOfClass { size, used, asked }).collect()
    }

    /// Mappings without a used block, ascending.
    fn empty(&self) -> Vec<Range> {
        self.0.empty()
    }

    /// The slot that holds `address`; None outside every block.
    fn find(&self, address: u64) -> Option<SlotBlock> {
        let (address, size, state, end, list) = self.0.find(address)?;
        Some(SlotBlock { address, size, end, state, list })
    }

    /// What an address in no block is: `slack`, `header`, `free`; None outside every group.
    fn own_part(&self, address: u64) -> Option<&'static str> {
        self.0.own_part(address)
    }

    /// The used blocks of the mapping that holds `address`.
    fn used_with(&self, address: u64) -> Vec<Member> {
        self.0.used_with(address).into_iter().map(used).collect()
    }

    /// The blocks that are meant.
    fn list_blocks(&self, py: Python<'_>, asked: Given<Asked>) -> BlockList {
        py.detach(|| self.0.list_blocks(&asked.0)).into()
    }

    /// The first `most` used blocks in slots of `least` to `largest` bytes, ascending.
    fn first_used(&self, py: Python<'_>, least: u64, largest: u64, most: usize) -> Vec<Member> {
        py.detach(|| self.0.first_used(least, largest, most)).into_iter().map(used).collect()
    }

    /// The `most` used blocks in the largest slots of at least `least` bytes, largest first.
    fn largest_used(&self, py: Python<'_>, least: u64, most: usize) -> Vec<Member> {
        py.detach(|| self.0.largest_used(least, most)).into_iter().map(used).collect()
    }

    /// What is wrong in groups and slots.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }

    /// What does not fit, and may be what a thread leaves that stands inside of mallocng.
    #[getter]
    fn misfits(&self) -> Vec<Misfit> {
        let row = |found: &mallocng::Misfit| Misfit { damage: found.damage.clone().into(), transient: found.transient };
        self.0.misfits.iter().map(row).collect()
    }

    /// Maximal runs of unused bytes, of at least `minimum`.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<Hole>> {
        let holes = watched(py, None, |watcher| self.0.holes(watcher, minimum))?;
        Ok(holes.into_iter().map(hole).collect())
    }
}

/// Reads all that a context leads to. Raises Fault where it cannot be read.
#[pyfunction]
pub fn read_mallocng(py: Python<'_>, space: &Space, context: u64) -> PyResult<Mallocng> {
    let found = watched(py, None, |watcher| mallocng::read_mallocng(watcher, &space.0, context))?;
    Ok(Mallocng(Arc::new(found)))
}

/// The contexts of mallocng in `ranges` of static data, joined where they touch.
#[pyfunction]
pub fn find_contexts(py: Python<'_>, space: &Space, ranges: Vec<Range>) -> PyResult<Vec<FoundContext>> {
    Ok(all(watched(py, None, |watcher| mallocng::find_contexts(watcher, &space.0, &ranges))?))
}
