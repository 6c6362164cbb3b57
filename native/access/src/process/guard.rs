//! A process of gdbheap that removes patches from the target if gdbheap could not do so itself, for example because it
//! was killed.
//!
//! The guard waits for the end of a pipe. It is a forked process, so its later work must not need a thread or a lock
//! that gdbheap's process had at the fork; glibc keeps malloc usable in a child. It has its own session, so that a
//! signal to a process group does not reach it. It keeps trying for as long as the target lives. Between two attempts
//! it does not hold the target's threads. Only a thread that has not stopped stays seized, until it stops or the
//! guard's child ends.

use crate::child::descriptor::close_others;
use crate::child::pipe::pipe;
use crate::child::waiting::{wait, wait_aside};
use crate::folder::ProcessFolder;
use crate::process::patch::{text, LeftStub, Patch};
use crate::process::program_memory::ProgramMemory;
use crate::process::sharers::has_sharer;
use crate::process::tracer::Tracer;
use crate::signals::SignalsHeld;
use crate::stat;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Error, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);
/// How long to try to remove the patches that an earlier run left.
const PATIENCE_OF_OTHERS: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(20);
const LONGEST_NAP: Duration = Duration::from_secs(1);
const NOT_NEEDED: u8 = 1;

/// The guard process, which removes the patches from a target if it is asked to, or if this process ends without having
/// dismissed it.
pub(crate) struct Guard {
    /// The process id of the guard; 0 if a separate thread waits for the guard.
    pid: i32,
    pipe: Option<File>,
}

impl Guard {
    /// Start the guard. `memory`: the memory of the patched program, which the guard keeps open.
    pub(crate) fn new(process: &ProcessFolder, memory: &ProgramMemory, patches: &[Patch]) -> Result<Guard, Error> {
        let (reader, writer) = pipe()?;
        // SAFETY: the child only makes system calls, allocates by glibc's malloc, and ends by _exit.
        let child = unsafe { libc::fork() };
        match child {
            ..0 => Err(Error::last_os_error()),
            0 => {
                // Other programs may wait until certain files are closed, so the child must not keep them open.
                close_others(vec![reader.as_raw_fd(), process.descriptor(), memory.descriptor()]);
                watch(reader.as_raw_fd(), || restore(process, memory, patches));
                // SAFETY: ends this process and runs nothing of the parent's.
                unsafe { libc::_exit(0) }
            }
            guard => Ok(Guard { pid: guard, pipe: Some(File::from(writer)) }),
        }
    }

    /// Dismiss the guard, because the patches have been removed.
    pub(crate) fn dismiss(mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(&[NOT_NEEDED]);
        }
    }

    /// Let the guard remove the patches, however long that takes. Only a separate thread waits for the guard.
    pub(crate) fn take_over(mut self) {
        wait_aside(std::mem::take(&mut self.pid));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        if self.pid != 0 {
            wait(self.pid);
        }
    }
}

/// Wait until the pipe has a message or is closed. If it is closed without a message, call `act`.
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

/// Remove patches from a program, in as many attempts as necessary, because another tracer may be in the way for a
/// while. Return once the patches are gone, or the process has ended or runs another program. The other program is left
/// alone.
fn restore(process: &ProcessFolder, memory: &ProgramMemory, patches: &[Patch]) {
    let mut nap = NAP;
    loop {
        in_child(|| restore_once(&mut Tracer::new(process, Some(PATIENCE)), memory, patches));
        if !text::is_any_in(memory, patches) || has_ended(process) {
            return;
        }
        await_sleepers(process, &mut nap);
    }
}

/// Call `act` in a child process. All resources of the child are released when the child ends.
fn in_child(act: impl FnOnce()) {
    // SAFETY: this process has one thread; the child ends by _exit.
    match unsafe { libc::fork() } {
        0 => {
            act();
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) }
        }
        child if child > 0 => wait(child),
        _ => {}
    }
}

/// Wait for at least the time `nap`. Then wait until no thread is in the same uninterruptible sleep at two checks in a
/// row. The process runs meanwhile. Each nap is longer than the one before.
fn await_sleepers(process: &ProcessFolder, nap: &mut Duration) {
    let mut before = sleepers(process);
    loop {
        std::thread::sleep(*nap);
        *nap = (*nap * 2).min(LONGEST_NAP);
        let now = sleepers(process);
        if now.is_disjoint(&before) {
            return;
        }
        before = now;
    }
}

/// Return the threads in uninterruptible sleep, each with the number of times that it has gone to sleep
/// (proc_pid_status(5)).
fn sleepers(process: &ProcessFolder) -> BTreeSet<(i32, String)> {
    let asleep = |tid: i32| {
        let status = process.path(&format!("task/{tid}/status"));
        stat::sleeps_uninterruptibly(&status)
            .then(|| (tid, stat::said(&status, "voluntary_ctxt_switches").unwrap_or_default()))
    };
    process.tasks().unwrap_or_default().into_iter().filter_map(asleep).collect()
}

fn has_ended(process: &ProcessFolder) -> bool {
    let tasks = process.tasks().unwrap_or_default();
    tasks.iter().all(|tid| stat::has_ended(&process.path(&format!("task/{tid}/status"))))
}

fn restore_once(tracer: &mut Tracer, memory: &ProgramMemory, patches: &[Patch]) {
    // Another process that shares the memory may run the code, and may keep the memory map locked. Ask before the stop,
    // so that such a process does not have this one stopped again and again.
    let pid = tracer.pid;
    let has_no_sharer = || matches!(has_sharer(pid), Ok(false));
    if !has_no_sharer() {
        return;
    }
    if tracer.stop(&AtomicBool::new(false)).is_ok() && tracer.stands_whole() && has_no_sharer() {
        text::take_out(memory, patches);
    }
    tracer.release();
}

/// Remove the patches that a killed run of gdbheap left in a program. Return whether none is left. `memory` must have
/// been opened before `left` was read.
pub fn restore_left(process: &ProcessFolder, memory: &ProgramMemory, left: &[LeftStub]) -> bool {
    let patches: Vec<Patch> = left.iter().map(LeftStub::patch).collect();
    let began = Instant::now();
    let restore = || {
        let mut tracer = Tracer::new(process, Some(PATIENCE));
        while text::is_any_in(memory, &patches) && began.elapsed() < PATIENCE_OF_OTHERS {
            restore_once(&mut tracer, memory, &patches);
            std::thread::sleep(NAP);
        }
        !text::is_any_in(memory, &patches)
    };
    // The thread is separate because all resources of the tracer are released when its thread ends.
    std::thread::scope(|scope| {
        let held = SignalsHeld::hold();
        let thread = scope.spawn(restore);
        drop(held);
        thread.join().unwrap_or(false)
    })
}
