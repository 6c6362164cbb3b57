//! Blocks: identity, address and size.

/// A block's identity: the index of its store among those of a target, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) store: u32,
    pub(crate) number: u64,
}

/// A block as its store describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) number: u64,
    /// The address that the program was given.
    pub(crate) address: u64,
    /// The size in bytes, with the allocator's overhead.
    pub(crate) size: u64,
    /// The end of the bytes that the program may use.
    pub(crate) end: u64,
}

impl Cell {
    /// Return a block without overhead.
    #[inline(always)]
    pub(crate) fn plain(number: u64, address: u64, size: u64) -> Cell {
        Cell { number, address, size, end: address + size }
    }

    #[inline(always)]
    pub(crate) fn of(self, store: u32) -> Block {
        let Cell { number, address, size, end } = self;
        Block { place: Place { store, number }, address, size, end }
    }
}

/// A block that an allocator handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub(crate) place: Place,
    /// The address that the program was given.
    pub(crate) address: u64,
    /// The size in bytes, with the allocator's overhead.
    pub(crate) size: u64,
    /// The end of the bytes that the program may use.
    pub(crate) end: u64,
}

impl Block {
    /// Return whether the next block's header begins at `address`. The header's first eight bytes still belong to this
    /// block.
    #[inline]
    pub(crate) fn shares_header_at(&self, address: u64) -> bool {
        address > self.address && address + 8 == self.end && self.end + 8 == self.address + self.size
    }
}

/// A block that is not free, [start, end).
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The block cannot be freed.
    pub(crate) fixed: bool,
    /// The block is the end of the heap: free bytes before it cannot be returned either.
    pub(crate) ends: bool,
}

/// Some of the blocks of a group (a pool), one bit for each, by position in the group.
pub(crate) type GroupBits = [u64; MAX_IN_GROUP / 64];

/// The most blocks in a group: a 16 KiB pool of 16-byte blocks, or a 4 KiB pool of 8-byte ones.
pub(crate) const MAX_IN_GROUP: usize = 1024;
