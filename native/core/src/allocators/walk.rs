//! The walk over the used blocks of all stores, on all cores. No other code walks over blocks.

use crate::allocators::block::{Block, BlockId, Cell, GroupBits, MAX_IN_GROUP};
use crate::allocators::claimed_blocks::ClaimedBlocks;
use crate::allocators::glibc::chunks::{ChunkState, Chunks, CHUNK_HEADER, STATES};
use crate::allocators::glibc::listing::{ChunkFilter, ListedChunk};
use crate::allocators::glibc::mapped_chunks::MappedChunks;
use crate::allocators::heaps::Heaps;
use crate::allocators::mallocng::groups::Mallocng;
use crate::allocators::mimalloc::segments::Mimalloc;
use crate::allocators::oldmalloc::chunks::Oldmalloc;
use crate::allocators::pymalloc::pools::{Pool, Pools, HEADER};
use crate::allocators::runs::{show_equal, Runs};
use crate::allocators::store::Store;
use gdbheap_access::error::Cancellation;
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::Control;

pub(crate) use crate::allocators::glibc::chunks::HEAD_BYTES;

const SLICE: u64 = 64 << 20;
const ARENAS_IN_JOB: usize = 8;
const PAGES_IN_JOB: usize = 64;
const GROUPS_IN_JOB: usize = 256;
const PLACES_IN_JOB: usize = 4 << 10;
const WINDOW: u64 = 256 << 10;

/// A part of the heaps that one worker walks. For chunks, [from, to) is an address range in the region with the index
/// `part`. For other stores, it is a range of indices of blocks or of groups of blocks.
pub(crate) struct Job {
    /// The smallest identity that any block of this job can have.
    pub(crate) first: BlockId,
    part: usize,
    from: u64,
    to: u64,
}

impl Job {
    fn store(&self) -> usize {
        self.first.store as usize
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.from as usize..self.to as usize
    }
}

/// Jobs that together visit every used block of some stores once. `total`: the sum of all progress that the jobs
/// report, in bytes.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) jobs: Vec<Job>,
    pub(crate) total: u64,
}

impl Jobs {
    /// Add jobs for `count` items, which are numbered by index, with `each` items in one job. `first` returns the
    /// number of the first block of an item.
    fn add(&mut self, store: u32, (count, each): (usize, usize), first: impl Fn(usize) -> u64) {
        let job = |from: usize| {
            let (first, to) = (BlockId { store, number: first(from) }, (from + each).min(count));
            Job { first, part: 0, from: from as u64, to: to as u64 }
        };
        self.jobs.extend((0..count).step_by(each).map(job));
    }

    fn add_pools(&mut self, store: u32, pools: &Pools) {
        let first = |arena: usize| match pools.arenas[arena].first_pool {
            ordinal if ordinal < pools.pools.len() => pools.first_block(ordinal),
            _ => pools.block_numbers(),
        };
        self.add(store, (pools.arenas.len(), ARENAS_IN_JOB), first);
        self.total += pools.arenas.iter().map(|arena| arena.carved.saturating_sub(arena.address)).sum::<u64>();
    }

    /// Add jobs for the chunks of one region.
    pub(crate) fn add_region(&mut self, store: u32, chunks: &Chunks, part: usize) {
        let region = &chunks.regions[part];
        let (start, end) = (region.stretch.start, region.stretch.end);
        let job = |from: u64| {
            let number = chunks.first_block(part) + (from - start).div_ceil(CHUNK_HEADER);
            Job { first: BlockId { store, number }, part, from, to: (from + SLICE).min(end) }
        };
        self.jobs.extend((start..end).step_by(SLICE as usize).map(job));
        self.total += end - start;
    }

