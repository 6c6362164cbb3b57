//! Which order the calls of several threads have in the log: that in which they took the lock, or that of the clock.

use crate::system;
use core::sync::atomic::{AtomicBool, Ordering};

const ORDER: &core::ffi::CStr = c"GDBHEAP_CALLS_ORDER";

static BY_TIME: AtomicBool = AtomicBool::new(false);

/// Keeps what the environment says, which a program may change.
pub(crate) fn learn() {
    // SAFETY: the environment is there before any constructor.
    unsafe {
        let order = libc::getenv(ORDER.as_ptr());
        BY_TIME.store(!order.is_null() && libc::strcmp(order, c"time".as_ptr()) == 0, Ordering::Relaxed);
    }
}

/// Whether the order of calls is that of the processor's clock, and each thread has a lane of its own.
#[inline(always)]
pub(crate) fn is_by_time() -> bool {
    BY_TIME.load(Ordering::Relaxed)
}

/// The time, where calls are ordered by it.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    if is_by_time() {
        system::ticks()
    } else {
        0
    }
}
