//! The walk over glibc's chunks: each stretch of an arena from its first chunk to its end.
//!
//! A chunk in memory (glibc 2.36, `p = malloc(24)` after a used chunk, header at p - 16):
//!
//! ```text
//! 0x..290: 00 00 00 00 00 00 00 00  21 00 00 00 00 00 00 00   prev_size | size, bits: 1 PREV_INUSE 2 IS_MMAPPED 4 NON_MAIN_ARENA
//! 0x..2a0: the 24 bytes of p, of which the last 8 lie in the next header's prev_size
//! ```
//!
//! A chunk is in use if the PREV_INUSE bit of the next chunk is set. Chunks in fast bins and thread caches have this
//! bit too, although they are free.
//!
//! A walk can only begin where a chunk is known to begin. Long stretches are nevertheless walked by all cores. A
//! stretch is divided into parts. The walk of a part begins at the first address in the part that looks like a chunk,
//! and records plain chunks only. Then a final walk goes through the whole stretch. It may reach a chunk that the walk
//! of a part also found. It then takes over the part's later chunks, because two walks from the same chunk find the
//! same chunks. The part's earlier chunks are dropped, because the part's walk may have begun in the middle of a
//! block's data.

mod parts;
mod stretch;
mod walker;

use crate::allocators::damage::Damage;
use crate::allocators::glibc::chunks::{ChunkHead, ChunkState, Chunks, Link, Region, Stretch, GRAIN};
use crate::allocators::glibc::free_links::FreeLinks;
use crate::bits::Bits;
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{take, Control, Watcher};

use parts::{PartJob, WalkedPart, PART};
use std::sync::atomic::AtomicUsize;
use std::sync::Mutex;
use stretch::Walk;
use walker::{ChunkBits, ChunkWalker, RegionInfo, MAX_FAST_BINS};

const WORDS_IN_PART: usize = (PART / GRAIN / 64) as usize;

/// A stretch that is being walked: its bitmaps, and the damage if memory does not suffice for bitmaps of its size.
struct RegionBits {
    stretch: Stretch,
    starts: Bits,
    low: Bits,
    heads: AtomicUsize,
    collects: bool,
    damage: Vec<Damage>,
}

impl RegionBits {
    fn new(mut stretch: Stretch, collects: bool) -> RegionBits {
        let size = stretch.end - stretch.start;
        let mut damage = Vec::new();
        if !Bits::fits(3 * (size / GRAIN + 1)) {
            stretch.end = stretch.start;
            let expected = "a size for which there is enough memory";
            damage.push(Damage::new(stretch.start, "size of a heap", expected, format!("{size:#x}")));
        }
        let bits = || Bits::new((stretch.end - stretch.start) / GRAIN + 1);
        RegionBits { starts: bits(), low: bits(), heads: AtomicUsize::new(0), collects, damage, stretch }
    }

    fn part_jobs(&mut self, space: &Space, index: usize) -> Vec<PartJob<'_>> {
        let RegionBits { stretch, starts, low, heads, collects, .. } = self;
        let words = starts.words_mut().chunks_mut(WORDS_IN_PART).zip(low.words_mut().chunks_mut(WORDS_IN_PART));
        let starts = (stretch.start..stretch.end).step_by(PART as usize);
        let job = |(from, words)| {
            let to = stretch.end.min(from + PART);
            PartJob {
                index,
                info: RegionInfo::new(space, stretch, heads, *collects),
                from,
                to,
                words: Mutex::new(Some(words)),
            }
        };
        starts.zip(words).map(job).collect()
    }

    fn whole_job(&mut self, space: &Space, index: usize, parts: Vec<WalkedPart>) -> WholeJob<'_> {
        let info = RegionInfo::new(space, &self.stretch, &self.heads, self.collects);
        let task = ((self.starts.words_mut(), self.low.words_mut()), parts);
        WholeJob { index, info, task: Mutex::new(Some(task)) }
    }

    fn region(self, walked: StretchContent) -> Region {
        let StretchContent { special, links, heads, free, mut damage, .. } = walked;
        damage.extend(self.damage);
        let mut region = Region::new(self.stretch, self.starts, self.low, special, damage);
        region.links = links;
        region.heads = heads;
        region.free_links = Mutex::new(free);
        region
    }
}

struct WholeJob<'a> {
    index: usize,
    info: RegionInfo<'a>,
    task: Mutex<Option<(ChunkBits<'a>, Vec<WalkedPart>)>>,
}

struct StretchContent {
    index: usize,
    special: Vec<(u64, ChunkState)>,
    links: Vec<Link>,
    heads: Option<Vec<ChunkHead>>,
    free: Option<FreeLinks>,
    damage: Vec<Damage>,
}

