//! The classes and functions with which Python divides address space by its use.

use crate::detaching::detached;
use crate::heaps::{BlockStore, Heaps};
use crate::memory::{Pages, Space};
use crate::records::Argument;
use crate::rows::{all, answers, exports, Place, Range};
use crate::watch::{raised, watched, Report};
use gdbheap_access::memory::sharing;
use gdbheap_core::allocators::PARTS;
use gdbheap_core::memory_use::{self, PinRules, Sum, WINDOW};
use gdbheap_core::python::TypeLayout;
use gdbheap_core::Machine;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::{HashMap, HashSet};

answers! {
    /// The memory of an owner, in bytes.
    ///
    /// - `bytes`: all of it.
    /// - `resident`, `swapped`, `zero`: parts of `bytes`. `zero` is mapped to the kernel's zero page.
    /// - `huge`: the part of `resident` that is in huge pages.
    /// - `pages`: pages that belong wholly to the owner, resident or not.
    /// - `whole`, `whole_huge`: the parts of `pages` that are resident, and that are in huge pages.
    struct OwnerSum {
        owner: u32,
        bytes: u64,
        resident: u64,
        swapped: u64,
        zero: u64,
        huge: u64,
        pages: u64,
        whole: u64,
        whole_huge: u64,
    }

    /// A group of blocks that pins pages. `start`, `end`: the range that contains the blocks. `bytes`: the size of all
    /// blocks together. `freed`: the bytes that removing the blocks would free.
    struct Pin { start: u64, end: u64, blocks: u64, bytes: u64, freed: u64 }

    /// Sums over all groups that would free enough bytes: the number of groups, the number of blocks, the bytes of the
    /// blocks, and the bytes that removing them would free.
    struct PinTotals of memory_use::Totals { groups: u64, blocks: u64, bytes: u64, freed: u64 }

    /// The groups that pin the most bytes, largest first, and the sums over all groups.
    struct Pins { rows: Vec<Pin>, totals: PinTotals }

    /// The objects of one type whose reference counts were changed, in a comparison with the other process's pages.
    ///
    /// - `objects`: the number of reference counts that differ.
    /// - `pages`: the number of pages with such counts.
    /// - `counts_alone`: the number of these pages on which nothing else differs.
    /// - `restored`: the number of pages that equal the other process's pages again. They contain objects of the type,
    ///   but none that the garbage collector tracks.
    /// - `restored_tracked`: the same for pages that also contain an object that the garbage collector tracks.
    struct CountsOf of memory_use::CountsOf {
        type_address: u64,
        objects: u64,
        pages: u64,
        counts_alone: u64,
        restored: u64,
        restored_tracked: u64,
    }

    /// The numbers of a process's pages, by what differs between them and the same pages of another process.
    ///
    /// - Private and equal: `restored` (without objects), `restored_counts` (with objects, none of them tracked by the
    ///   garbage collector), `restored_tracked` (with tracked objects).
    /// - Private and different: in words that the garbage collector writes (`collector`), in reference `counts`, in
    ///   `both`, or in other bytes (`other`).
    /// - `only_here`: the other process has no such page. `shared`: the two processes still share the page.
    /// - Pages with objects of which none is tracked: `quiet_own` (private, and equal or different only in counts) and
    ///   `quiet_shared` (still shared).
    struct WrittenPages {
        restored: u64,
        restored_counts: u64,
        restored_tracked: u64,
        collector: u64,
        counts: u64,
        both: u64,
        other: u64,
        only_here: u64,
        shared: u64,
        quiet_own: u64,
        quiet_shared: u64,
        types: Vec<CountsOf>,
    }

    /// The part [start, end) that is left of an old copy of a buffer. `buffer`: the index of the buffer. `base`: the
    /// address at which the copy began.
    struct CopyRemains of memory_use::CopyRemains { buffer: usize, base: u64, start: u64, end: u64 }
}

exports! {
    classes: ComparedPages, Sweep;
    functions: pins, look_at, find_copies, read_once, compare_pages, written_pages, page_marks, value_marks, zero_pages;
}

impl OwnerSum {
    fn new((owner, sum): (u32, Sum)) -> OwnerSum {
        let Sum { bytes, resident, swapped, zero, huge, pages, whole, whole_huge } = sum;
        OwnerSum { owner, bytes, resident, swapped, zero, huge, pages, whole, whole_huge }
    }
}

/// A sweep over ascending ranges of memory. Each range has an owner: a small number, which is also the owner's rank.
/// There are separate sums for each cell: cell 0 lies below the first cut, cell 1 begins at the first cut, and so on.
/// Cuts are page-aligned.
#[pyclass]
pub struct Sweep(memory_use::Sweep);

