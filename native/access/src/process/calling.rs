//! Calls a function in one thread that is traced and stopped, and restores the thread afterwards. `arch::call` has the
//! parts that depend on the processor.
//!
//! All of this code must run on the thread that traces. A signal frame with the whole state of the thread is written
//! below its red zone, and the function returns through libc's own rt_sigreturn. So if the tracer dies, the thread
//! finishes the call by itself and continues at its old place. Usually the tracer skips that rt_sigreturn and restores
//! everything itself. Only then does the kernel restart an interrupted system call with the rest of its time limit. The
//! steps are ordered so that the thread can continue by itself if gdbheap dies between two of them.
//!
//! The function belongs to the target, and may do anything. Memory is written through one file that was opened before,
//! and a thread that called exec(2) is released at once: a set-uid program gets neither registers nor bytes of the old
//! program.
#![forbid(unsafe_code)]

use crate::arch::call::{self as own, SavedThread, SignalFrame, ARGUMENTS};
use crate::arch::{registers, system_call};
use crate::bytes::words;
use crate::process::call::{await_stop, Answer, End, Plan, Style};
use crate::process::program_memory::ProgramMemory;
use crate::process::ptrace::{self, send, ThreadEvent};
use std::io::Error;
use std::time::{Duration, Instant};

/// The time that a thread has to reach the required stop. A thread in uninterruptible sleep is left to finish the call
/// by itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// The signals that an instruction raises. If they were blocked, the kernel would reset their handlers.
const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
const MAX_TEXT: usize = 4 << 20;
const TRAP_HWBKPT: i32 = 4;
/// `si_code` of a signal that tkill(2) sent.
const SI_TKILL: i32 = -6;

/// The place at which a thread has stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopPlace {
    Inside,
    /// The thread is at its rt_sigreturn or after it.
    Returned,
    /// The thread does not stop, because it is in uninterruptible sleep.
    Stuck,
    Gone,
}

struct Call<'a> {
    tid: i32,
    style: Style,
    plan: &'a Plan,
    memory: &'a ProgramMemory,
    saved: SavedThread,
    frame: SignalFrame,
    /// The result of the function, if it was in a register at the return.
    value: Option<u64>,
    text: Vec<u8>,
    /// Signals that came during the call and cannot be blocked. They are sent again at the end.
    held: Vec<i32>,
    /// A write that was captured: its result, and the number of bytes that the thread asked to write.
    written: Option<(u64, u64)>,
    /// Whether the thread makes its rt_sigreturn itself, because it has a seccomp filter.
    returning: bool,
    /// Whether the thread received a signal right after its rt_sigreturn.
    signalled: bool,
    /// Whether the kernel has lost the remaining time of the thread's own sleep.
    forgotten: bool,
}

/// Make the calls of `plan` in a stopped thread, and restore the thread. An error means that nothing was changed, or
/// that the thread is gone.
pub fn call(tid: i32, style: Style, plan: &Plan) -> Result<Answer, Error> {
    let deadline = Instant::now() + plan.limit;
    let memory = ProgramMemory::of_thread(tid)?;
    // The thread is still held, so it was held when its memory was opened.
    registers::read(tid)?;
    if ptrace::has_moved(tid) {
        return Err(Error::from_raw_os_error(libc::ESRCH));
    }
    let mut answer = Answer { end: End::Returned, value: 0, text: Vec::new() };
    for (function, arguments) in &plan.calls {
        let mut call = Call::new(tid, style, plan, &memory)?;
        let end = call.make(*function, arguments, deadline);
        let is_gone = match &end {
            Ok(end) => *end == End::Gone,
            Err(error) => error.raw_os_error() == Some(libc::ESRCH),
        };
        if !is_gone {
            call.held.iter().for_each(|signal| send(tid, *signal));
        }
        answer.end = end?;
        answer.text.append(&mut call.text);
        if answer.end != End::Returned {
            break;
        }
        answer.value = call.value.map_or_else(|| own::result(&memory, &call.frame), Ok)?;
    }
    put_back(&memory, plan, answer.end)?;
    Ok(answer)
}

