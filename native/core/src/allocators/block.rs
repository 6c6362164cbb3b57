//! A block by who handed it out, and where it lies.

/// A block by its number among those of a store; `store` is an index into those of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) store: u32,
    pub(crate) number: u64,
}

/// A block as the store that handed it out knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) number: u64,
    /// What the program was given.
    pub(crate) address: u64,
    /// With what the allocator needs for it.
    pub(crate) size: u64,
    /// Where its bytes end.
    pub(crate) end: u64,
}

impl Cell {
    /// A block all of whose bytes are the program's.
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

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub(crate) place: Place,
    /// What the program was given.
    pub(crate) address: u64,
    /// With what the allocator needs for it.
    pub(crate) size: u64,
    /// Where its bytes end.
    pub(crate) end: u64,
}

impl Block {
    /// Whether the next block's header begins at `address`, with eight bytes that are this one's.
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
    /// It cannot go.
    pub(crate) fixed: bool,
    /// What is free before it would not go either: it is the end of the heap.
    pub(crate) ends: bool,
}

/// Some of the blocks of a group (a pool), by their places in it.
pub(crate) type GroupBits = [u64; MAX_IN_GROUP / 64];

/// Of a 16 KiB pool in 16-byte blocks, and of a 4 KiB pool in 8-byte ones.
pub(crate) const MAX_IN_GROUP: usize = 1024;
