//! Prefetching into the processor's cache.

use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};

/// Prefetch an entry into the cache. Does not wait.
#[inline(always)]
pub(crate) fn fetch<T>(entry: &T) {
    // SAFETY: the instruction has no visible effect, and cannot fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast()) };
}
