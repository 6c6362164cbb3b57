//! Slabs: memory for blocks of one size that is returned only as a whole.

/// A slab [start, end). `root`: the number of its allocator, if there are several of its kind. Its blocks may move to
/// other slabs of the same `keeper` (an arena or a thread's heap) and `size`. `room`: the number of blocks that fit
/// into the slab. `live`: the number of blocks that are used or cannot move. `waiting`: the number of these blocks that
/// are free, but stay in caches. A block that moves can take the place of a waiting block; its old place then becomes a
/// waiting block.
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
