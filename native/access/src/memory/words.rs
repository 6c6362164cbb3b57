//! Reads, tests or searches all words of a memory range at once.
#![forbid(unsafe_code)]

use crate::bytes::{range_at, u64_at, words};
use crate::error::Result;
use crate::memory::space::Space;
use crate::work::Watcher;
use std::collections::HashMap;

/// The largest number of bytes that are read of one range; the rest is ignored. The data of any module is smaller.
const MAX_BYTES: u64 = 64 << 20;
const MAX_PIECE: u64 = 256 << 10;

/// A range of memory, with the number of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedRange {
    pub number: u32,
    pub start: u64,
    pub end: u64,
}

/// A test of the word that lies `offset` bytes after a place: the bits of the word that are in `mask` must form a
/// number of at least `low` and at most `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordTest {
    pub offset: u64,
    pub mask: u64,
    pub low: u64,
    pub high: u64,
}

impl WordTest {
    fn holds(&self, bytes: &[u8], place: usize) -> bool {
        let word =
            place.checked_add(self.offset as usize).and_then(|at| bytes.get(at..)).and_then(|rest| rest.first_chunk());
        word.is_some_and(|word| (self.low..=self.high).contains(&(u64::from_le_bytes(*word) & self.mask)))
    }
}

/// Return the offsets in `bytes` at which all `tests` hold. Only multiples of the word size are tried.
pub fn find_places(bytes: &[u8], tests: &[WordTest]) -> Vec<u64> {
    let places = (0..bytes.len()).step_by(8).filter(|place| tests.iter().all(|test| test.holds(bytes, *place)));
    places.map(|place| place as u64).collect()
}

/// Return the word at each of the addresses; None if it cannot be read.
pub fn words_at(space: &Space, addresses: &[u64]) -> Vec<Option<u64>> {
    addresses.iter().map(|address| space.word(*address).ok()).collect()
}

/// The properties of the structures that `find_led_back` finds. Such a structure and a second one point to each other.
///
/// - `below`: structures begin above this address.
/// - `apart`: the range [start, end) in which no structure begins.
/// - `first`: the offset in the structure of its pointer to the second one.
/// - `back`: the offset in the second structure of its pointer to the first one.
/// - `place`: if given, a structure is also found if its word at `first` is 0 and its word at `place` is an address.
pub struct LedBack {
    pub below: u64,
    pub apart: (u64, u64),
    pub first: u64,
    pub back: u64,
    pub place: Option<u64>,
}

/// Return the words of `raw` that are addresses of structures with the properties `wanted`, ascending.
pub fn find_led_back(space: &Space, raw: &[u8], wanted: &LedBack) -> Vec<u64> {
    let (word, apart) = (size_of::<u64>(), wanted.apart.0..wanted.apart.1);
    let may_begin = |at: u64| at > wanted.below && at % word as u64 == 0;
    let mut found: Vec<u64> = words(raw).into_iter().filter(|at| may_begin(*at) && !apart.contains(at)).collect();
    found.sort_unstable();
    found.dedup();
    let word_at = |at: u64, offset: u64| at.checked_add(offset).and_then(|place| space.word(place).ok());
    found.retain(|at| match word_at(*at, wanted.first) {
        Some(0) => wanted.place.and_then(|place| word_at(*at, place)).is_some_and(may_begin),
        Some(second) => word_at(second, wanted.back) == Some(*at),
        None => false,
    });
    found
}

/// The words of a memory range. In the field `words`, words of absent pages are zeros. Use the field only where a zero
/// cannot begin a structure; otherwise use the method `at`.
pub struct Words {
    pub start: u64,
    pub words: Vec<u64>,
    /// The bytes that could not be read, as ascending ranges of addresses.
    absent: Vec<(u64, u64)>,
}

impl Words {
    pub fn read(space: &Space, start: u64, end: u64) -> Words {
        let start = start.next_multiple_of(8);
        let mut bytes = vec![0; end.saturating_sub(start).min(MAX_BYTES) as usize];
        let (mut at, mut absent) = (0, Vec::new());
        while at < bytes.len() {
            at += space.fill(start + at as u64, &mut bytes[at..]);
            if at < bytes.len() {
                let from = (start + at as u64) & !7;
                let to = (from | (space.machine.page.bytes() - 1)).saturating_add(1);
                absent.push((from, to));
                at = (to - start) as usize;
            }
        }
        Words { start, words: words(&bytes), absent }
    }

    #[inline]
    pub fn at(&self, space: &Space, address: u64) -> Option<u64> {
        let index = address.wrapping_sub(self.start);
        match index % 8 == 0 && index / 8 < self.words.len() as u64 {
            true if range_at(&self.absent, address).is_none() => Some(self.words[(index / 8) as usize]),
            true => None,
            false => space.word(address).ok(),
        }
    }
}

