//! Offsets of the fields of tcmalloc's structures, and its size classes.
//!
//! A span (`Span`, span.h) is `u64 start@0 (the number of its first page), length@8 (pages), next@16, prev@24, void
//! *objects@32`. At offset 40 it has bit fields: 16 bits for the number of blocks that are handed out, 8 for the class,
//! 2 for the location. The layout is the same in the debug information of 2.10 and the sources of 2.7 to 2.18.1. The
//! sizes of pages are those that tcmalloc's `configure` offers.

use gdbheap_access::bytes::{half_at, u32_at, u64_at};

pub(crate) const SPAN_BYTES: usize = 48;
/// The alignment of spans and of tables in bytes.
pub(crate) const ALIGNMENT: u64 = 8;
const ADDRESS_BITS: u32 = 48;
/// The largest number of size classes, including class 0, which stands for no class.
pub(crate) const MAX_CLASSES: usize = 128;
/// The smallest number of classes that a table of sizes must have.
const FEWEST_CLASSES: usize = 30;
/// The size in bytes of the largest blocks of a class.
const LARGEST: u64 = 256 << 10;
/// The size in bytes of the largest span of blocks of a class.
const LARGEST_SPAN: u64 = 4 << 20;

/// The size of a page, as a number of address bits. It determines how the map splits addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    pub page_bits: u32,
}

/// The shapes of all builds. Pages have 8 KiB unless configured otherwise.
pub const SHAPES: [MapShape; 7] = [
    MapShape { page_bits: 13 },
    MapShape { page_bits: 16 },
    MapShape { page_bits: 15 },
    MapShape { page_bits: 14 },
    MapShape { page_bits: 12 },
    MapShape { page_bits: 17 },
    MapShape { page_bits: 18 },
];

impl MapShape {
    /// Return the shape of a page map for pages of `page` bytes; None for any other page size.
    pub fn of(page: u64) -> Option<MapShape> {
        SHAPES.into_iter().find(|shape| 1 << shape.page_bits == page)
    }

    /// Return how many bits of a page's number are the index in a leaf (`TCMalloc_PageMap2` of pagemap.h).
    pub(crate) fn leaf_bits(self) -> u32 {
        (ADDRESS_BITS - self.page_bits).div_ceil(2)
    }

    pub(crate) fn root_bytes(self) -> u64 {
        8 << (ADDRESS_BITS - self.page_bits - self.leaf_bits())
    }

    pub(crate) fn leaf_bytes(self) -> u64 {
        8 << self.leaf_bits()
    }

    /// Return by how many bits an address is shifted right to get its index in the root.
    pub(crate) fn root_shift(self) -> u32 {
        self.page_bits + self.leaf_bits()
    }

    /// Return the size in bytes of `pages` pages, which is also the start address of the page with the number `pages`.
    /// Saturates if that is too large for 64 bits.
    pub(crate) fn bytes(self, pages: u64) -> u64 {
        pages.saturating_mul(1 << self.page_bits)
    }
}

/// The location of a span: in use, or on one of the lists of free spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    InUse,
    Free,
    /// The span is free, and its pages were returned to the kernel.
    Returned,
    /// The field contains an invalid value.
    Unknown,
}

/// A span, parsed from its structure (`Span` in tcmalloc).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The address of the span's structure.
    pub(crate) at: u64,
    /// The number of the span's first page.
    pub(crate) first: u64,
    /// The address of the span's first page. `end` is the end of its last page.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The address of the first free block of the span.
    pub(crate) objects: u64,
    /// The number of the span's blocks that are not on its list of free blocks.
    pub(crate) handed_out: u64,
    /// The size class of the blocks; 0 for a single block that takes all pages of the span.
    pub(crate) class: usize,
    pub(crate) location: Location,
}

impl Span {
    pub(crate) fn of(shape: MapShape, at: u64, bytes: &[u8]) -> Span {
        let (first, length, bits) = (u64_at(bytes, 0), u64_at(bytes, 8), u32_at(bytes, 40));
        let start = shape.bytes(first);
        Span {
            at,
            first,
            start,
            end: start.saturating_add(shape.bytes(length)),
            objects: u64_at(bytes, 32),
            handed_out: u64::from(bits & 0xffff),
            class: (bits >> 16 & 0xff) as usize,
            location: match bits >> 24 & 3 {
                0 => Location::InUse,
                1 => Location::Free,
                2 => Location::Returned,
                _ => Location::Unknown,
            },
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn has_blocks(&self) -> bool {
        self.location == Location::InUse && self.class > 0
    }

    /// Return the size and the number of the span's blocks; None if the class of the span does not fit its pages.
    pub(crate) fn blocks(&self, sizes: &[u64]) -> Option<(u64, u64)> {
        let size = sizes.get(self.class).copied().filter(|size| *size > 0)?;
        let count = self.size() / size;
        (count > 0 && self.handed_out <= count && self.size() <= LARGEST_SPAN).then_some((size, count))
    }
}

/// Find tables of class sizes in static data (`class_to_size_` of common.h, 32 bits for each size). A table has the
/// sizes 0, 8, 16 and so on, ascending, and a zero after the last size. The leading 0 is for class 0.
pub(crate) fn size_tables(data: &[u8]) -> Vec<Vec<u64>> {
    let size = |place: usize| half_at(data, 4 * place).map(u64::from);
    let mut found = Vec::new();
    for place in (1..data.len() / 4).filter(|place| size(*place) == Some(8) && size(place - 1) == Some(0)) {
        let ascending = (place..place + MAX_CLASSES).take_while(|next| {
            size(*next).is_some_and(|value| value % 8 == 0 && value <= LARGEST && Some(value) > size(next - 1))
        });
        let last = ascending.last().unwrap_or(place);
        if last + 1 - place >= FEWEST_CLASSES && size(last + 1) == Some(0) {
            found.push((place - 1..=last).filter_map(size).collect());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the shapes against `PageMap` of pagemap.h. Leaves of 2 MiB cover 2 GiB of addresses each, and have a root
    /// of 1 MiB. Leaves of 512 KiB cover 4 GiB each.
    #[test]
    fn shapes() {
        let shape = SHAPES[0];
        assert_eq!((shape.leaf_bytes(), 1u64 << shape.root_shift(), shape.root_bytes()), (2 << 20, 2 << 30, 1 << 20));
        let shape = MapShape::of(64 << 10).expect("one of them");
        assert_eq!((shape.leaf_bytes(), shape.root_shift()), (512 << 10, 32));
        assert_eq!(MapShape::of(0), None);
    }

    #[test]
    fn tables_of_sizes() {
        let sizes: Vec<u32> =
            std::iter::once(0).chain(std::iter::once(8)).chain((1..80).map(|size| 16 * size)).collect();
        let bytes = |sizes: &[u32]| sizes.iter().flat_map(|size| size.to_le_bytes()).collect::<Vec<u8>>();
        let mut data = bytes(&[7, 0]);
        data.extend(bytes(&sizes));
        data.extend([0; 64]);
        let found = size_tables(&data);
        assert_eq!(found, [sizes.iter().map(|size| u64::from(*size)).collect::<Vec<u64>>()]);
        assert!(size_tables(&bytes(&sizes[..20])).is_empty());
        // Nothing shows where a table ends if the data ends with it.
        assert!(size_tables(&bytes(&sizes)).is_empty());
    }
}
