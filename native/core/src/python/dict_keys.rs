//! Measure the table of a dict, or of another container of hashed entries, from the head of the table.

use gdbheap_access::bytes::word_at;

pub(crate) const MAX_SLOTS: u64 = 1 << 40;
/// The number of slots of the smallest table (dictobject.c: PyDict_MINSIZE).
pub(crate) const MIN_SLOTS: u64 = 8;

/// The offsets of fields in the head of a table; -1 if there is no such field.
/// - `slots_at`: the number of slots.
/// - `log2_at`: the logarithm of this number to the base 2.
/// - `kind_at`: the kind of the table; 0 if its entries contain a hash.
/// - `indices`: the indices of the entries, which follow the head.
#[derive(Clone, Copy, Debug)]
pub struct TableHead {
    pub slots_at: i64,
    pub log2_at: i64,
    pub kind_at: i64,
    pub indices: u64,
}

impl TableHead {
    /// Return the number of slots of the table that begins with the bytes `own`; None if the head is cut off.
    pub(crate) fn slots(&self, own: &[u8]) -> Option<u64> {
        if let Some(at) = optional(self.slots_at) {
            return word_at(own, at);
        }
        let log2 = *own.get(optional(self.log2_at)?)?;
        1u64.checked_shl(log2.into())
    }

    /// Return the size in bytes of the table that begins with the bytes `own`, as _PyDict_KeysSize() in dictobject.c
    /// computes it. None for an impossible head.
    pub(crate) fn size(&self, own: &[u8]) -> Option<u64> {
        let slots = self.slots(own).filter(is_possible)?;
        let (first, step) = self.entries(own, slots)?;
        Some(first + usable(slots) * step)
    }

    /// Return the number of entries that fit into the table that begins with the bytes `own`; None if the size of the
    /// table is cut off or impossible.
    pub(crate) fn room(&self, own: &[u8]) -> Option<u64> {
        self.slots(own).filter(is_possible).map(usable)
    }

    /// Return the offset of the first entry, and the distance from one entry to the next, in bytes; None if the kind of
    /// the table is cut off.
    pub(crate) fn entries(&self, own: &[u8], slots: u64) -> Option<(u64, u64)> {
        let kind = match optional(self.kind_at) {
            Some(at) => *own.get(at)?,
            None => 0,
        };
        Some((self.indices + slots * index_width(slots), if kind == 0 { HASHED } else { PAIR }))
    }
}

fn is_possible(slots: &u64) -> bool {
    slots.is_power_of_two() && *slots <= MAX_SLOTS
}

/// Return how many of the slots are usable (dictobject.c: USABLE_FRACTION).
pub(crate) fn usable(slots: u64) -> u64 {
    slots * 2 / 3
}

pub(crate) const HASHED: u64 = 24;
const PAIR: u64 = 16;

/// Return the size in bytes of an index in the keys of a dict with this many slots.
pub(crate) fn index_width(slots: u64) -> u64 {
    match slots {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    }
}

/// Convert an offset that is -1 if there is no field: return None for -1.
pub(crate) fn optional(offset: i64) -> Option<usize> {
    usize::try_from(offset).ok()
}
