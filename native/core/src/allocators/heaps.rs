//! All that hands out blocks of one target, and the one walk over the used ones, on all cores.

use crate::allocators::claimed::Claimed;
use crate::allocators::glibc::chunks::{Chunks, State, CHUNK_HEADER, HEAD_BYTES};
use crate::allocators::mimalloc::segments::Mimalloc;
use crate::allocators::pymalloc::pools::{BlockBits, Pool, Pools, HEADER, MOST_BLOCKS};
use crate::bytes::range_at;
use crate::error::Cancelled;
use crate::memory::space::Space;
use crate::memory::window::Window;
use crate::work::Control;
use std::sync::Arc;

pub(crate) const IN_POOL: usize = 0;
pub(crate) const IN_CHUNK: usize = 1;
pub(crate) const IN_MAPPED: usize = 2;
pub(crate) const IN_MIMALLOC: usize = 3;
/// Memory that nobody walks, by what objects' own fields say.
pub(crate) const IN_CLAIMED: usize = 4;
pub(crate) const DOMAINS: usize = 5;
const SLICE: u64 = 64 << 20;
const ARENAS_IN_JOB: usize = 8;
const PAGES_IN_JOB: usize = 64;
const PLACES_IN_JOB: usize = 4096;
const WINDOW: u64 = 256 << 10;

/// All that hands out blocks of one target.
#[derive(Clone, Copy)]
pub struct Heaps<'a> {
    pub space: &'a Space,
    pub chunks: Option<&'a Chunks>,
    pub pools: Option<&'a Pools>,
    /// mmapped chunks, ascending: (chunk, end).
    pub mapped: &'a [(u64, u64)],
    pub mimalloc: Option<&'a Mimalloc>,
    pub claimed: Option<&'a Claimed>,
}

/// All that hands out blocks of one target, for whoever keeps it.
pub struct SharedHeaps {
    pub space: Arc<Space>,
    pub chunks: Option<Arc<Chunks>>,
    pub pools: Option<Arc<Pools>>,
    /// mmapped chunks, ascending: (chunk, end).
    pub mapped: Vec<(u64, u64)>,
    pub mimalloc: Option<Arc<Mimalloc>>,
    pub claimed: Option<Arc<Claimed>>,
}

impl SharedHeaps {
    pub fn lend(&self) -> Heaps<'_> {
        Heaps {
            space: &self.space,
            chunks: self.chunks.as_deref(),
            pools: self.pools.as_deref(),
            mapped: &self.mapped,
            mimalloc: self.mimalloc.as_deref(),
            claimed: self.claimed.as_deref(),
        }
    }
}

/// A block by who handed it out, with its number there.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Pool(u64),
    Chunk(usize, u64),
    Mapped(u64),
    Mimalloc(u64),
    Claimed(u64),
}

impl Place {
    pub(crate) fn domain(&self) -> usize {
        match self {
            Place::Pool(_) => IN_POOL,
            Place::Chunk(..) => IN_CHUNK,
            Place::Mapped(_) => IN_MAPPED,
            Place::Mimalloc(_) => IN_MIMALLOC,
            Place::Claimed(_) => IN_CLAIMED,
        }
    }

    /// Where the bytes of a block of `size` at `address` end: a chunk reaches eight bytes into the next header.
    pub(crate) fn end(&self, address: u64, size: u64) -> u64 {
        match self {
            Place::Pool(_) | Place::Mimalloc(_) | Place::Claimed(_) => address + size,
            Place::Chunk(..) => address + size - 8,
            Place::Mapped(_) => address + size - CHUNK_HEADER,
        }
    }
}

/// A part of the heaps that one worker walks.
pub(crate) enum Job {
    /// Arenas of pymalloc, from one index to another.
    Arenas(usize, usize),
    /// The chunks of a region that start in [from, to).
    Chunks(usize, u64, u64),
    Mapped,
    /// Pages of mimalloc, from one index to another.
    Pages(usize, usize),
    /// Claimed places, from one index to another.
    Claimed(usize, usize),
}

