//! Machine code is not decoded on this processor, so no place that makes a system call is known.
#![forbid(unsafe_code)]

use crate::process::patch::types::Call;

pub(crate) const LOAD_SIZE: usize = 4;

/// Return None: code is not decoded on this processor.
pub(crate) fn loaded_number(_: &[u8]) -> Option<u32> {
    None
}

/// Return an empty list: code is not decoded on this processor.
pub(crate) fn calls(_: &[u8], _: u64) -> Vec<Call> {
    Vec::new()
}
