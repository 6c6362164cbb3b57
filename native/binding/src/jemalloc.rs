//! The classes and functions for jemalloc that Python sees. Any module of the process may contain the jemalloc.

use crate::detaching::detached;
use crate::heaps::ExtentStore;
use crate::memory::{Pages, Space};
use crate::packing::{packed, Packing};
use crate::rows::{all, answers, damage_rows, exports, Damage, Range};
use crate::watch::watched;
use gdbheap_core::allocators::jemalloc::{self, JemallocRoot, TreeShape};
use gdbheap_core::allocators::Use;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::num::NonZeroU32;

answers! {
    /// The root of a tree of extents in static data. `bits`: the number of address bits that the tree covers.
    struct FoundTree of jemalloc::FoundTree { address: u64, bits: u32 }

    /// How well one layout of jemalloc's structures fits a target. `extents`: the number of active extents that were
    /// checked. `fit`: the number of these that agree with the layout.
    struct JemallocFit of jemalloc::JemallocFit { extents: u64, fit: u64 }

    /// The memory of an arena, in bytes.
    ///
    /// - `active`, `dirty`, `muzzy`, `retained`: extents in each of these states.
    /// - `used`: used blocks.
    /// - `cached`: blocks in thread caches.
    /// - `own`: blocks in which these caches store their lists.
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

    /// The number of slabs (0 for large blocks) and the numbers of used, cached and free blocks of one size in an
    /// arena.
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

    /// The inconsistencies that exist because threads were inside jemalloc.
    ///
    /// - `extents`: the number of extents that a thread was changing.
    /// - `lists`: the same number, but linked extents count once. A thread that purges puts all of its extents on one
    ///   list.
    /// - `both`: the number of blocks in a cache that are also in another cache, or free in a slab.
    /// - `astray`: the number of cache entries that point to no block of their size class.
    /// - `bins`: the smallest number of cache bins that explains `both` and `astray`.
    struct InMotion of jemalloc::InMotion { extents: u64, lists: u64, both: u64, astray: u64, bins: u64 }

    /// A stack from which sampled blocks were allocated.
    ///
    /// - `root`: the index of the blocks' jemalloc among those that were read.
    /// - `frames`: return addresses, innermost first.
    /// - `blocks`, `bytes`: the number and the size of the sampled blocks in use.
    /// - `likely_blocks`, `likely_bytes`: jemalloc's own estimate of all blocks that these samples represent; None
    ///   before 5.3.
    /// - `first`: the address of the first of the sampled blocks.
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

exports! {
    classes: Jemalloc;
    functions: jemalloc_forms, find_trees, jemalloc_fit, read_jemalloc;
}

/// All blocks of one or more jemallocs, by address.
#[pyclass(frozen, extends = ExtentStore)]
pub struct Jemalloc(jemalloc::Jemalloc);

#[pymethods]
impl Jemalloc {
    /// Return how many blocks of each size each arena has: used, cached and free.
    fn class_use(&self) -> Vec<JemallocClassUse> {
        all(self.0.class_use())
    }

    /// Return the memory that would be freed if the blocks of slabs were moved into as few slabs as possible. Without
    /// `pages`, all pages count as resident. `arenas`: the number of arenas to assume; None or 0 for the real number.
    #[pyo3(signature = (pages, arenas=None))]
    fn packing(&self, py: Python<'_>, pages: Option<&Pages>, arenas: Option<u32>) -> Packing {
        let pages = pages.map(|pages| pages.0.clone());
        detached(py, || packed(self.0.slabs(arenas.and_then(NonZeroU32::new)), pages.as_deref()))
    }

    /// Return the stacks of the sampled blocks in use, those with the most bytes first. Empty if jemalloc does not
    /// sample.
    fn samples(&self, py: Python<'_>, space: &Space) -> PyResult<Vec<SampledStack>> {
        Ok(all(watched(py, None, |watcher| self.0.samples(watcher, &space.0))?))
    }

    /// Return for each arena how many bytes its extents and blocks take.
    fn arena_use(&self) -> Vec<JemallocArenaUse> {
        all(self.0.arena_use())
    }

    /// For each jemalloc, the number of thread caches that were found.
    #[getter]
    fn caches(&self) -> Vec<usize> {
        self.0.caches.clone()
    }

    /// For each jemalloc, the bytes of those extents of its huge page allocator (HPA) that are in no known slab.
    #[getter]
    fn astray(&self) -> Vec<u64> {
        self.0.astray.clone()
    }

    #[getter]
    fn moving(&self) -> InMotion {
        self.0.moving.into()
    }

    /// Return two lists of extents without blocks, as [start, end), ascending: the dirty extents, and the muzzy
    /// extents.
    fn unused(&self) -> (Vec<Range>, Vec<Range>) {
        (self.0.extents.pieces_of(Use::Free), self.0.extents.pieces_of(Use::Muzzy))
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
}

fn form(name: &str) -> PyResult<&'static jemalloc::JemallocForm> {
    jemalloc::form_named(name).ok_or_else(|| PyValueError::new_err(format!("no form of jemalloc is called {name:?}")))
}

fn shape(bits: u32) -> PyResult<TreeShape> {
    TreeShape::of(bits).ok_or_else(|| PyValueError::new_err(format!("no tree of jemalloc is for {bits} bits")))
}

/// Return the names of the layouts that jemalloc's structures had in different releases, in the order in which they are
/// tried.
#[pyfunction]
pub fn jemalloc_forms() -> Vec<&'static str> {
    jemalloc::FORMS.iter().map(|form| form.name).collect()
}

