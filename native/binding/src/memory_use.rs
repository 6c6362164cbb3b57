//! What address space is used for.

use crate::heaps::{Heaps, Store};
use crate::memory::{Pages, Space};
use crate::records::Given;
use crate::rows::{all, answers, Place, Range};
use crate::watch::{raised, watched, Report};
use gdbheap_access::memory::sharing;
use gdbheap_core::allocators::PARTS;
use gdbheap_core::memory_use::{self, Kept, Sum, WINDOW};
use gdbheap_core::python::TypeLayout;
use gdbheap_core::Machine;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::{HashMap, HashSet};

answers! {
    /// What an owner has, all in bytes: all of it; of that what is resident, swapped, mapped to the kernel's zero page, and
    /// resident in huge pages. `pages`: those that are its own as a whole; of these `whole` are resident, `whole_huge` in
    /// huge pages.
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

    /// A group of blocks that keeps pages: start and end of what holds them, how many there are, their bytes, and what
    /// would be freed without them.
    struct Pin { start: u64, end: u64, blocks: u64, bytes: u64, freed: u64 }

    /// All groups that count: how many, their blocks, the bytes of these, what would be freed.
    struct PinTotals of memory_use::Totals { groups: u64, blocks: u64, bytes: u64, freed: u64 }

    /// The groups that keep the most, first the most, and the sums over all.
    struct Pins { rows: Vec<Pin>, totals: PinTotals }

    /// Objects of a type whose reference counts differ: how many, on how many pages, and on how many of these nothing but
    /// counts does; on how many pages that are equal counts of its objects lie (`restored`, and
    /// `restored_tracked`, where the collector tracks objects).
    struct CountsOf of memory_use::CountsOf {
        type_address: u64,
        objects: u64,
        pages: u64,
        counts_alone: u64,
        restored: u64,
        restored_tracked: u64,
    }

    /// Numbers of pages of private memory beside those of another process: what a process has alone and is equal
    /// (`restored_counts`: with objects, `restored_tracked`: with objects that the collector tracks), differs in what the collector writes, in reference
    /// counts, in both, in anything else; what the other has not (`only_here`); what is still shared. Of pages with
    /// objects, none of them tracked: those that are equal or differ in counts, and those still shared (`quiet_…`).
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

    /// What is left in [start, end) of a copy of a buffer: the number of the buffer, and where this copy of it began.
    struct Copied of memory_use::Copied { buffer: usize, base: u64, start: u64, end: u64 }
}

impl OwnerSum {
    fn new((owner, sum): (u32, Sum)) -> OwnerSum {
        let Sum { bytes, resident, swapped, zero, huge, pages, whole, whole_huge } = sum;
        OwnerSum { owner, bytes, resident, swapped, zero, huge, pages, whole, whole_huge }
    }
}

/// A sweep over ascending stretches; each has an owner, a small number that is its rank too. The sums are kept apart for
/// each cell: what lies below the first cut is cell 0, from the first cut on cell 1, and so on. Cuts are whole pages.
#[pyclass]
pub struct Sweep(memory_use::Sweep);

#[pymethods]
impl Sweep {
    /// `cuts`: ascending addresses of whole pages where a new cell begins. `kept`: owners whose parts of huge pages are
    /// kept as ranges. Raises ValueError.
    #[new]
    #[pyo3(signature = (machine, pages, owners, cuts=Vec::new(), kept=Vec::new()))]
    fn new(
        machine: Given<Machine>,
        pages: Option<&Pages>,
        owners: usize,
        cuts: Vec<u64>,
        kept: Vec<u32>,
    ) -> PyResult<Sweep> {
        let pages = pages.map(|pages| pages.0.clone());
        memory_use::Sweep::new(machine.0.page, pages, owners, cuts, kept).map(Sweep).map_err(raised)
    }

    /// Whole pages of the kept owners that are parts of huge pages, as ascending `(start, end)`.
    fn huge_ranges(&self) -> Vec<Range> {
        self.0.huge_ranges().to_vec()
    }

    /// Bytes that should be there and are not, as ascending `(start, end)`: `owner` has them, whoever is said to have them in
    /// what is added from now on. Raises ValueError.
    fn set_lost(&mut self, ranges: Vec<Range>, owner: u32) -> PyResult<()> {
        self.0.set_lost(ranges, owner).map_err(raised)
    }

    /// One stretch [start, end) of one owner.
    fn add(&mut self, start: u64, end: u64, owner: u32) -> PyResult<()> {
        self.0.add(start, end, owner).map_err(raised)
    }

    /// All parts of what begins at `start` in a store (a region of chunks, an arena of pools, a segment, an area); `owners` maps the
    /// names of parts to owners: used, free, cached, waiting, top, header, padding, `free run`, muzzy, reserved, foreign, unexplained. Returns where it
    /// ends. Raises ValueError where nothing begins there, or a part that occurs has no owner.
    fn add_blocks(&mut self, space: &Space, store: Store, start: u64, owners: HashMap<String, u32>) -> PyResult<u64> {
        let by_part = PARTS.map(|part| owners.get(part).copied());
        store.add_to(&mut self.0, space, start, by_part).map_err(raised)
    }