    fn add_store(&mut self, store: u32, of: &Store) {
        match of {
            Store::Pools(pools) => self.add_pools(store, pools),
            Store::Mimalloc(mimalloc) => {
                self.add(store, (mimalloc.pages.len(), PAGES_IN_JOB), |page| mimalloc.pages[page].first);
                self.total += mimalloc.bytes_shown();
            }
            Store::Mallocng(mallocng) => {
                self.add(store, (mallocng.groups.len(), GROUPS_IN_JOB), |group| mallocng.groups[group].first);
                self.total += mallocng.bytes_shown();
            }
            Store::Oldmalloc(old) => {
                self.add(store, (old.stretches.len(), 1), |one| old.stretches[one].first);
                self.total += old.stretches.iter().map(|one| one.end - one.start).sum::<u64>();
            }
            Store::Chunks(chunks) => (0..chunks.regions.len()).for_each(|part| self.add_region(store, chunks, part)),
            Store::Mapped(mapped) => self.add(store, (mapped.chunks.len(), PLACES_IN_JOB), |first| first as u64),
            Store::Extents(extents) => {
                let runs = &extents.runs;
                self.add(store, (runs.runs.len(), PAGES_IN_JOB), |run| runs.first_block(run));
                self.total += runs.runs.iter().map(|run| run.count * run.stride).sum::<u64>();
            }
            Store::Claimed(claimed) => self.add(store, (claimed.places.len(), PLACES_IN_JOB), |first| first as u64),
        }
    }
}

impl Heaps<'_> {
    pub(crate) fn jobs(&self) -> Jobs {
        self.jobs_of(|_| true)
    }

    /// Return jobs for the stores that `wanted` accepts.
    pub(crate) fn jobs_of(&self, wanted: impl Fn(&Store) -> bool) -> Jobs {
        let mut jobs = Jobs::default();
        let stores = self.stores.iter().zip(0..).filter(|(store, _)| wanted(store));
        stores.for_each(|(store, index)| jobs.add_store(index, store));
        jobs
    }
}

/// A visitor of the used blocks that may contain an object.
pub(crate) trait Visitor {
    /// Whether to visit all used blocks, including those that cannot contain an object.
    const ALL: bool = false;
    /// The largest number of bytes that are shown of each block.
    const HEAD: usize = HEAD_BYTES;

    /// Return whether a block of this size should be read. This method is called for blocks that lie between headers.
    #[inline(always)]
    fn wants(&self, _size: u64) -> bool {
        true
    }

    /// Visit a used block, given with its first bytes. Return true if the block contains an object.
    fn block(&mut self, block: Block, head: &[u8]) -> bool;

    /// Visit a block of a group. `head` is the whole block. After all blocks of the group, `group` is called.
    #[inline(always)]
    fn block_of_group(&mut self, block: Block, head: &[u8]) -> bool {
        self.block(block, head)
    }

    /// Visit a used block that cannot contain an object. Called only if ALL is true.
    #[inline(always)]
    fn plain_block(&mut self, _block: Block, _head: &[u8]) {}

    /// Count `bytes` bytes of blocks that could not be read and were shown as zeros.
    #[inline(always)]
    fn unread(&mut self, _bytes: u64) {}

    /// Finish a group whose blocks were all visited. The blocks have `size` bytes and consecutive numbers. `first`: the
    /// identity of the first block. `used` and `objects` are valid only for the numbers of this group's blocks.
    #[inline(always)]
    fn group(&mut self, _first: BlockId, _size: u64, _used: &GroupBits, _objects: &GroupBits) {}
}

