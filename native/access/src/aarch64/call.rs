//! The frame of a call in a thread, and the registers with which the call begins and returns (process/calling.rs).
//!
//! If a stop has interrupted a thread's system call, only the kernel knows whether the call continues with the rest of
//! its time limit (restart_syscall(2)). So gdbheap first lets the thread enter its call; x8 then shows whether the call
//! continues. The thread then skips its call and begins the function. Afterwards it makes its call again.
#![forbid(unsafe_code)]

use crate::arch::registers::{self, PROGRAM_COUNTER, STACK_POINTER, X0, X8};
use crate::arch::system_call::{self, INSTRUCTION, NO_CALL};
use crate::bytes::{half_at, put, u32_at};
use crate::process::call::{await_stop, Plan, ThreadFacts};
use crate::process::program_memory::ProgramMemory;
use crate::process::ptrace::{self, ThreadEvent};
use std::io::Error;
use std::time::{Duration, Instant};

/// How long a thread may run until it has entered its system call. After that, gdbheap calls no function in it (EBUSY).
const PATIENCE: Duration = Duration::from_secs(1);
/// The indices of the registers that contain a function's arguments, in the order of the calling convention.
pub(crate) const ARGUMENTS: [usize; 6] = [0, 1, 2, 3, 4, 5];
const LINK: usize = 30;
const PSTATE: usize = 33;
/// The bits of pstate that are cleared for a call: single step, and the kind of the last branch (BTI).
const BAD_STATE: u64 = 1 << 21 | 3 << 10;
/// The numbers of register sets (`elf.h`): floating point, SVE, streaming SVE, the matrix register ZA, and shadow
/// stacks (GCS).
const NT_FPREGSET: usize = 2;
const NT_ARM_SVE: usize = 0x405;
const NT_ARM_SSVE: usize = 0x40b;
const NT_ARM_ZA: usize = 0x40c;
const NT_ARM_GCS: usize = 0x410;
/// The size of the vector state in bytes: 32 registers of 16 bytes, fpsr, fpcr, and padding.
const VECTOR_BYTES: usize = 528;
/// The offset in bytes of the flags in the header of NT_ARM_SVE.
const SVE_FLAGS: usize = 12;
const SVE_HEADER: usize = 16;
/// The flag in the header of NT_ARM_SVE for registers that are wider than those of NT_FPREGSET.
const IS_WIDE: u32 = 1;
const SYS_RT_SIGRETURN: u64 = 139;
const SYS_RESTART_SYSCALL: u64 = 128;
/// The numbers of futex, nanosleep, ppoll and clock_nanosleep. After a stop, the kernel restarts these calls with the
/// time that was left, not with their full time limit.
const RESUMED: [u64; 4] = [98, 101, 73, 115];
const CODE_BEFORE: usize = 32;
/// The machine code of `movz x8, #0`.
const MOVE_TO_X8: u32 = 0xd280_0008;
/// The bits of the instruction MOVE_TO_X8 that are not the number.
const MOVE_MASK: u32 = 0xffe0_001f;
/// A first argument that every system call refuses: it is not a valid descriptor, address, clock or process id.
const REFUSED: u64 = i32::MIN as i64 as u64;
/// The offset in bytes of the alternative stack's flags in the kernel's `struct rt_sigframe`.
const STACK_FLAGS: usize = 128 + 24;
/// The offset in bytes of the signal mask in the kernel's `struct rt_sigframe`.
const MASK: usize = 128 + 40;
/// The offset in bytes of x0 to x30, sp, pc and pstate in the kernel's `struct rt_sigframe`.
const REGISTERS: usize = 128 + 184;
/// The offset in bytes, in the kernel's `struct rt_sigframe`, of the records of other registers. The record of the
/// vector state has a header, fpsr and fpcr.
const RECORDS: usize = 128 + 464;
const FRAME_SIZE: u64 = RECORDS as u64 + (4 << 10);
const FPSIMD_MAGIC: u64 = 0x4650_8001;
const FPSIMD_SIZE: u64 = 528;
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

