//! Which words are references, where a heap lies so low that any number of 32 bits may be an address in it.
//!
//! Above 4 GiB hardly a word is the address of a block by accident. Below, reference counts of static objects, sizes,
//! limits and floats are: a program that is linked at a fixed address has its heap there. So a low word of static data or
//! of a stack is believed as far as it leads to where something begins, and as far as its neighbours are pointers too.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::python::types::Types;
use gdbheap_access::bytes::u64_at;

/// Numbers of 32 bits are below.
pub(crate) const LOW: u64 = 1 << 32;
/// Sizes, limits and short floats are multiples of it, the addresses of blocks seldom.
pub(crate) const ROUND: u64 = 4 << 10;
const WORD: u64 = 8;
/// Addresses of programs have no more bits.
const TAG_SHIFT: u32 = 48;
/// Tags are up to this, or from the next on, their sign aside, those of quiet NaNs.
const MAX_TAG: u64 = 0xFF;
const FIRST_NAN: u64 = 0x7FF8;
/// Words looked at on each side.
const NEIGHBOURS: usize = 4;
/// Among so many of them, a round number is taken for a pointer too.
const MANY_POINTERS: usize = 3;
/// Smaller numbers say nothing of their place.
const SMALL: u64 = 1 << 16;
const SMALL_NEGATIVE: u64 = (-1i64 << 31) as u64;
/// The largest header that a program puts before what it asked malloc for.
const MAX_HEADER: u64 = 8;
/// A chunk is up to this much larger than what was asked for.
const MAX_SLACK: u64 = 24;
/// Words after an object's type that are plain in ints, strings and bytes: length, hash, state, digits.
const PLAIN_WORDS: u64 = 3;

/// What a word outside of the heaps is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sign {
    Reference,
    /// It may be one: to be believed after all that is certain.
    Late,
    /// It may be a number: it says something of the block that it leads to at most.
    Stray,
    Nothing,
}

/// What lies beside a word.
#[derive(PartialEq, Eq)]
enum Beside {
    /// At least MANY_POINTERS, and no number.
    PointersOnly,
    Pointers,
    Numbers,
    Neither,
}

/// Whether a program may use the upper 16 bits of a word for something else than an address: a NaN in which values are
/// boxed, or a small tag or counter. Text and numbers have others, so that what is tested here is nearly always false.
#[inline(always)]
pub(crate) fn has_tag(word: u64) -> bool {
    let tag = word >> TAG_SHIFT;
    tag.wrapping_sub(1) < MAX_TAG || (tag & 0x7FFF) >= FIRST_NAN
}

/// The address in a word that has a tag, if it lies in one of `spans`.
pub(crate) fn untagged(word: u64, spans: &[(u64, u64)]) -> Option<u64> {
    let address = word & ((1 << TAG_SHIFT) - 1);
    let is_in = || spans.iter().any(|(start, end)| (*start..*end).contains(&address));
    (word % WORD == 0 && is_in()).then_some(address)
}

/// Whether something begins at `pointer`, inside a block: after a header that says how large it is, as SQLite's blocks
/// have, or with the address of the block itself, as what follows a page of SQLite. `word` reads one.
pub(crate) fn begins_inside(mut word: impl FnMut(u64) -> Option<u64>, block: &Block, pointer: u64) -> bool {
    if pointer % WORD != 0 {
        return false;
    }
    let (block, room) = (block.address, block.end.saturating_sub(block.address));
    if pointer == block + MAX_HEADER {
        let least = room.saturating_sub(MAX_HEADER + MAX_SLACK).max(1);
        let fits = |asked: u64| (least..=room.saturating_sub(MAX_HEADER)).contains(&asked);
        if word(block).is_some_and(fits) {
            return true;
        }
    }
    pointer > block && word(pointer).is_some_and(|found| found == block || found == block + MAX_HEADER)
}

