//! The free chunks of all regions, numbered in address order, with their links.

use super::bin::{MAX_DAMAGE, NO_BIN};
use crate::allocators::damage::{hex, Damage};
use crate::allocators::glibc::chunks::{Chunks, Region, GRAIN};
use crate::allocators::glibc::free_links::{FreeLinks, SizeLink};
use crate::allocators::glibc::walk::walk_stretches;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{take, Control, Watcher};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Mutex;

/// The number of bytes of a region that one 64-bit word of a bitmap covers.
const WORD_BYTES: u64 = 64 * GRAIN;
/// The number of bytes of a region that one `Slice` covers, a multiple of WORD_BYTES.
const SLICE: u64 = 32 << 20;

/// The size in bytes of a free chunk, and its list links `fd` and `bk`.
#[derive(Clone, Copy)]
pub(super) struct Links {
    pub(super) size: u64,
    pub(super) fd: u64,
    pub(super) bk: u64,
}

/// A word of a region's bitmap, for 64 places where a chunk may begin. `free` has a set bit for each free chunk,
/// `first` is the number of the first of these free chunks.
struct Word {
    free: u64,
    first: usize,
}

/// The free chunks of one region, numbered consecutively in address order.
pub(super) struct FreeOfRegion {
    pub(super) arena: u32,
    start: u64,
    end: u64,
    words: Vec<Word>,
    numbers: Range<usize>,
}

impl FreeOfRegion {
    fn new(region: &Region, first: usize) -> FreeOfRegion {
        let mut next = first;
        let word = |free: u64| {
            let word = Word { free, first: next };
            next += free.count_ones() as usize;
            word
        };
        let words = region.free_words().map(word).collect();
        let (arena, start, end) = (region.stretch.arena, region.stretch.start, region.stretch.end);
        FreeOfRegion { arena, start, end, words, numbers: first..next }
    }

    pub(super) fn numbers(&self) -> Range<usize> {
        self.numbers.clone()
    }

    /// Return the number of the free chunk at `address`; None if no free chunk of this region begins there.
    #[inline]
    pub(super) fn number(&self, address: u64) -> Option<usize> {
        let offset = address.wrapping_sub(self.start);
        let word = self.words.get(usize::try_from(offset / WORD_BYTES).ok()?)?;
        let bit = offset / GRAIN % 64;
        let before = word.free & ((1 << bit) - 1);
        let is_free = offset % GRAIN == 0 && word.free >> bit & 1 == 1;
        is_free.then_some(word.first + before.count_ones() as usize)
    }

    /// Return the address of the free chunk of this region that has the given number.
    pub(super) fn address(&self, number: usize) -> u64 {
        let at = self.words.partition_point(|word| word.first <= number).saturating_sub(1);
        let Some(word) = self.words.get(at) else { return self.end };
        let left = (word.first..number).fold(word.free, |left, _| left & left.wrapping_sub(1));
        self.start + at as u64 * WORD_BYTES + u64::from(left.trailing_zeros()) * GRAIN
    }

    /// Return the addresses of the free chunks in a slice, ascending.
    pub(super) fn addresses(&self, slice: &Slice) -> impl Iterator<Item = u64> + '_ {
        let start = slice.from;
        let words =
            ((slice.from - self.start) / WORD_BYTES) as usize..(slice.to - self.start).div_ceil(WORD_BYTES) as usize;
        self.words[words].iter().enumerate().flat_map(move |(at, word)| {
            let base = start + at as u64 * WORD_BYTES;
            crate::bits::members_of(word.free).map(move |bit| base + bit * GRAIN)
        })
    }

    /// Write the size and the links of each free chunk of a slice into the share's elements. The elements stay zero for
    /// a chunk whose links the walk did not collect.
    fn put_links(&self, share: &Share<'_, [u64; 3]>, found: &FreeLinks) {
        let mut found = found.between(share.slice.from, share.slice.to).peekable();
        for (room, address) in share.take().into_iter().flatten().zip(self.addresses(&share.slice)) {
            while found.next_if(|chunk| chunk.address < address).is_some() {}
            if let Some(chunk) = found.next_if(|chunk| chunk.address == address) {
                *room = [chunk.size, chunk.fd, chunk.bk];
            }
        }
    }

    fn slices(&self, region: usize) -> impl Iterator<Item = Slice> + '_ {
        let first = move |address: u64| {
            let word = self.words.get(((address - self.start) / WORD_BYTES) as usize);
            word.map_or(self.numbers.end, |word| word.first)
        };
        (self.start..self.end).step_by(SLICE as usize).map(move |from| {
            let to = self.end.min(from + SLICE);
            let last = if to == self.end { self.numbers.end } else { first(to) };
            Slice { region, from, to, numbers: first(from)..last }
        })
    }
}

/// A part of one region. Its free chunks have consecutive numbers, which the slice stores as a range.
pub(super) struct Slice {
    pub(super) region: usize,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) numbers: Range<usize>,
}

/// The part of an array that is reserved for one slice: one element for each free chunk of the slice. One worker fills
/// it.
pub(super) struct Share<'a, T> {
    pub(super) slice: Slice,
    room: Mutex<Option<&'a mut [T]>>,
}

