//! What is called in a thread of a process, by which way, and what came of it. How, is the processor's (`arch::call`).
#![forbid(unsafe_code)]

use crate::process::ptrace::{self, Waited};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long a stop is waited for without sleep.
const AWAKE: Duration = Duration::from_micros(200);

/// How the thread became a tracee: it decides how it can be stopped again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// By PTRACE_SEIZE: PTRACE_INTERRUPT stops it.
    Seized,
    /// By PTRACE_ATTACH, as gdb does it: a SIGSTOP stops it, which is taken out again.
    Attached,
}

/// A place in the target's memory and the bytes that belong there.
pub type Bytes = (u64, Vec<u8>);

/// What is called and by which way it returns.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Functions with their arguments, called one after the other.
    pub calls: Vec<(u64, Vec<u64>)>,
    /// Address of the code in the process's libc that makes rt_sigreturn(2).
    pub restorer: u64,
    /// Address of code that stores a function's result at a register's address, moves the stack pointer up and returns: the
    /// result itself would be lost in the restorer, which loads a number into its register.
    pub keeper: u64,
    /// Index of the register that `keeper` stores through, and by how much it moves the stack pointer.
    pub keeper_register: usize,
    pub keeper_skips: u64,
    /// Writes to this descriptor are kept from the kernel and returned; -1 for none.
    pub captured: i32,
    /// A seccomp filter looks at the thread's system calls: only those are made that the function makes anyway.
    pub filtered: bool,
    /// For all calls together.
    pub limit: Duration,
    /// Whoever sets it ends the call as if the time were over.
    pub cancelled: Arc<AtomicBool>,
    /// After the limit: true lets the thread finish the call by itself, false puts it back as it was before.
    pub leaves: bool,
    /// What is put back however the calls end, unless the thread goes on in one.
    pub kept: Vec<Bytes>,
    /// What is put back beside that after a call that was undone: locks that it held.
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
    /// It took too long; the thread stands in it, and will finish it and restore itself when it goes on.
    Left,
    /// A signal that the function itself caused; it was undone.
    Failed(i32),
    /// The thread is no more, or runs another program.
    Gone,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub end: End,
    pub value: u64,
    pub text: Vec<u8>,
}

/// What decides whether a call may be made in a thread.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// As the kernel lays them out.
    pub registers: Vec<u64>,
    pub shadow_stack: bool,
    /// Syscall user dispatch (prctl(2)).
    pub dispatched: bool,
    /// The word `rseq_cs` of the thread's restartable sequences, 0 without one.
    pub sequence: u64,
    /// It stands between the entry into a system call and the exit, as `catch syscall` leaves it.
    pub entering: bool,
    /// Whether the system call that it waits in, if any, could be made anew.
    pub restartable: bool,
    /// Bytes of the kernel's vector state.
    pub vector_size: usize,
}

/// Waits until the thread stops or `is_over`, in ever longer steps. A function may make tens of thousands of system calls,
/// with two stops each: to sleep at each of them would take many times as long as the calls.
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
