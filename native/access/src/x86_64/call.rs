//! Calls a function in one thread that is traced and stands still, and leaves the thread as it was.
//!
//! Everything here must run on the thread that traces. Below the thread's red zone a signal frame is laid that holds
//! all of its state, and the function returns through libc's own rt_sigreturn: a tracer that dies at any moment leaves
//! a thread that finishes the call by itself and goes on where it was. A tracer that lives leaves that rt_sigreturn
//! out and puts everything back itself, because only then does the kernel restart an interrupted system call with the
//! time that was left of it. Each order of steps below is such that every state between two of them is one from which
//! the thread could go on.
//!
//! The function is the target's, and may do anything. Memory is written through one file that was opened before, and a
//! thread that called exec(2) is let go at once: a set-uid program gets neither registers nor bytes of the old one.

use crate::arch::registers::{self, CS, EFLAGS, NO_CALL, ORIG_RAX, R8, R9, RAX, RCX, RDI, RDX, RIP, RSI, RSP, SS};
use crate::bytes::{u32_at, u64_at, words};
use crate::process::call::{await_stop, Answer, End, Look, Plan, Style};
use crate::process::program_memory::ProgramMemory;
use crate::process::ptrace::{self, send, Waited};
use std::io::Error;
use std::time::{Duration, Instant};

/// How long a thread may take to stop where it must: one that sleeps uninterruptibly is left to finish by itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// In the order of the calling convention.
const ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, RCX, R8, R9];
/// `struct sigcontext_64` begins with these: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags.
const CONTEXT: [usize; 18] = [R8, R9, 7, 6, 3, 2, 1, 0, RDI, RSI, 4, 5, RDX, RAX, RCX, RSP, RIP, EFLAGS];
const RED_ZONE: u64 = 128;
/// Kinds of register sets (`elf.h`).
const NT_X86_XSTATE: usize = 0x202;
const NT_X86_SHSTK: usize = 0x204;
/// Trap, direction and alignment check.
const BAD_FLAGS: u64 = 1 << 8 | 1 << 10 | 1 << 18;
const MAX_VECTOR: usize = 64 << 10;
const SYS_WRITE: u64 = 1;
const SYS_RT_SIGRETURN: u64 = 15;
const SYS_WRITEV: u64 = 20;
/// uc_flags: UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS.
const FRAME_FLAGS: u64 = 7;
const FRAME_SIZE: u64 = 8 + 304 + 128;
const FP_MAGIC1: u32 = 0x4650_5853;
const FP_MAGIC2: u32 = 0x4650_5845;
/// What the kernel says of the vector state lies at this offset; its header, with the states in use, at 512.
const SOFTWARE_BYTES: usize = 464;
const HEADER: usize = 512;
const SMALLEST_VECTOR: usize = 576;
const AMX: u64 = 1 << 17 | 1 << 18;
/// The kernel's own codes for "restart this system call" (include/linux/errno.h), as rax has them.
const RESTARTS: [i64; 4] = [-512, -513, -514, RESTART_BLOCK];
const RESTART_BLOCK: i64 = -516;
const SYS_RESTART_SYSCALL: u64 = 219;
/// poll, nanosleep, futex, clock_nanosleep: the calls that go on where they were.
const RESUMED: [u64; 4] = [7, 35, 202, 230];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const CODE_BEFORE: usize = 32;
/// Signals that an instruction raises: blocked, they would make the kernel reset their handler.
const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
const MAX_TEXT: usize = 4 << 20;
const TRAP_HWBKPT: i32 = 4;
/// `si_code` of a signal that tkill(2) sent.
const SI_TKILL: i32 = -6;
const GET_SYSCALL_INFO: ptrace::Request = 0x420e;

/// All of a thread that a call changes.
struct Saved {
    registers: Vec<u64>,
    /// Those with which it goes on where the kernel restarts no system call any more.
    anew: Vec<u64>,
    vector: Vec<u8>,
    mask: u64,
}

