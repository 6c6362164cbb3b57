//! Prefetching into the processor's cache.
#![forbid(unsafe_code)]

/// Do nothing: Rust has no name for the prefetch instruction on this processor.
#[inline(always)]
pub(crate) fn fetch<T>(_: &T) {}
