//! The memory of this process itself, the processor time of its threads, and the clock.

use std::time::Duration;

/// The processor time that the calling thread has taken.
pub fn thread_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CLOCK_MONOTONIC, which all processes share.
pub(crate) fn monotonic_time() -> Duration {
    time_of(libc::CLOCK_MONOTONIC)
}

fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec; it fails for none of these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Has malloc give free pages back to the kernel: after much of what was asked for in small pieces, by several threads, was
/// joined, or made smaller, it would keep them. musl's has no such call, and gives large blocks back by itself.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and locks each arena while it looks at it (glibc malloc/malloc.c, __malloc_trim).
    unsafe {
        libc::malloc_trim(0);
    }
}
