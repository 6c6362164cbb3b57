//! A pipe between this process and a child.

use std::io::Error;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Create a pipe. Return its read end and its write end; exec(2) closes both.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let mut ends: [RawFd; 2] = [0; 2];
    // SAFETY: the kernel writes two descriptors, which nothing else owns.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}
