//! How full pymalloc's arenas are, by size class: from the headers of the pools alone.

use crate::pools::{Arena, Pools};
use crate::space::Space;
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// Block size, pools that hold blocks, and those blocks.
type Share = (u64, u64, u64);

/// An arena that holds blocks: its index and address, its used bytes, and what each size class has in it.
type Occupied = (u32, u64, u64, Vec<Share>);

/// Of one size class: block size, arenas in which it has blocks, arenas in which nothing else has, blocks in these.
type Spread = (u64, u64, u64, u64);

/// Of the arenas that are filled to at most so many percent: how many, and the used bytes in them.
type Fill = (u64, u64, u64);

fn shares(pools: &Pools, arena: &Arena) -> Vec<Share> {
    let mut classes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for pool in pools.pools_of(arena).iter().filter(|pool| !pool.is_free()) {
        let row = classes.entry(pool.block_size(pools.alignment)).or_default();
        *row = (row.0 + 1, row.1 + u64::from(pool.used));
    }
    classes.into_iter().map(|(size, (pools, used))| (size, pools, used)).collect()
}

/// How the blocks of each size class are spread over arenas; how many arenas are filled to each of `percents`,
/// ascending; and the `most` arenas with the fewest used bytes.
#[pyfunction]
pub fn occupancy(
    py: Python<'_>,
    pools: &Pools,
    percents: Vec<u64>,
    most: usize,
) -> PyResult<(Vec<Spread>, Vec<Fill>, Vec<Occupied>)> {
    let mut spread: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
    let mut fill: Vec<Fill> = percents.into_iter().map(|percent| (percent, 0, 0)).collect();
    let mut emptiest: Vec<Occupied> = Vec::new();
    for (place, arena) in pools.arenas.iter().enumerate() {
        if place % 1024 == 0 {
            py.check_signals()?;
        }
        let shares = shares(pools, arena);
        let alone = shares.len() == 1;
        for (size, _, used) in &shares {
            let row = spread.entry(*size).or_default();
            let more = if alone { (1, *used) } else { (0, 0) };
            *row = (row.0 + 1, row.1 + more.0, row.2 + more.1);
        }
        let used = shares.iter().map(|(size, _, used)| size * used).sum::<u64>();
        if used == 0 {
            continue;
        }
        let bytes = (arena.end - arena.address).max(1);
        if let Some(row) = fill.iter_mut().find(|(percent, ..)| used * 100 <= percent * bytes) {
            *row = (row.0, row.1 + 1, row.2 + used);
        }
        let at = emptiest.partition_point(|(_, address, other, _)| (*other, *address) < (used, arena.address));
        if at < most {
            emptiest.insert(at, (arena.number, arena.address, used, shares));
            emptiest.truncate(most);
        }
    }
    let spread = spread.into_iter().map(|(size, (arenas, alone, blocks))| (size, arenas, alone, blocks)).collect();
    Ok((spread, fill, emptiest))
}

/// The first `most` used blocks of the arena at `address`: `(block, size)`.
#[pyfunction]
pub fn used_blocks(space: &Space, pools: &Pools, address: u64, most: usize) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let Some(arena) = pools.arenas.iter().find(|arena| arena.address == address) else { return found };
    for pool in pools.pools_of(arena).iter().filter(|pool| !pool.is_free()) {
        let size = pool.block_size(pools.alignment);
        pools.parts_of_pool(space, pool, &mut vec![0; pools.pool_size as usize], &mut |start, end, kind| {
            if kind == "used" {
                let starts = (start..end).step_by(size as usize).take(most.saturating_sub(found.len()));
                found.extend(starts.map(|block| (block, size)));
            }
        });
        if found.len() >= most {
            break;
        }
    }
    found
}
