//! Lists of an allocator's blocks: one row for each block, filtered and sorted.

use crate::allocators::part::Part;
use crate::allocators::tally::Tally;
use crate::top_rows::TopRows;
use gdbheap_access::error::{Error, Result};
use std::str::FromStr;

/// The order of a list of blocks: by descending size, by ascending address, or by ascending arena number.
#[derive(Clone, Copy, Debug)]
pub enum BlockOrder {
    Size,
    Address,
    Arena,
}

impl FromStr for BlockOrder {
    type Err = Error;

    fn from_str(text: &str) -> Result<BlockOrder> {
        match text {
            "size" => Ok(BlockOrder::Size),
            "address" => Ok(BlockOrder::Address),
            "arena" => Ok(BlockOrder::Arena),
            _ => Err(Error::invalid("the order is size, address or arena")),
        }
    }
}

impl BlockOrder {
    pub(crate) fn key(self, address: u64, size: u64, arena: Option<u32>) -> (u64, u64, u64) {
        match self {
            BlockOrder::Size => (!size, address, 0),
            BlockOrder::Address => (address, 0, 0),
            BlockOrder::Arena => (arena.map_or(u64::MAX, u64::from), !size, address),
        }
    }
}

/// A filter for blocks, and the order and the length of the list of blocks that pass it.
#[derive(Clone, Copy, Debug)]
pub struct BlockQuery {
    /// The smallest accepted size in bytes. `largest` is the largest one.
    pub least: u64,
    pub largest: u64,
    /// Whether to list the blocks in use. If false, free blocks are listed.
    pub used: bool,
    /// If `used` is false: whether to list the free blocks in thread caches, instead of all other free blocks.
    pub cached: bool,
    /// The only accepted arena, as (index of its allocator, number of the arena there); None for all arenas.
    pub arena: Option<(u32, u32)>,
    pub order: BlockOrder,
    /// The largest number of blocks in the list.
    pub most: usize,
}

/// A block in a list; `arena` is its arena's number, or None if the allocator has no arenas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRow {
    pub address: u64,
    pub size: u64,
    pub arena: Option<u32>,
}

impl BlockQuery {
    pub(crate) fn takes(&self, size: u64) -> bool {
        (self.least..=self.largest).contains(&size)
    }

    /// Return whether the filter accepts blocks of this kind: used, in a thread's cache, or free elsewhere.
    pub(crate) fn takes_part(&self, part: Part) -> bool {
        match part {
            Part::Used => self.used,
            Part::Cached => !self.used && self.cached,
            _ => !self.used && !self.cached,
        }
    }

    /// Return whether the filter accepts the blocks of an arena. `root` is the index of the arena's allocator, `arena`
    /// the number of the arena in that allocator.
    pub(crate) fn takes_arena(&self, root: u32, arena: u32) -> bool {
        self.arena.is_none_or(|wanted| wanted == (root, arena))
    }

    /// List the blocks `(address, size)` of an allocator without arenas. The list is empty if the filter names an
    /// arena.
    pub(crate) fn without_arenas(&self, all: impl Iterator<Item = (u64, u64)>) -> BlockList {
        let is_none = self.arena.is_some();
        self.rows_of(all.filter(|_| !is_none).map(|(address, size)| BlockRow { address, size, arena: None }))
    }

    /// Sort blocks that have already passed the filter into a list.
    pub(crate) fn rows_of(&self, all: impl Iterator<Item = BlockRow>) -> BlockList {
        let (mut rows, mut sum) = (TopRows::new(self.most), Tally::default());
        let key = |row: &BlockRow| self.order.key(row.address, row.size, row.arena);
        for row in all {
            sum.add(row.size);
            rows.put(row, key);
        }
        BlockList { count: sum.count, bytes: sum.bytes, rows: rows.finish(key) }
    }
}

/// The number and the total size of all blocks that pass the filter, and the first rows of the list.
#[derive(Clone, Debug, Default)]
pub struct BlockList {
    pub count: u64,
    pub bytes: u64,
    pub rows: Vec<BlockRow>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(order: BlockOrder, most: usize) -> BlockQuery {
        BlockQuery { least: 16, largest: 64, used: false, cached: false, arena: None, order, most }
    }

    /// Check that the number and the total size include the blocks that are not listed. Check that blocks of the same
    /// size are sorted by ascending address.
    #[test]
    fn rows() {
        let all = [(100, 16), (300, 64), (200, 64)];
        let shown = |order, most| {
            let found = asked(order, most).without_arenas(all.into_iter());
            assert_eq!((found.count, found.bytes), (3, 144));
            found.rows.iter().map(|row| (row.address, row.size)).collect::<Vec<_>>()
        };
        assert_eq!(shown(BlockOrder::Size, 2), [(200, 64), (300, 64)]);
        assert_eq!(shown(BlockOrder::Address, 2), [(100, 16), (200, 64)]);
        assert!(asked(BlockOrder::Size, 2).takes(64) && !asked(BlockOrder::Size, 2).takes(65));
    }

    /// Check that dropping rows early gives the same rows as dropping them at the end, and that rows without an arena
    /// come last.
    #[test]
    fn many_rows() {
        let row = |number: u64| BlockRow {
            address: 16 * (number * 7919 % 20011),
            size: 16 + number % 3,
            arena: (number % 5 > 0).then_some((number % 5) as u32),
        };
        let key = |row: &BlockRow| (row.arena.unwrap_or(u32::MAX), std::cmp::Reverse(row.size), row.address);
        let mut all: Vec<BlockRow> = (0..20011).map(row).collect();
        let found = asked(BlockOrder::Arena, 10).rows_of(all.iter().copied());
        all.sort_unstable_by_key(key);
        assert_eq!((found.count, &found.rows[..]), (20011, &all[..10]));
        let only = BlockQuery { arena: Some((0, 4)), ..asked(BlockOrder::Size, 1) };
        assert!(only.takes_arena(0, 4) && !only.takes_arena(1, 4) && asked(BlockOrder::Size, 1).takes_arena(7, 7));
        assert_eq!(only.without_arenas([(16, 16)].into_iter()).count, 0);
    }
}
