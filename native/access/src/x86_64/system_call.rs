//! Making a system call in a thread that stands still, and telling system calls by their numbers.
#![forbid(unsafe_code)]

use crate::arch::registers::{CS, NO_CALL, ORIG_RAX, R10, R8, R9, RAX, RDI, RDX, RIP, RSI};

/// Whether a stopped thread can be made to make one.
pub(crate) const IS_SUPPORTED: bool = true;
/// `syscall`.
pub(crate) const INSTRUCTION: &[u8] = &[0x0f, 0x05];
/// Code of 64 bit, in `cs`.
const LONG_MODE: u64 = 0x33;
const ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, R10, R8, R9];
/// What a filter of seccomp(2) is told of our programs (`AUDIT_ARCH_X86_64`), and from where on numbers are those of others:
/// x32's have this bit.
pub(crate) const AUDIT_ARCHITECTURE: u32 = 0xc000_003e;
pub(crate) const NUMBERS_OF_OTHERS: u32 = X32;
const X32: u32 = 0x4000_0000;
/// execve and execveat by their numbers for programs of 64 bit, of 32 bit and of x32.
const EXECS: [i64; 6] = [59, 322, 11, 358, 520, 545];

/// Whether a number may be execve's or execveat's, of whatever kind of program.
pub(crate) fn is_exec(number: i64) -> bool {
    EXECS.contains(&(number & !i64::from(X32)))
}

/// Whether a thread with these registers can make one for us.
pub(crate) fn can_be_made(registers: &[u64]) -> bool {
    registers[CS] == LONG_MODE
}

/// Whether a thread that stands is in one.
pub(crate) fn is_inside(registers: &[u64]) -> bool {
    registers[ORIG_RAX] as i64 >= 0
}

/// Has the thread make one next, by the instruction at an address.
pub(crate) fn prepare(registers: &mut [u64], instruction: u64, number: u64, arguments: [u64; 6]) {
    (registers[RAX], registers[ORIG_RAX], registers[RIP]) = (number, NO_CALL, instruction);
    for (index, argument) in ARGUMENTS.into_iter().zip(arguments) {
        registers[index] = argument;
    }
}

/// Leaves out the one that the thread is about to make, or in which it was stopped: none starts again.
pub(crate) fn leave_out(registers: &mut [u64]) {
    registers[ORIG_RAX] = NO_CALL;
}

/// The number of the one that a thread is in.
pub(crate) fn number(registers: &[u64]) -> u64 {
    registers[ORIG_RAX]
}

/// What one that has ended returned.
pub(crate) fn answer(registers: &[u64]) -> i64 {
    registers[RAX] as i64
}
