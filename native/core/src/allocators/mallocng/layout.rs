//! The structures of mallocng in musl 1.2.1 and later, on machines whose page size is a constant
//! (src/malloc/mallocng/meta.h and malloc.c; the same up to 1.2.6).

use gdbheap_access::bytes::{u32_at, u64_at};

/// The unit of slots in bytes: sizes and addresses of slots are multiples of it.
pub(super) const UNIT: u64 = 16;
/// The size in bytes of the header before each slot: `{u8 is_wide, u8 index | reserved << 5, u16 offset}`.
pub(super) const IN_BAND: u64 = 4;
pub(super) const AREA: u64 = 4 << 10;
pub(super) const MAPPED_CLASS: u8 = 63;
pub(super) const META: usize = 40;
const AREA_HEAD: usize = 24;
pub(super) const METAS_IN_AREA: usize = (AREA as usize - AREA_HEAD) / META;
pub(super) const CLASSES: [u64; 48] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255, 292,
    340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
];

/// The offsets in bytes of `meta_area_head`, `meta_area_tail` and `usage_by_class` in `struct malloc_context`.
/// `CONTEXT` is the size of the structure.
pub(super) const AREA_CHAIN: usize = 56;
pub(super) const AREA_TAIL: usize = 64;
pub(super) const USAGE: usize = 464;
pub(super) const CONTEXT: usize = 928;

/// A `struct meta`, the description of a group of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    pub(super) address: u64,
    /// The address of the group; 0 if there is no group.
    pub(super) mem: u64,
    pub(super) avail: u32,
    pub(super) freed: u32,
    pub(super) count: u32,
    pub(super) freeable: bool,
    pub(super) class: u8,
    /// The size of the group's own mapping in pages of 4096 bytes; 0 if the group lies in another group's slot or was
    /// donated by the dynamic linker.
    pub(super) pages: u64,
}

impl Meta {
    pub(super) fn of(address: u64, bytes: &[u8]) -> Meta {
        let bits = u64_at(bytes, 32);
        Meta {
            address,
            mem: u64_at(bytes, 16),
            avail: u32_at(bytes, 24),
            freed: u32_at(bytes, 28),
            count: (bits & 31) as u32 + 1,
            freeable: bits >> 5 & 1 == 1,
            class: (bits >> 6 & 63) as u8,
            pages: bits >> 12,
        }
    }

    /// Return the distance in bytes from the start of one slot to the start of the next (`get_stride`); None for an
    /// invalid class.
    pub(super) fn stride(&self) -> Option<u64> {
        if self.count == 1 && self.pages > 0 {
            return (self.pages * AREA).checked_sub(UNIT).filter(|stride| *stride > 0);
        }
        CLASSES.get(usize::from(self.class)).map(|units| units * UNIT)
    }

    /// Return a mask in which the bit of each slot is set.
    pub(super) fn all(&self) -> u32 {
        u32::MAX >> (32 - self.count)
    }
}

/// Return those `struct meta`s in the `struct meta_area` at `address` that are in use.
pub(super) fn metas(address: u64, bytes: &[u8]) -> impl Iterator<Item = Meta> + '_ {
    let count = (u32_at(bytes, 16) as usize).min(METAS_IN_AREA);
    let each = bytes.get(AREA_HEAD..).unwrap_or_default().chunks_exact(META).take(count).enumerate();
    each.map(move |(place, bytes)| Meta::of(address + (AREA_HEAD + place * META) as u64, bytes))
        .filter(|meta| meta.mem != 0)
}
