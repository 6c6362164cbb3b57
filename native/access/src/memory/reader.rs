//! Reads words anywhere in a target through a cache of recently read pages. Pointers are followed one by one, and most
//! of them point near the previous one.
#![forbid(unsafe_code)]

use crate::memory::space::Space;

/// The number of bytes that are read at once.
const PIECE: u64 = 4 << 10;
/// The number of pieces that the reader of one worker caches.
const FEW: usize = 1 << 10;
/// The number of pieces that a reader caches if it follows links across a whole heap.
const MANY: usize = 1 << 14;

pub struct Reader<'a> {
    space: &'a Space,
    /// The start of each cached piece, and the number of its bytes that could be read.
    pieces: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub fn new(space: &'a Space) -> Reader<'a> {
        Reader::keeping(space, FEW)
    }

    /// Create a reader that caches 64 MiB.
    pub fn large(space: &'a Space) -> Reader<'a> {
        Reader::keeping(space, MANY)
    }

    fn keeping(space: &'a Space, pieces: usize) -> Reader<'a> {
        Reader { space, pieces: vec![(u64::MAX, 0); pieces], bytes: vec![0; pieces * PIECE as usize] }
    }

    /// Return the bytes from `address` to the end of its piece, or to the first absent byte.
    #[inline]
    fn rest(&mut self, address: u64) -> &[u8] {
        let start = address & !(PIECE - 1);
        let place = (address / PIECE % self.pieces.len() as u64) as usize;
        let bytes = &mut self.bytes[place * PIECE as usize..(place + 1) * PIECE as usize];
        if self.pieces[place].0 != start {
            self.pieces[place] = (start, self.space.fill(start, bytes));
        }
        bytes[..self.pieces[place].1].get((address - start) as usize..).unwrap_or_default()
    }

    /// Return the `N` bytes at `address`; None if any of them cannot be read.
    #[inline]
    fn near<const N: usize>(&mut self, address: u64) -> Option<[u8; N]> {
        self.rest(address).first_chunk().copied().or_else(|| {
            // The bytes may lie in two pieces. A mapping may also begin inside a piece, if pages are smaller or a core
            // was truncated.
            let mut bytes = [0; N];
            (self.space.fill(address, &mut bytes) == N).then_some(bytes)
        })
    }

    /// Return the word at `address`; None if it cannot be read.
    #[inline]
    pub fn any_word(&mut self, address: u64) -> Option<u64> {
        self.near(address).map(u64::from_le_bytes)
    }

    /// Return the word at `address`; None if `address` is not a multiple of 8, or if the word cannot be read.
    #[inline]
    pub fn word(&mut self, address: u64) -> Option<u64> {
        if address % 8 != 0 {
            return None;
        }
        self.any_word(address)
    }

    #[inline]
    pub fn byte(&mut self, address: u64) -> Option<u8> {
        self.near(address).map(u8::from_le_bytes)
    }

    /// Fill `into` with the bytes at `address`. Return the number of bytes that could be read.
    pub fn fill(&mut self, address: u64, into: &mut [u8]) -> usize {
        let mut got = 0;
        while got < into.len() {
            let Some(at) = address.checked_add(got as u64) else { break };
            let rest = self.rest(at);
            let taken = rest.len().min(into.len() - got);
            if taken == 0 {
                return got + self.space.fill(at, &mut into[got..]);
            }
            into[got..got + taken].copy_from_slice(&rest[..taken]);
            got += taken;
        }
        got
    }

    /// Return the two bytes at `address`; None if `address` is odd, or if the bytes cannot be read.
    #[inline]
    pub fn short(&mut self, address: u64) -> Option<u16> {
        if address % 2 != 0 {
            return None;
        }
        self.near(address).map(u16::from_le_bytes)
    }

    /// Return the `N` words at `address`; None if `address` is not a multiple of 8, or if any of the words cannot be
    /// read.
    #[inline]
    pub fn words<const N: usize>(&mut self, address: u64) -> Option<[u64; N]> {
        let mut words = [0; N];
        for (word, at) in words.iter_mut().zip((0u64..).step_by(8)) {
            *word = self.word(address.checked_add(at)?)?;
        }
        Some(words)
    }

    /// Return the bytes from `address` to the first NUL; None if there is no NUL in the first `limit` bytes.
    pub fn string(&mut self, address: u64, limit: usize) -> Option<Vec<u8>> {
        let mut found = Vec::new();
        while found.len() < limit {
            let rest = self.rest(address.checked_add(found.len() as u64)?);
            let text = rest.split(|byte| *byte == 0).next().filter(|_| !rest.is_empty())?;
            found.extend_from_slice(text);
            if text.len() < rest.len() {
                return (found.len() < limit).then_some(found);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Reader, FEW, PIECE};
    use crate::machine::{Machine, EM_X86_64};
    use crate::memory::space::{Backing, Segment, Space};

    #[test]
    fn words_are_those_of_the_space() {
        let bytes: Vec<u8> = (0..3 * PIECE).map(|at| (at * 7 + at / 251) as u8).collect();
        let path = std::env::temp_dir().join(format!("gdbheap-reader-{}", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        // The second segment shares a cache slot with the first, and begins and ends inside a piece.
        let far = 0x10000 + FEW as u64 * PIECE;
        let segments = vec![
            Segment { start: 0x10000, end: 0x10000 + 2 * PIECE, backing: Backing::File { index: 0, offset: 0 } },
            Segment { start: far + 40, end: far + 1000, backing: Backing::File { index: 0, offset: 40 } },
        ];
        let machine = Machine::new(EM_X86_64, 8, PIECE, 1 << 47, u64::MAX).unwrap();
        let space = Space::for_core(machine, segments, &[path.to_string_lossy().into_owned()]).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut reader = Reader::new(&space);
        for step in 6..=8 {
            for at in (0..3 * PIECE).step_by(step) {
                for address in [0x10000 + at, far + at] {
                    let word = space.word(address).ok();
                    assert_eq!(reader.any_word(address), word, "{address:#x}");
                    assert_eq!(reader.word(address), word.filter(|_| address % 8 == 0), "{address:#x}");
                    let (mut ours, mut all) = ([0; 5000], [0; 5000]);
                    let filled = (reader.fill(address, &mut ours), space.fill(address, &mut all));
                    assert_eq!((filled.0, ours), (filled.1, all), "{address:#x}");
                }
            }
        }
    }
}
