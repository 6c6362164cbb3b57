//! Which blocks of one look are still there in another: at the same address, of the same size and type.
//!
//! Free lists hand the same place out again, so that a block that is "still there" may have been replaced by its like.

use super::columns::{BlockColumns, Row};
use crate::error::Result;
use crate::work::Watcher;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Blocks of one type and size: how many are still there, came, and went. `kind`: as the caller numbers types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSums {
    pub kind: u32,
    pub size: u64,
    pub kept: u64,
    pub new: u64,
    pub gone: u64,
}

/// All of them, the most new bytes first, and the addresses of some of the new blocks of each, the first by address.
#[derive(Clone, Debug, Default)]
pub struct ComparedBlocks {
    pub rows: Vec<BlockSums>,
    pub samples: Vec<Vec<u64>>,
}

#[derive(Default)]
struct Sums {
    kept: u64,
    new: u64,
    gone: u64,
    sample: Vec<u64>,
}

/// Compares two looks. `names`: for each look the caller's number of each of its types; 0 is no object. At most `most`
/// addresses of new blocks are kept for each row.
pub fn compare_blocks(
    watcher: &dyn Watcher,
    before: (&BlockColumns, &[u32]),
    after: (&BlockColumns, &[u32]),
    most: usize,
) -> Result<ComparedBlocks> {
    let (old, new) = (sorted(before.0)?, sorted(after.0)?);
    watcher.check()?;
    let mut sums: HashMap<(u32, u64), Sums> = HashMap::new();
    let kind_of = |names: &[u32], kind: u16| {
        usize::from(kind).checked_sub(1).and_then(|place| names.get(place)).copied().unwrap_or(0)
    };
    let old_key = |row: &Row| (kind_of(before.1, row.kind), row.size);
    let new_key = |row: &Row| (kind_of(after.1, row.kind), row.size);
    let (mut one, mut other) = (0, 0);
    while one < old.len() || other < new.len() {
        let order = match (old.get(one), new.get(other)) {
            (Some(left), Some(right)) => left.address.cmp(&right.address),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        if order == Ordering::Equal && old_key(&old[one]) == new_key(&new[other]) {
            sums.entry(new_key(&new[other])).or_default().kept += 1;
            (one, other) = (one + 1, other + 1);
            continue;
        }
        if order != Ordering::Greater {
            sums.entry(old_key(&old[one])).or_default().gone += 1;
            one += 1;
        }
        if order != Ordering::Less {
            let row = sums.entry(new_key(&new[other])).or_default();
            row.new += 1;
            if row.sample.len() < most {
                row.sample.push(new[other].address);
            }
            other += 1;
        }
    }
    let mut rows: Vec<((u32, u64), Sums)> = sums.into_iter().collect();
    rows.sort_unstable_by_key(|((kind, size), row)| {
        (std::cmp::Reverse(u128::from(row.new) * u128::from(*size)), *kind, *size)
    });
    let sum = |((kind, size), row): &((u32, u64), Sums)| BlockSums {
        kind: *kind,
        size: *size,
        kept: row.kept,
        new: row.new,
        gone: row.gone,
    };
    Ok(ComparedBlocks {
        rows: rows.iter().map(sum).collect(),
        samples: rows.into_iter().map(|(_, row)| row.sample).collect(),
    })
}

/// By address: the blocks of each store are, but stores lie among one another.
fn sorted(columns: &BlockColumns) -> Result<Vec<Row>> {
    let mut rows = columns.rows()?;
    rows.sort_by_key(|row| row.address);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::super::columns::tests::{columns, rows, Random};
    use super::super::columns::Row;
    use super::compare_blocks;
    use crate::error::Cancelled;
    use crate::work::{Progress, Watcher};
    use std::collections::{BTreeMap, BTreeSet};

    struct Nobody;

    impl Watcher for Nobody {
        fn attend(&self, _progress: Option<Progress>) -> Result<(), Cancelled> {
            Ok(())
        }
    }

    /// Against sets of (address, size, type).
    #[test]
    fn like_sets() {
        for seed in 1..60 {
            let mut random = Random(seed);
            let mut old: Vec<Row> = rows(&mut random, 200);
            old.sort_by_key(|row| row.address);
            old.dedup_by_key(|row| row.address);
            let mut new: Vec<Row> = old.iter().copied().filter(|_| random.below(4) != 0).collect();
            new.iter_mut().filter(|_| random.below(9) == 0).for_each(|row| row.size += 16);
            new.extend((0..50).map(|place| Row { address: (1 << 48) + place * 64, size: 48, kind: 2 }));
            let (before, after, names) = (columns(&old, 30), columns(&new, 7), [1, 2, 3, 4, 5]);
            let found = compare_blocks(&Nobody, (&before, &names), (&after, &names), 3).unwrap();
            let set = |rows: &[Row]| rows.iter().map(|row| (row.address, row.size, row.kind)).collect::<BTreeSet<_>>();
            let (old, new) = (set(&old), set(&new));
            let mut expected: BTreeMap<(u32, u64), (u64, u64, u64)> = BTreeMap::new();
            old.intersection(&new).for_each(|row| expected.entry((row.2.into(), row.1)).or_default().0 += 1);
            new.difference(&old).for_each(|row| expected.entry((row.2.into(), row.1)).or_default().1 += 1);
            old.difference(&new).for_each(|row| expected.entry((row.2.into(), row.1)).or_default().2 += 1);
            let sums = found.rows.iter().map(|row| ((row.kind, row.size), (row.kept, row.new, row.gone)));
            assert_eq!(sums.collect::<BTreeMap<_, _>>(), expected, "seed {seed}");
            for (row, sample) in found.rows.iter().zip(&found.samples) {
                assert_eq!(sample.len() as u64, row.new.min(3));
            }
        }
    }
}
