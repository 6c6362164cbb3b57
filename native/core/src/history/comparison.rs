//! Compare two snapshots. Find the blocks that are in both (with the same address, size and type), and the blocks that
//! are new or gone. Find the holders of the new blocks.
//!
//! Allocators reuse the addresses of freed blocks. So a block that counts as kept may in fact be a similar block that
//! replaced the old one.

use super::columns::BlockColumns;
use gdbheap_access::error::{Error, Result};
use gdbheap_access::work::Watcher;
use std::cmp::Ordering;
use std::collections::HashMap;

/// How many blocks of one type and size are in both snapshots, or in one of them.
///
/// - `kind`: the caller's number of the type.
/// - `kept`: the blocks in both snapshots.
/// - `new`: the blocks only in the later snapshot.
/// - `gone`: the blocks only in the earlier snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSums {
    pub kind: u32,
    pub size: u64,
    pub kept: u64,
    pub new: u64,
    pub gone: u64,
}

/// The result of a comparison.
///
/// - `rows`: one row for each type and size, those with the most new bytes first.
/// - `samples`: for each row, the addresses of some new blocks, lowest first.
/// - `holders`: for each row, the holders of its new blocks, as (number of the holder, number of new blocks). The
///   holder of the most blocks comes first. Holders have the same numbers as in the later snapshot.
#[derive(Clone, Debug, Default)]
pub struct ComparedBlocks {
    pub rows: Vec<BlockSums>,
    pub samples: Vec<Vec<u64>>,
    pub holders: Vec<Vec<(u16, u64)>>,
}

#[derive(Clone, Default)]
struct KindSums {
    kept: u64,
    new: u64,
    gone: u64,
    sample: Vec<u64>,
    holders: HashMap<u16, u64>,
}

impl KindSums {
    fn by_holder(&self) -> Vec<(u16, u64)> {
        let mut rows: Vec<(u16, u64)> = self.holders.iter().map(|(holder, count)| (*holder, *count)).collect();
        rows.sort_unstable_by_key(|(holder, count)| (std::cmp::Reverse(*count), *holder));
        rows
    }
}

/// A type and a size, as (the caller's number of the type, size in bytes). Blocks are compared by this pair.
type Kind = (u32, u64);

/// A block of one of the compared snapshots. `kind`: the index in `Side::kinds` of the block's type and size.
#[derive(Clone, Copy)]
struct Member {
    address: u64,
    kind: u32,
    holder: u16,
}

/// The blocks of one snapshot, by ascending address. `kinds`: the pairs of type and size that occur.
struct Side {
    members: Vec<Member>,
    kinds: Vec<Kind>,
}

impl Side {
    /// Read the blocks of a snapshot. `names`: for each of the snapshot's types, the caller's number.
    fn new(columns: &BlockColumns, names: &[u32]) -> Result<Side> {
        let mut kinds = Kinds::default();
        let mut members = Vec::with_capacity(columns.count()?);
        columns.show(|row| {
            let name = usize::from(row.kind).checked_sub(1).and_then(|place| names.get(place));
            let kind = kinds.number((name.copied().unwrap_or(0), row.size));
            members.push(Member { address: row.address, kind, holder: row.holder });
        })?;
        // The blocks of each store are in order, but the address ranges of stores interleave.
        members.sort_by_key(|member| member.address);
        Ok(Side { members, kinds: kinds.all })
    }
}

const RECENT: usize = 1 << 13;

/// A numbering of kinds (type and size), in the order in which they are found. There are few kinds and many blocks. So
/// a small cache of recent kinds saves most look-ups in the map.
struct Kinds {
    all: Vec<Kind>,
    numbers: HashMap<Kind, u32>,
    recent: Vec<(Kind, u32)>,
}

impl Default for Kinds {
    fn default() -> Kinds {
        // This size is a placeholder: no block has it.
        Kinds { all: Vec::new(), numbers: HashMap::new(), recent: vec![((0, u64::MAX), 0); RECENT] }
    }
}

impl Kinds {
    #[inline(always)]
    fn number(&mut self, kind: Kind) -> u32 {
        let place = (u64::from(kind.0).wrapping_mul(31) ^ (kind.1 >> 4)) as usize % RECENT;
        if self.recent[place].0 == kind && kind.1 != u64::MAX {
            return self.recent[place].1;
        }
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(kind).or_insert(next);
        if number == next {
            self.all.push(kind);
        }
        self.recent[place] = (kind, number);
        number
    }

    /// Return the number that each kind of a snapshot has in this numbering. A kind that is not in it yet is added.
    fn numbers_of(&mut self, side: &Side) -> Vec<u32> {
        side.kinds.iter().map(|kind| self.number(*kind)).collect()
    }
}

