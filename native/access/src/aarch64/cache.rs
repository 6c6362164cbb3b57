//! The processor's cache.
#![forbid(unsafe_code)]

/// Nothing is fetched ahead: Rust has no name for the instruction on this processor.
#[inline(always)]
pub(crate) fn fetch<T>(_: &T) {}
