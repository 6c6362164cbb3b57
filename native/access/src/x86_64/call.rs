//! The frame of a call in a thread, and the registers with which the call begins and returns (process/calling.rs).

use crate::arch::registers::{self, CS, EFLAGS, NO_CALL, ORIG_RAX, R8, R9, RAX, RCX, RDI, RDX, RIP, RSI, RSP, SS};
use crate::bytes::{put, u32_at, u64_at};
use crate::process::call::{Plan, ThreadFacts};
use crate::process::program_memory::ProgramMemory;
use crate::process::ptrace;
use std::io::Error;

/// The registers of arguments, in the order of the calling convention.
pub(crate) const ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, RCX, R8, R9];
/// The first fields of `struct sigcontext_64`: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags.
const CONTEXT: [usize; 18] = [R8, R9, 7, 6, 3, 2, 1, 0, RDI, RSI, 4, 5, RDX, RAX, RCX, RSP, RIP, EFLAGS];
const RED_ZONE: u64 = 128;
/// The numbers of two register sets (`elf.h`): the vector registers (XSAVE), and the shadow stack.
const NT_X86_XSTATE: usize = 0x202;
const NT_X86_SHSTK: usize = 0x204;
/// The processor flags that are cleared for a call: trap, direction and alignment check.
const BAD_FLAGS: u64 = 1 << 8 | 1 << 10 | 1 << 18;
const MAX_VECTOR: usize = 64 << 10;
const SYS_RT_SIGRETURN: u64 = 15;
/// uc_flags: UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS.
const FRAME_FLAGS: u64 = 7;
const FRAME_SIZE: u64 = 8 + 304 + 128;
const FP_MAGIC1: u32 = 0x4650_5853;
const FP_MAGIC2: u32 = 0x4650_5845;
/// The offset in bytes, in the vector state (XSAVE area), of the kernel's description of this state. The header of the
/// area, at offset 512, says which parts are in use.
const SOFTWARE_BYTES: usize = 464;
const HEADER: usize = 512;
const SMALLEST_VECTOR: usize = 576;
const AMX: u64 = 1 << 17 | 1 << 18;
/// The kernel's own codes for "restart this system call" (include/linux/errno.h), as they appear in rax.
const RESTARTS: [i64; 4] = [-512, -513, -514, RESTART_BLOCK];
const RESTART_BLOCK: i64 = -516;
const SYS_RESTART_SYSCALL: u64 = 219;
/// The numbers of poll, nanosleep, futex and clock_nanosleep. After a stop, the kernel restarts these calls with the
/// time that was left, not with their full time limit.
const RESUMED: [u64; 4] = [7, 35, 202, 230];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const CODE_BEFORE: usize = 32;
const GET_SYSCALL_INFO: ptrace::Request = 0x420e;

/// The state of a thread that a call changes and that is restored afterwards.
pub(crate) struct SavedThread {
    pub(crate) registers: Vec<u64>,
    /// The registers with which the thread continues if the kernel can no longer restart its system call.
    pub(crate) anew: Vec<u64>,
    /// The vector registers, as (note type of the register set, its bytes).
    pub(crate) vector: Vec<(usize, Vec<u8>)>,
    pub(crate) mask: u64,
    /// Whether the thread has entered its own system call.
    pub(crate) is_entering: bool,
}

/// A signal frame with the state of the thread, and the data that the function needs above and below the frame.
///
/// `start`: the address of `bytes`, and the stack pointer at the entry into the function. `context`: the address of the
/// frame. `result`: the address of the word for the function's result.
pub(crate) struct SignalFrame {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    context: u64,
    result: u64,
}

/// Return the facts about a stopped thread by which the caller decides whether a call may be made in the thread.
pub fn look(tid: i32) -> Result<ThreadFacts, Error> {
    let registers = registers::read(tid)?;
    let vector_size = ptrace::register_set(tid, NT_X86_XSTATE, MAX_VECTOR)?.len();
    let shadow_stack = ptrace::register_set(tid, NT_X86_SHSTK, 8).is_ok();
    let dispatched = ptrace::is_dispatched(tid);
    let entering = ptrace::configuration::<11>(tid, GET_SYSCALL_INFO, 88).is_some_and(|info| info[0] & 0xff == 1);
    let memory = ProgramMemory::of_thread(tid)?;
    let sequence = match ptrace::rseq_address(tid) {
        Some(area) if area != 0 => memory.word(area.wrapping_add(8))?,
        _ => 0,
    };
    let restartable = !is_resumed(&registers) || number_of(&memory, registers[RIP]).is_some();
    Ok(ThreadFacts { registers, shadow_stack, dispatched, sequence, entering, restartable, vector_size })
}

impl SavedThread {
    /// Read the registers and the signal mask of a stopped thread. ENODATA if the kernel reports less vector state than
    /// every x86-64 processor has.
    pub(crate) fn of(tid: i32, memory: &ProgramMemory, _: &mut Vec<i32>) -> Result<SavedThread, Error> {
        let registers = registers::read(tid)?;
        let vector = ptrace::register_set(tid, NT_X86_XSTATE, MAX_VECTOR)?;
        let mask = ptrace::signal_mask(tid)?;
        if vector.len() < SMALLEST_VECTOR {
            return Err(Error::from_raw_os_error(libc::ENODATA));
        }
        let anew = made_anew(&registers, || number_of(memory, registers[RIP]));
        Ok(SavedThread { registers, anew, vector: vec![(NT_X86_XSTATE, vector)], mask, is_entering: false })
    }
}