impl WholeJob<'_> {
    fn walk(&self, space: &Space, control: &Control) -> Result<Option<StretchContent>, Cancellation> {
        let Some(((starts, low), parts)) = take(&self.task) else { return Ok(None) };
        let walker = ChunkWalker::new(space, &self.info, self.info.stretch.start, starts, low);
        let mut walk = Walk { control, walker, special: Vec::new(), damage: Vec::new(), fences: 0, searched: 0 };
        walk.whole(parts)?;
        let ChunkWalker { links, heads, free, .. } = walk.walker;
        Ok(Some(StretchContent { index: self.index, special: walk.special, links, heads, free, damage: walk.damage }))
    }
}

/// A list of free chunks in a thread's cache. If `size` is 0, the list's chunks may have any size.
#[derive(Clone, Copy, Debug)]
pub struct CacheList {
    /// The address of the first entry of the list.
    pub first: u64,
    pub entries: u64,
    /// The size in bytes of the list's chunks.
    pub size: u64,
}

/// Walk every stretch and follow the lists of all thread caches. Return for each list the number of entries that were
/// taken, and the address to which its last link points. `collects`: whether to keep the links of free chunks, for
/// `follow_bins`.
pub fn walk_chunks(
    watcher: &dyn Watcher,
    space: &Space,
    stretches: Vec<Stretch>,
    caches: &[CacheList],
    safe_linking: bool,
    collects: bool,
) -> Result<(Chunks, Vec<(u64, u64)>)> {
    let mut chunks = Chunks::new(walk_stretches(watcher, space, stretches, collects)?);
    chunks.follow_fast_bins(safe_linking);
    let take = |list: &CacheList| chunks.follow_tcache(space, (list.first, list.entries, list.size), safe_linking);
    let taken = caches.iter().map(take).collect();
    Ok((chunks, taken))
}

/// Walk every stretch. Chunks in fast bins and thread caches count as used here, because only the lists of free chunks
/// show that they are free. `collects`: whether to keep the links of free chunks.
pub(crate) fn walk_stretches(
    watcher: &dyn Watcher,
    space: &Space,
    stretches: Vec<Stretch>,
    collects: bool,
) -> Result<Vec<Region>> {
    let sound = |s: &Stretch| s.start < s.end && s.start % GRAIN == 0 && s.fast.len() <= MAX_FAST_BINS;
    let bits = |stretch| RegionBits::new(stretch, collects);
    let mut canvases: Vec<RegionBits> = stretches.into_iter().filter(sound).map(bits).collect();
    canvases.sort_by_key(|bits| bits.stretch.start);
    let mut parts = walk_parts(watcher, space, &mut canvases)?;
    parts.sort_by_key(|part| part.from);
    let walked = walk_whole(watcher, space, &mut canvases, parts)?;
    Ok(canvases.into_iter().zip(walked).map(|(bits, walked)| bits.region(walked)).collect())
}

fn walk_parts(watcher: &dyn Watcher, space: &Space, canvases: &mut [RegionBits]) -> Result<Vec<WalkedPart>> {
    let total = canvases.iter().map(|bits| bits.stretch.end - bits.stretch.start).sum();
    let jobs: Vec<PartJob<'_>> =
        canvases.iter_mut().enumerate().flat_map(|(index, bits)| bits.part_jobs(space, index)).collect();
    let work = |done: &mut Vec<WalkedPart>, job: &PartJob<'_>, control: &Control| {
        done.extend(job.walk(space, control)?);
        Ok(())
    };
    Ok(space.task(watcher, Some(total)).run(&jobs, Vec::new, work)?.into_iter().flatten().collect())
}

fn walk_whole(
    watcher: &dyn Watcher,
    space: &Space,
    canvases: &mut [RegionBits],
    parts: Vec<WalkedPart>,
) -> Result<Vec<StretchContent>> {
    let mut by_canvas: Vec<Vec<WalkedPart>> = canvases.iter().map(|_| Vec::new()).collect();
    parts.into_iter().for_each(|part| by_canvas[part.index].push(part));
    let jobs = canvases.iter_mut().zip(by_canvas).enumerate();
    let jobs: Vec<WholeJob<'_>> = jobs.map(|(index, (bits, parts))| bits.whole_job(space, index, parts)).collect();
    let work = |done: &mut Vec<StretchContent>, job: &WholeJob<'_>, control: &Control| {
        done.extend(job.walk(space, control)?);
        Ok(())
    };
    let mut walked: Vec<StretchContent> =
        space.task(watcher, None).run(&jobs, Vec::new, work)?.into_iter().flatten().collect();
    walked.sort_by_key(|walked| walked.index);
    Ok(walked)
}
