//! The processor's cache.

use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};

/// Has the processor fetch what is needed soon; nothing waits for it.
#[inline(always)]
pub(crate) fn fetch<T>(entry: &T) {
    // SAFETY: the instruction reads nothing as far as the program can tell, and faults nowhere.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast()) };
}
