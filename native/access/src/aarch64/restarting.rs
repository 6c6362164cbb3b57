//! Restarts system calls that a stop has interrupted.
#![forbid(unsafe_code)]

/// Return false: on this processor, the kernel decides whether to restart the call before the thread stops.
pub(crate) fn restart_interrupted(_: i32) -> bool {
    false
}
