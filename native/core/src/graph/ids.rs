//! Numbers for all used blocks, without a gap: a block's number is its rank among the used ones.
//!
//! In order: blocks in pools, mimalloc's, chunks, mmapped chunks, claimed places (each by address), static types, roots. One bit and half a byte
//! for each place where a block can begin, instead of a table with a row for each block.

use crate::allocators::glibc::chunks::{State, CHUNK_HEADER};
use crate::allocators::heaps::{Heaps, Job, Place};
use crate::allocators::mimalloc::segments::Mimalloc;
use crate::bits::SharedBits;
use crate::by_address::ByAddress;

/// Numbers below this; the two bits above them say how much an edge is to be believed.
pub(crate) const MOST_NODES: u64 = 1 << 30;

/// 64 possible blocks: which of them are used, and how many used ones come before them.
#[derive(Clone, Copy, Default)]
struct Word {
    bits: u64,
    before: u32,
}

/// The ranks of the members of a set of bits, from `first` on.
#[derive(Default)]
pub(crate) struct Ranked {
    words: Vec<Word>,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl Ranked {
    pub(crate) fn new(words: impl Iterator<Item = u64>, first: u32) -> Ranked {
        let mut count = 0u32;
        let rank = |bits: u64| {
            let word = Word { bits, before: count };
            count = count.saturating_add(bits.count_ones());
            word
        };
        let words = words.map(rank).collect();
        Ranked { words, first, count }
    }

    /// The number of the block at this place, if there is a used one.
    #[inline(always)]
    pub(crate) fn id(&self, index: u64) -> Option<u32> {
        let word = self.words.get((index / 64) as usize)?;
        let bit = 1u64 << (index % 64);
        (word.bits & bit != 0).then(|| self.first + word.before + (word.bits & (bit - 1)).count_ones())
    }

    /// How many members there are below `index`, plus `first`.
    pub(crate) fn id_from(&self, index: u64) -> u32 {
        match self.words.get((index / 64) as usize) {
            Some(word) => self.first + word.before + (word.bits & ((1u64 << (index % 64)) - 1)).count_ones(),
            None => self.first + self.count,
        }
    }

    /// The place of the block with this number.
    pub(crate) fn index(&self, id: u32) -> Option<u64> {
        let rank = id.checked_sub(self.first).filter(|rank| *rank < self.count)?;
        let place = self.words.partition_point(|word| word.before <= rank) - 1;
        let mut bits = self.words[place].bits;
        for _ in 0..rank - self.words[place].before {
            bits &= bits - 1;
        }
        Some(place as u64 * 64 + u64::from(bits.trailing_zeros()))
    }
}

/// The numbers of one target's blocks, static types and roots.
#[derive(Default)]
pub(crate) struct Ids {
    pub(crate) pools: Ranked,
    pub(crate) mimalloc: Ranked,
    pub(crate) regions: Vec<Ranked>,
    pub(crate) mapped: Vec<(u64, u64)>,
    pub(crate) first_mapped: u32,
    pub(crate) claimed: Vec<(u64, u64)>,
    pub(crate) first_claimed: u32,
    pub(crate) statics: Vec<u64>,
    static_ids: ByAddress<u32>,
    static_bounds: (u64, u64),
    pub(crate) first_static: u32,
    pub(crate) first_root: u32,
    pub(crate) roots: u32,
}

/// What a number stands for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Node {
    /// A block: its user address, its size with its header, and where its bytes end.
    Block {
        address: u64,
        size: u64,
        end: u64,
    },
    Static(u64),
    Root(u32),
}

impl Node {
    /// Bytes of the block with its header, 0 of what is none.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Node::Block { size, .. } => *size,
            _ => 0,
        }
    }
}

/// A used block by its number and its user address.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) id: u32,
    pub(crate) address: u64,
}

impl Ids {
    /// `used`: the used blocks in pools. None where there are too many blocks to number.
    pub(crate) fn new(heaps: Heaps<'_>, used: &SharedBits, statics: Vec<u64>, roots: usize) -> Option<Ids> {
        let claimed = heaps.claimed.map_or_else(Vec::new, |claimed| claimed.places.clone());
        let (pools, mapped) = (Ranked::new(used.words(), 0), heaps.mapped.to_vec());
        let mut ids = Ids { pools, mapped, claimed, statics, ..Ids::default() };
        let pages = heaps.mimalloc.map_or(&[][..], Mimalloc::used_words);
        ids.mimalloc = Ranked::new(pages.iter().copied(), ids.pools.count);
        let mut next = u64::from(ids.pools.count) + u64::from(ids.mimalloc.count);
        for region in heaps.chunks.iter().flat_map(|chunks| &chunks.regions) {
            let ranked = Ranked::new(region.used_words(), u32::try_from(next).ok()?);
            next += u64::from(ranked.count);
            ids.regions.push(ranked);
        }
        let all = next + (ids.mapped.len() + ids.claimed.len() + ids.statics.len() + roots) as u64;
        if all >= MOST_NODES {
            return None;
        }
        ids.first_mapped = next as u32;
        ids.first_claimed = ids.first_mapped + ids.mapped.len() as u32;
        ids.first_static = ids.first_claimed + ids.claimed.len() as u32;
        ids.first_root = ids.first_static + ids.statics.len() as u32;
        ids.roots = roots as u32;
        ids.static_ids = ids.statics.iter().copied().zip(ids.first_static..).collect();
        let (low, high) = (ids.statics.iter().min(), ids.statics.iter().max());
        ids.static_bounds = (low.copied().unwrap_or(u64::MAX), high.copied().unwrap_or(0));
        Some(ids)
    }

