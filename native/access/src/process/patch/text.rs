//! Writes into the machine code of a program, word by word, and only while all threads of the program are stopped.
#![forbid(unsafe_code)]

use crate::process::patch::types::Patch;
use crate::process::program_memory::ProgramMemory;
use std::io::Error;

/// Insert all patches or none. EILSEQ if the code has changed since the patches were planned.
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

/// Return whether any of the patches is inserted.
pub(crate) fn is_any_in(memory: &ProgramMemory, patches: &[Patch]) -> bool {
    patches.iter().any(|patch| memory.holds(patch.address, &patch.replacement))
}

/// Restore the original code where it is still replaced. The stubs stay, because a thread may be in a stub.
pub(crate) fn take_out(memory: &ProgramMemory, patches: &[Patch]) {
    for patch in patches.iter().filter(|patch| memory.holds(patch.address, &patch.replacement)) {
        let _ = memory.write_code(patch.address, &patch.original);
    }
}

/// Return whether a thread at `counter` prevents a patch from being inserted now. The thread would execute the second
/// half of an instruction, or the kernel might restart a system call among the replaced instructions.
pub(crate) fn is_inside(patches: &[Patch], counter: u64) -> bool {
    patches.iter().any(|patch| {
        let end = patch.address + patch.original.len() as u64;
        patch.address < counter && (counter < end || (counter == end && patch.seen_at > patch.address))
    })
}
