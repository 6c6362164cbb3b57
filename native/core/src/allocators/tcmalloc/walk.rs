//! Read all memory of one or more tcmallocs: spans, metadata, and the blocks that are used, free in their spans, or
//! free in caches.

use crate::allocators::damage::{hex, Damage};
use crate::allocators::evidence::Evidence;
use crate::allocators::extents::{Areas, Extents, Owner, Piece, StateNames, Use};
use crate::allocators::runs::{Run, Runs};
use crate::allocators::slab::BlockSlab;
use crate::allocators::spread::spread;
use crate::allocators::tcmalloc::caches::{waiting, CacheContent};
use crate::allocators::tcmalloc::chains::{follow, Chain, Link, ListKind, FREED, FREE_LINK};
use crate::allocators::tcmalloc::layout::{size_tables, Location, MapShape, Span, SPAN_BYTES};
use crate::allocators::tcmalloc::map::{named_spans, spans, LEAVES_ASKED};
use crate::allocators::tcmalloc::metadata::chunks;
use crate::bits::{self, Bits};
use gdbheap_access::bytes::word_at;
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::{Control, Watcher};
use std::collections::BTreeMap;
use std::sync::Arc;

const MAX_DAMAGE: usize = 1000;
/// The largest number of spans that are checked against a table of sizes.
const SPANS_ASKED: usize = 2048;
/// The largest number of elements of the map that are read to find the sampled spans. It is larger than their number,
/// because many elements are leftovers or point to free spans.
const NAMED_ASKED: usize = 8 * SPANS_ASKED;
/// The number of spans that one worker walks at a time.
const SPANS_IN_JOB: usize = 1024;
/// The largest number of bytes that are read of a module's static data.
const MAX_DATA: u64 = 64 << 20;

/// The result of checking a table of sizes. `spans`: how many spans with blocks were checked. `fit`: how many of these
/// add up: their free blocks and their count of other blocks make all blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcmallocFit {
    pub spans: u64,
    pub fit: u64,
}

/// One tcmalloc: the root of its map, its page size, and the static data of its module.
pub struct TcmallocRoot {
    pub root: u64,
    pub shape: MapShape,
    pub data: Vec<(u64, u64)>,
}

/// The memory of one tcmalloc, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcmallocUse {
    /// Blocks in use by the program.
    pub used: u64,
    /// Free blocks on the lists of their spans.
    pub listed: u64,
    /// Free blocks in transfer caches.
    pub transfer: u64,
    /// Free blocks in threads' caches.
    pub cached: u64,
    /// The unused ends of spans.
    pub waste: u64,
    /// Free pages that were not returned to the kernel.
    pub free: u64,
    /// Free pages that were returned to the kernel.
    pub returned: u64,
    /// tcmalloc's own memory.
    pub metadata: u64,
}

/// The blocks of one size in a tcmalloc, as counts. `listed`: free blocks on the lists of their spans. `transfer`,
/// `cached`: free blocks in transfer caches and in threads' caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeUse {
    pub root: u32,
    pub size: u64,
    pub spans: u64,
    pub used: u64,
    pub listed: u64,
    pub transfer: u64,
    pub cached: u64,
}

/// A thread's cache: its address, the number of its tcmalloc (`root`), and the number and total size of the blocks in
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    pub root: u32,
    pub address: u64,
    pub blocks: u64,
    pub bytes: u64,
}

/// The changes that threads inside tcmalloc had not finished. `locked`: the number of locks of central lists that are
/// held. `chains`: broken chains. `astray`: entries of chains that are also free elsewhere, or that are not blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InMotion {
    pub locked: u64,
    pub chains: u64,
    pub astray: u64,
}

/// All memory of one or more tcmallocs, by address.
pub struct Tcmalloc {
    pub extents: Arc<Extents>,
    /// For each tcmalloc, the number of threads' caches that were found; None if the tcmalloc's central lists were not
    /// found.
    pub caches: Vec<Option<usize>>,
    /// For each thread's cache, the number and the total size of the blocks in it.
    pub holding: Vec<CacheUse>,
    pub moving: InMotion,
    /// Spans whose blocks do not add up: their free blocks and their count of other blocks do not make all blocks.
    pub miscounted: Vec<Damage>,
    /// Broken lists of free blocks in caches.
    pub broken: Vec<Damage>,
}

