//! All that hands out blocks of one target, and a few bits for each block.

use crate::bits::SharedBits;
use crate::chunks::{Chunks, State};
use crate::pools::Pools;
use crate::space::Space;
use crate::types::ByAddress;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const CHUNK_HEADER: u64 = 16;
pub const IN_POOL: usize = 0;
pub const IN_CHUNK: usize = 1;
pub const IN_MAPPED: usize = 2;

/// All that hands out blocks of one target.
pub struct Heaps<'a> {
    pub space: &'a Space,
    pub chunks: Option<&'a Chunks>,
    pub pools: Option<&'a Pools>,
    /// mmapped chunks, ascending: (chunk, end).
    pub mapped: Vec<(u64, u64)>,
    pub pool_claims: SharedBits,
    pub pool_objects: SharedBits,
    /// Blocks that are neither free nor look like objects.
    pub pool_others: SharedBits,
    pub chunk_claims: Vec<SharedBits>,
    pub chunk_objects: Vec<SharedBits>,
    pub mapped_claims: SharedBits,
    pub mapped_objects: SharedBits,
    pub watched: ByAddress<()>,
}

/// A block by who handed it out, with its number there.
#[derive(Clone, Copy)]
pub enum Place {
    Pool(u64),
    Chunk(usize, u64),
    Mapped(u64),
}

impl Place {
    pub fn domain(&self) -> usize {
        match self {
            Place::Pool(_) => IN_POOL,
            Place::Chunk(..) => IN_CHUNK,
            Place::Mapped(_) => IN_MAPPED,
        }
    }

    /// Where the bytes of a block of `size` at `address` end: a chunk reaches eight bytes into the next header.
    pub fn end(&self, address: u64, size: u64) -> u64 {
        match self {
            Place::Pool(_) => address + size,
            Place::Chunk(..) => address + size - 8,
            Place::Mapped(_) => address + size - CHUNK_HEADER,
        }
    }
}

