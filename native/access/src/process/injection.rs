//! One system call that a stopped thread of the target makes. The thread then continues as if nothing had happened.
//!
//! Nothing is written to the target's memory: the system call instruction is in the vDSO, all registers are restored,
//! and the kernel restarts the call that was interrupted. Only the stops that such a call causes are accepted. At any
//! other stop the thread gets its registers back at once, unless it then runs another program.
#![forbid(unsafe_code)]

use crate::arch::registers;
use crate::arch::system_call::{self, INSTRUCTION};
use crate::bytes::u64_at;
use crate::memory::space::read_process;
use crate::process::ptrace::{self, ThreadEvent};
use crate::process::tracer::Tracer;
use crate::stat;
use crate::tables::read_table;
use std::time::{Duration, Instant};

const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
const VDSO_LIMIT: usize = 64 << 10;
/// How long a thread may run until its next stop before it is interrupted.
///
/// After twice this time, gdbheap gives up if the thread sleeps, because another thread may have changed its code. If
/// the thread still runs, gdbheap waits for up to LONGEST: the kernel takes seconds to copy the page tables of a large
/// process.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);
/// How long a thread of the copy may run until its next stop, while the target is stopped.
///
/// The time is short, because a FUSE file system may take arbitrarily long to close the copy's files.
const OUR_PATIENCE: Duration = Duration::from_millis(500);
const NAP: Duration = Duration::from_micros(50);
const MAX_NAP: Duration = Duration::from_millis(2);
const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
/// The largest number of stops of one call. Four are expected: the entry, the new process, the exit, and the stop that
/// ends the call.
const MAX_STOPS: usize = 6;

/// The outcome of a call: its return value, and for clone the id of the new process as this process sees it.
pub(crate) struct CallOutcome {
    pub(crate) answer: i64,
    pub(crate) child: Option<i32>,
}

/// Return a thread that can make a system call; None if there is none. gdbheap must have stopped the thread in 64-bit
/// code. No filter and no handler may see the thread's system calls. The thread must be outside a restartable sequence
/// (rseq(2)); in a system call it always is.
pub(crate) fn find_caller(tracer: &Tracer) -> Option<i32> {
    if tracer.is_in_exec() {
        return None;
    }
    // The threads are checked one by one up to the first that is suitable, because the target is stopped meanwhile.
    let standing = || tracer.threads.iter().filter(|(_, t)| t.stopped && t.group_stop == 0).map(|(tid, _)| *tid);
    let registers = |tid| registers::read(tid).ok().filter(|found| system_call::can_be_made(found));
    let is_free = |tid| !is_filtered(tracer.pid, tid) && !ptrace::is_dispatched(tid);
    let asleep = |tid: &i32| registers(*tid).is_some_and(|found| system_call::is_inside(&found)) && is_free(*tid);
    let outside = |tid: &i32| registers(*tid).is_some() && is_outside_rseq(tracer.pid, *tid) && is_free(*tid);
    standing().find(asleep).or_else(|| standing().find(outside))
}

/// Return whether the thread has a seccomp filter; true if that is unknown. A process may install a filter at any time.
fn is_filtered(pid: i32, tid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let mut modes = status.lines().filter_map(|line| line.strip_prefix("Seccomp:"));
    modes.next().is_none_or(|mode| mode.trim() != "0")
}

fn is_outside_rseq(pid: i32, tid: i32) -> bool {
    match ptrace::rseq_address(tid) {
        Some(0) => true,
        Some(address) => read_memory(pid, address + 8, 8).is_some_and(|bytes| u64_at(&bytes, 0) == 0),
        None => false,
    }
}

/// Return the address of a system call instruction in the vDSO of the process; None if there is none. The vDSO is
/// searched anew each time, because exec(2) may have replaced it.
pub(crate) fn find_instruction(pid: i32) -> Option<u64> {
    let maps = read_table(format!("/proc/{pid}/maps").as_ref(), u64::MAX).ok()?;
    // A path may contain any bytes.
    let range = maps.split(|byte| *byte == b'\n').find_map(|line| vdso_range(std::str::from_utf8(line).ok()?))?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let bytes = read_memory(pid, start, (end.checked_sub(start)? as usize).min(VDSO_LIMIT))?;
    bytes.windows(INSTRUCTION.len()).position(|code| code == INSTRUCTION).map(|place| start + place as u64)
}