/// Read the static data of a module: the start and the bytes of each range.
fn read_data(space: &Space, data: &[(u64, u64)]) -> Vec<(u64, Vec<u8>)> {
    let mut left = MAX_DATA;
    let mut read = |(start, end): &(u64, u64)| {
        let size = end.saturating_sub(*start).min(left);
        left -= size;
        let mut bytes = vec![0; size as usize];
        let mut scratch = vec![0; 1 << 16];
        space.show(*start, start + size, &mut scratch, |at, piece| {
            let from = (at - start) as usize;
            bytes[from..from + piece.len()].copy_from_slice(piece);
        });
        (*start, bytes)
    };
    data.iter().map(&mut read).collect()
}

/// The result of following the free blocks of one span. `used`: a bitmap in which the bits of blocks that are not free
/// are set. `fits`: whether the number of these blocks matches the span's count. `broken`: the damage at the place
/// where the list of free blocks breaks.
struct SpanBlocks {
    used: Vec<u64>,
    fits: bool,
    broken: Option<Damage>,
}

/// The offset in bytes of the head of a span's list of free blocks, counted from the start of the span's structure.
const OBJECTS_AT: u64 = 32;

/// Follow the free blocks of a span that has `count` blocks of `size` bytes.
fn count_span(window: &mut Window<'_>, span: &Span, (size, count): (u64, u64)) -> SpanBlocks {
    let mut used = vec![u64::MAX; count.div_ceil(64) as usize];
    bits::clear_range(&mut used, count, count.next_multiple_of(64));
    let (mut at, mut free, mut from) = (span.objects, 0, span.at + OBJECTS_AT);
    let bytes = if at == 0 { &[] } else { window.available(span.start, (count * size) as usize) };
    // Multiplying is faster than dividing, and the result is exact for the start of a block. The product in the next
    // lines rejects other addresses.
    let reciprocal = (1u64 << 32).div_ceil(size);
    while at != 0 {
        let inside = at.wrapping_sub(span.start);
        let number = u32::try_from(inside).map_or(u64::MAX, |inside| (u64::from(inside) * reciprocal) >> 32);
        let is_block = number < count && number * size == inside;
        if !is_block || !bits::get(&used, number) {
            let broken = Some(match is_block {
                true => Damage::new(at, FREED, "free once", "free twice"),
                false => Damage::new(from, FREE_LINK, "a block of its span", hex(at)),
            });
            return SpanBlocks { used, fits: false, broken };
        }
        used[(number / 64) as usize] &= !(1 << (number % 64));
        let Some(next) = word_at(bytes, inside as usize) else {
            return SpanBlocks { used, fits: false, broken: Some(Damage::absent(at, FREE_LINK)) };
        };
        (free, from, at) = (free + 1, at, next);
    }
    SpanBlocks { used, fits: free + span.handed_out == count, broken: None }
}

/// Return the table of class sizes that fits the most spans of a sample, and the number of these spans. None if there
/// is no table.
fn best_sizes(
    watcher: &dyn Watcher,
    space: &Space,
    spans: &[Span],
    tables: Vec<Vec<u64>>,
) -> Result<Option<(Vec<u64>, TcmallocFit)>> {
    let all: Vec<&Span> = spans.iter().filter(|span| span.has_blocks()).collect();
    let asked = spread(&all, SPANS_ASKED);
    let mut window = Window::new(space, space.machine.user_end);
    let mut fit_of = |sizes: Vec<u64>| {
        watcher.check()?;
        let mut fits = |span: &Span| {
            let blocks = span.blocks(&sizes);
            blocks.is_some_and(|blocks| count_span(&mut window, span, blocks).fits)
        };
        let fit = asked.iter().filter(|(span, _)| fits(span)).count() as u64;
        Ok((sizes, TcmallocFit { spans: asked.len() as u64, fit }))
    };
    let found = tables.into_iter().map(&mut fit_of).collect::<Result<Vec<(Vec<u64>, TcmallocFit)>>>()?;
    Ok(found.into_iter().max_by_key(|(_, fit)| fit.fit))
}

