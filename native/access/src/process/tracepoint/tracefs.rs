//! Reads a description of a tracepoint from the kernel's file system for tracing (tracefs).

use std::fs::{read_to_string, File};
use std::io::{Error, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The mount points of tracefs on newer and on older systems.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The tracepoint at the end of every system call. Its fields are the number of the system call (`id`) and the result.
const FORMAT: &str = "events/raw_syscalls/sys_exit/format";
const FORMAT_IN_MOUNT: &std::ffi::CStr = c"events/raw_syscalls/sys_exit/format";
const FSOPEN_CLOEXEC: libc::c_long = 1;
const FSMOUNT_CLOEXEC: libc::c_long = 1;
const FSCONFIG_CMD_CREATE: libc::c_long = 6;

/// The kernel's id of the tracepoint, and the offset of the system call number in its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    pub id: u64,
    pub number_at: usize,
}

/// Return the tracepoint at the end of every system call.
///
/// Errors: EACCES if this user may not read it; EPERM if tracefs is not mounted and this user may not mount it; ENODEV
/// if the kernel has no such tracepoint.
pub fn tracepoint() -> Result<Tracepoint, Error> {
    let mut refused = None;
    for folder in MOUNTED {
        match read_to_string(format!("{folder}/{FORMAT}")) {
            Ok(text) => return parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => refused = Some(error),
            Err(_) => {}
        }
    }
    match of_own_mount() {
        Ok(text) => parse(&text),
        Err(error) => Err(refused.unwrap_or(error)),
    }
}

/// Read the format through a mount that is not attached to any file tree: no other process sees the mount, and it
/// disappears with its descriptor.
fn of_own_mount() -> Result<String, Error> {
    // SAFETY: the texts end with a null byte and are only read; FSCONFIG_CMD_CREATE wants null pointers.
    let mount = unsafe {
        let context = owned(libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC))?;
        let nothing = std::ptr::null::<libc::c_char>();
        let made = libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, nothing, nothing, 0);
        if made < 0 {
            return Err(Error::last_os_error());
        }
        owned(libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0))?
    };
    // SAFETY: the text ends with a null byte and is only read.
    let opened = unsafe { libc::openat(mount.as_raw_fd(), FORMAT_IN_MOUNT.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let mut text = String::new();
    // SAFETY: as above.
    File::from(unsafe { owned(libc::c_long::from(opened)) }?).read_to_string(&mut text)?;
    Ok(text)
}

/// # Safety
/// A descriptor that is not negative must be new, and owned by nothing else.
unsafe fn owned(descriptor: libc::c_long) -> Result<OwnedFd, Error> {
    match descriptor {
        ..0 => Err(Error::last_os_error()),
        // SAFETY: the caller guarantees it.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }),
    }
}

/// Parse a description with lines such as `ID: 442` and `field:long id;\toffset:8;\tsize:8;\tsigned:1;`.
fn parse(text: &str) -> Result<Tracepoint, Error> {
    let id = text.lines().find_map(|line| line.strip_prefix("ID:")?.trim().parse().ok());
    let offset = text.lines().find_map(|line| {
        let (_, rest) = line.split_once("field:long id;")?;
        rest.split_once("offset:")?.1.split_once(';')?.0.parse().ok()
    });
    match (id, offset) {
        (Some(id), Some(number_at)) => Ok(Tracepoint { id, number_at }),
        _ => Err(Error::from_raw_os_error(libc::ENODEV)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_read() {
        let common = "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
        let fields =
            "\tfield:long id;\toffset:16;\tsize:8;\tsigned:1;\n\tfield:long ret;\toffset:24;\tsize:8;\tsigned:1;\n";
        let text =
            format!("name: sys_exit\nID: 442\nformat:\n{common}{fields}\nprint fmt: \"NR %ld = %ld\", REC->id\n");
        assert_eq!(parse(&text).unwrap(), Tracepoint { id: 442, number_at: 16 });
        assert!(parse("name: sys_exit\nID: 442\n").is_err());
    }
}
