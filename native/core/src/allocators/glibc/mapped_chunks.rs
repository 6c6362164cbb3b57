//! The chunks of malloc that have a mapping of their own (mmapped chunks).

use super::chunks::CHUNK_HEADER;
use crate::allocators::block::Cell;
use crate::allocators::tally::Tally;
use gdbheap_access::bytes::range_at;

/// Mmapped chunks in use, `[chunk, end)`, ascending and disjoint.
pub struct MappedChunks {
    pub(crate) chunks: Vec<(u64, u64)>,
}

impl MappedChunks {
    /// Make the store from `chunks`, which may be in any order.
    pub fn new(mut chunks: Vec<(u64, u64)>) -> MappedChunks {
        chunks.sort_unstable();
        MappedChunks { chunks }
    }

    #[inline]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        range_at(&self.chunks, address).map(|index| self.block_of(index as u64))
    }

    pub(crate) fn block_of(&self, number: u64) -> Cell {
        let (chunk, end) = self.chunks[number as usize];
        Cell { number, address: chunk + CHUNK_HEADER, size: end - chunk, end }
    }

    pub(crate) fn used(&self) -> Tally {
        let mut sum = Tally::default();
        self.chunks.iter().for_each(|(chunk, end)| sum.add(end - chunk));
        sum
    }
}
