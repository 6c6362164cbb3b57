//! Where the fields of mimalloc's structures lie, in the two forms that CPython has had.
//!
//! A segment is aligned to 32 MiB and begins with `mi_segment_t`: `used@208, cookie@216, segment_slices@224,
//! segment_info_slices@232, u32 kind@240, slice_entries@248, thread_id@256, slices[]@264`. A slice is 64 KiB; the entry of
//! a span's first one is its `mi_page_t`: `u32 slice_count@0, u32 slice_offset@4, bits@8 (the heap's tag from bit 3 on),
//! u16 capacity@10, u16 reserved@12, free@16, u32 used@24, u32 xblock_size@28, local_free@32, xthread_free@40 (two flags
//! below), xheap@48`. How long an entry is depends on the build. All this is 3.13's; in late 3.14 and in 3.15 some of it
//! lies elsewhere: see `Head::of` and `late_page`.

use crate::allocators::mimalloc::page::Page;
use crate::bytes::{half_at, word_at};

pub(crate) const ALIGNMENT: u64 = 32 << 20;
pub(crate) const SLICE: u64 = 64 << 10;
/// Entries of a segment, one for each slice; a larger segment has no more.
pub(crate) const ENTRIES: u64 = 512;
pub(crate) const LARGEST_HEAD: usize = 288;
pub(crate) const MAX_SEGMENT_SLICES: u64 = 1 << 26;
const HUGE_BLOCK: u64 = 1 << 31;

/// Which form the structures have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// That of 3.13 and of early 3.14.
    Early,
    /// That of late 3.14 and of 3.15.
    Late,
}

/// What the caller found out of a build.
#[derive(Clone, Copy, Debug)]
pub struct MimallocLayout {
    /// Bytes of `mi_page_t`.
    pub entry: u64,
    /// The offset of `thread_delayed_free` in `mi_heap_t`.
    pub delayed: u64,
    /// Whether each heap of a thread has its tag.
    pub tagged: bool,
    pub release: Release,
}

/// Where the fields of `mi_segment_t` lie.
pub(crate) struct Head {
    pub(crate) used: usize,
    pub(crate) cookie: usize,
    /// `segment_slices`, then `segment_info_slices`, `kind`, `slice_entries`, `thread_id`, and `slices`.
    pub(crate) counts: usize,
    pub(crate) table: u64,
}

impl Head {
    pub(crate) fn of(release: Release) -> Head {
        match release {
            Release::Early => Head { used: 208, cookie: 216, counts: 224, table: 264 },
            Release::Late => Head { used: 216, cookie: 224, counts: 248, table: 288 },
        }
    }
}

/// The page whose entry, at `entry`, has these bytes; its slices are [start, end). A span without a page has the size 0.
/// None where the bytes end too early.
pub(crate) fn parse_page(bytes: &[u8], start: u64, end: u64, entry: u64, release: Release) -> Option<Page> {
    match release {
        Release::Early => early_page(bytes, start, end, entry),
        Release::Late => late_page(bytes, start, end, entry),
    }
}

fn early_page(bytes: &[u8], start: u64, end: u64, entry: u64) -> Option<Page> {
    let bits = *bytes.get(8)?;
    let word = half_at(bytes, 10)?;
    let xblock = u64::from(half_at(bytes, 28)?);
    let size = if xblock < HUGE_BLOCK { xblock } else { end - start };
    // Small blocks do not begin where the slice does, so that not all of them fall on the same lines of the cache.
    let offset = if size <= 64 {
        3 * size
    } else if size <= 512 {
        size
    } else {
        0
    };
    Some(Page {
        start,
        end,
        blocks: start + offset,
        size,
        capacity: u64::from(word & 0xffff),
        reserved: u64::from(word >> 16),
        counted: u64::from(half_at(bytes, 24)?),
        lists: [word_at(bytes, 16)?, word_at(bytes, 32)?, word_at(bytes, 40)? & !3],
        tag: bits >> 3 & 15,
        heap: word_at(bytes, 48)?,
        entry,
        first: 0,
    })
}

/// `free@16, local_free@24, u16 used@32, heap_tag@35, block_size@40, page_start@48, xthread_free@56, xheap@64`.
fn late_page(bytes: &[u8], start: u64, end: u64, entry: u64) -> Option<Page> {
    let word = half_at(bytes, 10)?;
    let (size, blocks) = (word_at(bytes, 40)?, word_at(bytes, 48)?);
    let inside = (start..end).contains(&blocks);
    Some(Page {
        start,
        end,
        blocks: if inside { blocks } else { end },
        size,
        capacity: u64::from(word & 0xffff),
        reserved: u64::from(word >> 16),
        counted: u64::from(half_at(bytes, 32)? & 0xffff),
        lists: [word_at(bytes, 16)?, word_at(bytes, 24)?, word_at(bytes, 56)? & !3],
        tag: *bytes.get(35)?,
        heap: word_at(bytes, 64)?,
        entry,
        first: 0,
    })
}
