//! The order of several threads' calls in the log: the order in which the threads took the lock, or the order of times
//! on the processor's clock.

use crate::system;
use core::sync::atomic::{AtomicBool, Ordering};

const ORDER: &core::ffi::CStr = c"GDBHEAP_CALLS_ORDER";

static BY_TIME: AtomicBool = AtomicBool::new(false);

/// Read the requested order of calls from the environment, because the program may change its environment later.
pub(crate) fn learn() {
    // SAFETY: the environment exists before any constructor.
    unsafe {
        let order = libc::getenv(ORDER.as_ptr());
        BY_TIME.store(!order.is_null() && libc::strcmp(order, c"time".as_ptr()) == 0, Ordering::Relaxed);
    }
}

/// Return whether calls are ordered by the processor's clock, with a separate lane for each thread.
#[inline(always)]
pub(crate) fn is_by_time() -> bool {
    BY_TIME.load(Ordering::Relaxed)
}

/// Return the time of the processor's clock if calls are ordered by it, else 0.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    if is_by_time() {
        system::ticks()
    } else {
        0
    }
}