/// Return the address range in a line of maps, if the line is the kernel's own vDSO mapping. A mapped file with the
/// same name is recognized by its inode number, which is not 0.
fn vdso_range(line: &str) -> Option<&str> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    match fields[..] {
        [range, _, _, _, "0", "[vdso]"] => Some(range),
        _ => None,
    }
}

fn read_memory(pid: i32, address: u64, size: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; size];
    (read_process(pid, address, &mut bytes) == size).then_some(bytes)
}

/// Have the thread `tid` of a stopped process make system call `number`. None if the call did not go as expected; the
/// thread then has its registers back, if it still lives. A process that the call creates is set to die with this
/// process.
pub(crate) fn make_call(tid: i32, instruction: u64, number: u64, arguments: [u64; 6]) -> Option<CallOutcome> {
    call_under(tid, instruction, number, arguments, 0, PATIENCE)
}

/// Have a thread of the copy make a system call. During the call and afterwards, the copy dies if this process dies
/// (PTRACE_O_EXITKILL).
pub(crate) fn make_call_of_ours(tid: i32, instruction: u64, number: u64, arguments: [u64; 6]) -> Option<CallOutcome> {
    call_under(tid, instruction, number, arguments, libc::PTRACE_O_EXITKILL, OUR_PATIENCE)
}

/// Have a thread make a system call; None if that failed. `options`: ptrace(2) options, in addition to OPTIONS. The
/// thread has them during the call and keeps them afterwards. `patience`: how long the thread may take to its next
/// stop.
fn call_under(
    tid: i32,
    instruction: u64,
    number: u64,
    arguments: [u64; 6],
    options: i32,
    patience: Duration,
) -> Option<CallOutcome> {
    if ptrace::has_moved(tid) {
        return None;
    }
    let mut saved = registers::read(tid).ok()?;
    let mask = ptrace::signal_mask(tid).ok()?;
    let mut registers = saved.clone();
    let replaced = system_call::is_next(tid, &saved).then_some((number, arguments));
    if replaced.is_none() {
        system_call::prepare(&mut registers, instruction, number, arguments);
    }
    ptrace::set_options(tid, OPTIONS | options).ok()?;
    let ready = ptrace::set_signal_mask(tid, !0)
        .and_then(|()| ptrace::set_general_registers(tid, &registers))
        .and_then(|()| ptrace::go_on_to_syscall(tid, 0));
    let mut call = Injection { tid, patience, replaced, child: None, answer: None, held: Vec::new(), is_gone: false };
    if ready.is_ok() {
        call.follow(&mut saved);
        call.stand();
    }
    if call.is_gone {
        let _ = ptrace::detach(tid, 0);
        return call.child.map(|child| CallOutcome { answer: -i64::from(libc::ESRCH), child: Some(child) });
    }
    // Registers first: with its own mask restored, a handler could run at the wrong place.
    let _ = ptrace::set_general_registers(tid, &saved);
    let _ = ptrace::set_signal_mask(tid, mask);
    let _ = ptrace::set_options(tid, options);
    for signal in call.held {
        ptrace::send(tid, signal);
    }
    (call.answer.is_some() || call.child.is_some())
        .then(|| CallOutcome { answer: call.answer.unwrap_or(-i64::from(libc::EIO)), child: call.child })
}

/// A system call that gdbheap makes in a stopped thread of the target.
struct Injection {
    tid: i32,
    patience: Duration,
    /// The number and the arguments of the call, if the thread makes it in place of its own next call.
    replaced: Option<(u64, [u64; 6])>,
    child: Option<i32>,
    answer: Option<i64>,
    /// Signals that arrived during the call, stopped the thread and cannot be masked. They are sent again after the
    /// thread has its registers back.
    held: Vec<i32>,
    /// Whether the thread has ended, or runs another program. The other program gets no registers of the old one.
    is_gone: bool,
}

