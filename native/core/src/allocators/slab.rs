//! Slabs: memory that holds blocks of one size, and goes back only as a whole.

/// A slab [start, end) of the allocator with the number `root` among several. Blocks may move to other slabs of the same
/// `keeper` (an arena, a thread's heap) and `size`. `room`: how many blocks fit; `live`: how many are used, or cannot move.
/// `waiting`: of these, how many are free in caches that nothing empties. A block that moves takes the place of one of them, and
/// its old place may wait there afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSlab {
    pub root: u32,
    pub keeper: u64,
    pub size: u64,
    pub start: u64,
    pub end: u64,
    pub room: u64,
    pub live: u64,
    pub waiting: u64,
}
