//! Calls a function in one thread that is traced and stopped, and restores the thread afterwards.
//!
//! All of this code must run on the thread that traces. A signal frame with the whole state of the thread is written
//! below its red zone, and the function returns through libc's own rt_sigreturn. So if the tracer dies, the thread
//! finishes the call by itself and continues at its old place. Usually the tracer skips that rt_sigreturn and restores
//! everything itself, because only then does the kernel restart an interrupted system call with the rest of its time
//! limit. The steps below are ordered so that the thread could continue from every state between two of them.
//!
//! The function belongs to the target, and may do anything. Memory is written through one file that was opened before,
//! and a thread that called exec(2) is released at once: a set-uid program gets neither registers nor bytes of the old
//! program.

use crate::arch::registers::{self, CS, EFLAGS, NO_CALL, ORIG_RAX, R8, R9, RAX, RCX, RDI, RDX, RIP, RSI, RSP, SS};
use crate::bytes::{u32_at, u64_at, words};
use crate::process::call::{await_stop, Answer, End, Look, Plan, Style};
use crate::process::program_memory::ProgramMemory;
use crate::process::ptrace::{self, send, Waited};
use std::io::Error;
use std::time::{Duration, Instant};

/// The time that a thread has to reach the required stop. A thread in uninterruptible sleep is left to finish the call
/// by itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// The registers of arguments, in the order of the calling convention.
const ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, RCX, R8, R9];
/// The first fields of `struct sigcontext_64`: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags.
const CONTEXT: [usize; 18] = [R8, R9, 7, 6, 3, 2, 1, 0, RDI, RSI, 4, 5, RDX, RAX, RCX, RSP, RIP, EFLAGS];
const RED_ZONE: u64 = 128;
/// The numbers of register sets (`elf.h`).
const NT_X86_XSTATE: usize = 0x202;
const NT_X86_SHSTK: usize = 0x204;
/// The processor flags that are cleared for a call: trap, direction and alignment check.
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
/// The offset of the kernel's description of the vector state. The header, with the states in use, is at offset 512.
const SOFTWARE_BYTES: usize = 464;
const HEADER: usize = 512;
const SMALLEST_VECTOR: usize = 576;
const AMX: u64 = 1 << 17 | 1 << 18;
/// The kernel's own codes for "restart this system call" (include/linux/errno.h), as they appear in rax.
const RESTARTS: [i64; 4] = [-512, -513, -514, RESTART_BLOCK];
const RESTART_BLOCK: i64 = -516;
const SYS_RESTART_SYSCALL: u64 = 219;
/// The numbers of poll, nanosleep, futex and clock_nanosleep: the calls that continue with the rest of their time.
const RESUMED: [u64; 4] = [7, 35, 202, 230];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const CODE_BEFORE: usize = 32;
/// The signals that an instruction raises. If they were blocked, the kernel would reset their handlers.
const FAULTS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP];
const MAX_TEXT: usize = 4 << 20;
const TRAP_HWBKPT: i32 = 4;
/// `si_code` of a signal that tkill(2) sent.
const SI_TKILL: i32 = -6;
const GET_SYSCALL_INFO: ptrace::Request = 0x420e;

/// The state of a thread that a call changes and that is restored afterwards.
struct Saved {
    registers: Vec<u64>,
    /// The registers with which the thread continues if the kernel can no longer restart its system call.
    anew: Vec<u64>,
    vector: Vec<u8>,
    mask: u64,
}

/// The place at which a thread has stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parked {
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
    saved: Saved,
    /// The addresses of the signal frame, and of the word for the result.
    frame: u64,
    result: u64,
    text: Vec<u8>,
    /// Signals that came during the call and cannot be blocked. They are sent again at the end.
    held: Vec<i32>,
    /// A write that was captured: its result, and the number of bytes that the thread asked to write.
    written: Option<(u64, u64)>,
    /// `returning`: whether the thread, which has a filter, makes its rt_sigreturn itself. `signalled`: whether it
    /// received a signal right afterwards.
    returning: bool,
    signalled: bool,
    /// Whether the kernel has lost the remaining time of the thread's own sleep.
    forgotten: bool,
}

/// Return the state of a stopped thread, which decides whether a call may be made in it.
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

