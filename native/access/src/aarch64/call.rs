//! Calls in a thread of the target are not supported: gdbheap cannot write signal frames for this processor yet.
#![forbid(unsafe_code)]

use crate::process::call::{Answer, Look, Plan, Style};
use std::io::Error;

/// Return ENOSYS: the state of a thread cannot be read on this processor yet.
pub fn look(_: i32) -> Result<Look, Error> {
    Err(Error::from_raw_os_error(libc::ENOSYS))
}

/// Return ENOSYS: calls are not supported on this processor yet.
pub fn call(_: i32, _: Style, _: &Plan) -> Result<Answer, Error> {
    Err(Error::from_raw_os_error(libc::ENOSYS))
}
