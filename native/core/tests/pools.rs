//! Test the pools of pymalloc against a plain list of blocks.

mod support;

use gdbheap_access::memory::Space;
use gdbheap_core::allocators::pymalloc::{occupancy, read_pools, used_blocks, ArenaRow, Pools};
use std::collections::{BTreeMap, BTreeSet};
use support::{Chance, Memory, NoWatcher};

const START: u64 = 0x7f00_0000_0000;
const HEADER: u64 = 48;

/// An arena as it lies in memory, and the state of each of its blocks.
struct RandomArena {
    memory: Memory,
    row: ArenaRow,
    pool_size: u64,
    alignment: u64,
    /// All blocks that were handed out at least once: address, size, and whether the block is used.
    blocks: Vec<(u64, u64, bool)>,
}

fn draw(chance: &mut Chance) -> RandomArena {
    // The sizes are those of CPython up to 3.6, up to 3.9, and since then.
    let (pool_size, alignment) = [(4096u64, 8), (4096, 16), (16384, 16)][chance.below(3) as usize];
    let count = chance.between(1, 12);
    // An arena that malloc allocated need not begin where a pool begins.
    let start = START + if chance.one_in(2) { 0 } else { 16 * chance.between(1, 100) };
    let (first, size) = (start.next_multiple_of(pool_size), 16 * pool_size);
    let mut memory = Memory::of(start, vec![0; size as usize]);
    let mut blocks = Vec::new();
    for pool in (0..count).map(|pool| first + pool * pool_size) {
        blocks.extend(draw_pool(chance, &mut memory, pool, pool_size, alignment));
    }
    let row = ArenaRow { number: 7, index: 3, address: start, carved: first + count * pool_size, size };
    RandomArena { memory, row, pool_size, alignment, blocks }
}

/// Make the blocks of one pool. The first blocks were handed out. Some of them are free, linked in random order.
fn draw_pool(
    chance: &mut Chance,
    memory: &mut Memory,
    pool: u64,
    pool_size: u64,
    alignment: u64,
) -> Vec<(u64, u64, bool)> {
    let class = chance.below(512 / alignment);
    let size = (class + 1) * alignment;
    let carved = chance.between(1, (pool_size - HEADER) / size);
    let mut blocks: Vec<(u64, u64, bool)> =
        (0..carved).map(|number| (pool + HEADER + number * size, size, !chance.one_in(3))).collect();
    if chance.one_in(6) {
        blocks.iter_mut().for_each(|block| block.2 = false);
    }
    let mut chain: Vec<u64> = blocks.iter().filter(|block| !block.2).map(|block| block.0).collect();
    for place in (1..chain.len()).rev() {
        chain.swap(place, chance.below(place as u64 + 1) as usize);
    }
    for block in &blocks {
        (0..size / 8).for_each(|word| memory.put(block.0 + 8 * word, chance.hostile(pool)));
    }
    for (place, block) in chain.iter().enumerate() {
        memory.put(*block, chain.get(place + 1).copied().unwrap_or(0));
    }
    memory.put_half(pool, blocks.len() as u32 - chain.len() as u32);
    memory.put(pool + 8, chain.first().copied().unwrap_or(0));
    memory.put_half(pool + 32, 3);
    memory.put_half(pool + 36, class as u32);
    memory.put_half(pool + 40, (HEADER + carved * size) as u32);
    memory.put_half(pool + 44, (pool_size - size) as u32);
    // In a pool without used blocks, nothing else in the header is trusted.
    let is_free = chain.len() == blocks.len();
    blocks.into_iter().filter(|_| !is_free).collect()
}

fn read(drawn: &RandomArena) -> (Space, Pools) {
    let space = drawn.memory.space();
    let pools = read_pools(&NoWatcher, &space, vec![drawn.row], drawn.pool_size, drawn.alignment);
    (space, pools.expect("not cancelled"))
}

#[test]
fn blocks_are_those_of_the_arena() {
    let mut chance = Chance::new("blocks_are_those_of_the_arena");
    for _ in 0..60 {
        let drawn = draw(&mut chance);
        let (space, pools) = read(&drawn);
        assert_eq!(pools.damage, []);
        assert_eq!(pools.verify(&NoWatcher, &space, 10).expect("not cancelled"), []);
        for (address, size, used) in &drawn.blocks {
            let inside = address + chance.below(*size);
            let state = if *used { "used" } else { "free" };
            assert_eq!(pools.find(&space, inside), Some((*address, *size, state)), "{inside:#x}");
        }
        let used = drawn.blocks.iter().filter(|block| block.2);
        let (number, tally) = pools.used_of_arenas()[0];
        assert_eq!(number, 7);
        assert_eq!((tally.count, tally.bytes), (used.clone().count() as u64, used.map(|block| block.1).sum()));
        let classes: u64 = pools.classes().iter().map(|(_, _, used, _)| used).sum();
        assert_eq!(classes, tally.count);
    }
}

