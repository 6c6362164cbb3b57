//! mimalloc 3: the map from each slice to its page, and the arenas from which pages are cut.
//!
//! `_mi_page_map` has a word for each 512 MiB of addresses. The word points to a submap, which has a word for each
//! slice of these addresses: the address of the slice's `mi_page_t`. The submap for address zero directly follows the
//! map, so the map's first word determines the length of the map. In 3.6 a header precedes the words of the map; here,
//! the address of a map is always that of its first word.

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
/// Possible sizes of a map, as base-2 logarithms of the size in bytes, for addresses of 40 to 52 bits.
const MAP_BITS: std::ops::RangeInclusive<u32> = 11..=23;
/// The size of the header that precedes a map in 3.6: `{u64 count, bytes; mi_memid_t memid; …}`. `bytes` includes the
/// header, and `memid` begins with the address of the header.
const HEADER: u64 = 80;
const HEADER_WORDS: usize = 3;
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
                let address = at + 8 * index as u64;
                for map in [Some(word), word.checked_add(HEADER)].into_iter().flatten() {
                    found.extend(map_words(space, map).map(|count| FoundMap { address, map, count }));
                }
            }
            watcher.check()
        })?;
    }
    Ok(found)
}

/// Return how many words the page map at `map` has, derived from its first word; None if there is no page map.
fn map_words(space: &Space, map: u64) -> Option<u64> {
    let base = space.page().down(map);
    if map == 0 || !(map == base || map == base + HEADER) || space.next_backed(map) != Some(map) {
        return None;
    }
    let first = space.word(map).ok()?;
    let size = first.checked_sub(map)?;
    let fits = match map == base {
        true => size.is_power_of_two() && MAP_BITS.contains(&size.trailing_zeros()),
        false => size <= 1 << MAP_BITS.end() && has_header(space, base, size),
    };
    (fits && space.covers(map, size + 8 * SUBMAP)).then_some(size / 8)
}

/// Return whether the header of a page map is at `base`, and says that the map's words take `size` bytes in total.
fn has_header(space: &Space, base: u64, size: u64) -> bool {
    let mut bytes = [0; 8 * HEADER_WORDS];
    space.exact(base, &mut bytes).is_ok() && words(&bytes) == [size / 8, HEADER + size, base]
}

/// Return the submaps of a map, ascending, each with its number. Submaps that overlap others are dropped, so that
/// hostile data is not read many times.
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

/// Return [start, end) of a map, with its header, and of each of its submaps, ascending.
pub fn map_tables(space: &Space, map: u64) -> Vec<(u64, u64)> {
    let end = map.saturating_add(8 * map_words(space, map).unwrap_or(0));
    let (start, submaps) = (space.page().down(map), submaps(space, map));
    let own = submaps.into_iter().map(|(submap, _)| (submap, submap.saturating_add(8 * SUBMAP)));
    let mut found: Vec<(u64, u64)> =
        own.chain([(start, end)]).filter(|(start, end)| space.covers(*start, end - start)).collect();
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

/// Return the origin of a page, as its `mi_memid_t` describes it. It names an arena, with the number of the first slice
/// and the count of slices. Or it states the address and the size of memory from the kernel. None if the map points to
/// the page for slices outside this memory. `first_slice` maps the address of an `mi_arena_t` to the address of the
/// arena's first slice.
pub(crate) fn origin(
    bytes: &[u8],
    form: &MimallocForm,
    (first, last): (u64, u64),
    first_slice: impl FnOnce(u64) -> Option<u64>,
) -> Option<Origin> {
    let memid = bytes.get(form.fields.memid..)?.get(..MEMID_BYTES)?;
    let (place, index, count) = (u64_at(memid, 0), u64::from(half_at(memid, 8)?), u64::from(half_at(memid, 12)?));
    if place % SLICE == 0 && index > 0 && count > 0 {
        let start = first_slice(place).and_then(|start| start.checked_add(index * SLICE));
        let slices = start.and_then(|start| Some((start, start.checked_add(count * SLICE)?)));
        if let Some((start, end)) = slices.filter(|(start, end)| *start <= first && last <= *end) {
            return Some(Origin::Arena { arena: place, start, end });
        }
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
    /// Read the arena at `address`. None if its numbers contradict each other, or if the bitmaps do not lie in the
    /// arena.
    pub(crate) fn read(space: &Space, address: u64, head: &ArenaHead) -> Option<Arena> {
        let mut bytes = vec![0; head.bitmaps + 32];
        space.exact(address, &mut bytes).ok()?;
        let (count, info) = (word_at(&bytes, head.slices)?, word_at(&bytes, head.slices + 8)?);
        let start = head.start.map_or(Some(address), |at| word_at(&bytes, at))?;
        let end = start.checked_add(count.checked_mul(SLICE)?)?;
        // The guard pages of secure builds cannot be read. Memory that was not committed yet cannot be read either.
        if count > MAX_SLICES || info == 0 || info >= count {
            return None;
        }
        // The arena's own slices contain its `mi_arena_t`.
        if start % SLICE != 0 || !(start..start + info * SLICE).contains(&address) {
            return None;
        }
        let map = |number: usize| u64_at(&bytes, head.bitmaps + 8 * number);
        let bitmap = |number: usize| bitmap(space, (map(number), map(number + 1)), count, (address, end));
        Some(Arena { start, end, info, free: bitmap(0)?, dirty: bitmap(2)? })
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

/// Return the bits of the bitmap at `start`. It ends where the next one begins. None if no bitmap for `slices` bits is
/// there. Its layout is `{u64 chunk_count; …; chunks of 64 bytes}`.
fn bitmap(space: &Space, (start, next): (u64, u64), slices: u64, arena: (u64, u64)) -> Option<Vec<u64>> {
    let size = 64 * space.word(start).ok().filter(|chunks| *chunks <= MAX_CHUNKS)?;
    let fits = arena.0 < start && next < arena.1 && start + size < next && size * 8 >= slices;
    let mut bytes = vec![0; if fits { size as usize } else { return None }];
    space.exact(next - size, &mut bytes).ok()?;
    Some(words(&bytes))
}
