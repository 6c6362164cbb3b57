//! Restarts system calls that a stop has interrupted.
//!
//! When a thread stops, the kernel has already decided that its call ends with EINTR. If gdbheap changed the registers
//! then, the call would not restart, or it would restart even if a handler runs. So gdbheap makes the thread repeat its
//! call, and interrupts it again. The thread stops at the end of this call (PTRACE_SYSCALL), before the kernel decides.
//! There gdbheap replaces EINTR by ERESTARTNOHAND: restart, unless a handler runs.
//!
//! If gdbheap dies meanwhile, the thread makes its call, or the call ends with EINTR.
#![forbid(unsafe_code)]

use crate::arch::registers::{self, PROGRAM_COUNTER, STACK_POINTER, X0, X8};
use crate::arch::system_call::{self, INSTRUCTION};
use crate::bytes::u64_at;
use crate::folder::ProcessFolder;
use crate::memory::space::read_process;
use crate::process::{limits, ptrace};
use crate::stat;

/// The numbers of the system calls that the kernel ends with EINTR for a stop although it could restart them:
/// io_getevents, epoll_pwait, fallocate, read, write and the like, sendfile, splice (sockets with a time limit),
/// sigtimedwait, semtimedop, semop, accept, connect, send and receive, io_uring_enter. close is not included, because
/// its descriptor is already closed.
const STARTED_AGAIN: [u64; 29] = [
    4, 22, 47, 63, 64, 65, 66, 67, 68, 69, 70, 71, 76, 137, 192, 193, 202, 203, 206, 207, 211, 212, 242, 243, 269, 286,
    287, 426, 441,
];
/// The calls in STARTED_AGAIN whose first argument is not a descriptor: io_getevents, sigtimedwait, semtimedop and
/// semop.
const WITHOUT_DESCRIPTOR: [u64; 4] = [4, 137, 192, 193];
/// The number of epoll_pwait, whose time limit continues after a restart.
const EPOLL: u64 = 22;
/// The index of the register with the time limit of epoll_pwait.
const X3: usize = 3;
/// The offset in bytes of the saved registers in the kernel's `struct rt_sigframe`.
const SAVED: usize = 128 + 184;
/// The number of bytes below the stack pointer in which a stale `struct rt_sigframe` is searched.
const STALE: usize = 8 << 10;
const EINTR: u64 = -(libc::EINTR as i64) as u64;
const ERESTARTNOHAND: u64 = -514i64 as u64;
/// The largest number of attempts to restart a call. An attempt fails if another event comes before the call ends.
const ATTEMPTS: u8 = 3;