#[pymethods]
impl Sweep {
    /// Create a sweep. `cuts`: ascending page-aligned addresses at each of which a new cell begins. `kept`: the owners
    /// for which parts of huge pages are stored as ranges. Raises ValueError if the cuts are not ascending and
    /// page-aligned.
    #[new]
    #[pyo3(signature = (machine, pages, owners, cuts=Vec::new(), kept=Vec::new()))]
    fn new(
        machine: Argument<Machine>,
        pages: Option<&Pages>,
        owners: usize,
        cuts: Vec<u64>,
        kept: Vec<u32>,
    ) -> PyResult<Sweep> {
        let pages = pages.map(|pages| pages.0.clone());
        memory_use::Sweep::new(machine.0.page, pages, owners, cuts, kept).map(Sweep).map_err(raised)
    }

    /// Return the whole pages of the `kept` owners that are parts of huge pages, as ascending `(start, end)` ranges.
    fn huge_ranges(&self) -> Vec<Range> {
        self.0.huge_ranges().to_vec()
    }

    /// Assign absent bytes to `owner`. `ranges`: the ascending `(start, end)` ranges of these bytes. In ranges that are
    /// added later, the absent bytes count for `owner` instead of for the owner of the range. Raises ValueError if the
    /// ranges do not ascend, or if `owner` is not a known owner.
    fn set_lost(&mut self, ranges: Vec<Range>, owner: u32) -> PyResult<()> {
        self.0.set_lost(ranges, owner).map_err(raised)
    }

    /// Add the range [start, end), which has one owner.
    fn add(&mut self, start: u64, end: u64, owner: u32) -> PyResult<()> {
        self.0.add(start, end, owner).map_err(raised)
    }

    /// Add all parts of the region that begins at `start` in a store: a region of chunks, an arena of pools, a segment
    /// or an area. Return the end of the region.
    ///
    /// `owners` maps the names of parts to owners: used, free, cached, waiting, top, header, padding, `free run`,
    /// muzzy, reserved, foreign, unexplained. Raises ValueError if no region begins at `start`, or if the region has a
    /// part without an owner.
    fn add_blocks(
        &mut self,
        py: Python<'_>,
        space: &Space,
        store: &BlockStore,
        start: u64,
        owners: HashMap<String, u32>,
    ) -> PyResult<u64> {
        let by_part = PARTS.map(|part| owners.get(part).copied());
        watched(py, None, |watcher| self.0.add_blocks(watcher, &space.0, &store.0, start, by_part))
    }

    /// Return the sums of each owner, separately for each cell.
    fn finish(&mut self) -> PyResult<Vec<Vec<OwnerSum>>> {
        let cells = self.0.finish().map_err(raised)?;
        Ok(cells.into_iter().map(|cell| cell.into_iter().map(OwnerSum::new).collect()).collect())
    }
}

/// Return the groups of blocks of a store that pin the most pages, largest first, and the sums over all groups.
///
/// - `kept`: ranges that the kernel does not release.
/// - `trimmed`: the starts of heaps whose free end can be trimmed.
/// - `least`: groups that would free fewer bytes are left out.
/// - `most`: the largest number of groups to list.
#[pyfunction]
pub fn pins(
    py: Python<'_>,
    machine: Argument<Machine>,
    store: &BlockStore,
    pages: Option<&Pages>,
    kept: Vec<Range>,
    trimmed: Vec<u64>,
    least: u64,
    most: usize,
) -> Pins {
    let (store, pages) = (&store.0, pages.map(|pages| &*pages.0));
    let wanted = PinRules { page: machine.0.page, pages, ranges: &kept, least, most };
    let (rows, totals) = detached(py, || memory_use::pins(store, &trimmed, wanted));
    let pin = |(start, end, blocks, bytes, freed)| Pin { start, end, blocks, bytes, freed };
    Pins { rows: rows.into_iter().map(pin).collect(), totals: totals.into() }
}

