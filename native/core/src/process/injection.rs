//! One system call made by a stopped thread of the target, which then goes on as if nothing had been.
//!
//! Nothing is written to the target's memory: the instruction is one of the vDSO's, all registers are put back, and the
//! kernel restarts what was interrupted. Exactly the stops that such a call makes are accepted; at any other the thread
//! gets its registers back at once. x86-64 alone.

use crate::bytes::u64_at;
use crate::memory::space::read_process;
use crate::process::ptrace::{self, Waited};
use crate::process::registers::{self, CS, NO_CALL, ORIG_RAX, R10, R8, R9, RAX, RDI, RDX, RIP, RSI};
use crate::process::tracer::Tracer;

const LONG_MODE: u64 = 0x33;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
const VDSO_LIMIT: usize = 64 << 10;
/// Stops of one call: entry, the new process, exit, and the one that ends it.
const MAX_STOPS: usize = 6;

/// What a call gave: what it returned, and of clone the new process as we see it.
pub(crate) struct Made {
    pub(crate) answer: i64,
    pub(crate) child: Option<i32>,
}

/// A thread that can make a call: it stands by our doing, in 64-bit code, no filter or handler looks at its system calls,
/// and it is outside of a restartable sequence (rseq(2)), as one that is in a system call always is.
pub(crate) fn find_caller(tracer: &Tracer) -> Option<i32> {
    // Looked at one by one up to the first that will do: the target stands still meanwhile.
    let standing = || tracer.threads.iter().filter(|(_, t)| t.stopped && t.group_stop == 0).map(|(tid, _)| *tid);
    let registers = |tid| registers::read(tid).ok().filter(|registers| registers[CS] == LONG_MODE);
    let is_free = |tid| !is_filtered(tracer.pid, tid) && !ptrace::is_dispatched(tid);
    let asleep = |tid: &i32| registers(*tid).is_some_and(|found| found[ORIG_RAX] as i64 >= 0) && is_free(*tid);
    let outside = |tid: &i32| registers(*tid).is_some() && is_outside_rseq(tracer.pid, *tid) && is_free(*tid);
    standing().find(asleep).or_else(|| standing().find(outside))
}

/// By seccomp; also where that cannot be told. A process may set that up for itself at any time.
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

/// The address of a `syscall` instruction in the vDSO that the process has now; it may have exec'ed since last time.
pub(crate) fn find_instruction(pid: i32) -> Option<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let bytes = read_memory(pid, start, (end.checked_sub(start)? as usize).min(VDSO_LIMIT))?;
    bytes.windows(2).position(|pair| pair == SYSCALL).map(|place| start + place as u64)
}

fn read_memory(pid: i32, address: u64, size: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; size];
    (read_process(pid, address, &mut bytes) == size).then_some(bytes)
}

/// Makes the thread `tid` of a stopped process do system call `number`; None when that went otherwise than it should:
/// then the thread has its registers back, if it still lives. A new process is told to die with this one.
pub(crate) fn make_call(tid: i32, instruction: u64, number: u64, arguments: [u64; 6]) -> Option<Made> {
    let saved = registers::read(tid).ok()?;
    let mask = ptrace::signal_mask(tid).ok()?;
    let mut registers = saved.clone();
    (registers[RAX], registers[ORIG_RAX], registers[RIP]) = (number, NO_CALL, instruction);
    for (index, argument) in [RDI, RSI, RDX, R10, R8, R9].into_iter().zip(arguments) {
        registers[index] = argument;
    }
    ptrace::set_options(tid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE).ok()?;
    let ready = ptrace::set_signal_mask(tid, !0)
        .and_then(|()| registers::write(tid, &registers))
        .and_then(|()| ptrace::go_on_to_syscall(tid, 0));
    let mut call = Injection { tid, child: None, answer: None, held: Vec::new() };
    if ready.is_ok() {
        call.follow();
        call.stand();
    }
    // Registers first: with its own mask a handler could run at the wrong place.
    let _ = registers::write(tid, &saved);
    let _ = ptrace::set_signal_mask(tid, mask);
    let _ = ptrace::set_options(tid, 0);
    for signal in call.held {
        ptrace::send(tid, signal);
    }
    (call.answer.is_some() || call.child.is_some())
        .then(|| Made { answer: call.answer.unwrap_or(-i64::from(libc::EIO)), child: call.child })
}

/// One call on its way.
struct Injection {
    tid: i32,
    child: Option<i32>,
    answer: Option<i64>,
    /// Stop signals cannot be masked: they are held back, and come again when the thread has its registers back.
    held: Vec<i32>,
}

impl Injection {
    /// From the entry to the exit; None where it goes otherwise.
    fn follow(&mut self) -> Option<()> {
        let mut entered = false;
        for _ in 0..MAX_STOPS {
            match self.wait()? {
                (SYSCALL_STOP, 0) if entered => {
                    self.answer = Some(registers::read(self.tid).ok()?[RAX] as i64);
                    return Some(());
                }
                (SYSCALL_STOP, 0) => entered = true,
                (libc::SIGTRAP, ptrace::EVENT_CLONE) if entered => self.keep_child(),
                (libc::SIGTRAP, _) | (_, ptrace::EVENT_STOP) => {}
                (signal, _) => self.held.push(signal),
            }
            ptrace::go_on_to_syscall(self.tid, 0).ok()?;
        }
        None
    }

    /// Before its parent goes on: should that one be killed now, the child is known, and dies with us.
    fn keep_child(&mut self) {
        self.child = ptrace::event_message(self.tid).ok().map(|pid| pid as i32);
        if let Some(child) = self.child {
            ptrace::wait(child, true);
            let _ = ptrace::set_options(child, libc::PTRACE_O_EXITKILL);
        }
    }

    /// Brings the thread to the stop in which the kernel looks what is to be restarted, without running an instruction.
    /// At the entry into a call that call is left out.
    fn stand(&mut self) -> Option<()> {
        if self.answer.is_none() {
            let mut registers = registers::read(self.tid).ok()?;
            registers[ORIG_RAX] = NO_CALL;
            registers::write(self.tid, &registers).ok()?;
        }
        for _ in 0..MAX_STOPS {
            // Whatever other stop comes first takes an interrupt back.
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

    fn wait(&self) -> Option<(i32, i32)> {
        match ptrace::wait(self.tid, true) {
            Waited::Stopped { signal, event } => Some((signal, event)),
            _ => None,
        }
    }
}
