//! Divides the private pages of a process into those that no other process maps, and those that other processes map
//! too.
#![forbid(unsafe_code)]

use crate::bytes::u64_at;
use crate::error::Result;
use crate::machine::PageSize;
use crate::memory::pages::{show_entries, ENTRY_PRESENT};
use crate::work::Watcher;
use std::fs::File;

/// A bit of a pagemap entry: no other process maps the page (Documentation/admin-guide/mm/pagemap.rst; Linux 4.2).
const ENTRY_EXCLUSIVE: u64 = 1 << 56;

/// The present pages of private memory, ascending: `own` pages, which no other process maps, and `shared` pages, which
/// other processes map too.
#[derive(Default)]
pub struct PageSharing {
    pub own: Vec<u64>,
    pub shared: Vec<u64>,
}

/// Divide the present pages of `ranges` into own and shared pages. `path`: the `pagemap` file to read.
pub fn sharing(watcher: &dyn Watcher, path: &str, ranges: &[(u64, u64)], page: PageSize) -> Result<PageSharing> {
    let (file, mut found) = (File::open(path)?, PageSharing::default());
    for range in ranges {
        show_entries(watcher, &file, *range, page, |start, bytes| {
            for (place, entry) in (0..).zip(bytes.chunks_exact(8).map(|entry| u64_at(entry, 0))) {
                if entry & ENTRY_PRESENT != 0 {
                    let side = if entry & ENTRY_EXCLUSIVE != 0 { &mut found.own } else { &mut found.shared };
                    side.push(start + place * page.bytes());
                }
            }
        })?;
    }
    Ok(found)
}
