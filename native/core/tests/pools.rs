//! Test the pools of pymalloc against a plain list of blocks.

mod support;

use gdbheap_access::memory::Space;
use gdbheap_core::allocators::pymalloc::{read_pools, ArenaRow, Pools};
use support::{Chance, Memory, Unwatched};

const START: u64 = 0x7f00_0000_0000;
const HEADER: u64 = 48;

/// An arena as it lies in memory, and the state of each of its blocks.
struct Drawn {
    memory: Memory,
    row: ArenaRow,
    pool_size: u64,
    alignment: u64,
    /// All blocks that were handed out at least once: address, size, and whether the block is used.
    blocks: Vec<(u64, u64, bool)>,
}

fn draw(chance: &mut Chance) -> Drawn {
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
    Drawn { memory, row, pool_size, alignment, blocks }
}

/// Make the blocks of one pool. The first blocks were handed out; some of them are free, in a chain of random order.
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

fn read(drawn: &Drawn) -> (Space, Pools) {
    let space = drawn.memory.space();
    let pools = read_pools(&Unwatched, &space, vec![drawn.row], drawn.pool_size, drawn.alignment);
    (space, pools.expect("not cancelled"))
}

#[test]
fn blocks_are_those_of_the_arena() {
    let mut chance = Chance::new("blocks_are_those_of_the_arena");
    for _ in 0..60 {
        let drawn = draw(&mut chance);
        let (space, pools) = read(&drawn);
        assert_eq!(pools.damage, []);
        assert_eq!(pools.verify(&Unwatched, &space, 10).expect("not cancelled"), []);
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

/// Check that holes, headers, padding and used blocks cover the arena, so that a used block is in no hole.
#[test]
fn holes_hold_no_used_block() {
    let mut chance = Chance::new("holes_hold_no_used_block");
    for _ in 0..40 {
        let drawn = draw(&mut chance);
        let (space, pools) = read(&drawn);
        let holes = pools.holes(&Unwatched, &space, 0).expect("not cancelled");
        assert!(holes.windows(2).all(|pair| pair[0].end <= pair[1].start));
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
        let found = pools.verify(&Unwatched, &space, 10).expect("not cancelled");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].address, found[0].what),
            (block / drawn.pool_size * drawn.pool_size, "free list of a pool")
        );
    }
}
