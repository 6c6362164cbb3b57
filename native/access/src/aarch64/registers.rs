//! `struct user_pt_regs` of aarch64: a thread's registers as words, by their place in it.
#![forbid(unsafe_code)]

use crate::bytes::word_at;
use crate::process::ptrace;
use std::io::Error;

/// How many words they are, of which the first are general: x0 to x30, sp, pc, pstate.
pub(crate) const COUNT: usize = 34;
pub(crate) const GENERAL: usize = 31;
pub(crate) const STACK_POINTER: usize = 31;
pub(crate) const PROGRAM_COUNTER: usize = 32;
/// What returns and takes the number of a system call.
pub(super) const X0: usize = 0;
pub(super) const X8: usize = 8;
/// Those in which a caller's value survives a function: x19 to x28.
pub const PRESERVED: &[usize] = &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28];
/// The registers that perf_event_open(2) is asked for, as its numbers (asm/perf_regs.h): all but pstate, in the same order.
pub(crate) const PERF_MASK: u64 = (1 << PERF_COUNT) - 1;
const PERF_COUNT: usize = 33;
/// The thread pointer's own set of registers (`elf.h`).
const NT_ARM_TLS: usize = 0x401;

/// Those of a thread that stands still. An error (ENODATA) where it runs other code than 64-bit.
pub(crate) fn read(tid: i32) -> Result<Vec<u64>, Error> {
    ptrace::general_registers(tid, COUNT)
}

/// Those that perf_event_open(2) gives, of a thread in system call `number`; None where they are not all there.
pub(crate) fn of_perf(given: &[u64], number: u64) -> Option<Vec<u64>> {
    let mut found = given.to_vec();
    found.resize(COUNT, 0);
    found[X8] = number;
    (given.len() == PERF_COUNT).then_some(found)
}

/// What the thread's own variables are found by (`tpidr_el0`); 0 where that cannot be read.
pub(crate) fn thread_pointer(tid: i32, _: &[u64]) -> u64 {
    let set = ptrace::register_set(tid, NT_ARM_TLS, 8).unwrap_or_default();
    word_at(&set, 0).unwrap_or_default()
}
