//! No function is called in a thread: the signal frame is not laid here yet.
#![forbid(unsafe_code)]

use crate::process::call::{Answer, Look, Plan, Style};
use std::io::Error;

/// Refused (ENOSYS).
pub fn look(_: i32) -> Result<Look, Error> {
    Err(Error::from_raw_os_error(libc::ENOSYS))
}

/// Refused (ENOSYS).
pub fn call(_: i32, _: Style, _: &Plan) -> Result<Answer, Error> {
    Err(Error::from_raw_os_error(libc::ENOSYS))
}