impl Injection {
    /// Follow the call from the entry to the exit; None if something else happens. `saved`: the thread's own registers.
    /// If the call replaces the thread's own call, `saved` is set to the registers with which the thread makes its own
    /// call afterwards.
    fn follow(&mut self, saved: &mut Vec<u64>) -> Option<()> {
        let (began, mut entered) = (Instant::now(), false);
        for _ in 0..MAX_STOPS {
            match self.wait()? {
                (SYSCALL_STOP, 0) if entered => {
                    self.answer = Some(system_call::answer(&registers::read(self.tid).ok()?));
                    return Some(());
                }
                (SYSCALL_STOP, 0) => {
                    if let Some((number, arguments)) = self.replaced {
                        let own = registers::read(self.tid).ok()?;
                        *saved = system_call::replace(self.tid, &own, number, arguments).ok()?;
                    }
                    entered = true;
                }
                (libc::SIGTRAP, ptrace::EVENT_CLONE) if entered => self.keep_child(),
                // This stop is that of the interrupt, which was sent because the thread did not stop in time.
                (_, ptrace::EVENT_STOP) if began.elapsed() > self.patience => return None,
                (libc::SIGTRAP, _) | (_, ptrace::EVENT_STOP) => {}
                (signal, _) => self.held.push(signal),
            }
            ptrace::go_on_to_syscall(self.tid, 0).ok()?;
        }
        None
    }

    /// Record the new process before its parent continues, and set it to die if the guardian dies.
    fn keep_child(&mut self) {
        let Ok(child) = ptrace::event_message(self.tid).map(|child| child as i32) else { return };
        if let Some(ThreadEvent::Stopped { .. }) = await_stop(child, self.patience) {
            let _ = ptrace::set_options(child, libc::PTRACE_O_EXITKILL);
            self.child = Some(child);
        }
    }

    /// Bring the thread to the stop in which the kernel checks what to restart, without executing an instruction of the
    /// program; None if the thread is gone, or does not stop. If the thread is at the entry into a system call, skip
    /// that call.
    fn stand(&mut self) -> Option<()> {
        if self.is_gone {
            return None;
        }
        if self.answer.is_none() {
            let mut registers = registers::read(self.tid).ok()?;
            system_call::leave_out(self.tid, &mut registers);
            ptrace::set_general_registers(self.tid, &registers).ok()?;
        }
        for _ in 0..MAX_STOPS {
            // Any other stop that comes first cancels an interrupt.
            ptrace::interrupt(self.tid).ok()?;
            ptrace::go_on(self.tid, 0).ok()?;
            match self.wait()? {
                (_, ptrace::EVENT_STOP) => return Some(()),
                (libc::SIGTRAP | SYSCALL_STOP, _) => {}
                (signal, _) => self.held.push(signal),
            }
        }
        None
    }

    /// Return the next stop; None if the thread does not stop, or is gone.
    fn wait(&mut self) -> Option<(i32, i32)> {
        match await_stop(self.tid, self.patience)? {
            ThreadEvent::Stopped { signal, event } if event != libc::PTRACE_EVENT_EXEC => Some((signal, event)),
            _ => {
                self.is_gone = true;
                None
            }
        }
    }
}

/// Wait for a thread to stop or end. Interrupt the thread if that takes long; in the end, give up and return None.
fn await_stop(tid: i32, patience: Duration) -> Option<ThreadEvent> {
    let began = Instant::now();
    let (mut nap, mut is_interrupted) = (NAP, false);
    loop {
        let waited = ptrace::wait(tid, false);
        if waited != ThreadEvent::Running {
            return Some(waited);
        }
        let elapsed = began.elapsed();
        if elapsed > LONGEST || (elapsed > 2 * patience && !is_busy(tid)) {
            return None;
        }
        if elapsed > patience && !is_interrupted {
            is_interrupted = ptrace::interrupt(tid).is_ok();
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(MAX_NAP);
    }
}

fn is_busy(tid: i32) -> bool {
    stat::state(&format!("/proc/{tid}/status")) == Some('R')
}