    /// What each cell's owners have.
    fn finish(&mut self) -> PyResult<Vec<Vec<OwnerSum>>> {
        let cells = self.0.finish().map_err(raised)?;
        Ok(cells.into_iter().map(|cell| cell.into_iter().map(OwnerSum::new).collect()).collect())
    }
}

/// Groups of blocks of a store, those that keep the most first, and the sums over all. `trimmed`: where heaps start whose free
/// end gives something back; `kept`: ranges that the kernel does not take back; `least`: the bytes that a group must free;
/// `most`: how many groups are listed.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn pins(
    py: Python<'_>,
    machine: Given<Machine>,
    store: Store,
    pages: Option<&Pages>,
    kept: Vec<Range>,
    trimmed: Vec<u64>,
    least: u64,
    most: usize,
) -> Pins {
    let (store, pages) = (store.store(), pages.map(|pages| &*pages.0));
    let wanted = Kept { page: machine.0.page, pages, ranges: &kept, least, most };
    let (rows, totals) = py.detach(|| memory_use::pins(&store, &trimmed, wanted));
    let pin = |(start, end, blocks, bytes, freed)| Pin { start, end, blocks, bytes, freed };
    Pins { rows: rows.into_iter().map(pin).collect(), totals: totals.into() }
}

/// For each block `(user address, size)`: "zeros", "text", "pointers" (into the `mapped` ranges, ascending), "data", or
/// "absent bytes". Raises KeyboardInterrupt.
#[pyfunction]
pub fn look_at(py: Python<'_>, space: &Space, blocks: Vec<Place>, mapped: Vec<Range>) -> PyResult<Vec<&'static str>> {
    watched(py, None, |watcher| memory_use::look_at(watcher, &space.0, &blocks, &mapped))
}

/// The copies that `holes` hold of the beginnings of `buffers`, those most often seen first. They may overlap. Some keys of each
/// buffer and parts of the holes are read, and of both only pages that are in memory.
#[pyfunction]
pub fn find_copies(
    py: Python<'_>,
    space: &Space,
    pages: &Pages,
    buffers: Vec<Range>,
    holes: Vec<Range>,
) -> PyResult<Vec<Copied>> {
    let find =
        |watcher: &dyn gdbheap_core::Watcher| memory_use::find_copies(watcher, &space.0, &pages.0, &buffers, &holes);
    Ok(all(watched(py, None, find)?))
}

/// Reads every byte of the ranges once, on all cores, in windows of `window` bytes: the limit to compare with.
#[pyfunction]
#[pyo3(signature = (space, ranges, window=WINDOW))]
pub fn read_once(py: Python<'_>, space: &Space, ranges: Vec<Range>, window: u64) -> PyResult<u64> {
    watched(py, None, |watcher| memory_use::read_once(watcher, &space.0, &ranges, window))
}

/// Bytes of the pages in the ranges, which are whole pages, that hold nothing but zeros.
#[pyfunction]
pub fn zero_pages(py: Python<'_>, space: &Space, ranges: Vec<Range>) -> PyResult<u64> {
    watched(py, None, |watcher| memory_use::zero_pages(watcher, &space.0, &ranges))
}

impl From<memory_use::Written> for WrittenPages {
    fn from(sums: memory_use::Written) -> WrittenPages {
        let memory_use::Written { restored, restored_counts, restored_tracked, collector, .. } = sums;
        let memory_use::Written { counts, both, other, only_here, shared, quiet_own, quiet_shared, types, .. } = sums;
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

/// The pages that a process has alone beside those of another.
#[pyclass(frozen)]
pub struct ComparedPages(memory_use::Compared);

/// Compares the pages of `ranges` that a process has alone, by its `pagemap` file, with those of `other`. Both must stand
/// still until this is done. Raises OSError, KeyboardInterrupt.
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

/// By what the pages were written since the two processes shared them. `layout`: of the Python objects of the one that has
/// them, where it has some; `statics`: `(address, address of the type)` of those in no block. Raises KeyboardInterrupt.
#[pyfunction]
#[pyo3(signature = (compared, heaps, layout, statics, progress=None))]
pub fn written_pages(
    py: Python<'_>,
    compared: &ComparedPages,
    heaps: &Heaps,
    layout: Option<Given<TypeLayout>>,
    statics: Vec<Place>,
    progress: Option<Report>,
) -> PyResult<WrittenPages> {
    let layout = layout.map(|layout| layout.0);
    let by = memory_use::Explained { heaps: heaps.0.lend(), layout: layout.as_ref(), statics: &statics };
    Ok(watched(py, progress, |watcher| memory_use::written(watcher, &by, &compared.0))?.into())
}

/// The same marks of the pages that a process has alone and on which only objects of the types at these addresses lie, of
/// all blocks in use. Raises OSError, KeyboardInterrupt.
#[pyfunction]
#[pyo3(signature = (heaps, layout, types, path, ranges, progress=None))]
pub fn value_marks(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
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

/// Marks of 16 bytes of the pages in `ranges` that a process has alone, by its `pagemap` file, with `shared` of all that it
/// has: equal for equal pages; those of zeros have none. Raises OSError, KeyboardInterrupt.
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
