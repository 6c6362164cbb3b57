//! Find mimalloc's segments by the shape of their headers.

use crate::allocators::mimalloc::layout::{
    MimallocForm, SegmentFields, ALIGNMENT, ENTRIES, LARGEST_HEAD, MAX_SEGMENT_SLICES, SLICE,
};
use gdbheap_access::bytes::{u32_at, u64_at};
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;

const MAX_INFO_SLICES: u64 = 8;

/// The fields that a segment's header has in all builds.
struct Header {
    slices: u64,
    entries: u64,
    info: u64,
    cookie: u64,
    used: u64,
    table: u64,
}

impl Header {
    fn read(space: &Space, address: u64, head: &SegmentFields) -> Option<Header> {
        let mut bytes = [0; LARGEST_HEAD + 8];
        space.exact(address, &mut bytes).ok()?;
        let word = |offset| u64_at(&bytes, offset);
        let (slices, info, kind, entries) =
            (word(head.counts), word(head.counts + 8), u32_at(&bytes, head.counts + 16), word(head.counts + 24));
        let fits = kind <= 1
            && (1..=MAX_INFO_SLICES).contains(&info)
            && (info + 1..=MAX_SEGMENT_SLICES).contains(&slices)
            // Secure builds use the last slice as a guard.
            && (entries == slices.min(ENTRIES) || entries.checked_add(1) == Some(slices))
            && (kind == 1 || slices == ENTRIES)
            && u64::from(u32_at(&bytes, head.table as usize)) == info
            && u32_at(&bytes, head.table as usize + 4) == 0;
        fits.then(|| Header {
            slices,
            entries,
            info,
            cookie: word(head.cookie) ^ address,
            used: word(head.used),
            table: head.table,
        })
    }

    /// Return whether the spans of slices follow each other without gaps up to the end of the segment.
    fn tiles(&self, space: &Space, address: u64, entry: u64) -> bool {
        let (mut index, entries) = (self.info, self.entries);
        while index < entries {
            let Ok(word) = space.word(address + self.table + index * entry) else { return false };
            if word >> 32 != 0 || word == 0 {
                return false;
            }
            index += word;
        }
        index == self.slices || index == entries
    }
}

/// A range of memory that looks like a segment.
#[derive(Clone, Copy, Debug)]
pub struct FoundSegment {
    pub address: u64,
    /// The segment's cookie XORed with its address: all segments of a process have the same value.
    pub cookie: u64,
    /// The number of used pages. A segment that was freed keeps its header for a while, with 0 used pages.
    pub used: u64,
    /// Whether the segment's spans follow each other without gaps, if its table has entries of the size that the layout
    /// states.
    pub tiles: bool,
}

/// Find headers that look like those of segments, at multiples of 32 MiB in `ranges`. Nothing is found for a layout
/// without segments.
pub fn find_segments(
    watcher: &dyn Watcher,
    space: &Space,
    ranges: &[(u64, u64)],
    form: &MimallocForm,
) -> Result<Vec<FoundSegment>> {
    let (mut found, mut at) = (Vec::new(), 0);
    let Some(head) = form.head() else { return Ok(found) };
    for (start, end) in ranges.iter().copied() {
        let mut address = start.max(at).next_multiple_of(ALIGNMENT);
        while let Some(next) = space.next_backed(address).and_then(|next| next.checked_next_multiple_of(ALIGNMENT)) {
            address = next;
            if address >= end {
                break;
            }
            watcher.check()?;
            let mut size = 1;
            if let Some(header) = Header::read(space, address, head) {
                let tiles = header.tiles(space, address, form.entry());
                let (cookie, used) = (header.cookie, header.used);
                found.push(FoundSegment { address, cookie, used, tiles });
                // No segment begins inside a larger one.
                size = if tiles && header.used > 0 { header.slices * SLICE } else { 1 };
            }
            let next = address.checked_add(size).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
            let Some(next) = next else { break };
            (address, at) = (next, next);
        }
    }
    Ok(found)
}
