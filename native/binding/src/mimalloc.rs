//! The classes and functions for mimalloc that Python sees: CPython's own copy, and those of libraries.

use crate::detaching::detached;
use crate::heaps::ListedStore;
use crate::mallocng::AskedOfClass;
use crate::memory::{Pages, Space};
use crate::packing::{packed, Packing};
use crate::rows::{all, answers, exports, size_class, used, Damage, Member, Range, SizeClass};
use crate::watch::watched;
use gdbheap_core::allocators::mimalloc::{self, MimallocRoot};
use gdbheap_core::allocators::Store;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

answers! {
    /// A layout of mimalloc's structures, which some releases share.
    ///
    /// - `entry`: the size of `mi_page_t` in bytes.
    /// - `cookie`: the offset of a segment's cookie.
    /// - `tagged`: whether each heap of a thread has a tag.
    /// - `only_pythons`: whether only CPython's own copy of mimalloc has this layout.
    /// - `has_map`: whether the layout has a page map instead of segments.
    struct MimallocForm {
        name: &'static str,
        entry: u64,
        cookie: u64,
        tagged: bool,
        only_pythons: bool,
        has_map: bool,
    }

    /// A segment [start, end); in mimalloc 3, an arena or a page. `thread`: the id of the thread that owns it; 0 if
    /// that thread has ended. `root`: the index of its mimalloc among those that were read.
    struct Segment { start: u64, end: u64, thread: u64, root: u32 }

    /// A word of static data that points to a page map with `count` words. `address`: the address of the word. `map`:
    /// the address of the page map.
    struct FoundMap of mimalloc::FoundMap { address: u64, map: u64, count: u64 }

    /// How well a layout fits a sample of pages.
    ///
    /// - `pages`: the number of pages that were checked.
    /// - `fit`: the number of these that agree with the layout.
    /// - `padded`: the number of used blocks that record the requested size, as in secure and debug builds; 0 unless
    ///   most of them do.
    /// - `entries`: the number of entries of the page map that were read.
    /// - `placed`: the number of these for which the layout finds a page.
    struct FormFit of mimalloc::Fit { entries: u64, placed: u64, pages: u64, fit: u64, padded: u64 }

    /// A possible header of a segment. A segment that was returned keeps its header for a while, without used pages.
    ///
    /// - `cookie`: the segment's cookie, xor its address.
    /// - `used`: the number of used pages.
    /// - `tiles`: whether the slices cover the segment without gap or overlap.
    struct FoundSegment of mimalloc::FoundSegment { address: u64, cookie: u64, used: u64, tiles: bool }

    /// All heaps that have one tag.
    ///
    /// - `pages`: the number of their pages.
    /// - `used`, `bytes`: the number and the size of the used blocks.
    /// - `abandoned`: the number of pages that no thread owns.
    struct TaggedHeap { tag: u8, pages: u64, used: u64, bytes: u64, abandoned: u64 }

    /// The use of an address in a segment.
    ///
    /// - `state`: "used", "free", "free span", "reserved", "segment header", "padding" or "unexplained".
    /// - `list`: the list that contains a free block; None for a block that was never handed out.
    /// - `asked`: the requested bytes, if the block records them.
    /// - `root`: the index of the block's mimalloc among those that were read.
    /// - `arena`: the number of the heap that has the block's page.
    struct PageBlock {
        address: u64,
        size: u64,
        state: &'static str,
        list: Option<&'static str>,
        asked: Option<u64>,
        root: u32,
        arena: Option<u32>,
    }

    /// The memory of one heap of a thread.
    ///
    /// - `root`, `number`: the index of the heap's mimalloc, and the index of the heap in this mimalloc.
    /// - `heap`: the address of the heap; 0 for pages without a heap, whose threads have ended or abandoned them.
    /// - `pages`: the number of the heap's pages.
    /// - `active`, `empty`: the size of its pages with used blocks, and of those without, in bytes.
    /// - `used`: the size of its used blocks, in bytes.
    struct HeapUse of mimalloc::HeapUse {
        root: u32,
        number: u32,
        heap: u64,
        pages: u64,
        active: u64,
        empty: u64,
        used: u64,
    }

    /// A page whose count of used blocks contradicts its free lists, or a segment whose count of used pages contradicts
    /// its pages. `passing`: whether this may only be an unfinished change by a thread inside mimalloc.
    struct CountMismatch of mimalloc::CountMismatch { damage: Damage, passing: bool }
}

