//! The occupancy of pymalloc's arenas, by size class. Only the headers of the pools are read.

use crate::allocators::part::Part;
use crate::allocators::pymalloc::pools::{Arena, Pools};
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;
use std::collections::BTreeMap;

/// The part of an arena that one size class occupies.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub block_size: u64,
    /// The number of pools of the class that contain used blocks.
    pub pools: u64,
    pub used: u64,
}

/// An arena that contains used blocks, with the part of each size class (`shares`).
#[derive(Clone, Debug)]
pub struct OccupiedArena {
    pub number: u32,
    pub address: u64,
    pub used_bytes: u64,
    pub shares: Vec<Share>,
}

/// The distribution of one size class over arenas.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread {
    pub block_size: u64,
    /// The number of arenas that contain used blocks of the class.
    pub arenas: u64,
    /// The number of arenas in which only this class has used blocks.
    pub alone: u64,
    /// The number of used blocks in the arenas that `alone` counts.
    pub blocks_alone: u64,
}

/// The number of arenas that are filled to at most `percent`, and the used bytes in these arenas. An arena counts only
/// for the lowest percentage that fits.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub percent: u64,
    pub arenas: u64,
    pub used_bytes: u64,
}

fn shares(pools: &Pools, arena: &Arena) -> Vec<Share> {
    let mut classes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for pool in pools.pools_of(arena).iter().filter(|pool| !pool.is_free()) {
        let row = classes.entry(pool.block_size(pools.alignment)).or_default();
        *row = (row.0 + 1, row.1 + u64::from(pool.used));
    }
    let share = |(block_size, (pools, used))| Share { block_size, pools, used };
    classes.into_iter().map(share).collect()
}

/// Return three results. The first is the distribution of each size class over the arenas. The second counts, for each
/// of `percents` (ascending), the arenas that are filled to at most this percentage. An arena counts only for the first
/// such percentage. The third has the `most` arenas with the fewest used bytes.
pub fn occupancy(
    watcher: &dyn Watcher,
    pools: &Pools,
    percents: &[u64],
    most: usize,
) -> Result<(Vec<Spread>, Vec<Fill>, Vec<OccupiedArena>)> {
    let mut spread: BTreeMap<u64, Spread> = BTreeMap::new();
    let mut fill: Vec<Fill> =
        percents.iter().map(|percent| Fill { percent: *percent, arenas: 0, used_bytes: 0 }).collect();
    let mut emptiest: Vec<OccupiedArena> = Vec::new();
    for (place, arena) in pools.arenas.iter().enumerate() {
        if place % 1024 == 0 {
            watcher.check()?;
        }
        let shares = shares(pools, arena);
        let alone = shares.len() == 1;
        for share in &shares {
            let row = spread.entry(share.block_size).or_default();
            (row.block_size, row.arenas) = (share.block_size, row.arenas + 1);
            if alone {
                (row.alone, row.blocks_alone) = (row.alone + 1, row.blocks_alone + share.used);
            }
        }
        let used_bytes = shares.iter().map(|share| share.block_size * share.used).sum::<u64>();
        if used_bytes == 0 {
            continue;
        }
        let bytes = (arena.end - arena.address).max(1);
        if let Some(row) = fill.iter_mut().find(|row| used_bytes * 100 <= row.percent * bytes) {
            (row.arenas, row.used_bytes) = (row.arenas + 1, row.used_bytes + used_bytes);
        }
        let order = |row: &OccupiedArena| (row.used_bytes, row.address);
        let at = emptiest.partition_point(|other| order(other) < (used_bytes, arena.address));
        if at < most {
            emptiest.insert(at, OccupiedArena { number: arena.number, address: arena.address, used_bytes, shares });
            emptiest.truncate(most);
        }
    }
    Ok((spread.into_values().collect(), fill, emptiest))
}

/// Return the first `most` used blocks of the arena at `address`, as `(block, size)`.
pub fn used_blocks(space: &Space, pools: &Pools, address: u64, most: usize) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let Some(arena) = pools.arenas.iter().find(|arena| arena.address == address) else { return found };
    for pool in pools.pools_of(arena).iter().filter(|pool| !pool.is_free()) {
        let size = pool.block_size(pools.alignment);
        pools.parts_of_pool(space, pool, &mut vec![0; pools.pool_size as usize], &mut |start, end, part| {
            if part == Part::Used {
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
