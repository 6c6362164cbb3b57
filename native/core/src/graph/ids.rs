//! Consecutive numbers for all used blocks. The number of a block is its rank among the used blocks.
//!
//! The order of the numbers is: the blocks of each store (by address), static types, roots. The numbers take two bits
//! for each place where a block can begin, instead of a table row for each block.

use crate::allocators::block::{Block, BlockId};
use crate::allocators::heaps::Heaps;
use crate::allocators::store::Store;
use crate::bits::{members_of, SharedBits};
use crate::by_address::ByAddress;
use gdbheap_access::memory::prefetch::fetch;

/// All nodes have numbers below this limit, because an edge has 30 bits for its target. Its two highest bits are its
/// strength.
pub(crate) const MAX_NODES: u64 = 1 << 30;

/// The bits of 64 possible blocks, set for those that are used, and the number of used blocks before these 64.
#[derive(Clone, Copy, Default)]
struct Word {
    bits: u64,
    before: u32,
}

/// The used blocks of one store and their numbers. The number of a block is `first` plus its rank.
#[derive(Default)]
pub(crate) struct StoreNumbers {
    words: Vec<Word>,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl StoreNumbers {
    /// Make an empty set for at most `numbers` possible blocks. `first`: the number of the first used block.
    fn empty(first: u32, numbers: u64) -> StoreNumbers {
        StoreNumbers { words: Vec::with_capacity(numbers.div_ceil(64) as usize), first, count: 0 }
    }

    /// Add the bits of the next 64 possible blocks.
    #[inline(always)]
    fn push(&mut self, bits: u64) {
        self.words.push(Word { bits, before: self.count });
        self.count = self.count.saturating_add(bits.count_ones());
    }

    /// Rank the used blocks of a store. `walked`: the used blocks that a walk found, for a store that does not know its
    /// used blocks itself.
    fn of(store: &Store, walked: &SharedBits, first: u32) -> StoreNumbers {
        let mut ranked = StoreNumbers::empty(first, store.block_numbers());
        match store.is_told_by_walk() {
            true => walked.words().for_each(|bits| ranked.push(bits)),
            false => store.show_words(|bits| ranked.push(bits)),
        }
        ranked
    }

    /// Return the number of the used block at this index, if there is one.
    #[inline(always)]
    pub(crate) fn id(&self, index: u64) -> Option<u32> {
        let word = self.words.get((index / 64) as usize)?;
        let bit = 1u64 << (index % 64);
        (word.bits & bit != 0).then(|| self.first + word.before + (word.bits & (bit - 1)).count_ones())
    }

    /// Prefetch the memory that `id` reads for this index.
    #[inline(always)]
    fn fetch(&self, index: u64) {
        fetch(&self.words, (index / 64) as usize);
    }

    /// Return the number of the first used block at or after the block with this index: `first` plus the number of used
    /// blocks before `index`.
    pub(crate) fn id_from(&self, index: u64) -> u32 {
        match self.words.get((index / 64) as usize) {
            Some(word) => self.first + word.before + (word.bits & ((1u64 << (index % 64)) - 1)).count_ones(),
            None => self.first + self.count,
        }
    }

    /// Return the indices of all used blocks, ascending.
    pub(crate) fn members(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.words.iter().zip((0u64..).step_by(64));
        words.flat_map(|(word, first)| members_of(word.bits).map(move |bit| first + bit))
    }

    /// Return the index of the block with this number; None if it is not one of this store's blocks.
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

/// The numbering of a target's nodes: first the blocks of each store, then the static types, then the roots.
#[derive(Default)]
pub(crate) struct Ids {
    pub(crate) stores: Vec<StoreNumbers>,
    pub(crate) statics: Vec<u64>,
    static_ids: ByAddress<u32>,
    static_bounds: (u64, u64),
    pub(crate) first_static: u32,
    pub(crate) first_root: u32,
    pub(crate) roots: u32,
}

/// A node, found by its number: a block, a static type or a root.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Node {
    /// A block, with its user address, its size including its header, and the end of its bytes.
    Block {
        address: u64,
        size: u64,
        end: u64,
    },
    Static(u64),
    Root(u32),
}

impl Node {
    /// Return the size in bytes of the block, including its header; 0 for a node that is not a block.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Node::Block { size, .. } => *size,
            _ => 0,
        }
    }
}

/// A used block or a static type that was found: its number, and its address (for a block the user address).
#[derive(Clone, Copy)]
pub(crate) struct FoundNode {
    pub(crate) id: u32,
    pub(crate) address: u64,
}