impl<'a> Heaps<'a> {
    /// The used block that holds `address`: where, its user address and its size.
    pub(crate) fn block_at(&self, address: u64) -> Option<(Place, u64, u64)> {
        if let Some(pools) = self.pools {
            if let Some(block) = pools.block_at(address) {
                return Some((Place::Pool(block.number), block.address, block.size));
            }
        }
        if let Some((number, block, size)) = self.mimalloc.and_then(|mimalloc| mimalloc.block_at(address)) {
            return Some((Place::Mimalloc(number), block, size));
        }
        if let Some((region, (start, end, State::Used))) = self.chunk_at(address) {
            return Some((self.chunk_place(region, start)?, start + CHUNK_HEADER, end - start));
        }
        if let Some(index) = range_at(self.mapped, address) {
            let (chunk, end) = self.mapped[index];
            return Some((Place::Mapped(index as u64), chunk + CHUNK_HEADER, end - chunk));
        }
        let (number, start, size) = self.claimed?.block_at(address)?;
        Some((Place::Claimed(number), start, size))
    }

    fn chunk_at(&self, address: u64) -> Option<(usize, (u64, u64, State))> {
        let chunks = self.chunks?;
        let found = chunks.holder(address)?;
        Some((chunks.region_of(found.0)?, found))
    }

    fn chunk_place(&self, region: usize, chunk: u64) -> Option<Place> {
        Some(Place::Chunk(region, self.chunks?.regions[region].index(chunk)))
    }

    /// The lowest and the highest address of a block.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        let arenas = self.pools.iter().flat_map(|pools| &pools.arenas).map(|arena| (arena.address, arena.end));
        let regions = self.chunks.iter().flat_map(|chunks| &chunks.regions);
        let stretches = regions.map(|region| (region.stretch.start, region.stretch.end));
        let segments = self.mimalloc.iter().flat_map(|mimalloc| &mimalloc.segments);
        let segments = segments.map(|segment| (segment.address, segment.end));
        let claimed = self.claimed.iter().flat_map(|claimed| claimed.places.iter().copied());
        let all = arenas.chain(stretches).chain(self.mapped.iter().copied()).chain(segments).chain(claimed);
        all.fold((u64::MAX, 0), |(low, high), (start, end)| (low.min(start), high.max(end)))
    }

    /// Jobs that together visit every used block once, and the bytes that they report as done.
    pub(crate) fn jobs(&self) -> (Vec<Job>, u64) {
        let (mut jobs, mut total) = (Vec::new(), 0);
        if let Some(pools) = self.pools {
            let arenas = pools.arenas.len();
            let starts = (0..arenas).step_by(ARENAS_IN_JOB);
            jobs.extend(starts.map(|from| Job::Arenas(from, (from + ARENAS_IN_JOB).min(arenas))));
            total += pools.arenas.iter().map(|arena| arena.carved.saturating_sub(arena.address)).sum::<u64>();
        }
        for (index, region) in self.chunks.iter().flat_map(|chunks| chunks.regions.iter().enumerate()) {
            let (start, end) = (region.stretch.start, region.stretch.end);
            let starts = (start..end).step_by(SLICE as usize);
            jobs.extend(starts.map(|from| Job::Chunks(index, from, (from + SLICE).min(end))));
            total += end - start;
        }
        jobs.push(Job::Mapped);
        if let Some(mimalloc) = self.mimalloc {
            let pages = mimalloc.pages.len();
            let starts = (0..pages).step_by(PAGES_IN_JOB);
            jobs.extend(starts.map(|from| Job::Pages(from, (from + PAGES_IN_JOB).min(pages))));
            total += mimalloc.bytes_shown();
        }
        let places = self.claimed.map_or(0, |claimed| claimed.places.len());
        let starts = (0..places).step_by(PLACES_IN_JOB);
        jobs.extend(starts.map(|from| Job::Claimed(from, (from + PLACES_IN_JOB).min(places))));
        (jobs, total)
    }
}

