//! mimalloc 3: the map from each slice to its page, and the arenas from which pages are cut.
//!
//! `_mi_page_map` has a word for each 512 MiB of addresses. The word points to a submap, which has a word for each
//! slice of these addresses: the address of the slice's `mi_page_t`. The submap for address zero directly follows the
//! map, so the map's first word tells the length of the map.

use crate::allocators::mimalloc::layout::{ArenaHead, MimallocForm, SLICE};
use crate::allocators::spread::spread;
use crate::bits;
use gdbheap_access::bytes::{half_at, u64_at, word_at, words};
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;
use std::collections::BTreeMap;

/// The number of slices that a submap covers.
const SUBMAP: u64 = 1 << 13;
/// Possible sizes of a map, as base-2 logarithms of its bytes, for addresses of 40 to 52 bits.
const MAP_BITS: std::ops::RangeInclusive<u32> = 11..=23;
/// The number of bytes that are read at a time.
const PIECE: usize = 256 << 10;
/// The largest number of chunks of a bitmap. A chunk has 512 bits.
const MAX_CHUNKS: u64 = 512;
const MAX_SLICES: u64 = MAX_CHUNKS * 512;
/// The size of `mi_memid_t` in bytes.
const MEMID_BYTES: usize = 24;

/// A word of static data that may be `_mi_page_map`, and the address to which it points.
#[derive(Clone, Copy, Debug)]
pub struct FoundMap {
    pub address: u64,
    pub map: u64,
    /// The number of words in the map.
    pub count: u64,
}

/// Find the words in `ranges` that point to a possible map of pages.
pub fn find_page_maps(watcher: &dyn Watcher, space: &Space, ranges: &[(u64, u64)]) -> Result<Vec<FoundMap>> {
    let mut found: Vec<FoundMap> = Vec::new();
    let mut scratch = vec![0; PIECE];
    for (start, end) in ranges.iter().copied() {
        watcher.check()?;
        space.try_show(start, end, &mut scratch, |at, piece| {
            for (index, word) in words(piece).into_iter().enumerate() {
                let count = map_words(space, word);
                found.extend(count.map(|count| FoundMap { address: at + 8 * index as u64, map: word, count }));
            }
            watcher.check()
        })?;
    }
    Ok(found)
}

/// Return how many words the map at `map` has, derived from the map's first word.
fn map_words(space: &Space, map: u64) -> Option<u64> {
    if map == 0 || space.page().down(map) != map || space.next_backed(map) != Some(map) {
        return None;
    }
    let first = space.word(map).ok()?;
    let size = first.checked_sub(map)?;
    let fits = size.is_power_of_two() && MAP_BITS.contains(&size.trailing_zeros());
    (fits && space.covers(map, size + 8 * SUBMAP)).then_some(size / 8)
}

/// Return the submaps of a map, ascending, each with its number. Submaps that overlap others are dropped, so that
/// hostile data is not read again and again.
fn submaps(space: &Space, map: u64) -> Vec<(u64, u64)> {
    let (mut found, mut scratch) = (Vec::new(), vec![0; PIECE]);
    let count = map_words(space, map).unwrap_or(0);
    space.show(map, map.saturating_add(8 * count), &mut scratch, |at, piece| {
        found.extend(words(piece).into_iter().zip((at - map) / 8..).filter(|(word, _)| *word != 0));
    });
    found.sort_unstable();
    found.dedup_by(|next, kept| next.0 < kept.0.saturating_add(8 * SUBMAP));
    found
}

/// Return [start, end) of a map and of each of its submaps, ascending.
pub fn map_tables(space: &Space, map: u64) -> Vec<(u64, u64)> {
    let end = map.saturating_add(8 * map_words(space, map).unwrap_or(0));
    let own = submaps(space, map).into_iter().map(|(submap, _)| (submap, submap.saturating_add(8 * SUBMAP)));
    let mut found: Vec<(u64, u64)> =
        own.chain([(map, end)]).filter(|(start, end)| space.covers(*start, end - start)).collect();
    found.sort_unstable();
    found
}

