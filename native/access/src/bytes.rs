//! Words in bytes, bytes in files, and addresses in ranges.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The little-endian word at `offset`; None where the bytes end before its end.
#[inline]
pub fn word_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// The little-endian 32 bits at `offset`; None where the bytes end before their end.
#[inline]
pub fn half_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|half| u32::from_le_bytes(*half))
}

/// The little-endian word at `offset` of bytes that are known to reach beyond it, and zero elsewhere: where they may be
/// cut off, that is `word_at`'s to say.
#[inline]
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    word_at(bytes, offset).unwrap_or(0)
}

/// Fills the prefix of `buffer` that a file has from `offset` on; its length.
pub(crate) fn read_file(file: &File, offset: u64, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset.wrapping_add(done as u64)) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    done
}

/// The little-endian words one after the other; what is left of less than one is not among them.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64_at(word, 0)).collect()
}

/// The little-endian 32 bits at `offset`, as `u64_at`.
#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    half_at(bytes, offset).unwrap_or(0)
}

/// The index of the range (of ascending, disjoint ones) that holds the address.
#[inline]
pub fn range_at(ranges: &[(u64, u64)], address: u64) -> Option<usize> {
    let place = ranges.partition_point(|(_, end)| *end <= address);
    ranges.get(place).filter(|(start, _)| *start <= address).map(|_| place)
}

/// Adds [start, end) to ascending ranges, as one with the last of them where they touch.
pub fn append(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match ranges.last_mut().filter(|last| last.1 == start) {
        Some(last) => last.1 = end,
        None => ranges.push((start, end)),
    }
}

/// Visits the parts of [start, end) that are in none of the ranges (ascending, disjoint).
pub fn outside(start: u64, end: u64, ranges: &[(u64, u64)], mut visit: impl FnMut(u64, u64)) {
    let mut at = start;
    for (from, to) in &ranges[ranges.partition_point(|range| range.1 <= start)..] {
        if *from >= end {
            break;
        }
        if at < *from {
            visit(at, *from);
        }
        at = *to;
    }
    if at < end {
        visit(at, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_cut_off_is_no_zero() {
        let zeros = [0; 16];
        assert_eq!((word_at(&zeros, 8), half_at(&zeros, 12)), (Some(0), Some(0)));
        assert_eq!((word_at(&zeros, 9), half_at(&zeros, 13), word_at(&zeros, usize::MAX)), (None, None, None));
    }
}
