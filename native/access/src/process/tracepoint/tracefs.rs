//! What the kernel says of a tracepoint in its file system for tracing (tracefs).

use std::fs::{read_to_string, File};
use std::io::{Error, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Where it is mounted, on newer and older systems.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Every system call comes by here at its end; fields: its number (`id`) and its result.
const FORMAT: &str = "events/raw_syscalls/sys_exit/format";
const FORMAT_IN_MOUNT: &std::ffi::CStr = c"events/raw_syscalls/sys_exit/format";
const FSOPEN_CLOEXEC: libc::c_long = 1;
const FSMOUNT_CLOEXEC: libc::c_long = 1;
const FSCONFIG_CMD_CREATE: libc::c_long = 6;

/// The kernel's number of the tracepoint, and where its record has the system call's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    pub id: u64,
    pub number_at: usize,
}

/// The tracepoint at the end of every system call. An error (its number tells why) where that cannot be read: EACCES where
/// this user may not, EPERM where nothing is mounted and this user may not mount it, ENODEV where the kernel has none.
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

/// By a mount that has no place in any tree of files: nobody else sees it, and it is gone with its descriptor.
fn of_own_mount() -> Result<String, Error> {
    // SAFETY: the texts end with a null byte, and are read only; null pointers are what FSCONFIG_CMD_CREATE wants.
    let mount = unsafe {
        let context = owned(libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC))?;
        let nothing = std::ptr::null::<libc::c_char>();
        let made = libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, nothing, nothing, 0);
        if made < 0 {
            return Err(Error::last_os_error());
        }
        owned(libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0))?
    };
    // SAFETY: the text ends with a null byte, and is read only.
    let opened = unsafe { libc::openat(mount.as_raw_fd(), FORMAT_IN_MOUNT.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    let mut text = String::new();
    // SAFETY: as above.
    File::from(unsafe { owned(libc::c_long::from(opened)) }?).read_to_string(&mut text)?;
    Ok(text)
}

/// # Safety
/// A descriptor that is not negative is new, and nobody else's.
unsafe fn owned(descriptor: libc::c_long) -> Result<OwnedFd, Error> {
    match descriptor {
        ..0 => Err(Error::last_os_error()),
        // SAFETY: the caller's word.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }),
    }
}

/// Of `ID: 442` and `field:long id;\toffset:8;\tsize:8;\tsigned:1;`.
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
