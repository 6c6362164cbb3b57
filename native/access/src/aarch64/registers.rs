//! The registers of a thread, as an array of words in the order of `struct user_pt_regs` of aarch64.
#![forbid(unsafe_code)]

use crate::bytes::word_at;
use crate::process::ptrace;
use std::io::Error;

/// The number of words. The first GENERAL words are the general registers x0 to x30; sp, pc and pstate follow.
pub(crate) const COUNT: usize = 34;
pub(crate) const GENERAL: usize = 31;
pub(crate) const STACK_POINTER: usize = 31;
pub(crate) const PROGRAM_COUNTER: usize = 32;
/// The index of the register with the result of a system call.
pub(super) const X0: usize = 0;
/// The index of the register with the number of a system call.
pub(super) const X8: usize = 8;
/// The registers that a function preserves for its caller: x19 to x28.
pub const PRESERVED: &[usize] = &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28];
/// The registers that gdbheap requests from perf_event_open(2), as bits of its numbering (asm/perf_regs.h): all
/// registers but pstate, in the same order as in this file.
pub(crate) const PERF_MASK: u64 = (1 << PERF_COUNT) - 1;
const PERF_COUNT: usize = 33;
/// The number of the register set that contains the thread pointer (`elf.h`).
const NT_ARM_TLS: usize = 0x401;

/// Return the registers of a stopped thread. ENODATA if the thread runs code that is not 64-bit.
pub(crate) fn read(tid: i32) -> Result<Vec<u64>, Error> {
    ptrace::general_registers(tid, COUNT)
}

/// Return the registers of a thread in system call `number`, from the words that perf_event_open(2) returned for the
/// thread; None if some are missing.
pub(crate) fn of_perf(given: &[u64], number: u64) -> Option<Vec<u64>> {
    let mut found = given.to_vec();
    found.resize(COUNT, 0);
    found[X8] = number;
    (given.len() == PERF_COUNT).then_some(found)
}

/// Return the thread pointer (`tpidr_el0`), by which thread-local variables are found; 0 if it cannot be read.
pub(crate) fn thread_pointer(tid: i32, _: &[u64]) -> u64 {
    let set = ptrace::register_set(tid, NT_ARM_TLS, 8).unwrap_or_default();
    word_at(&set, 0).unwrap_or_default()
}
