//! What malloc_trim() gives back, page for page.
//!
//! glibc's `mtrim` first merges what waits in fast bins with its free neighbours (`malloc_consolidate`), then advises
//! away the whole pages inside each chunk in bins, less the header at its start. What waits in thread caches looks used.
//! A run that touches the top chunk and holds a fast chunk becomes part of the top, of which `mtrim` gives nothing back.

use crate::chunks::{Chunks, Region};
use crate::pages::{outside, whole_pages, Pages, Released};
use pyo3::prelude::*;

/// What is trimmed of one region; `top` is where its top chunk starts after consolidation, 0 without one.
#[derive(Default)]
struct Trimmed {
    chunks: u64,
    released: Released,
    top: u64,
}

/// Arena, start and end of a region, chunks with whole pages, bytes of those: all, resident, swapped; start of the top.
type TrimmedRow = (u32, u64, u64, u64, (u64, u64, u64), u64);

/// `kept`: ascending ranges whose pages the kernel does not take back.
fn trim(region: &Region, pages: Option<&Pages>, kept: &[(u64, u64)]) -> Trimmed {
    let mut trimmed = Trimmed { top: region.top_after_consolidation(), ..Trimmed::default() };
    for (start, end, _) in region.consolidated() {
        if start == trimmed.top {
            continue;
        }
        let Some((first, last)) = whole_pages(start, end) else { continue };
        trimmed.chunks += 1;
        outside(first, last, kept, |from, to| {
            let (resident, swapped) = pages.map_or((0, 0), |pages| pages.count(from, to));
            trimmed.released.add(Released { whole: to - from, resident, swapped });
        });
    }
    trimmed
}

/// A row for each region. `kept`: ascending ranges whose pages the kernel does not take back (locked memory).
#[pyfunction]
pub fn trim_chunks(
    py: Python<'_>,
    chunks: &Chunks,
    pages: Option<Py<Pages>>,
    kept: Vec<(u64, u64)>,
) -> Vec<TrimmedRow> {
    let pages = pages.as_ref().map(|pages| pages.get());
    py.detach(|| {
        let row = |region: &Region| {
            let found = trim(region, pages, &kept);
            let Released { whole, resident, swapped } = found.released;
            let stretch = &region.stretch;
            (stretch.arena, stretch.start, stretch.end, found.chunks, (whole, resident, swapped), found.top)
        };
        chunks.regions.iter().map(row).collect()
    })
}