/// Where a thread came to stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parked {
    Inside,
    /// At its rt_sigreturn, or after it.
    Returned,
    /// It does not stop: it sleeps uninterruptibly.
    Stuck,
    Gone,
}

struct Call<'a> {
    tid: i32,
    style: Style,
    plan: &'a Plan,
    memory: &'a ProgramMemory,
    saved: Saved,
    /// Where the signal frame lies, and the word for the result.
    frame: u64,
    result: u64,
    text: Vec<u8>,
    /// Signals that came meanwhile and cannot be blocked: sent again at the end.
    held: Vec<i32>,
    /// What a write that is captured is to return, and the count that it was given.
    written: Option<(u64, u64)>,
    /// A filtered thread makes its rt_sigreturn, and may be given signals right after it.
    returning: bool,
    signalled: bool,
    /// The kernel no longer knows how much was left of the thread's own sleep.
    forgotten: bool,
}

/// Whether, and by which state, a call may be made in a stopped thread.
pub fn look(tid: i32) -> Result<Look, Error> {
    let registers = registers::read(tid)?;
    let vector_size = ptrace::register_set(tid, NT_X86_XSTATE, MAX_VECTOR)?.len();
    let shadow_stack = ptrace::register_set(tid, NT_X86_SHSTK, 8).is_ok();
    let dispatched = ptrace::is_dispatched(tid);
    let entering = ptrace::configuration::<11>(tid, GET_SYSCALL_INFO, 88).is_some_and(|info| info[0] & 0xff == 1);
    let memory = ProgramMemory::of_thread(tid)?;
    let sequence = match ptrace::rseq_address(tid) {
        Some(area) if area != 0 => word_at(&memory, area.wrapping_add(8))?,
        _ => 0,
    };
    let restartable = !is_resumed(&registers) || number_of(&memory, registers[RIP]).is_some();
    Ok(Look { registers, shadow_stack, dispatched, sequence, entering, restartable, vector_size })
}

/// Makes the calls. An error means that nothing was changed, or that the thread went away.
pub fn call(tid: i32, style: Style, plan: &Plan) -> Result<Answer, Error> {
    let deadline = Instant::now() + plan.limit;
    let memory = ProgramMemory::of_thread(tid)?;
    // Still held, and so it was when its memory was opened.
    registers::read(tid)?;
    if ptrace::has_moved(tid) {
        return Err(Error::from_raw_os_error(libc::ESRCH));
    }
    let mut answer = Answer { end: End::Returned, value: 0, text: Vec::new() };
    for (function, arguments) in &plan.calls {
        let mut call = Call::new(tid, style, plan, &memory)?;
        let start = call.lay_frame()?;
        let end = call.make(start, *function, arguments, deadline);
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
        answer.value = word_at(&memory, call.result)?;
    }
    put_back(&memory, plan, answer.end)?;
    Ok(answer)
}

/// While the thread still stands, and no other runs.
fn put_back(memory: &ProgramMemory, plan: &Plan, end: End) -> Result<(), Error> {
    let undone = matches!(end, End::Abandoned | End::Failed(_));
    let kept = if matches!(end, End::Left | End::Gone) { &[][..] } else { &plan.kept[..] };
    let freed = if undone { &plan.freed[..] } else { &[] };
    let mut changed = kept.iter().chain(freed).filter(|(address, bytes)| !memory.holds(*address, bytes));
    changed.try_for_each(|(address, bytes)| memory.write(*address, bytes))
}

