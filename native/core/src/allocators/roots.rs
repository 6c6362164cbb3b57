//! The roots of maps and trees, by the words of static data that name them.

use crate::error::Result;
use crate::work::Watcher;
use std::cmp::Reverse;

/// Roots that are proven at most: each proof reads a whole tree, and hostile data names any number.
const MAX_ROOTS: usize = 64;

/// The roots among `named` that are proven, ascending; of too many only those that most words name are asked.
pub(super) fn proven_roots(
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
    use crate::work::Unwatched;
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