/// A signal frame with the state of the thread. `start`: the address of the frame, and the stack pointer at the entry
/// into the function.
pub(crate) struct SignalFrame {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Return the facts about a stopped thread by which the caller decides whether a call may be made in the thread.
pub fn look(tid: i32) -> Result<ThreadFacts, Error> {
    let registers = registers::read(tid)?;
    let has = |set: usize, size: usize| ptrace::register_set(tid, set, size).unwrap_or_default();
    let shadow_stack = has(NT_ARM_GCS, 24).iter().take(8).any(|byte| *byte != 0);
    let dispatched = ptrace::is_dispatched(tid);
    let entering = ptrace::configuration::<11>(tid, GET_SYSCALL_INFO, 88).is_some_and(|info| info[0] & 0xff == 1);
    let memory = ProgramMemory::of_thread(tid)?;
    let sequence = match ptrace::rseq_address(tid) {
        Some(area) if area != 0 => memory.word(area.wrapping_add(8))?,
        _ => 0,
    };
    let restartable = number_anew(&memory, &registers).is_some();
    // The frame has no room for wider registers, and streaming mode changes the meaning of the others.
    let is_wide = u32_at(&has(NT_ARM_SVE, SVE_HEADER), SVE_FLAGS) & IS_WIDE != 0
        || u32_at(&has(NT_ARM_SSVE, SVE_HEADER), SVE_FLAGS) & IS_WIDE != 0
        || has(NT_ARM_ZA, SVE_HEADER).first_chunk().is_some_and(|size| u32::from_le_bytes(*size) > SVE_HEADER as u32);
    let vector_size = if is_wide { 0 } else { VECTOR_BYTES };
    Ok(ThreadFacts { registers, shadow_stack, dispatched, sequence, entering, restartable, vector_size })
}

impl SavedThread {
    /// Read the state of a stopped thread. If the thread makes a system call next, let it enter the call. Signals that
    /// come meanwhile are added to `held`.
    pub(crate) fn of(tid: i32, memory: &ProgramMemory, held: &mut Vec<i32>) -> Result<SavedThread, Error> {
        let mut registers = registers::read(tid)?;
        let vector = ptrace::register_set(tid, NT_FPREGSET, VECTOR_BYTES)?;
        let mask = ptrace::signal_mask(tid)?;
        let number = number_anew(memory, &registers);
        if vector.len() != VECTOR_BYTES {
            return Err(Error::from_raw_os_error(libc::ENODATA));
        }
        let is_entering = system_call::is_next(tid, &registers);
        if is_entering {
            enter(tid, held)?;
            registers = registers::read(tid)?;
            registers[PROGRAM_COUNTER] -= INSTRUCTION.len() as u64;
        }
        let mut anew = registers.clone();
        if let Some(number) = number.filter(|_| is_entering) {
            anew[X8] = number;
        }
        Ok(SavedThread { registers, anew, vector: vec![(NT_FPREGSET, vector)], mask, is_entering })
    }
}

/// Let a thread run up to the entry into the system call that it makes next.
fn enter(tid: i32, held: &mut Vec<i32>) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        ptrace::go_on_to_syscall(tid, 0)?;
        let stopped = match await_stop(tid, || Instant::now() > deadline) {
            ThreadEvent::Stopped { signal, event } => (signal, event),
            ThreadEvent::Running => return Err(Error::from_raw_os_error(libc::EBUSY)),
            ThreadEvent::Gone => return Err(Error::from_raw_os_error(libc::ESRCH)),
        };
        match stopped {
            (signal, 0) if signal == libc::SIGTRAP | 0x80 => return Ok(()),
            (signal, 0) => held.push(signal),
            _ => {}
        }
    }
}

/// Return the number with which a thread can make its interrupted system call again; None if the number is unknown. It
/// is in x8, unless the kernel has put the number of restart_syscall(2) there. In that case, it is read from the
/// instruction before the call that loads a constant into x8.
fn number_anew(memory: &ProgramMemory, registers: &[u64]) -> Option<u64> {
    if registers[X8] != SYS_RESTART_SYSCALL {
        return Some(registers[X8]);
    }
    let mut code = [0u8; CODE_BEFORE];
    memory.read(registers[PROGRAM_COUNTER].wrapping_sub(CODE_BEFORE as u64), &mut code).ok()?;
    let loaded = |place: usize| half_at(&code, place).filter(|found| found & MOVE_MASK == MOVE_TO_X8);
    let number = |found: u32| u64::from(found >> 5 & 0xffff);
    (0..CODE_BEFORE).step_by(4).rev().filter_map(loaded).map(number).find(|number| RESUMED.contains(number))
}

