//! Read the steps of a plan in order. The file is never mapped, because its pages would then count as pages of the
//! allocator.

use crate::system;

const WINDOW: usize = 128 << 10;

pub(crate) struct Steps {
    descriptor: i32,
    offset: u64,
    /// The number of words that were not read from the file yet.
    left: u64,
    window: &'static mut [u64],
    at: usize,
    end: usize,
}

impl Steps {
    pub(crate) fn new(descriptor: i32, count: u64) -> Option<Steps> {
        let found = system::shared(WINDOW * 8, libc::MAP_POPULATE)? as *mut u64;
        // SAFETY: new memory of that size, which nothing else refers to.
        let window = unsafe { core::slice::from_raw_parts_mut(found, WINDOW) };
        Some(Steps { descriptor, offset: gdbheap_plan::HEADER as u64, left: count, window, at: 0, end: 0 })
    }

    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<u64> {
        if self.at == self.end && !self.read() {
            return None;
        }
        let step = self.window[self.at];
        self.at += 1;
        Some(step)
    }

    #[cold]
    fn read(&mut self) -> bool {
        let wanted = self.left.min(WINDOW as u64) as usize;
        let mut got = 0;
        while got < wanted * 8 {
            // SAFETY: reads into the window, of which `got` bytes are filled.
            let more = unsafe {
                let to = (self.window.as_mut_ptr() as *mut u8).add(got);
                libc::pread(self.descriptor, to as *mut _, wanted * 8 - got, (self.offset + got as u64) as i64)
            };
            if more <= 0 {
                break;
            }
            got += more as usize;
        }
        (self.at, self.end) = (0, got / 8);
        self.left -= self.end as u64;
        self.offset += self.end as u64 * 8;
        self.end != 0
    }

    /// Return whether all steps were read.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }
}
