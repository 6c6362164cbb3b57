//! The classes and functions for jemalloc that Python sees, from whichever module the process has it.

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
    /// A form of jemalloc's structures. `name`: its name. `quantum`: small size classes are multiples of this number of
    /// bytes.
    struct JemallocForm { name: &'static str, quantum: u64 }

    /// The root of a tree of extents in static data. `bits`: the number of address bits that the tree covers.
    struct FoundTree of jemalloc::FoundTree { address: u64, bits: u32 }

    /// The number of active extents that were checked against a form, and the number of these that fit the form.
    struct JemallocFit of jemalloc::JemallocFit { extents: u64, fit: u64 }

    /// An area [start, end) of one jemalloc, without gaps. `root`: the index of this jemalloc among those that were
    /// read.
    struct JemallocArea { start: u64, end: u64, root: u32 }

    /// What lies at an address. `state`: "used", "free", "dirty pages", "muzzy pages", "retained address space",
    /// "metadata", "padding" or "unexplained". `list`: for a free block, "slab" or "thread cache". `root`: the index of
    /// the block's jemalloc among those that were read. `arena`: the number of its arena.
    struct JemallocBlock of jemalloc::JemallocFound {
        address: u64,
        size: u64,
        state: &'static str,
        list: Option<&'static str>,
        root: u32,
        arena: u32,
    }

    /// The memory of an arena, in bytes: active, dirty, muzzy and retained extents; used blocks; blocks in thread
    /// caches (`cached`); and blocks in which these caches store their lists (`own`).
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

    /// The blocks of one size in an arena: the number of slabs (0 for large blocks), and the numbers of used, cached
    /// and free blocks.
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

    /// What is inconsistent because threads were inside jemalloc. `extents`: the number of extents that a thread was
    /// changing. `lists`: the same number, but linked extents count once (a thread that purges has all of its extents
    /// on one list). `both`: blocks that are in a cache and also in another cache, or free in a slab. `astray`: entries
    /// of caches that point to no block of their class. `bins`: the number of cache bins that may have caused `both`
    /// and `astray`.
    struct InMotion of jemalloc::InMotion { extents: u64, lists: u64, both: u64, astray: u64, bins: u64 }

    /// A stack from which sampled blocks were allocated. `root`: the index of the jemalloc of these blocks among those
    /// that were read. `frames`: return addresses, innermost first. `blocks` and `bytes`: the sampled blocks in use.
    /// `likely_blocks` and `likely_bytes`: jemalloc's own estimate of all blocks that these samples represent; None
    /// before 5.3. `first`: the address of the first of the blocks.
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

/// All blocks of one or more jemallocs, by address.
#[pyclass(frozen)]
pub struct Jemalloc(pub Arc<jemalloc::Jemalloc>);

#[pymethods]
impl Jemalloc {
    /// Return the areas, ascending. An area has no gaps.
    fn areas(&self) -> Vec<JemallocArea> {
        let row = |area: &jemalloc::Area| JemallocArea { start: area.start, end: area.end, root: area.root };
        self.0.areas().iter().map(row).collect()
    }

    /// Return the blocks by size: of the jemalloc with the index `root`, or of all jemallocs. Blocks in thread caches
    /// count as free.
    #[pyo3(signature = (root=None))]
    fn classes(&self, root: Option<u32>) -> Vec<SizeClass> {
        self.0.classes(root).into_iter().map(size_class).collect()
    }

    /// Return the blocks by arena and size.
    fn class_use(&self) -> Vec<JemallocClassUse> {
        all(self.0.class_use())
    }

    /// Return what would be freed if the blocks of slabs were moved into as few slabs as possible. Without `pages`, all
    /// pages count as resident. `arenas`: compute as if there were only this many arenas; None or 0: with all arenas
    /// that exist.
    #[pyo3(signature = (pages, arenas=None))]
    fn packing(&self, py: Python<'_>, pages: Option<&Pages>, arenas: Option<u32>) -> Packing {
        let pages = pages.map(|pages| pages.0.clone());
        py.detach(|| packed(self.0.slabs(arenas.and_then(NonZeroU32::new)), pages.as_deref()))
    }

    /// Return [start, end) of the blocks in thread caches, ascending; adjacent blocks are merged.
    fn waiting(&self) -> Vec<Range> {
        self.0.waiting()
    }

    /// Return the stacks of the sampled blocks in use, those with the most bytes first. Empty if jemalloc does not
    /// sample.
    fn samples(&self, py: Python<'_>, space: &Space) -> PyResult<Vec<SampledStack>> {
        Ok(all(watched(py, None, |watcher| self.0.samples(watcher, &space.0))?))
    }

    /// Return the memory of each arena.
    fn arena_use(&self) -> Vec<JemallocArenaUse> {
        all(self.0.arena_use())
    }

    /// For each jemalloc, the number of thread caches that were found.
    #[getter]
    fn caches(&self) -> Vec<usize> {
        self.0.caches.clone()
    }

    /// For each jemalloc, the bytes of those extents of the huge page allocator whose surroundings are unknown.
    #[getter]
    fn astray(&self) -> Vec<u64> {
        self.0.astray.clone()
    }

    #[getter]
    fn moving(&self) -> InMotion {
        self.0.moving.into()
    }

    /// The number of slabs and large blocks.
    #[getter]
    fn run_count(&self) -> usize {
        self.0.run_count()
    }

    /// Return what lies at `address`; None outside all areas.
    fn find(&self, address: u64) -> Option<JemallocBlock> {
        self.0.find(address).map(JemallocBlock::from)
    }

    /// Return two lists of extents without blocks, as [start, end), ascending: the dirty extents, and the muzzy
    /// extents.
    fn unused(&self) -> (Vec<Range>, Vec<Range>) {
        self.0.unused()
    }

    /// Return the used blocks of the slab that contains `address`.
    fn used_in_run(&self, address: u64) -> Vec<Member> {
        self.0.used_in_run(address).into_iter().map(used).collect()
    }

    /// Return the blocks that match the request `asked`.
    fn list_blocks(&self, py: Python<'_>, asked: Given<Asked>) -> BlockList {
        py.detach(|| self.0.list_blocks(&asked.0)).into()
    }

    /// Return the first `most` used blocks of `least` to `largest` bytes, ascending.
    fn first_used(&self, least: u64, largest: u64, most: usize) -> Vec<Member> {
        self.0.first_used(least, largest, most).into_iter().map(used).collect()
    }

    /// Return the `most` largest used blocks of at least `least` bytes, largest first.
    fn largest_used(&self, least: u64, most: usize) -> Vec<Member> {
        self.0.largest_used(least, most).into_iter().map(used).collect()
    }

    /// The damage that was found in extents.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }

    /// Active extents whose size, or whose bitmap, does not fit their class.
    #[getter]
    fn unfit(&self) -> Vec<Damage> {
        damage_rows(&self.0.unfit)
    }

    /// Slabs in which the bitmap and the count of free regions differ.
    #[getter]
    fn miscounted(&self) -> Vec<Damage> {
        damage_rows(&self.0.miscounted)
    }

    /// Changes that threads inside jemalloc had not finished: extents that were being changed; blocks in a cache that
    /// are also in another cache, or free in a slab; entries of caches that are not blocks.
    #[getter]
    fn unfinished(&self) -> Vec<Damage> {
        damage_rows(&self.0.unfinished)
    }

    /// Return the maximal runs of unused bytes, of at least `minimum` bytes.
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

/// Return the forms that jemalloc's structures have had, in the order in which they are tried.
#[pyfunction]
pub fn jemalloc_forms() -> Vec<JemallocForm> {
    jemalloc::FORMS.iter().map(|form| JemallocForm { name: form.name, quantum: form.quantum }).collect()
}

/// Return the roots of trees of extents in static data (`data`) that point to `anonymous` memory. In both lists, the
/// ranges must be ascending and must not touch.
#[pyfunction]
pub fn find_trees(py: Python<'_>, space: &Space, data: Vec<Range>, anonymous: Vec<Range>) -> PyResult<Vec<FoundTree>> {
    Ok(all(watched(py, None, |watcher| jemalloc::find_trees(watcher, &space.0, &data, &anonymous))?))
}

/// Check how well the named form fits the extents of a tree. `bits`: the number of address bits of the tree. Raises
/// ValueError for an unknown name or number.
#[pyfunction]
pub fn jemalloc_fit(py: Python<'_>, space: &Space, name: &str, root: u64, bits: u32) -> PyResult<JemallocFit> {
    let (form, shape) = (form(name)?, shape(bits)?);
    Ok(watched(py, None, |watcher| jemalloc::fit_of(watcher, &space.0, form, root, shape))?.into())
}

/// Read one or more jemallocs. `roots`: for each jemalloc, the name of its form, the root of its tree, the number of
/// address bits of the tree, and the static data of its module. `anonymous`: where the memory of the jemallocs may lie,
/// ascending. `storage`: where thread-local data may lie. Raises ValueError for an unknown name or number.
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
