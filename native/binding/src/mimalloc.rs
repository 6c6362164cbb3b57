//! mimalloc: CPython's own copy, and libraries.

use crate::mallocng::AskedOfClass;
use crate::memory::{Pages, Space};
use crate::packing::{packed, Packing};
use crate::records::Given;
use crate::rows::{
    all, answers, block, damage_rows, size_class, used, BlockList, Damage, Hole, Member, Range, SizeClass,
};
use crate::watch::watched;
use gdbheap_core::allocators::mimalloc::{self, MimallocHole, MimallocRoot};
use gdbheap_core::allocators::Asked;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

answers! {
    /// A form of the structures: bytes of `mi_page_t`, where a segment has its cookie, whether each heap of a thread has its
    /// tag, whether only CPython's own copy has it, and whether it has a map of pages in the place of segments.
    struct MimallocForm {
        name: &'static str,
        entry: u64,
        cookie: u64,
        tagged: bool,
        only_pythons: bool,
        has_map: bool,
    }

    /// A segment [start, end), or an arena or a page of 3.x; the thread that has it, 0 where that one is gone; and the place
    /// of its mimalloc among those that were read.
    struct Segment { start: u64, end: u64, thread: u64, root: u32 }

    /// A word of static data that leads to a map of pages of so many words.
    struct FoundMap of mimalloc::FoundMap { address: u64, map: u64, count: u64 }

    /// Of how many pages it was asked whether they are as a form says, how many are, and how many used blocks tell
    /// what was asked for, as those of secure and debug builds do: none where not most of them do. `entries`: what a map of pages
    /// has, and `placed`: how many of these the form finds a page of.
    struct FormFit of mimalloc::Fit { entries: u64, placed: u64, pages: u64, fit: u64, padded: u64 }

    /// What looks like a segment's header: the cookie xor the address, used pages, and whether its slices tile it. One that
    /// was given back keeps its header for a while, and has no used pages.
    struct FoundSegment of mimalloc::FoundSegment { address: u64, cookie: u64, used: u64, tiles: bool }

    /// The pages of the heaps with one tag, used blocks, their bytes, and pages that no thread owns.
    struct TaggedHeap { tag: u8, pages: u64, used: u64, bytes: u64, abandoned: u64 }

    /// What lies in a segment. The state is used, free, `free span`, reserved, `segment header`, padding or unexplained; the
    /// list that of a free block, None for one never handed out. `asked`: the bytes that were asked for, where the block
    /// says. `root`: the place of its mimalloc among those that were read; `arena`: the number of the heap that has its page.
    struct PageBlock {
        address: u64,
        size: u64,
        state: &'static str,
        list: Option<&'static str>,
        asked: Option<u64>,
        root: u32,
        arena: Option<u32>,
    }

    /// What a heap of a thread has: its pages, in bytes those with blocks in use and those without, and the blocks in use. `heap`:
    /// its address, 0 of the pages that none has, as their threads have ended or given them up; `number`: its place among those of
    /// the mimalloc at the place `root`.
    struct HeapUse of mimalloc::HeapUse {
        root: u32,
        number: u32,
        heap: u64,
        pages: u64,
        active: u64,
        empty: u64,
        used: u64,
    }

    /// A page whose lists do not fit its count, or a segment whose pages do not; `passing`: as a thread may leave it that stands
    /// inside mimalloc.
    struct Miscounted of mimalloc::Miscounted { damage: Damage, passing: bool }
}

fn hole(found: MimallocHole) -> Hole {
    let MimallocHole { start, end, arena, before, after } = found;
    Hole { start, end, address: start, arena, before: before.map(block), after: after.map(block) }
}

/// All of one mimalloc or several, by address.
#[pyclass(frozen)]
pub struct Mimalloc(pub Arc<mimalloc::Mimalloc>);

#[pymethods]
impl Mimalloc {
    /// Every segment, by address.
    fn segments(&self) -> Vec<Segment> {
        let row = |segment: &mimalloc::Segment| {
            let mimalloc::Segment { address, end, thread, root, .. } = *segment;
            Segment { start: address, end, thread, root }
        };
        self.0.segments().iter().map(row).collect()
    }

    /// By block size, of the one at the place `root`, or of all.
    #[pyo3(signature = (root=None))]
    fn classes(&self, root: Option<u32>) -> Vec<SizeClass> {
        self.0.classes(root).into_iter().map(size_class).collect()
    }

    /// By heap.
    fn heap_use(&self) -> Vec<HeapUse> {
        all(self.0.heap_use())
    }

    /// By tag.
    fn heaps(&self) -> Vec<TaggedHeap> {
        let row = |(tag, pages, used, bytes, abandoned)| TaggedHeap { tag, pages, used, bytes, abandoned };
        self.0.heaps().into_iter().map(row).collect()
    }

    /// Bytes of spans without a page, in all segments.
    #[getter]
    fn free_spans(&self) -> u64 {
        self.0.free_spans()
    }

    /// What holds no block in use: pages and spans, ascending.
    fn empty_spans(&self) -> Vec<Range> {
        self.0.empty_spans()
    }

    #[getter]
    fn page_count(&self) -> usize {
        self.0.page_count()
    }

