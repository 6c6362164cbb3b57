//! Decide which words are references if the heap lies so low that any 32-bit number may be an address in it.
//!
//! Above 4 GiB, hardly any word is the address of a block by accident. Below 4 GiB, a reference count of a static
//! object, a size, a limit or a float may have the same value as an address. The heap of a program that is linked at a
//! fixed address lies there. So a low word in static data or on a stack counts as a reference under two conditions: a
//! block or an object begins at the address to which it points, and its neighbours are pointers too.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::python::types::Types;
use gdbheap_access::bytes::u64_at;

/// The limit of 32-bit numbers. A smaller word may be a number. A larger word that points to a block is taken for an
/// address.
pub(crate) const LOW: u64 = 1 << 32;
/// The divisor of round numbers: sizes, limits and short floats are multiples of it. Addresses of blocks seldom are.
pub(crate) const ROUND: u64 = 4 << 10;
const WORD: u64 = 8;
/// An address in a program has at most this number of bits. The higher bits of a word may be a tag.
const TAG_SHIFT: u32 = 48;
/// The largest tag that is a small number. Other tags, without the sign bit, are at least FIRST_NAN, as in quiet NaNs.
const MAX_TAG: u64 = 0xFF;
const FIRST_NAN: u64 = 0x7FF8;
/// The number of words that are read on each side of a word.
const NEIGHBOURS: usize = 4;
/// A round number counts as a pointer if at least this many of its neighbours are pointers, and none is a number.
const MANY_POINTERS: usize = 3;
/// The limit of small numbers. A neighbour that is smaller does not show whether the words next to it are pointers.
const SMALL: u64 = 1 << 16;
const SMALL_NEGATIVE: u64 = (-1i64 << 31) as u64;
/// The largest size in bytes of a header that a program puts before the bytes that it needs in a block of malloc.
const MAX_HEADER: u64 = 8;
/// The largest number of bytes by which a chunk is larger than the request.
const MAX_SLACK: u64 = 24;
/// The largest number of bytes before an object in its block: the collector's head, managed attributes, debug hooks.
const MAX_PRE: u64 = 64;
/// How many words after an object's type are plain numbers in ints, strings and bytes: the length, hash, state or
/// digits. Such a word is no reference.
const PLAIN_WORDS: u64 = 3;

/// Whether a word in static data or on a stack counts as a reference, and how strong this evidence is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sign {
    Reference,
    /// The word may be a reference. It counts only after all certain references.
    Late,
    /// The word may be a number. It is at most weak evidence about the block to which it points.
    Stray,
    Nothing,
}

/// The kind of the words next to a word.
#[derive(PartialEq, Eq)]
enum Neighbours {
    /// The neighbours include at least MANY_POINTERS pointers, and no number.
    PointersOnly,
    Pointers,
    Numbers,
    Neither,
}

/// Return whether the upper 16 bits of a word may be a tag and no part of an address: the bits of a NaN in which a
/// program stores values, or a small tag or counter. Text and ordinary numbers have other upper bits, so the result is
/// nearly always false.
#[inline(always)]
pub(crate) fn has_tag(word: u64) -> bool {
    let tag = word >> TAG_SHIFT;
    tag.wrapping_sub(1) < MAX_TAG || (tag & 0x7FFF) >= FIRST_NAN
}

/// Return the address in a word that has a tag; None if the address lies in none of `spans`.
pub(crate) fn untagged(word: u64, spans: &[(u64, u64)]) -> Option<u64> {
    let address = word & ((1 << TAG_SHIFT) - 1);
    let is_in = || spans.iter().any(|(start, end)| (*start..*end).contains(&address));
    (word % WORD == 0 && is_in()).then_some(address)
}

/// Return whether a C structure begins at `pointer`, in the middle of a block. It may follow a header with its size, as
/// in the blocks of SQLite. Or its first word is the address of the block itself, as after a page of SQLite. `word`
/// reads the word at an address.
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

/// Return whether a living object begins at `pointer`, after the collector's head in its block.
pub(crate) fn begins_object(types: &mut Types<'_>, block: &Block, pointer: u64) -> bool {
    let distance = pointer.wrapping_sub(block.address);
    if distance > MAX_PRE || pointer % WORD != 0 {
        return false;
    }
    let Some(number) = types.object_starting_at(pointer) else { return false };
    let pre = types.kinds[number as usize].pre;
    distance == pre || distance == pre + types.layout.hook
}

