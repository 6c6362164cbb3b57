//! Read the process's own memory through the kernel (process_vm_readv). Absent memory is then an error instead of a
//! signal. It occurs, for example, on a damaged stack or after another thread unloaded a library.

use core::ffi::c_void;

/// The size of a window in bytes. It divides every page size, so a window is either wholly present or wholly absent.
const WINDOW: usize = 2 << 10;
const WINDOWS: usize = 64;
/// The largest number of windows that are read ahead. They are enough for most stacks.
const AHEAD: usize = 16;

/// The parts of memory (windows) that were read for one stack, so that each is read only once. A value whose bytes are
/// all 0 is valid: no window was read.
pub(super) struct Windows {
    pid: i32,
    round: u64,
    /// The number of windows that the last stack needed.
    ahead: usize,
    /// For each window, as (round, number of the window). The round is that of the stack for which the window was read.
    /// The number is the window's address divided by `WINDOW`.
    keys: [(u64, u64); WINDOWS],
    bytes: [[u8; WINDOW]; WINDOWS],
}

/// Copy memory of this process. Return how many bytes were copied, up to the first absent byte.
pub(super) fn copy(pid: i32, from: u64, into: *mut u8, size: usize) -> usize {
    let local = libc::iovec { iov_base: into as *mut c_void, iov_len: size };
    let remote = libc::iovec { iov_base: from as usize as *mut c_void, iov_len: size };
    // SAFETY: writes into the caller's buffer; the kernel checks what can be read.
    let got = unsafe { libc::syscall(libc::SYS_process_vm_readv, pid, &local, 1usize, &remote, 1usize, 0usize) };
    got.max(0) as usize
}

impl Windows {
    /// Begin a new round, for a new stack. Windows of earlier rounds are not used, because their memory may have
    /// changed.
    pub(super) fn begin(&mut self, pid: u32) {
        self.pid = pid as i32;
        self.round += 1;
    }

    /// Read several windows at once, beginning with the window that contains `address`. A system call for each window
    /// would take longer than everything else.
    pub(super) fn read_ahead(&mut self, address: u64) {
        let first = address / WINDOW as u64;
        let count = self.ahead.clamp(2, AHEAD);
        let mut local = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: WINDOW }; AHEAD];
        for (part, number) in local.iter_mut().take(count).zip(first..) {
            let place = number as usize % WINDOWS;
            let (Some(bytes), Some(key)) = (self.bytes.get_mut(place), self.keys.get_mut(place)) else { return };
            (part.iov_base, *key) = (bytes.as_mut_ptr() as *mut c_void, (0, 0));
        }
        let from = (first * WINDOW as u64) as usize as *mut c_void;
        let remote = libc::iovec { iov_base: from, iov_len: count * WINDOW };
        // SAFETY: writes into our own windows; the kernel checks what can be read.
        let got = unsafe {
            libc::syscall(libc::SYS_process_vm_readv, self.pid, local.as_ptr(), count, &remote, 1usize, 0usize)
        };
        for number in (first..).take(got.max(0) as usize / WINDOW) {
            if let Some(key) = self.keys.get_mut(number as usize % WINDOWS) {
                *key = (self.round, number);
            }
        }
    }

    /// Remember how many windows the stack in [start, end) needed. The next stack may need as many.
    pub(super) fn remember(&mut self, start: u64, end: u64) {
        self.ahead = (end / WINDOW as u64).saturating_sub(start / WINDOW as u64) as usize + 1;
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    fn window(&mut self, number: u64) -> Option<&[u8; WINDOW]> {
        let place = number as usize % WINDOWS;
        let (key, bytes) = (self.keys.get_mut(place)?, self.bytes.get_mut(place)?);
        if *key != (self.round, number) {
            *key = (0, 0);
            let from = number.checked_mul(WINDOW as u64)?;
            if copy(self.pid, from, bytes.as_mut_ptr(), WINDOW) != WINDOW {
                return None;
            }
            *key = (self.round, number);
        }
        Some(bytes)
    }

    /// Fill `into` with the bytes at `address`; None if some of them are absent.
    pub(super) fn read(&mut self, address: u64, into: &mut [u8]) -> Option<()> {
        let mut done = 0;
        while done < into.len() {
            let at = address.checked_add(done as u64)?;
            let offset = at as usize % WINDOW;
            let part = (into.len() - done).min(WINDOW - offset);
            let window = self.window(at / WINDOW as u64)?;
            into.get_mut(done..done + part)?.copy_from_slice(window.get(offset..offset + part)?);
            done += part;
        }
        Some(())
    }

    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        let offset = address as usize % WINDOW;
        if offset <= WINDOW - 8 {
            let window = self.window(address / WINDOW as u64)?;
            return Some(u64::from_le_bytes(window.get(offset..offset + 8)?.try_into().ok()?));
        }
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    pub(super) fn half(&mut self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    pub(super) fn byte(&mut self, address: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.read(address, &mut bytes)?;
        Some(bytes[0])
    }
}