/// Return the pages to which a map points. For each page: the address of its `mi_page_t`, the start of its first slice,
/// and the end of the last slice for which the map points to it. `most`: read only a sample of this many submaps.
pub(crate) fn mapped_pages(
    watcher: &dyn Watcher,
    space: &Space,
    map: u64,
    most: Option<usize>,
) -> Result<Vec<(u64, u64, u64)>> {
    let mut scratch = vec![0; PIECE];
    let mut found: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let all = submaps(space, map);
    let all: Vec<&(u64, u64)> = all.iter().collect();
    for ((submap, number), _) in spread(&all, most.unwrap_or(usize::MAX)) {
        let (submap, number) = (*submap, *number);
        watcher.check()?;
        space.show(submap, submap.saturating_add(8 * SUBMAP), &mut scratch, |at, piece| {
            for (word, place) in words(piece).into_iter().zip((at - submap) / 8..).filter(|(word, _)| *word != 0) {
                let slice = (number * SUBMAP + place) * SLICE;
                let (first, end) = found.entry(word).or_insert((slice, slice));
                (*first, *end) = ((*first).min(slice), (*end).max(slice + SLICE));
            }
        });
    }
    Ok(found.into_iter().map(|(page, (first, end))| (page, first, end)).collect())
}

/// The memory from which a page comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The page consists of the slices [start, end) of the arena at this address.
    Arena { arena: u64, start: u64, end: u64 },
    /// The page consists of memory outside arenas.
    Own { start: u64, end: u64 },
}

/// Return the origin of a page, which its `mi_memid_t` describes: an arena, with the number of the first slice and the
/// count of slices; or memory from the kernel, with its address and size. None if that contradicts the slices for which
/// the map points to the page.
pub(crate) fn origin(bytes: &[u8], form: &MimallocForm, first: u64, last: u64) -> Option<Origin> {
    let memid = bytes.get(form.fields.memid..)?.get(..MEMID_BYTES)?;
    let (place, index, count) = (u64_at(memid, 0), u64::from(half_at(memid, 8)?), u64::from(half_at(memid, 12)?));
    let start = place.checked_add(index * SLICE)?;
    let end = start.checked_add(count * SLICE)?;
    if place % SLICE == 0 && index > 0 && count > 0 && start <= first && last <= end {
        return Some(Origin::Arena { arena: place, start, end });
    }
    let end = place.checked_add(u64_at(memid, 8))?;
    (place <= first && last <= end.checked_next_multiple_of(SLICE)?).then_some(Origin::Own { start: place, end })
}

/// An arena, with a bit for each slice that is free, and a bit for each slice that was ever used.
pub(crate) struct Arena {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The number of slices that contain the arena's own data.
    pub(crate) info: u64,
    free: Vec<u64>,
    dirty: Vec<u64>,
}

/// The state of a slice that belongs to no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    Own,
    Free,
    Untouched,
}

impl Arena {
    /// Read the arena at `address`. None if its numbers do not fit each other, or if the bitmaps are not where they
    /// must be.
    pub(crate) fn read(space: &Space, address: u64, head: &ArenaHead) -> Option<Arena> {
        let mut bytes = vec![0; head.bitmaps + 32];
        space.exact(address, &mut bytes).ok()?;
        let (count, info) = (word_at(&bytes, head.slices)?, word_at(&bytes, head.slices + 8)?);
        let end = address.checked_add(count.checked_mul(SLICE)?)?;
        // The guard pages of secure builds cannot be read. Memory that was not committed yet cannot be read either.
        if count > MAX_SLICES || info == 0 || info >= count {
            return None;
        }
        let map = |number: usize| u64_at(&bytes, head.bitmaps + 8 * number);
        let bitmap = |number: usize| bitmap(space, (map(number), map(number + 1)), count, (address, end));
        Some(Arena { start: address, end, info, free: bitmap(0)?, dirty: bitmap(2)? })
    }

    pub(crate) fn slice(&self, address: u64) -> Slice {
        let number = (address - self.start) / SLICE;
        match (number < self.info || !bits::get(&self.free, number), bits::get(&self.dirty, number)) {
            (true, _) => Slice::Own,
            (false, true) => Slice::Free,
            (false, false) => Slice::Untouched,
        }
    }
}

/// Return the bits of the bitmap at `start`, which ends where the next one begins: `{u64 chunk_count; …; chunks of 64
/// bytes}`.
fn bitmap(space: &Space, (start, next): (u64, u64), slices: u64, arena: (u64, u64)) -> Option<Vec<u64>> {
    let size = 64 * space.word(start).ok().filter(|chunks| *chunks <= MAX_CHUNKS)?;
    let fits = arena.0 < start && next < arena.1 && start + size < next && size * 8 >= slices;
    let mut bytes = vec![0; if fits { size as usize } else { return None }];
    space.exact(next - size, &mut bytes).ok()?;
    Some(words(&bytes))
}
