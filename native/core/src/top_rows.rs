//! Collect many rows, and keep only the first ones in a given order.
#![forbid(unsafe_code)]

/// The number of rows beyond twice `most` that are collected before the surplus rows are dropped.
const SLACK: usize = 4 << 10;

/// A collector of rows. It keeps only the first `most` rows in the order of a key, so that its memory is bounded. Every
/// call must pass the same `key`.
pub(crate) struct TopRows<R> {
    most: usize,
    rows: Vec<R>,
}

impl<R> TopRows<R> {
    pub(crate) fn new(most: usize) -> TopRows<R> {
        TopRows { most, rows: Vec::new() }
    }

    #[inline]
    pub(crate) fn put<K: Ord>(&mut self, row: R, key: impl FnMut(&R) -> K) {
        self.rows.push(row);
        if self.rows.len() >= self.most.saturating_mul(2).saturating_add(SLACK) {
            self.cut(key);
        }
    }

    /// Add the rows that another collector, such as that of another thread, has kept.
    pub(crate) fn extend(&mut self, others: TopRows<R>) {
        self.rows.extend(others.rows);
    }

    /// Return the first `most` rows, in order.
    pub(crate) fn finish<K: Ord>(mut self, mut key: impl FnMut(&R) -> K) -> Vec<R> {
        self.cut(&mut key);
        self.rows.sort_unstable_by_key(key);
        self.rows
    }

    fn cut<K: Ord>(&mut self, key: impl FnMut(&R) -> K) {
        if self.most < self.rows.len() {
            self.rows.select_nth_unstable_by_key(self.most, key);
            self.rows.truncate(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that dropping rows early gives the same rows as dropping them at the end.
    #[test]
    fn many_rows() {
        let numbers: Vec<u64> = (0..20011).map(|number| number * 7919 % 20011).collect();
        for most in [0, 10, 20010, 20011, usize::MAX] {
            let (mut one, mut other) = (TopRows::new(most), TopRows::new(most));
            numbers
                .iter()
                .for_each(|number| (if number % 3 > 0 { &mut one } else { &mut other }).put(*number, |row| !row));
            one.extend(other);
            let wanted: Vec<u64> = (0..20011).rev().take(most).collect();
            assert_eq!(one.finish(|row| !row), wanted);
        }
    }
}
