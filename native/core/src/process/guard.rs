//! A process of ours that takes patches out of the target when we are killed before we could.
//!
//! It waits for the end of a pipe. What it does then needs no thread and no lock of this process: it was forked, and glibc
//! keeps malloc usable in a child. It is in a session of its own, so that what ends a group of processes leaves it alone.

use crate::folder::ProcessFolder;
use crate::process::descriptor::close_others;
use crate::process::patch::{text, Left, Patch};
use crate::process::pipe::pipe;
use crate::process::program_memory::ProgramMemory;
use crate::process::tracer::Tracer;
use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 100;
const NAP: Duration = Duration::from_millis(20);
const NOT_NEEDED: u8 = 1;

/// Takes `patches` out of a process when this process ends without having said that it need not.
pub(crate) struct Guard {
    pid: i32,
    pipe: Option<File>,
}

impl Guard {
    /// `memory`: of the program that has them, held by the guard from now on.
    pub(crate) fn new(process: &ProcessFolder, memory: &ProgramMemory, patches: &[Patch]) -> Result<Guard, Error> {
        let (reader, writer) = pipe()?;
        // SAFETY: the child only makes system calls, allocates by glibc's malloc, and ends by _exit.
        let child = unsafe { libc::fork() };
        match child {
            ..0 => Err(Error::last_os_error()),
            0 => {
                // Nobody is to wait for what this process would never write.
                close_others(vec![reader.as_raw_fd(), process.descriptor(), memory.descriptor()]);
                watch(reader.as_raw_fd(), || {
                    restore(process, memory, patches);
                });
                // SAFETY: ends this process and runs nothing of the other's.
                unsafe { libc::_exit(0) }
            }
            guard => Ok(Guard { pid: guard, pipe: Some(File::from(writer)) }),
        }
    }

    /// The patches are out.
    pub(crate) fn dismiss(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(&[NOT_NEEDED]);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // SAFETY: takes numbers, and a null pointer for what is not wanted.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) };
    }
}

/// Waits at the pipe.
fn watch(pipe: RawFd, act: impl FnOnce()) {
    // SAFETY: numbers and buffers of this function.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"gdbheap guard".as_ptr());
        let mut word = [0u8; 1];
        let got = loop {
            let got = libc::read(pipe, word.as_mut_ptr().cast(), 1);
            if got >= 0 || Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                break got;
            }
        };
        if got == 0 {
            act();
        }
    }
}

/// Takes patches out of a program, whose process nobody else traces or is about to let go; whether they are out. They are
/// as well once the process has ended or runs another program, which is left alone.
fn restore(process: &ProcessFolder, memory: &ProgramMemory, patches: &[Patch]) -> bool {
    for _ in 0..ATTEMPTS {
        restore_once(process, memory, patches);
        if !text::is_any_in(memory, patches) {
            return true;
        }
        std::thread::sleep(NAP);
    }
    false
}

fn restore_once(process: &ProcessFolder, memory: &ProgramMemory, patches: &[Patch]) {
    let mut tracer = Tracer::new(process, Some(PATIENCE));
    if tracer.stop(&AtomicBool::new(false)).is_ok() && tracer.threads.values().all(|thread| thread.stopped) {
        text::take_out(memory, patches);
    }
    tracer.release();
}

/// Takes out what a run that was killed has left in a program; whether nothing of it is left. `memory` was opened before
/// that was read.
pub fn restore_left(process: &ProcessFolder, memory: &ProgramMemory, left: &[Left]) -> bool {
    let patches: Vec<Patch> = left.iter().map(Left::patch).collect();
    !text::is_any_in(memory, &patches) || restore(process, memory, &patches)
}