exports! {
    classes: Mimalloc;
    functions:
        read_mimalloc, find_segments, find_page_maps, mimalloc_fit, mimalloc_forms, mimalloc_owners, page_map_tables;
}

/// All blocks of one or more mimallocs, by address.
#[pyclass(frozen, extends = ListedStore)]
pub struct Mimalloc(Arc<mimalloc::Mimalloc>);

#[pymethods]
impl Mimalloc {
    /// Return all segments, by address.
    fn segments(&self) -> Vec<Segment> {
        let row = |segment: &mimalloc::Segment| {
            let mimalloc::Segment { address, end, thread, root, .. } = *segment;
            Segment { start: address, end, thread, root }
        };
        self.0.segments().iter().map(row).collect()
    }

    /// Return the numbers of blocks of each size, for the mimalloc with the index `root`. If `root` is None, return
    /// those of all mimallocs.
    #[pyo3(signature = (root=None))]
    fn classes(&self, root: Option<u32>) -> Vec<SizeClass> {
        self.0.classes(root).into_iter().map(size_class).collect()
    }

    /// Return for each heap the number of its pages, and the bytes of its pages and used blocks.
    fn heap_use(&self) -> Vec<HeapUse> {
        all(self.0.heap_use())
    }

    /// Return for each tag the number of pages and used blocks that the heaps with this tag have.
    fn heaps(&self) -> Vec<TaggedHeap> {
        let row = |(tag, pages, used, bytes, abandoned)| TaggedHeap { tag, pages, used, bytes, abandoned };
        self.0.heaps().into_iter().map(row).collect()
    }

    /// The bytes of all spans without a page, in all segments.
    #[getter]
    fn free_spans(&self) -> u64 {
        self.0.free_spans()
    }

    /// Return the pages and spans without used blocks, ascending.
    fn empty_spans(&self) -> Vec<Range> {
        self.0.empty_spans()
    }

    #[getter]
    fn page_count(&self) -> usize {
        self.0.page_count()
    }

    /// Return the use of `address`; None outside all segments.
    fn find(&self, space: &Space, address: u64) -> Option<PageBlock> {
        let (root, (address, size, state, list)) = self.0.find(&space.0, address)?;
        let asked = if state == "used" { self.0.asked_at(&space.0, address) } else { None };
        Some(PageBlock { address, size, state, list, asked, root, arena: self.0.arena_at(address) })
    }

    /// Return the requested bytes by block size, for the mimalloc with the index `root`. If `root` is None, return
    /// those of all mimallocs. A block that does not record its requested size counts with its whole size.
    #[pyo3(signature = (space, root=None))]
    fn asked_by_class(&self, py: Python<'_>, space: &Space, root: Option<u32>) -> PyResult<Vec<AskedOfClass>> {
        let rows = watched(py, None, |watcher| self.0.asked_by_class(watcher, &space.0, root))?;
        Ok(rows.into_iter().map(|(size, used, asked)| AskedOfClass { size, used, asked }).collect())
    }

    /// Return the memory that would be freed if the blocks of pages were moved into as few pages as possible. Without
    /// `pages`, all pages count as resident.
    #[pyo3(signature = (pages))]
    fn packing(&self, py: Python<'_>, pages: Option<&Pages>) -> Packing {
        let pages = pages.map(|pages| pages.0.clone());
        detached(py, || packed(self.0.slabs(), pages.as_deref()))
    }

