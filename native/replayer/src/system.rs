//! Requests to the kernel, and instructions of the processor.

use core::arch::asm;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};

/// A bit of AT_HWCAP2: programs may set the base of fs themselves (Linux 5.9 and later, on processors with the
/// instruction for it).
const HWCAP2_FSGSBASE: u64 = 2;
const ARCH_SET_FS: i32 = 0x1002;

/// Map shared memory; None if there is too little memory. The kernel counts its pages separately from private pages.
pub(crate) fn shared(size: usize, flags: i32) -> Option<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new mapping.
    let found = unsafe { libc::mmap(null_mut(), size, protection, flags, -1, 0) };
    (found != libc::MAP_FAILED).then_some(found as *mut u8)
}

/// Let the kernel end this program first when memory runs out (proc_pid_oom_score_adj(5)).
pub(crate) fn be_first_to_go() {
    const SCORE: &[u8] = b"1000";
    // SAFETY: a path that ends with a zero byte, and memory of this function.
    unsafe {
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, SCORE.as_ptr() as *const _, SCORE.len());
            libc::close(file);
        }
    }
}

/// Limit the private memory of this program, in bytes; 0 means no limit. Beyond the limit an allocator returns NULL.
pub(crate) fn limit_memory(bytes: u64) {
    if bytes != 0 {
        let limit = libc::rlimit { rlim_cur: bytes as _, rlim_max: bytes as _ };
        // SAFETY: the kernel only reads it; if it refuses, a lower limit holds already.
        unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) };
    }
}

pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: in the x86-64 ABI the first word of the thread control block is its own address.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

pub(crate) fn can_set_thread_pointer() -> bool {
    // SAFETY: reads what the kernel passed to the program.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// Give this thread the thread pointer of another thread, so that it looks like that thread. The other thread waits in
/// the meantime.
///
/// # Safety
/// `pointer` must be the thread pointer of a living thread.
#[inline(always)]
pub(crate) unsafe fn set_thread_pointer(pointer: u64, directly: bool) {
    if directly {
        // SAFETY: the caller guarantees the pointer; the processor has the instruction (`can_set_thread_pointer`).
        unsafe { asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above. libc is not used, because it would look for errno at the new place.
        unsafe {
            asm!("syscall", inlateout("rax") libc::SYS_arch_prctl => _, in("rdi") ARCH_SET_FS, in("rsi") pointer,
                 lateout("rcx") _, lateout("r11") _, options(nostack));
        }
    }
}

/// Wait until the word no longer has this value.
pub(crate) fn wait_while(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) == value {
        let flags = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word outlives the call.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), flags, value, null_mut::<u8>()) };
    }
}

pub(crate) fn set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
    let flags = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), flags, 1) };
}

/// Return the CPU time of the process in nanoseconds.
pub(crate) fn processor_time() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills in a record of this function.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Start the program again without address randomization, so that addresses are the same in each run. Return true if
/// the program already runs without randomization; return false if the kernel or a container does not allow the change.
pub(crate) fn without_randomization(words: *const *const i8) -> bool {
    const ASK: u64 = 0xffff_ffff;
    let flag = libc::ADDR_NO_RANDOMIZE as u64;
    let mut path = [0u8; 4096];
    // SAFETY: reads into memory of this function; the words are those of `main`.
    unsafe {
        let now = libc::personality(ASK);
        if now >= 0 && now as u64 & flag != 0 {
            return true;
        }
        if now < 0 || libc::personality(now as u64 | flag) < 0 {
            return false;
        }
        let got = libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr() as *mut _, path.len() - 1);
        if got > 0 {
            libc::execv(path.as_ptr() as *const _, words);
        }
        false
    }
}
