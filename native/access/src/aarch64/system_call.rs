//! Makes a stopped thread execute a system call, and recognizes system calls by their numbers.
//!
//! The kernel takes the number from x8, and keeps it in a register set of its own while the call lasts.
#![forbid(unsafe_code)]

use crate::arch::registers::{PROGRAM_COUNTER, X0, X8};
use crate::memory::space::read_process;
use crate::process::ptrace;
use std::io::Error;

/// Whether gdbheap can make a stopped thread execute a system call on this processor.
pub(crate) const IS_SUPPORTED: bool = true;
/// The register set with the number of the current system call (`elf.h`).
const NT_ARM_SYSTEM_CALL: usize = 0x404;
/// The value in NT_ARM_SYSTEM_CALL if the thread is in no system call.
pub(super) const NO_CALL: i32 = -1;
/// The instruction `svc #0`.
pub(crate) const INSTRUCTION: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
/// The architecture that a seccomp(2) filter sees in the system calls of 64-bit programs (`AUDIT_ARCH_AARCH64`).
pub(crate) const AUDIT_ARCHITECTURE: u32 = 0xc000_00b7;
/// The first system call number that belongs to another architecture. aarch64 has no such number.
pub(crate) const NUMBERS_OF_OTHERS: u32 = u32::MAX;
/// The numbers of execve and execveat for 64-bit and 32-bit programs.
const EXECS: [i64; 4] = [221, 281, 11, 387];

/// Return whether a number may be that of execve or execveat, in any kind of program.
pub(crate) fn is_exec(number: i64) -> bool {
    EXECS.contains(&number)
}

/// Return true: a thread whose registers could be read runs 64-bit code.
pub(crate) fn can_be_made(_: &[u64]) -> bool {
    IS_SUPPORTED
}

/// Return whether a stopped thread is in a system call; always false, because the registers do not show it.
pub(crate) fn is_inside(_: &[u64]) -> bool {
    false
}

/// Return whether a stopped thread makes a system call next. If a stop has interrupted the call, the kernel sets the
/// thread back to its `svc` instruction. Only the kernel knows then whether the call continues with the rest of its
/// time limit (restart_syscall(2)), until the thread enters the call.
pub(crate) fn is_next(tid: i32, registers: &[u64]) -> bool {
    let mut code = [0u8; INSTRUCTION.len()];
    read_process(tid, registers[PROGRAM_COUNTER], &mut code) == code.len() && code == INSTRUCTION
}

/// Change the registers so that the thread next makes the system call `number`. `instruction`: the address of a system
/// call instruction.
pub(crate) fn prepare(registers: &mut [u64], instruction: u64, number: u64, arguments: [u64; 6]) {
    registers[..arguments.len()].copy_from_slice(&arguments);
    (registers[X8], registers[PROGRAM_COUNTER]) = (number, instruction);
}

/// Make a thread that has entered a system call make another one. Return the registers with which it makes its own
/// call afterwards.
pub(crate) fn replace(tid: i32, registers: &[u64], number: u64, arguments: [u64; 6]) -> Result<Vec<u64>, Error> {
    let (mut ours, mut own) = (registers.to_vec(), registers.to_vec());
    ours[..arguments.len()].copy_from_slice(&arguments);
    own[PROGRAM_COUNTER] -= INSTRUCTION.len() as u64;
    ptrace::set_general_registers(tid, &ours)?;
    set_number(tid, number as i32)?;
    Ok(own)
}

/// Make the thread skip the system call that it is about to make, or in which it was stopped. The skipped call is not
/// restarted.
pub(crate) fn leave_out(tid: i32, _: &mut [u64]) {
    // If the thread has gone, the caller notices that next.
    let _ = set_number(tid, NO_CALL);
}

pub(super) fn set_number(tid: i32, number: i32) -> Result<(), Error> {
    ptrace::set_register_set(tid, NT_ARM_SYSTEM_CALL, &number.to_le_bytes())
}

/// Return the number of the system call that a thread is in, from its register x8.
pub(crate) fn number(registers: &[u64]) -> u64 {
    registers[X8]
}

/// Return the result of a system call that has ended.
pub(crate) fn answer(registers: &[u64]) -> i64 {
    registers[X0] as i64
}