    pub(crate) fn count(&self) -> usize {
        (self.first_root + self.roots) as usize
    }

    #[inline(always)]
    pub(crate) fn id_of(&self, place: Place) -> Option<u32> {
        match place {
            Place::Pool(number) => self.pools.id(number),
            Place::Chunk(region, number) => self.regions[region].id(number),
            Place::Mapped(index) => Some(self.first_mapped + index as u32),
            Place::Mimalloc(number) => self.mimalloc.id(number),
            Place::Claimed(number) => Some(self.first_claimed + number as u32),
        }
    }

    /// The number of a job's first block.
    pub(crate) fn first_of(&self, job: &Job, heaps: &Heaps<'_>) -> u32 {
        match (job, heaps.pools, heaps.chunks) {
            (Job::Pages(from, _), ..) => {
                let page = heaps.mimalloc.and_then(|mimalloc| mimalloc.pages.get(*from));
                self.mimalloc.id_from(page.map_or(u64::MAX, |page| page.first))
            }
            (Job::Claimed(from, _), ..) => self.first_claimed + *from as u32,
            (Job::Arenas(from, _), Some(pools), _) => {
                let ordinal = pools.arenas[*from].first_pool;
                let is_there = ordinal < pools.pools.len();
                self.pools.id_from(if is_there { pools.first_block(ordinal) } else { pools.block_numbers() })
            }
            (Job::Chunks(region, from, _), _, Some(chunks)) => {
                let start = chunks.regions[*region].stretch.start;
                self.regions[*region].id_from((from - start).div_ceil(16))
            }
            _ => self.first_mapped,
        }
    }
}

/// The blocks with their numbers.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    pub(crate) heaps: Heaps<'a>,
    pub(crate) ids: &'a Ids,
}

impl Blocks<'_> {
    /// The used block that holds `address`, or the static type there.
    #[inline(always)]
    pub(crate) fn find(&self, address: u64) -> Option<Found> {
        let (low, high) = self.ids.static_bounds;
        if address >= low && address <= high {
            if let Some(id) = self.ids.static_ids.get(&address) {
                return Some(Found { id: *id, address });
            }
        }
        let (place, start, _) = self.heaps.block_at(address)?;
        self.ids.id_of(place).map(|id| Found { id, address: start })
    }

    /// What the number stands for. It must be one that was given out.
    pub(crate) fn node(&self, id: u32) -> Node {
        let (ids, heaps) = (self.ids, self.heaps);
        if id >= ids.first_root {
            return Node::Root(id - ids.first_root);
        }
        if id >= ids.first_static {
            return Node::Static(ids.statics[(id - ids.first_static) as usize]);
        }
        if id >= ids.first_claimed {
            let (start, end) = ids.claimed[(id - ids.first_claimed) as usize];
            return Node::Block { address: start, size: end - start, end };
        }
        if id >= ids.first_mapped {
            let (chunk, end) = ids.mapped[(id - ids.first_mapped) as usize];
            return Node::Block { address: chunk + CHUNK_HEADER, size: end - chunk, end };
        }
        if let (Some(number), Some(pools)) = (ids.pools.index(id), heaps.pools) {
            let (address, size) = pools.block_of_number(number);
            return Node::Block { address, size, end: address + size };
        }
        if let (Some(number), Some(mimalloc)) = (ids.mimalloc.index(id), heaps.mimalloc) {
            let (address, size) = mimalloc.block_of_number(number);
            return Node::Block { address, size, end: address + size };
        }
        let place = ids.regions.partition_point(|region| region.first + region.count <= id);
        let found = heaps.chunks.zip(ids.regions[place].index(id)).and_then(|(chunks, index)| {
            let region = &chunks.regions[place];
            region.find(region.stretch.start + index * 16)
        });
        let (start, end, _) = found.unwrap_or((0, 16, State::Used));
        // A chunk's last eight bytes are the next one's prev_size.
        Node::Block { address: start + CHUNK_HEADER, size: end - start, end: end + 8 }
    }

    /// The lowest and the highest address of a block or a static type.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        let ((low, high), (first, last)) = (self.heaps.bounds(), self.ids.static_bounds);
        (low.min(first), high.max(last + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_with_counting() {
        let members = [0u64, 1, 63, 64, 200, 511];
        let mut words = [0u64; 8];
        members.iter().for_each(|member| words[(member / 64) as usize] |= 1 << (member % 64));
        let ranked = Ranked::new(words.into_iter(), 7);
        for index in 0..512 {
            let place = members.iter().position(|member| *member == index);
            assert_eq!(ranked.id(index), place.map(|place| place as u32 + 7));
            assert_eq!(ranked.id_from(index), 7 + members.iter().filter(|member| **member < index).count() as u32);
        }
        for (place, member) in members.iter().enumerate() {
            assert_eq!(ranked.index(place as u32 + 7), Some(*member));
        }
        assert_eq!(ranked.index(7 + members.len() as u32), None);
    }
}
