//! CPython's pymalloc: arenas, their pools, and which blocks in the pools are in use.

pub(crate) mod locate;
pub(crate) mod occupancy;
pub(crate) mod parts;
pub(crate) mod pools;

pub use locate::{find_arena_tables, find_list_ends};
pub use occupancy::{occupancy, used_blocks, Fill, Occupied, Share, Spread};
pub use parts::PoolHole;
pub use pools::{read_pools, ArenaRow, Pools};
