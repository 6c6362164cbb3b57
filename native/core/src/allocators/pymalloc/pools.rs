//! pymalloc's pools: their headers, and which of their blocks are free.
//!
//! `struct pool_header` has the same 48 bytes in every CPython from 2.7 to 3.15 (DWARF of the builds): `u32
//! ref.count@0, block *freeblock@8, nextpool@16, prevpool@24, u32 arenaindex@32, u32 szidx@36, u32 nextoffset@40, u32
//! maxnextoffset@44`. Blocks follow at offset 48. The blocks at `nextoffset` and after it were never handed out.

use crate::allocators::block::{Cell, GroupBits, MAX_IN_GROUP};
use crate::allocators::damage::Damage;
use crate::allocators::tally::Tally;
use crate::bits;
use gdbheap_access::bytes::{u32_at, u64_at};
use gdbheap_access::error::{Error, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};

pub(crate) const HEADER: u64 = 48;
const MAX_POOLS_IN_ARENA: u64 = 1024;
const MAX_DAMAGE: usize = 1000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    pub(crate) address: u64,
    pub(crate) freeblock: u64,
    pub(crate) used: u32,
    pub(crate) size_class: u32,
    pub(crate) next_offset: u32,
    pub(crate) arena: u32,
}

/// The blocks of a used pool that were handed out at least once: their size, their count, and the number of the first
/// block.
pub(crate) struct PoolBlocks {
    pub(crate) size: u64,
    pub(crate) count: u64,
    pub(crate) first: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Arena {
    pub(crate) address: u64,
    /// The address up to which the arena has been carved into pools.
    pub(crate) carved: u64,
    pub(crate) end: u64,
    pub(crate) number: u32,
    pub(crate) first_pool: usize,
}

/// All pools of one pymalloc, by arena and address.
pub struct Pools {
    pub(crate) pools: Vec<Pool>,
    pub(crate) arenas: Vec<Arena>,
    pub(crate) pool_size: u64,
    pub(crate) alignment: u64,
    /// Damage in the headers of pools.
    pub damage: Vec<Damage>,
    /// For each MiB, counted from the start of the first arena: the index of the first arena that ends after the start
    /// of this MiB.
    by_mib: Vec<u32>,
    brief: Vec<PoolBrief>,
    /// The number of 64-bit words in a bit set with one bit for each block.
    words: u32,
}

/// The fields of a pool that a look-up needs. They take a sixth of the memory of a whole pool header.
#[derive(Clone, Copy)]
struct PoolBrief {
    /// The size class plus one, in the low 8 bits, and `nextoffset` in the bits above; 0 for a free pool.
    shape: u32,
    /// The number of the pool's first block divided by 64. The numbers have no large gaps, so that bitmaps of the
    /// blocks stay small.
    first: u32,
}

const MIB: u64 = 1 << 20;
/// The largest range of arena addresses, in MiB, for which a table of arenas is made. In a larger range, arenas are
/// found by a binary search.
const MAX_MIB: u64 = 1 << 22;

impl Pool {
    pub(crate) fn block_size(&self, alignment: u64) -> u64 {
        (u64::from(self.size_class) + 1) * alignment
    }

    /// Return how many blocks of the pool were handed out at least once.
    pub(crate) fn carved(&self, alignment: u64) -> u32 {
        (u64::from(self.next_offset).saturating_sub(HEADER) / self.block_size(alignment)) as u32
    }

    pub(crate) fn is_free(&self) -> bool {
        self.used == 0
    }
}

impl Pools {
    pub(crate) fn first_pool_address(&self, arena: &Arena) -> u64 {
        arena.address.next_multiple_of(self.pool_size)
    }

    pub(crate) fn pools_of(&self, arena: &Arena) -> &[Pool] {
        let count = arena.carved.saturating_sub(self.first_pool_address(arena)) / self.pool_size;
        let end = (arena.first_pool + count as usize).min(self.pools.len());
        &self.pools[arena.first_pool.min(end)..end]
    }

    pub(crate) fn capacity(&self, pool: &Pool) -> u32 {
        ((self.pool_size - HEADER) / pool.block_size(self.alignment)) as u32
    }

