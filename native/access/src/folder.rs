//! A process that stays the same one, even if its id is reused later.

use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// `/proc/PID`, held open. Its files belong to this process only, and they are gone once the process has ended and was
/// waited for. The kernel reuses the id only after that.
///
/// ptrace(2), process_vm_readv(2) and perf_event_open(2) take ids. After using an id, call `is_there`: while the folder
/// exists, the id has belonged to this process all the time.
#[derive(Clone, Debug)]
pub struct ProcessFolder {
    pid: i32,
    folder: Arc<OwnedFd>,
}

impl ProcessFolder {
    /// Open the folder of the process that has the id now.
    pub fn open(pid: i32) -> Result<ProcessFolder, Error> {
        let path = std::ffi::CString::new(format!("/proc/{pid}"))?;
        // SAFETY: a string that ends, and numbers.
        let found = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) };
        if found < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, and it is ours.
        Ok(ProcessFolder { pid, folder: Arc::new(unsafe { OwnedFd::from_raw_fd(found) }) })
    }

    /// Use a folder that the caller has open, by its descriptor, which is duplicated.
    pub fn of(pid: i32, folder: RawFd) -> Result<ProcessFolder, Error> {
        if folder < 0 {
            return Err(Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: it is open while this function runs: the caller holds it.
        let folder = unsafe { BorrowedFd::borrow_raw(folder) }.try_clone_to_owned()?;
        Ok(ProcessFolder { pid, folder: Arc::new(folder) })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.folder.as_raw_fd()
    }

    /// Return a path of a file in the folder. In every process of gdbheap that has the descriptor, the path leads to
    /// this process's file.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("/proc/self/fd/{}/{name}", self.descriptor())
    }

    /// Return whether the id still belongs to this process: it runs, or nobody has waited for its end yet.
    pub(crate) fn is_there(&self) -> bool {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: the kernel fills in what is this function's; the name ends.
        unsafe {
            let mut found = std::mem::zeroed();
            libc::fstatat(self.descriptor(), c"stat".as_ptr(), &mut found, flags) == 0
        }
    }

    /// Return the ids of its threads; an error if the process is gone.
    pub(crate) fn tasks(&self) -> Result<Vec<i32>, Error> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.path("task"))? {
            found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
        }
        Ok(found)
    }
}
