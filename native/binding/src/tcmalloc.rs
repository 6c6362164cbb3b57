//! tcmalloc of gperftools, whichever module brings it.

use crate::memory::{Pages, Space};
use crate::packing::{copied, Packing};
use crate::records::Given;
use crate::rows::{
    all, answers, block, damage_rows, size_class, used, BlockList, Damage, Hole, Member, Range, SizeClass,
};
use crate::watch::watched;
use gdbheap_core::allocators::tcmalloc::{self, Shape, TcmallocHole, TcmallocRoot};
use gdbheap_core::allocators::Asked;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

answers! {
    /// The root of a map of pages in static data, and the bytes of a page.
    struct FoundSpanMap of tcmalloc::FoundMap { address: u64, page: u64 }

    /// Of how many spans it was asked whether their free blocks and their count of others add up, and in how many they do.
    struct TcmallocFit of tcmalloc::TcmallocFit { spans: u64, fit: u64 }

    /// [start, end) without a gap, of the tcmalloc with the number `root` among those that were read.
    struct TcmallocArea { start: u64, end: u64, root: u32 }

    /// What lies at an address. The state is used, free, `free pages`, `returned pages`, metadata, padding or unexplained; the
    /// list of a free block span, `transfer cache` or `thread cache`. `root`: the place of its tcmalloc among those that were
    /// read.
    struct TcmallocBlock of tcmalloc::TcmallocFound {
        address: u64,
        size: u64,
        state: &'static str,
        list: Option<&'static str>,
        root: u32,
    }

    /// What one has, in bytes: used blocks, those that wait in their spans, in transfer caches and in threads' caches, what is
    /// left over in spans, free pages, those that were given back, and its own memory.
    struct TcmallocUse of tcmalloc::TcmallocUse {
        used: u64,
        listed: u64,
        transfer: u64,
        cached: u64,
        waste: u64,
        free: u64,
        returned: u64,
        metadata: u64,
    }

    /// Blocks of one size: in how many spans, and how many are used, in their spans, in transfer caches and in threads'.
    struct TcmallocSizeUse of tcmalloc::SizeUse {
        root: u32,
        size: u64,
        spans: u64,
        used: u64,
        listed: u64,
        transfer: u64,
        cached: u64,
    }

    /// A thread's cache, of the tcmalloc at the place `root` among those that were read: where it is, its blocks, and their bytes.
    struct TcmallocCache of tcmalloc::CacheUse { root: u32, address: u64, blocks: u64, bytes: u64 }

    /// What was not as it is at rest: locks of central lists that are held, chains of free blocks that are not as they say,
    /// and entries of chains that are free elsewhere, or no blocks.
    struct TcmallocInMotion of tcmalloc::InMotion { locked: u64, chains: u64, astray: u64 }
}

fn hole(found: TcmallocHole) -> Hole {
    let TcmallocHole { start, end, before, after } = found;
    Hole { start, end, address: start, arena: None, before: before.map(block), after: after.map(block) }
}

/// All of one tcmalloc or several, by address.
#[pyclass(frozen)]
pub struct Tcmalloc(pub Arc<tcmalloc::Tcmalloc>);

#[pymethods]
impl Tcmalloc {
    /// The stretches without a gap, ascending.
    fn areas(&self) -> Vec<TcmallocArea> {
        let row = |area: &tcmalloc::Area| TcmallocArea { start: area.start, end: area.end, root: area.root };
        self.0.areas().iter().map(row).collect()
    }

    /// By block size, of the one at the place `root`, or of all; blocks that wait anywhere are free.
    #[pyo3(signature = (root=None))]
    fn classes(&self, root: Option<u32>) -> Vec<SizeClass> {
        self.0.classes(root).into_iter().map(size_class).collect()
    }

    /// By block size, with where free ones wait.
    fn sizes(&self) -> Vec<TcmallocSizeUse> {
        all(self.0.sizes())
    }

    /// What would go if the program copied the blocks of spans and freed the old ones then; all pages count where `pages` is None.
    #[pyo3(signature = (pages))]
    fn packing(&self, py: Python<'_>, pages: Option<&Pages>) -> Packing {
        let pages = pages.map(|pages| pages.0.clone());
        py.detach(|| copied(self.0.slabs(), pages.as_deref()))
    }

