//! Memory of ours that is needed soon: of a table larger than the caches each look-up waits for memory, unless it was asked
//! for some look-ups before.
#![forbid(unsafe_code)]

use crate::arch::cache;

/// So many look-ups before.
pub const SOON: usize = 16;

/// Has the processor fetch one entry, if there is one; nothing waits for it.
#[inline(always)]
pub fn fetch<T>(table: &[T], index: usize) {
    if let Some(entry) = table.get(index) {
        cache::fetch(entry);
    }
}