/// Restore the bytes of the plan while the thread is still stopped and no other thread runs.
fn put_back(memory: &ProgramMemory, plan: &Plan, end: End) -> Result<(), Error> {
    let undone = matches!(end, End::Abandoned | End::Failed(_));
    let kept = if matches!(end, End::Left | End::Gone) { &[][..] } else { &plan.kept[..] };
    let freed = if undone { &plan.freed[..] } else { &[] };
    let mut changed = kept.iter().chain(freed).filter(|(address, bytes)| !memory.holds(*address, bytes));
    changed.try_for_each(|(address, bytes)| memory.write(*address, bytes))
}

impl<'a> Call<'a> {
    fn new(tid: i32, style: Style, plan: &'a Plan, memory: &'a ProgramMemory) -> Result<Call<'a>, Error> {
        if style == Style::Seized {
            // Without this option, a stop at a system call would become a SIGTRAP that kills the process, if gdbheap
            // dies during it. gdb always sets both options.
            ptrace::set_options(tid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC)?;
        }
        let mut held = Vec::new();
        let saved = SavedThread::of(tid, memory, &mut held)?;
        let frame = own::frame(&saved, plan);
        let (text, value, written) = (Vec::new(), None, None);
        let (returning, signalled, forgotten) = (false, false, false);
        Ok(Call { tid, style, plan, memory, saved, frame, value, text, held, written, returning, signalled, forgotten })
    }

    /// Start the function and run it. The registers are set before the mask: if gdbheap dies after setting only the
    /// mask, the signals would stay blocked for good.
    fn make(&mut self, function: u64, arguments: &[u64], deadline: Instant) -> Result<End, Error> {
        self.memory.write(self.frame.start, &self.frame.bytes)?;
        own::begin(self.tid, &self.saved, &self.frame, self.plan, function, arguments)?;
        let open = FAULTS.iter().fold(0u64, |mask, signal| mask | 1 << (signal - 1));
        if let Err(error) = ptrace::set_signal_mask(self.tid, !open) {
            self.restore()?;
            return Err(error);
        }
        self.run(deadline)
    }

    fn run(&mut self, deadline: Instant) -> Result<End, Error> {
        let mut entering = self.saved.is_entering;
        loop {
            ptrace::go_on_to_syscall(self.tid, 0)?;
            let (signal, event) = match await_stop(self.tid, || self.plan.is_over(deadline)) {
                ThreadEvent::Stopped { signal, event } => (signal, event),
                ThreadEvent::Gone => return Ok(End::Gone),
                ThreadEvent::Running => return self.late(),
            };
            if event == libc::PTRACE_EVENT_EXEC {
                return self.let_go();
            }
            if event != 0 {
                continue;
            }
            // A group stop of an attached thread has no siginfo. Its signal does not change.
            let Ok(code) = ptrace::signal_code(self.tid) else { continue };
            let syscall = signal & 0x7f == libc::SIGTRAP && code & 0x7f == libc::SIGTRAP;
            if syscall {
                entering = !entering;
                if if entering { self.enters()? } else { self.leaves()? } {
                    return Ok(End::Returned);
                }
            } else if code == TRAP_HWBKPT && signal == libc::SIGTRAP {
                // This is a watchpoint of a debugger. The instruction has been executed.
            } else if signal == libc::SIGTRAP && code <= 0 && !self.is_same_program() {
                // A debugger that did not ask for exec events is notified of exec(2) in this way.
                return self.let_go();
            } else if (code > 0 && FAULTS.contains(&signal)) || signal == libc::SIGABRT {
                if self.park(true)? == StopPlace::Gone {
                    return Ok(End::Gone);
                }
                self.restore()?;
                return Ok(End::Failed(signal));
            } else {
                self.held.push(signal);
            }
        }
    }

    fn is_same_program(&self) -> bool {
        self.memory.read(self.frame.start, &mut [0]).is_ok()
    }

    /// Detach from a thread that runs another program now. The new program must not get data of the old one.
    fn let_go(&self) -> Result<End, Error> {
        let _ = ptrace::detach(self.tid, 0);
        Ok(End::Gone)
    }

    /// Handle the thread's entry into a system call: the rt_sigreturn after the called function, a captured write, or
    /// another system call. Return whether the thread is restored and the called function has therefore ended.
    fn enters(&mut self) -> Result<bool, Error> {
        let mut registers = registers::read(self.tid)?;
        if self.is_return(&registers) {
            self.value = own::value(&registers);
            // If this system call were skipped, a filter would see the number of the skipped call.
            self.returning = self.plan.filtered;
            if self.returning {
                return Ok(false);
            }
            own::skip_return(self.tid, &registers, self.plan)?;
            return self.returned();
        }
        let number = system_call::number(&registers) as i64;
        let to = registers[ARGUMENTS[0]] as u32 as i32;
        if self.plan.captured >= 0 && to == self.plan.captured && [libc::SYS_write, libc::SYS_writev].contains(&number)
        {
            let count = registers[ARGUMENTS[2]];
            if let Ok(written) = self.capture(number, registers[ARGUMENTS[1]], count) {
                if self.plan.filtered {
                    registers[ARGUMENTS[2]] = 0;
                    self.written = Some((written, count));
                    ptrace::set_general_registers(self.tid, &registers)?;
                } else {
                    own::skip(self.tid, &mut registers, written)?;
                }
            }
        }
        Ok(false)
    }

    /// Handle the exit from a system call. Return whether this was the rt_sigreturn after the called function, which
    /// has therefore ended.
    fn leaves(&mut self) -> Result<bool, Error> {
        if self.returning {
            return self.returned();
        }
        if let Some((written, count)) = self.written.take() {
            let mut registers = registers::read(self.tid)?;
            own::set_answer(&mut registers, written);
            registers[ARGUMENTS[2]] = count;
            ptrace::set_general_registers(self.tid, &registers)?;
        }
        Ok(false)
    }

    /// Restore the thread after the function has returned. Return true.
    fn returned(&mut self) -> Result<bool, Error> {
        match self.park(true)? {
            StopPlace::Gone => Err(Error::from_raw_os_error(libc::ESRCH)),
            _ => self.restore().map(|()| true),
        }
    }

    /// Read the bytes that the thread wants to write. Return their count.
    fn capture(&mut self, number: i64, address: u64, count: u64) -> Result<u64, Error> {
        let mut pieces = vec![(address, count)];
        if number == libc::SYS_writev {
            let mut vectors = vec![0u8; count.min(1024) as usize * 16];
            self.memory.read(address, &mut vectors)?;
            pieces = words(&vectors).chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        }
        let mut total = 0u64;
        for (address, size) in pieces {
            let room = MAX_TEXT.saturating_sub(self.text.len()) as u64;
            let mut bytes = vec![0u8; size.min(room) as usize];
            self.memory.read(address, &mut bytes)?;
            self.text.extend(bytes);
            total = total.saturating_add(size);
        }
        Ok(total)
    }

    /// End the call because its time is over. If the thread does not stop, it is left in the call.
    fn late(&mut self) -> Result<End, Error> {
        match self.park(false)? {
            StopPlace::Stuck => Ok(End::Left),
            StopPlace::Inside if self.plan.leaves => Ok(End::Left),
            StopPlace::Inside => {
                // A sleep in the function, which was just interrupted, has replaced the thread's own sleep in the
                // kernel.
                self.forgotten = own::may_have_replaced_rest(self.tid, &registers::read(self.tid)?);
                self.restore()?;
                Ok(End::Abandoned)
            }
            StopPlace::Returned => {
                self.restore()?;
                Ok(End::Returned)
            }
            StopPlace::Gone => Ok(End::Gone),
        }
    }

    /// Ask the thread to stop. Any other stop that comes first cancels the request.
    fn ask_to_stop(&self) -> Result<(), Error> {
        match self.style {
            Style::Seized => ptrace::interrupt(self.tid),
            Style::Attached => {
                send(self.tid, libc::SIGSTOP);
                Ok(())
            }
        }
    }

    /// Bring the thread to a stop after which the kernel checks whether to restart a system call. If the thread is
    /// stopped already (`standing`), it reaches this stop without executing an instruction.
    fn park(&mut self, mut standing: bool) -> Result<StopPlace, Error> {
        let deadline = Instant::now() + PATIENCE;
        let mut parked = if self.returning { StopPlace::Returned } else { StopPlace::Inside };
        let mut passed = 0;
        self.ask_to_stop()?;
        loop {
            if standing {
                ptrace::go_on(self.tid, std::mem::take(&mut passed))?;
            }
            standing = true;
            let (signal, event) = match await_stop(self.tid, || Instant::now() > deadline) {
                ThreadEvent::Stopped { signal, event } => (signal, event),
                ThreadEvent::Running => return Ok(StopPlace::Stuck),
                ThreadEvent::Gone => return Ok(StopPlace::Gone),
            };
            if event == libc::PTRACE_EVENT_EXEC {
                let _ = ptrace::detach(self.tid, 0);
                return Ok(StopPlace::Gone);
            }
            if event == ptrace::EVENT_STOP && self.style == Style::Seized {
                return Ok(parked);
            }
            if self.style == Style::Seized {
                ptrace::interrupt(self.tid)?;
            }
            if event != 0 {
                continue;
            }
            let Ok(code) = ptrace::signal_code(self.tid) else { continue };
            if signal & 0x7f == libc::SIGTRAP && code & 0x7f == libc::SIGTRAP {
                let registers = registers::read(self.tid)?;
                if parked == StopPlace::Inside && self.is_return(&registers) {
                    self.value = own::value(&registers);
                    parked = StopPlace::Returned;
                    self.returning = self.plan.filtered;
                    if !self.returning {
                        own::skip_return(self.tid, &registers, self.plan)?;
                    }
                }
            } else if self.style == Style::Attached && signal == libc::SIGSTOP {
                // If a SIGSTOP was pending already, ours has merged with it.
                if code != SI_TKILL {
                    self.held.push(signal);
                }
                return Ok(parked);
            } else if self.returning {
                // The thread has its own mask and registers again, so the signal is for it.
                self.signalled = true;
                passed = signal;
            } else if code <= 0 || !FAULTS.contains(&signal) {
                self.held.push(signal);
            }
        }
    }

    fn is_return(&self, registers: &[u64]) -> bool {
        own::is_return(registers, &self.frame)
    }

    /// Restore mask, vector state and registers, in this order. If gdbheap dies in between, the frame and the restorer
    /// restore all of them. If the thread received a signal after its rt_sigreturn, do nothing: the thread has restored
    /// its state, and is about to run a handler.
    fn restore(&self) -> Result<(), Error> {
        if self.signalled {
            return Ok(());
        }
        ptrace::set_signal_mask(self.tid, self.saved.mask)?;
        for (set, bytes) in &self.saved.vector {
            ptrace::set_register_set(self.tid, *set, bytes)?;
            if ptrace::register_set(self.tid, *set, bytes.len())? != *bytes {
                // Try again to restore the vector state. If that fails too, the frame still has the state.
                ptrace::set_register_set(self.tid, *set, bytes)?;
            }
        }
        // rt_sigreturn also lets the kernel forget the remaining time.
        let forgotten = (self.forgotten || self.returning) && own::has_rest(&self.saved.registers);
        ptrace::set_general_registers(self.tid, if forgotten { &self.saved.anew } else { &self.saved.registers })
    }
}
