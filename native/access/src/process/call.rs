//! Calls in a thread of a process: the called functions, their return, and their outcome. `calling` makes the calls.
#![forbid(unsafe_code)]

use crate::process::ptrace::{self, ThreadEvent};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for a stop without sleeping.
const AWAKE: Duration = Duration::from_micros(200);

/// The way in which a tracer took the thread. It decides how the thread can be stopped again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The thread was seized (PTRACE_SEIZE). PTRACE_INTERRUPT stops it.
    Seized,
    /// The thread was attached (PTRACE_ATTACH), as gdb does. A SIGSTOP stops it, and this signal is not delivered.
    Attached,
}

/// An address in the target's memory, and the bytes that belong there.
pub type Bytes = (u64, Vec<u8>);

/// The plan of a call: the functions, and the way in which they return.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The functions to call one after the other, each as (its address, its arguments).
    pub calls: Vec<(u64, Vec<u64>)>,
    /// The address of the code in the process's libc that calls rt_sigreturn(2).
    pub restorer: u64,
    /// The address of code that stores a function's result at the address in a register, moves the stack pointer up and
    /// returns. Without it the result would be lost, because the restorer overwrites the register of the result.
    pub keeper: u64,
    /// The index of the register with the address at which `keeper` stores the result.
    pub keeper_register: usize,
    /// The number of bytes by which `keeper` moves the stack pointer.
    pub keeper_skips: u64,
    /// A descriptor whose data is captured: bytes that the thread writes to it are returned, and do not reach the
    /// kernel. -1: no descriptor.
    pub captured: i32,
    /// Whether a seccomp filter sees the thread's system calls. If so, the thread makes no system calls besides those
    /// of the called function.
    pub filtered: bool,
    /// The time limit for all calls of the plan together.
    pub limit: Duration,
    /// A flag that, when true, ends the calls as if their time were over.
    pub cancelled: Arc<AtomicBool>,
    /// Whether the thread finishes the call by itself once the time is over. If not, the call is undone, and the thread
    /// is as it was before.
    pub leaves: bool,
    /// Bytes of the target to restore after the calls, unless the thread is left in a call, or is gone.
    pub kept: Vec<Bytes>,
    /// Bytes to restore in addition to `kept` if a call was undone: the locks that the call held.
    pub freed: Vec<Bytes>,
}

impl Plan {
    pub(crate) fn is_over(&self, deadline: Instant) -> bool {
        self.cancelled.load(Ordering::Relaxed) || Instant::now() > deadline
    }
}

/// The way in which a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Returned,
    /// The call took too long and was undone.
    Abandoned,
    /// The call took too long. The thread is stopped in the call; when it continues, it will finish the call and
    /// restore itself.
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

/// The facts about a thread by which the caller decides whether a call may be made in the thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadFacts {
    /// The registers in the order of the kernel's `NT_PRSTATUS`.
    pub registers: Vec<u64>,
    pub shadow_stack: bool,
    /// Whether syscall user dispatch is switched on (prctl(2)).
    pub dispatched: bool,
    /// The word `rseq_cs` of the thread's restartable sequences; 0 without one.
    pub sequence: u64,
    /// Whether the thread is between the entry into a system call and the exit, where gdb's `catch syscall` stops it.
    pub entering: bool,
    /// Whether the system call in which the thread waits, if any, could be made again.
    pub restartable: bool,
    /// The size in bytes of the thread's vector registers as the kernel reports them; 0 if they cannot be restored.
    pub vector_size: usize,
}

/// Wait until the thread stops or `is_over` returns true. During the time AWAKE there is no sleep between checks. The
/// called function may make tens of thousands of system calls with two stops each, and a sleep before each stop would
/// be slow. Afterwards the sleeps between checks become longer and longer.
pub(crate) fn await_stop(tid: i32, is_over: impl Fn() -> bool) -> ThreadEvent {
    let (began, mut pause) = (Instant::now(), Duration::from_micros(5));
    loop {
        let waited = ptrace::wait(tid, false);
        if waited != ThreadEvent::Running || is_over() {
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
