//! Compute page by page the memory that malloc_trim() returns.
//!
//! glibc's `mtrim` first merges fast-bin chunks with their free neighbours (`malloc_consolidate`). Then, with
//! MADV_DONTNEED, it returns the whole pages inside each chunk in bins, except the header at the chunk's start. Chunks
//! in thread caches count as used. A run of free chunks that touches the top chunk and contains a fast-bin chunk
//! becomes part of the top. `mtrim` returns no page of the top.

use crate::allocators::glibc::chunks::{Chunks, Region};
use gdbheap_access::bytes::outside;
use gdbheap_access::machine::PageSize;
use gdbheap_access::memory::pages::Pages;

/// The whole pages in a range: their total size in bytes, and how many of these bytes are resident or swapped.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct PageSum {
    pub whole: u64,
    pub resident: u64,
    pub swapped: u64,
}

impl PageSum {
    pub(crate) fn add(&mut self, other: PageSum) {
        self.whole += other.whole;
        self.resident += other.resident;
        self.swapped += other.swapped;
    }
}

/// The size in bytes of `struct malloc_chunk`: the header and the links that glibc keeps in a free chunk.
pub(crate) const CHUNK_HEAD: u64 = 48;

/// Return the whole pages of a free chunk [start, end) that contain no data of malloc, as `mtrim` computes them; None
/// if there are none.
pub(super) fn whole_pages(page: PageSize, start: u64, end: u64) -> Option<(u64, u64)> {
    page.inside(start.checked_add(CHUNK_HEAD)?, end)
}

/// Return the memory of a free chunk [start, end) that malloc_trim() would return to the kernel. The range includes the
/// header. The result counts the chunk's whole pages, and how many of their bytes are resident or swapped.
pub fn released(pages: &Pages, start: u64, end: u64) -> PageSum {
    let Some((first, last)) = whole_pages(pages.page, start, end) else { return PageSum::default() };
    let (resident, swapped) = pages.count(first, last);
    PageSum { whole: last - first, resident, swapped }
}

/// The memory of one region that malloc_trim() returns.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionTrim {
    pub arena: u32,
    pub start: u64,
    pub end: u64,
    /// The number of free chunks that contain whole pages.
    pub chunks: u64,
    pub released: PageSum,
    /// The start of the top chunk after consolidation; 0 if there is none.
    pub top: u64,
}

/// Compute the memory of a region that malloc_trim() returns. `kept`: ascending ranges whose pages the kernel does not
/// take back.
fn trim(region: &Region, page: PageSize, pages: Option<&Pages>, kept: &[(u64, u64)]) -> RegionTrim {
    let (arena, start, end) = (region.stretch.arena, region.stretch.start, region.stretch.end);
    let top = region.top_after_consolidation();
    let mut trimmed = RegionTrim { arena, start, end, chunks: 0, released: PageSum::default(), top };
    for (start, end, _) in region.consolidated() {
        if start == trimmed.top {
            continue;
        }
        let Some((first, last)) = whole_pages(page, start, end) else { continue };
        trimmed.chunks += 1;
        outside(first, last, kept, |from, to| {
            let (resident, swapped) = pages.map_or((0, 0), |pages| pages.count(from, to));
            trimmed.released.add(PageSum { whole: to - from, resident, swapped });
        });
    }
    trimmed
}

/// Compute the memory of each region that malloc_trim() returns. `kept`: ascending ranges whose pages the kernel does
/// not take back (locked memory).
pub fn trim_chunks(chunks: &Chunks, page: PageSize, pages: Option<&Pages>, kept: &[(u64, u64)]) -> Vec<RegionTrim> {
    chunks.regions.iter().map(|region| trim(region, page, pages, kept)).collect()
}