/// Return false: on this processor, a call is restarted in several steps (`Restart`).
pub(crate) fn restart_interrupted(_: i32) -> bool {
    false
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Step {
    /// No step of a restart is in progress: the thread was not set back to its call, or the call was restarted.
    #[default]
    Still,
    /// The thread runs to the entry into its call.
    Entering,
    /// The thread runs to the end of its call.
    Leaving,
}

/// A line of `/proc/TID/syscall`: the number and the arguments of a thread's system call, its stack pointer, and its
/// program counter.
#[derive(Clone, Copy, Default)]
struct Call {
    number: u64,
    arguments: [u64; 6],
    stack_pointer: u64,
    program_counter: u64,
}

/// A system call of a thread that may have to be restarted, and the present step of the restart. The call is read just
/// before the thread is interrupted.
///
/// An EINTR from the stop looks like an EINTR from a handler that has just returned. It is from the stop if the thread
/// waited in this call before, or if the thread ran but was in no handler. A handler changes the mask of blocked
/// signals, and leaves the saved registers below the stack pointer. A handler that begins later is noticed, because the
/// thread is traced by then.
#[derive(Clone, Copy, Default)]
pub(crate) struct Restart {
    call: Call,
    /// The mask of blocked signals, if the thread was running; None if it waited in a call.
    blocked: Option<u64>,
    step: Step,
    attempts: u8,
}

impl Restart {
    /// Read the facts about a thread that will be interrupted next (`task/TID/syscall` and `task/TID/status`, proc(5)).
    pub(crate) fn of(process: &ProcessFolder, tid: i32) -> Restart {
        let line = std::fs::read_to_string(process.path(&format!("task/{tid}/syscall"))).unwrap_or_default();
        let call = read(&line);
        let mask = || stat::said(&process.path(&format!("task/{tid}/status")), "SigBlk");
        let blocked = if call.is_none() { mask().and_then(|mask| u64::from_str_radix(&mask, 16).ok()) } else { None };
        Restart { call: call.unwrap_or_default(), blocked, ..Restart::default() }
    }

    /// Set a thread that was just stopped back to its system call, if the stop has ended the call with EINTR. Return
    /// whether the thread runs now.
    pub(crate) fn begin(&mut self, tid: i32) -> bool {
        if self.step != Step::Still || self.attempts == ATTEMPTS {
            return false;
        }
        let Ok(mut registers) = registers::read(tid) else { return false };
        if registers[X0] != EINTR || !STARTED_AGAIN.contains(&registers[X8]) {
            return false;
        }
        if self.blocked.is_some_and(|mask| ptrace::signal_mask(tid).is_ok_and(|now| now == mask))
            && !is_left_by_handler(tid, &registers)
        {
            self.call = ended_call(tid, registers[X8]).unwrap_or_default();
        }
        if !self.call.is_of(&registers) {
            return false;
        }
        let ended = registers.clone();
        registers[X0] = self.call.arguments[0];
        registers[PROGRAM_COUNTER] -= INSTRUCTION.len() as u64;
        // Without this option, gdbheap's death would turn the next stop into a SIGTRAP that kills the process.
        let is_ready = system_call::is_next(tid, &registers)
            && ptrace::set_options(tid, libc::PTRACE_O_TRACESYSGOOD).is_ok()
            && ptrace::set_general_registers(tid, &registers).is_ok();
        if !is_ready {
            return false;
        }
        if ptrace::go_on_to_syscall(tid, 0).is_err() {
            let _ = ptrace::set_general_registers(tid, &ended);
            return false;
        }
        (self.step, self.attempts) = (Step::Entering, self.attempts + 1);
        true
    }

    /// Take the next step of a thread that has stopped at the entry into its call, or at the end of its call. Return
    /// whether the call is restarted now. The thread runs to its next stop.
    pub(crate) fn go_on(&mut self, tid: i32) -> bool {
        // The interrupt ends the call at once. A stop at a system call cancels the interrupt, so it is repeated.
        let _ = ptrace::interrupt(tid);
        if self.step == Step::Entering {
            self.step = Step::Leaving;
            let _ = ptrace::go_on_to_syscall(tid, 0);
            return false;
        }
        let is_restarted = self.step == Step::Leaving && self.restart(tid);
        self.step = Step::Still;
        let _ = ptrace::go_on(tid, 0);
        is_restarted
    }

    /// Change the result of a call that has ended, so that the kernel restarts the call. Return false if the call has
    /// not ended with EINTR this time.
    fn restart(&self, tid: i32) -> bool {
        let Ok(mut registers) = registers::read(tid) else { return false };
        if registers[X0] != EINTR {
            return false;
        }
        registers[X0] = ERESTARTNOHAND;
        if self.call.number == EPOLL {
            let [descriptor, events, most, ..] = self.call.arguments;
            let wait = [self.call.program_counter, self.call.stack_pointer, descriptor, events, most];
            match limits::rest(registers[X3], &wait, limits::now()) {
                Some(limit) => registers[X3] = limit,
                None => registers[X0] = 0,
            }
        }
        ptrace::set_general_registers(tid, &registers).is_ok()
    }

    /// Let the call of a thread end with EINTR after all. The thread has stopped before it repeated the call, because
    /// of a signal or because its whole process was stopped.
    pub(crate) fn give_up(&mut self, tid: i32) {
        if self.step != Step::Entering {
            return;
        }
        self.step = Step::Still;
        let Ok(mut registers) = registers::read(tid) else { return };
        registers[PROGRAM_COUNTER] += INSTRUCTION.len() as u64;
        if [registers[X0], registers[PROGRAM_COUNTER]] == [self.call.arguments[0], self.call.program_counter] {
            registers[X0] = EINTR;
            let _ = ptrace::set_general_registers(tid, &registers);
        }
    }
}

impl Call {
    /// Return whether `registers` are those right after this call. The register with the result may have any value.
    fn is_of(&self, registers: &[u64]) -> bool {
        let Call { number, arguments, stack_pointer, program_counter } = *self;
        [number, stack_pointer, program_counter] == [X8, STACK_POINTER, PROGRAM_COUNTER].map(|at| registers[at])
            && arguments[1..] == registers[1..arguments.len()]
    }

    /// Return whether the first argument is a descriptor of the right kind: an epoll for epoll_pwait, a socket for any
    /// other call.
    fn has_its_descriptor(&self, tid: i32) -> bool {
        let link = std::fs::read_link(format!("/proc/{tid}/fd/{}", self.arguments[0])).unwrap_or_default();
        let kind = if self.number == EPOLL { "anon_inode:[eventpoll]" } else { "socket:" };
        link.as_os_str().as_encoded_bytes().starts_with(kind.as_bytes())
    }
}

/// Return the call that a stopped thread has just ended; None if it cannot be read, or if its first argument is not a
/// descriptor of the right kind. Only the kernel still has the first argument. It reports the arguments only while the
/// thread is in a call, so the number of the call is set for a moment.
fn ended_call(tid: i32, number: u64) -> Option<Call> {
    system_call::set_number(tid, number as i32).ok()?;
    let line = std::fs::read_to_string(format!("/proc/{tid}/syscall"));
    system_call::set_number(tid, system_call::NO_CALL).ok()?;
    read(&line.ok()?).filter(|call| WITHOUT_DESCRIPTOR.contains(&number) || call.has_its_descriptor(tid))
}

/// Return whether a handler may have just returned to this place: its frame with these registers is still below the
/// stack pointer. True if that memory cannot be read. A handler with a stack of its own is not found.
fn is_left_by_handler(tid: i32, registers: &[u64]) -> bool {
    let mut stale = [0u8; STALE];
    let start = (registers[STACK_POINTER] & !15).wrapping_sub(STALE as u64);
    if read_process(tid, start, &mut stale) < STALE {
        return true;
    }
    let found = [X0, STACK_POINTER, PROGRAM_COUNTER];
    let is_saved = |frame: usize| found.iter().all(|at| u64_at(&stale, frame + SAVED + 8 * at) == registers[*at]);
    (0..STALE).step_by(16).any(is_saved)
}

/// Read a line of `/proc/TID/syscall`: the number of a call, its arguments, the stack pointer and the program counter.
/// None if the thread runs or is in no call.
fn read(line: &str) -> Option<Call> {
    let (number, rest) = line.trim_end().split_once(' ')?;
    let words: Option<Vec<u64>> =
        rest.split(' ').map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let [a, b, c, d, e, f, stack_pointer, program_counter] = words?[..] else { return None };
    Some(Call { number: number.parse().ok()?, arguments: [a, b, c, d, e, f], stack_pointer, program_counter })
}