/// Make the calls. An error means that nothing was changed, or that the thread is gone.
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
        let registers = registers::read(tid)?;
        let vector = ptrace::register_set(tid, NT_X86_XSTATE, MAX_VECTOR)?;
        let mask = ptrace::signal_mask(tid)?;
        if vector.len() < SMALLEST_VECTOR {
            return Err(Error::from_raw_os_error(libc::ENODATA));
        }
        let anew = made_anew(&registers, || number_of(memory, registers[RIP]));
        let saved = Saved { registers, anew, vector, mask };
        if style == Style::Seized {
            // Without this option, a stop at a system call would become a SIGTRAP that kills the process, if gdbheap
            // dies during it. gdb always sets both options.
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

    /// Write the frame below the red zone. Return the stack pointer for the function's entry.
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

    /// Write `struct ucontext`: flags, link, stack (with invalid flags, so that sigaltstack does not change),
    /// registers, mask.
    fn put_context(&self, bytes: &mut [u8], vector_at: u64) {
        put(bytes, 0, FRAME_FLAGS);
        put(bytes, 24, u64::MAX);
        let registers = &self.saved.anew;
        for (place, index) in CONTEXT.iter().enumerate() {
            put(bytes, 40 + 8 * place as u64, registers[*index]);
        }
        // The selectors share one word of the frame: cs, gs, fs, ss.
        put(bytes, 40 + 144, registers[CS] & 0xffff | (registers[SS] & 0xffff) << 48);
        put(bytes, 40 + 184, vector_at);
        put(bytes, 40 + 256, self.saved.mask);
    }

    /// Start the function and run it. The registers are set before the mask: if gdbheap dies after setting only the
    /// mask, the signals would stay blocked for good.
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

    /// Detach from a thread that runs another program now. The new program must not get data of the old one.
    fn let_go(&self) -> Result<End, Error> {
        let _ = ptrace::detach(self.tid, 0);
        Ok(End::Gone)
    }

    /// Handle the thread's entry into a system call: the rt_sigreturn that ends the call, a captured write, or another
    /// system call. Return whether the call has ended.
    fn enters(&mut self) -> Result<bool, Error> {
        let mut registers = registers::read(self.tid)?;
        if self.is_return(&registers) {
            // If this system call were skipped, a filter would see the number of the skipped call.
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

    /// Handle the exit from a system call. Return whether the call has ended.
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

    /// End the call after its return.
    fn returned(&mut self) -> Result<bool, Error> {
        match self.park(true)? {
            Parked::Gone => Err(Error::from_raw_os_error(libc::ESRCH)),
            _ => self.restore().map(|()| true),
        }
    }

    /// Read the bytes that the thread wants to write. Return their count.
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

    /// End the call because its time is over. If the thread does not stop, it is left in the call.
    fn late(&mut self) -> Result<End, Error> {
        match self.park(false)? {
            Parked::Stuck => Ok(End::Left),
            Parked::Inside if self.plan.leaves => Ok(End::Left),
            Parked::Inside => {
                // A sleep in the function, which was just interrupted, has replaced the thread's own sleep in the
                // kernel.
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

    /// Return whether this is the entry into the rt_sigreturn that ends the call.
    fn is_return(&self, registers: &[u64]) -> bool {
        registers[ORIG_RAX] == SYS_RT_SIGRETURN && registers[RSP] == self.frame + 8
    }

    /// Skip the rt_sigreturn that ends the call. If gdbheap dies before the thread is released, the thread makes the
    /// rt_sigreturn itself.
    fn skip_return(&self, registers: &[u64]) -> Result<(), Error> {
        let mut registers = registers.to_vec();
        registers[ORIG_RAX] = NO_CALL;
        registers[RIP] = self.plan.restorer;
        ptrace::set_general_registers(self.tid, &registers)
    }

    /// Restore mask, vector state and registers, in this order. If gdbheap dies in between, the frame and the restorer
    /// restore all of them. A thread that made its rt_sigreturn and then received a signal has them already, with a
    /// handler's frame on top.
    fn restore(&self) -> Result<(), Error> {
        if self.signalled {
            return Ok(());
        }
        ptrace::set_signal_mask(self.tid, self.saved.mask)?;
        ptrace::set_register_set(self.tid, NT_X86_XSTATE, &self.saved.vector)?;
        if ptrace::register_set(self.tid, NT_X86_XSTATE, MAX_VECTOR)? != self.saved.vector {
            // Try again to restore the vector state. If that fails too, the frame still has the state.
            ptrace::set_register_set(self.tid, NT_X86_XSTATE, &self.saved.vector)?;
        }
        // rt_sigreturn also lets the kernel forget the remaining time.
        let forgotten = (self.forgotten || self.returning) && self.saved.registers[RAX] as i64 == RESTART_BLOCK;
        ptrace::set_general_registers(self.tid, if forgotten { &self.saved.anew } else { &self.saved.registers })
    }
}

/// Return the registers with which a thread continues if the kernel can no longer restart its system call.
///
/// After rt_sigreturn the kernel restarts nothing. So the registers in the frame make the thread repeat the call.
fn made_anew(saved: &[u64], number: impl FnOnce() -> Option<u64>) -> Vec<u64> {
    let mut registers = saved.to_vec();
    if saved[ORIG_RAX] as i64 >= 0 && RESTARTS.contains(&(saved[RAX] as i64)) {
        let resumed = if is_resumed(saved) { number() } else { None };
        registers[RAX] = resumed.unwrap_or(saved[ORIG_RAX]);
        registers[RIP] = saved[RIP].wrapping_sub(2);
    }
    registers
}

/// Return whether the thread waits in restart_syscall(2), as after a stop in a call with a time limit. Only the kernel
/// knows the remaining time, and rt_sigreturn makes it forget the time.
fn is_resumed(registers: &[u64]) -> bool {
    registers[ORIG_RAX] == SYS_RESTART_SYSCALL && registers[RAX] as i64 == RESTART_BLOCK
}

/// Return the number of the system call that the `syscall` instruction before `counter` made. The code just before that
/// instruction loads this number into rax.
fn number_of(memory: &ProgramMemory, counter: u64) -> Option<u64> {
    let mut code = [0u8; CODE_BEFORE];
    memory.read(counter.wrapping_sub(CODE_BEFORE as u64), &mut code).ok()?;
    let before = code.strip_suffix(&SYSCALL)?;
    // mov $number, %eax; not %r8d to %r15d, which have a prefix.
    let loads = |place: &usize| before[*place] == 0xb8 && (*place == 0 || !(0x40..0x50).contains(&before[place - 1]));
    let number = |place: usize| u64::from(u32_at(before, place + 1));
    (0..before.len() - 4).rev().filter(loads).map(number).find(|number| RESUMED.contains(number))
}

/// Return the vector state in the form of a signal frame (arch/x86/include/uapi/asm/sigcontext.h).
///
/// The frame must not have more state than the thread may use: AMX only if the thread has used it.
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

/// Return the offset at which the last of the states in `features` ends in the standard form (CPUID leaf 13).
fn vector_size(features: u64) -> usize {
    let end = |feature: u32| {
        // Older releases of Rust declare this function as unsafe.
        #[allow(unused_unsafe)]
        // SAFETY: leaf 13 exists wherever the kernel provides vector state.
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
