//! Descriptors that Python opened.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// What closes `number` when it goes: nobody else may. None for what is no descriptor.
pub fn owned(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: it is open, and the caller gives it away.
    (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) })
}
