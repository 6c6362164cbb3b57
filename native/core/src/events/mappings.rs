//! Follow the program's own mappings: record which part of which mapping lies at which address.

use super::memory_limit::{Claim, List, Room};
use gdbheap_access::machine::SMALLEST_PAGE;
use gdbheap_plan::other;
use std::collections::BTreeMap;

/// A change of the mappings, with the numbers that a plan's step has.
///
/// - `kind`: MMAP for a new mapping, MUNMAP for an unmapped part.
/// - `place`: the number of the mapping in the plan.
/// - `first`: the size of a new mapping, or the offset of an unmapped part.
/// - `second`: the protection of a new mapping, or the size of an unmapped part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MappingChange {
    pub(super) kind: u64,
    pub(super) place: u64,
    pub(super) first: u64,
    pub(super) second: u64,
}

#[derive(Clone, Copy)]
struct Piece {
    end: u64,
    place: u64,
    /// The start of the whole mapping. It stays the same if the mapping's first part is unmapped.
    origin: u64,
}

/// The memory in bytes that is claimed for each `Piece`. It covers the entry in the tree and in the list of a removal.
const PIECE: u64 = 160;

/// The private anonymous mappings of the program. A replayer does not repeat other mappings.
pub(super) struct Mappings<'a> {
    pieces: BTreeMap<u64, Piece>,
    claim: Claim<'a>,
    /// For each place, how many pieces of its mapping remain. If part of a mapping is unmapped, several pieces may
    /// remain.
    counts: List<'a, u64>,
    /// The places whose mappings were unmapped completely. New mappings get these places first.
    free: List<'a, u64>,
}

const READ_WRITE: u32 = (libc::PROT_READ | libc::PROT_WRITE) as u32;

impl<'a> Mappings<'a> {
    pub(super) fn new(room: &'a Room) -> Mappings<'a> {
        Mappings { pieces: BTreeMap::new(), claim: Claim::new(room), counts: List::new(room), free: List::new(room) }
    }

    /// Return the largest number of places that were in use at the same time.
    pub(super) fn places(&self) -> u64 {
        self.counts.len() as u64
    }

    pub(super) fn add(&mut self, address: u64, size: u64, protection: u32, flags: u32) -> Vec<MappingChange> {
        // With MAP_FIXED, the new mapping replaces the mappings at this address.
        let mut parts = self.remove(address, size);
        let wanted = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let Some(end) = address.checked_add(size).filter(|end| *end > address) else { return parts };
        if flags as i32 & wanted == wanted {
            let Some(place) = self.take_place() else { return parts };
            self.put(address, Piece { end, place, origin: address });
            // With MAP_NORESERVE, the range is only reserved and is not touched.
            let is_reserved = flags as i32 & libc::MAP_NORESERVE != 0;
            let protection = if is_reserved { protection & !(libc::PROT_WRITE as u32) } else { protection };
            parts.push(MappingChange { kind: other::MMAP, place, first: size, second: protection.into() });
        }
        parts
    }

    pub(super) fn remove(&mut self, address: u64, size: u64) -> Vec<MappingChange> {
        // The kernel unmaps whole pages.
        let end = address.saturating_add(size).checked_next_multiple_of(SMALLEST_PAGE).unwrap_or(u64::MAX);
        let first = self.pieces.range(..address).next_back().map_or(address, |(start, _)| *start);
        let met: Vec<(u64, Piece)> =
            self.pieces.range(first..end.max(first)).map(|(start, piece)| (*start, *piece)).collect();
        met.into_iter()
            .filter_map(|(start, piece)| self.cut(start, piece, address.max(start), end.min(piece.end)))
            .collect()
    }

    /// Remove the range [from, to) from the piece that begins at `start`. Return the change; None if the range is
    /// empty.
    fn cut(&mut self, start: u64, piece: Piece, from: u64, to: u64) -> Option<MappingChange> {
        if from >= to {
            return None;
        }
        self.pieces.remove(&start);
        self.claim.give_back(PIECE);
        for (start, end) in [(start, from), (to, piece.end)] {
            if start < end && self.put(start, Piece { end, ..piece }) {
                self.counts[piece.place as usize] += 1;
            }
        }
        self.counts[piece.place as usize] -= 1;
        if self.counts[piece.place as usize] == 0 {
            self.free.push(piece.place);
        }
        Some(MappingChange { kind: other::MUNMAP, place: piece.place, first: from - piece.origin, second: to - from })
    }

    /// Apply an mremap: unmap the old range, and map `size` bytes at `address`.
    pub(super) fn replace(&mut self, old: u64, old_size: u64, address: u64, size: u64) -> Vec<MappingChange> {
        let mut parts = self.remove(old, old_size);
        if !parts.is_empty() {
            parts.extend(self.add(address, size, READ_WRITE, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u32));
        }
        parts
    }

    /// Add a piece that begins at `start`. Return false if the memory limit is reached.
    fn put(&mut self, start: u64, piece: Piece) -> bool {
        let fits = self.claim.take(PIECE);
        if fits {
            self.pieces.insert(start, piece);
        }
        fits
    }

    fn take_place(&mut self) -> Option<u64> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => self.counts.push(0).then(|| self.counts.len() as u64 - 1)?,
        };
        self.counts[place as usize] = 1;
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::random;
    use super::*;
    use std::collections::HashMap;

