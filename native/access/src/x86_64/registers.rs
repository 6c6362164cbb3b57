//! The registers of a thread, as an array of words in the order of `struct user_regs_struct` of x86-64.
#![forbid(unsafe_code)]

use crate::process::ptrace;
use std::io::Error;

pub(super) const R11: usize = 6;
pub(super) const R10: usize = 7;
pub(super) const R9: usize = 8;
pub(super) const R8: usize = 9;
pub(super) const RAX: usize = 10;
pub(super) const RCX: usize = 11;
pub(super) const RDX: usize = 12;
pub(super) const RSI: usize = 13;
pub(super) const RDI: usize = 14;
pub(super) const ORIG_RAX: usize = 15;
pub(super) const RIP: usize = 16;
pub(super) const CS: usize = 17;
pub(super) const EFLAGS: usize = 18;
pub(super) const RSP: usize = 19;
pub(super) const SS: usize = 20;
pub(super) const FS_BASE: usize = 21;
/// The number of words. The first GENERAL words are the general registers.
pub(crate) const COUNT: usize = 27;
pub(crate) const GENERAL: usize = 15;
pub(crate) const PROGRAM_COUNTER: usize = RIP;
pub(crate) const STACK_POINTER: usize = RSP;
/// The registers that a function preserves for its caller: rbx, rbp, r12 to r15.
pub const PRESERVED: &[usize] = &[5, 4, 3, 2, 1, 0];
/// The registers that gdbheap requests from perf_event_open(2), as bits of its numbering (asm/perf_regs.h), and their
/// indices in this file: ax, bx, cx, dx, si, di, bp, sp, ip, flags, cs, ss, r8 to r15. perf_event_open(2) does not
/// provide the bases of segments.
pub(crate) const PERF_MASK: u64 = 0x00ff_0fff;
const PERF_PLACES: [usize; 20] =
    [RAX, 5, RCX, RDX, RSI, RDI, 4, RSP, RIP, EFLAGS, CS, SS, R8, R9, R10, R11, 3, 2, 1, 0];
/// The value of `orig_rax` if the thread is in no system call, or skips the system call that it is about to make.
pub(super) const NO_CALL: u64 = u64::MAX;

/// Return the registers of a stopped thread. ENODATA if the thread runs code that is not 64-bit.
pub(crate) fn read(tid: i32) -> Result<Vec<u64>, Error> {
    ptrace::general_registers(tid, COUNT)
}

/// Return the registers of a thread in system call `number`, from the words that perf_event_open(2) returned for the
/// thread; None if some are missing.
pub(crate) fn of_perf(given: &[u64], number: u64) -> Option<Vec<u64>> {
    let mut found = vec![0; COUNT];
    found[ORIG_RAX] = number;
    for (place, value) in PERF_PLACES.into_iter().zip(given) {
        found[place] = *value;
    }
    (given.len() == PERF_PLACES.len()).then_some(found)
}

/// Return the thread pointer (`fs_base`), by which thread-local variables are found.
pub(crate) fn thread_pointer(_: i32, registers: &[u64]) -> u64 {
    registers[FS_BASE]
}
