//! Find the roots of maps and trees. A root is an array in static data with one word for each range of addresses. Each
//! word points to a table.

use gdbheap_access::bytes::{range_at, words};
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The largest number of roots that are checked. The limit is needed because each check reads a whole tree, and hostile
/// data may name any number of roots.
const MAX_ROOTS: usize = 64;
/// The largest number of words that are tried in each range of static data.
const MAX_TRIED: usize = 1 << 16;
/// The largest number of bytes of a table that are read at a time.
const PIECE: usize = 256 << 10;

/// Show the words of a table that are not zero, `step` bytes apart, each with its index. Absent pages count as zeros.
pub(super) fn show_words(space: &Space, start: u64, size: u64, step: u64, mut show: impl FnMut(u64, u64)) {
    let mut scratch = vec![0; PIECE.min(size as usize)];
    space.show(start, start.saturating_add(size), &mut scratch, |at, piece| {
        for (word, place) in words(piece).into_iter().zip((at - start) / 8..).filter(|(word, _)| *word != 0) {
            if place * 8 % step == 0 {
                show(place * 8 / step, word);
            }
        }
    });
}

/// Return whether `address` is a multiple of `alignment`, and at least `size` bytes follow it in one of the `ranges`
/// (ascending).
pub(super) fn has_room(ranges: &[(u64, u64)], address: u64, alignment: u64, size: u64) -> bool {
    address % alignment == 0 && range_at(ranges, address).is_some_and(|place| ranges[place].1 - address >= size)
}

/// A range of static `data` that may contain a root, an array of `bytes` bytes. The index in the root for an address is
/// the address shifted right by `shift`. `anonymous` is the memory whose addresses may be looked up, ascending and
/// joined.
pub(super) struct RootRange<'a> {
    pub(super) space: &'a Space,
    pub(super) data: (u64, u64),
    pub(super) bytes: u64,
    pub(super) shift: u32,
    pub(super) anonymous: &'a [(u64, u64)],
}

impl RootRange<'_> {
    /// Return the proven roots. Of the words that `is_table` accepts, the first MAX_TRIED are tried. `upper_bits`: a
    /// function that derives the index of a table in the root from the memory to which the table points. If a word at
    /// address A points to the table with index k, the root is at A - 8k.
    pub(super) fn roots(
        &self,
        watcher: &dyn Watcher,
        is_table: impl Fn(u64) -> bool,
        upper_bits: impl Fn(u64) -> Option<u64>,
        is_proven: impl Fn(u64) -> Result<bool>,
    ) -> Result<Vec<u64>> {
        let ((start, end), mut words) = (self.data, Vec::new());
        show_words(self.space, start, end - start, 8, |index, word| {
            let at = start + 8 * index;
            if words.len() < MAX_TRIED && is_table(word) && self.holds_root(at) {
                words.push((at, word));
            }
        });
        let (mut found, mut tried): (Vec<u64>, BTreeMap<u64, Option<u64>>) = (Vec::new(), BTreeMap::new());
        for (at, word) in words {
            watcher.check()?;
            let Some(upper) = *tried.entry(word).or_insert_with(|| upper_bits(word)) else { continue };
            let Some(root) = upper.checked_mul(8).and_then(|offset| at.checked_sub(offset)) else { continue };
            let fits = root >= start && root.saturating_add(self.bytes) <= end;
            found.extend(Some(root).filter(|_| fits));
        }
        proven_roots(watcher, found, is_proven)
    }

    /// Return whether a root that contains the word at `at` fits into the data, for at least one address in
    /// `anonymous`.
    fn holds_root(&self, at: u64) -> bool {
        let (start, end) = self.data;
        let upper = |address: u64| address >> self.shift;
        // The index of the word in the root must lie between `least` and `most`.
        let most = at.saturating_sub(start) / 8;
        let least = (at + self.bytes).saturating_sub(end).div_ceil(8);
        let place = self.anonymous.partition_point(|(_, last)| upper(last - 1) < least);
        least <= most && self.anonymous.get(place).is_some_and(|(first, _)| upper(*first) <= most)
    }
}

/// Return those roots in `named` that `is_proven` accepts, ascending. If there are too many roots, only those that were
/// derived from the most words are tried.
fn proven_roots(
    watcher: &dyn Watcher,
    mut named: Vec<u64>,
    is_proven: impl Fn(u64) -> Result<bool>,
) -> Result<Vec<u64>> {
    named.sort_unstable();
    let mut asked: Vec<(usize, u64)> =
        named.chunk_by(|one, next| one == next).map(|same| (same.len(), same[0])).collect();
    asked.sort_by_key(|(count, _)| Reverse(*count));
    asked.truncate(MAX_ROOTS);
    let mut proven = Vec::new();
    for (_, root) in asked {
        watcher.check()?;
        if is_proven(root)? {
            proven.push(root);
        }
    }
    proven.sort_unstable();
    Ok(proven)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdbheap_access::testing::NoWatcher;
    use std::cell::Cell;

    #[test]
    fn few_of_many_roots_are_asked() {
        let asked = Cell::new(0);
        let is_proven = |root: u64| {
            asked.set(asked.get() + 1);
            Ok(root % 1000 == 0)
        };
        let named = (0..1 << 16).chain([5000, 3000, 3000]).collect();
        let proven = proven_roots(&NoWatcher, named, is_proven).expect("not cancelled");
        assert!(asked.get() == MAX_ROOTS && proven == [0, 3000, 5000]);
    }
}