    /// Return the index of the pool that contains `address`; None if there is none.
    #[inline]
    pub(crate) fn pool_at(&self, address: u64) -> Option<usize> {
        let arena = self.arena_at(address)?;
        let first = self.first_pool_address(arena);
        if address < first || address >= arena.carved {
            return None;
        }
        // The pool size is a power of two.
        Some(arena.first_pool + ((address - first) >> self.pool_size.trailing_zeros()) as usize)
    }

    #[inline]
    pub(super) fn arena_at(&self, address: u64) -> Option<&Arena> {
        let base = self.arenas.first()?.address;
        let mut place = match self.by_mib.get((address.checked_sub(base)? / MIB) as usize) {
            Some(place) => *place as usize,
            None => self.arenas.partition_point(|arena| arena.end <= address),
        };
        // Arenas may be smaller than a MiB: a few of them may end inside the MiB that contains `address`.
        while self.arenas.get(place).is_some_and(|arena| arena.end <= address) {
            place += 1;
        }
        self.arenas.get(place).filter(|arena| arena.address <= address)
    }

    fn index(&mut self) {
        let mut first = 0;
        let brief = |pool: &Pool| {
            let mut brief = PoolBrief { shape: 0, first };
            if !pool.is_free() {
                brief.shape = pool.next_offset << 8 | (pool.size_class + 1);
                first += pool.carved(self.alignment).div_ceil(64);
            }
            brief
        };
        self.brief = self.pools.iter().map(brief).collect();
        self.words = first;
        let (Some(first), Some(last)) = (self.arenas.first(), self.arenas.last()) else { return };
        let (base, granules) = (first.address, (last.end - first.address).div_ceil(MIB));
        if granules <= MAX_MIB {
            let place = |granule| self.arenas.partition_point(|arena| arena.end <= base + granule * MIB) as u32;
            self.by_mib = (0..granules).map(place).collect();
        }
    }

    /// Return the block that contains `address`, if the block was handed out at least once. None in headers, in the
    /// unused ends of pools and in free pools.
    #[inline(always)]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        let ordinal = self.pool_at(address)?;
        let PoolBrief { shape, first } = *self.brief.get(ordinal)?;
        // Pools are aligned to their size.
        let pool = address & !(self.pool_size - 1);
        let offset = (address - pool).checked_sub(HEADER)?;
        let size = u64::from(shape & 255) * self.alignment;
        if shape == 0 {
            return None;
        }
        // Both numbers are small, and a division of 32 bits is several times faster.
        let place = u64::from(offset as u32 / size as u32);
        let number = u64::from(first) * 64 + place;
        let handed_out = HEADER + (place + 1) * size <= u64::from(shape >> 8);
        handed_out.then(|| Cell::plain(number, pool + HEADER + place * size, size))
    }

