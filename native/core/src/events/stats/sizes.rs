//! The distribution of requested sizes in rows. A row covers 16 bytes for sizes below 32 KiB, and 32 KiB for sizes
//! below 64 MiB. For larger sizes a row reaches from one power of two to the next.

const FINE: u64 = 16;
const COARSE: u64 = 32 << 10;
const LARGE: u64 = 64 << 20;
const FINE_ROWS: usize = (COARSE / FINE) as usize;
const COARSE_ROWS: usize = (LARGE / COARSE) as usize;
const ROWS: usize = FINE_ROWS + COARSE_ROWS + (u64::BITS - LARGE.ilog2()) as usize;

/// The calls and blocks with a requested size of at least `start` and less than `end` bytes.
///
/// - `calls`: the number of calls that requested such a size.
/// - `bytes`: the sum of these requested sizes.
/// - `live`: the number of such blocks that are in use at the end.
/// - `live_bytes`: the sum of the requested sizes of these blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeRow {
    pub start: u64,
    pub end: u64,
    pub calls: u64,
    pub bytes: u64,
    pub live: u64,
    pub live_bytes: u64,
}

pub(super) struct Sizes(Vec<SizeRow>);

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes(
            (0..ROWS)
                .map(|row| SizeRow { start: start_of(row), end: start_of(row + 1), ..Default::default() })
                .collect(),
        )
    }
}

fn row_of(size: u64) -> usize {
    if size < COARSE {
        (size / FINE) as usize
    } else if size < LARGE {
        FINE_ROWS + (size / COARSE) as usize
    } else {
        FINE_ROWS + COARSE_ROWS + (size.ilog2() - LARGE.ilog2()) as usize
    }
}

fn start_of(row: usize) -> u64 {
    if row < FINE_ROWS {
        row as u64 * FINE
    } else if row < FINE_ROWS + COARSE_ROWS {
        // The first coarse row, [0, 32 KiB), stays empty.
        ((row - FINE_ROWS) as u64).max(1) * COARSE
    } else {
        LARGE.checked_shl((row - FINE_ROWS - COARSE_ROWS) as u32).filter(|start| *start != 0).unwrap_or(u64::MAX)
    }
}

impl Sizes {
    #[inline(always)]
    pub(super) fn add(&mut self, size: u64) {
        let row = &mut self.0[row_of(size)];
        row.calls += 1;
        row.bytes = row.bytes.saturating_add(size);
    }

    /// Count one more block of this size that is in use at the end.
    pub(super) fn remains(&mut self, size: u64) {
        let row = &mut self.0[row_of(size)];
        row.live += 1;
        row.live_bytes = row.live_bytes.saturating_add(size);
    }

    /// Return the rows that have calls. The row of a live block always has a call, because the block's last size was
    /// requested in a call.
    pub(super) fn rows(self) -> Vec<SizeRow> {
        self.0.into_iter().filter(|row| row.calls > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_is_in_its_row() {
        for size in (0..64).flat_map(|shift| [1u64 << shift, (1u64 << shift) - 1, (1u64 << shift) + 17]) {
            let (start, end) = (start_of(row_of(size)), start_of(row_of(size) + 1));
            assert!(start <= size && (size < end || end == u64::MAX), "{size} in {start} to {end}");
        }
        assert_eq!((row_of(u64::MAX), row_of(COARSE - 1) + 2), (ROWS - 1, row_of(COARSE)));
    }
}
