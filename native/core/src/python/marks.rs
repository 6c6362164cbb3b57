//! A few bits for each block of a target: which are objects, and which are owned.

use crate::allocators::glibc::chunks::{State, CHUNK_HEADER};
use crate::allocators::heaps::{Heaps, Place, IN_CHUNK, IN_CLAIMED, IN_MAPPED, IN_MIMALLOC, IN_POOL};
use crate::allocators::mimalloc::segments::Mimalloc;
use crate::allocators::pymalloc::pools::{BlockBits, Pools};
use crate::bits::SharedBits;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is known of each block; several threads note it at once.
pub(crate) struct Marks<'a> {
    heaps: Heaps<'a>,
    pool_claims: SharedBits,
    pool_objects: SharedBits,
    /// Blocks that are neither free nor look like objects.
    pool_others: SharedBits,
    chunk_claims: Vec<SharedBits>,
    chunk_objects: Vec<SharedBits>,
    mapped_claims: SharedBits,
    mapped_objects: SharedBits,
    mimalloc_claims: SharedBits,
    mimalloc_objects: SharedBits,
    place_claims: SharedBits,
    place_objects: SharedBits,
}

impl<'a> Marks<'a> {
    /// None where there is no memory for a bit for each possible block.
    pub(crate) fn new(heaps: Heaps<'a>) -> Option<Marks<'a>> {
        let regions = || -> Option<Vec<SharedBits>> {
            let regions = heaps.chunks.iter().flat_map(|chunks| &chunks.regions);
            regions.map(|region| SharedBits::new(region.index(region.stretch.end) + 1)).collect()
        };
        let blocks = heaps.pools.map_or(0, Pools::block_numbers);
        let count = heaps.mapped.len() as u64;
        let numbers = heaps.mimalloc.map_or(0, Mimalloc::block_numbers);
        let places = heaps.claimed.map_or(0, |claimed| claimed.places.len() as u64);
        Some(Marks {
            heaps,
            pool_claims: SharedBits::new(blocks)?,
            pool_objects: SharedBits::new(blocks)?,
            pool_others: SharedBits::new(blocks)?,
            chunk_claims: regions()?,
            chunk_objects: regions()?,
            mapped_claims: SharedBits::new(count)?,
            mapped_objects: SharedBits::new(count)?,
            mimalloc_claims: SharedBits::new(numbers)?,
            mimalloc_objects: SharedBits::new(numbers)?,
            place_claims: SharedBits::new(places)?,
            place_objects: SharedBits::new(places)?,
        })
    }

    /// The claims of a block's domain, and its number there.
    #[inline(always)]
    fn claims_at(&self, place: Place) -> (&SharedBits, u64) {
        match place {
            Place::Pool(number) => (&self.pool_claims, number),
            Place::Chunk(region, number) => (&self.chunk_claims[region], number),
            Place::Mapped(number) => (&self.mapped_claims, number),
            Place::Mimalloc(number) => (&self.mimalloc_claims, number),
            Place::Claimed(number) => (&self.place_claims, number),
        }
    }

    /// The objects of a block's domain, likewise.
    #[inline(always)]
    fn objects_at(&self, place: Place) -> (&SharedBits, u64) {
        match place {
            Place::Pool(number) => (&self.pool_objects, number),
            Place::Chunk(region, number) => (&self.chunk_objects[region], number),
            Place::Mapped(number) => (&self.mapped_objects, number),
            Place::Mimalloc(number) => (&self.mimalloc_objects, number),
            Place::Claimed(number) => (&self.place_objects, number),
        }
    }

    /// Gives a block to an owner; true for whoever was first.
    pub(crate) fn claim(&self, place: Place) -> bool {
        let (claims, number) = self.claims_at(place);
        claims.claim(number)
    }

    /// Blocks of pools, by number, that somebody claims although they are free: a field may still lead to what it has
    /// just given back.
    pub(crate) fn claimed_but_free(&self) -> Vec<u64> {
        self.pool_claims.in_neither(&self.pool_objects, &self.pool_others)
    }

    pub(crate) fn is_claimed(&self, place: Place) -> bool {
        let (claims, number) = self.claims_at(place);
        claims.get(number)
    }

    /// Notes a chunk that looks like an object.
    pub(crate) fn note_object(&self, place: Place) {
        let (objects, number) = self.objects_at(place);
        objects.claim(number);
    }

    /// Notes the blocks of a pool, numbered from `first`; only one thread may do so for a pool.
    #[inline]
    pub(crate) fn note_pool(&self, first: u64, used: &BlockBits, objects: &BlockBits) {
        self.pool_objects.put(first, objects);
        let mut others = *used;
        others.iter_mut().zip(objects).for_each(|(word, objects)| *word &= !objects);
        self.pool_others.put(first, &others);
    }

    /// Whether a used block neither looks like an object nor is claimed.
    pub(crate) fn is_unknown(&self, place: Place) -> bool {
        let is_other = match (place, self.objects_at(place)) {
            (Place::Pool(number), _) => self.pool_others.get(number),
            (_, (objects, number)) => !objects.get(number),
        };
        is_other && !self.is_claimed(place)
    }

    /// The `most` largest blocks that are unknown, largest first: `(user address, size)`.
    pub(crate) fn largest_unknown(&self, most: usize) -> Vec<(u64, u64)> {
        let mut kept = Largest { most, heap: BinaryHeap::new() };
        if let Some(pools) = self.heaps.pools {
            let blocks = self.pool_others.without(&self.pool_claims).map(|number| pools.block_of_number(number));
            blocks.for_each(|(address, size)| kept.offer(address, size));
        }
        for (index, region) in self.heaps.chunks.iter().flat_map(|chunks| chunks.regions.iter().enumerate()) {
            let used = region.all().filter(|(_, _, state)| *state == State::Used);
            for (start, end, _) in used {
                if self.is_unknown(Place::Chunk(index, region.index(start))) {
                    kept.offer(start + CHUNK_HEADER, end - start);
                }
            }
        }
        for (index, (chunk, end)) in self.heaps.mapped.iter().enumerate() {
            if self.is_unknown(Place::Mapped(index as u64)) {
                kept.offer(chunk + CHUNK_HEADER, end - chunk);
            }
        }
        for (number, address, size) in self.heaps.mimalloc.iter().flat_map(|mimalloc| mimalloc.used_blocks()) {
            if self.is_unknown(Place::Mimalloc(number)) {
                kept.offer(address, size);
            }
        }
        for (number, (start, end)) in self.heaps.claimed.iter().flat_map(|claimed| claimed.places.iter().enumerate()) {
            if self.is_unknown(Place::Claimed(number as u64)) {
                kept.offer(*start, end - start);
            }
        }
        kept.heap.into_sorted_vec().into_iter().map(|Reverse((size, Reverse(address)))| (address, size)).collect()
    }

    /// Blocks that look like objects but are claimed as buffers: `(domain, user address, size)`.
    pub(crate) fn contested(&self) -> Vec<(usize, u64, u64)> {
        let mut found = Vec::new();
        if let Some(pools) = self.heaps.pools {
            let blocks = self.pool_objects.common(&self.pool_claims).map(|number| pools.block_of_number(number));
            found.extend(blocks.map(|(address, size)| (IN_POOL, address, size)));
        }
        for (index, region) in self.heaps.chunks.iter().flat_map(|chunks| chunks.regions.iter().enumerate()) {
            let common = self.chunk_objects[index].common(&self.chunk_claims[index]);
            let blocks = common.filter_map(|number| region.find(region.address(number)));
            found.extend(blocks.map(|(start, end, _)| (IN_CHUNK, start + CHUNK_HEADER, end - start)));
        }
        let mapped = self.mapped_objects.common(&self.mapped_claims).map(|number| self.heaps.mapped[number as usize]);
        found.extend(mapped.map(|(chunk, end)| (IN_MAPPED, chunk + CHUNK_HEADER, end - chunk)));
        if let Some(mimalloc) = self.heaps.mimalloc {
            let common = self.mimalloc_objects.common(&self.mimalloc_claims);
            let blocks = common.map(|number| mimalloc.block_of_number(number));
            found.extend(blocks.map(|(address, size)| (IN_MIMALLOC, address, size)));
        }
        if let Some(claimed) = self.heaps.claimed {
            let places = self.place_objects.common(&self.place_claims).map(|number| claimed.places[number as usize]);
            found.extend(places.map(|(start, end)| (IN_CLAIMED, start, end - start)));
        }
        found
    }
}

/// The largest blocks seen so far, the lower address first among equals.
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
