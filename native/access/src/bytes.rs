//! Functions that read words from bytes, read bytes from files, and find addresses in ranges.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Return the 64-bit little-endian word at `offset` in `bytes`; None if `bytes` ends before the word ends.
#[inline]
pub fn word_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// Return the 32-bit little-endian number at `offset` in `bytes`; None if `bytes` ends before the number ends.
#[inline]
pub fn half_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|half| u32::from_le_bytes(*half))
}

/// Return the 64-bit little-endian word at `offset` in `bytes`, or 0 if `bytes` ends before the word ends.
///
/// Use this function only if `bytes` is known to be long enough. For bytes that may be truncated, use `word_at`.
#[inline]
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let word = word_at(bytes, offset);
    debug_assert!(word.is_some(), "no word at {offset} of {} bytes", bytes.len());
    word.unwrap_or(0)
}

/// Write a 64-bit little-endian word at `offset` in `bytes`, which are long enough.
pub(crate) fn put(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

/// Fill `buffer` with the bytes of a file, starting at `offset`. Stop at the end of the file or at the first error.
/// Return the number of bytes that were read.
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

/// Return the 64-bit little-endian words of `bytes`. Bytes after the last whole word are ignored.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64_at(word, 0)).collect()
}

/// Return the 32-bit little-endian number at `offset` in `bytes`, or 0 if `bytes` ends before the number ends.
#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let half = half_at(bytes, offset);
    debug_assert!(half.is_some(), "no number at {offset} of {} bytes", bytes.len());
    half.unwrap_or(0)
}

/// Return the index of the range [start, end) that contains the address; None if no range contains it. The ranges must
/// be ascending and disjoint.
#[inline]
pub fn range_at(ranges: &[(u64, u64)], address: u64) -> Option<usize> {
    let place = ranges.partition_point(|(_, end)| *end <= address);
    ranges.get(place).filter(|(start, _)| *start <= address).map(|_| place)
}

/// Append [start, end) to ascending ranges. If the last range ends at `start`, extend that range instead.
pub fn append(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match ranges.last_mut().filter(|last| last.1 == start) {
        Some(last) => last.1 = end,
        None => ranges.push((start, end)),
    }
}

/// Visit the parts of [start, end) that are in none of the ranges, which are ascending and disjoint.
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
