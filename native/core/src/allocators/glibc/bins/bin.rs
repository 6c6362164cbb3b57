//! Numbers of malloc's bins, and the bin for each chunk size.

use crate::allocators::glibc::chunks::GRAIN;

pub(crate) const BINS: u64 = 127;
pub(super) const UNSORTED: u64 = 1;
pub(super) const SMALL_BINS: u64 = 64;
pub(super) const MAX_DAMAGE: usize = 1000;
pub(super) const NO_BIN: u8 = 0;

/// Return the number of the bin into which malloc sorts free chunks of this size (`largebin_index_64` in glibc, the
/// same since 2.17).
pub(super) fn bin_of(size: u64) -> u64 {
    match size {
        0..0x400 => size / GRAIN,
        _ if size >> 6 <= 48 => 48 + (size >> 6),
        _ if size >> 9 <= 20 => 91 + (size >> 9),
        _ if size >> 12 <= 10 => 110 + (size >> 12),
        _ if size >> 15 <= 4 => 119 + (size >> 15),
        _ if size >> 18 <= 2 => 124 + (size >> 18),
        _ => 126,
    }
}

/// Return the size of the smallest chunk that is sorted into each bin, by bin number. The sizes at index 0, which is
/// not a bin, and of the unsorted bin are 0.
pub fn least_sizes() -> Vec<u64> {
    let mut least = vec![0; BINS as usize];
    let mut size = UNSORTED.wrapping_add(1).wrapping_mul(GRAIN);
    while least.last() == Some(&0) {
        if let Some(first @ 0) = least.get_mut(bin_of(size) as usize) {
            *first = size;
        }
        size = size.wrapping_add(GRAIN);
    }
    least
}
