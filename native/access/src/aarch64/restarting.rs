//! Restarting system calls that a stop has interrupted.
#![forbid(unsafe_code)]

/// Return false: the kernel has decided about a restart before the thread stops.
pub(crate) fn restart_interrupted(_: i32) -> bool {
    false
}