impl Ids {
    /// Number the used blocks, the static types and the roots. `used`: for each store, the used blocks that a walk
    /// found; empty for a store that knows its used blocks itself. None if there are too many nodes to number.
    pub(crate) fn new(heaps: Heaps<'_>, used: &[SharedBits], statics: Vec<u64>, roots: usize) -> Option<Ids> {
        let mut ids = Ids { statics, ..Ids::default() };
        let mut next = 0;
        for (store, used) in heaps.stores.iter().zip(used) {
            let ranked = StoreNumbers::of(store, used, u32::try_from(next).ok()?);
            next += u64::from(ranked.count);
            ids.stores.push(ranked);
        }
        if next + (ids.statics.len() + roots) as u64 >= MAX_NODES {
            return None;
        }
        ids.first_static = next as u32;
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
    pub(crate) fn id_of(&self, place: BlockId) -> Option<u32> {
        self.stores[place.store as usize].id(place.number)
    }

    /// Return the number of the first used block at or after this place, in the same store.
    pub(crate) fn id_from(&self, place: BlockId) -> u32 {
        self.stores[place.store as usize].id_from(place.number)
    }

    /// Return the place of the block with this number; None if the node is not a block.
    fn place_of(&self, id: u32) -> Option<BlockId> {
        let mut stores = self.stores.iter().zip(0..);
        stores.find_map(|(ranked, store)| ranked.index(id).map(|number| BlockId { store, number }))
    }
}

/// The blocks of a target, with the numbers that the graph gives them.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    pub(crate) heaps: Heaps<'a>,
    pub(crate) ids: &'a Ids,
}

impl Blocks<'_> {
    /// Return the place of the block whose user address is `address`; None if there is no such block, or if a quick
    /// look-up does not find it.
    #[inline(always)]
    fn place_from(&self, address: u64) -> Option<BlockId> {
        for (store, index) in self.heaps.stores.iter().zip(0..) {
            if let Some(number) = store.number_from(address) {
                return Some(BlockId { store: index, number });
            }
            // The first of the stores that contain an address owns the address.
            if store.block_at(address).is_some() {
                return None;
            }
        }
        None
    }

    /// Prefetch the memory that `find_start` reads for this address.
    #[inline(always)]
    pub(crate) fn fetch(&self, address: u64) {
        if let Some(place) = self.place_from(address) {
            self.ids.stores[place.store as usize].fetch(place.number);
        }
    }

    /// Return the same result as `find`, but faster for an address at which a block begins.
    #[inline(always)]
    pub(crate) fn find_start(&self, address: u64) -> Option<FoundNode> {
        match self.place_from(address).and_then(|place| self.ids.id_of(place)) {
            Some(id) => Some(FoundNode { id, address }),
            None => self.find(address),
        }
    }

    /// Return the used block that contains `address`, or the static type that begins there; None if there is neither.
    #[inline(always)]
    pub(crate) fn find(&self, address: u64) -> Option<FoundNode> {
        let (low, high) = self.ids.static_bounds;
        if address >= low && address <= high {
            if let Some(id) = self.ids.static_ids.get(&address) {
                return Some(FoundNode { id: *id, address });
            }
        }
        let block = self.heaps.block_at(address)?;
        self.ids.id_of(block.place).map(|id| FoundNode { id, address: block.address })
    }

    /// Return the block, static type or root with this number. The number must be valid.
    pub(crate) fn node(&self, id: u32) -> Node {
        let ids = self.ids;
        match ids.place_of(id).map(|place| self.heaps.block_of(place)) {
            Some(Block { address, size, end, .. }) => Node::Block { address, size, end },
            None if id >= ids.first_root => Node::Root(id - ids.first_root),
            None => Node::Static(ids.statics[(id - ids.first_static) as usize]),
        }
    }

    /// Return a range of addresses that contains all blocks and static types, as its lowest address and the address
    /// after its highest one.
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
        let mut ranked = StoreNumbers::empty(7, 512);
        words.into_iter().for_each(|bits| ranked.push(bits));
        for index in 0..512 {
            let place = members.iter().position(|member| *member == index);
            assert_eq!(ranked.id(index), place.map(|place| place as u32 + 7));
            assert_eq!(ranked.id_from(index), 7 + members.iter().filter(|member| **member < index).count() as u32);
        }
        assert_eq!(ranked.members().collect::<Vec<_>>(), members);
        for (place, member) in members.iter().enumerate() {
            assert_eq!(ranked.index(place as u32 + 7), Some(*member));
        }
        assert_eq!(ranked.index(7 + members.len() as u32), None);
    }
}