/// Return the addresses of the words that still have their initial value and point into one of `ranges` (ascending).
/// `initial`: the initial bytes of the memory that begins at `start`.
pub fn find_initial(space: &Space, start: u64, initial: &[u8], ranges: &[(u64, u64)]) -> Vec<u64> {
    let words = Words::read(space, start, start.saturating_add(initial.len() as u64));
    let initial = initial.get((words.start - start) as usize..).unwrap_or_default().chunks_exact(8);
    let points = |word: u64| range_at(ranges, word).is_some();
    let same = words.words.iter().zip(initial).zip((words.start..).step_by(8));
    same.filter(|((word, old), _)| **word == u64_at(old, 0) && points(**word)).map(|(_, at)| at).collect()
}

/// Return the address of the first readable word in [start, end) whose value is in [low, high); None if there is no
/// such word.
pub fn find_pointer(
    watcher: &dyn Watcher,
    space: &Space,
    (start, end): (u64, u64),
    (low, high): (u64, u64),
) -> Result<Option<u64>> {
    let mut bytes = vec![0; (end.saturating_sub(start).min(MAX_PIECE)) as usize];
    let mut found = None;
    space.try_show(start, end, &mut bytes, |at, piece| {
        if found.is_none() {
            let place = piece.chunks_exact(8).position(|word| (low..high).contains(&u64_at(word, 0)));
            found = place.map(|place| at + 8 * place as u64);
        }
        watcher.check()
    })?;
    Ok(found)
}

/// Return at most `most` runs [start, end) of words in `ranges` whose values all lie in [low, high).
pub fn find_pointer_runs(
    watcher: &dyn Watcher,
    space: &Space,
    ranges: &[(u64, u64)],
    (low, high): (u64, u64),
    most: usize,
) -> Result<Vec<(u64, u64)>> {
    let mut bytes = vec![0; MAX_PIECE as usize];
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        space.try_show(*start, *end, &mut bytes, |at, piece| {
            let words = piece.chunks_exact(8).zip((at..).step_by(8));
            for (_, at) in words.filter(|(word, _)| (low..high).contains(&u64_at(word, 0))) {
                let count = runs.len();
                match runs.last_mut() {
                    Some((_, end)) if *end == at => *end += 8,
                    _ if count < most => runs.push((at, at + 8)),
                    _ => (),
                }
            }
            watcher.check()
        })?;
    }
    Ok(runs)
}

/// Count the words of each owner in `sources` that point into each of the `targets` (ascending, disjoint). Return
/// `{(number of the owner, index of the target): number of words}`, without zeros.
pub fn count_pointers(
    watcher: &dyn Watcher,
    space: &Space,
    sources: &[OwnedRange],
    targets: &[(u64, u64)],
) -> Result<HashMap<(u32, usize), u64>> {
    let mut found = HashMap::new();
    for OwnedRange { number, start, end } in sources.iter().copied() {
        watcher.check()?;
        for word in Words::read(space, start, end).words {
            if let Some(place) = range_at(targets, word) {
                *found.entry((number, place)).or_insert(0) += 1;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, EM_X86_64};
    use crate::memory::space::Source;

    const PAGE: u64 = 4 << 10;

    /// A source whose bytes are all 1, except in the page with number 2, which is absent.
    struct HoledSource;

    impl Source for HoledSource {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let there = (PAGE - address % PAGE).min(buffer.len() as u64) as usize;
            buffer[..there].fill(1);
            if address / PAGE == 2 {
                0
            } else {
                there
            }
        }
    }

    #[test]
    fn places_are_those_where_all_tests_hold() {
        let bytes: Vec<u8> = [5u64, 1 << 40 | 7, 6, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
        let odd = WordTest { offset: 8, mask: 1, low: 1, high: 1 };
        let few = WordTest { offset: 0, mask: u64::MAX, low: 5, high: 6 };
        assert_eq!(find_places(&bytes, &[few]), [0, 16]);
        assert_eq!(find_places(&bytes, &[few, odd]), [0]);
        // Nothing lies after the end.
        assert_eq!(find_places(&bytes, &[WordTest { offset: 24, mask: 0, low: 0, high: 0 }]), [0]);
        assert_eq!(find_places(&bytes, &[WordTest { offset: u64::MAX, mask: 0, low: 0, high: 0 }]), []);
    }

    #[test]
    fn an_absent_word_is_no_zero() {
        let machine = Machine::new(EM_X86_64, 8, PAGE, u64::MAX, u64::MAX).expect("a size that pages have");
        let space = Space::for_remote(machine, &[(PAGE, 4 * PAGE)], Box::new(HoledSource)).expect("one stretch");
        let words = Words::read(&space, PAGE, 4 * PAGE);
        assert_eq!(words.words.len() as u64, 3 * PAGE / 8);
        assert_eq!(words.at(&space, 2 * PAGE - 8), Some(0x0101_0101_0101_0101));
        assert_eq!((words.at(&space, 2 * PAGE), words.at(&space, 3 * PAGE - 8)), (None, None));
        assert_eq!(words.at(&space, 3 * PAGE), Some(0x0101_0101_0101_0101));
        let zeros = Words { start: PAGE, words: vec![0], absent: Vec::new() };
        assert_eq!(zeros.at(&space, PAGE), Some(0));
    }
}
