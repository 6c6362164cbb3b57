//! No code is decoded: no place in it is known that makes a system call.
#![forbid(unsafe_code)]

use crate::process::patch::planned::Call;

pub(crate) const LOAD_SIZE: usize = 4;

/// None.
pub(crate) fn loaded_number(_: &[u8]) -> Option<u32> {
    None
}

/// None.
pub(crate) fn calls(_: &[u8], _: u64) -> Vec<Call> {
    Vec::new()
}
