//! Asks the kernel questions that it may never answer. Not even SIGKILL interrupts the wait for such an answer.
//!
//! Before the kernel finds the holes of a file, it waits for the lock of the file's inode. Before it lists what an
//! epoll watches, it waits for the lock of the epoll. A thread of another user may hold such a lock without end. If a
//! thread of gdbheap waited for the lock, gdbheap could not end. So a child process asks the kernel, and gdbheap leaves
//! the child behind if the kernel blocks it.

use crate::bytes::u64_at;
use crate::child::descriptor::close_others;
use crate::child::pipe::pipe;
use crate::child::waiting::{wait, wait_aside};
use crate::patient::{await_answer, HASTY, PATIENT};
use crate::signals::SignalsHeld;
use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The largest number of children that may wait at once, including the children of forked processes. Each child keeps a
/// copy of this process's memory. While this many children wait, every further question fails.
const MOST: u32 = 16;
/// The longest time that a question may take, even if the parts of its answer arrive one by one.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);
const PART: usize = 1 << 16;

static WAITING: OnceLock<&'static AtomicU32> = OnceLock::new();

/// Return the counter of the children that have not ended. Processes that are forked later share this counter.
pub fn waiting() -> &'static AtomicU32 {
    WAITING.get_or_init(|| {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping of zeros that is never unmapped, aligned and larger than the number.
        unsafe {
            let place = libc::mmap(std::ptr::null_mut(), size_of::<AtomicU32>(), rights, kind, -1, 0);
            if place == libc::MAP_FAILED {
                return Box::leak(Box::new(AtomicU32::new(0)));
            }
            &*place.cast::<AtomicU32>()
        }
    })
}

/// Run `work` in a child process that keeps only the descriptors `kept` open, and return the words that `work` returns.
/// ETIMEDOUT if the kernel blocks the child, or if too many other children are blocked. `hasty`: give up early, because
/// a process may be stopped meanwhile; gdbheap also gives up early while another child waits.
pub(crate) fn ask(kept: &[RawFd], hasty: bool, work: impl FnOnce() -> Vec<u64>) -> Result<Vec<u64>> {
    let late = || Error::from_raw_os_error(libc::ETIMEDOUT);
    let count = waiting();
    let others = count.fetch_add(1, Ordering::SeqCst);
    if others >= MOST {
        count.fetch_sub(1, Ordering::SeqCst);
        return Err(late());
    }
    let started = pipe().and_then(|(reader, writer)| {
        let held = SignalsHeld::hold();
        // SAFETY: the child only makes system calls, allocates by the C library's malloc, and ends by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // Other programs may wait until certain files are closed, so the child must not keep them open.
            close_others(kept.iter().copied().chain([writer.as_raw_fd()]).collect());
            answer(File::from(writer), work);
        }
        drop(held);
        if child < 0 {
            Err(Error::last_os_error())
        } else {
            Ok((child, File::from(reader)))
        }
    });
    let (child, mut reader) = started.inspect_err(|_| _ = count.fetch_sub(1, Ordering::SeqCst))?;
    let (mut said, began) = (Vec::new(), Instant::now());
    let whole =
        await_answer(&format!("/proc/{child}/stat"), if hasty || others > 0 { HASTY } else { PATIENT }, |look| {
            let until = Instant::now() + look;
            while is_ready(&reader, until) {
                let mut part = [0; PART];
                match reader.read(&mut part) {
                    Ok(0) | Err(_) => return Some(true),
                    Ok(got) => said.extend_from_slice(&part[..got]),
                }
            }
            (began.elapsed() >= LONGEST).then_some(false)
        });
    if whole != Some(true) {
        wait_aside(child);
        return Err(late());
    }
    wait(child);
    let mut words: Vec<u64> = (0..said.len() / 8).map(|index| u64_at(&said, 8 * index)).collect();
    // The last word is the number of words, which shows that all of them arrived.
    let count = words.pop();
    if count != Some(words.len() as u64) {
        return Err(Error::from_raw_os_error(libc::EIO));
    }
    Ok(words)
}

/// Run as the child: do `work`, write the result to the pipe, and exit. No exit handlers run.
fn answer(mut pipe: File, work: impl FnOnce() -> Vec<u64>) -> ! {
    // SAFETY: numbers and a text of ours.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"gdbheap asks".as_ptr());
    }
    let mut found = work();
    // Closing a file may block, too, if a program serves the file. So the files are closed now, and no file is left to
    // be closed at the end of the process.
    close_others(vec![pipe.as_raw_fd()]);
    waiting().fetch_sub(1, Ordering::SeqCst);
    found.push(found.len() as u64);
    let bytes: Vec<u8> = found.iter().flat_map(|word| word.to_le_bytes()).collect();
    let _ = pipe.write_all(&bytes);
    // SAFETY: ends this process.
    unsafe { libc::_exit(0) }
}

/// Return whether the pipe has bytes to read, or has ended, before the time `until`.
fn is_ready(pipe: &File, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut one = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one record of this function.
        match unsafe { libc::poll(&mut one, 1, left.as_millis() as libc::c_int) } {
            1 => return true,
            // A signal interrupted the wait. Python or gdb handles the signal later.
            -1 if !left.is_zero() => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_child_finds_comes_back() {
        assert_eq!(ask(&[], false, || vec![1, 2, u64::MAX]).expect("three words"), [1, 2, u64::MAX]);
        let many: Vec<u64> = (0..1 << 17).collect();
        assert_eq!(ask(&[], true, || many.clone()).expect("more than a pipe holds"), many);
    }
}
