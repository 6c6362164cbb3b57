//! Write the identity of a process into the header of its file, as NAME=VALUE strings.

use crate::real;
use core::ffi::c_void;
use core::ptr::null_mut;
use gdbheap_calls::header;

/// The environment variables that influence an allocator.
const SHAPING: [&core::ffi::CStr; 9] = [
    c"GLIBC_TUNABLES",
    c"MALLOC_ARENA_MAX",
    c"MALLOC_ARENA_TEST",
    c"MALLOC_MMAP_MAX_",
    c"MALLOC_MMAP_THRESHOLD_",
    c"MALLOC_TOP_PAD_",
    c"MALLOC_TRIM_THRESHOLD_",
    c"MALLOC_CONF",
    c"LD_PRELOAD",
];

/// Write the identity of this process as consecutive NAME=VALUE strings: its program, its allocator, the environment
/// variables that influence an allocator, and its command line.
pub(crate) fn describe(header: *mut u8) {
    let mut text = Text { at: header::TEXT_AT, header };
    text.push(b"exe=");
    let mut path = [0u8; 1024];
    // SAFETY: reads into memory of this function.
    let got = unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr() as *mut _, path.len()) };
    text.push(&path[..got.max(0) as usize]);
    text.push(b"\0malloc=");
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: the call fills in a record of this function; names live as long as the object.
    unsafe {
        let function = real::MALLOC.get().unwrap_or(null_mut());
        if libc::dladdr(function as *const c_void, &mut found) != 0 && !found.dli_fname.is_null() {
            text.push(core::ffi::CStr::from_ptr(found.dli_fname).to_bytes());
        }
    }
    text.push(b"\0");
    for name in SHAPING {
        // SAFETY: names end with a zero byte; values are copied at once.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            if !value.is_null() {
                text.push(name.to_bytes());
                text.push(b"=");
                text.push(core::ffi::CStr::from_ptr(value).to_bytes());
                text.push(b"\0");
            }
        }
    }
    text.push(b"words=");
    text.push_file(c"/proc/self/cmdline");
}

/// A string in the header. Bytes that do not fit are dropped.
struct Text {
    at: usize,
    header: *mut u8,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) {
        let room = (header::SIZE - 2).saturating_sub(self.at).min(bytes.len());
        // SAFETY: within the header.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.header.add(self.at), room) };
        self.at += room;
    }

    fn push_file(&mut self, path: &core::ffi::CStr) {
        let room = (header::SIZE - 2).saturating_sub(self.at);
        // SAFETY: reads into the header; the descriptor is our own.
        unsafe {
            let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if file >= 0 {
                self.at += libc::read(file, self.header.add(self.at) as *mut _, room).max(0) as usize;
                libc::close(file);
            }
        }
    }
}