impl<'a, T> Share<'a, T> {
    /// Return the part of the array that is reserved for this slice; None if a worker has already taken it.
    pub(super) fn take(&self) -> Option<&'a mut [T]> {
        take(&self.room)
    }
}

pub(super) struct FreeChunks {
    pub(super) regions: Vec<FreeOfRegion>,
    /// For each free chunk, by its number: `[size, fd, bk]`.
    links: Vec<[u64; 3]>,
    bins: Vec<AtomicU8>,
    /// The `fd_nextsize` and `bk_nextsize` links of chunks, ascending by the address of the chunk.
    pub(super) size_links: Vec<SizeLink>,
}

impl FreeChunks {
    /// Number all free chunks and read their links. If the walk collected no links, a second walk collects them. Also
    /// return, as damage, the chunks in use whose flags are wrong.
    pub(super) fn of(watcher: &dyn Watcher, space: &Space, chunks: &Chunks) -> Result<(FreeChunks, Vec<Damage>)> {
        let mut count = 0;
        let mut regions = Vec::with_capacity(chunks.regions.len());
        for region in &chunks.regions {
            let free = FreeOfRegion::new(region, count);
            count = free.numbers.end;
            regions.push(free);
        }
        let collected = collected(watcher, space, chunks)?;
        let mut free = FreeChunks { regions, links: Vec::new(), bins: Vec::new(), size_links: Vec::new() };
        let mut links = vec![[0; 3]; count];
        let shares = free.shares(&mut links);
        let work = |_: &mut (), share: &Share<'_, [u64; 3]>, control: &Control| {
            free.regions[share.slice.region].put_links(share, &collected[share.slice.region]);
            control.advance(0)
        };
        space.task(watcher, None).run(&shares, || (), work)?;
        drop(shares);
        free.links = links;
        free.bins = (0..count).map(|_| AtomicU8::new(NO_BIN)).collect();
        let flags = collected.iter().flat_map(|found| &found.flags).take(MAX_DAMAGE);
        let damage = flags
            .map(|chunk| Damage::new(chunk.address, "flags of a chunk in use", hex(chunk.expected), hex(chunk.found)));
        let damage = damage.collect();
        free.size_links = collected.into_iter().flat_map(|found| found.sizes).collect();
        Ok((free, damage))
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Divide an array that has one element for each free chunk into shares for the workers, one share for each slice.
    pub(super) fn shares<'a, T>(&self, mut rest: &'a mut [T]) -> Vec<Share<'a, T>> {
        let slices = self.regions.iter().enumerate().flat_map(|(index, region)| region.slices(index));
        let share = |slice: Slice| {
            let (room, others) = std::mem::take(&mut rest).split_at_mut(slice.numbers.len());
            rest = others;
            Share { slice, room: Mutex::new(Some(room)) }
        };
        slices.map(share).collect()
    }

    #[inline]
    pub(super) fn links(&self, number: usize) -> Links {
        let [size, fd, bk] = self.links[number];
        Links { size, fd, bk }
    }

    pub(super) fn bin(&self, number: usize) -> u8 {
        self.bins[number].load(Ordering::Relaxed)
    }

    /// Record that a chunk is in a bin. Return the bin that was recorded for the chunk before.
    pub(super) fn put(&self, number: usize, bin: u8) -> u8 {
        self.bins[number].swap(bin, Ordering::Relaxed)
    }

    pub(super) fn forget_bins(&self) {
        self.bins.iter().for_each(|bin| bin.store(NO_BIN, Ordering::Relaxed));
    }

    fn region_of(&self, address: u64) -> Option<&FreeOfRegion> {
        let region = self.regions.get(self.regions.partition_point(|region| region.end <= address))?;
        (region.start <= address).then_some(region)
    }

    /// Return the number of the free chunk at `address`; None if no free chunk begins there.
    pub(super) fn number(&self, address: u64) -> Option<usize> {
        self.region_of(address)?.number(address)
    }

    /// Return the number of the free chunk at `address`; None if the chunk does not belong to this arena.
    pub(super) fn number_of_arena(&self, arena: u32, address: u64) -> Option<usize> {
        self.region_of(address).filter(|region| region.arena == arena)?.number(address)
    }

    pub(super) fn size_link(&self, address: u64) -> Option<&SizeLink> {
        let found = self.size_links.binary_search_by_key(&address, |link| link.address).ok()?;
        self.size_links.get(found)
    }
}

/// Return the links of the free chunks of each region. If the walk collected no links, a second walk collects them.
fn collected(watcher: &dyn Watcher, space: &Space, chunks: &Chunks) -> Result<Vec<FreeLinks>> {
    let kept: Option<Vec<FreeLinks>> = chunks.regions.iter().map(|region| take(&region.free_links)).collect();
    if let Some(kept) = kept {
        return Ok(kept);
    }
    let stretches = chunks.regions.iter().map(|region| region.stretch.clone()).collect();
    let again = walk_stretches(watcher, space, stretches, true)?;
    let mut again = again.iter().peekable();
    let found = |region: &Region| {
        let walked = again.next_if(|walked| walked.stretch.start == region.stretch.start);
        walked.and_then(|walked| take(&walked.free_links)).unwrap_or_default()
    };
    Ok(chunks.regions.iter().map(found).collect())
}
