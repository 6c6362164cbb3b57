//! A count of blocks, with their total size.

/// A count of blocks, and their total size in bytes (`bytes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub count: u64,
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }

    pub(crate) fn with(self, other: &Tally) -> Tally {
        Tally { count: self.count + other.count, bytes: self.bytes + other.bytes }
    }

    pub(crate) fn add_many(&mut self, count: u64, bytes_each: u64) {
        self.count += count;
        self.bytes += count * bytes_each;
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
