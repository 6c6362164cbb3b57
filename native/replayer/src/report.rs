//! Write the figures of a replay as a line of JSON.

use crate::output::Text;
use crate::run::Run;
use core::fmt::Write;

/// Memory in bytes, as the kernel counts it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    /// The largest number of resident bytes at any time, in pages of all kinds (VmHWM).
    peak: u64,
    resident: u64,
    /// The bytes in private pages that belong to no file. All pages of an allocator are of this kind.
    private: u64,
    file: u64,
    shared: u64,
}

impl Memory {
    pub(crate) fn now() -> Memory {
        let status = Text::<4096>::read(c"/proc/self/status");
        let rollup = Text::<4096>::read(c"/proc/self/smaps_rollup");
        let value = |name: &[u8]| status.value(name).unwrap_or(0);
        Memory {
            peak: value(b"VmHWM:"),
            resident: value(b"VmRSS:"),
            // The figure `Anonymous` (since Linux 4.14) is exact. `RssAnon` is a sum of counters that lag behind.
            private: rollup.value(b"Anonymous:").unwrap_or_else(|| value(b"RssAnon:")),
            file: value(b"RssFile:"),
            shared: value(b"RssShmem:"),
        }
    }

    /// Make the kernel measure the peak of resident memory anew from now on (clear_refs).
    pub(crate) fn forget_peak() {
        // SAFETY: opens a file of this process.
        unsafe {
            let file = libc::open(c"/proc/self/clear_refs".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if file >= 0 {
                libc::write(file, c"5".as_ptr() as *const _, 1);
                libc::close(file);
            }
        }
    }

    /// Return the allocator's memory in bytes, now and at its peak. `before`: the memory before the first call, which
    /// does not count.
    fn since(&self, before: &Memory) -> (u64, u64) {
        let now = self.private.saturating_sub(before.private);
        let others = self.file.saturating_sub(before.file) + self.shared.saturating_sub(before.shared);
        let most = self.peak.saturating_sub(before.resident + others);
        (now, most.max(now))
    }
}

/// Write a line with the figures of this moment.
///
/// - `before`: the memory before the first call.
/// - `nanoseconds`: the CPU time of the calls.
/// - `how`: "stop" after a requested call, "end" after the last one.
/// - `is_fixed`: whether address randomization is off.
pub(crate) fn write(run: &Run, before: &Memory, nanoseconds: u64, how: &str, is_fixed: bool) {
    let (rss, peak) = Memory::now().since(before);
    let mut text = Text::<8192>::new();
    let _ = write!(
        text,
        "{{\"at\":\"{how}\",\"calls\":{},\"failures\":{},\"ended\":{},\"rss\":{rss},\"peak_rss\":{peak},\
         \"nanoseconds\":{nanoseconds},\"fixed\":{is_fixed}",
        run.calls, run.failures, run.threads.ended
    );
    let (count, usable) = usable(run);
    let _ = write!(text, ",\"blocks\":{count},\"usable\":{usable}");
    if let Some(mallinfo2) = run.real.mallinfo2 {
        // SAFETY: the function is glibc's.
        let info = unsafe { mallinfo2() };
        let (system, in_use) = (info.arena + info.hblkhd, info.uordblks + info.hblkhd);
        let _ = write!(text, ",\"system\":{system},\"in_use\":{in_use}");
    }
    let _ = text.write_str(",\"file\":\"");
    // SAFETY: the path of an object that is never unloaded.
    for byte in unsafe { core::ffi::CStr::from_ptr(run.real.file) }.to_bytes() {
        match byte {
            b'"' | b'\\' => drop(write!(text, "\\{}", *byte as char)),
            0x20..=0x7e => drop(text.write_char(*byte as char)),
            _ => drop(text.write_str("?")),
        }
    }
    let _ = text.write_str("\"}\n");
    text.put();
}

/// Return the number of blocks in use, and the sum of their usable sizes.
fn usable(run: &Run) -> (u64, u64) {
    let live = run.blocks.iter().filter(|block| !block.is_null());
    // SAFETY: the blocks belong to this allocator.
    live.fold((0, 0), |(count, bytes), block| (count + 1, bytes + unsafe { (run.real.usable)(*block) } as u64))
}
