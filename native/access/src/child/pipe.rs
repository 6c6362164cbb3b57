//! A pipe between this process and one that it forks.

use std::io::Error;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Its two ends, to read from and to write to; neither outlives exec(2).
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let mut ends: [RawFd; 2] = [0; 2];
    // SAFETY: the kernel writes two descriptors, which are then owned here alone.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}