    const PAGE: u64 = 4096;
    const PAGES: u64 = 64;

    /// Apply changes: record for each place which of its pages exist.
    fn follow(places: &mut HashMap<u64, Vec<bool>>, parts: &[MappingChange]) {
        for part in parts {
            match part.kind {
                other::MMAP => {
                    let before = places.insert(part.place, vec![true; (part.first / PAGE) as usize]);
                    assert!(before.is_none_or(|pages| !pages.contains(&true)), "a place in use was handed out");
                }
                _ => {
                    let pages = places.get_mut(&part.place).expect("part of no mapping");
                    for page in part.first / PAGE..(part.first + part.second) / PAGE {
                        assert!(std::mem::replace(&mut pages[page as usize], false), "a page went twice");
                    }
                }
            }
        }
    }

    /// Check that the same pages exist as in a model that tracks each page of the address space, however mappings
    /// overlap.
    #[test]
    fn pages_are_those_of_the_program() {
        for seed in 1..200u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let room = Room::new(1 << 20);
            let mut mappings = Mappings::new(&room);
            let (mut model, mut places) = (vec![false; 4 * PAGES as usize], HashMap::new());
            for _ in 0..200 {
                let (start, count) = (random(&mut state) % PAGES, 1 + random(&mut state) % 16);
                let (address, size) = ((1000 + start) * PAGE, count * PAGE);
                let pages = start as usize..(start + count) as usize;
                let parts = match random(&mut state) % 3 {
                    0 => {
                        let is_private = random(&mut state) % 4 != 0;
                        model[pages].fill(is_private);
                        let kind = if is_private { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
                        mappings.add(address, size, READ_WRITE, (kind | libc::MAP_ANONYMOUS) as u32)
                    }
                    1 => {
                        model[pages].fill(false);
                        mappings.remove(address, size - random(&mut state) % PAGE)
                    }
                    _ => {
                        let to = 2 * PAGES + random(&mut state) % PAGES;
                        let was_there = model[pages.clone()].contains(&true);
                        model[pages].fill(false);
                        if was_there {
                            model[to as usize..(to + count) as usize].fill(true);
                        }
                        mappings.replace(address, size, (1000 + to) * PAGE, size)
                    }
                };
                follow(&mut places, &parts);
                let there = places.values().flatten().filter(|is_there| **is_there).count();
                assert_eq!(there, model.iter().filter(|is_there| **is_there).count(), "seed {seed}");
            }
            assert!(mappings.places() >= places.len() as u64);
        }
    }
}