impl<'a> Call<'a> {
    fn new(tid: i32, style: Style, plan: &'a Plan, memory: &'a ProgramMemory) -> Result<Call<'a>, Error> {
        let registers = registers::read(tid)?;
        let vector = ptrace::register_set(tid, NT_X86_XSTATE, MAX_VECTOR)?;
        let mask = ptrace::signal_mask(tid)?;
        if vector.len() < SMALLEST_VECTOR {
            return Err(Error::from_raw_os_error(libc::ENODATA));
        }
        let anew = made_anew(&registers, || number_of(memory, registers[RIP]));
        let saved = Saved { registers, anew, vector, mask };
        if style == Style::Seized {
            // Without it a stop at a system call would become a SIGTRAP that kills the process, should we die in
            // it. gdb always sets it, and the other.
            ptrace::set_options(tid, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC)?;
        }
        let (text, held) = (Vec::new(), Vec::new());
        let (frame, result, written) = (0, 0, None);
        let (returning, signalled, forgotten) = (false, false, false);
        Ok(Call {
            tid,
            style,
            plan,
            memory,
            saved,
            frame,
            result,
            text,
            held,
            written,
            returning,
            signalled,
            forgotten,
        })
    }

    /// Writes the frame below the red zone; returns the stack pointer for the function's entry.
    fn lay_frame(&mut self) -> Result<u64, Error> {
        let top = self.saved.registers[RSP].wrapping_sub(RED_ZONE) & !63;
        self.result = top.wrapping_sub(64);
        let vector = vector_frame(&self.saved.vector);
        let vector_at = self.result.wrapping_sub(vector.len() as u64) & !63;
        let skips = self.plan.keeper_skips;
        let start = (vector_at.wrapping_sub(FRAME_SIZE + skips + 32) & !15) + 8;
        self.frame = start + 8 + skips;
        let mut bytes = vec![0u8; (top - start) as usize];
        put(&mut bytes, 0, self.plan.keeper);
        put(&mut bytes, self.frame - start, self.plan.restorer);
        self.put_context(&mut bytes[(self.frame - start) as usize + 8..], vector_at);
        let at = (vector_at - start) as usize;
        bytes[at..at + vector.len()].copy_from_slice(&vector);
        self.memory.write(start, &bytes)?;
        Ok(start)
    }

    /// `struct ucontext`: flags, link, stack (its flags are invalid, so that sigaltstack stays), registers, mask.
    fn put_context(&self, bytes: &mut [u8], vector_at: u64) {
        put(bytes, 0, FRAME_FLAGS);
        put(bytes, 24, u64::MAX);
        let registers = &self.saved.anew;
        for (place, index) in CONTEXT.iter().enumerate() {
            put(bytes, 40 + 8 * place as u64, registers[*index]);
        }
        // The selectors cs and ss in one word, as the frame has them: cs, gs, fs, ss.
        put(bytes, 40 + 144, registers[CS] & 0xffff | (registers[SS] & 0xffff) << 48);
        put(bytes, 40 + 184, vector_at);
        put(bytes, 40 + 256, self.saved.mask);
    }

    /// Registers before the mask: with the mask alone a death of ours would leave the signals blocked for good.
    fn make(&mut self, start: u64, function: u64, arguments: &[u64], deadline: Instant) -> Result<End, Error> {
        let mut registers = self.saved.registers.clone();
        for (place, value) in ARGUMENTS.iter().zip(arguments) {
            registers[*place] = *value;
        }
        registers[RSP] = start;
        registers[RIP] = function;
        registers[RAX] = 0;
        registers[ORIG_RAX] = NO_CALL;
        registers[EFLAGS] &= !BAD_FLAGS;
        registers[self.plan.keeper_register] = self.result;
        ptrace::set_general_registers(self.tid, &registers)?;
        let open = FAULTS.iter().fold(0u64, |mask, signal| mask | 1 << (signal - 1));
        if let Err(error) = ptrace::set_signal_mask(self.tid, !open) {
            self.restore()?;
            return Err(error);
        }
        self.run(deadline)
    }

    fn run(&mut self, deadline: Instant) -> Result<End, Error> {
        let mut entering = false;
        loop {
            ptrace::go_on_to_syscall(self.tid, 0)?;
            let (signal, event) = match await_stop(self.tid, || self.plan.is_over(deadline)) {
                Waited::Stopped { signal, event } => (signal, event),
                Waited::Gone => return Ok(End::Gone),
                Waited::Running => return self.late(),
            };
            if event == libc::PTRACE_EVENT_EXEC {
                return self.let_go();
            }
            if event != 0 {
                continue;
            }
            // A group stop of an attached thread has no siginfo; the signal of it stays what it was.
            let Ok(code) = ptrace::signal_code(self.tid) else { continue };
            let syscall = signal & 0x7f == libc::SIGTRAP && code & 0x7f == libc::SIGTRAP;
            if syscall {
                entering = !entering;
                if if entering { self.enters()? } else { self.leaves()? } {
                    return Ok(End::Returned);
                }
            } else if code == TRAP_HWBKPT && signal == libc::SIGTRAP {
                // A watchpoint of a debugger's; the instruction is done.
            } else if signal == libc::SIGTRAP && code <= 0 && !self.is_same_program() {
                // A debugger that did not ask for exec events is told of exec(2) like this.
                return self.let_go();
            } else if (code > 0 && FAULTS.contains(&signal)) || signal == libc::SIGABRT {
                if self.park(true)? == Parked::Gone {
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
        self.memory.read(self.frame, &mut [0]).is_ok()
    }

    /// It runs another program now: nothing of the old one's belongs there.
    fn let_go(&self) -> Result<End, Error> {
        let _ = ptrace::detach(self.tid, 0);
        Ok(End::Gone)
    }

    /// At the entry into a system call: the end of the call, a write that is captured, or none of our business.
    fn enters(&mut self) -> Result<bool, Error> {
        let mut registers = registers::read(self.tid)?;
        if self.is_return(&registers) {
            // A filter would see the number of the call that is left out.
            self.returning = self.plan.filtered;
            if self.returning {
                return Ok(false);
            }
            self.skip_return(&registers)?;
            return self.returned();
        }
        let number = registers[ORIG_RAX];
        let to = registers[ARGUMENTS[0]] as u32 as i32;
        if self.plan.captured >= 0 && to == self.plan.captured && (number == SYS_WRITE || number == SYS_WRITEV) {
            let count = registers[ARGUMENTS[2]];
            if let Ok(written) = self.capture(number, registers[ARGUMENTS[1]], count) {
                if self.plan.filtered {
                    registers[ARGUMENTS[2]] = 0;
                    self.written = Some((written, count));
                } else {
                    registers[ORIG_RAX] = NO_CALL;
                    registers[RAX] = written;
                }
                ptrace::set_general_registers(self.tid, &registers)?;
            }
        }
        Ok(false)
    }

    /// At the exit from a system call.
    fn leaves(&mut self) -> Result<bool, Error> {
        if self.returning {
            return self.returned();
        }
        if let Some((written, count)) = self.written.take() {
            let mut registers = registers::read(self.tid)?;
            registers[RAX] = written;
            registers[ARGUMENTS[2]] = count;
            ptrace::set_general_registers(self.tid, &registers)?;
        }
        Ok(false)
    }

    /// The call has ended.
    fn returned(&mut self) -> Result<bool, Error> {
        match self.park(true)? {
            Parked::Gone => Err(Error::from_raw_os_error(libc::ESRCH)),
            _ => self.restore().map(|()| true),
        }
    }

    /// Reads what the thread wants to write; its length.
    fn capture(&mut self, number: u64, address: u64, count: u64) -> Result<u64, Error> {
        let mut pieces = vec![(address, count)];
        if number == SYS_WRITEV {
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

    /// The time is over. A thread that does not stop is left in the call, too.
    fn late(&mut self) -> Result<End, Error> {
        match self.park(false)? {
            Parked::Stuck => Ok(End::Left),
            Parked::Inside if self.plan.leaves => Ok(End::Left),
            Parked::Inside => {
                // A sleep in the function, which was interrupted just now, has taken its place.
                self.forgotten = registers::read(self.tid)?[RAX] as i64 == RESTART_BLOCK;
                self.restore()?;
                Ok(End::Abandoned)
            }
            Parked::Returned => {
                self.restore()?;
                Ok(End::Returned)
            }
            Parked::Gone => Ok(End::Gone),
        }
    }

    /// Asks for a stop; whatever other stop comes first takes that back.
    fn ask_to_stop(&self) -> Result<(), Error> {
        match self.style {
            Style::Seized => ptrace::interrupt(self.tid),
            Style::Attached => {
                send(self.tid, libc::SIGSTOP);
                Ok(())
            }
        }
    }

    /// Brings the thread to a stop after which the kernel looks whether a system call is to be restarted. From a
    /// stop (`standing`) it gets there without running an instruction.
    fn park(&mut self, mut standing: bool) -> Result<Parked, Error> {
        let deadline = Instant::now() + PATIENCE;
        let mut parked = if self.returning { Parked::Returned } else { Parked::Inside };
        let mut passed = 0;
        self.ask_to_stop()?;
        loop {
            if standing {
                ptrace::go_on(self.tid, std::mem::take(&mut passed))?;
            }
            standing = true;
            let (signal, event) = match await_stop(self.tid, || Instant::now() > deadline) {
                Waited::Stopped { signal, event } => (signal, event),
                Waited::Running => return Ok(Parked::Stuck),
                Waited::Gone => return Ok(Parked::Gone),
            };
            if event == libc::PTRACE_EVENT_EXEC {
                let _ = ptrace::detach(self.tid, 0);
                return Ok(Parked::Gone);
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
                if parked == Parked::Inside && self.is_return(&registers) {
                    parked = Parked::Returned;
                    self.returning = self.plan.filtered;
                    if !self.returning {
                        self.skip_return(&registers)?;
                    }
                }
            } else if self.style == Style::Attached && signal == libc::SIGSTOP {
                // Where one was pending already, ours has merged with it.
                if code != SI_TKILL {
                    self.held.push(signal);
                }
                return Ok(parked);
            } else if self.returning {
                // The thread has its own mask again, and its own registers: the signal is for it.
                self.signalled = true;
                passed = signal;
            } else if code <= 0 || !FAULTS.contains(&signal) {
                self.held.push(signal);
            }
        }
    }

    /// Whether this is the entry into the rt_sigreturn that ends the call.
    fn is_return(&self, registers: &[u64]) -> bool {
        registers[ORIG_RAX] == SYS_RT_SIGRETURN && registers[RSP] == self.frame + 8
    }

    /// Leaves the rt_sigreturn out that ends the call. Should we die from here on, the thread makes it after all.
    fn skip_return(&self, registers: &[u64]) -> Result<(), Error> {
        let mut registers = registers.to_vec();
        registers[ORIG_RAX] = NO_CALL;
        registers[RIP] = self.plan.restorer;
        ptrace::set_general_registers(self.tid, &registers)
    }

    /// Mask, vector state, registers: the frame and the restorer would do each of them once more. A thread that
    /// made its rt_sigreturn and was given a signal then has all of it back, and a handler's frame on top.
    fn restore(&self) -> Result<(), Error> {
        if self.signalled {
            return Ok(());
        }
        ptrace::set_signal_mask(self.tid, self.saved.mask)?;
        ptrace::set_register_set(self.tid, NT_X86_XSTATE, &self.saved.vector)?;
        if ptrace::register_set(self.tid, NT_X86_XSTATE, MAX_VECTOR)? != self.saved.vector {
            // Once more; the frame still holds it, should it not work.
            ptrace::set_register_set(self.tid, NT_X86_XSTATE, &self.saved.vector)?;
        }
        // rt_sigreturn makes it forget that, too.
        let forgotten = (self.forgotten || self.returning) && self.saved.registers[RAX] as i64 == RESTART_BLOCK;
        ptrace::set_general_registers(self.tid, if forgotten { &self.saved.anew } else { &self.saved.registers })
    }
}

/// The registers from which a thread goes on that gets no restart of its system call from the kernel any more.
///
/// rt_sigreturn ends each restart; so the frame has the registers with which the call is made anew.
fn made_anew(saved: &[u64], number: impl FnOnce() -> Option<u64>) -> Vec<u64> {
    let mut registers = saved.to_vec();
    if saved[ORIG_RAX] as i64 >= 0 && RESTARTS.contains(&(saved[RAX] as i64)) {
        let resumed = if is_resumed(saved) { number() } else { None };
        registers[RAX] = resumed.unwrap_or(saved[ORIG_RAX]);
        registers[RIP] = saved[RIP].wrapping_sub(2);
    }
    registers
}

/// Whether the thread waits in restart_syscall(2), as it does once it was stopped in a call with a time limit: the kernel
/// alone knows what that goes on with, and forgets it at rt_sigreturn.
fn is_resumed(registers: &[u64]) -> bool {
    registers[ORIG_RAX] == SYS_RESTART_SYSCALL && registers[RAX] as i64 == RESTART_BLOCK
}

/// The number of the call that was made by the `syscall` before `counter`: what the code just before it has loaded into rax.
fn number_of(memory: &ProgramMemory, counter: u64) -> Option<u64> {
    let mut code = [0u8; CODE_BEFORE];
    memory.read(counter.wrapping_sub(CODE_BEFORE as u64), &mut code).ok()?;
    let before = code.strip_suffix(&SYSCALL)?;
    // mov $number, %eax; not %r8d to %r15d, which has a prefix.
    let loads = |place: &usize| before[*place] == 0xb8 && (*place == 0 || !(0x40..0x50).contains(&before[place - 1]));
    let number = |place: usize| u64::from(u32_at(before, place + 1));
    (0..before.len() - 4).rev().filter(loads).map(number).find(|number| RESUMED.contains(number))
}

/// The vector state in the form of a signal frame (arch/x86/include/uapi/asm/sigcontext.h).
///
/// It may have no more than the thread may use: AMX only where the thread has used it.
fn vector_frame(state: &[u8]) -> Vec<u8> {
    let known = u64_at(state, SOFTWARE_BYTES);
    let in_use = u64_at(state, HEADER);
    let features = if in_use & AMX == 0 { known & !AMX } else { known };
    let size = vector_size(features).min(state.len());
    let mut bytes = state[..size].to_vec();
    put(&mut bytes, HEADER as u64, in_use & features);
    put(&mut bytes, SOFTWARE_BYTES as u64, FP_MAGIC1 as u64 | (size as u64 + 4) << 32);
    put(&mut bytes, SOFTWARE_BYTES as u64 + 8, features);
    put(&mut bytes, SOFTWARE_BYTES as u64 + 16, size as u64);
    bytes.extend(FP_MAGIC2.to_le_bytes());
    bytes
}

/// Where the last of these states ends in the standard form (CPUID leaf 13).
fn vector_size(features: u64) -> usize {
    let end = |feature: u32| {
        // Older releases of Rust call this unsafe.
        #[allow(unused_unsafe)]
        // SAFETY: leaf 13 is there where the kernel hands out vector state at all.
        let found = unsafe { std::arch::x86_64::__cpuid_count(13, feature) };
        (found.eax + found.ebx) as usize
    };
    (2..63).filter(|feature| features >> feature & 1 != 0).map(end).fold(SMALLEST_VECTOR, usize::max)
}

fn word_at(memory: &ProgramMemory, address: u64) -> Result<u64, Error> {
    let mut bytes = [0u8; 8];
    memory.read(address, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn put(bytes: &mut [u8], offset: u64, value: u64) {
    bytes[offset as usize..offset as usize + 8].copy_from_slice(&value.to_le_bytes());
}