    /// Return the used blocks of the page whose slices contain `address`.
    fn used_in_page(&self, address: u64) -> Vec<Member> {
        self.0.used_in_page(address).into_iter().map(used).collect()
    }

    /// Pages whose lists do not fit the page's count, and segments whose pages do not fit the segment's count.
    #[getter]
    fn miscounted(&self) -> Vec<CountMismatch> {
        all(self.0.miscounted.iter().cloned())
    }
}

fn form(name: &str) -> PyResult<&'static mimalloc::MimallocForm> {
    mimalloc::form_named(name).ok_or_else(|| PyValueError::new_err(format!("no form of mimalloc is called {name:?}")))
}

/// Return the layouts that mimalloc's structures had in different releases, in the order in which they are tried.
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

/// Read one or more mimallocs. Raises ValueError for an unknown name.
///
/// `roots`: for each mimalloc, (name of its layout, whether its blocks record the requested size, addresses). The
/// addresses are those of its segments, or that of its page map.
#[pyfunction]
pub fn read_mimalloc(py: Python<'_>, space: &Space, roots: Vec<(String, bool, Vec<u64>)>) -> PyResult<Py<Mimalloc>> {
    let root =
        |(name, padded, places): (String, bool, Vec<u64>)| Ok(MimallocRoot { form: form(&name)?, padded, places });
    let roots = roots.into_iter().map(root).collect::<PyResult<Vec<MimallocRoot>>>()?;
    let found = space.do_reads(py, move |watcher, space| mimalloc::read_mimalloc(watcher, space, &roots))?;
    let found = Arc::new(found);
    let base = ListedStore::base(Store::Mimalloc(found.clone()), found.clone());
    Py::new(py, base.add_subclass(Mimalloc(found)))
}

/// Return possible headers of segments of the layout `name`, at multiples of 32 MiB in `ranges`. Raises ValueError for
/// an unknown name.
#[pyfunction]
pub fn find_segments(py: Python<'_>, space: &Space, ranges: Vec<Range>, name: &str) -> PyResult<Vec<FoundSegment>> {
    let form = form(name)?;
    Ok(all(space.do_reads(py, move |watcher, space| mimalloc::find_segments(watcher, space, &ranges, form))?))
}

/// Return the words of static data in `ranges` that may point to a page map.
#[pyfunction]
pub fn find_page_maps(py: Python<'_>, space: &Space, ranges: Vec<Range>) -> PyResult<Vec<FoundMap>> {
    Ok(all(watched(py, None, |watcher| mimalloc::find_page_maps(watcher, &space.0, &ranges))?))
}

/// Check how well the layout `name` fits a sample of the pages of segments, or of the pages in a page map. Raises
/// ValueError for an unknown name.
#[pyfunction]
pub fn mimalloc_fit(py: Python<'_>, space: &Space, name: &str, places: Vec<u64>) -> PyResult<FormFit> {
    let form = form(name)?;
    Ok(watched(py, None, |watcher| mimalloc::fit_of(watcher, &space.0, form, &places))?.into())
}

/// Return the owners of the pages in a sample of segments, which are read with the layout `name`. An owner is the
/// address of a heap, or the id of a thread. Raises ValueError for an unknown name.
#[pyfunction]
pub fn mimalloc_owners(py: Python<'_>, space: &Space, name: &str, places: Vec<u64>) -> PyResult<Vec<u64>> {
    let form = form(name)?;
    Ok(detached(py, || mimalloc::owners_of(&space.0, form, &places)))
}

/// Return [start, end) of a page map and of each of its submaps, ascending.
#[pyfunction]
pub fn page_map_tables(py: Python<'_>, space: &Space, map: u64) -> Vec<Range> {
    detached(py, || mimalloc::map_tables(&space.0, map))
}
