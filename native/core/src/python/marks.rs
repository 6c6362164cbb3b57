//! A few bits for each block of a target: whether it looks like an object, and whether it is claimed.

use crate::allocators::block::{Block, BlockId, GroupBits};
use crate::allocators::heaps::Heaps;
use crate::allocators::store::Store;
use crate::bits::SharedBits;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The marks of one store's blocks, as bits: whether a block is claimed, and whether it looks like an object.
struct StoreMarks {
    claims: SharedBits,
    objects: SharedBits,
    /// The used blocks that do not look like objects; None if the store itself knows its used blocks.
    others: Option<SharedBits>,
}

impl StoreMarks {
    fn new(store: &Store) -> Option<StoreMarks> {
        let numbers = store.block_numbers();
        let bits = || SharedBits::new(numbers);
        let others = if store.is_told_by_walk() { Some(bits()?) } else { None };
        Some(StoreMarks { claims: bits()?, objects: bits()?, others })
    }

    /// Return whether a used block does not look like an object.
    #[inline]
    fn is_other(&self, number: u64) -> bool {
        match &self.others {
            Some(others) => others.get(number),
            None => !self.objects.get(number),
        }
    }

    fn is_unknown(&self, number: u64) -> bool {
        self.is_other(number) && !self.claims.get(number)
    }
}

/// The marks of all blocks. Several threads may set them at the same time.
pub(crate) struct Marks<'a> {
    heaps: Heaps<'a>,
    noted: Vec<StoreMarks>,
}

impl<'a> Marks<'a> {
    /// Make empty marks; None if memory does not suffice for a bit for each possible block.
    pub(crate) fn new(heaps: Heaps<'a>) -> Option<Marks<'a>> {
        let noted = heaps.stores.iter().map(StoreMarks::new).collect::<Option<Vec<_>>>()?;
        Some(Marks { heaps, noted })
    }

    #[inline(always)]
    fn of(&self, place: BlockId) -> &StoreMarks {
        &self.noted[place.store as usize]
    }

    /// Claim a block for an owner. Return true only for the first claim of the block.
    #[inline]
    pub(crate) fn claim(&self, place: BlockId) -> bool {
        self.of(place).claims.claim(place.number)
    }

    /// Return the blocks that are claimed although they are free. This happens because a field may still point to a
    /// block that was just freed.
    pub(crate) fn claimed_but_free(&self) -> Vec<BlockId> {
        let mut found = Vec::new();
        for (noted, store) in self.noted.iter().zip(0..) {
            let Some(others) = &noted.others else { continue };
            let free = noted.claims.in_neither(&noted.objects, others);
            found.extend(free.into_iter().map(|number| BlockId { store, number }));
        }
        found
    }

    pub(crate) fn is_claimed(&self, place: BlockId) -> bool {
        self.of(place).claims.get(place.number)
    }

    /// Mark a block as looking like an object.
    pub(crate) fn note_object(&self, place: BlockId) {
        self.of(place).objects.claim(place.number);
    }

    /// Mark the blocks of a group, whose numbers begin with `first`. Only one thread may mark the blocks of the same
    /// group.
    #[inline]
    pub(crate) fn note_group(&self, first: BlockId, used: &GroupBits, objects: &GroupBits) {
        let noted = self.of(first);
        noted.objects.put(first.number, objects);
        let mut rest = *used;
        rest.iter_mut().zip(objects).for_each(|(word, objects)| *word &= !objects);
        if let Some(others) = &noted.others {
            others.put(first.number, &rest);
        }
    }

    /// Return whether a used block neither looks like an object nor is claimed.
    pub(crate) fn is_unknown(&self, place: BlockId) -> bool {
        self.of(place).is_unknown(place.number)
    }

    /// Return the `most` largest blocks that are unknown (see `is_unknown`), largest first, as `(user address, size)`.
    pub(crate) fn largest_unknown(&self, most: usize) -> Vec<(u64, u64)> {
        let mut kept = Largest { most, heap: BinaryHeap::new() };
        for (store, noted) in self.heaps.stores.iter().zip(&self.noted) {
            if let Some(others) = &noted.others {
                let unknown = others.without(&noted.claims).map(|number| store.block_of(number));
                unknown.for_each(|block| kept.offer(block.address, block.size));
            }
            store.show_blocks(|block| {
                if noted.is_unknown(block.number) {
                    kept.offer(block.address, block.size);
                }
            });
        }
        kept.heap.into_sorted_vec().into_iter().map(|Reverse((size, Reverse(address)))| (address, size)).collect()
    }

    /// Return the blocks that look like objects but are claimed as buffers.
    pub(crate) fn contested(&self) -> Vec<Block> {
        let mut found = Vec::new();
        for (noted, store) in self.noted.iter().zip(0..) {
            let places = noted.objects.common(&noted.claims).map(|number| BlockId { store, number });
            found.extend(places.map(|place| self.heaps.block_of(place)));
        }
        found
    }
}

/// The largest blocks that were seen so far. If blocks have equal sizes, those with lower addresses are kept.
struct Largest {
    most: usize,
    heap: BinaryHeap<Reverse<(u64, Reverse<u64>)>>,
}

impl Largest {
    fn offer(&mut self, address: u64, size: u64) {
        self.heap.push(Reverse((size, Reverse(address))));
        if self.heap.len() > self.most {
            self.heap.pop();
        }
    }
}