fn tables_of(data: &[(u64, Vec<u8>)]) -> Vec<Vec<u64>> {
    data.iter().flat_map(|(_, bytes)| size_tables(bytes)).collect()
}

/// Check how well a sample of the spans of a map fits the best table of sizes in the module's static data.
pub fn fit_of(watcher: &dyn Watcher, space: &Space, root: &TcmallocRoot) -> Result<TcmallocFit> {
    let (named, _) = named_spans(watcher, space, root.shape, root.root, LEAVES_ASKED)?;
    let all: Vec<&(u64, u64)> = named.iter().collect();
    let some: Vec<(u64, u64)> = spread(&all, NAMED_ASKED).into_iter().map(|(named, _)| *named).collect();
    let tables = tables_of(&read_data(space, &root.data));
    let best = best_sizes(watcher, space, &spans(space, root.shape, &some), tables)?;
    Ok(best.map_or(TcmallocFit::default(), |(_, fit)| fit))
}

/// The results of reading one or more tcmallocs, collected one tcmalloc after the other.
#[derive(Default)]
struct TcmallocContent {
    /// Each run with the number of its tcmalloc, and with a bit for each used block.
    runs: Vec<(u32, Run, Vec<u64>)>,
    pieces: Vec<Piece>,
    /// For each tcmalloc, the sizes of its classes, and its free blocks in caches.
    waiting: Vec<(Vec<u64>, CacheContent)>,
    damage: Vec<Damage>,
    miscounted: Vec<Damage>,
    evidence: Evidence,
}

/// Read all memory of the tcmallocs in `roots`. `anonymous`: the ranges in which tcmalloc's own memory may lie,
/// ascending.
pub fn read_tcmalloc(
    watcher: &dyn Watcher,
    space: &Space,
    anonymous: &[(u64, u64)],
    roots: &[TcmallocRoot],
) -> Result<Tcmalloc> {
    let mut found = TcmallocContent::default();
    for (root, number) in roots.iter().zip(0..) {
        watcher.check()?;
        let (named, leaves) = named_spans(watcher, space, root.shape, root.root, usize::MAX)?;
        let spans = spans(space, root.shape, &named);
        let data = read_data(space, &root.data);
        let sizes = best_sizes(watcher, space, &spans, tables_of(&data))?.map_or(Vec::new(), |(sizes, _)| sizes);
        found.add_spans(watcher, space, (&spans, &sizes), number)?;
        let waits = match sizes.is_empty() {
            true => CacheContent::default(),
            false => waiting(watcher, space, &data, anonymous, &sizes)?,
        };
        let mut known: Vec<(u64, u64)> =
            named.iter().map(|(_, at)| (*at, at.saturating_add(SPAN_BYTES as u64))).collect();
        known.extend(leaves.iter().map(|leaf| (*leaf, leaf + root.shape.leaf_bytes())));
        known.extend(waits.caches.iter().map(|cache| (*cache, cache + 32 * sizes.len() as u64)));
        known.sort_unstable();
        known.dedup();
        let taken: Vec<(u64, u64)> = spans.iter().map(|span| (span.start, span.end)).collect();
        let own = chunks(space.page(), anonymous, &taken, &known);
        found.pieces.extend(own.iter().map(|(start, end)| Piece::new(*start, *end, Use::Metadata, number)));
        found.waiting.push((sizes, waits));
    }
    found.finish(watcher, space)
}

/// Keep only the MAX_DAMAGE reports with the lowest addresses, if there are at least twice as many reports.
fn keep_first(damage: &mut Vec<Damage>) {
    if damage.len() >= 2 * MAX_DAMAGE {
        damage.sort_by_key(|damage| damage.address);
        damage.truncate(MAX_DAMAGE);
    }
}

