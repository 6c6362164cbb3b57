//! Lists of blocks and holes of an allocator whose memory is read as a whole.

use crate::allocators::block_list::{BlockList, BlockQuery};
use crate::allocators::damage::Damage;
use crate::allocators::holes::Hole;
use crate::top_rows::TopRows;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::cmp::Reverse;

/// An allocator that lists its blocks and its holes.
pub trait BlockLister: Send + Sync {
    /// Return the damage that was found while the memory was read.
    fn damage(&self) -> &[Damage];

    /// Return maximal runs of at least `minimum` unused bytes.
    fn holes(&self, watcher: &dyn Watcher, minimum: u64) -> Result<Vec<Hole>>;

    /// List the blocks that pass the filter.
    fn list_blocks(&self, asked: &BlockQuery) -> BlockList;

    /// Return the used blocks `(address, size)` of `least` to `largest` bytes, ascending by address.
    fn used_of_sizes(&self, least: u64, largest: u64) -> Box<dyn Iterator<Item = (u64, u64)> + '_>;

    /// Return the first `most` used blocks `(address, size)` of `least` to `largest` bytes.
    fn first_used(&self, least: u64, largest: u64, most: usize) -> Vec<(u64, u64)> {
        self.used_of_sizes(least, largest).take(most).collect()
    }

    /// Return the `most` largest used blocks `(address, size)` of at least `least` bytes, largest first.
    fn largest_used(&self, least: u64, most: usize) -> Vec<(u64, u64)> {
        let (mut found, key) = (TopRows::new(most), |block: &(u64, u64)| (Reverse(block.1), block.0));
        self.used_of_sizes(least, u64::MAX).for_each(|block| found.put(block, key));
        found.finish(key)
    }
}
