//! The classes and functions for CPython's pymalloc that Python sees.

use crate::detaching::detached;
use crate::heaps::BlockStore;
use crate::memory::Space;
use crate::records::{records, Argument};
use crate::rows::{
    all, answers, block, damage_rows, exports, size_class, used, Block, Damage, Hole, Member, Range, SizeClass,
};
use crate::watch::watched;
use gdbheap_core::allocators::pymalloc::{self, ArenaRow};
use gdbheap_core::allocators::{Store, Tally};
use gdbheap_core::Watcher;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// A pool, and the index of the pool's arena according to the pool's header.
pub struct PoolSample {
    pool: u64,
    arenaindex: u32,
}

records! {
    ArenaRow { number, index, address, carved, size }
    PoolSample { pool, arenaindex }
}

answers! {
    /// The number of used blocks of the arena with this number, and the bytes of these blocks.
    struct ArenaUse { number: u32, used: u64, bytes: u64 }

    /// A size class in an arena: the number of `pools` with used blocks, and the number of `used` blocks in these
    /// pools.
    struct Share of pymalloc::Share { block_size: u64, pools: u64, used: u64 }

    /// An arena with used blocks. `shares`: the size classes with blocks in this arena.
    struct OccupiedArena { number: u32, address: u64, used_bytes: u64, shares: Vec<Share> }

    /// The spread of a size class. `arenas`: the number of arenas in which it has blocks. `alone`: the number of arenas
    /// in which no other size class has blocks. `blocks_alone`: the number of blocks in the arenas of `alone`.
    struct Spread of pymalloc::Spread { block_size: u64, arenas: u64, alone: u64, blocks_alone: u64 }

    /// The number of arenas that are filled to at most `percent`, and the used bytes in them.
    struct Fill of pymalloc::Fill { percent: u64, arenas: u64, used_bytes: u64 }

    /// The spread of the blocks of each size class, the fill of arenas, and the arenas with the fewest used bytes.
    struct Occupancy { spread: Vec<Spread>, fill: Vec<Fill>, emptiest: Vec<OccupiedArena> }

    /// A word that points to a table of arenas: the address of the word, and the address of the table.
    struct ArenaTable { word: u64, table: u64 }
}

exports! {
    classes: Pools;
    functions: read_pools, occupancy, used_blocks, find_list_ends, find_arena_tables;
}

/// Every pool of one pymalloc, ordered by arena and address.
#[pyclass(frozen, extends = BlockStore)]
pub struct Pools(pub Arc<pymalloc::Pools>);

#[pymethods]
impl Pools {
    /// Return each size class that has pools, ordered by size.
    fn classes(&self) -> Vec<SizeClass> {
        self.0.classes().into_iter().map(size_class).collect()
    }

    /// Return [start, end) of every arena, by address.
    fn arena_ranges(&self) -> Vec<Range> {
        self.0.arena_ranges()
    }

    /// Return the number and the bytes of the used blocks of every arena, by address.
    fn used_of_arenas(&self) -> Vec<ArenaUse> {
        let row = |(number, used): (u32, Tally)| ArenaUse { number, used: used.count, bytes: used.bytes };
        self.0.used_of_arenas().into_iter().map(row).collect()
    }

    #[getter]
    fn pool_count(&self) -> usize {
        self.0.pool_count()
    }

    /// Return the use of `address`; None outside every arena. The state of the result is "used", "free", "pool header",
    /// "free pool" or "padding".
    fn find(&self, space: &Space, address: u64) -> Option<Block> {
        self.0.find(&space.0, address).map(block)
    }

    /// The damage that was found in the headers of pools.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }

    /// Check the free chains and counts of all pools with free blocks. Return the damage of at most `most` pools.
    fn verify(&self, py: Python<'_>, space: &Space, most: usize) -> PyResult<Vec<Damage>> {
        Ok(damage_rows(&watched(py, None, |watcher| self.0.verify(watcher, &space.0, most))?))
    }

