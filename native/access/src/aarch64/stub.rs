//! The code of a target is not changed on this processor.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::process::patch::types::{Function, Patch, PatchRequest};

/// The reach of the instruction `b` in bytes, less some margin.
pub(crate) const REACH: u64 = 0x7ff_0000;

/// Return an error: code is not changed on this processor.
pub(crate) fn plan(_: Function, wish: &PatchRequest) -> Result<Patch> {
    Err(Error::Invalid(format!("the code at {:#x} cannot be replaced on aarch64", wish.address)))
}

/// Return None: code is not changed on this processor.
pub(crate) fn replacement(_: u64, _: u64, _: usize) -> Option<Vec<u8>> {
    None
}

/// Return 0: no thread stops at a trap.
pub const fn frame_size() -> usize {
    0
}

/// Return the registers unchanged.
pub fn original_registers(at_trap: &[u64], _: &[u8], _: u64) -> (Vec<u64>, u64) {
    (at_trap.to_vec(), 0)
}
