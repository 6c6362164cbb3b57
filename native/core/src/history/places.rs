//! Sum up the bytes of blocks in address ranges, by the type of the object in each block.

use super::columns::{BlockColumns, ColumnRow};
use gdbheap_access::error::{Error, Result};
use gdbheap_access::work::Watcher;
use std::collections::HashMap;

/// An address range [start, end) with a label. Several ranges may have the same label.
pub type LabelledRange = (u64, u64, u32);

/// The blocks of one kind in all ranges with one label.
///
/// - `kind`: the number of the object's type as in `BlockColumns::kinds`; 0 for no object.
/// - `count`: the number of such blocks that begin in the ranges.
/// - `bytes`: the number of bytes of such blocks in the ranges. A block may begin before a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceShare {
    pub label: u32,
    pub kind: u16,
    pub count: u64,
    pub bytes: u64,
}

/// The sums of blocks and of their bytes for each label and kind. The index of the last sum is cached, because
/// neighbouring blocks mostly have the same label and kind.
#[derive(Default)]
struct PlaceSums {
    places: HashMap<(u32, u16), usize>,
    rows: Vec<PlaceShare>,
    last: usize,
}

impl PlaceSums {
    #[inline(always)]
    fn of(&mut self, label: u32, kind: u16) -> &mut PlaceShare {
        let is_last = self.rows.get(self.last).is_some_and(|row| row.label == label && row.kind == kind);
        if !is_last {
            let rows = &mut self.rows;
            self.last = *self.places.entry((label, kind)).or_insert_with(|| {
                rows.push(PlaceShare { label, kind, count: 0, bytes: 0 });
                rows.len() - 1
            });
        }
        &mut self.rows[self.last]
    }
}

impl BlockColumns {
    /// Sum up the blocks in `ranges` by label and kind. Fails if the ranges do not ascend, or if the columns contradict
    /// each other. Also fails if the blocks overlap so much that counting would take too long.
    pub fn shares(&self, watcher: &dyn Watcher, ranges: &[LabelledRange]) -> Result<Vec<PlaceShare>> {
        let in_order = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if !in_order || ranges.iter().any(|(start, end, _)| start >= end) {
            return Err(Error::invalid("the ranges do not ascend"));
        }
        let (mut sums, mut at, mut met, mut stopped) = (PlaceSums::default(), 0, 0u64, None);
        // If the blocks of each store do not overlap, there are at most this many pairs of a block and a range that it
        // touches.
        let most = self.count()? as u64 + (ranges.len() as u64 + 1) * (self.counts.len() as u64 + 1);
        let mut seen = 0u64;
        self.show(|row| {
            seen += 1;
            if stopped.is_some() || met > most {
                return;
            }
            if seen % CHECKED == 0 {
                stopped = watcher.check().err();
            }
            at = first_beyond(ranges, at, row.address);
            met += share_out(&mut sums, &ranges[at..], row, most);
        })?;
        match stopped {
            Some(cancelled) => Err(cancelled.into()),
            None if met > most => Err(Error::invalid("blocks overlap")),
            None => Ok(sums.rows),
        }
    }
}

/// The number of blocks between two checks for cancellation.
const CHECKED: u64 = 1 << 20;

/// Return the index of the first range that ends after an address. `hint`: the index for the previous block. Most often
/// the result is this index or the next one.
#[inline(always)]
fn first_beyond(ranges: &[LabelledRange], hint: usize, address: u64) -> usize {
    let begins = |place: usize| place == 0 || ranges[place - 1].1 <= address;
    let ends = |place: usize| ranges.get(place).is_none_or(|range| range.1 > address);
    match [hint, hint + 1].into_iter().find(|place| *place <= ranges.len() && begins(*place) && ends(*place)) {
        Some(place) => place,
        None => ranges.partition_point(|range| range.1 <= address),
    }
}