/// The data that a worker found in some spans.
#[derive(Default)]
struct SpanContent {
    pieces: Vec<Piece>,
    runs: Vec<(Run, Vec<u64>)>,
    damage: Vec<Damage>,
    miscounted: Vec<Damage>,
}

impl SpanContent {
    fn add(
        &mut self,
        space: &Space,
        span: &Span,
        (sizes, evidence): (&[u64], &Evidence),
        root: u32,
        window: &mut Window<'_>,
    ) {
        let of = match span.location {
            Location::Free => Use::Free,
            Location::Returned => Use::Returned,
            Location::Unknown => self.odd(span, "state of a span", "in use, free or returned", false),
            Location::InUse if !space.covers(span.start, span.size()) => {
                self.odd(span, "memory of a span", "mapped memory", true)
            }
            Location::InUse => match span.blocks(sizes) {
                Some((_, blocks)) if span.class > 0 && !evidence.allows(space, (span.start, span.end), blocks) => {
                    self.odd(span, "memory of a span with blocks", "resident memory", false)
                }
                _ => self.add_used(span, sizes, window),
            },
        };
        self.pieces.push(Piece::new(span.start, span.end, of, root));
    }

    fn odd(&mut self, span: &Span, what: &'static str, expected: &str, is_absent: bool) -> Use {
        let damage = Damage::new(span.at, what, expected, format!("{:#x}", span.start));
        self.damage.push(Damage { is_absent, ..damage });
        keep_first(&mut self.damage);
        Use::Unexplained
    }

    fn add_used(&mut self, span: &Span, sizes: &[u64], window: &mut Window<'_>) -> Use {
        if span.class == 0 {
            self.runs.push((Run { start: span.start, stride: span.size(), count: 1 }, vec![1]));
            return Use::Run(span.start);
        }
        let Some((size, count)) = span.blocks(sizes) else {
            let (most, found) = (sizes.len(), format!("class {}, {} blocks", span.class, span.handed_out));
            let expected = format!("one of {most} classes, and at most as many blocks as fit");
            self.damage.push(Damage::new(span.at, "class of a span", expected, found));
            keep_first(&mut self.damage);
            return Use::Unexplained;
        };
        let mut counted = count_span(window, span, (size, count));
        if span.objects == 0 && span.handed_out == 0 {
            // A thread is cutting the span into blocks at this moment (`CentralFreeList::Populate`). That function
            // stores the span's list last.
            counted.used.fill(0);
        }
        if !counted.fits {
            let free = count - counted.used.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            let expected = format!("{free} free and {} other blocks, {count} in total", count - free);
            let found = format!("{} other blocks", span.handed_out);
            let miscounted = || Damage::new(span.at, "blocks of a span", expected, found);
            self.miscounted.push(counted.broken.unwrap_or_else(miscounted));
            keep_first(&mut self.miscounted);
        }
        self.runs.push((Run { start: span.start, stride: size, count }, counted.used));
        Use::Run(span.start)
    }
}