    /// [start, end) of blocks in threads' caches and in transfer caches, ascending; neighbours together.
    fn waiting(&self) -> Vec<Range> {
        self.0.waiting()
    }

    /// What each has in all, by the places of tcmallocs.
    fn sums(&self) -> Vec<TcmallocUse> {
        all(self.0.sums())
    }

    /// The caches of threads.
    #[getter]
    fn holding(&self) -> Vec<TcmallocCache> {
        all(self.0.holding.iter().copied())
    }

    /// How many caches of threads were found, by the places of tcmallocs; None where its central lists were not.
    #[getter]
    fn caches(&self) -> Vec<Option<usize>> {
        self.0.caches.clone()
    }

    #[getter]
    fn moving(&self) -> TcmallocInMotion {
        self.0.moving.into()
    }

    /// How many spans with blocks there are.
    #[getter]
    fn run_count(&self) -> usize {
        self.0.run_count()
    }

    /// What lies at `address`; None outside of all.
    fn find(&self, address: u64) -> Option<TcmallocBlock> {
        self.0.find(address).map(TcmallocBlock::from)
    }

    /// [start, end) of the free pages that were not given back, ascending.
    fn unused(&self) -> Vec<Range> {
        self.0.unused()
    }

    /// The used blocks of the span that has `address`.
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

    /// Damage met in spans.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }

    /// Spans whose free blocks and count of others differ.
    #[getter]
    fn miscounted(&self) -> Vec<Damage> {
        damage_rows(&self.0.miscounted)
    }

    /// Lists of free blocks outside of spans that are not as they say.
    #[getter]
    fn broken(&self) -> Vec<Damage> {
        damage_rows(&self.0.broken)
    }

    /// Maximal runs of unused bytes, of at least `minimum`.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<Hole>> {
        let holes = watched(py, None, |watcher| self.0.holes(watcher, minimum))?;
        Ok(holes.into_iter().map(hole).collect())
    }
}

/// A root in the core's words.
fn root(root: u64, page: u64, data: Vec<Range>) -> PyResult<TcmallocRoot> {
    let shape = Shape::of(page);
    let shape = shape.ok_or_else(|| PyValueError::new_err(format!("no tcmalloc has pages of {page} bytes")))?;
    Ok(TcmallocRoot { root, shape, data })
}

/// The roots of maps of pages in static data, `data`, that lead to `anonymous` memory; ranges ascend and do not touch.
#[pyfunction]
pub fn find_span_maps(
    py: Python<'_>,
    space: &Space,
    data: Vec<Range>,
    anonymous: Vec<Range>,
) -> PyResult<Vec<FoundSpanMap>> {
    Ok(all(watched(py, None, |watcher| tcmalloc::find_page_maps(watcher, &space.0, &data, &anonymous))?))
}

/// How well the spans of a map of pages fit the sizes of classes in the static data of its module. Raises ValueError for
/// pages of a size that none has.
#[pyfunction]
pub fn tcmalloc_fit(py: Python<'_>, space: &Space, address: u64, page: u64, data: Vec<Range>) -> PyResult<TcmallocFit> {
    let root = root(address, page, data)?;
    Ok(watched(py, None, |watcher| tcmalloc::fit_of(watcher, &space.0, &root))?.into())
}

/// Reads all of several. Of each: the root of its map, the bytes of a page, and the static data of its module. `anonymous`:
/// where their own memory may lie, ascending. Raises ValueError for pages of a size that none has.
#[pyfunction]
pub fn read_tcmalloc(
    py: Python<'_>,
    space: &Space,
    anonymous: Vec<Range>,
    roots: Vec<(u64, u64, Vec<Range>)>,
) -> PyResult<Tcmalloc> {
    let roots = roots.into_iter().map(|(address, page, data)| root(address, page, data));
    let roots = roots.collect::<PyResult<Vec<TcmallocRoot>>>()?;
    let found = watched(py, None, |watcher| tcmalloc::read_tcmalloc(watcher, &space.0, &anonymous, &roots))?;
    Ok(Tcmalloc(Arc::new(found)))
}
