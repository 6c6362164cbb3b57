//! jemalloc, whichever module brings it.

use crate::memory::{Pages, Space};
use crate::packing::{packed, Packing};
use crate::records::Given;
use crate::rows::{
    all, answers, block, damage_rows, size_class, used, BlockList, Damage, Hole, Member, Range, SizeClass,
};
use crate::watch::watched;
use gdbheap_core::allocators::jemalloc::{self, JemallocHole, JemallocRoot, Shape};
use gdbheap_core::allocators::Asked;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::num::NonZeroU32;
use std::sync::Arc;

answers! {
    /// A form of the structures: its name, and the multiple that small classes are of.
    struct JemallocForm { name: &'static str, quantum: u64 }

    /// The root of a tree of extents in static data, and for how many bits of addresses it is.
    struct FoundTree of jemalloc::FoundTree { address: u64, bits: u32 }

    /// Of how many active extents it was asked whether they are as a form says, and how many are.
    struct JemallocFit of jemalloc::JemallocFit { extents: u64, fit: u64 }

    /// [start, end) without a gap, of the jemalloc with the number `root` among those that were read.
    struct JemallocArea { start: u64, end: u64, root: u32 }

    /// What lies at an address. The state is used, free, `dirty pages`, `muzzy pages`, `retained address space`, metadata, padding
    /// or unexplained; the list of a free block slab or `thread cache`. `root`: the place of its jemalloc among those that were
    /// read; `arena`: the number of its arena.
    struct JemallocBlock of jemalloc::JemallocFound {
        address: u64,
        size: u64,
        state: &'static str,
        list: Option<&'static str>,
        root: u32,
        arena: u32,
    }

    /// What an arena has, in bytes: active, dirty, muzzy and retained extents, blocks in use, blocks in threads' caches, and
    /// `own`: blocks in which these caches keep their lists.
    struct JemallocArenaUse of jemalloc::ArenaUse {
        root: u32,
        arena: u32,
        active: u64,
        dirty: u64,
        muzzy: u64,
        retained: u64,
        used: u64,
        cached: u64,
        own: u64,
    }

    /// Blocks of one size of an arena: slabs (none for large ones), and how many blocks are used, cached and free.
    struct JemallocClassUse of jemalloc::ClassUse {
        root: u32,
        arena: u32,
        size: u64,
        slabs: u64,
        used: u64,
        cached: u64,
        own: u64,
        free: u64,
    }

    /// What was not as it is at rest: extents that a thread was just changing, blocks that are in a cache and free in a slab
    /// too, and entries of caches that lead to no block of their class; `bins`: of how many bins of caches these may be the doing.
    struct InMotion of jemalloc::InMotion { extents: u64, lists: u64, both: u64, astray: u64, bins: u64 }

    /// A stack of the jemalloc at the place `root` among those that were read: its return addresses, the innermost first; how many
    /// sampled blocks in use came from there, and their bytes; how many blocks these stand for, by what jemalloc says, and their
    /// bytes (None before 5.3); the first of the blocks.
    struct SampledStack of jemalloc::SampledStack {
        root: u32,
        frames: Vec<u64>,
        blocks: u64,
        bytes: u64,
        likely_blocks: Option<u64>,
        likely_bytes: Option<u64>,
        first: u64,
    }
}

fn hole(found: JemallocHole) -> Hole {
    let JemallocHole { start, end, arena, before, after } = found;
    Hole { start, end, address: start, arena, before: before.map(block), after: after.map(block) }
}

/// All of one jemalloc or several, by address.
#[pyclass(frozen)]
pub struct Jemalloc(pub Arc<jemalloc::Jemalloc>);

#[pymethods]
impl Jemalloc {
    /// The stretches without a gap, ascending.
    fn areas(&self) -> Vec<JemallocArea> {
        let row = |area: &jemalloc::Area| JemallocArea { start: area.start, end: area.end, root: area.root };
        self.0.areas().iter().map(row).collect()
    }

    /// By block size, of the one at the place `root`, or of all; blocks in threads' caches are free.
    #[pyo3(signature = (root=None))]
    fn classes(&self, root: Option<u32>) -> Vec<SizeClass> {
        self.0.classes(root).into_iter().map(size_class).collect()
    }

    /// By arena and block size.
    fn class_use(&self) -> Vec<JemallocClassUse> {
        all(self.0.class_use())
    }

    /// What would go if the blocks of slabs were moved into as few as they need; all pages count where `pages` is None.
    /// `arenas`: as if there were only that many; None or 0: as there are.
    #[pyo3(signature = (pages, arenas=None))]
    fn packing(&self, py: Python<'_>, pages: Option<&Pages>, arenas: Option<u32>) -> Packing {
        let pages = pages.map(|pages| pages.0.clone());
        py.detach(|| packed(self.0.slabs(arenas.and_then(NonZeroU32::new)), pages.as_deref()))
    }

    /// [start, end) of blocks in threads' caches, ascending; neighbours together.
    fn waiting(&self) -> Vec<Range> {
        self.0.waiting()
    }

    /// The stacks of sampled blocks in use, those with the most bytes first; none where nothing is sampled.
    fn samples(&self, py: Python<'_>, space: &Space) -> PyResult<Vec<SampledStack>> {
        Ok(all(watched(py, None, |watcher| self.0.samples(watcher, &space.0))?))
    }

    /// By arena.
    fn arena_use(&self) -> Vec<JemallocArenaUse> {
        all(self.0.arena_use())
    }

    /// How many caches of threads were found, by the places of jemallocs.
    #[getter]
    fn caches(&self) -> Vec<usize> {
        self.0.caches.clone()
    }

    /// Bytes of extents of the huge page allocator of which it is not known what lies between them, by the places of jemallocs.
    #[getter]
    fn astray(&self) -> Vec<u64> {
        self.0.astray.clone()
    }

    #[getter]
    fn moving(&self) -> InMotion {
        self.0.moving.into()
    }

    /// How many slabs and large blocks there are.
    #[getter]
    fn run_count(&self) -> usize {
        self.0.run_count()
    }

    /// What lies at `address`; None outside of all.
    fn find(&self, address: u64) -> Option<JemallocBlock> {
        self.0.find(address).map(JemallocBlock::from)
    }

    /// [start, end) of extents in which no block is, ascending: dirty ones, and muzzy ones.
    fn unused(&self) -> (Vec<Range>, Vec<Range>) {
        self.0.unused()
    }

    /// The used blocks of the slab that has `address`.
    fn used_in_run(&self, address: u64) -> Vec<Member> {
        self.0.used_in_run(address).into_iter().map(used).collect()
    }

    /// The blocks that are meant.
    fn list_blocks(&self, py: Python<'_>, asked: Given<Asked>) -> BlockList {
        py.detach(|| self.0.list_blocks(&asked.0)).into()
    }

    /// The first `most` used blocks of `least` to `largest` bytes, ascending.
    fn first_used(&self, least: u64, largest: u64, most: usize) -> Vec<Member> {
        self.0.first_used(least, largest, most).into_iter().map(used).collect()
    }

    /// The `most` largest used blocks of at least `least` bytes, largest first.
    fn largest_used(&self, least: u64, most: usize) -> Vec<Member> {
        self.0.largest_used(least, most).into_iter().map(used).collect()
    }

    /// Damage met in extents.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }

    /// Active extents that are not as large as their class says, or whose bitmap does not fit to it.
    #[getter]
    fn unfit(&self) -> Vec<Damage> {
        damage_rows(&self.0.unfit)
    }

    /// Slabs whose bitmap and count of free regions differ.
    #[getter]
    fn miscounted(&self) -> Vec<Damage> {
        damage_rows(&self.0.miscounted)
    }

    /// Extents that are being changed, blocks that a cache has and another or a slab too, and what is no block in a cache.
    #[getter]
    fn unfinished(&self) -> Vec<Damage> {
        damage_rows(&self.0.unfinished)
    }

    /// Maximal runs of unused bytes, of at least `minimum`.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<Hole>> {
        let holes = watched(py, None, |watcher| self.0.holes(watcher, minimum))?;
        Ok(holes.into_iter().map(hole).collect())
    }
}