    /// Return the maximal runs of unused bytes, of at least `minimum` bytes. Adjacent free pools are merged, and so are
    /// adjacent free blocks of one pool.
    fn holes(&self, py: Python<'_>, space: &Space, minimum: u64) -> PyResult<Vec<Hole>> {
        let holes = watched(py, None, |watcher| self.0.holes(watcher, &space.0, minimum))?;
        Ok(all(holes))
    }
}

/// Read the headers of every pool of one pymalloc. `arenas`: its arenas, in any order, each with these fields:
///
/// - `index`: the index that the headers of the arena's pools must contain.
/// - `number`: the unique number of the arena, because interpreters may have their own tables of arenas.
/// - `carved`: the arena's `pool_address`.
#[pyfunction]
pub fn read_pools(
    py: Python<'_>,
    space: &Space,
    arenas: Argument<Vec<ArenaRow>>,
    pool_size: u64,
    alignment: u64,
) -> PyResult<Py<Pools>> {
    let read =
        move |watcher: &dyn Watcher, space: &_| pymalloc::read_pools(watcher, space, arenas.0, pool_size, alignment);
    let pools = space.do_reads(py, read)?;
    let pools = Arc::new(pools);
    BlockStore::with(py, Store::Pools(pools.clone()), Pools(pools))
}

fn occupied(arena: pymalloc::OccupiedArena) -> OccupiedArena {
    let pymalloc::OccupiedArena { number, address, used_bytes, shares } = arena;
    OccupiedArena { number, address, used_bytes, shares: all(shares) }
}

/// Return three facts about arenas: the spread of the blocks of each size class over them; the number of arenas filled
/// up to each of `percents` (ascending); and the `most` emptiest arenas.
#[pyfunction]
pub fn occupancy(py: Python<'_>, pools: &Pools, percents: Vec<u64>, most: usize) -> PyResult<Occupancy> {
    let found = watched(py, None, |watcher| pymalloc::occupancy(watcher, &pools.0, &percents, most))?;
    let (spread, fill, emptiest) = found;
    Ok(Occupancy { spread: all(spread), fill: all(fill), emptiest: emptiest.into_iter().map(occupied).collect() })
}

/// Return the first `most` used blocks of the arena at `address`.
#[pyfunction]
pub fn used_blocks(space: &Space, pools: &Pools, address: u64, most: usize) -> Vec<Member> {
    pymalloc::used_blocks(&space.0, &pools.0, address, most).into_iter().map(used).collect()
}

/// Return possible addresses of the array `usedpools`, each with the number of lists of pools that end in the array.
/// The last pool of a list points to the head of the list: the address 16 bytes before the two pointers of its size
/// class in `usedpools`. Only the headers of the pools in the ranges are read.
#[pyfunction]
pub fn find_list_ends(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<Range>,
    pool_size: u64,
    alignment: u64,
) -> PyResult<HashMap<u64, u32>> {
    watched(py, None, |watcher| pymalloc::find_list_ends(watcher, &space.0, &ranges, pool_size, alignment))
}

/// Return the words in [start, end) that point to a table of `struct arena_object` (48 bytes each). For each of the
/// `samples`, the entry with its index must describe an arena that contains its pool. `homes`: where the table may lie,
/// ascending.
#[pyfunction]
pub fn find_arena_tables(
    py: Python<'_>,
    space: &Space,
    start: u64,
    end: u64,
    samples: Argument<Vec<PoolSample>>,
    homes: Vec<Range>,
    largest_arena: u64,
) -> Vec<ArenaTable> {
    let samples: Vec<(u64, u32)> = samples.0.iter().map(|sample| (sample.pool, sample.arenaindex)).collect();
    let row = |(word, table)| ArenaTable { word, table };
    let find = || pymalloc::find_arena_tables(&space.0, (start, end), &samples, &homes, largest_arena);
    detached(py, find).into_iter().map(row).collect()
}
