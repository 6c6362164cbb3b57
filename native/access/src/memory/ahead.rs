//! Prefetching of this process's own memory: a look-up in a table larger than the caches waits for memory, unless the
//! entry was requested some look-ups earlier.
#![forbid(unsafe_code)]

use crate::arch::cache;

/// The number of look-ups by which to prefetch ahead.
pub const SOON: usize = 16;

/// Have the processor fetch one entry into its cache, if the entry exists. Does not wait.
#[inline(always)]
pub fn fetch<T>(table: &[T], index: usize) {
    if let Some(entry) = table.get(index) {
        cache::fetch(entry);
    }
}
