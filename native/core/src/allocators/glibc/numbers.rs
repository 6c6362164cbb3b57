//! The numbers of chunks as blocks: one number for each place where a chunk may begin, over all regions.

use crate::allocators::block::Cell;
use crate::allocators::glibc::chunks::{Chunks, Region, State, CHUNK_HEADER, GRAIN};

impl Chunks {
    /// Return a number above the numbers of all blocks. Every place where a chunk may begin has a number.
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

    /// Return the description of the block that is the chunk [start, end) of a region.
    #[inline(always)]
    pub(crate) fn cell(&self, region: usize, start: u64, end: u64) -> Cell {
        let number = self.firsts[region] + self.regions[region].index(start);
        // The last eight bytes that belong to a chunk are the next chunk's prev_size.
        Cell { number, address: start + CHUNK_HEADER, size: end - start, end: end + 8 }
    }

    /// Return the used chunk whose bytes include `address`.
    #[inline]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        match self.holder_in(address)? {
            (region, (start, end, State::Used)) => Some(self.cell(region, start, end)),
            _ => None,
        }
    }

    pub(crate) fn block_of(&self, number: u64) -> Cell {
        let place = self.place_of_number(number);
        let region = &self.regions[place];
        let start = region.address(number - self.firsts[place]);
        let (start, end, _) = region.find(start).unwrap_or((start, start + GRAIN, State::Used));
        self.cell(place, start, end)
    }

    /// Show every used chunk.
    pub(crate) fn show_blocks(&self, mut show: impl FnMut(Cell)) {
        for (place, region) in self.regions.iter().enumerate() {
            let used = region.all().filter(|(_, _, state)| *state == State::Used);
            used.for_each(|(start, end, _)| show(self.cell(place, start, end)));
        }
    }

    /// Return the user address and the size of the chunk that contains `address`, whether the chunk is used or free.
    pub(crate) fn slot_at(&self, address: u64) -> Option<(u64, u64)> {
        self.locate(address).map(|(start, end, _)| (start + CHUNK_HEADER, end - start))
    }

    /// Return the index of a region, and in this region the block whose bytes include `address`; see `holder`.
    #[inline]
    fn holder_in(&self, address: u64) -> Option<(usize, (u64, u64, State))> {
        let in_region = |address: u64| {
            let place = self.region_of(address)?;
            Some((place, self.regions[place].find(address)?))
        };
        in_region(address.wrapping_sub(8)).or_else(|| in_region(address))
    }
}
