//! The memory of one program, even if the process runs another program later.
//!
//! `/proc/PID/mem` belongs to the address space that the process had when the file was opened. After exec(2), writes
//! through the file fail. PTRACE_POKEDATA, or a file that is opened later, would reach the new program, which may be a
//! set-uid program chosen by a hostile target.

use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const WORD: u64 = 8;

#[derive(Clone, Debug)]
pub struct ProgramMemory(Arc<File>);

impl ProgramMemory {
    /// Open the memory of a stopped tracee. The caller traces it, so that the id `tid` cannot be reused.
    pub(crate) fn of_thread(tid: i32) -> Result<ProgramMemory, Error> {
        let file = File::options().read(true).write(true).open(format!("/proc/{tid}/mem"))?;
        Ok(ProgramMemory(Arc::new(file)))
    }

    /// Create a value from a file that the caller has opened. `descriptor`: the descriptor of the file, which is
    /// duplicated.
    pub fn of(descriptor: RawFd) -> Result<ProgramMemory, Error> {
        if descriptor < 0 {
            return Err(Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: the caller keeps it open while this function runs.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
        Ok(ProgramMemory(Arc::new(file.into())))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Fill `bytes` with the memory at `address`.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        self.0.read_exact_at(bytes, address)
    }

    pub(crate) fn word(&self, address: u64) -> Result<u64, Error> {
        let mut bytes = [0u8; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Return whether these bytes are at `address`; false once no process has this address space.
    pub(crate) fn holds(&self, address: u64, bytes: &[u8]) -> bool {
        let mut found = vec![0u8; bytes.len()];
        self.read(address, &mut found).is_ok() && found == bytes
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        self.0.write_all_at(bytes, address)
    }

    /// Write `bytes` into the code at `address`, in whole aligned words.
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
