//! Write lines of JSON to standard output without an allocator.

use crate::growth::ArenaGrowth;
use core::fmt::Write;

/// A string of at most SIZE bytes. Bytes that do not fit are dropped.
pub(crate) struct Text<const SIZE: usize> {
    bytes: [u8; SIZE],
    used: usize,
}

impl<const SIZE: usize> Text<SIZE> {
    pub(crate) const fn new() -> Text<SIZE> {
        Text { bytes: [0; SIZE], used: 0 }
    }

    /// Read the beginning of a file. The string is empty if the file cannot be read.
    pub(crate) fn read(path: &core::ffi::CStr) -> Text<SIZE> {
        let mut text = Text::new();
        // SAFETY: reads into memory of this function.
        unsafe {
            let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if file >= 0 {
                text.used = libc::read(file, text.bytes.as_mut_ptr() as *mut _, SIZE).max(0) as usize;
                libc::close(file);
            }
        }
        text
    }

    /// Write the string to standard output.
    pub(crate) fn put(&self) {
        let mut bytes = &self.bytes[..self.used];
        while !bytes.is_empty() {
            // SAFETY: writes from memory of this string.
            let done = unsafe { libc::write(1, bytes.as_ptr() as *const _, bytes.len()) };
            if done <= 0 {
                return;
            }
            bytes = &bytes[done as usize..];
        }
    }

    /// Return the number after a name, in bytes; None if no line begins with the name. The files that are read state
    /// the number in KiB.
    pub(crate) fn value(&self, name: &[u8]) -> Option<u64> {
        let line = self.bytes[..self.used].split(|byte| *byte == b'\n').find(|line| line.starts_with(name))?;
        let digits = line[name.len()..].iter().filter(|byte| byte.is_ascii_digit());
        Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')) << 10)
    }
}

impl<const SIZE: usize> Write for Text<SIZE> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = SIZE - self.used;
        let taken = text.len().min(room);
        self.bytes[self.used..self.used + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.used += taken;
        Ok(())
    }
}

/// Write a line of JSON about a call that made an arena larger.
#[cold]
pub(crate) fn write_growth(call: u64, size: u64, alignment: u64, grown: &ArenaGrowth) {
    let mut text = Text::<256>::new();
    let ArenaGrowth { arena, bytes } = grown;
    let _ = writeln!(
        text,
        "{{\"grew\":{call},\"size\":{size},\"alignment\":{alignment},\"arena\":{arena},\"bytes\":{bytes}}}"
    );
    text.put();
}

/// Write the reason why there is no result, as a line of JSON. `number`: the errno; for the reason "threads", the
/// largest number of threads.
pub(crate) fn refuse(why: &str, number: i32) {
    let mut text = Text::<256>::new();
    let _ = writeln!(text, "{{\"error\":\"{why}\",\"errno\":{number}}}");
    text.put();
}
