//! Telling system calls by their numbers. None is made in a thread yet: its number is in a set of registers of its own.
#![forbid(unsafe_code)]

use crate::arch::registers::{PROGRAM_COUNTER, X0, X8};

/// Whether a stopped thread can be made to make one.
pub(crate) const IS_SUPPORTED: bool = false;
/// `svc #0`.
pub(crate) const INSTRUCTION: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
/// What a filter of seccomp(2) is told of our programs (`AUDIT_ARCH_AARCH64`), and from where on numbers are those of others:
/// there are none.
pub(crate) const AUDIT_ARCHITECTURE: u32 = 0xc000_00b7;
pub(crate) const NUMBERS_OF_OTHERS: u32 = u32::MAX;
/// execve and execveat by their numbers for programs of 64 bit and of 32 bit.
const EXECS: [i64; 4] = [221, 281, 11, 387];

/// Whether a number may be execve's or execveat's, of whatever kind of program.
pub(crate) fn is_exec(number: i64) -> bool {
    EXECS.contains(&number)
}

/// No thread can make one for us.
pub(crate) fn can_be_made(_: &[u64]) -> bool {
    IS_SUPPORTED
}

/// Whether a thread that stands is in one; it is not known of any.
pub(crate) fn is_inside(_: &[u64]) -> bool {
    false
}

/// Has the thread make one next, by the instruction at an address.
pub(crate) fn prepare(registers: &mut [u64], instruction: u64, number: u64, arguments: [u64; 6]) {
    registers[..arguments.len()].copy_from_slice(&arguments);
    (registers[X8], registers[PROGRAM_COUNTER]) = (number, instruction);
}

/// Nothing is left out: nothing was begun.
pub(crate) fn leave_out(_: &mut [u64]) {}

/// The number of the one that a thread is in.
pub(crate) fn number(registers: &[u64]) -> u64 {
    registers[X8]
}

/// What one that has ended returned.
pub(crate) fn answer(registers: &[u64]) -> i64 {
    registers[X0] as i64
}
