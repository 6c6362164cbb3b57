//! CPython's pymalloc: its arenas, their pools, and the blocks in the pools that are in use.

pub(crate) mod locate;
pub(crate) mod occupancy;
pub(crate) mod parts;
pub(crate) mod pools;

pub use locate::{find_arena_tables, find_list_ends};
pub use occupancy::{occupancy, used_blocks, Fill, OccupiedArena, Share, Spread};
pub use pools::{read_pools, ArenaRow, Pools};
