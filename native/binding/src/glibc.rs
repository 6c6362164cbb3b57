//! The classes and functions for glibc's malloc that Python sees.

use crate::detaching::detached;
use crate::heaps::BlockStore;
use crate::memory::{Pages, Space};
use crate::records::{records, Argument};
use crate::rows::{
    all, answers, block, damage_rows, exports, Block, Damage, Hole, Member, PageSum, Place, Range, Tally,
};
use crate::watch::{raised, watched, Report};
use gdbheap_core::allocators::glibc::{
    self, CacheList, ChunkFilter, Fit, MmappedStyle, StateLayout, Stretch, CHUNK_HEADER,
};
use gdbheap_core::allocators::{self, find_list_heads as list_heads, Store};
use gdbheap_core::Machine;
use pyo3::prelude::*;
use std::sync::Arc;

records! {
    CacheList { first, entries, size }
    Stretch { arena, start, end, top, fast }
    ChunkFilter { states, minimum, maximum, arena }
    MmappedStyle { header_outside, moved }
    StateLayout { top, bins, next, system_mem, max_system_mem, fastbins, size }
}

answers! {
    /// The number and the bytes of the blocks of a region [start, end) in each state, in the order of STATES. `arena`:
    /// the number of the region's arena.
    struct RegionTotals { arena: u32, start: u64, end: u64, states: Vec<Tally> }

    /// The memory of a region that malloc_trim() would release. `chunks`: the number of free chunks that contain whole
    /// pages. `released`: the bytes of these pages. `top`: the start of the top chunk after consolidation; 0 if there
    /// is none.
    struct RegionTrim of glibc::RegionTrim {
        arena: u32,
        start: u64,
        end: u64,
        chunks: u64,
        released: PageSum,
        top: u64,
    }

    /// A free chunk, or several free chunks that malloc would merge. `address`: the address of the first header.
    /// `size`: the size of all chunks together.
    struct FreePiece { address: u64, size: u64 }

    /// The free memory of one arena for a request.
    ///
    /// - `best`: the smallest FreePiece that fits.
    /// - `short`: the largest FreePieces that are too small.
    /// - `top`: the size of the top chunk in bytes.
    struct ArenaFit { arena: u32, best: Option<FreePiece>, short: Vec<FreePiece>, top: u64 }

    /// The number of chunks in one bin of an arena, and their bytes. Bin 0 stands for free chunks that are in no bin.
    struct BinTally { arena: u32, bin: u64, chunks: u64, bytes: u64 }

    /// The number of chunks of one exact size in each state, in the order of STATES: used, free, tcache and fast.
    struct SizeCounts { size: u64, states: Vec<u64> }

    /// A chunk. `address`: the address of its header.
    struct ListedChunk { address: u64, size: u64, state: &'static str, arena: u32 }

    /// The number of chunks that match, their bytes, and the first of these chunks in the requested order.
    struct ChunkList { count: u64, bytes: u64, rows: Vec<ListedChunk> }

    /// The result of following one list of a thread cache. `entries`: the number of chunks that were taken from it.
    /// `end`: the address to which the last link points, which is 0 if the list is intact.
    struct TakenList { entries: u64, end: u64 }

    /// A chunk with its own mapping. `base`: the start of the mapping. `chunk`: the address of the chunk's header.
    /// `size`: the size of the mapping in bytes.
    struct MappedRow { base: u64, chunk: u64, size: u64 }

    /// The number of chunks in the bins and fast bins of an arena, and their bytes. `whole`: the bytes of whole pages
    /// inside the chunks of the bins.
    struct FreeLists { chunks: u64, bytes: u64, whole: u64 }

    /// An arena of a process that may be running. `top`: the size of its top chunk in bytes; None if there is none.
    /// `listed`: its free lists; None if they were not requested, changed between two readings, or are longer than
    /// allowed.
    struct RunningArena {
        next: u64,
        system: u64,
        peak: u64,
        top: Option<u64>,
        locked: bool,
        noncontiguous: bool,
        listed: Option<FreeLists>,
    }

    /// Consecutive heads of circular lists, such as malloc's bins. Each head is a pair of pointers.
    ///
    /// - `address`: the address of the first pair.
    /// - `pairs`: the number of pairs.
    struct HeadRun { address: u64, pairs: usize }
}

exports! {
    classes: Chunks, Mapped, Bins;
    functions:
        walk_chunks, follow_bins, least_sizes, count_sizes, list_chunks, find_fits, sum_lists, trim_chunks,
        find_list_heads, find_mmapped, find_extents, find_fenced, held_chunks, look_at_arena;
}

/// Every chunk of every arena of a target.
#[pyclass(frozen, extends = BlockStore)]
pub struct Chunks(pub Arc<glibc::Chunks>);

fn region_totals(totals: &glibc::RegionTotals) -> RegionTotals {
    RegionTotals { arena: totals.arena, start: totals.start, end: totals.end, states: all(totals.states) }
}

/// Return a chunk as the program sees it: a block without the chunk's header.
fn inside((address, size, state): (u64, u64, &'static str)) -> Block {
    Block { address: address + CHUNK_HEADER, size, state }
}

pub fn listed((address, size, state, arena): glibc::ListedChunk) -> ListedChunk {
    ListedChunk { address, size, state, arena }
}

fn piece((address, size): Place) -> FreePiece {
    FreePiece { address, size }
}

fn arena_fit(fit: Fit) -> ArenaFit {
    let short = fit.short.into_iter().map(piece).collect();
    ArenaFit { arena: fit.arena, best: fit.best.map(piece), short, top: fit.top }
}

impl Chunks {
    fn hole(&self, hole: glibc::Hole) -> Hole {
        let (arena, address) = (self.0.arena_of(hole.start), hole.start + CHUNK_HEADER);
        let (before, after) = (hole.before.map(inside), hole.after.map(inside));
        Hole { start: hole.start, end: hole.end, address, arena, before, after }
    }
}

#[pymethods]
impl Chunks {
    /// Return the number and the bytes of the chunks of each region, by state.
    fn totals(&self, py: Python<'_>) -> Vec<RegionTotals> {
        detached(py, || self.0.totals().iter().map(region_totals).collect())
    }

    /// Return the block at each address; None for an address outside every region. A block consists of its chunk's size
    /// word and of the bytes that malloc_usable_size() counts, which include the next chunk's prev_size.
    fn find_many(&self, addresses: Vec<u64>) -> Vec<Option<Block>> {
        addresses.iter().map(|address| self.0.find(*address).map(block)).collect()
    }

    /// Return the number of the arena of the region that contains `address`; None if no region contains it.
    fn arena_of(&self, address: u64) -> Option<u32> {
        self.0.arena_of(address)
    }

    /// Return the maximal runs of free chunks (in bins, fast bins and thread caches) of at least `minimum` bytes.
    fn holes(&self, py: Python<'_>, minimum: u64) -> Vec<Hole> {
        detached(py, || self.0.holes(minimum).into_iter().map(|hole| self.hole(hole)).collect())
    }

    /// The damage that the walk found.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(self.0.damage())
    }
}

/// Used chunks that malloc got by mmap, one mapping for each. Each is given as [chunk, end), in any order.
#[pyclass(frozen, extends = BlockStore)]
pub struct Mapped;

#[pymethods]
impl Mapped {
    #[new]
    fn new(chunks: Vec<Range>) -> (Mapped, BlockStore) {
        (Mapped, BlockStore(Store::Mapped(Arc::new(glibc::MappedChunks::new(chunks)))))
    }
}

/// The bin of each free chunk.
#[pyclass(frozen)]
pub struct Bins(glibc::Bins);

#[pymethods]
impl Bins {
    /// Return the number and the bytes of the chunks in every bin that is not empty.
    fn rows(&self) -> Vec<BinTally> {
        let row = |(arena, bin, tally): (u32, u64, allocators::Tally)| {
            let allocators::Tally { count: chunks, bytes } = tally;
            BinTally { arena, bin, chunks, bytes }
        };
        self.0.rows().into_iter().map(row).collect()
    }

    /// Return the number of the bin that holds each chunk: 0 for a free chunk that is in no bin, None if there is no
    /// free chunk at the address.
    fn find_many(&self, chunks: Vec<u64>) -> Vec<Option<u8>> {
        chunks.iter().map(|chunk| self.0.find(*chunk)).collect()
    }

    /// The wrong links and flags that were found in the bins.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }
}

/// Walk all chunks in the memory ranges `stretches`. Also return how many entries were taken from each list of a thread
/// cache.
///
/// - `caches`: the lists of all thread caches. Each has the address of its first entry, the number of entries, and the
///   size of their chunks (0: any size).
/// - `collects`: whether to keep the links of free chunks. Otherwise `follow_bins` walks the memory again.
///
/// Raises KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (space, stretches, caches, safe_linking, collects, progress=None))]
pub fn walk_chunks(
    py: Python<'_>,
    space: &Space,
    stretches: Argument<Vec<Stretch>>,
    caches: Argument<Vec<CacheList>>,
    safe_linking: bool,
    collects: bool,
    progress: Option<Report>,
) -> PyResult<(Py<Chunks>, Vec<TakenList>)> {
    let walk = |watcher: &dyn gdbheap_core::Watcher| {
        glibc::walk_chunks(watcher, &space.0, stretches.0, &caches.0, safe_linking, collects)
    };
    let (chunks, taken) = watched(py, progress, walk)?;
    let row = |(entries, end)| TakenList { entries, end };
    let chunks = Arc::new(chunks);
    Ok((BlockStore::with(py, Store::Chunks(chunks.clone()), Chunks(chunks))?, taken.into_iter().map(row).collect()))
}

/// Follow the bins of every arena. `heads`: for each arena, the address of its `malloc_state.bins`; 0 skips the arena.
/// Raises KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (space, chunks, heads, progress=None))]
pub fn follow_bins(
    py: Python<'_>,
    space: &Space,
    chunks: &Chunks,
    heads: Vec<u64>,
    progress: Option<Report>,
) -> PyResult<Bins> {
    watched(py, progress, |watcher| glibc::follow_bins(watcher, &space.0, &chunks.0, &heads)).map(Bins)
}

/// Return the size in bytes of the smallest chunk of each bin; 0 for bin 0, which does not exist, and for the unsorted
/// bin.
#[pyfunction]
pub fn least_sizes() -> Vec<u64> {
    glibc::least_sizes()
}

/// Count the used and the free chunks of each exact size, in ascending order of size.
#[pyfunction]
pub fn count_sizes(py: Python<'_>, chunks: &Chunks) -> Vec<SizeCounts> {
    let row = |(size, states): (u64, glibc::Counts)| SizeCounts { size, states: states.to_vec() };
    detached(py, || glibc::count_sizes(&chunks.0).into_iter().map(row).collect())
}

/// Return at most `top` of the chunks that match `wanted`, in the requested order. Raises ValueError for an unknown
/// order.
#[pyfunction]
#[pyo3(signature = (chunks, wanted, order, top=None))]
pub fn list_chunks(
    py: Python<'_>,
    chunks: &Chunks,
    wanted: Argument<ChunkFilter>,
    order: &str,
    top: Option<usize>,
) -> PyResult<ChunkList> {
    let order = order.parse().map_err(raised)?;
    let (all, rows) = detached(py, || glibc::list_chunks(&chunks.0, &wanted.0, order, top));
    Ok(ChunkList { count: all.count, bytes: all.bytes, rows: rows.into_iter().map(listed).collect() })
}

/// Return the free memory of each arena for a request that needs a chunk of `need` bytes. The result includes the
/// `most` largest free chunks that are too small. `with_fast`: whether to assume a call of malloc_consolidate(), which
/// merges chunks of fast bins with their neighbours.
#[pyfunction]
pub fn find_fits(py: Python<'_>, chunks: &Chunks, need: u64, with_fast: bool, most: usize) -> Vec<ArenaFit> {
    detached(py, || glibc::find_fits(&chunks.0, need, with_fast, most).into_iter().map(arena_fit).collect())
}

/// Return, for each list of a thread cache, the number of chunks on the list and their bytes.
#[pyfunction]
pub fn sum_lists(space: &Space, chunks: &Chunks, lists: Argument<Vec<CacheList>>, safe_linking: bool) -> Vec<Tally> {
    let lists: Vec<(u64, u64)> = lists.0.iter().map(|list| (list.first, list.entries)).collect();
    all(glibc::sum_lists(&space.0, &chunks.0, &lists, safe_linking))
}

/// Return, for each region, the memory that malloc_trim() would release. `kept`: ascending ranges whose pages the
/// kernel does not release (locked memory).
#[pyfunction]
pub fn trim_chunks(
    py: Python<'_>,
    machine: Argument<Machine>,
    chunks: &Chunks,
    pages: Option<&Pages>,
    kept: Vec<Range>,
) -> Vec<RegionTrim> {
    let pages = pages.map(|pages| &*pages.0);
    detached(py, || all(glibc::trim_chunks(&chunks.0, machine.0.page, pages, &kept)))
}

/// Read the arena at `address` of a process that may be running; None if the arena cannot be read. Its free lists are
/// followed up to `most` chunks; 0 means that they are not followed.
#[pyfunction]
pub fn look_at_arena(
    py: Python<'_>,
    space: &Space,
    address: u64,
    layout: Argument<StateLayout>,
    most: u64,
) -> Option<RunningArena> {
    let found = space.do_reads(py, move |_, space| Ok(glibc::look_at_arena(space, address, &layout.0, most)?)).ok()?;
    let glibc::RunningArena { next, system, peak, top, locked, noncontiguous, listed } = found;
    let listed = listed.map(|glibc::FreeLists { chunks, bytes, whole, .. }| FreeLists { chunks, bytes, whole });
    Some(RunningArena { next, system, peak, top, locked, noncontiguous, listed })
}

/// Return the runs of at least `least` consecutive heads of circular lists in [start, end). A run may contain a few
/// damaged heads, so that damage does not hide the whole run.
#[pyfunction]
pub fn find_list_heads(py: Python<'_>, space: &Space, start: u64, end: u64, least: usize) -> Vec<HeadRun> {
    let row = |(address, pairs)| HeadRun { address, pairs };
    detached(py, || list_heads(&space.0, start, end, least).into_iter().map(row).collect())
}

/// Return the chunks with their own mappings (mmap) in `ranges`. Each range must begin where a mapping of another owner
/// ends.
#[pyfunction]
pub fn find_mmapped(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<Range>,
    style: Argument<MmappedStyle>,
) -> PyResult<Vec<MappedRow>> {
    let row = |(base, chunk, size)| MappedRow { base, chunk, size };
    let found = watched(py, None, |watcher| glibc::find_mmapped(watcher, &space.0, &ranges, style.0))?;
    Ok(found.into_iter().map(row).collect())
}

/// Return the `(start, end)` of the extents of a main arena that could not grow by `sbrk`.
///
/// An extent begins at a page boundary, with a chunk that has no chunk before it. It ends at `top`, or with a double
/// fencepost at the end of a page. Only two kinds of extents may begin inside a page: at the start of a range, and in
/// the `foreign` bytes after another extent. For these, gdbheap searches in steps of 16 bytes.
#[pyfunction]
pub fn find_extents(py: Python<'_>, space: &Space, ranges: Vec<Range>, top: u64, foreign: u64) -> PyResult<Vec<Range>> {
    watched(py, None, |watcher| glibc::find_extents(watcher, &space.0, &ranges, top, foreign))
}

/// Return the `(start, end)` of possible extents of exactly `size` bytes. They are recognized only by their two ends:
/// the start is at a page boundary, with a chunk that has nothing before it; at the end there is a double fencepost, or
/// `top`.
#[pyfunction]
pub fn find_fenced(py: Python<'_>, space: &Space, ranges: Vec<Range>, size: u64, top: u64) -> PyResult<Vec<Range>> {
    watched(py, None, |watcher| glibc::find_fenced(watcher, &space.0, &ranges, size, top))
}

/// Return at most `most` blocks in [start, end) that are used or in a thread cache.
#[pyfunction]
pub fn held_chunks(chunks: &Chunks, start: u64, end: u64, most: usize) -> Vec<Member> {
    let row = |(address, size, used)| Member { address, size, used };
    glibc::held_chunks(&chunks.0, start, end, most).into_iter().map(row).collect()
}
