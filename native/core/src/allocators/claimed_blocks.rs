//! Known blocks in memory that gdbheap does not walk. An unknown allocator owns this memory, or the program mapped it
//! itself.

use crate::allocators::block::Cell;
use crate::allocators::tally::Tally;
use gdbheap_access::bytes::range_at;

const OBJECT_AT: u64 = 80;

/// Blocks `[start, end)` that are known because fields of objects point to them, ascending and disjoint. An object's
/// block includes the bytes before the object, such as its PyGC_Head.
pub struct ClaimedBlocks {
    pub places: Vec<(u64, u64)>,
    /// Whether gdbheap must never read the blocks' bytes. The blocks may be mapped files, and reading a page of a file
    /// brings it into memory.
    pub closed: bool,
}

impl ClaimedBlocks {
    /// Return the block that contains `address`; None if there is none.
    #[inline]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        range_at(&self.places, address).map(|index| self.block_of(index as u64))
    }

    pub(crate) fn block_of(&self, number: u64) -> Cell {
        let (start, end) = self.places[number as usize];
        Cell::plain(number, start, end - start)
    }

    pub(crate) fn used(&self) -> Tally {
        Tally { count: self.places.len() as u64, bytes: self.bytes() }
    }

    /// Return whether an object may begin at `address`: at most 80 bytes after the start of a known block. The block
    /// must have at least `least` bytes.
    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        self.block_at(address).is_some_and(|place| address - place.address <= OBJECT_AT && place.size >= least)
    }

    /// Return the total size of all blocks in bytes.
    pub fn bytes(&self) -> u64 {
        self.places.iter().map(|(start, end)| end - start).sum()
    }

    /// Return at most `most` blocks, evenly spread, as `(start, size)`.
    pub fn sample(&self, most: usize) -> Vec<(u64, u64)> {
        let step = self.places.len().div_ceil(most.max(1)).max(1);
        self.places.iter().step_by(step).map(|(start, end)| (*start, end - start)).collect()
    }

    /// Return `(start, size)` of the block that contains `address`; None if there is none.
    pub fn find(&self, address: u64) -> Option<(u64, u64)> {
        self.block_at(address).map(|place| (place.address, place.size))
    }
}
