//! Compute the sizes of objects from the objects' own fields.

use crate::python::layout::TypeLayout;
use crate::python::types::Kind;
use gdbheap_access::bytes::{half_at, word_at};
use gdbheap_access::memory::space::Space;

/// The fields that determine the size of an object, in addition to `tp_basicsize` and `tp_itemsize`.
#[derive(Clone, Debug, Default)]
pub struct SizeFields {
    pub ob_size: u64,
    /// Whether the word of an int at `ob_size` is a tag: its bits above the lowest three are the number of digits.
    pub tagged: bool,
    pub flag_int: u64,
    pub flag_str: u64,
    pub str_length: u64,
    pub str_state: u64,
    /// How many bits precede the kind of a str in its state, beyond the two of most releases.
    pub str_state_shift: u32,
    pub sizeof_ascii: u64,
    pub sizeof_compact: u64,
    /// The flag of types whose objects are followed by the values of their attributes; 0 if the release has no such
    /// flag.
    pub flag_inline: u64,
}

pub(crate) const STR_COMPACT: u32 = 1 << 5;
pub(crate) const STR_ASCII: u32 = 1 << 6;

/// The fields of a type object that give the size of the type's objects: `tp_basicsize` and `tp_itemsize`.
#[derive(Clone, Copy)]
pub(crate) struct Measure {
    pub(crate) basic: u64,
    pub(crate) item: u64,
}

impl Measure {
    /// Read the sizes from the type at `address`; None if the type cannot be read.
    pub(crate) fn of(space: &Space, layout: &TypeLayout, address: u64) -> Option<Measure> {
        let word = |at: u64| space.word(address.wrapping_add(at)).ok();
        Some(Measure { basic: word(layout.tp_basicsize)?, item: word(layout.tp_itemsize)? })
    }
}

/// Return the number of bytes that were requested for the block of an object; None if the object has no field with the
/// size, or if the field is cut off. `head`: the first bytes of the object.
pub(crate) fn asked_bytes(kind: &Kind, measure: Measure, sizing: &SizeFields, head: &[u8]) -> Option<u64> {
    let word = |offset: u64| word_at(head, (kind.pre + offset) as usize);
    if kind.flags & sizing.flag_str != 0 {
        let state = half_at(head, (kind.pre + sizing.str_state) as usize)? >> sizing.str_state_shift.min(31);
        let characters = word(sizing.str_length)?.checked_add(1)?;
        let own = match (state & STR_COMPACT != 0, state & STR_ASCII != 0) {
            (false, _) => measure.basic,
            (true, true) => sizing.sizeof_ascii.checked_add(characters)?,
            (true, false) => characters.checked_mul(u64::from(state >> 2 & 7))?.checked_add(sizing.sizeof_compact)?,
        };
        return kind.pre.checked_add(own);
    }
    let items = match (measure.item, kind.flags & sizing.flag_int != 0) {
        (0, _) => 0,
        (_, true) if sizing.tagged => (word(sizing.ob_size)? >> 3).max(1),
        _ => (word(sizing.ob_size)? as i64).unsigned_abs(),
    };
    let behind = kind.pre + measure.basic;
    let inline = match kind.flags & sizing.flag_inline != 0 {
        // The layout of struct PyDictValues is: four bytes, padded to eight; the values; a byte for each value, padded
        // to eight.
        true => {
            8 + u64::from(*head.get(behind as usize)?) * 8 + u64::from(*head.get(behind as usize)?).next_multiple_of(8)
        }
        false => 0,
    };
    items.checked_mul(measure.item)?.checked_add(behind + inline)
}
