//! `struct user_regs_struct` of x86-64: a thread's registers as words, by their place in it.

use crate::bytes::words;
use crate::process::ptrace;
use std::io::Error;

pub(crate) const R11: usize = 6;
pub(crate) const R10: usize = 7;
pub(crate) const R9: usize = 8;
pub(crate) const R8: usize = 9;
pub(crate) const RAX: usize = 10;
pub(crate) const RCX: usize = 11;
pub(crate) const RDX: usize = 12;
pub(crate) const RSI: usize = 13;
pub(crate) const RDI: usize = 14;
pub(crate) const ORIG_RAX: usize = 15;
pub(crate) const RIP: usize = 16;
pub(crate) const CS: usize = 17;
pub(crate) const EFLAGS: usize = 18;
pub(crate) const RSP: usize = 19;
pub(crate) const SS: usize = 20;
pub(crate) const FS_BASE: usize = 21;
const COUNT: usize = 27;
/// In `orig_rax`: the thread is in no system call, or leaves out the one that it is about to make.
pub(crate) const NO_CALL: u64 = u64::MAX;

/// Those of a thread that stands still. An error (ENODATA) where it runs other code than 64-bit.
pub(crate) fn read(tid: i32) -> Result<Vec<u64>, Error> {
    let found = words(&ptrace::register_set(tid, ptrace::NT_PRSTATUS, 8 * COUNT)?);
    match found.len() {
        COUNT => Ok(found),
        _ => Err(Error::from_raw_os_error(libc::ENODATA)),
    }
}

pub(crate) fn write(tid: i32, registers: &[u64]) -> Result<(), Error> {
    let bytes: Vec<u8> = registers.iter().flat_map(|word| word.to_le_bytes()).collect();
    ptrace::set_register_set(tid, ptrace::NT_PRSTATUS, &bytes)
}