/// Build the signal frame for a call. The called function returns into rt_sigreturn(2), which restores the thread from
/// this frame.
pub(crate) fn frame(saved: &SavedThread, _: &Plan) -> SignalFrame {
    let start = saved.registers[STACK_POINTER].wrapping_sub(FRAME_SIZE) & !15;
    let mut bytes = vec![0u8; FRAME_SIZE as usize];
    // The flags of the alternative stack are invalid, so that it does not change.
    put(&mut bytes, STACK_FLAGS, u64::MAX);
    put(&mut bytes, MASK, saved.mask);
    for (place, value) in saved.anew.iter().enumerate() {
        put(&mut bytes, REGISTERS + 8 * place, *value);
    }
    // NT_FPREGSET has fpsr and fpcr after the registers, the record has them before.
    let vector = &saved.vector[0].1;
    put(&mut bytes, RECORDS, FPSIMD_MAGIC | FPSIMD_SIZE << 32);
    bytes[RECORDS + 8..RECORDS + 16].copy_from_slice(&vector[512..520]);
    bytes[RECORDS + 16..RECORDS + 528].copy_from_slice(&vector[..512]);
    SignalFrame { start, bytes }
}

/// Make the thread begin the function. The registers are set before the mask: if gdbheap dies after setting only the
/// mask, the signals would stay blocked for good.
///
/// A thread that has entered its system call skips the call. If gdbheap dies before that, the call fails, because its
/// first argument is refused; the function then runs, and the frame makes the thread repeat the call.
pub(crate) fn begin(
    tid: i32,
    saved: &SavedThread,
    frame: &SignalFrame,
    plan: &Plan,
    function: u64,
    arguments: &[u64],
) -> Result<(), Error> {
    let mut registers = saved.registers.clone();
    registers[STACK_POINTER] = frame.start;
    registers[PROGRAM_COUNTER] = function;
    registers[LINK] = plan.restorer;
    registers[PSTATE] &= !BAD_STATE;
    if saved.is_entering {
        registers[X0] = REFUSED;
        ptrace::set_general_registers(tid, &registers)?;
        system_call::set_number(tid, NO_CALL)?;
    }
    for (place, value) in ARGUMENTS.iter().zip(arguments) {
        registers[*place] = *value;
    }
    ptrace::set_general_registers(tid, &registers)
}

/// Return whether a thread with these registers enters the rt_sigreturn that ends the call.
pub(crate) fn is_return(registers: &[u64], frame: &SignalFrame) -> bool {
    registers[X8] == SYS_RT_SIGRETURN && registers[STACK_POINTER] == frame.start
}

/// Return the result of the function from the registers at its return. It is never None on this processor.
pub(crate) fn value(registers: &[u64]) -> Option<u64> {
    Some(registers[X0])
}

/// Return ENODATA: on this processor, `value` returns the result from a register.
pub(crate) fn result(_: &ProgramMemory, _: &SignalFrame) -> Result<u64, Error> {
    Err(Error::from_raw_os_error(libc::ENODATA))
}

/// Skip the rt_sigreturn that ends the call. If gdbheap dies before the thread is released, the thread makes the
/// rt_sigreturn itself.
pub(crate) fn skip_return(tid: i32, registers: &[u64], plan: &Plan) -> Result<(), Error> {
    let mut registers = registers.to_vec();
    registers[PROGRAM_COUNTER] = plan.restorer;
    ptrace::set_general_registers(tid, &registers)?;
    system_call::set_number(tid, NO_CALL)
}

/// Make the thread skip the system call that it is entering, with `answer` as the call's result.
pub(crate) fn skip(tid: i32, registers: &mut [u64], answer: u64) -> Result<(), Error> {
    registers[X0] = answer;
    system_call::set_number(tid, NO_CALL)?;
    ptrace::set_general_registers(tid, registers)
}

/// Change the result of a system call that has ended.
pub(crate) fn set_answer(registers: &mut [u64], answer: u64) {
    registers[X0] = answer;
}

/// Return whether a thread that gdbheap stopped inside the called function may have lost the remaining time of its own
/// interrupted sleep. The kernel stores only one remaining time for each thread, and the function may sleep too.
pub(crate) fn may_have_replaced_rest(tid: i32, registers: &[u64]) -> bool {
    system_call::is_next(tid, registers)
}

/// Return whether the kernel has stored the remaining time of the thread's own sleep.
pub(crate) fn has_rest(registers: &[u64]) -> bool {
    registers[X8] == SYS_RESTART_SYSCALL
}
