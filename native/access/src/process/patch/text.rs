//! Writing a program's code, word by word and only while none of its threads run.
#![forbid(unsafe_code)]

use crate::process::patch::planned::Patch;
use crate::process::program_memory::ProgramMemory;
use std::io::Error;

/// Puts patches in, or none of them: an error (EILSEQ) where the code is not what it was when they were planned.
pub(crate) fn put_in(memory: &ProgramMemory, patches: &[Patch]) -> Result<(), Error> {
    if !patches.iter().all(|patch| memory.holds(patch.address, &patch.original)) {
        return Err(Error::from_raw_os_error(libc::EILSEQ));
    }
    let write_all = || {
        patches.iter().try_for_each(|patch| memory.write_code(patch.stub_at, &patch.stub))?;
        patches.iter().try_for_each(|patch| memory.write_code(patch.address, &patch.replacement))
    };
    write_all().inspect_err(|_| take_out(memory, patches))
}

/// Whether one of them is in.
pub(crate) fn is_any_in(memory: &ProgramMemory, patches: &[Patch]) -> bool {
    patches.iter().any(|patch| memory.holds(patch.address, &patch.replacement))
}

/// Puts the original code back, where it is still replaced. The stubs stay: a thread may stand in one.
pub(crate) fn take_out(memory: &ProgramMemory, patches: &[Patch]) {
    for patch in patches.iter().filter(|patch| memory.holds(patch.address, &patch.replacement)) {
        let _ = memory.write_code(patch.address, &patch.original);
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
