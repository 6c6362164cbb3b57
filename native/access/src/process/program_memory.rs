//! The memory of one program, whatever the process that ran it runs by now.
//!
//! `/proc/PID/mem` stays with the address space that the process had when the file was opened. After exec(2) nothing can be
//! written through it any more. PTRACE_POKEDATA and a file that is opened later would reach the new program, which may be a
//! set-uid one that a hostile target has chosen.

use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const WORD: u64 = 8;

#[derive(Clone, Debug)]
pub struct ProgramMemory(Arc<File>);

impl ProgramMemory {
    /// Opens the memory of a thread that the caller holds: its number is its own.
    pub(crate) fn of_thread(tid: i32) -> Result<ProgramMemory, Error> {
        let file = File::options().read(true).write(true).open(format!("/proc/{tid}/mem"))?;
        Ok(ProgramMemory(Arc::new(file)))
    }

    /// The file that somebody holds open already, by a descriptor of our own.
    pub fn of(descriptor: RawFd) -> Result<ProgramMemory, Error> {
        if descriptor < 0 {
            return Err(Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: it is open while this function runs: the caller holds it.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
        Ok(ProgramMemory(Arc::new(file.into())))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Fills `bytes` with what is at `address`.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.0.read_exact_at(bytes, address)
    }

    /// Whether these bytes are there; false once no process has this address space.
    pub(crate) fn holds(&self, address: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0u8; bytes.len()];
        self.read(address, &mut found).is_ok() && found == bytes
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0.write_all_at(bytes, address)
    }

    /// Writes code, whole aligned words at a time.
    pub(crate) fn write_code(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let (start, end) = (address - address % WORD, (address + bytes.len() as u64).next_multiple_of(WORD));
        let mut whole = vec![0u8; (end - start) as usize];
        self.read(start, &mut whole)?;
        let offset = (address - start) as usize;
        whole[offset..offset + bytes.len()].copy_from_slice(bytes);
        let mut words = whole.chunks_exact(WORD as usize).zip((start..).step_by(WORD as usize));
        words.try_for_each(|(word, at)| self.write(at, word))
    }
}