impl TcmallocContent {
    fn add_spans(
        &mut self,
        watcher: &dyn Watcher,
        space: &Space,
        (spans, sizes): (&[Span], &[u64]),
        root: u32,
    ) -> Result<()> {
        let jobs: Vec<&[Span]> = spans.chunks(SPANS_IN_JOB).collect();
        let evidence = &self.evidence;
        let walk = |(found, window): &mut (SpanContent, Window<'_>), job: &&[Span], control: &Control<'_>| {
            job.iter().for_each(|span| found.add(space, span, (sizes, evidence), root, window));
            control.advance(0)
        };
        let init = || (SpanContent::default(), Window::new(space, space.machine.user_end));
        for (walked, _) in space.task(watcher, None).run(&jobs, init, walk)? {
            self.runs.extend(walked.runs.into_iter().map(|(run, used)| (root, run, used)));
            self.pieces.extend(walked.pieces);
            self.damage.extend(walked.damage);
            self.miscounted.extend(walked.miscounted);
        }
        Ok(())
    }

    fn finish(mut self, watcher: &dyn Watcher, space: &Space) -> Result<Tcmalloc> {
        // If two pieces claim the same bytes, the second piece is dropped.
        self.pieces.sort_by_key(|piece| piece.start);
        let mut end = 0;
        self.pieces.retain(|piece| {
            let is_kept = piece.start >= end;
            end = if is_kept { piece.end } else { end };
            is_kept
        });
        let areas = Areas::of(std::mem::take(&mut self.pieces));
        self.runs.sort_by_key(|(_, run, _)| run.start);
        // If a run's span was dropped because of an overlap, the run is in no area.
        areas.retain_runs(&mut self.runs, |(_, run, _)| run.start);
        let owner = |root: u32, run: &Run| Owner { root, arena: 0, is_slab: run.count > 1 };
        let owners = self.runs.iter().map(|(root, run, _)| owner(*root, run)).collect();
        let runs = std::mem::take(&mut self.runs).into_iter().map(|(_, run, used)| (run, used)).collect();
        let mut runs = Runs::new(runs)?;
        let follow_all = |control: &Control<'_>| {
            let mut lists = Lists::new(&runs);
            let mut all = self.waiting.iter().zip(0..);
            all.try_for_each(|((sizes, waiting), root)| lists.add(space, control, (root, sizes), waiting))?;
            Ok((lists.cached, lists.transfer, lists.moving, lists.broken, lists.holding))
        };
        let (cached, transfer, moving, mut broken, holding) = space.task(watcher, None).alone(follow_all)?;
        for list in [&cached, &transfer] {
            bits::members(list.words()).for_each(|number| runs.clear(number));
        }
        let count = |(_, waiting): &(Vec<u64>, CacheContent)| waiting.has_central.then_some(waiting.caches.len());
        let caches = self.waiting.iter().map(count).collect();
        self.damage.sort_by_key(|damage| damage.address);
        self.miscounted.sort_by_key(|damage| damage.address);
        self.damage.truncate(MAX_DAMAGE);
        self.miscounted.truncate(MAX_DAMAGE);
        broken.sort_by_key(|damage| damage.address);
        broken.truncate(MAX_DAMAGE);
        let (own, TcmallocContent { damage, miscounted, .. }) = (Bits::new(runs.block_numbers()), self);
        let words = StateNames { free: "free pages", returned: "returned pages", list: "span", has_arenas: false };
        let extents = Arc::new(Extents { words, runs, owners, cached, transfer, own, areas, damage });
        Ok(Tcmalloc { extents, caches, holding, moving, miscounted, broken })
    }
}

/// The blocks in chains, as bitmaps (the index of a bit is a block's number), and the damage in the chains.
struct Lists<'a> {
    runs: &'a Runs,
    cached: Bits,
    transfer: Bits,
    moving: InMotion,
    broken: Vec<Damage>,
    holding: Vec<CacheUse>,
}

