//! One system call made by a stopped thread of the target, which then goes on as if nothing had been.
//!
//! Nothing is written to the target's memory: the instruction is one of the vDSO's, all registers are put back, and the
//! kernel restarts what was interrupted. Exactly the stops that such a call makes are accepted; at any other the thread
//! gets its registers back at once. x86-64 alone.

use crate::bytes::u64_at;
use crate::process::ptrace::{self, Waited};
use crate::process::tracer::Tracer;

const REGISTERS: usize = 27 * 8;
const R10: usize = 7;
const R9: usize = 8;
const R8: usize = 9;
const RAX: usize = 10;
const RDX: usize = 12;
const RSI: usize = 13;
const RDI: usize = 14;
const ORIG_RAX: usize = 15;
const RIP: usize = 16;
const CS: usize = 17;
const LONG_MODE: u64 = 0x33;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
const VDSO_LIMIT: usize = 64 << 10;
/// Stops of one call: entry, the new process, exit, and the one that ends it.
const MOST_STOPS: usize = 6;

/// What a call gave: what it returned, and of clone the new process as we see it.
pub(crate) struct Made {
    pub(crate) answer: i64,
    pub(crate) child: Option<i32>,
}

fn put(bytes: &mut [u8], index: usize, value: u64) {
    bytes[8 * index..8 * index + 8].copy_from_slice(&value.to_le_bytes());
}

/// A thread that can make a call: it stands by our doing, in 64-bit code, no filter or handler looks at its system calls,
/// and it is outside of a restartable sequence (rseq(2)), as one that is in a system call always is.
pub(crate) fn find_caller(tracer: &Tracer) -> Option<i32> {
    let candidates: Vec<i32> =
        tracer.threads.iter().filter(|(_, t)| t.stopped && t.group_stop == 0).map(|(tid, _)| *tid).collect();
    let word = |tid: i32, index: usize| {
        ptrace::register_set(tid, ptrace::NT_PRSTATUS, REGISTERS).map(|bytes| u64_at(&bytes, 8 * index)).unwrap_or(0)
    };
    let usable: Vec<i32> = candidates
        .into_iter()
        .filter(|tid| word(*tid, CS) == LONG_MODE && !is_filtered(tracer.pid, *tid) && !ptrace::is_dispatched(*tid))
        .collect();
    let asleep = usable.iter().find(|tid| (word(**tid, ORIG_RAX) as i64) >= 0);
    asleep.or_else(|| usable.iter().find(|tid| is_outside_rseq(tracer.pid, **tid))).copied()
}

/// By seccomp; also where that cannot be told. A process may set that up for itself at any time.
fn is_filtered(pid: i32, tid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let mut modes = status.lines().filter_map(|line| line.strip_prefix("Seccomp:"));
    modes.next().is_none_or(|mode| mode.trim() != "0")
}

fn is_outside_rseq(pid: i32, tid: i32) -> bool {
    match ptrace::rseq_address(tid) {
        Ok(0) => true,
        Ok(address) => read_memory(pid, address + 8, 8).is_some_and(|bytes| u64_at(&bytes, 0) == 0),
        Err(_) => false,
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
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: size };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: size };
    // SAFETY: the kernel writes at most `size` bytes into `bytes`; the remote address is only read, elsewhere.
    let got = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    (got == size as isize).then_some(bytes)
}

/// Makes the thread `tid` of a stopped process do system call `number`; None when that went otherwise than it should:
/// then the thread has its registers back, if it still lives. A new process is told to die with this one.
pub(crate) fn make_call(tid: i32, instruction: u64, number: u64, arguments: [u64; 6]) -> Option<Made> {
    let saved = ptrace::register_set(tid, ptrace::NT_PRSTATUS, REGISTERS).ok()?;
    let mask = ptrace::signal_mask(tid).ok()?;
    if saved.len() != REGISTERS {
        return None;
    }
    let mut registers = saved.clone();
    put(&mut registers, RAX, number);
    put(&mut registers, ORIG_RAX, u64::MAX);
    put(&mut registers, RIP, instruction);
    for (index, argument) in [RDI, RSI, RDX, R10, R8, R9].into_iter().zip(arguments) {
        put(&mut registers, index, argument);
    }
    ptrace::set_options(tid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE).ok()?;
    let ready = ptrace::set_signal_mask(tid, !0)
        .and_then(|()| ptrace::set_register_set(tid, ptrace::NT_PRSTATUS, &registers))
        .and_then(|()| ptrace::go_on_to_syscall(tid, 0));
    let mut call = Injection { tid, child: None, answer: None, held: Vec::new() };
    if ready.is_ok() {
        call.follow();
        call.stand();
    }
    // Registers first: with its own mask a handler could run at the wrong place.
    let _ = ptrace::set_register_set(tid, ptrace::NT_PRSTATUS, &saved);
    let _ = ptrace::set_signal_mask(tid, mask);
    let _ = ptrace::set_options(tid, 0);
    for signal in call.held {
        // SAFETY: two numbers.
        unsafe { libc::syscall(libc::SYS_tkill, tid, signal) };
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
        for _ in 0..MOST_STOPS {
            match self.wait()? {
                (SYSCALL_STOP, 0) if entered => {
                    let registers = ptrace::register_set(self.tid, ptrace::NT_PRSTATUS, REGISTERS).ok()?;
                    self.answer = Some(u64_at(&registers, 8 * RAX) as i64);
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
            let mut registers = ptrace::register_set(self.tid, ptrace::NT_PRSTATUS, REGISTERS).ok()?;
            put(&mut registers, ORIG_RAX, u64::MAX);
            ptrace::set_register_set(self.tid, ptrace::NT_PRSTATUS, &registers).ok()?;
        }
        for _ in 0..MOST_STOPS {
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
