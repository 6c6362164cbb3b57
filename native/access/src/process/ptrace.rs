//! Thin, safe wrappers for the requests of ptrace(2) and for waiting. The callers decide how to react.
//!
//! Every request must come from the thread that seized the tracee. Errors are those of the system call.

use crate::bytes::{u32_at, words};
use std::io::Error;

/// The type of a request number in the C library's declaration of ptrace(2): unsigned in glibc, signed in musl.
#[cfg(not(target_env = "musl"))]
pub(crate) type Request = libc::c_uint;
#[cfg(target_env = "musl")]
pub(crate) type Request = libc::c_int;

/// The event number in `status >> 16` for a tracee that PTRACE_INTERRUPT or a group stop holds.
pub(crate) const EVENT_STOP: i32 = 128;
/// The event number in `status >> 16` for a tracee that has made a new thread or process by clone(2).
pub(crate) const EVENT_CLONE: i32 = 3;
/// The number of the register set that contains the general registers (`elf.h`).
pub(crate) const NT_PRSTATUS: usize = 1;
const GETSIGMASK: Request = 0x420a;
const SETSIGMASK: Request = 0x420b;

/// An event of a thread since it was last waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadEvent {
    /// There was no event yet.
    Running,
    /// The thread has ended, or is not a tracee of this thread.
    Gone,
    /// The thread is stopped. `signal` and `event` are parts of the status that wait(2) returns.
    Stopped { signal: i32, event: i32 },
}

fn request(kind: Request, tid: i32, address: usize, data: usize) -> Result<i64, Error> {
    // SAFETY: callers pass addresses of their own live buffers, or numbers that the request takes as such.
    let answer = unsafe { libc::ptrace(kind, tid, address, data) };
    if answer < 0 {
        return Err(Error::last_os_error());
    }
    Ok(answer as i64)
}

/// Return the address of a thread's `struct rseq` (rseq(2)); 0 if it has none, None before Linux 5.13.
pub(crate) fn rseq_address(tid: i32) -> Option<u64> {
    const GET_RSEQ_CONFIGURATION: Request = 0x420f;
    configuration::<3>(tid, GET_RSEQ_CONFIGURATION, 24).map(|words| words[0])
}

/// Make a thread a tracee without stopping it.
pub(crate) fn seize(tid: i32, options: i32) -> Result<(), Error> {
    request(libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

pub(crate) fn set_options(tid: i32, options: i32) -> Result<(), Error> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as usize).map(drop)
}

/// Ask a seized thread to stop. The thread may stop later.
pub(crate) fn interrupt(tid: i32) -> Result<(), Error> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Let a stopped thread continue, and deliver `signal` unless it is 0.
pub(crate) fn go_on(tid: i32, signal: i32) -> Result<(), Error> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Let a stopped thread continue up to the next entry into or exit from a system call.
pub(crate) fn go_on_to_syscall(tid: i32, signal: i32) -> Result<(), Error> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize).map(drop)
}

/// Let a thread stay in its group stop, and wake it when the group stop is over.
pub(crate) fn listen(tid: i32) -> Result<(), Error> {
    request(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

/// Return whether a held thread has had an event since the last wait for it, such as an exec(2) by another thread,
/// which replaces its program.
pub(crate) fn has_moved(tid: i32) -> bool {
    peek(tid) != ThreadEvent::Running
}

/// Detach from a stopped thread, which then continues. Deliver `signal` to it unless it is 0.
pub(crate) fn detach(tid: i32, signal: i32) -> Result<(), Error> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

/// Send a signal to one thread. The signal is lost if the thread ended meanwhile.
pub(crate) fn send(tid: i32, signal: i32) {
    // SAFETY: takes numbers only.
    unsafe { libc::syscall(libc::SYS_tkill, tid, signal) };
}

/// Return the id of the new process or thread that a PTRACE_EVENT reports.
pub(crate) fn event_message(tid: i32) -> Result<u64, Error> {
    let mut message = 0u64;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &mut message as *mut u64 as usize)?;
    Ok(message)
}

/// Return a register set of a stopped thread. The kernel decides its length; at most `most` bytes are returned.
pub(crate) fn register_set(tid: i32, kind: usize, most: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0u8; most];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: most };
    request(libc::PTRACE_GETREGSET, tid, kind, &mut vector as *mut libc::iovec as usize)?;
    bytes.truncate(vector.iov_len);
    Ok(bytes)
}

pub(crate) fn set_register_set(tid: i32, kind: usize, bytes: &[u8]) -> Result<(), Error> {
    let mut vector = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    request(libc::PTRACE_SETREGSET, tid, kind, &mut vector as *mut libc::iovec as usize).map(drop)
}

/// Return the general registers of a stopped thread, `count` words. ENODATA if it runs code that is not 64-bit.
pub(crate) fn general_registers(tid: i32, count: usize) -> Result<Vec<u64>, Error> {
    let found = words(&register_set(tid, NT_PRSTATUS, 8 * count)?);
    if found.len() != count {
        return Err(Error::from_raw_os_error(libc::ENODATA));
    }
    Ok(found)
}