/// Compare two snapshots. `before`, `after`: the columns of each snapshot, and the caller's number of each of its
/// types; 0 stands for no object. `most`: the largest number of addresses of new blocks to return for each row.
pub fn compare_blocks(
    watcher: &dyn Watcher,
    before: (&BlockColumns, &[u32]),
    after: (&BlockColumns, &[u32]),
    most: usize,
) -> Result<ComparedBlocks> {
    let (old, new) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| Side::new(before.0, before.1));
        let new = Side::new(after.0, after.1);
        (beside.join().unwrap_or(Err(Error::Memory("no comparison"))), new)
    });
    let (old, new) = (old?, new?);
    watcher.check()?;
    let mut kinds = Kinds::default();
    let (of_old, of_new) = (kinds.numbers_of(&old), kinds.numbers_of(&new));
    let mut sums = vec![KindSums::default(); kinds.all.len()];
    let (mut one, mut other) = (0, 0);
    loop {
        let (left, right) = (old.members.get(one), new.members.get(other));
        let (gone, came) = match (left, right) {
            (None, None) => break,
            (Some(_), None) => (left, None),
            (None, Some(_)) => (None, right),
            (Some(was), Some(is)) => match was.address.cmp(&is.address) {
                Ordering::Less => (left, None),
                Ordering::Greater => (None, right),
                Ordering::Equal => (left, right),
            },
        };
        let (was, is) =
            (gone.map(|member| of_old[member.kind as usize]), came.map(|member| of_new[member.kind as usize]));
        one += usize::from(was.is_some());
        other += usize::from(is.is_some());
        if was == is {
            sums[is.unwrap_or(0) as usize].kept += 1;
            continue;
        }
        if let Some(kind) = was {
            sums[kind as usize].gone += 1;
        }
        if let (Some(kind), Some(member)) = (is, came) {
            let row = &mut sums[kind as usize];
            row.new += 1;
            *row.holders.entry(member.holder).or_default() += 1;
            if row.sample.len() < most {
                row.sample.push(member.address);
            }
        }
    }
    Ok(ranked(kinds.all.into_iter().zip(sums).collect()))
}

/// Sort the rows by their new bytes, most first.
fn ranked(mut rows: Vec<(Kind, KindSums)>) -> ComparedBlocks {
    rows.sort_unstable_by_key(|((kind, size), row)| {
        (std::cmp::Reverse(u128::from(row.new) * u128::from(*size)), *kind, *size)
    });
    let sum = |((kind, size), row): &(Kind, KindSums)| BlockSums {
        kind: *kind,
        size: *size,
        kept: row.kept,
        new: row.new,
        gone: row.gone,
    };
    ComparedBlocks {
        rows: rows.iter().map(sum).collect(),
        holders: rows.iter().map(|(_, row)| row.by_holder()).collect(),
        samples: rows.into_iter().map(|(_, row)| row.sample).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::tests::{columns, rows, Random};
    use super::super::columns::ColumnRow;
    use super::compare_blocks;
    use gdbheap_access::testing::NoWatcher;
    use std::collections::{BTreeMap, BTreeSet};

    /// Check the comparison against sets of (address, size, type).
    #[test]
    fn like_sets() {
        for seed in 1..60 {
            let mut random = Random(seed);
            let mut old: Vec<ColumnRow> = rows(&mut random, 200);
            old.sort_by_key(|row| row.address);
            old.dedup_by_key(|row| row.address);
            let mut new: Vec<ColumnRow> = old.iter().copied().filter(|_| random.below(4) != 0).collect();
            new.iter_mut().filter(|_| random.below(9) == 0).for_each(|row| row.size += 16);
            new.extend((0..50).map(|place| ColumnRow {
                address: (1 << 48) + place * 64,
                size: 48,
                kind: 2,
                holder: 0,
            }));
            // Two stores whose addresses interleave, each of them in order.
            let (mut one, other): (Vec<ColumnRow>, Vec<ColumnRow>) =
                new.iter().partition(|row| row.address / 64 % 2 == 0);
            one.extend(other);
            let mut new = one;
            new.iter_mut().for_each(|row| row.holder = random.below(5) as u16);
            let (before, mut after, names) = (columns(&old, 30), columns(&new, 7), [1, 2, 3, 4, 5]);
            after.holders = new.iter().map(|row| row.holder as u8).chain(new.iter().map(|_| 0)).collect();
            let found = compare_blocks(&NoWatcher, (&before, &names), (&after, &names), 3).unwrap();
            let set =
                |rows: &[ColumnRow]| rows.iter().map(|row| (row.address, row.size, row.kind)).collect::<BTreeSet<_>>();
            let holders: BTreeMap<u64, u16> = new.iter().map(|row| (row.address, row.holder)).collect();
            let (old, new) = (set(&old), set(&new));
            let mut expected: BTreeMap<(u32, u64), (u64, u64, u64)> = BTreeMap::new();
            old.intersection(&new).for_each(|row| expected.entry((row.2.into(), row.1)).or_default().0 += 1);
            new.difference(&old).for_each(|row| expected.entry((row.2.into(), row.1)).or_default().1 += 1);
            old.difference(&new).for_each(|row| expected.entry((row.2.into(), row.1)).or_default().2 += 1);
            let sums = found.rows.iter().map(|row| ((row.kind, row.size), (row.kept, row.new, row.gone)));
            assert_eq!(sums.collect::<BTreeMap<_, _>>(), expected, "seed {seed}");
            for (row, sample) in found.rows.iter().zip(&found.samples) {
                assert_eq!(sample.len() as u64, row.new.min(3));
                assert!(sample.windows(2).all(|pair| pair[0] < pair[1]));
            }
            let bytes: Vec<u64> = found.rows.iter().map(|row| row.new * row.size).collect();
            assert!(bytes.windows(2).all(|pair| pair[0] >= pair[1]), "seed {seed}");
            for (row, held) in found.rows.iter().zip(&found.holders) {
                let came = new.difference(&old).filter(|block| (u32::from(block.2), block.1) == (row.kind, row.size));
                let mut sums: BTreeMap<u16, u64> = BTreeMap::new();
                came.for_each(|block| *sums.entry(holders[&block.0]).or_default() += 1);
                let mut sums: Vec<(u16, u64)> = sums.into_iter().collect();
                sums.sort_by_key(|(holder, count)| (u64::MAX - count, *holder));
                assert_eq!(held, &sums, "seed {seed}");
            }
        }
    }
}
