//! Makes a stopped thread execute a system call, and recognizes system calls by their numbers.
#![forbid(unsafe_code)]

use crate::arch::registers::{CS, NO_CALL, ORIG_RAX, R10, R8, R9, RAX, RDI, RDX, RIP, RSI};
use std::io::Error;

/// Whether gdbheap can make a stopped thread execute a system call on this processor.
pub(crate) const IS_SUPPORTED: bool = true;
/// The instruction `syscall`.
pub(crate) const INSTRUCTION: &[u8] = &[0x0f, 0x05];
/// The value of the register `cs` in 64-bit code.
const LONG_MODE: u64 = 0x33;
const ARGUMENTS: [usize; 6] = [RDI, RSI, RDX, R10, R8, R9];
/// The architecture that a seccomp(2) filter sees in the system calls of 64-bit programs (`AUDIT_ARCH_X86_64`).
pub(crate) const AUDIT_ARCHITECTURE: u32 = 0xc000_003e;
/// The first system call number that belongs to another architecture: the numbers of x32 have this bit.
pub(crate) const NUMBERS_OF_OTHERS: u32 = X32;
const X32: u32 = 0x4000_0000;
/// The numbers of execve and execveat for 64-bit, 32-bit and x32 programs.
const EXECS: [i64; 6] = [59, 322, 11, 358, 520, 545];

/// Return whether a number may be that of execve or execveat, in any kind of program.
pub(crate) fn is_exec(number: i64) -> bool {
    EXECS.contains(&(number & !i64::from(X32)))
}

/// Return whether a thread with these registers can make a system call for gdbheap: only a thread that runs 64-bit code
/// can.
pub(crate) fn can_be_made(registers: &[u64]) -> bool {
    registers[CS] == LONG_MODE
}

/// Return whether a stopped thread is in a system call.
pub(crate) fn is_inside(registers: &[u64]) -> bool {
    registers[ORIG_RAX] as i64 >= 0
}

/// Change the registers so that the thread next makes the system call `number`. `instruction`: the address of a system
/// call instruction.
pub(crate) fn prepare(registers: &mut [u64], instruction: u64, number: u64, arguments: [u64; 6]) {
    (registers[RAX], registers[ORIG_RAX], registers[RIP]) = (number, NO_CALL, instruction);
    for (index, argument) in ARGUMENTS.into_iter().zip(arguments) {
        registers[index] = argument;
    }
}

/// Return false: on this processor, the registers show whether a stop has interrupted a call, and `prepare` makes the
/// thread skip that call.
pub(crate) fn is_next(_: i32, _: &[u64]) -> bool {
    false
}

/// Return ENOSYS: on this processor, no thread has to enter its own call first.
pub(crate) fn replace(_: i32, _: &[u64], _: u64, _: [u64; 6]) -> Result<Vec<u64>, Error> {
    Err(Error::from_raw_os_error(libc::ENOSYS))
}

/// Change the registers so that the thread skips the system call that it is about to make, or in which it was stopped.
/// The skipped call is not restarted.
pub(crate) fn leave_out(_: i32, registers: &mut [u64]) {
    registers[ORIG_RAX] = NO_CALL;
}

/// Return the number of the system call that a thread is in, from the kernel's word `orig_rax`.
pub(crate) fn number(registers: &[u64]) -> u64 {
    registers[ORIG_RAX]
}

/// Return the result of a system call that has ended.
pub(crate) fn answer(registers: &[u64]) -> i64 {
    registers[RAX] as i64
}
