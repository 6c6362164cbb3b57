//! Reads tables of mappings (maps, smaps). Paths in these tables may be 16 KiB long, so that tens of thousands of lines
//! take gigabytes. So long lines are truncated while they are read.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{Read, Result};
use std::path::Path;

/// The longest part of a line that is kept, in bytes. It includes the fields before the path, and any path that can be
/// opened by name.
const LONGEST: usize = 128 + libc::PATH_MAX as usize;
/// After this many bytes of a table, lines are cut to SHORT bytes, because later lines are probably like the earlier
/// ones.
const PLENTY: usize = 64 << 20;
const SHORT: usize = 256;
const PIECE: usize = 256 << 10;

/// Return whether the file is a table of mappings.
pub(crate) fn is_table(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "maps" || name == "smaps")
}

/// Return the first `limit` bytes of a table of mappings. Very long lines are truncated.
pub(crate) fn read_table(path: &Path, limit: u64) -> Result<Vec<u8>> {
    without_ends(File::open(path)?.take(limit))
}

fn without_ends(mut table: impl Read) -> Result<Vec<u8>> {
    let (mut found, mut piece, mut length) = (Vec::new(), vec![0; PIECE], 0);
    loop {
        let got = table.read(&mut piece)?;
        if got == 0 {
            return Ok(found);
        }
        for line in piece[..got].split_inclusive(|byte| *byte == b'\n') {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let longest = if found.len() < PLENTY { LONGEST } else { SHORT };
            let kept = text.len().min(longest.saturating_sub(length));
            found.extend_from_slice(&text[..kept]);
            length += kept;
            if text.len() < line.len() {
                found.push(b'\n');
                length = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(length: usize, last: u8) -> Vec<u8> {
        let mut line = vec![b'x'; length - 1];
        line.extend([last, b'\n']);
        line
    }

    /// A reader that returns the same line many times.
    struct RepeatedLine {
        line: Vec<u8>,
        times: u64,
        at: usize,
    }

    impl Read for RepeatedLine {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            if self.at == self.line.len() {
                self.times = self.times.saturating_sub(1);
                self.at = 0;
            }
            let rest = if self.times > 0 { &self.line[self.at..] } else { &[] };
            let got = rest.len().min(buffer.len());
            buffer[..got].copy_from_slice(&rest[..got]);
            self.at += got;
            Ok(got)
        }
    }

    #[test]
    fn lines_are_cut_and_none_is_lost() {
        let table =
            [line(70, b'a'), line(LONGEST, b'b'), line(LONGEST + 1, b'c'), line(3 * PIECE, b'd'), b"end".to_vec()];
        let found = without_ends(table.concat().as_slice()).expect("memory");
        let lines: Vec<&[u8]> = found.split(|byte| *byte == b'\n').collect();
        let lengths: Vec<usize> = lines.iter().map(|line| line.len()).collect();
        assert_eq!(lengths, [70, LONGEST, LONGEST, LONGEST, 3]);
        let lasts: Vec<u8> = lines.iter().map(|line| line[line.len() - 1]).collect();
        assert_eq!(lasts, [b'a', b'b', b'x', b'x', b'd']);
    }

    #[test]
    fn a_table_of_gigabytes_is_small() {
        let lines = (PLENTY / LONGEST) as u64 + 10_000;
        let table = RepeatedLine { line: line(4 * LONGEST, b'a'), times: lines, at: 0 };
        let found = without_ends(table).expect("memory");
        assert_eq!(found.iter().filter(|byte| **byte == b'\n').count() as u64, lines);
        assert!(found.len() < PLENTY + LONGEST + 10_100 * (SHORT + 1), "{}", found.len());
    }
}
