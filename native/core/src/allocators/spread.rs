//! Choose a sample of items that is spread over all items.
//!
//! The sample never consists of every second or every fourth item. A program that makes objects of two types
//! alternately has alternating pools of the two types. Such a sample would contain only one of the types.

/// Hash a number so that the result shows no pattern of the input (the last steps of SplitMix64).
pub(crate) fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Choose at most `most` items of `all`. The items are divided into as many equal parts, and one item is chosen from
/// each part. Return each chosen item with the number of items that it represents.
pub(crate) fn spread<'a, T>(all: &[&'a T], most: usize) -> Vec<(&'a T, f64)> {
    let taken = all.len().min(most);
    let weight = all.len() as f64 / taken.max(1) as f64;
    let one_of = |part: usize| {
        let (first, end) = (part * all.len() / taken, (part + 1) * all.len() / taken);
        (all[first + (mixed(part as u64 + 1) % (end - first) as u64) as usize], weight)
    };
    (0..taken).map(one_of).collect()
}

#[cfg(test)]
mod tests {
    use super::{mixed, spread};

    /// Check that each kind of items has its share in the sample if the kinds alternate, for any period.
    #[test]
    fn shares_of_kinds_in_turn() {
        for period in 2..9 {
            for length in [65, 82, 128, 200, 1000, 4096] {
                let kinds: Vec<usize> = (0..length).map(|place| place % period).collect();
                let all: Vec<&usize> = kinds.iter().collect();
                let sample = spread(&all, 64);
                assert_eq!(sample.len(), 64);
                let counted = sample.iter().filter(|(kind, _)| **kind == 0).map(|(_, weight)| weight).sum::<f64>();
                let share = counted / length as f64 * period as f64;
                assert!((0.3..2.1).contains(&share), "period {period}, {length}: {share}");
            }
        }
    }

    #[test]
    fn all_of_few() {
        let few = [3, 1, 2];
        let all: Vec<&i32> = few.iter().collect();
        assert_eq!(spread(&all, 64), [(&3, 1.0), (&1, 1.0), (&2, 1.0)]);
        assert!(spread::<i32>(&[], 64).is_empty() && spread(&all, 0).is_empty());
        assert_ne!(mixed(1), mixed(2));
    }
}