/// Return the roots of trees of extents in static data (`data`) that point to `anonymous` memory. In both lists, the
/// ranges must be ascending and must not touch.
#[pyfunction]
pub fn find_trees(py: Python<'_>, space: &Space, data: Vec<Range>, anonymous: Vec<Range>) -> PyResult<Vec<FoundTree>> {
    Ok(all(watched(py, None, |watcher| jemalloc::find_trees(watcher, &space.0, &data, &anonymous))?))
}

/// Check how well the layout `name` fits the extents of a tree. `bits`: the number of address bits of the tree. Raises
/// ValueError for an unknown name or number.
#[pyfunction]
pub fn jemalloc_fit(py: Python<'_>, space: &Space, name: &str, root: u64, bits: u32) -> PyResult<JemallocFit> {
    let (form, shape) = (form(name)?, shape(bits)?);
    Ok(watched(py, None, |watcher| jemalloc::fit_of(watcher, &space.0, form, root, shape))?.into())
}

/// Read one or more jemallocs. Raises ValueError for an unknown name or number.
///
/// - `roots`: a record for each jemalloc. It has the name of the layout, the root of the tree, the tree's number of
///   address bits, and the static data of the module.
/// - `anonymous`: where the memory of the jemallocs may lie, ascending.
/// - `storage`: where thread-local data may lie.
#[pyfunction]
pub fn read_jemalloc(
    py: Python<'_>,
    space: &Space,
    anonymous: Vec<Range>,
    roots: Vec<(String, u64, u32, Vec<Range>)>,
    storage: Vec<Range>,
) -> PyResult<Py<Jemalloc>> {
    let root = |(name, root, bits, data): (String, u64, u32, Vec<Range>)| {
        Ok(JemallocRoot { form: form(&name)?, root, shape: shape(bits)?, data, storage: storage.clone() })
    };
    let roots = roots.into_iter().map(root).collect::<PyResult<Vec<JemallocRoot>>>()?;
    let found = watched(py, None, |watcher| jemalloc::read_jemalloc(watcher, &space.0, &anonymous, &roots))?;
    ExtentStore::with(py, found.extents.clone(), Jemalloc(found))
}
