//! Recognizes system calls by their numbers. No thread can make a system call for gdbheap yet, because on this
//! processor the number is in a separate register set.
#![forbid(unsafe_code)]

use crate::arch::registers::{PROGRAM_COUNTER, X0, X8};

/// Whether a stopped thread can be made to make a system call.
pub(crate) const IS_SUPPORTED: bool = false;
/// The instruction `svc #0`.
pub(crate) const INSTRUCTION: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
/// The architecture that a seccomp(2) filter sees in system calls of gdbheap's programs (`AUDIT_ARCH_AARCH64`), and the
/// first system call number that belongs to another architecture. On aarch64 no number does.
pub(crate) const AUDIT_ARCHITECTURE: u32 = 0xc000_00b7;
pub(crate) const NUMBERS_OF_OTHERS: u32 = u32::MAX;
/// The numbers of execve and execveat for 64-bit and 32-bit programs.
const EXECS: [i64; 4] = [221, 281, 11, 387];

/// Return whether a number may be that of execve or execveat, in any kind of program.
pub(crate) fn is_exec(number: i64) -> bool {
    EXECS.contains(&number)
}

/// Return false: no thread can make a system call for gdbheap.
pub(crate) fn can_be_made(_: &[u64]) -> bool {
    IS_SUPPORTED
}

/// Return whether a stopped thread is in a system call; always false, because that is unknown.
pub(crate) fn is_inside(_: &[u64]) -> bool {
    false
}

/// Change the registers so that the thread next makes the system call `number`. `instruction`: the address of a system
/// call instruction.
pub(crate) fn prepare(registers: &mut [u64], instruction: u64, number: u64, arguments: [u64; 6]) {
    registers[..arguments.len()].copy_from_slice(&arguments);
    (registers[X8], registers[PROGRAM_COUNTER]) = (number, instruction);
}

/// Do nothing: no system call was begun.
pub(crate) fn leave_out(_: &mut [u64]) {}

/// Return the number of the system call that a thread is in.
pub(crate) fn number(registers: &[u64]) -> u64 {
    registers[X8]
}

/// Return the result of a system call that has ended.
pub(crate) fn answer(registers: &[u64]) -> i64 {
    registers[X0] as i64
}