/// Build the signal frame for a call. The called function returns into rt_sigreturn(2), which restores the thread from
/// this frame. The frame lies below the red zone.
pub(crate) fn frame(saved: &SavedThread, plan: &Plan) -> SignalFrame {
    let top = saved.registers[RSP].wrapping_sub(RED_ZONE) & !63;
    let result = top.wrapping_sub(64);
    let vector = vector_frame(&saved.vector[0].1);
    let vector_at = result.wrapping_sub(vector.len() as u64) & !63;
    let skips = plan.keeper_skips;
    let start = (vector_at.wrapping_sub(FRAME_SIZE + skips + 32) & !15) + 8;
    let context = start + 8 + skips;
    let mut bytes = vec![0u8; (top - start) as usize];
    put(&mut bytes, 0, plan.keeper);
    put(&mut bytes, (context - start) as usize, plan.restorer);
    put_context(saved, &mut bytes[(context - start) as usize + 8..], vector_at);
    let at = (vector_at - start) as usize;
    bytes[at..at + vector.len()].copy_from_slice(&vector);
    SignalFrame { start, bytes, context, result }
}

/// Write `struct ucontext`: flags, link, stack (with invalid flags, so that sigaltstack does not change), registers,
/// mask.
fn put_context(saved: &SavedThread, bytes: &mut [u8], vector_at: u64) {
    put(bytes, 0, FRAME_FLAGS);
    put(bytes, 24, u64::MAX);
    let registers = &saved.anew;
    for (place, index) in CONTEXT.iter().enumerate() {
        put(bytes, 40 + 8 * place, registers[*index]);
    }
    // The selectors share one word of the frame: cs, gs, fs, ss.
    put(bytes, 40 + 144, registers[CS] & 0xffff | (registers[SS] & 0xffff) << 48);
    put(bytes, 40 + 184, vector_at);
    put(bytes, 40 + 256, saved.mask);
}

/// Make the thread begin the function. The registers are set before the mask: if gdbheap dies after setting only the
/// mask, the signals would stay blocked for good.
pub(crate) fn begin(
    tid: i32,
    saved: &SavedThread,
    frame: &SignalFrame,
    plan: &Plan,
    function: u64,
    arguments: &[u64],
) -> Result<(), Error> {
    let mut registers = saved.registers.clone();
    for (place, value) in ARGUMENTS.iter().zip(arguments) {
        registers[*place] = *value;
    }
    registers[RSP] = frame.start;
    registers[RIP] = function;
    registers[RAX] = 0;
    registers[ORIG_RAX] = NO_CALL;
    registers[EFLAGS] &= !BAD_FLAGS;
    registers[plan.keeper_register] = frame.result;
    ptrace::set_general_registers(tid, &registers)
}

/// Return whether a thread with these registers enters the rt_sigreturn that ends the call.
pub(crate) fn is_return(registers: &[u64], frame: &SignalFrame) -> bool {
    registers[ORIG_RAX] == SYS_RT_SIGRETURN && registers[RSP] == frame.context + 8
}

/// Return None: on this processor, `result` reads the result from memory.
pub(crate) fn value(_: &[u64]) -> Option<u64> {
    None
}

/// Return the result that the keeper has stored.
pub(crate) fn result(memory: &ProgramMemory, frame: &SignalFrame) -> Result<u64, Error> {
    memory.word(frame.result)
}

/// Skip the rt_sigreturn that ends the call. If gdbheap dies before the thread is released, the thread makes the
/// rt_sigreturn itself.
pub(crate) fn skip_return(tid: i32, registers: &[u64], plan: &Plan) -> Result<(), Error> {
    let mut registers = registers.to_vec();
    registers[ORIG_RAX] = NO_CALL;
    registers[RIP] = plan.restorer;
    ptrace::set_general_registers(tid, &registers)
}

/// Make the thread skip the system call that it is entering, with `answer` as the call's result.
pub(crate) fn skip(tid: i32, registers: &mut [u64], answer: u64) -> Result<(), Error> {
    (registers[ORIG_RAX], registers[RAX]) = (NO_CALL, answer);
    ptrace::set_general_registers(tid, registers)
}

/// Change the result of a system call that has ended.
pub(crate) fn set_answer(registers: &mut [u64], answer: u64) {
    registers[RAX] = answer;
}

/// Return whether a thread that gdbheap stopped inside the called function has lost the remaining time of its own
/// interrupted sleep. The kernel stores only one remaining time for each thread, and the function sleeps too.
pub(crate) fn may_have_replaced_rest(_: i32, registers: &[u64]) -> bool {
    has_rest(registers)
}

/// Return whether the kernel has stored the remaining time of the thread's sleep.
pub(crate) fn has_rest(registers: &[u64]) -> bool {
    registers[RAX] as i64 == RESTART_BLOCK
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

/// Return the number of the system call that the `syscall` instruction before `counter` made; None if the code does not
/// show it. The code just before that instruction loads this number into rax.
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
/// The frame must not contain state that the thread may not use. So it contains AMX state only if the thread has used
/// AMX.
fn vector_frame(state: &[u8]) -> Vec<u8> {
    let known = u64_at(state, SOFTWARE_BYTES);
    let in_use = u64_at(state, HEADER);
    let features = if in_use & AMX == 0 { known & !AMX } else { known };
    let size = vector_size(features).min(state.len());
    let mut bytes = state[..size].to_vec();
    put(&mut bytes, HEADER, in_use & features);
    put(&mut bytes, SOFTWARE_BYTES, FP_MAGIC1 as u64 | (size as u64 + 4) << 32);
    put(&mut bytes, SOFTWARE_BYTES + 8, features);
    put(&mut bytes, SOFTWARE_BYTES + 16, size as u64);
    bytes.extend(FP_MAGIC2.to_le_bytes());
    bytes
}

/// Return the size in bytes that the vector state needs in the standard format of XSAVE: the end of the last of the
/// parts `features` (CPUID leaf 13).
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
