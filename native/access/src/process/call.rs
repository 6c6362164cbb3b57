//! Calls in a thread of a process: what is called, how it returns, and how it ended. `arch::call` makes the calls.
#![forbid(unsafe_code)]

use crate::process::ptrace::{self, Waited};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long to wait for a stop without sleeping.
const AWAKE: Duration = Duration::from_micros(200);

/// How the thread became a tracee, which decides how it can be stopped again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// By PTRACE_SEIZE. PTRACE_INTERRUPT stops it.
    Seized,
    /// By PTRACE_ATTACH, as gdb does. A SIGSTOP stops it, and is removed again.
    Attached,
}

/// A place in the target's memory, and the bytes that belong there.
pub type Bytes = (u64, Vec<u8>);

/// What is called, and how it returns.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Functions with their arguments, called one after the other.
    pub calls: Vec<(u64, Vec<u64>)>,
    /// The address of the code in the process's libc that calls rt_sigreturn(2).
    pub restorer: u64,
    /// The address of code that stores a function's result at the address in a register, moves the stack pointer up and
    /// returns. Without it the result would be lost, because the restorer overwrites the register of the result.
    pub keeper: u64,
    /// The index of the register that `keeper` stores through, and the bytes by which it moves the stack pointer.
    pub keeper_register: usize,
    pub keeper_skips: u64,
    /// Writes to this descriptor do not reach the kernel, but are returned; -1 for none.
    pub captured: i32,
    /// Whether a seccomp filter sees the thread's system calls. If so, the thread makes only the system calls that the
    /// function makes itself.
    pub filtered: bool,
    /// The time limit for all calls together.
    pub limit: Duration,
    /// Set it to true to end the call as if the time were over.
    pub cancelled: Arc<AtomicBool>,
    /// What happens after the limit: if true, the thread finishes the call by itself; if false, it is put back as it
    /// was before.
    pub leaves: bool,
    /// Bytes that are put back however the calls end, unless the thread continues in one.
    pub kept: Vec<Bytes>,
    /// Bytes that are also put back after a call was undone: locks that it held.
    pub freed: Vec<Bytes>,
}

impl Plan {
    pub(crate) fn is_over(&self, deadline: Instant) -> bool {
        self.cancelled.load(Ordering::Relaxed) || Instant::now() > deadline
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Returned,
    /// It took too long and was undone.
    Abandoned,
    /// It took too long. The thread is stopped in it, and will finish it and restore itself when it continues.
    Left,
    /// The function caused this signal; the call was undone.
    Failed(i32),
    /// The thread has ended, or runs another program.
    Gone,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub end: End,
    pub value: u64,
    pub text: Vec<u8>,
}

/// The state of a thread, which decides whether a call may be made in it.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The registers, in the order of the kernel.
    pub registers: Vec<u64>,
    pub shadow_stack: bool,
    /// Whether syscall user dispatch is switched on (prctl(2)).
    pub dispatched: bool,
    /// The word `rseq_cs` of the thread's restartable sequences; 0 without one.
    pub sequence: u64,
    /// Whether the thread is between the entry into a system call and the exit, as `catch syscall` leaves it.
    pub entering: bool,
    /// Whether the system call in which the thread waits, if any, could be made again.
    pub restartable: bool,
    /// Bytes of the kernel's vector state.
    pub vector_size: usize,
}

/// Wait until the thread stops or `is_over`, in ever longer steps. A function may make tens of thousands of system
/// calls with two stops each; sleeping at each of them would take many times as long as the calls.
pub(crate) fn await_stop(tid: i32, is_over: impl Fn() -> bool) -> Waited {
    let (began, mut pause) = (Instant::now(), Duration::from_micros(5));
    loop {
        let waited = ptrace::wait(tid, false);
        if waited != Waited::Running || is_over() {
            return waited;
        }
        if began.elapsed() < AWAKE {
            std::thread::yield_now();
            continue;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
}
