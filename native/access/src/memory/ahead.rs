//! Memory of ours that is needed soon: of a table larger than the caches each look-up waits for memory, unless it was asked
//! for some look-ups before.

/// So many look-ups before.
pub const SOON: usize = 16;

/// Has the processor fetch one entry, if there is one; nothing waits for it.
#[inline(always)]
pub fn fetch<T>(table: &[T], index: usize) {
    if let Some(entry) = table.get(index) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction reads nothing as far as the program can tell, and faults nowhere.
        unsafe {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = entry;
    }
}