/// Check that each free block is in a hole, and that no used block is. Check that the neighbours of holes are right.
#[test]
fn holes_hold_no_used_block() {
    let mut chance = Chance::new("holes_hold_no_used_block");
    for _ in 0..40 {
        let drawn = draw(&mut chance);
        let (space, pools) = read(&drawn);
        let holes = pools.holes(&NoWatcher, &space, 0).expect("not cancelled");
        assert!(holes.windows(2).all(|pair| pair[0].end <= pair[1].start));
        for (address, size, _) in drawn.blocks.iter().filter(|block| block.2) {
            for hole in &holes {
                let is_before = hole.start == address + size;
                assert!(!is_before || hole.before == Some((*address, *size, "used")), "{:?}", hole.before);
                assert!(hole.end != *address || hole.after == Some((*address, *size, "used")), "{:?}", hole.after);
            }
        }
        for hole in holes.iter().take(3) {
            let with = |minimum: u64| pools.holes(&NoWatcher, &space, minimum).expect("not cancelled");
            let is_in = |minimum: u64| with(minimum).iter().any(|other| other.start == hole.start);
            assert!(is_in(hole.end - hole.start) && !is_in(hole.end - hole.start + 1));
        }
        let holds = |address: u64| holes.iter().any(|hole| (hole.start..hole.end).contains(&address));
        for (address, size, used) in &drawn.blocks {
            let inside = address + chance.below(*size);
            assert_eq!(holds(inside), !used, "{inside:#x}");
        }
    }
}

#[test]
fn a_damaged_chain_is_found() {
    let mut chance = Chance::new("a_damaged_chain_is_found");
    for _ in 0..40 {
        let mut drawn = draw(&mut chance);
        let Some((block, size, _)) = drawn.blocks.iter().find(|block| !block.2).copied() else { continue };
        // The wrong link points to the block itself, out of the pool, or between two blocks.
        let wrong = [block, 0x1000, block + size / 2 + 4][chance.below(3) as usize];
        drawn.memory.put(block, wrong);
        let (space, pools) = read(&drawn);
        let found = pools.verify(&NoWatcher, &space, 10).expect("not cancelled");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].address, found[0].what),
            (block / drawn.pool_size * drawn.pool_size, "free list of a pool")
        );
    }
}

/// Overwrite one word in the header of a pool. Return the pool's address and the damage that must be found there; None
/// if no pool has enough used blocks.
fn spoil_header(chance: &mut Chance, drawn: &mut RandomArena, kind: u64) -> Option<(u64, &'static str)> {
    let (block, size, _) = drawn.blocks.iter().filter(|block| block.2).nth(chance.below(5) as usize).copied()?;
    let pool = block / drawn.pool_size * drawn.pool_size;
    let carved = drawn.blocks.iter().filter(|block| block.0 / drawn.pool_size * drawn.pool_size == pool).count() as u32;
    let classes = (512 / drawn.alignment) as u32;
    let (at, half, what) = match kind {
        0 => (32, [0, 2, 4, 1000][chance.below(4) as usize], "arenaindex of a pool"),
        1 => (36, classes + [0, 1, 1000][chance.below(3) as usize], "szidx of a pool"),
        2 => (40, drawn.pool_size as u32 + [1, size as u32, 4096][chance.below(3) as usize], "nextoffset of a pool"),
        3 => (40, [0, 16, HEADER as u32 - 1][chance.below(3) as usize], "nextoffset of a pool"),
        _ => (0, carved + [1, 2, 1000][chance.below(3) as usize], "ref.count of a pool"),
    };
    drawn.memory.put_half(pool + at, half);
    Some((pool, what))
}

#[test]
fn a_damaged_header_is_found() {
    let mut chance = Chance::new("a_damaged_header_is_found");
    for round in 0..200 {
        let mut drawn = draw(&mut chance);
        let Some(expected) = spoil_header(&mut chance, &mut drawn, round % 5) else { continue };
        let (space, pools) = read(&drawn);
        let found: Vec<(u64, &str)> = pools.damage.iter().map(|damage| (damage.address, damage.what)).collect();
        assert_eq!(found, [expected]);
        // The other pools are read anyway.
        let pool_of = |block: u64| block / drawn.pool_size * drawn.pool_size;
        for (address, size, used) in drawn.blocks.iter().filter(|block| pool_of(block.0) != expected.0) {
            let state = if *used { "used" } else { "free" };
            assert_eq!(pools.find(&space, *address), Some((*address, *size, state)), "{address:#x}");
        }
    }
}

/// Check a pool whose count of used blocks differs from the number of blocks outside its chain of free blocks.
#[test]
fn a_wrong_count_is_found() {
    let mut chance = Chance::new("a_wrong_count_is_found");
    for _ in 0..100 {
        let mut drawn = draw(&mut chance);
        let Some((block, _, _)) = drawn.blocks.iter().find(|block| block.2).copied() else { continue };
        let pool = block / drawn.pool_size * drawn.pool_size;
        let own = || drawn.blocks.iter().filter(|block| block.0 / drawn.pool_size * drawn.pool_size == pool);
        let (carved, used) = (own().count() as u32, own().filter(|block| block.2).count() as u32);
        // A pool that counts no used block is a free one.
        let wrong = if used > 1 && chance.one_in(2) { used - 1 } else { used + 1 };
        if wrong > carved {
            continue;
        }
        drawn.memory.put_half(pool, wrong);
        let (space, pools) = read(&drawn);
        let found = pools.verify(&NoWatcher, &space, 10).expect("not cancelled");
        let found: Vec<(u64, &str)> = found.iter().map(|damage| (damage.address, damage.what)).collect();
        assert_eq!(found, [(pool, "free list of a pool")]);
    }
}

