//! Calls in a thread are not supported: signal frames for this processor are not written yet.
#![forbid(unsafe_code)]

use crate::process::call::{Answer, Look, Plan, Style};
use std::io::Error;

/// Return ENOSYS: threads are not examined on this processor yet.
pub fn look(_: i32) -> Result<Look, Error> {
    Err(Error::from_raw_os_error(libc::ENOSYS))
}

/// Return ENOSYS: no call is made on this processor yet.
pub fn call(_: i32, _: Style, _: &Plan) -> Result<Answer, Error> {
    Err(Error::from_raw_os_error(libc::ENOSYS))
}
