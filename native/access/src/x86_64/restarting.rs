//! Restarts system calls that a stop has interrupted.
#![forbid(unsafe_code)]

use crate::arch::registers::{self, NO_CALL, ORIG_RAX, R10, RAX, RDI, RDX, RIP, RSI, RSP};
use crate::folder::ProcessFolder;
use crate::process::{limits, ptrace};

/// The numbers of the system calls that the kernel ends with EINTR for a stop although it could restart them: read,
/// write, readv, writev and the like, sendfile, splice (sockets with a time limit), connect, accept, send and receive,
/// semop, sigtimedwait, io_getevents, fallocate, epoll_wait, io_uring_enter. close is not included, because its
/// descriptor is already closed.
const STARTED_AGAIN: [u64; 30] = [
    0, 1, 17, 18, 19, 20, 40, 42, 43, 44, 45, 46, 47, 65, 128, 208, 220, 232, 275, 281, 285, 288, 295, 296, 299, 307,
    327, 328, 426, 441,
];
/// epoll_wait and epoll_pwait, whose time limits continue.
const EPOLL: [u64; 2] = [232, 281];

/// Turn an EINTR that only this stop has caused into "restart, unless a handler runs" (ERESTARTNOHAND). Return whether
/// that was done.
///
/// A thread that stopped in user code has a negative `orig_rax`, and a thread whose handler is about to run has rax 0.
/// So if rax is -EINTR and `orig_rax` is a system call number, the program has not seen the result yet. epoll_wait
/// continues with the rest of its time limit; other calls start again with their full limit.
pub(crate) fn restart_interrupted(tid: i32) -> bool {
    const ERESTARTNOHAND: i64 = 514;
    let Ok(mut registers) = registers::read(tid) else { return false };
    let is_ended = registers[RAX] as i64 == -i64::from(libc::EINTR);
    if !is_ended || !STARTED_AGAIN.contains(&registers[ORIG_RAX]) {
        return false;
    }
    registers[RAX] = -ERESTARTNOHAND as u64;
    if EPOLL.contains(&registers[ORIG_RAX]) {
        let wait = [RIP, RSP, RDI, RSI, RDX].map(|at| registers[at]);
        match limits::rest(registers[R10], &wait, limits::now()) {
            Some(limit) => registers[R10] = limit,
            None => (registers[RAX], registers[ORIG_RAX]) = (0, NO_CALL),
        }
    }
    ptrace::set_general_registers(tid, &registers).is_ok()
}

/// The restart of a system call in several steps, which this processor does not need.
#[derive(Clone, Copy, Default)]
pub(crate) struct Restart;

impl Restart {
    pub(crate) fn of(_: &ProcessFolder, _: i32) -> Restart {
        Restart
    }

    /// Return false: the thread stays stopped.
    pub(crate) fn begin(&mut self, _: i32) -> bool {
        false
    }

    /// Return false: no thread stops at a system call.
    pub(crate) fn go_on(&mut self, _: i32) -> bool {
        false
    }

    /// Do nothing: no step was made.
    pub(crate) fn give_up(&mut self, _: i32) {}
}