impl<'a> Lists<'a> {
    fn new(runs: &'a Runs) -> Lists<'a> {
        let (cached, transfer) = (Bits::new(runs.block_numbers()), Bits::new(runs.block_numbers()));
        Lists { runs, cached, transfer, moving: InMotion::default(), broken: Vec::new(), holding: Vec::new() }
    }

    fn add(
        &mut self,
        space: &Space,
        control: &Control<'_>,
        (root, sizes): (u32, &[u64]),
        waiting: &CacheContent,
    ) -> Result<(), Cancellation> {
        let mut astray = 0;
        let mut holding: BTreeMap<u64, CacheUse> = BTreeMap::new();
        for cache in &waiting.caches {
            holding.insert(*cache, CacheUse { root, address: *cache, ..CacheUse::default() });
        }
        let show = |block: u64, chain: &Chain| {
            let link = self.take(block, sizes[chain.class], chain.listed);
            astray += u64::from(link != Link::New);
            // The heads of a thread cache's lists lie in the cache itself.
            let cache = holding.range_mut(..=chain.at).next_back();
            if let Some((_, row)) = cache.filter(|_| link == Link::New && chain.listed == ListKind::ThreadCache) {
                (row.blocks, row.bytes) = (row.blocks + 1, row.bytes + sizes[chain.class]);
            }
            link
        };
        let broken = follow(space, control, &waiting.chains, show)?;
        self.holding.extend(holding.into_values());
        self.moving.chains += broken.len() as u64;
        self.moving.astray += astray;
        self.moving.locked += waiting.locked;
        self.broken.extend(broken);
        Ok(())
    }

    /// Record that a chain contains the block at `block`. Return `Astray` if no block of this size begins there. Return
    /// `Again` if the block is already free in its span or in a chain, and `New` otherwise.
    fn take(&mut self, block: u64, size: u64, listed: ListKind) -> Link {
        let run = self.runs.run_at(block).map(|place| self.runs.runs[place]);
        if run.is_none_or(|run| run.stride != size || (block - run.start) % size != 0) {
            return Link::Astray;
        }
        let Some(cell) = self.runs.block_at(block) else { return Link::Again };
        let is_new = !self.cached.get(cell.number) && !self.transfer.get(cell.number);
        match listed {
            ListKind::ThreadCache => self.cached.set(cell.number),
            ListKind::Transfer if is_new => self.transfer.set(cell.number),
            ListKind::Transfer => (),
        }
        if is_new {
            Link::New
        } else {
            Link::Again
        }
    }
}

impl Tcmalloc {
    /// Return the spans that have several blocks, including the unused ends of these spans. Blocks in caches count in
    /// `live` and in `waiting`. Any thread may own any block of a span.
    pub fn slabs(&self) -> impl Iterator<Item = BlockSlab> + '_ {
        let extents = &self.extents;
        extents.owned_runs().filter(|(_, _, owner)| owner.is_slab).map(|(place, run, owner)| {
            let waiting = ones(extents.cached_of(place)) + ones(extents.transfer_of(place));
            BlockSlab {
                root: owner.root,
                keeper: 0,
                size: run.stride,
                start: run.start,
                end: extents.areas.piece_at(run.start).map_or(run.end(), |piece| piece.end),
                room: run.count,
                live: extents.runs.count_of(place) + waiting,
                waiting,
            }
        })
    }

    /// Return the blocks of each size, ascending.
    pub fn sizes(&self) -> Vec<SizeUse> {
        let mut rows: BTreeMap<(u32, u64), SizeUse> = BTreeMap::new();
        let extents = &self.extents;
        for (place, run, Owner { root, .. }) in extents.owned_runs() {
            let row = rows.entry((*root, run.stride)).or_default();
            let used = extents.runs.count_of(place);
            let (cached, transfer) = (ones(extents.cached_of(place)), ones(extents.transfer_of(place)));
            *row = SizeUse {
                root: *root,
                size: run.stride,
                spans: row.spans + 1,
                used: row.used + used,
                listed: row.listed + run.count - used - cached - transfer,
                transfer: row.transfer + transfer,
                cached: row.cached + cached,
            };
        }
        rows.into_values().collect()
    }

    /// Return the memory of each tcmalloc.
    pub fn sums(&self) -> Vec<TcmallocUse> {
        let mut rows = vec![TcmallocUse::default(); self.caches.len()];
        for piece in &self.extents.areas.pieces {
            let (row, size) = (&mut rows[piece.root as usize], piece.end - piece.start);
            match piece.of {
                Use::Run(_) => row.waste += size,
                Use::Free => row.free += size,
                Use::Returned => row.returned += size,
                Use::Metadata => row.metadata += size,
                _ => (),
            }
        }
        for size in self.sizes() {
            let row = &mut rows[size.root as usize];
            row.used += size.used * size.size;
            row.listed += size.listed * size.size;
            row.transfer += size.transfer * size.size;
            row.cached += size.cached * size.size;
            row.waste -= (size.used + size.listed + size.transfer + size.cached) * size.size;
        }
        rows
    }
}

fn ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}