    /// Return the pools in use, each with its index.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (usize, PoolBlocks)> + '_ {
        let carved = |(place, pool): (usize, &Pool)| {
            let (size, count) = (pool.block_size(self.alignment), u64::from(pool.carved(self.alignment)));
            (place, PoolBlocks { size, count, first: self.first_block(place) })
        };
        self.pools.iter().enumerate().filter(|(_, pool)| !pool.is_free()).map(carved)
    }

    /// Return the number and the total size of the used blocks of an arena.
    pub(crate) fn used_of(&self, arena: &Arena) -> Tally {
        let mut sum = Tally::default();
        let pools = self.pools_of(arena).iter();
        pools.for_each(|pool| sum.add_many(u64::from(pool.used), pool.block_size(self.alignment)));
        sum
    }

    /// Show each used block of a pool as its address and its bytes. Bytes that cannot be read are zeros. `bytes` is a
    /// scratch buffer.
    pub(crate) fn show_used(&self, space: &Space, pool: &Pool, bytes: &mut Vec<u8>, mut show: impl FnMut(u64, &[u8])) {
        bytes.resize(self.pool_size as usize, 0);
        let got = space.fill(pool.address, bytes);
        bytes[got..].fill(0);
        let (size, used) = (pool.block_size(self.alignment), self.used_blocks(pool, bytes));
        for number in (0..MAX_IN_GROUP as u64).filter(|number| bits::get(&used, *number)) {
            let start = HEADER + number * size;
            show(pool.address + start, &bytes[start as usize..][..size as usize]);
        }
    }

    /// Return the limit of block numbers: the number of every block is smaller. A bitmap with one bit for each block
    /// has this many bits.
    pub(crate) fn block_numbers(&self) -> u64 {
        u64::from(self.words) * 64
    }

    /// Return the number of a pool's first block, a multiple of 64.
    #[inline]
    pub(crate) fn first_block(&self, ordinal: usize) -> u64 {
        u64::from(self.brief[ordinal].first) * 64
    }

    /// Return the block with this number.
    pub(crate) fn block_of(&self, number: u64) -> Cell {
        // Free pools have no numbers of their own: each has the same first number as the pool after it.
        let ordinal = self.brief.partition_point(|brief| u64::from(brief.first) * 64 <= number) - 1;
        let pool = &self.pools[ordinal];
        let size = pool.block_size(self.alignment);
        Cell::plain(number, pool.address + HEADER + (number - self.first_block(ordinal)) * size, size)
    }

    /// Return the used blocks of a pool whose bytes are `bytes`.
    #[inline]
    pub(crate) fn used_blocks(&self, pool: &Pool, bytes: &[u8]) -> GroupBits {
        let carved = pool.carved(self.alignment);
        let mut bits: GroupBits = [0; MAX_IN_GROUP / 64];
        if pool.used < carved {
            self.free_blocks(pool, bytes, &mut bits);
        }
        for (word, bits) in bits.iter_mut().enumerate() {
            let handed_out = match carved.saturating_sub(word as u32 * 64) {
                0 => 0,
                count => u64::MAX >> (64 - count.min(64)),
            };
            *bits = handed_out & !*bits;
        }
        bits
    }

    /// Mark the free blocks of a pool whose bytes are `bytes`, except blocks that were never handed out. Return false
    /// if the chain of free blocks leaves the pool or has the wrong length.
    pub(crate) fn free_blocks(&self, pool: &Pool, bytes: &[u8], free: &mut GroupBits) -> bool {
        *free = [0; MAX_IN_GROUP / 64];
        let (size, carved) = (pool.block_size(self.alignment), pool.carved(self.alignment));
        let mut at = pool.freeblock;
        let mut count = 0;
        while at != 0 && count <= carved {
            let offset = at.wrapping_sub(pool.address + HEADER);
            let number = offset / size;
            if offset % size != 0 || number >= u64::from(carved) {
                return false;
            }
            let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
            if free[word] & bit != 0 {
                return false;
            }
            free[word] |= bit;
            count += 1;
            at = u64_at(bytes, (offset + HEADER) as usize);
        }
        count + pool.used == carved
    }
}

fn parse(bytes: &[u8], address: u64) -> Pool {
    Pool {
        address,
        freeblock: u64_at(bytes, 8),
        used: u32_at(bytes, 0),
        size_class: u32_at(bytes, 36),
        next_offset: u32_at(bytes, 40),
        arena: u32_at(bytes, 32),
    }
}

/// Return the error in the header of a used pool, if there is one.
fn fault_of(pool: &Pool, index: u32, pool_size: u64, alignment: u64) -> Option<Damage> {
    let fault = |what, expected: String, found: u32| Some(Damage::new(pool.address, what, expected, found.to_string()));
    if pool.is_free() {
        return None;
    }
    if pool.arena != index {
        return fault("arenaindex of a pool", index.to_string(), pool.arena);
    }
    let classes = 512 / alignment;
    if u64::from(pool.size_class) >= classes {
        return fault("szidx of a pool", format!("below {classes}"), pool.size_class);
    }
    if u64::from(pool.next_offset) > pool_size || u64::from(pool.next_offset) < HEADER {
        return fault("nextoffset of a pool", format!("{HEADER} to {pool_size}"), pool.next_offset);
    }
    let carved = pool.carved(alignment);
    match pool.used > carved {
        true => fault("ref.count of a pool", format!("at most {carved}"), pool.used),
        false => None,
    }
}

