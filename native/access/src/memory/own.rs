//! The memory of this process itself, the CPU time of its threads, and the clock.

use std::time::Duration;

/// Return the CPU time of the calling thread.
pub fn thread_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Return the time of CLOCK_MONOTONIC, which all processes share.
pub(crate) fn monotonic_time() -> Duration {
    time_of(libc::CLOCK_MONOTONIC)
}

fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec; it does not fail for these clocks.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Have malloc return free pages to the kernel. Otherwise malloc may keep pages of large blocks that several threads
/// allocated and freed. musl has no such call, and returns large blocks by itself.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and locks each arena while it processes it (glibc malloc/malloc.c,
    // __malloc_trim).
    unsafe {
        libc::malloc_trim(0);
    }
}
