//! CPython's pymalloc.

use crate::memory::Space;
use crate::rows::{damage_rows, DamageRow};
use crate::watch::watched;
use gdbheap_core::allocators::pymalloc::{self, ArenaRow, Fill, Occupied, PoolHole, Share, Spread};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

type Neighbour = Option<(u64, u64, &'static str)>;
type HoleRow = (u64, u64, u32, Neighbour, Neighbour);

/// Block size, pools that hold blocks, and those blocks.
type ShareRow = (u64, u64, u64);

/// An arena that holds blocks: its number and address, its used bytes, and what each size class has in it.
type OccupiedRow = (u32, u64, u64, Vec<ShareRow>);

/// Of one size class: block size, arenas in which it has blocks, arenas in which nothing else has, blocks in these.
type SpreadRow = (u64, u64, u64, u64);

/// Of the arenas that are filled to at most so many percent: how many, and the used bytes in them.
type FillRow = (u64, u64, u64);

/// Every pool of one pymalloc, by arena and address.
#[pyclass(frozen)]
pub struct Pools(pub Arc<pymalloc::Pools>);

#[pymethods]
impl Pools {
    /// `(block size, pools, used blocks, free blocks)` of each size class that has pools, by size.
    fn classes(&self) -> Vec<(u64, u64, u64, u64)> {
        self.0.classes()
    }

    /// `(address, end)` of every arena, by address.
    fn arena_ranges(&self) -> Vec<(u64, u64)> {
        self.0.arena_ranges()
    }

    /// `(number, used blocks, their bytes)` of every arena, by address.
    fn used_of_arenas(&self) -> Vec<(u32, u64, u64)> {
        self.0.used_of_arenas().into_iter().map(|(number, used)| (number, used.count, used.bytes)).collect()
    }

    #[getter]
    fn pool_count(&self) -> usize {
        self.0.pool_count()
    }

    /// The block that holds `address`: `(block address, size, state)`; None outside every arena. The state is used,
    /// free, `pool header`, `free pool` or `padding`.
    fn find(&self, space: &Space, address: u64) -> Option<(u64, u64, &'static str)> {
        self.0.find(&space.0, address)
    }

    /// Damage met in the headers: `(address, what, expected, found)`.
    #[getter]
    fn damage(&self) -> Vec<DamageRow> {
        damage_rows(&self.0.damage)
    }

    /// At most `most` pools whose free chain or count does not fit: `(address, what, expected, found)`. Reads every
    /// pool that has free blocks.
    fn verify(&self, py: Python<'_>, space: &Space, most: usize) -> PyResult<Vec<DamageRow>> {
        Ok(damage_rows(&watched(py, None, |watcher| self.0.verify(watcher, &space.0, most))?))
    }

    /// Maximal runs of bytes that nobody holds, of at least `minimum`: free pools together, free blocks of one pool
    /// together. `(start, end, number of the arena, before, after)`, the neighbours as `(address, size, what)`.
    fn holes(&self, py: Python<'_>, space: &Space, minimum: u64) -> PyResult<Vec<HoleRow>> {
        let row = |hole: PoolHole| (hole.start, hole.end, hole.arena, hole.before, hole.after);
        let holes = watched(py, None, |watcher| self.0.holes(watcher, &space.0, minimum))?;
        Ok(holes.into_iter().map(row).collect())
    }
}

/// Reads the headers of every pool. `arenas`: `(number, index, address, pool_address, arena size)`, any order; the index
/// is what its pools must say, the number is what it is called: interpreters may have tables of their own.
#[pyfunction]
pub fn read_pools(
    py: Python<'_>,
    space: &Space,
    arenas: Vec<(u32, u32, u64, u64, u64)>,
    pool_size: u64,
    alignment: u64,
) -> PyResult<Pools> {
    let arena = |(number, index, address, carved, size)| ArenaRow { number, index, address, carved, size };
    let arenas = arenas.into_iter().map(arena).collect();
    let pools = watched(py, None, |watcher| pymalloc::read_pools(watcher, &space.0, arenas, pool_size, alignment))?;
    Ok(Pools(Arc::new(pools)))
}

fn occupied_row(arena: Occupied) -> OccupiedRow {
    let share = |share: Share| (share.block_size, share.pools, share.used);
    (arena.number, arena.address, arena.used_bytes, arena.shares.into_iter().map(share).collect())
}

/// How the blocks of each size class are spread over arenas; how many arenas are filled to each of `percents`,
/// ascending; and the `most` arenas with the fewest used bytes.
#[pyfunction]
pub fn occupancy(
    py: Python<'_>,
    pools: &Pools,
    percents: Vec<u64>,
    most: usize,
) -> PyResult<(Vec<SpreadRow>, Vec<FillRow>, Vec<OccupiedRow>)> {
    let found = watched(py, None, |watcher| pymalloc::occupancy(watcher, &pools.0, &percents, most))?;
    let (spread, fill, emptiest) = found;
    let spread_row = |row: Spread| (row.block_size, row.arenas, row.alone, row.blocks_alone);
    let fill_row = |row: Fill| (row.percent, row.arenas, row.used_bytes);
    Ok((
        spread.into_iter().map(spread_row).collect(),
        fill.into_iter().map(fill_row).collect(),
        emptiest.into_iter().map(occupied_row).collect(),
    ))
}

/// The first `most` used blocks of the arena at `address`: `(block, size)`.
#[pyfunction]
pub fn used_blocks(space: &Space, pools: &Pools, address: u64, most: usize) -> Vec<(u64, u64)> {
    pymalloc::used_blocks(&space.0, &pools.0, address, most)
}

/// Heads of the lists of pools that lie in the ranges: `{usedpools: lists that end at its heads}`. A pool that is the last
/// of its list points to the head, 16 bytes before the pair of its size class. Looks at the pools' headers only.
#[pyfunction]
pub fn find_list_ends(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    pool_size: u64,
    alignment: u64,
) -> PyResult<HashMap<u64, u32>> {
    watched(py, None, |watcher| pymalloc::find_list_ends(watcher, &space.0, &ranges, pool_size, alignment))
}

/// Addresses of words in [start, end) that point to a table of `struct arena_object` (48 bytes each) which fits every
/// sample `(pool address, arenaindex)`; `homes` are the ranges in which the table may lie, ascending.
#[pyfunction]
pub fn find_arena_tables(
    py: Python<'_>,
    space: &Space,
    start: u64,
    end: u64,
    samples: Vec<(u64, u32)>,
    homes: Vec<(u64, u64)>,
    largest_arena: u64,
) -> Vec<(u64, u64)> {
    py.detach(|| pymalloc::find_arena_tables(&space.0, (start, end), &samples, &homes, largest_arena))
}
