//! Prefetching of this process's own memory. A look-up in a table larger than the caches waits for memory, unless the
//! entry was requested a few look-ups earlier.
#![forbid(unsafe_code)]

use crate::arch::cache;

/// The number of look-ups between the prefetch of an entry and its use.
pub const SOON: usize = 16;

/// Have the processor fetch the entry `index` of a table into its cache, if the table has that entry. Does not wait.
#[inline(always)]
pub fn fetch<T>(table: &[T], index: usize) {
    if let Some(entry) = table.get(index) {
        cache::fetch(entry);
    }
}