    /// What holds `address`; None outside every segment.
    fn find(&self, space: &Space, address: u64) -> Option<PageBlock> {
        let (root, (address, size, state, list)) = self.0.find(&space.0, address)?;
        let asked = if state == "used" { self.0.asked_at(&space.0, address) } else { None };
        Some(PageBlock { address, size, state, list, asked, root, arena: self.0.arena_at(address) })
    }

    /// What was asked for, by block size, where blocks say so, of the one at the place `root`, or of all; one that does not say
    /// counts as wholly asked for.
    #[pyo3(signature = (space, root=None))]
    fn asked_by_class(&self, py: Python<'_>, space: &Space, root: Option<u32>) -> PyResult<Vec<AskedOfClass>> {
        let rows = watched(py, None, |watcher| self.0.asked_by_class(watcher, &space.0, root))?;
        Ok(rows.into_iter().map(|(size, used, asked)| AskedOfClass { size, used, asked }).collect())
    }

    /// What would go if the blocks of pages were moved into as few as they need; all pages count where `pages` is None.
    #[pyo3(signature = (pages))]
    fn packing(&self, py: Python<'_>, pages: Option<&Pages>) -> Packing {
        let pages = pages.map(|pages| pages.0.clone());
        py.detach(|| packed(self.0.slabs(), pages.as_deref()))
    }

    /// The used blocks of the page whose slices hold `address`.
    fn used_in_page(&self, address: u64) -> Vec<Member> {
        self.0.used_in_page(address).into_iter().map(used).collect()
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

    /// Damage met in segments.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }

    /// Pages whose lists do not fit their count.
    #[getter]
    fn miscounted(&self) -> Vec<Miscounted> {
        all(self.0.miscounted.iter().cloned())
    }

    /// Maximal runs of unused bytes, of at least `minimum`.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<Hole>> {
        let holes = watched(py, None, |watcher| self.0.holes(watcher, minimum))?;
        Ok(holes.into_iter().map(hole).collect())
    }
}

fn form(name: &str) -> PyResult<&'static mimalloc::MimallocForm> {
    mimalloc::form_named(name).ok_or_else(|| PyValueError::new_err(format!("no form of mimalloc is called {name:?}")))
}

/// The forms that mimalloc's structures have had, in the order in which they are tried.
#[pyfunction]
pub fn mimalloc_forms() -> Vec<MimallocForm> {
    let row = |form: &mimalloc::MimallocForm| MimallocForm {
        name: form.name,
        entry: form.entry(),
        cookie: form.cookie(),
        tagged: form.tagged,
        only_pythons: form.only_pythons,
        has_map: form.has_map(),
    };
    mimalloc::FORMS.iter().map(row).collect()
}

/// Reads all of several. Of each: the name of its form, whether its blocks tell what was asked for, and the addresses of its
/// segments, or that of its map of pages. Raises ValueError for another name.
#[pyfunction]
pub fn read_mimalloc(py: Python<'_>, space: &Space, roots: Vec<(String, bool, Vec<u64>)>) -> PyResult<Mimalloc> {
    let root =
        |(name, padded, places): (String, bool, Vec<u64>)| Ok(MimallocRoot { form: form(&name)?, padded, places });
    let roots = roots.into_iter().map(root).collect::<PyResult<Vec<MimallocRoot>>>()?;
    let found = watched(py, None, |watcher| mimalloc::read_mimalloc(watcher, &space.0, &roots))?;
    Ok(Mimalloc(Arc::new(found)))
}

/// What looks like a segment's header at a multiple of 32 MiB in `ranges`, by the form of that name. Raises ValueError for
/// another name.
#[pyfunction]
pub fn find_segments(py: Python<'_>, space: &Space, ranges: Vec<Range>, name: &str) -> PyResult<Vec<FoundSegment>> {
    let form = form(name)?;
    Ok(all(watched(py, None, |watcher| mimalloc::find_segments(watcher, &space.0, &ranges, form))?))
}

/// The words of static data in `ranges` that lead to what looks like a map of pages.
#[pyfunction]
pub fn find_page_maps(py: Python<'_>, space: &Space, ranges: Vec<Range>) -> PyResult<Vec<FoundMap>> {
    Ok(all(watched(py, None, |watcher| mimalloc::find_page_maps(watcher, &space.0, &ranges))?))
}

/// How well the form of that name fits a sample of the pages of segments, or of a map. Raises ValueError for another name.
#[pyfunction]
pub fn mimalloc_fit(py: Python<'_>, space: &Space, name: &str, places: Vec<u64>) -> PyResult<FormFit> {
    let form = form(name)?;
    Ok(watched(py, None, |watcher| mimalloc::fit_of(watcher, &space.0, form, &places))?.into())
}

/// The heaps that the pages of a sample of segments belong to, by the form of that name. Raises ValueError for another name.
#[pyfunction]
pub fn mimalloc_owners(py: Python<'_>, space: &Space, name: &str, places: Vec<u64>) -> PyResult<Vec<u64>> {
    let form = form(name)?;
    Ok(py.detach(|| mimalloc::owners_of(&space.0, form, &places)))
}

/// [start, end) of a map of pages and of each of its submaps, ascending.
#[pyfunction]
pub fn page_map_tables(py: Python<'_>, space: &Space, map: u64) -> Vec<Range> {
    py.detach(|| mimalloc::map_tables(&space.0, map))
}
