//! Find the roots of maps and trees. A root is an array in static data with one word for each range of addresses. Each
//! word points to a table.

use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The largest number of roots that are checked. The limit is needed because each check reads a whole tree, and hostile
/// data may name any number of roots.
const MAX_ROOTS: usize = 64;
/// The largest number of words that are tried in each range of static data.
const MAX_TRIED: usize = 1 << 16;

/// A range of static `data` that may contain a root, an array of `bytes` bytes. The index in the root for an address is
/// the address shifted right by `shift`. `anonymous` is the memory whose addresses may be looked up, ascending and
/// joined.
pub(super) struct Place<'a> {
    pub(super) data: (u64, u64),
    pub(super) bytes: u64,
    pub(super) shift: u32,
    pub(super) anonymous: &'a [(u64, u64)],
}

impl Place<'_> {
    /// Record the word at `at`, if it points to a table and a root that contains this word fits into the data. At most
    /// MAX_TRIED words are recorded.
    pub(super) fn keep(&self, words: &mut Vec<(u64, u64)>, at: u64, word: u64, is_table: impl Fn(u64) -> bool) {
        if words.len() < MAX_TRIED && is_table(word) && self.has_room(at) {
            words.push((at, word));
        }
    }

    /// Return the proven roots for the recorded words. `upper_bits`: a function that derives the index of a table in
    /// the root from the memory to which the table points. If a word at address A points to the table with index k, the
    /// root is at A - 8k.
    pub(super) fn roots(
        &self,
        watcher: &dyn Watcher,
        words: Vec<(u64, u64)>,
        upper_bits: impl Fn(u64) -> Option<u64>,
        is_proven: impl Fn(u64) -> Result<bool>,
    ) -> Result<Vec<u64>> {
        let (mut found, mut tried): (Vec<u64>, BTreeMap<u64, Option<u64>>) = (Vec::new(), BTreeMap::new());
        for (at, word) in words {
            watcher.check()?;
            let Some(upper) = *tried.entry(word).or_insert_with(|| upper_bits(word)) else { continue };
            let Some(root) = upper.checked_mul(8).and_then(|offset| at.checked_sub(offset)) else { continue };
            let fits = root >= self.data.0 && root.saturating_add(self.bytes) <= self.data.1;
            found.extend(Some(root).filter(|_| fits));
        }
        proven_roots(watcher, found, is_proven)
    }

    /// Return whether a root that contains the word at `at` fits into the data, for at least one address in
    /// `anonymous`.
    fn has_room(&self, at: u64) -> bool {
        let (start, end) = self.data;
        let upper = |address: u64| address >> self.shift;
        // The index of the word in the root must lie between `least` and `most`.
        let most = at.saturating_sub(start) / 8;
        let least = (at + self.bytes).saturating_sub(end).div_ceil(8);
        let place = self.anonymous.partition_point(|(_, last)| upper(last - 1) < least);
        least <= most && self.anonymous.get(place).is_some_and(|(first, _)| upper(*first) <= most)
    }
}

/// Return those roots in `named` that `is_proven` accepts, ascending. If there are too many roots, only those that the
/// most words name are tried.
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
    use gdbheap_access::testing::Unwatched;
    use std::cell::Cell;

    #[test]
    fn few_of_many_roots_are_asked() {
        let asked = Cell::new(0);
        let is_proven = |root: u64| {
            asked.set(asked.get() + 1);
            Ok(root % 1000 == 0)
        };
        let named = (0..1 << 16).chain([5000, 3000, 3000]).collect();
        let proven = proven_roots(&Unwatched, named, is_proven).expect("not cancelled");
        assert!(asked.get() == MAX_ROOTS && proven == [0, 3000, 5000]);
    }
}
