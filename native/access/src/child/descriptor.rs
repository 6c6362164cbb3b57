//! Functions for file descriptors: those that Python opened, and those that a child process must not keep open.

use std::ffi::CStr;
use std::fs::File;
use std::io::Error;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// How many times to try to open an entry whose folder is being changed at the moment.
const TRIES: u32 = 3;

/// Take over the descriptor `number`. It is closed when the result is dropped; nothing else may close it. None if the
/// number is negative.
pub fn owned(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: the descriptor is open, and the caller gives up its ownership.
    (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// Duplicate a descriptor. The new one is closed by exec(2).
pub fn duplicate(number: RawFd) -> Result<File, Error> {
    // SAFETY: numbers only.
    let found = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if found < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(found) })
}

/// Return the type of the file system of an open file (statfs(2), f_type).
pub fn filesystem(number: RawFd) -> Result<u32, Error> {
    // SAFETY: plain data, which the kernel fills in.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    match unsafe { libc::fstatfs(number, &mut found) } {
        0 => Ok(found.f_type as u32),
        _ => Err(Error::last_os_error()),
    }
}

/// Open a folder's entry with O_PATH, without following a symbolic link or entering another mount.
///
/// The entry is opened only if the kernel has it cached; otherwise the error is EAGAIN. A search of the folder would
/// wait for the folder's lock, which a thread of another user may hold. Before Linux 5.12, and where openat2(2) is
/// refused, the call may wait for that lock.
pub fn hold_known(folder: RawFd, name: &CStr) -> Result<OwnedFd, Error> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // The fields of `struct open_how`: flags, mode, resolve.
    let how = [flags as u64, 0, libc::RESOLVE_CACHED | libc::RESOLVE_NO_XDEV];
    let mut found = -1;
    for _ in 0..TRIES {
        // SAFETY: the name ends with a null byte; `how` has three words of this function.
        found = unsafe { libc::syscall(libc::SYS_openat2, folder, name.as_ptr(), how.as_ptr(), size_of_val(&how)) }
            as RawFd;
        if found >= 0 || Error::last_os_error().raw_os_error() != Some(libc::EAGAIN) {
            break;
        }
    }
    if found < 0 && matches!(Error::last_os_error().raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::EPERM)) {
        // SAFETY: the name ends with a null byte; the other arguments are numbers.
        found = unsafe { libc::openat(folder, name.as_ptr(), flags) };
    }
    owned(found).ok_or_else(Error::last_os_error)
}

/// Close all descriptors of this process except `kept`. A child process that ends by _exit calls this function, because
/// other processes may wait until the inherited descriptors are closed.
pub(crate) fn close_others(mut kept: Vec<RawFd>) {
    kept.sort_unstable();
    let mut next = 0;
    for end in kept.into_iter().chain([RawFd::MAX]) {
        if next < end {
            close(next, end - 1);
        }
        next = end.saturating_add(1);
    }
}

fn close(first: RawFd, last: RawFd) {
    // SAFETY: numbers only; the closed descriptors belong to this process alone.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // close_range(2) is missing before Linux 5.9.
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| (first..=last).contains(number)) {
        // SAFETY: as above.
        unsafe { libc::close(number) };
    }
}
