//! Waits for the end of a child process.

use crate::signals::SignalsHeld;

/// Wait until a child has ended, and collect its exit status, which is not used.
pub(crate) fn wait(child: i32) {
    // SAFETY: the arguments are numbers, and a null pointer because the status is not wanted.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) };
}

/// Let a separate thread wait for a child to end, so that the caller does not wait.
pub(crate) fn wait_aside(child: i32) {
    let _held = SignalsHeld::hold();
    let _ = std::thread::Builder::new().name("gdbheap guard".into()).stack_size(64 << 10).spawn(move || wait(child));
}