/// Classify the word `pointer`, which lies at `address` in static data or on a stack, as a reference to a block or not.
/// `begins`: whether a block, an object or a C structure begins where the word points.
pub(crate) fn sign(types: &mut Types<'_>, heaps: &Heaps<'_>, address: u64, pointer: u64, begins: bool) -> Sign {
    if pointer >= LOW {
        return Sign::Reference;
    }
    if is_plain_field(types, heaps, address) {
        return Sign::Nothing;
    }
    match (beside(types, heaps, address), begins) {
        (Neighbours::PointersOnly, true) => Sign::Reference,
        (Neighbours::Pointers, true) if pointer % ROUND != 0 => Sign::Reference,
        (Neighbours::Pointers | Neighbours::Neither, true) => Sign::Late,
        (Neighbours::Numbers, true) => Sign::Stray,
        (Neighbours::Numbers, false) => Sign::Nothing,
        (_, false) if pointer % WORD == 0 => Sign::Stray,
        (_, false) => Sign::Nothing,
    }
}

/// Return whether the word at `address` is a field of a static object that contains a plain number, such as a count, a
/// size or flags.
fn is_plain_field(types: &mut Types<'_>, heaps: &Heaps<'_>, address: u64) -> bool {
    let layout = types.layout;
    let after = |word: u64| address.wrapping_sub(layout.head() + word * WORD);
    let mut of = |object: u64| type_of(types, heaps, object);
    let is_field = of(address.wrapping_sub(layout.ob_refcnt)).is_some()
        || of(after(0)).is_some_and(|(_, item)| item != 0)
        || (0..PLAIN_WORDS).any(|word| of(after(word)).is_some_and(|(flags, _)| flags & layout.flags_plain != 0));
    is_field || types.lookup(address.wrapping_sub(layout.tp_flags)).is_some()
}

/// Return `tp_flags` and `tp_itemsize` of the type of the static object at `object`; None if nothing that looks like a
/// static object is there. The type of a static object is static too: an address in a table of pointers to heap types
/// is no such object.
fn type_of(types: &mut Types<'_>, heaps: &Heaps<'_>, object: u64) -> Option<(u64, u64)> {
    let found = types.space.word(object.wrapping_add(types.layout.ob_type)).ok().filter(|found| *found >= SMALL)?;
    let number = types.lookup(found)?;
    if heaps.block_at(found).is_some() {
        return None;
    }
    let item = types.space.word(found.wrapping_add(types.layout.tp_itemsize)).ok()?;
    Some((types.kinds[number as usize].flags, item))
}

/// Return whether the words around `address` are pointers or numbers.
fn beside(types: &mut Types<'_>, heaps: &Heaps<'_>, address: u64) -> Neighbours {
    let mut bytes = [0; (2 * NEIGHBOURS + 1) * WORD as usize];
    let start = address.saturating_sub(NEIGHBOURS as u64 * WORD);
    let got = heaps.space.fill(start, &mut bytes);
    let words = bytes[..got].chunks_exact(WORD as usize).map(|word| u64_at(word, 0)).enumerate();
    let (mut pointers, mut numbers) = (0, 0);
    for (_, word) in words.filter(|(place, word)| *place != NEIGHBOURS && (SMALL..SMALL_NEGATIVE).contains(word)) {
        match is_pointer(types, heaps, word) {
            true => pointers += 1,
            false => numbers += 1,
        }
    }
    match (pointers, numbers) {
        (0, 0) => Neighbours::Neither,
        (MANY_POINTERS.., 0) => Neighbours::PointersOnly,
        _ if pointers >= numbers => Neighbours::Pointers,
        _ => Neighbours::Numbers,
    }
}

/// Return whether a word points to memory. If the word may also be a number, it must point to the start of a block or
/// of the object in it, or outside the heaps.
fn is_pointer(types: &mut Types<'_>, heaps: &Heaps<'_>, word: u64) -> bool {
    let (low, high) = heaps.bounds();
    match word < LOW && (low..high).contains(&word) {
        true => heaps.block_at(word).is_some_and(|block| block.address == word || begins_object(types, &block, word)),
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
        // The upper bits of texts and of ordinary numbers are no tags.
        assert!(![0x6162, 0x3FF0, 0x4059, 0xBFE0].iter().any(|tag| has_tag(at | tag << 48)));
        assert_eq!(untagged(at | 0x7FFC << 48, &spans), Some(at));
        // The addresses are an odd one, and one between the two spans.
        assert_eq!(untagged((at + 1) | 0x7FFC << 48, &spans), None);
        assert_eq!(untagged(0x6000_0000_0000 | 0x7FFC << 48, &spans), None);
    }
}