/// The size of an arena in bytes. One percent of it is 41 blocks of the smallest size, so that some arenas are filled
/// to exactly a whole percentage.
const FULL: u64 = 100 * 41 * 16;

/// The address of an arena, and how many blocks of each size are used in it.
type KnownArena = (u64, BTreeMap<u64, u64>);

/// Make arenas with pools of a few size classes. Return the memory, the pools, and for each arena its address and the
/// number of used blocks of each size.
fn several(chance: &mut Chance) -> (Space, Pools, Vec<KnownArena>) {
    let (pool_size, alignment, arena) = (4096u64, 16u64, FULL);
    let count = chance.between(1, 8);
    let (mut memory, mut rows, mut known) = (Memory::default(), Vec::new(), Vec::new());
    for number in 0..count {
        let start = START + number * 32 * pool_size;
        memory.add(start, vec![0; arena as usize]);
        let pools = chance.between(1, 6);
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        for pool in (0..pools).map(|pool| start + pool * pool_size) {
            let blocks = draw_pool(chance, &mut memory, pool, pool_size, alignment);
            let in_use = blocks.iter().filter(|block| block.2);
            in_use.for_each(|block| *used.entry(block.1).or_default() += 1);
        }
        rows.push(ArenaRow {
            number: number as u32,
            index: 3,
            address: start,
            carved: start + pools * pool_size,
            size: arena,
        });
        known.push((start, used));
    }
    let space = memory.space();
    let pools = read_pools(&NoWatcher, &space, rows, pool_size, alignment).expect("not cancelled");
    (space, pools, known)
}

#[test]
fn arenas_are_as_full_as_their_blocks() {
    let mut chance = Chance::new("arenas_are_as_full_as_their_blocks");
    for _ in 0..60 {
        let (space, pools, known) = several(&mut chance);
        let bytes = |used: &BTreeMap<u64, u64>| used.iter().map(|(size, count)| size * count).sum::<u64>();
        // Some of these limits are exactly the percentage to which an arena is filled.
        let exact = known.iter().map(|arena| (bytes(&arena.1) * 100).div_ceil(FULL).max(1));
        let percents: Vec<u64> = exact.chain([1, 10, 50, 100]).collect::<BTreeSet<_>>().into_iter().collect();
        let (spread, fill, emptiest) = occupancy(&NoWatcher, &pools, &percents, 3).expect("not cancelled");
        let with = |size: u64| known.iter().filter(move |arena| arena.1.contains_key(&size));
        let sizes: BTreeSet<u64> = known.iter().flat_map(|arena| arena.1.keys().copied()).collect();
        assert_eq!(spread.iter().map(|row| row.block_size).collect::<BTreeSet<_>>(), sizes);
        for row in &spread {
            let alone = || with(row.block_size).filter(|arena| arena.1.len() == 1);
            assert_eq!(row.arenas, with(row.block_size).count() as u64);
            assert_eq!(row.alone, alone().count() as u64);
            assert_eq!(row.blocks_alone, alone().map(|arena| arena.1[&row.block_size]).sum::<u64>());
        }
        let in_use: Vec<u64> = known.iter().map(|arena| bytes(&arena.1)).filter(|bytes| *bytes > 0).collect();
        let mut below = 0;
        for row in &fill {
            let limit = |percent: u64| percent * FULL;
            let own =
                || in_use.iter().filter(|bytes| limit(below) < *bytes * 100 && *bytes * 100 <= limit(row.percent));
            assert_eq!((row.arenas, row.used_bytes), (own().count() as u64, own().sum()), "{}", row.percent);
            below = row.percent;
        }
        let mut order: Vec<(u64, u64)> = known.iter().map(|arena| (bytes(&arena.1), arena.0)).collect();
        order.retain(|(bytes, _)| *bytes > 0);
        order.sort_unstable();
        order.truncate(3);
        assert_eq!(emptiest.iter().map(|row| (row.used_bytes, row.address)).collect::<Vec<_>>(), order);
        for row in &emptiest {
            let own = &known.iter().find(|arena| arena.0 == row.address).expect("an arena").1;
            let shares: BTreeMap<u64, u64> = row.shares.iter().map(|share| (share.block_size, share.used)).collect();
            assert_eq!(&shares, own);
            let most = chance.between(1, 40) as usize;
            let listed = used_blocks(&space, &pools, row.address, most);
            assert_eq!(listed.len() as u64, own.values().sum::<u64>().min(most as u64));
            assert!(listed.iter().all(|(block, size)| pools.find(&space, *block) == Some((*block, *size, "used"))));
        }
    }
}