impl<'a> Heaps<'a> {
    /// None where there is no memory for a bit for each possible block.
    pub fn new(
        space: &'a Space,
        chunks: Option<&'a Chunks>,
        pools: Option<&'a Pools>,
        mut mapped: Vec<(u64, u64)>,
        watched: Vec<u64>,
    ) -> Option<Heaps<'a>> {
        mapped.sort_unstable();
        let regions = || -> Option<Vec<SharedBits>> {
            let size = |region: &crate::chunks::Region| (region.stretch.end - region.stretch.start) / 16 + 1;
            chunks.iter().flat_map(|chunks| &chunks.regions).map(|region| SharedBits::new(size(region))).collect()
        };
        let blocks = pools.map_or(0, Pools::block_numbers);
        let count = mapped.len() as u64;
        Some(Heaps {
            space,
            chunks,
            pools,
            mapped,
            pool_claims: SharedBits::new(blocks)?,
            pool_objects: SharedBits::new(blocks)?,
            pool_others: SharedBits::new(blocks)?,
            chunk_claims: regions()?,
            chunk_objects: regions()?,
            mapped_claims: SharedBits::new(count)?,
            mapped_objects: SharedBits::new(count)?,
            watched: watched.into_iter().map(|address| (address, ())).collect(),
        })
    }

    /// The used block that holds `address`: where, its user address and its size.
    pub fn block_at(&self, address: u64) -> Option<(Place, u64, u64)> {
        if let Some(pools) = self.pools {
            if let Some(block) = pools.block_at(address) {
                return Some((Place::Pool(block.number), block.address, block.size));
            }
        }
        if let Some((region, (start, end, State::Used))) = self.chunk_at(address) {
            let base = self.chunks?.regions[region].stretch.start;
            return Some((Place::Chunk(region, (start - base) / 16), start + CHUNK_HEADER, end - start));
        }
        let index = self.mapped.partition_point(|(_, end)| *end <= address);
        let (chunk, end) = *self.mapped.get(index)?;
        (chunk <= address).then_some((Place::Mapped(index as u64), chunk + CHUNK_HEADER, end - chunk))
    }

    fn chunk_at(&self, address: u64) -> Option<(usize, (u64, u64, State))> {
        let chunks = self.chunks?;
        let found = chunks.holder(address)?;
        Some((chunks.region_of(found.0)?, found))
    }

    pub fn claim(&self, place: Place) -> bool {
        match place {
            Place::Pool(number) => self.pool_claims.claim(number),
            Place::Chunk(region, number) => self.chunk_claims[region].claim(number),
            Place::Mapped(number) => self.mapped_claims.claim(number),
        }
    }

    pub fn is_claimed(&self, place: Place) -> bool {
        match place {
            Place::Pool(number) => self.pool_claims.get(number),
            Place::Chunk(region, number) => self.chunk_claims[region].get(number),
            Place::Mapped(number) => self.mapped_claims.get(number),
        }
    }

    /// Whether a used block neither looks like an object nor is claimed.
    pub fn is_unknown(&self, place: Place) -> bool {
        let other = match place {
            Place::Pool(number) => self.pool_others.get(number),
            Place::Chunk(region, number) => !self.chunk_objects[region].get(number),
            Place::Mapped(number) => !self.mapped_objects.get(number),
        };
        other && !self.is_claimed(place)
    }

    /// The lowest and the highest address of a block.
    pub fn bounds(&self) -> (u64, u64) {
        let arenas = self.pools.iter().flat_map(|pools| &pools.arenas).map(|arena| (arena.address, arena.end));
        let regions = self.chunks.iter().flat_map(|chunks| &chunks.regions);
        let stretches = regions.map(|region| (region.stretch.start, region.stretch.end));
        let all = arenas.chain(stretches).chain(self.mapped.iter().copied());
        all.fold((u64::MAX, 0), |(low, high), (start, end)| (low.min(start), high.max(end)))
    }

    /// The `most` largest blocks that are unknown, largest first: `(user address, size)`.
    pub fn largest_unknown(&self, most: usize) -> Vec<(u64, u64)> {
        let mut kept = Largest { most, heap: BinaryHeap::new() };
        if let Some(pools) = self.pools {
            let blocks = self.pool_others.without(&self.pool_claims).map(|number| pools.block_of_number(number));
            blocks.for_each(|(address, size)| kept.offer(address, size));
        }
        for (index, region) in self.chunks.iter().flat_map(|chunks| chunks.regions.iter().enumerate()) {
            let used = region.all().filter(|(_, _, state)| *state == State::Used);
            for (start, end, _) in used {
                if self.is_unknown(Place::Chunk(index, (start - region.stretch.start) / 16)) {
                    kept.offer(start + CHUNK_HEADER, end - start);
                }
            }
        }
        for (index, (chunk, end)) in self.mapped.iter().enumerate() {
            if self.is_unknown(Place::Mapped(index as u64)) {
                kept.offer(chunk + CHUNK_HEADER, end - chunk);
            }
        }
        kept.heap.into_sorted_vec().into_iter().map(|Reverse((size, Reverse(address)))| (address, size)).collect()
    }

    /// Blocks that look like objects but are claimed as buffers: `(domain, user address, size)`.
    pub fn contested(&self) -> Vec<(usize, u64, u64)> {
        let mut found = Vec::new();
        if let Some(pools) = self.pools {
            let blocks = self.pool_objects.common(&self.pool_claims).map(|number| pools.block_of_number(number));
            found.extend(blocks.map(|(address, size)| (IN_POOL, address, size)));
        }
        for (index, region) in self.chunks.iter().flat_map(|chunks| chunks.regions.iter().enumerate()) {
            let common = self.chunk_objects[index].common(&self.chunk_claims[index]);
            let blocks = common.filter_map(|number| region.find(region.stretch.start + number * 16));
            found.extend(blocks.map(|(start, end, _)| (IN_CHUNK, start + CHUNK_HEADER, end - start)));
        }
        let mapped = self.mapped_objects.common(&self.mapped_claims).map(|number| self.mapped[number as usize]);
        found.extend(mapped.map(|(chunk, end)| (IN_MAPPED, chunk + CHUNK_HEADER, end - chunk)));
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