/// Classify the contents of each block `(user address, size)`: "zeros", "text", "pointers" (into the ranges `mapped`,
/// which ascend), "data", or "absent bytes". Raises KeyboardInterrupt.
#[pyfunction]
pub fn look_at(py: Python<'_>, space: &Space, blocks: Vec<Place>, mapped: Vec<Range>) -> PyResult<Vec<&'static str>> {
    watched(py, None, |watcher| memory_use::look_at(watcher, &space.0, &blocks, &mapped))
}

/// Return copies of the beginnings of `buffers` that lie in `holes`, most frequent first. Copies may overlap. Only a
/// few sample words of each buffer and parts of the holes are read, and only in resident pages.
#[pyfunction]
pub fn find_copies(
    py: Python<'_>,
    space: &Space,
    pages: &Pages,
    buffers: Vec<Range>,
    holes: Vec<Range>,
) -> PyResult<Vec<CopyRemains>> {
    let find =
        |watcher: &dyn gdbheap_core::Watcher| memory_use::find_copies(watcher, &space.0, &pages.0, &buffers, &holes);
    Ok(all(watched(py, None, find)?))
}

/// Read every byte of the ranges once, on all processors, in windows of `window` bytes. Return the number of bytes
/// read. This is a benchmark: no analysis can be faster.
#[pyfunction]
#[pyo3(signature = (space, ranges, window=WINDOW))]
pub fn read_once(py: Python<'_>, space: &Space, ranges: Vec<Range>, window: u64) -> PyResult<u64> {
    watched(py, None, |watcher| memory_use::read_once(watcher, &space.0, &ranges, window))
}

/// Return the number of bytes of those pages in the ranges that contain only zeros. The ranges must be page-aligned.
#[pyfunction]
pub fn zero_pages(py: Python<'_>, space: &Space, ranges: Vec<Range>) -> PyResult<u64> {
    watched(py, None, |watcher| memory_use::zero_pages(watcher, &space.0, &ranges))
}

impl From<memory_use::WrittenPages> for WrittenPages {
    fn from(sums: memory_use::WrittenPages) -> WrittenPages {
        let memory_use::WrittenPages { restored, restored_counts, restored_tracked, collector, .. } = sums;
        let memory_use::WrittenPages { counts, both, other, only_here, shared, quiet_own, quiet_shared, types, .. } =
            sums;
        WrittenPages {
            restored,
            restored_counts,
            restored_tracked,
            collector,
            counts,
            both,
            other,
            only_here,
            shared,
            quiet_own,
            quiet_shared,
            types: all(types),
        }
    }
}

/// The private pages of a process, compared with those of another process.
#[pyclass(frozen)]
pub struct ComparedPages(memory_use::ComparedPages);

/// Compare the private pages of a process in `ranges` with the same pages of the process `other`. The process's
/// `pagemap` file at `path` shows which pages are private. Both processes must be stopped until this function returns.
/// Raises OSError and KeyboardInterrupt.
#[pyfunction]
pub fn compare_pages(
    py: Python<'_>,
    space: &Space,
    other: &Space,
    other_pages: &Pages,
    path: &str,
    ranges: Vec<Range>,
) -> PyResult<ComparedPages> {
    let (here, page) = (&space.0, space.0.page());
    let compared = watched(py, None, |watcher| {
        memory_use::compare(watcher, here, &other.0, &other_pages.0, sharing(watcher, path, &ranges, page)?)
    })?;
    Ok(ComparedPages(compared))
}

/// Count the pages by what was written to them since the two processes shared them. `layout`: the layout of the Python
/// objects in the process that has the pages; None if it has no such objects. `statics`: `(address, address of the
/// type)` of objects outside blocks. Raises KeyboardInterrupt.
#[pyfunction]
#[pyo3(signature = (compared, heaps, layout, statics, progress=None))]
pub fn written_pages(
    py: Python<'_>,
    compared: &ComparedPages,
    heaps: &Heaps,
    layout: Option<Argument<TypeLayout>>,
    statics: Vec<Place>,
    progress: Option<Report>,
) -> PyResult<WrittenPages> {
    let layout = layout.map(|layout| layout.0);
    let by = memory_use::WordOwners { heaps: heaps.0.lend(), layout: layout.as_ref(), statics: &statics };
    Ok(watched(py, progress, |watcher| memory_use::written(watcher, &by, &compared.0))?.into())
}

/// Return the marks (see `page_marks`) of those private pages in which all used blocks are objects of the types at the
/// addresses `types`. Raises OSError and KeyboardInterrupt.
#[pyfunction]
#[pyo3(signature = (heaps, layout, types, path, ranges, progress=None))]
pub fn value_marks(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    types: HashSet<u64>,
    path: &str,
    ranges: Vec<Range>,
    progress: Option<Report>,
) -> PyResult<Py<PyBytes>> {
    let (lent, space, page) = (heaps.0.lend(), &heaps.0.space, heaps.0.space.page());
    let marks = watched(py, progress, |watcher| {
        let own = sharing(watcher, path, &ranges, page)?.own;
        let alike = memory_use::pages_of_types(watcher, lent, &layout.0, &types, &own)?;
        memory_use::page_marks(watcher, space, &alike, page)
    })?;
    Ok(PyBytes::new(py, &marks).unbind())
}

/// Return the marks of pages in `ranges`, 16 bytes each, joined. Equal pages have equal marks, and pages of zeros have
/// none.
///
/// `shared`: whether to include all resident pages, not only private ones. The process's `pagemap` file at `path` shows
/// which pages these are. Raises OSError and KeyboardInterrupt.
#[pyfunction]
pub fn page_marks(
    py: Python<'_>,
    space: &Space,
    path: &str,
    ranges: Vec<Range>,
    shared: bool,
) -> PyResult<Py<PyBytes>> {
    let page = space.0.page();
    let marks = watched(py, None, |watcher| {
        let mut found = sharing(watcher, path, &ranges, page)?;
        if shared {
            found.own.append(&mut found.shared);
        }
        memory_use::page_marks(watcher, &space.0, &found.own, page)
    })?;
    Ok(PyBytes::new(py, &marks).unbind())
}
