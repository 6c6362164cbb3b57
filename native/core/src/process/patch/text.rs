//! Writing a program's code, word by word and only while none of its threads run.

use crate::memory::space::read_process;
use crate::process::patch::stub::Patch;
use crate::process::ptrace;
use std::io::Error;

const WORD: u64 = 8;

/// Puts `bytes` at `address` of the process of the stopped thread `tid`.
pub(crate) fn write(pid: i32, tid: i32, address: u64, bytes: &[u8]) -> Result<(), Error> {
    let (start, end) = (address - address % WORD, (address + bytes.len() as u64).next_multiple_of(WORD));
    let mut whole = vec![0u8; (end - start) as usize];
    if read_process(pid, start, &mut whole) != whole.len() {
        return Err(Error::from_raw_os_error(libc::EIO));
    }
    let offset = (address - start) as usize;
    whole[offset..offset + bytes.len()].copy_from_slice(bytes);
    for (index, word) in whole.chunks_exact(WORD as usize).enumerate() {
        let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
        ptrace::poke(tid, start + WORD * index as u64, word)?;
    }
    Ok(())
}

/// Whether these bytes are there.
pub(crate) fn is_there(pid: i32, address: u64, bytes: &[u8]) -> bool {
    let mut found = vec![0u8; bytes.len()];
    read_process(pid, address, &mut found) == bytes.len() && found == bytes
}

/// Puts patches in, or none of them: an error (EILSEQ) where the code is not what it was when they were planned.
pub(crate) fn put_in(pid: i32, tid: i32, patches: &[Patch]) -> Result<(), Error> {
    if !patches.iter().all(|patch| is_there(pid, patch.address, &patch.original)) {
        return Err(Error::from_raw_os_error(libc::EILSEQ));
    }
    let write_all = || {
        patches.iter().try_for_each(|patch| write(pid, tid, patch.stub_at, &patch.stub))?;
        patches.iter().try_for_each(|patch| write(pid, tid, patch.address, &patch.replacement))
    };
    write_all().inspect_err(|_| take_out(pid, tid, patches))
}

/// Puts the original code back, where it is still replaced. The stubs stay: a thread may stand in one.
pub(crate) fn take_out(pid: i32, tid: i32, patches: &[Patch]) {
    for patch in patches.iter().filter(|patch| is_there(pid, patch.address, &patch.replacement)) {
        let _ = write(pid, tid, patch.address, &patch.original);
    }
}

/// Whether a thread that is about to run the instruction at `counter` would find half of another one there, when a patch
/// is put in; or might be told to make the system call again that is among those which are replaced.
pub(crate) fn is_inside(patches: &[Patch], counter: u64) -> bool {
    patches.iter().any(|patch| {
        let end = patch.address + patch.original.len() as u64;
        patch.address < counter && (counter < end || (counter == end && patch.seen_at > patch.address))
    })
}
