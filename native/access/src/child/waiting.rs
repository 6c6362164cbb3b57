//! The end of a child of ours.

use crate::signals::SignalsHeld;

/// Waits for the end of a child.
pub(crate) fn wait(child: i32) {
    // SAFETY: takes numbers, and a null pointer for what is not wanted.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) };
}

/// Has a thread that does nothing else wait for it.
pub(crate) fn wait_aside(child: i32) {
    let _held = SignalsHeld::hold();
    let _ = std::thread::Builder::new().name("gdbheap guard".into()).stack_size(64 << 10).spawn(move || wait(child));
}