/// Add a block to the sums of all `ranges` that it touches, and return their number. Stop after more than `most`
/// ranges, because only overlapping blocks touch that many.
#[inline(always)]
fn share_out(sums: &mut PlaceSums, ranges: &[LabelledRange], row: ColumnRow, most: u64) -> u64 {
    let end = row.address.saturating_add(row.size);
    let mut met = 0;
    for (first, last, label) in ranges {
        if *first >= end || met > most {
            break;
        }
        met += 1;
        let sum = sums.of(*label, row.kind);
        sum.count += u64::from(row.address >= *first);
        sum.bytes += end.min(*last) - row.address.max(*first);
    }
    met
}

#[cfg(test)]
mod tests {
    use super::super::columns::tests::{columns, Random};
    use super::super::columns::ColumnRow;
    use super::{LabelledRange, PlaceShare};
    use gdbheap_access::testing::NoWatcher;
    use std::collections::BTreeMap;

    fn disjoint(random: &mut Random, count: u64) -> Vec<ColumnRow> {
        let mut address = 1024;
        (0..count)
            .map(|_| {
                let most = if random.below(9) == 0 { 400 } else { 6 };
                let size = 8 * (1 + random.below(most));
                let row = ColumnRow { address, size, kind: random.below(4) as u16, holder: 0 };
                address += size + 8 * random.below(3);
                row
            })
            .collect()
    }

    fn ranges(random: &mut Random, end: u64) -> Vec<LabelledRange> {
        let (mut found, mut at) = (Vec::new(), random.below(2000));
        while at < end {
            let size = 1 + random.below(700);
            found.push((at, at + size, random.below(5) as u32));
            at += size + random.below(2) * random.below(900);
        }
        found
    }

    /// Compute the same sums in a simple way, byte by byte.
    fn naive(rows: &[ColumnRow], ranges: &[LabelledRange]) -> BTreeMap<(u32, u16), (u64, u64)> {
        let mut sums: BTreeMap<(u32, u16), (u64, u64)> = BTreeMap::new();
        let label_at = |byte: u64| ranges.iter().find(|range| (range.0..range.1).contains(&byte)).map(|range| range.2);
        for row in rows {
            for byte in row.address..row.address + row.size {
                let Some(label) = label_at(byte) else { continue };
                let sum = sums.entry((label, row.kind)).or_default();
                sum.0 += u64::from(byte == row.address);
                sum.1 += 1;
            }
        }
        sums
    }

    #[test]
    fn as_counted_byte_by_byte() {
        for seed in 1..30 {
            let mut random = Random(seed);
            let mut rows = disjoint(&mut random, 1 + seed % 70);
            let ranges = ranges(&mut random, rows[rows.len() - 1].address);
            let expected = naive(&rows, &ranges);
            if seed % 3 == 0 {
                rows.reverse();
            }
            let found = columns(&rows, 1 + seed as usize % 9).shares(&NoWatcher, &ranges).unwrap();
            let found =
                found.into_iter().map(|PlaceShare { label, kind, count, bytes }| ((label, kind), (count, bytes)));
            assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "seed {seed}");
        }
    }

    #[test]
    fn what_is_refused() {
        let rows = disjoint(&mut Random(5), 40);
        let shares = |rows: &[ColumnRow], ranges: &[LabelledRange]| columns(rows, 7).shares(&NoWatcher, ranges);
        assert!(shares(&rows, &[]).unwrap().is_empty());
        assert!(shares(&rows, &[(8, 16, 0), (0, 8, 0)]).is_err());
        assert!(shares(&rows, &[(8, 16, 0), (12, 24, 0)]).is_err());
        assert!(shares(&rows, &[(8, 8, 0)]).is_err());
        let overlapping: Vec<ColumnRow> =
            (0..200).map(|n| ColumnRow { address: 8 * n, size: 1 << 40, kind: 1, holder: 0 }).collect();
        let narrow: Vec<LabelledRange> = (0..5000).map(|n| (16 * n, 16 * n + 16, 0)).collect();
        assert!(shares(&overlapping, &narrow).is_err());
    }
}