fn form(name: &str) -> PyResult<&'static jemalloc::JemallocForm> {
    jemalloc::form_named(name).ok_or_else(|| PyValueError::new_err(format!("no form of jemalloc is called {name:?}")))
}

fn shape(bits: u32) -> PyResult<Shape> {
    Shape::of(bits).ok_or_else(|| PyValueError::new_err(format!("no tree of jemalloc is for {bits} bits")))
}

/// The forms that jemalloc's structures have had, in the order in which they are tried.
#[pyfunction]
pub fn jemalloc_forms() -> Vec<JemallocForm> {
    jemalloc::FORMS.iter().map(|form| JemallocForm { name: form.name, quantum: form.quantum }).collect()
}

/// The roots of trees of extents in static data, `data`, that lead to `anonymous` memory; ranges ascend and do not touch.
#[pyfunction]
pub fn find_trees(py: Python<'_>, space: &Space, data: Vec<Range>, anonymous: Vec<Range>) -> PyResult<Vec<FoundTree>> {
    Ok(all(watched(py, None, |watcher| jemalloc::find_trees(watcher, &space.0, &data, &anonymous))?))
}

/// How well the form of that name fits the extents of a tree for so many bits. Raises ValueError for another name or number.
#[pyfunction]
pub fn jemalloc_fit(py: Python<'_>, space: &Space, name: &str, root: u64, bits: u32) -> PyResult<JemallocFit> {
    let (form, shape) = (form(name)?, shape(bits)?);
    Ok(watched(py, None, |watcher| jemalloc::fit_of(watcher, &space.0, form, root, shape))?.into())
}

/// Reads all of several. Of each: the name of its form, the root of its tree, for how many bits that is, and the static data of
/// its module. `anonymous`: where their own memory may lie, ascending; `storage`: where threads' own data may. Raises ValueError for another name or number.
#[pyfunction]
pub fn read_jemalloc(
    py: Python<'_>,
    space: &Space,
    anonymous: Vec<Range>,
    roots: Vec<(String, u64, u32, Vec<Range>)>,
    storage: Vec<Range>,
) -> PyResult<Jemalloc> {
    let root = |(name, root, bits, data): (String, u64, u32, Vec<Range>)| {
        Ok(JemallocRoot { form: form(&name)?, root, shape: shape(bits)?, data, storage: storage.clone() })
    };
    let roots = roots.into_iter().map(root).collect::<PyResult<Vec<JemallocRoot>>>()?;
    let found = watched(py, None, |watcher| jemalloc::read_jemalloc(watcher, &space.0, &anonymous, &roots))?;
    Ok(Jemalloc(Arc::new(found)))
}