/// Whoever is shown the used blocks that may hold an object.
pub(crate) trait Visitor {
    /// Whether all used chunks are wanted, also those that cannot hold an object, and how many bytes of each at most.
    const ALL: bool = false;
    const HEAD: usize = HEAD_BYTES;

    /// Whether a chunk of this size is worth reading.
    #[inline(always)]
    fn wants(&self, _size: u64) -> bool {
        true
    }

    /// A used block: where, its user address, its size, and its first bytes (of one in a pool all). True if it holds an
    /// object.
    fn block(&mut self, place: Place, address: u64, size: u64, head: &[u8]) -> bool;

    /// A used block of a page that has no objects; only where all blocks are wanted.
    #[inline(always)]
    fn plain_block(&mut self, _place: Place, _address: u64, _size: u64, _head: &[u8]) {}

    /// All of a pool has been shown. Its blocks are of `size` bytes and numbered from `first`, of which the bits count.
    #[inline(always)]
    fn pool(&mut self, _first: u64, _size: u64, _used: &BlockBits, _objects: &BlockBits) {}
}

/// A worker's walk: what it reads with.
pub(crate) struct Walk<'a> {
    heaps: Heaps<'a>,
    bytes: Vec<u8>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(heaps: Heaps<'a>) -> Walk<'a> {
        Walk { heaps, bytes: Vec::new() }
    }

    /// Shows the used blocks of a job. Where the first bytes of chunks were kept, only chunks that may hold an object.
    pub(crate) fn run(&mut self, job: &Job, control: &Control, visitor: &mut impl Visitor) -> Result<(), Cancelled> {
        match job {
            Job::Arenas(from, to) => (*from..*to).try_for_each(|arena| self.arena(arena, control, visitor)),
            Job::Chunks(region, from, to) => self.chunks(*region, *from, *to, control, visitor),
            Job::Mapped => self.mapped(control, visitor),
            Job::Pages(from, to) => self.pages(*from, *to, control, visitor),
            Job::Claimed(from, to) => self.claimed(*from, *to, control, visitor),
        }
    }

    fn arena(&mut self, index: usize, control: &Control, visitor: &mut impl Visitor) -> Result<(), Cancelled> {
        let Some(pools) = self.heaps.pools else { return Ok(()) };
        let arena = &pools.arenas[index];
        let in_window = (WINDOW / pools.pool_size).max(1) as usize;
        self.bytes.resize(in_window * pools.pool_size as usize, 0);
        for (batch, group) in pools.pools_of(arena).chunks(in_window).enumerate() {
            let window = &mut self.bytes[..group.len() * pools.pool_size as usize];
            let got = self.heaps.space.fill(group[0].address, window);
            window[got..].fill(0);
            let first = arena.first_pool + batch * in_window;
            for (place, bytes) in window.chunks(pools.pool_size as usize).enumerate() {
                if !group[place].is_free() {
                    show_pool(pools, pools.first_block(first + place), &group[place], bytes, visitor);
                }
            }
            control.advance(got as u64)?;
        }
        Ok(())
    }

    fn chunks<V: Visitor>(
        &mut self,
        index: usize,
        from: u64,
        to: u64,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancelled> {
        let Some(chunks) = self.heaps.chunks else { return Ok(()) };
        let region = &chunks.regions[index];
        let show = |visitor: &mut V, chunk: u64, size: u64, head: &[u8]| {
            Visitor::block(visitor, Place::Chunk(index, region.index(chunk)), chunk + CHUNK_HEADER, size, head)
        };
        if let Some(heads) = region.heads(from, to).filter(|_| !V::ALL) {
            for head in heads {
                let Some((start, end, _)) = region.find(head.chunk) else { continue };
                if visitor.wants(end - start) {
                    show(visitor, start, end - start, head.known());
                }
            }
            return control.advance(to - from);
        }
        let mut window = Window::new(self.heaps.space, region.stretch.end);
        let mut reported = from;
        for (start, end, _) in region.blocks(from, to).filter(|(_, _, state)| *state == State::Used) {
            if start - reported >= 1 << 20 {
                control.advance(start - reported)?;
                reported = start;
            }
            if visitor.wants(end - start) {
                // A chunk's last eight bytes are the next one's prev_size.
                let usable = (end - start - 8) as usize;
                show(visitor, start, end - start, window.available(start + CHUNK_HEADER, usable.min(V::HEAD)));
            }
        }
        control.advance(to.saturating_sub(reported))
    }

    fn mapped<V: Visitor>(&mut self, control: &Control, visitor: &mut V) -> Result<(), Cancelled> {
        for (index, (chunk, end)) in self.heaps.mapped.iter().enumerate() {
            let mut head = vec![0; V::HEAD];
            let got = self.heaps.space.fill(chunk + CHUNK_HEADER, &mut head);
            visitor.block(Place::Mapped(index as u64), chunk + CHUNK_HEADER, end - chunk, &head[..got]);
            control.advance(0)?;
        }
        Ok(())
    }
}

impl Walk<'_> {
    fn claimed<V: Visitor>(
        &mut self,
        from: usize,
        to: usize,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancelled> {
        let Some(claimed) = self.heaps.claimed else { return Ok(()) };
        let mut window = Window::new(self.heaps.space, u64::MAX);
        for (index, (start, end)) in claimed.places[from..to].iter().enumerate() {
            let head = window.available(*start, ((end - start) as usize).min(V::HEAD));
            visitor.block(Place::Claimed((from + index) as u64), *start, end - start, head);
        }
        control.advance(0)
    }

    fn pages<V: Visitor>(
        &mut self,
        from: usize,
        to: usize,
        control: &Control,
        visitor: &mut V,
    ) -> Result<(), Cancelled> {
        let Some(mimalloc) = self.heaps.mimalloc else { return Ok(()) };
        for page in mimalloc.pages[from..to].iter().filter(|page| V::ALL || mimalloc.may_hold_objects(page)) {
            let holds_objects = mimalloc.may_hold_objects(page);
            let in_window = (WINDOW / page.size).max(1);
            // Of what is larger than a window the first bytes.
            let each = page.size.min(WINDOW);
            self.bytes.resize((in_window * each) as usize, 0);
            let (mut first, mut end) = (0, 0);
            for number in mimalloc.used_of(page) {
                if number >= end {
                    (first, end) = (number, (number + in_window).min(page.capacity));
                    let window = &mut self.bytes[..((end - first) * each) as usize];
                    let got = self.heaps.space.fill(page.block(first), window);
                    window[got..].fill(0);
                }
                let at = ((number - first) * page.size) as usize;
                let head = &self.bytes[at..at + each as usize];
                let (place, address) = (Place::Mimalloc(page.first + number), page.block(number));
                if holds_objects {
                    visitor.block(place, address, page.size, head);
                } else {
                    visitor.plain_block(place, address, page.size, head);
                }
            }
            control.advance(if holds_objects { page.size * page.capacity } else { 0 })?;
        }
        Ok(())
    }
}

#[inline(always)]
fn show_pool(pools: &Pools, first: u64, pool: &Pool, bytes: &[u8], visitor: &mut impl Visitor) {
    let size = pool.block_size(pools.alignment);
    let used = pools.used_blocks(pool, bytes);
    let mut objects: BlockBits = [0; MOST_BLOCKS / 64];
    for (word, objects) in objects.iter_mut().enumerate() {
        let mut left = used[word];
        while left != 0 {
            let number = word as u64 * 64 + u64::from(left.trailing_zeros());
            let start = HEADER + number * size;
            let Some(block) = bytes.get(start as usize..(start + size) as usize) else { break };
            if visitor.block(Place::Pool(first + number), pool.address + start, size, block) {
                *objects |= left & left.wrapping_neg();
            }
            left &= left - 1;
        }
    }
    visitor.pool(first, size, &used, &objects);
}
