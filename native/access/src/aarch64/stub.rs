//! No code is changed.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::process::patch::planned::{Function, Patch, Wish};

/// How far `b` leads, with some to spare.
pub(crate) const REACH: u64 = 0x7ff_0000;

/// Refused.
pub(crate) fn plan(_: Function, wish: &Wish) -> Result<Patch> {
    Err(Error::Invalid(format!("the code at {:#x} cannot be replaced on aarch64", wish.address)))
}

/// None.
pub(crate) fn replacement(_: u64, _: u64, _: usize) -> Option<Vec<u8>> {
    None
}

/// No thread stands at a trap.
pub const fn frame_size() -> usize {
    0
}

/// The registers as they are.
pub fn original_registers(at_trap: &[u64], _: &[u8], _: u64) -> (Vec<u64>, u64) {
    (at_trap.to_vec(), 0)
}