/// What the word `pointer` at `address`, in static data or on a stack, says of the block that it leads into; `begins`:
/// whether something begins there.
pub(crate) fn sign(types: &mut Types<'_>, heaps: &Heaps<'_>, address: u64, pointer: u64, begins: bool) -> Sign {
    if pointer >= LOW {
        return Sign::Reference;
    }
    if is_plain_field(types, address) {
        return Sign::Nothing;
    }
    match (beside(heaps, address), begins) {
        (Beside::PointersOnly, true) => Sign::Reference,
        (Beside::Pointers, true) if pointer % ROUND != 0 => Sign::Reference,
        (Beside::Pointers | Beside::Neither, true) => Sign::Late,
        (Beside::Numbers, true) => Sign::Stray,
        (Beside::Numbers, false) => Sign::Nothing,
        (_, false) if pointer % WORD == 0 => Sign::Stray,
        (_, false) => Sign::Nothing,
    }
}

/// Whether a static object has a count, a size, flags or another plain number at `address`.
fn is_plain_field(types: &mut Types<'_>, address: u64) -> bool {
    let layout = types.layout;
    let after = |word: u64| address.wrapping_sub(layout.head() + word * WORD);
    type_of(types, address.wrapping_sub(layout.ob_refcnt)).is_some()
        || types.lookup(address.wrapping_sub(layout.tp_flags)).is_some()
        || type_of(types, after(0)).is_some_and(|(_, item)| item != 0)
        || (0..PLAIN_WORDS)
            .any(|word| type_of(types, after(word)).is_some_and(|(flags, _)| flags & layout.flags_plain != 0))
}

/// `tp_flags` and `tp_itemsize` of the type of what begins at `object`, if it looks like an object.
fn type_of(types: &mut Types<'_>, object: u64) -> Option<(u64, u64)> {
    let found = types.space.word(object.wrapping_add(types.layout.ob_type)).ok().filter(|found| *found >= SMALL)?;
    let number = types.lookup(found)?;
    let item = types.space.word(found.wrapping_add(types.layout.tp_itemsize)).ok()?;
    Some((types.kinds[number as usize].flags, item))
}

/// Whether the words around `address` are pointers rather than numbers.
fn beside(heaps: &Heaps<'_>, address: u64) -> Beside {
    let mut bytes = [0; (2 * NEIGHBOURS + 1) * WORD as usize];
    let start = address.saturating_sub(NEIGHBOURS as u64 * WORD);
    let got = heaps.space.fill(start, &mut bytes);
    let words = bytes[..got].chunks_exact(WORD as usize).map(|word| u64_at(word, 0)).enumerate();
    let (mut pointers, mut numbers) = (0, 0);
    for (_, word) in words.filter(|(place, word)| *place != NEIGHBOURS && (SMALL..SMALL_NEGATIVE).contains(word)) {
        match is_pointer(heaps, word) {
            true => pointers += 1,
            false => numbers += 1,
        }
    }
    match (pointers, numbers) {
        (0, 0) => Beside::Neither,
        (MANY_POINTERS.., 0) => Beside::PointersOnly,
        _ if pointers >= numbers => Beside::Pointers,
        _ => Beside::Numbers,
    }
}

/// Whether a word leads to memory, and where it may be a number, to the start of a block or out of the heaps.
fn is_pointer(heaps: &Heaps<'_>, word: u64) -> bool {
    let (low, high) = heaps.bounds();
    match word < LOW && (low..high).contains(&word) {
        true => heaps.block_at(word).is_some_and(|block| block.address == word),
        false => heaps.space.covers(word, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::{has_tag, untagged};

    #[test]
    fn tags_are_taken_from_addresses_alone() {
        let (spans, at) =
            ([(0x5555_0000_0000, 0x5556_0000_0000), (0x7FFF_0000_0000, 0x7FFF_8000_0000)], 0x5555_5555_5550);
        assert!(!has_tag(at) && has_tag(at | 0x7FFC << 48) && has_tag(at | 1 << 48));
        // Text, and ordinary numbers.
        assert!(![0x6162, 0x3FF0, 0x4059, 0xBFE0].iter().any(|tag| has_tag(at | tag << 48)));
        assert_eq!(untagged(at | 0x7FFC << 48, &spans), Some(at));
        // An odd address, and one between the two.
        assert_eq!(untagged((at + 1) | 0x7FFC << 48, &spans), None);
        assert_eq!(untagged(0x6000_0000_0000 | 0x7FFC << 48, &spans), None);
    }
}
