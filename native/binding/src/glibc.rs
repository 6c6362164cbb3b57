//! glibc's malloc.

use crate::memory::{Pages, Space};
use crate::records::{records, Given};
use crate::rows::{damage_rows, tally_pair, DamageRow};
use crate::watch::{raised, watched};
use gdbheap_core::allocators::find_list_heads as list_heads;
use gdbheap_core::allocators::glibc::{
    self, CacheList, Counts, Fit, Hole, Listed, MmappedStyle, RegionTotals, Stretch, Trimmed, Wanted,
};
use pyo3::prelude::*;
use std::sync::Arc;

records! {
    Stretch { arena, start, end, top, fast }
    Wanted { states, minimum, maximum, arena }
    MmappedStyle { header_outside, page, moved }
}

type Found = Option<(u64, u64, &'static str)>;

/// A hole: start, end, region, and the blocks before and after it (address, size, state) unless it touches an end.
type HoleRow = (u64, u64, usize, Found, Found);

/// Arena, start, end, and `(count, bytes)` by state in the order of STATES.
type TotalsRow = (u32, u64, u64, Vec<(u64, u64)>);

/// Arena, start and end of a region, chunks with whole pages, bytes of those: all, resident, swapped; start of the top.
type TrimmedRow = (u32, u64, u64, u64, (u64, u64, u64), u64);

/// A free chunk, or several that malloc would merge: `(header, size)`.
type Piece = (u64, u64);

/// Of one arena: its number, the smallest piece that suffices, the largest that do not, and the bytes of its top.
type FitRow = (u32, Option<Piece>, Vec<Piece>, u64);

/// Every block of every arena of a target.
#[pyclass(frozen)]
pub struct Chunks(pub Arc<glibc::Chunks>);

fn totals_row(totals: &RegionTotals) -> TotalsRow {
    (totals.arena, totals.start, totals.end, totals.states.iter().map(tally_pair).collect())
}

#[pymethods]
impl Chunks {
    /// A row for each region: `(arena, start, end, [(count, bytes)] by state in the order of STATES)`.
    fn totals(&self, py: Python<'_>) -> Vec<TotalsRow> {
        py.detach(|| self.0.totals().iter().map(totals_row).collect())
    }

    /// The block whose bytes hold each address: `(chunk address, size, state)`, or None outside every region. A chunk
    /// holds what malloc_usable_size says: from its size word to after the next chunk's prev_size.
    fn find_many(&self, addresses: Vec<u64>) -> Vec<Found> {
        addresses.iter().map(|address| self.0.find(*address)).collect()
    }

    /// The arena of the region that holds `address`.
    fn arena_of(&self, address: u64) -> Option<u32> {
        self.0.arena_of(address)
    }

    /// Maximal runs of free chunks (bins, fast bins and thread caches) of at least `minimum` bytes.
    fn holes(&self, py: Python<'_>, minimum: u64) -> Vec<HoleRow> {
        let row = |hole: Hole| (hole.start, hole.end, hole.region, hole.before, hole.after);
        py.detach(|| self.0.holes(minimum).into_iter().map(row).collect())
    }

    /// Damage met by the walk: `(address, what, expected, found)`.
    #[getter]
    fn damage(&self) -> Vec<DamageRow> {
        damage_rows(self.0.damage())
    }
}

/// Chunks in use with a mapping of their own, each [chunk, end), in any order.
#[pyclass(frozen)]
pub struct Mapped(pub Arc<glibc::Mapped>);

#[pymethods]
impl Mapped {
    #[new]
    fn new(chunks: Vec<(u64, u64)>) -> Mapped {
        Mapped(Arc::new(glibc::Mapped::new(chunks)))
    }
}

/// Which bin each free chunk is in.
#[pyclass(frozen)]
pub struct Bins(glibc::Bins);

#[pymethods]
impl Bins {
    /// `(arena, bin, chunks, bytes)` of every bin that is not empty; bin 0: free chunks that are in none.
    fn rows(&self) -> Vec<(u32, u64, u64, u64)> {
        self.0.rows().into_iter().map(|(arena, bin, tally)| (arena, bin, tally.count, tally.bytes)).collect()
    }

    /// The bin of each free chunk; None for what is no free chunk, 0 for one that is in no bin.
    fn find_many(&self, chunks: Vec<u64>) -> Vec<Option<u8>> {
        chunks.iter().map(|chunk| self.0.find(*chunk)).collect()
    }

    /// What is wrong with links and flags: `(address, what, expected, found)`.
    #[getter]
    fn damage(&self) -> Vec<DamageRow> {
        damage_rows(&self.0.damage)
    }
}

/// Walks every stretch. `caches`: the lists of all thread caches as `(first entry, entries, chunks' size)`, size 0: any.
/// `collects`: whether the links of free chunks are kept, which `follow_bins` else walks for once more. Returns how many
/// entries of each list were taken, and where the last link of it leads.
/// Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (space, stretches, caches, safe_linking, collects, progress=None))]
pub fn walk_chunks(
    py: Python<'_>,
    space: &Space,
    stretches: Given<Vec<Stretch>>,
    caches: Vec<(u64, u64, u64)>,
    safe_linking: bool,
    collects: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Chunks, Vec<(u64, u64)>)> {
    let list = |(first, entries, size)| CacheList { first, entries, size };
    let caches: Vec<CacheList> = caches.into_iter().map(list).collect();
    let walk = |watcher: &dyn gdbheap_core::Watcher| {
        glibc::walk_chunks(watcher, &space.0, stretches.0, &caches, safe_linking, collects)
    };
    let (chunks, taken) = watched(py, progress, walk)?;
    Ok((Chunks(Arc::new(chunks)), taken))
}

/// Follows the bins of every arena. `heads`: the address of each arena's `malloc_state.bins`, by arena; 0: not looked at.
/// Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (space, chunks, heads, progress=None))]
pub fn follow_bins(
    py: Python<'_>,
    space: &Space,
    chunks: &Chunks,
    heads: Vec<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bins> {
    watched(py, progress, |watcher| glibc::follow_bins(watcher, &space.0, &chunks.0, &heads)).map(Bins)
}

/// The size of the smallest chunk that is sorted into each bin; 0 for 0, which is no bin, and for the unsorted one.
#[pyfunction]
pub fn least_sizes() -> Vec<u64> {
    glibc::least_sizes()
}

/// A row for each exact size of used and free chunks, ascending: `(size, [chunks] by state in the order of STATES)`,
/// of the states used, free, tcache and fast.
#[pyfunction]
pub fn count_sizes(py: Python<'_>, chunks: &Chunks) -> Vec<(u64, Counts)> {
    py.detach(|| glibc::count_sizes(&chunks.0))
}

/// The chunks that are wanted, `(header, size, state, arena)`, in order and cut to `top`, and before them how many match
/// and their bytes. Raises ValueError for an unknown order.
#[pyfunction]
#[pyo3(signature = (chunks, wanted, order, top=None))]
pub fn list_chunks(
    py: Python<'_>,
    chunks: &Chunks,
    wanted: Given<Wanted>,
    order: &str,
    top: Option<usize>,
) -> PyResult<(u64, u64, Vec<Listed>)> {
    let order = order.parse().map_err(raised)?;
    let (all, rows) = py.detach(|| glibc::list_chunks(&chunks.0, &wanted.0, order, top));
    Ok((all.count, all.bytes, rows))
}

/// What each arena has for a request whose chunk has `need` bytes; of the pieces that are too small the `most` largest.
/// `with_fast`: as after malloc_consolidate(), which merges what is in fast bins with its neighbours.
#[pyfunction]
pub fn find_fits(py: Python<'_>, chunks: &Chunks, need: u64, with_fast: bool, most: usize) -> Vec<FitRow> {
    let row = |fit: Fit| (fit.arena, fit.best, fit.short, fit.top);
    py.detach(|| glibc::find_fits(&chunks.0, need, with_fast, most).into_iter().map(row).collect())
}

/// The chunks and bytes on each list of a thread cache, `(first entry, entries)`.
#[pyfunction]
pub fn sum_lists(space: &Space, chunks: &Chunks, lists: Vec<(u64, u64)>, safe_linking: bool) -> Vec<(u64, u64)> {
    glibc::sum_lists(&space.0, &chunks.0, &lists, safe_linking).iter().map(tally_pair).collect()
}

/// A row for each region. `kept`: ascending ranges whose pages the kernel does not take back (locked memory).
#[pyfunction]
pub fn trim_chunks(py: Python<'_>, chunks: &Chunks, pages: Option<&Pages>, kept: Vec<(u64, u64)>) -> Vec<TrimmedRow> {
    let row = |trimmed: Trimmed| {
        let Trimmed { arena, start, end, chunks, released, top } = trimmed;
        (arena, start, end, chunks, (released.whole, released.resident, released.swapped), top)
    };
    let pages = pages.map(|pages| &*pages.0);
    py.detach(|| glibc::trim_chunks(&chunks.0, pages, &kept).into_iter().map(row).collect())
}

/// Runs of at least `least` consecutive list heads in [start, end), as `(address of the first pair, pairs)`.
/// Some pairs inside a run may be out of order: damage must not hide the whole.
#[pyfunction]
pub fn find_list_heads(py: Python<'_>, space: &Space, start: u64, end: u64, least: usize) -> Vec<(u64, usize)> {
    py.detach(|| list_heads(&space.0, start, end, least))
}

/// The mmapped chunks in a range, which begins where a mapping of somebody else ends: `(base, chunk, bytes mapped)`.
#[pyfunction]
pub fn find_mmapped(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    style: Given<MmappedStyle>,
) -> PyResult<Vec<(u64, u64, u64)>> {
    watched(py, None, |watcher| glibc::find_mmapped(watcher, &space.0, &ranges, style.0))
}

/// Stretches of a main arena that has had to do without `sbrk`: page-aligned, beginning with a chunk that has nothing
/// before it, and a walk from there ends at a double fencepost on a page's end, or at `top`. `(start, end)` of each.
/// A range may begin with one inside a page; after each one of them, `foreign` bytes are searched in steps of 16.
#[pyfunction]
pub fn find_extents(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    top: u64,
    page: u64,
    foreign: u64,
) -> PyResult<Vec<(u64, u64)>> {
    watched(py, None, |watcher| glibc::find_extents(watcher, &space.0, &ranges, top, page, foreign))
}

/// Places of an extent of exactly `size` bytes by its ends alone: page-aligned, a first chunk that has nothing before
/// it, and a double fencepost or the end of `top` after the last one.
#[pyfunction]
pub fn find_fenced(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    size: u64,
    top: u64,
    page: u64,
) -> PyResult<Vec<(u64, u64)>> {
    watched(py, None, |watcher| glibc::find_fenced(watcher, &space.0, &ranges, size, top, page))
}

/// The blocks in [start, end) that are used or wait in a thread's cache, at most `most`: `(user address, size, used)`.
#[pyfunction]
pub fn held_chunks(chunks: &Chunks, start: u64, end: u64, most: usize) -> Vec<(u64, u64, bool)> {
    glibc::held_chunks(&chunks.0, start, end, most)
}
