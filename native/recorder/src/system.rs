//! Requests to the kernel, and instructions of the processor.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Return the address of the thread's control block. It identifies the thread, and reading it takes one instruction.
#[inline(always)]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: in the x86-64 ABI the first word of the block is its own address.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

/// Return the time stamp counter of the processor (rdtsc). The counters of all processors are assumed to agree.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has this instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

pub(crate) fn process_id() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::getpid() as u32 }
}

pub(crate) fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in a record of this function.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// If the word still has this value, sleep until `wake` is called for it, for at most 500 us.
#[cold]
pub(crate) fn wait(word: &AtomicU64, value: u64) {
    let _kept = KeptErrno::new();
    let low = word.as_ptr() as *const u32;
    let limit = libc::timespec { tv_sec: 0, tv_nsec: 500_000 };
    // SAFETY: the word outlives the call; on x86-64 its lower half comes first.
    unsafe { libc::syscall(libc::SYS_futex, low, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, value as u32, &limit) };
}

#[cold]
pub(crate) fn wake(word: &AtomicU64) {
    let _kept = KeptErrno::new();
    let low = word.as_ptr() as *const u32;
    // SAFETY: as in `wait`.
    unsafe { libc::syscall(libc::SYS_futex, low, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}

/// A guard that restores `errno` when it is dropped, because the program must not notice the recorder's system calls.
pub(crate) struct KeptErrno(i32);

impl KeptErrno {
    pub(crate) fn new() -> KeptErrno {
        // SAFETY: each thread has an errno.
        KeptErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: each thread has an errno.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// Read a word. The read is relaxed, a plain load on x86-64: only the owner of the lock uses the word, and signal
/// handlers on the owner's thread.
#[inline(always)]
pub(crate) fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

#[inline(always)]
pub(crate) fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}