pub(crate) fn set_general_registers(tid: i32, registers: &[u64]) -> Result<(), Error> {
    let bytes: Vec<u8> = registers.iter().flat_map(|word| word.to_le_bytes()).collect();
    set_register_set(tid, NT_PRSTATUS, &bytes)
}

/// Return the signals that a thread blocks, one bit each.
pub(crate) fn signal_mask(tid: i32) -> Result<u64, Error> {
    let mut mask = 0u64;
    request(GETSIGMASK, tid, 8, &mut mask as *mut u64 as usize)?;
    Ok(mask)
}

pub(crate) fn set_signal_mask(tid: i32, mask: u64) -> Result<(), Error> {
    request(SETSIGMASK, tid, 8, &mask as *const u64 as usize).map(drop)
}

/// Return `si_code` of the signal with which a thread stopped (sigaction(2)). The code is above 0 if the kernel made
/// the signal. For a system call stop, the code is SIGTRAP, with or without the bit 0x80.
pub(crate) fn signal_code(tid: i32) -> Result<i32, Error> {
    let mut info = [0u8; 128];
    request(libc::PTRACE_GETSIGINFO, tid, 0, info.as_mut_ptr() as usize)?;
    Ok(u32_at(&info, 8) as i32)
}

/// Make a ptrace(2) request that takes a size and an address, such as PTRACE_GET_SYSCALL_INFO. Return the words that
/// the kernel stores at the address; None if the kernel does not know the request.
pub(crate) fn configuration<const N: usize>(tid: i32, kind: Request, size: usize) -> Option<[u64; N]> {
    let mut words = [0u64; N];
    debug_assert!(size <= 8 * N);
    request(kind, tid, size, words.as_mut_ptr() as usize).ok()?;
    Some(words)
}

/// Return whether a handler in the process takes the thread's system calls (prctl(2), PR_SET_SYSCALL_USER_DISPATCH).
pub fn is_dispatched(tid: i32) -> bool {
    const GET_SYSCALL_USER_DISPATCH_CONFIG: Request = 0x4211;
    configuration::<4>(tid, GET_SYSCALL_USER_DISPATCH_CONFIG, 32).is_some_and(|words| words[0] != 0)
}

/// Return the event of a thread. If `patiently`, wait until there is an event.
pub(crate) fn wait(tid: i32, patiently: bool) -> ThreadEvent {
    let mut status = 0;
    let options = libc::__WALL | if patiently { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: the kernel writes one integer.
        let answer = unsafe { libc::waitpid(tid, &mut status, options) };
        if answer < 0 && Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {
            continue;
        }
        return match answer {
            0 => ThreadEvent::Running,
            ..0 => ThreadEvent::Gone,
            _ if libc::WIFSTOPPED(status) => {
                ThreadEvent::Stopped { signal: libc::WSTOPSIG(status), event: status >> 16 }
            }
            _ => ThreadEvent::Gone,
        };
    }
}

/// Return the exit status of a thread or process that has ended, as wait(2) returns it, and collect it; None if it has
/// not ended.
pub(crate) fn wait_status(tid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: the kernel writes one integer.
    let answer = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) };
    (answer == tid && !libc::WIFSTOPPED(status)).then_some(status)
}

/// Return the event of a thread, but leave it for a later wait to collect.
///
/// The kernel then keeps the signal of a signal-delivery-stop. If the tracer dies before it passes the signal on, the
/// thread still gets the signal.
pub(crate) fn peek(tid: i32) -> ThreadEvent {
    look(libc::P_PID, tid, libc::WNOHANG).map_or(ThreadEvent::Gone, |(_, waited)| waited)
}

/// Wait for an event of any tracee of this thread. Return the tracee and the event, but leave the event for a later
/// wait.
///
/// Does not wait if `how` is WNOHANG. Tracees and children of other threads of this process are ignored.
pub(crate) fn peek_any(how: i32) -> Result<(i32, ThreadEvent), Error> {
    const NOT_OF_OTHERS: i32 = 0x2000_0000;
    look(libc::P_ALL, 0, NOT_OF_OTHERS | how)
}

/// Wait by waitid(2) for an event of a tracee, and leave the event for a later wait. Return the tracee's id and the
/// event. `kind` and `tid` select the tracees; `how` is WNOHANG, or 0 to wait.
fn look(kind: libc::idtype_t, tid: i32, how: i32) -> Result<(i32, ThreadEvent), Error> {
    // SAFETY: plain data, which the kernel fills in; all zeros if nothing has happened.
    let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | how;
    // SAFETY: as above.
    let answer = unsafe { libc::waitid(kind, tid as libc::id_t, &mut about, options) };
    if answer < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: after waitid these two fields are either filled in or zero.
    let (pid, status) = unsafe { (about.si_pid(), about.si_status()) };
    let waited = match (pid, about.si_code) {
        (0, _) => ThreadEvent::Running,
        (_, libc::CLD_TRAPPED | libc::CLD_STOPPED) => {
            ThreadEvent::Stopped { signal: status & 0xff, event: status >> 8 }
        }
        _ => ThreadEvent::Gone,
    };
    Ok((pid, waited))
}
