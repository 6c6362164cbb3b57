//! A handle of a process. It never refers to another process, even if the process id is reused later.

use std::io::Error;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// An open descriptor of the folder `/proc/PID`. The files in the folder always belong to this process. They are gone
/// once the process has ended and its parent has waited for it; the kernel reuses the process id only after that.
///
/// ptrace(2), process_vm_readv(2) and perf_event_open(2) take process ids. After using the id, call `is_there`: while
/// the folder exists, the id has belonged to this process all the time.
#[derive(Clone, Debug)]
pub struct ProcessFolder {
    pid: i32,
    folder: Arc<OwnedFd>,
}

impl ProcessFolder {
    /// Open the folder of the process that has the id `pid` now.
    pub fn open(pid: i32) -> Result<ProcessFolder, Error> {
        let path = std::ffi::CString::new(format!("/proc/{pid}"))?;
        // SAFETY: the path ends with a null byte; the other argument is a number.
        let found = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC) };
        if found < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
        Ok(ProcessFolder { pid, folder: Arc::new(unsafe { OwnedFd::from_raw_fd(found) }) })
    }

    /// Create a handle from a folder that the caller has opened. `folder`: the descriptor of the folder, which is
    /// duplicated.
    pub fn of(pid: i32, folder: RawFd) -> Result<ProcessFolder, Error> {
        if folder < 0 {
            return Err(Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: the caller keeps the descriptor open while this function runs.
        let folder = unsafe { BorrowedFd::borrow_raw(folder) }.try_clone_to_owned()?;
        Ok(ProcessFolder { pid, folder: Arc::new(folder) })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.folder.as_raw_fd()
    }

    /// Return the path of a file in the folder. The path works in every process of gdbheap that has the folder's
    /// descriptor.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("/proc/self/fd/{}/{name}", self.descriptor())
    }

    /// Return whether the id still belongs to this process: the process runs, or its parent has not waited for its end
    /// yet.
    pub(crate) fn is_there(&self) -> bool {
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: the kernel fills in a record of this function; the name ends with a null byte.
        unsafe {
            let mut found = std::mem::zeroed();
            libc::fstatat(self.descriptor(), c"stat".as_ptr(), &mut found, flags) == 0
        }
    }

    /// Return the ids of the process's threads; an error if the process is gone.
    pub(crate) fn tasks(&self) -> Result<Vec<i32>, Error> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.path("task"))? {
            found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
        }
        Ok(found)
    }
}
