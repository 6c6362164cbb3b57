//! A process of ours that takes patches out of the target when we are killed before we could, or cannot.
//!
//! It waits for the end of a pipe. What it does then needs no thread and no lock of this process: it was forked, and glibc
//! keeps malloc usable in a child. It is in a session of its own, so that what ends a group of processes leaves it alone.
//! It goes on for as long as the target lives. Between two attempts it holds nothing: a thread that does not stop stays
//! seized until it does, unless who has seized it ends.

use crate::child::descriptor::close_others;
use crate::child::pipe::pipe;
use crate::child::waiting::{wait, wait_aside};
use crate::folder::ProcessFolder;
use crate::process::patch::{text, Left, Patch};
use crate::process::program_memory::ProgramMemory;
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
/// For how long what an earlier run has left is tried to be taken out.
const PATIENCE_OF_OTHERS: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(20);
const LONGEST_NAP: Duration = Duration::from_secs(1);
const NOT_NEEDED: u8 = 1;

/// Takes `patches` out of a process when this process ends without having said that it need not, or is told to.
pub(crate) struct Guard {
    /// 0 where nobody is to wait for it.
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
                watch(reader.as_raw_fd(), || restore(process, memory, patches));
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

    /// It is to take the patches out, however long that takes: it is not waited for, except by a thread that does nothing
    /// else.
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

/// Takes patches out of a program, whose process nobody else traces or is about to let go. They are out as well once the
/// process has ended or runs another program, which is left alone.
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

/// Has a child of its own do this, with whom all ends that it held.
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

/// Waits, at least for a nap, until no thread has slept uninterruptibly all the time since it was looked at last. The
/// process does not stand for that; each nap is longer than the one before.
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

/// The threads that sleep uninterruptibly, each with how often it had gone to sleep (proc_pid_status(5)).
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
    if tracer.stop(&AtomicBool::new(false)).is_ok() && tracer.stands_whole() {
        text::take_out(memory, patches);
    }
    tracer.release();
}

/// Takes out what a run that was killed has left in a program; whether nothing of it is left. `memory` was opened before
/// that was read.
pub fn restore_left(process: &ProcessFolder, memory: &ProgramMemory, left: &[Left]) -> bool {
    let patches: Vec<Patch> = left.iter().map(Left::patch).collect();
    let began = Instant::now();
    let restore = || {
        let mut tracer = Tracer::new(process, Some(PATIENCE));
        while text::is_any_in(memory, &patches) && began.elapsed() < PATIENCE_OF_OTHERS {
            restore_once(&mut tracer, memory, &patches);
            std::thread::sleep(NAP);
        }
        !text::is_any_in(memory, &patches)
    };
    // On a thread of its own, with which all ends that it held.
    std::thread::scope(|scope| {
        let held = SignalsHeld::hold();
        let thread = scope.spawn(restore);
        drop(held);
        thread.join().unwrap_or(false)
    })
}
