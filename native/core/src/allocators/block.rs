//! The descriptions of a block: its identity, address and size.

/// The identity of a block within a target. `store` is the index of its `Store` in the target's list of stores.
/// `number` is the block's number in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId {
    pub(crate) store: u32,
    pub(crate) number: u64,
}

/// A block within one store: its number, address, size and end. A `Block` also names the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) number: u64,
    /// The address that the allocator returned to the program.
    pub(crate) address: u64,
    /// The size of the block in bytes, including the allocator's overhead.
    pub(crate) size: u64,
    /// The address after the last byte of the block that the program may use.
    pub(crate) end: u64,
}

impl Cell {
    /// Return the description of a block that has no overhead: the program may use all of its `size` bytes.
    #[inline(always)]
    pub(crate) fn plain(number: u64, address: u64, size: u64) -> Cell {
        Cell { number, address, size, end: address + size }
    }

    #[inline(always)]
    pub(crate) fn of(self, store: u32) -> Block {
        let Cell { number, address, size, end } = self;
        Block { place: BlockId { store, number }, address, size, end }
    }
}

/// A block that an allocator handed out, with its identity among the blocks of all stores (`place`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub(crate) place: BlockId,
    /// The address that the allocator returned to the program.
    pub(crate) address: u64,
    /// The size of the block in bytes, including the allocator's overhead.
    pub(crate) size: u64,
    /// The address after the last byte of the block that the program may use.
    pub(crate) end: u64,
}

impl Block {
    /// Return whether `address` is the start of the next block's header. The first eight bytes of that header still
    /// belong to this block.
    #[inline]
    pub(crate) fn shares_header_at(&self, address: u64) -> bool {
        address > self.address && address + 8 == self.end && self.end + 8 == self.address + self.size
    }
}

/// The address range [start, end) of a block that is not free.
#[derive(Clone, Copy)]
pub(crate) struct UsedRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether the program cannot free the block: it is, for example, a fencepost, the top chunk, or another owner's
    /// memory.
    pub(crate) fixed: bool,
    /// Whether the block is the top chunk or lies after it. Free bytes directly before such a block cannot be returned.
    pub(crate) ends: bool,
}

/// A set of blocks of one group (such as a pool): one bit for each block, by its position in the group.
pub(crate) type GroupBits = [u64; MAX_IN_GROUP / 64];

/// The largest possible number of blocks in a group: a 16 KiB pool has at most 1,024 blocks of 16 bytes.
pub(crate) const MAX_IN_GROUP: usize = 1024;