/// The walk of one worker, with the buffer into which it reads.
pub(crate) struct Walk<'a> {
    heaps: Heaps<'a>,
    bytes: Vec<u8>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(heaps: Heaps<'a>) -> Walk<'a> {
        Walk { heaps, bytes: Vec::new() }
    }

    /// Show the used blocks of a job. If the first bytes of chunks were kept, only those chunks are shown that may
    /// contain an object.
    pub(crate) fn run(&mut self, job: &Job, control: &Control, visitor: &mut impl Visitor) -> Result<(), Cancellation> {
        match &self.heaps.stores[job.store()] {
            Store::Pools(pools) => job.range().try_for_each(|arena| self.arena(job, pools, arena, control, visitor)),
            Store::Mimalloc(mimalloc) => self.pages(job, mimalloc, control, visitor),
            Store::Mallocng(mallocng) => self.slots(job, mallocng, control, visitor),
            Store::Oldmalloc(old) => self.stretches(job, old, control, visitor),
            Store::Chunks(chunks) => self.chunks(job, chunks, control, visitor),
            Store::Mapped(mapped) => self.mapped(job, mapped, control, visitor),
            Store::Extents(extents) => self.runs(job, &extents.runs, control, visitor),
            Store::Claimed(claimed) => self.claimed(job, claimed, control, visitor),
        }
    }

    fn arena(
        &mut self,
        job: &Job,
        pools: &Pools,
        index: usize,
        control: &Control,
        visitor: &mut impl Visitor,
    ) -> Result<(), Cancellation> {
        let arena = &pools.arenas[index];
        let in_window = (WINDOW / pools.pool_size).max(1) as usize;
        self.bytes.resize(in_window * pools.pool_size as usize, 0);
        for (batch, group) in pools.pools_of(arena).chunks(in_window).enumerate() {
            let window = &mut self.bytes[..group.len() * pools.pool_size as usize];
            let got = self.heaps.space.fill_words(group[0].address, window);
            window[got..].fill(0);
            visitor.unread((window.len() - got) as u64);
            let first = arena.first_pool + batch * in_window;
            for (place, bytes) in window.chunks(pools.pool_size as usize).enumerate() {
                if !group[place].is_free() {
                    let first = BlockId { number: pools.first_block(first + place), ..job.first };
                    show_pool(pools, first, &group[place], bytes, visitor);
                }
            }
            control.advance(got as u64)?;
        }
        Ok(())
    }

    fn chunks<V: Visitor>(
        &mut self,
        job: &Job,
        chunks: &Chunks,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancellation> {
        let (region, from, to) = (&chunks.regions[job.part], job.from, job.to);
        let block = |start: u64, end: u64| chunks.cell(job.part, start, end).of(job.first.store);
        if let Some(heads) = region.heads(from, to).filter(|_| !V::ALL) {
            for head in heads {
                let Some((start, end, _)) = region.find(head.chunk) else { continue };
                if visitor.wants(end - start) {
                    visitor.block(block(start, end), head.known());
                }
            }
            return control.advance(to - from);
        }
        let mut window = Window::new(self.heaps.space, region.stretch.end);
        let mut reported = from;
        for (start, end, _) in region.blocks(from, to).filter(|(_, _, state)| *state == ChunkState::Used) {
            if start - reported >= 1 << 20 {
                control.advance(start - reported)?;
                reported = start;
            }
            if visitor.wants(end - start) {
                let block = block(start, end);
                let usable = (block.end - block.address) as usize;
                visitor.block(block, window.available(block.address, usable.min(V::HEAD)));
            }
        }
        control.advance(to.saturating_sub(reported))
    }

    fn mapped<V: Visitor>(
        &mut self,
        job: &Job,
        mapped: &MappedChunks,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancellation> {
        for number in job.from..job.to {
            let block = mapped.block_of(number).of(job.first.store);
            let mut head = vec![0; V::HEAD];
            let got = self.heaps.space.fill(block.address, &mut head);
            visitor.block(block, &head[..got]);
            control.advance(0)?;
        }
        Ok(())
    }

    fn claimed<V: Visitor>(
        &mut self,
        job: &Job,
        claimed: &ClaimedBlocks,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancellation> {
        let mut window = Window::new(self.heaps.space, u64::MAX);
        for number in job.from..job.to {
            let block = claimed.block_of(number).of(job.first.store);
            let head = match claimed.closed {
                true => &[],
                false => window.available(block.address, (block.size as usize).min(V::HEAD)),
            };
            visitor.block(block, head);
        }
        control.advance(0)
    }

    fn pages<V: Visitor>(
        &mut self,
        job: &Job,
        mimalloc: &Mimalloc,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancellation> {
        for page in mimalloc.pages[job.range()].iter().filter(|page| V::ALL || mimalloc.may_hold_objects(page)) {
            let holds_objects = mimalloc.may_hold_objects(page);
            let unread =
                show_equal(self.heaps.space, &page.run(), mimalloc.words_of(page), &mut self.bytes, |number, head| {
                    let block = Cell::plain(page.first + number, page.block(number), page.size).of(job.first.store);
                    if holds_objects {
                        visitor.block(block, head);
                    } else {
                        visitor.plain_block(block, head);
                    }
                });
            visitor.unread(unread);
            control.advance(if holds_objects { page.size * page.capacity } else { 0 })?;
        }
        Ok(())
    }

    fn slots<V: Visitor>(
        &mut self,
        job: &Job,
        mallocng: &Mallocng,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancellation> {
        let mut window = Window::new(self.heaps.space, u64::MAX);
        for group in &mallocng.groups[job.range()] {
            let mut shown = 0;
            for cell in mallocng.used_of(group) {
                let usable = (cell.end - cell.address) as usize;
                visitor.block(cell.of(job.first.store), window.available(cell.address, usable.min(V::HEAD)));
                shown += cell.size;
            }
            control.advance(shown)?;
        }
        Ok(())
    }

    fn stretches<V: Visitor>(
        &mut self,
        job: &Job,
        old: &Oldmalloc,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancellation> {
        let mut window = Window::new(self.heaps.space, u64::MAX);
        for stretch in &old.stretches[job.range()] {
            for (cell, _) in old.chunks_of(stretch).filter(|(_, used)| *used) {
                let usable = (cell.end - cell.address) as usize;
                visitor.block(cell.of(job.first.store), window.available(cell.address, usable.min(V::HEAD)));
                control.advance(cell.size)?;
            }
        }
        Ok(())
    }

    fn runs<V: Visitor>(
        &mut self,
        job: &Job,
        runs: &Runs,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancellation> {
        for place in job.range() {
            let (run, first) = (&runs.runs[place], runs.first_block(place));
            let unread = show_equal(self.heaps.space, run, runs.used_of(place), &mut self.bytes, |number, head| {
                let block = Cell::plain(first + number, run.block(number), run.stride).of(job.first.store);
                visitor.block(block, head);
            });
            visitor.unread(unread);
            control.advance(run.count * run.stride)?;
        }
        Ok(())
    }
}

#[inline(always)]
fn show_pool(pools: &Pools, first: BlockId, pool: &Pool, bytes: &[u8], visitor: &mut impl Visitor) {
    let size = pool.block_size(pools.alignment);
    let used = pools.used_blocks(pool, bytes);
    let mut objects: GroupBits = [0; MAX_IN_GROUP / 64];
    for (word, objects) in objects.iter_mut().enumerate() {
        let mut left = used[word];
        while left != 0 {
            let number = word as u64 * 64 + u64::from(left.trailing_zeros());
            let start = HEADER + number * size;
            let Some(head) = bytes.get(start as usize..(start + size) as usize) else { break };
            let block = Cell::plain(first.number + number, pool.address + start, size).of(first.store);
            if visitor.block_of_group(block, head) {
                *objects |= left & left.wrapping_neg();
            }
            left &= left - 1;
        }
    }
    visitor.group(first, size, &used, &objects);
}

/// Queries that concern only the chunks of malloc's arenas.
impl Heaps<'_> {
    /// Return jobs that visit the used chunks of the wanted regions.
    pub(crate) fn chunk_jobs(&self, wanted: &ChunkFilter) -> Jobs {
        let mut jobs = Jobs::default();
        for (store, index) in self.stores.iter().zip(0..) {
            let Store::Chunks(chunks) = store else { continue };
            wanted.regions(chunks).for_each(|(part, _)| jobs.add_region(index, chunks, part));
        }
        jobs
    }

    /// Return a used block as a row of the list of chunks; None if the block is not a chunk of an arena.
    pub(crate) fn listed(&self, block: &Block) -> Option<ListedChunk> {
        let Store::Chunks(chunks) = self.store_of(block.place) else { return None };
        let arena = chunks.region_of_number(block.place.number).stretch.arena;
        Some((block.address - CHUNK_HEADER, block.size, STATES[ChunkState::Used as usize], arena))
    }
}
