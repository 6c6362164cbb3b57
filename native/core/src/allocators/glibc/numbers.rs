//! The numbers of chunks as blocks: one number for each place where a chunk may begin, over all regions.

use crate::allocators::block::Cell;
use crate::allocators::glibc::chunks::{ChunkState, Chunks, Region, CHUNK_HEADER, GRAIN};

impl Chunks {
    /// Return the limit of block numbers: the number of every block is smaller. Every place where a chunk may begin has
    /// a number.
    pub(crate) fn block_numbers(&self) -> u64 {
        self.firsts[self.regions.len()]
    }

    /// Return the number of the region's first block.
    #[inline]
    pub(crate) fn first_block(&self, region: usize) -> u64 {
        self.firsts[region]
    }

    /// Return the region that contains the block with this number.
    pub(crate) fn region_of_number(&self, number: u64) -> &Region {
        &self.regions[self.place_of_number(number)]
    }

    fn place_of_number(&self, number: u64) -> usize {
        self.firsts.partition_point(|first| *first <= number).saturating_sub(1)
    }

    /// Return the chunk [start, end) of a region as a numbered block (`Cell`).
    #[inline(always)]
    pub(crate) fn cell(&self, region: usize, start: u64, end: u64) -> Cell {
        let number = self.firsts[region] + self.regions[region].index(start);
        // The last eight bytes that belong to a chunk are the next chunk's prev_size.
        Cell { number, address: start + CHUNK_HEADER, size: end - start, end: end + 8 }
    }

    /// Return the used chunk whose bytes include `address`; None if there is none.
    #[inline]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        match self.holder_in(address)? {
            (region, (start, end, ChunkState::Used)) => Some(self.cell(region, start, end)),
            _ => None,
        }
    }

    pub(crate) fn block_of(&self, number: u64) -> Cell {
        let place = self.place_of_number(number);
        let region = &self.regions[place];
        let start = region.address(number - self.firsts[place]);
        let (start, end, _) = region.find(start).unwrap_or((start, start + GRAIN, ChunkState::Used));
        self.cell(place, start, end)
    }

    /// Show every used chunk.
    pub(crate) fn show_blocks(&self, mut show: impl FnMut(Cell)) {
        for (place, region) in self.regions.iter().enumerate() {
            let used = region.all().filter(|(_, _, state)| *state == ChunkState::Used);
            used.for_each(|(start, end, _)| show(self.cell(place, start, end)));
        }
    }

    /// Return the user address and the size of the chunk that contains `address`. The chunk may be used or free. None
    /// outside all regions.
    pub(crate) fn slot_at(&self, address: u64) -> Option<(u64, u64)> {
        self.locate(address).map(|(start, end, _)| (start + CHUNK_HEADER, end - start))
    }

    /// Return (index of the region, block) for the block whose bytes include `address` (see `holder`). None if there is
    /// none.
    #[inline]
    fn holder_in(&self, address: u64) -> Option<(usize, (u64, u64, ChunkState))> {
        let in_region = |address: u64| {
            let place = self.region_of(address)?;
            Some((place, self.regions[place].find(address)?))
        };
        in_region(address.wrapping_sub(8)).or_else(|| in_region(address))
    }
}
