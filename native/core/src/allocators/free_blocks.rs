//! The free blocks of an allocator as rows.

use std::cmp::Reverse;

/// Which free blocks are meant: of `least` to `largest` bytes, those that `cached` says (in a thread's cache, or anywhere else);
/// and which of them are shown: the first `most` by address, or the largest.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub least: u64,
    pub largest: u64,
    pub cached: bool,
    pub by_address: bool,
    pub most: usize,
}

impl Asked {
    pub(crate) fn takes(&self, size: u64) -> bool {
        (self.least..=self.largest).contains(&size)
    }

    /// The rows of those that are meant.
    pub(crate) fn rows_of(&self, all: impl Iterator<Item = (u64, u64)>) -> FreeBlocks {
        let mut rows: Vec<(u64, u64)> = all.collect();
        let (count, bytes) = (rows.len() as u64, rows.iter().map(|(_, size)| size).sum());
        match self.by_address {
            true => rows.sort_unstable(),
            false => rows.sort_unstable_by_key(|&(address, size)| (Reverse(size), address)),
        }
        rows.truncate(self.most);
        FreeBlocks { count, bytes, rows }
    }
}

/// How many blocks are meant, their bytes, and the first of them as `(address, size)`.
#[derive(Clone, Debug, Default)]
pub struct FreeBlocks {
    pub count: u64,
    pub bytes: u64,
    pub rows: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums are over all; of those with the same size the first ones come first.
    #[test]
    fn rows() {
        let asked = Asked { least: 16, largest: 64, cached: false, by_address: false, most: 2 };
        let found = asked.rows_of([(100, 16), (300, 64), (200, 64)].into_iter());
        assert_eq!((found.count, found.bytes, found.rows), (3, 144, vec![(200, 64), (300, 64)]));
        let found = Asked { by_address: true, ..asked }.rows_of([(300, 64), (100, 16)].into_iter());
        assert_eq!(found.rows, [(100, 16), (300, 64)]);
        assert!(asked.takes(64) && !asked.takes(65));
    }
}