/// An arena, as its entry in the table of arenas describes it.
#[derive(Clone, Copy, Debug)]
pub struct ArenaRow {
    /// The number of the arena among all arenas. It may differ from `index`, because interpreters may have tables of
    /// their own.
    pub number: u32,
    /// The index of the arena in its table. The headers of the arena's pools contain the same index.
    pub index: u32,
    pub address: u64,
    /// The address up to which the arena has been carved into pools (`pool_address`).
    pub carved: u64,
    pub size: u64,
}

/// Read the headers of every pool. `arenas` may be in any order. Fails for a pool size or an alignment that no release
/// of pymalloc has had.
pub fn read_pools(
    watcher: &dyn Watcher,
    space: &Space,
    mut arenas: Vec<ArenaRow>,
    pool_size: u64,
    alignment: u64,
) -> Result<Pools> {
    let is_possible = pool_size.is_power_of_two() && matches!(alignment, 8 | 16) && pool_size > HEADER;
    if !is_possible || (pool_size - HEADER) / alignment > MAX_IN_GROUP as u64 {
        return Err(Error::invalid("there are no such pools"));
    }
    arenas.sort_by_key(|arena| arena.address);
    let groups: Vec<(usize, &[ArenaRow])> = arenas.chunks(64).enumerate().collect();
    let work = |parts: &mut Vec<(usize, Pools)>, (place, group): &(usize, &[ArenaRow]), control: &Control| {
        let mut part = Pools::empty(pool_size, alignment);
        part.add_arenas(space, group);
        parts.push((*place, part));
        control.advance(0)
    };
    let mut parts: Vec<_> = space.task(watcher, None).run(&groups, Vec::new, work)?.into_iter().flatten().collect();
    parts.sort_by_key(|(place, _)| *place);
    let mut answer = Pools::empty(pool_size, alignment);
    parts.into_iter().for_each(|(_, part)| answer.append(part));
    answer.index();
    Ok(answer)
}

impl Pools {
    fn empty(pool_size: u64, alignment: u64) -> Pools {
        let (pools, arenas, damage, by_mib, brief) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Pools { pools, arenas, pool_size, alignment, damage, by_mib, brief, words: 0 }
    }

    /// Add the arenas that another job has read. Unless the target is damaged, all of them have higher addresses than
    /// the arenas so far.
    fn append(&mut self, part: Pools) {
        let before = self.pools.len();
        if let (Some(last), Some(first)) = (self.arenas.last(), part.arenas.first()) {
            if first.address < last.end {
                return self.report_overlap(first.address);
            }
        }
        self.pools.extend(part.pools);
        let moved = part.arenas.into_iter().map(|arena| Arena { first_pool: arena.first_pool + before, ..arena });
        self.arenas.extend(moved);
        self.damage.extend(part.damage);
    }

    fn report_overlap(&mut self, address: u64) {
        let (expected, found) = ("no overlap with another arena", format!("{address:#x}"));
        self.report(Damage::new(address, "address of an arena", expected, found));
    }

    fn add_arenas(&mut self, space: &Space, arenas: &[ArenaRow]) {
        let mut addresses = Vec::new();
        let mut indices = Vec::new();
        for ArenaRow { number, index, address, carved, size } in arenas {
            let end = address.saturating_add(*size);
            let overlaps = self.arenas.last().is_some_and(|last| last.end > *address);
            if overlaps || *size > MAX_POOLS_IN_ARENA * self.pool_size {
                self.report_overlap(*address);
                continue;
            }
            if !space.covers(*address, (*size).max(1)) {
                let found = format!("{address:#x}, which is not mapped");
                let damage = Damage::new(*address, "address of an arena", "mapped memory", found);
                self.report(Damage { is_absent: true, ..damage });
                continue;
            }
            let carved = (*carved).min(end);
            let first_pool = self.pools.len() + addresses.len();
            let mut arena = Arena { address: *address, carved, end, number: *number, first_pool };
            let first = self.first_pool_address(&arena);
            let count = carved.saturating_sub(first) / self.pool_size;
            if carved > first && carved != first + count * self.pool_size {
                let expected = format!("{first:#x} plus a multiple of {:#x}", self.pool_size);
                let found = format!("{carved:#x}");
                self.report(Damage::new(*address, "pool_address of an arena", expected, found));
                arena.carved = first + count * self.pool_size;
            }
            self.arenas.push(arena);
            addresses.extend((0..count).map(|pool| self.first_pool_address(&arena) + pool * self.pool_size));
            indices.extend((0..count).map(|_| *index));
        }
        self.add_pools(space, &addresses, &indices);
    }

