//! The parts of an arena of pymalloc, and the unused bytes in it.

use crate::allocators::block::{GroupBits, MAX_IN_GROUP};
use crate::allocators::holes::{Edge, Hole, HoleFinder};
use crate::allocators::part::Part;
use crate::allocators::pymalloc::pools::{Arena, Pool, Pools, HEADER};
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;

impl Pools {
    /// Return the part that contains `address`, as `(address, size, state)`; None outside every arena. The state is
    /// used, free, `pool header`, `free pool` or `padding`.
    pub fn find(&self, space: &Space, address: u64) -> Option<(u64, u64, &'static str)> {
        let arena = self.arena_at(address)?;
        let Some(ordinal) = self.pool_at(address) else {
            let first = self.first_pool_address(arena);
            let (start, end) = if address < first { (arena.address, first) } else { (arena.carved, arena.end) };
            return Some((start, end - start, if address < first { "padding" } else { "free pool" }));
        };
        let pool = &self.pools[ordinal];
        if pool.is_free() {
            return Some((pool.address, self.pool_size, "free pool"));
        }
        self.find_in(space, pool, address)
    }

    /// Return maximal runs of at least `minimum` unused bytes. Adjacent free pools are joined, and so are adjacent free
    /// blocks of one pool.
    pub fn holes(&self, watcher: &dyn Watcher, space: &Space, minimum: u64) -> Result<Vec<Hole>> {
        let mut found = HoleFinder::new(minimum);
        for (place, arena) in self.arenas.iter().enumerate() {
            if place % 64 == 0 {
                watcher.check()?;
            }
            self.parts_of_arena(space, arena, |start, end, part| {
                found.add(start, end, part, |address| self.edge(start, end, part, address));
            });
            found.end_region(|_, _| Some(arena.number));
        }
        Ok(found.holes)
    }

    fn find_in(&self, space: &Space, pool: &Pool, address: u64) -> Option<(u64, u64, &'static str)> {
        let size = pool.block_size(self.alignment);
        let Some(offset) = (address - pool.address).checked_sub(HEADER) else {
            return Some((pool.address, HEADER, "pool header"));
        };
        let number = offset / size;
        if number >= u64::from(self.capacity(pool)) {
            let start = pool.address + HEADER + u64::from(self.capacity(pool)) * size;
            return Some((start, pool.address + self.pool_size - start, "padding"));
        }
        let mut bytes = vec![0; self.pool_size as usize];
        let mut free = [0; MAX_IN_GROUP / 64];
        space.fill(pool.address, &mut bytes);
        self.free_blocks(pool, &bytes, &mut free);
        let is_free = number >= u64::from(pool.carved(self.alignment)) || is_set(&free, number as u32);
        Some((pool.address + HEADER + number * size, size, if is_free { "free" } else { "used" }))
    }

    /// Show the parts of an arena in order: used, free, free pools, headers, padding.
    pub(crate) fn parts_of_arena(&self, space: &Space, arena: &Arena, mut visit: impl FnMut(u64, u64, Part)) {
        let first = self.first_pool_address(arena).min(arena.end);
        if arena.address < first {
            visit(arena.address, first, Part::Padding);
        }
        let mut bytes = vec![0; self.pool_size as usize];
        let mut at = first;
        for pool in self.pools_of(arena) {
            at = pool.address + self.pool_size;
            match pool.is_free() {
                true => visit(pool.address, at, Part::FreeRun),
                false => self.parts_of_pool(space, pool, &mut bytes, &mut visit),
            }
        }
        if at < arena.end {
            visit(at, arena.end, Part::FreeRun);
        }
    }

    pub(crate) fn parts_of_pool(
        &self,
        space: &Space,
        pool: &Pool,
        bytes: &mut [u8],
        visit: &mut impl FnMut(u64, u64, Part),
    ) {
        let (size, carved) = (pool.block_size(self.alignment), pool.carved(self.alignment));
        let blocks = pool.address + HEADER;
        visit(pool.address, blocks, Part::Header);
        let mut free = [0; MAX_IN_GROUP / 64];
        if pool.used < carved {
            space.fill(pool.address, bytes);
            self.free_blocks(pool, bytes, &mut free);
        }
        let capacity = self.capacity(pool);
        let mut start = 0;
        if pool.used == carved {
            visit(blocks, blocks + u64::from(carved) * size, Part::Used);
            start = carved;
        }
        while start < capacity {
            let kind = |number: u32| number >= carved || is_set(&free, number);
            let mut end = start + 1;
            while end < capacity && kind(end) == kind(start) {
                end += 1;
            }
            let part = if kind(start) { Part::Free } else { Part::Used };
            visit(blocks + u64::from(start) * size, blocks + u64::from(end) * size, part);
            start = end;
        }
        let tail = blocks + u64::from(capacity) * size;
        if tail < pool.address + self.pool_size {
            visit(tail, pool.address + self.pool_size, Part::Padding);
        }
    }

    /// Return the neighbour of a hole at `address`. If the neighbour is a run of used blocks, return only the block
    /// that touches the hole.
    fn edge(&self, start: u64, end: u64, part: Part, address: u64) -> Edge {
        match (part, self.block_at(address)) {
            (Part::Used, Some(block)) => (block.address, block.size, word(part)),
            _ => (start, end - start, word(part)),
        }
    }
}

/// Return pymalloc's name for a kind of part.
fn word(part: Part) -> &'static str {
    match part {
        Part::Header => "pool header",
        Part::FreeRun => "free pool",
        other => other.name(),
    }
}

#[inline]
fn is_set(free: &GroupBits, number: u32) -> bool {
    free[(number / 64) as usize] >> (number % 64) & 1 == 1
}