    fn add_pools(&mut self, space: &Space, addresses: &[u64], indices: &[u32]) {
        let mut headers = vec![0; addresses.len() * HEADER as usize];
        let good = space.many(addresses, HEADER as usize, &mut headers);
        for (place, address) in addresses.iter().enumerate() {
            let header = &headers[place * HEADER as usize..(place + 1) * HEADER as usize];
            let mut pool = parse(header, *address);
            let fault = match good[place] {
                true => fault_of(&pool, indices[place], self.pool_size, self.alignment),
                false => Some(Damage::absent(*address, "header of a pool")),
            };
            if let Some(damage) = fault {
                self.report(damage);
                pool = Pool { used: 0, size_class: 0, next_offset: HEADER as u32, freeblock: 0, ..pool };
            }
            self.pools.push(pool);
        }
    }

    fn report(&mut self, damage: Damage) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(damage);
        }
    }
}

impl Pools {
    /// Return `(block size, pools, used blocks, free blocks)` of each size class that has pools, by size.
    pub fn classes(&self) -> Vec<(u64, u64, u64, u64)> {
        let mut rows = vec![(0u64, 0u64, 0u64, 0u64); (512 / self.alignment) as usize];
        for pool in self.pools.iter().filter(|pool| !pool.is_free()) {
            let Some(row) = rows.get_mut(pool.size_class as usize) else { continue };
            row.0 = pool.block_size(self.alignment);
            row.1 += 1;
            row.2 += u64::from(pool.used);
            row.3 += u64::from(self.capacity(pool).saturating_sub(pool.used));
        }
        rows.into_iter().filter(|row| row.1 > 0).collect()
    }

    /// Return `(address, end)` of every arena, by address.
    pub fn arena_ranges(&self) -> Vec<(u64, u64)> {
        self.arenas.iter().map(|arena| (arena.address, arena.end)).collect()
    }

    /// Return every arena's number and its used blocks, by address.
    pub fn used_of_arenas(&self) -> Vec<(u32, Tally)> {
        self.arenas.iter().map(|arena| (arena.number, self.used_of(arena))).collect()
    }

    /// Return the number of pools.
    pub fn pool_count(&self) -> usize {
        self.pools.len()
    }

    /// Check the free chains and counts of all pools with free blocks. Return the damage of at most `most` pools.
    pub fn verify(&self, watcher: &dyn Watcher, space: &Space, most: usize) -> Result<Vec<Damage>> {
        let mut found = Vec::new();
        let mut bytes = vec![0; self.pool_size as usize];
        for (place, pool) in self.pools.iter().enumerate() {
            if place % 1024 == 0 {
                watcher.check()?;
            }
            let carved = pool.carved(self.alignment);
            if pool.is_free() || (pool.freeblock == 0 && pool.used == carved) || found.len() >= most {
                continue;
            }
            let got = space.fill(pool.address, &mut bytes);
            let mut free = [0; MAX_IN_GROUP / 64];
            if got < bytes.len() || !self.free_blocks(pool, &bytes, &mut free) {
                let chained: u32 = free.iter().map(|word| word.count_ones()).sum();
                let expected = format!("{} blocks", carved.saturating_sub(pool.used));
                found.push(Damage::new(pool.address, "free list of a pool", expected, format!("{chained} blocks")));
            }
        }
        Ok(found)
    }
}
