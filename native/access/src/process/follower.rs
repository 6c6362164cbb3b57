//! Follows processes. They keep running while a thread of gdbheap observes their threads.
//!
//! A `Follower` returns the hits that this thread reports, one by one.

use crate::error::{Error, Result};
use crate::process::chase::{Chase, FollowRequest};
use crate::process::launch::{Launch, LaunchRequest};
use crate::process::telling::{Finish, Hit, Teller, Trace, TraceState, WAKE};
use crate::process::tracepoint::{RingReader, TraceRequest};
use crate::process::tracer::Failure;
use crate::signals::SignalsHeld;
use crate::work::Watcher;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(1);

type Ready = Sender<Result<(), Failure>>;
type Body = Box<dyn FnOnce(&Ready) + Send>;

/// A process that is followed from `start` until the follower is ended or dropped.
pub struct Follower {
    shared: Arc<TraceState>,
    hits: Mutex<Receiver<Hit>>,
    counter: Arc<OwnedFd>,
    answers: Mutex<Option<Sender<()>>>,
    pending: AtomicBool,
    waits: bool,
    body: Mutex<Option<Body>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Follower {
    /// Stop a process for as long as it takes to insert the patches, and then follow it. If `waits`, a thread that
    /// comes to a patched place stays stopped until the next hit is fetched, for at most `limit`.
    pub fn of_process(course: FollowRequest, waits: bool, limit: Duration) -> Result<Follower> {
        Follower::new(Chase::new(course, limit), waits, limit)
    }

    /// Start a program, and follow it and all its child processes. They keep running when the follower ends.
    pub fn of_program(start: LaunchRequest, waits: bool, limit: Duration) -> Result<Follower> {
        Follower::new(Launch::new(start), waits, limit)
    }

    /// Follow the system calls of a process by a tracepoint of the kernel, which does not stop threads.
    pub fn of_tracepoint(traced: TraceRequest) -> Result<Follower> {
        Follower::new(RingReader::new(traced), false, Duration::ZERO)
    }

    fn new(work: impl Trace, waits: bool, limit: Duration) -> Result<Follower> {
        wake_by_signal()?;
        let shared = Arc::new(TraceState::default());
        let (sender, hits) = channel();
        let (answers, answered) = channel();
        let counter = Arc::new(counter()?);
        let (counted, told) = (counter.clone(), shared.clone());
        let teller = Teller { shared: told, hits: sender, counter: counted, answers: answered, waits, limit };
        shared.status.store(-1, Ordering::SeqCst);
        let theirs = shared.clone();
        let body = move |ready: &Ready| {
            accept_wake();
            // SAFETY: the call takes no arguments.
            theirs.tracer.store(unsafe { libc::syscall(libc::SYS_gettid) } as i32, Ordering::SeqCst);
            let finish = work.trace(teller, ready);
            theirs.finish.store(finish as u8, Ordering::SeqCst);
            theirs.tracer.store(0, Ordering::SeqCst);
        };
        Ok(Follower {
            shared,
            hits: Mutex::new(hits),
            counter,
            answers: Mutex::new(Some(answers)),
            pending: AtomicBool::new(false),
            waits,
            body: Mutex::new(Some(Box::new(body))),
            thread: Mutex::new(None),
        })
    }

    /// Begin to follow, and wait until hits can be seen. A second call does nothing. If this call is interrupted, the
    /// caller can still use the follower: `end` ends it, and `is_unrestored` says whether patches are still in the
    /// process.
    pub fn start(&self, watcher: &dyn Watcher) -> Result<()> {
        let Some(body) = crate::work::take(&self.body) else { return Ok(()) };
        let (ready, is_ready) = channel();
        let held = SignalsHeld::hold();
        let thread = std::thread::Builder::new().name("gdbheap tracer".into()).stack_size(256 << 10);
        let thread = thread.spawn(move || body(&ready));
        drop(held);
        *self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(thread?);
        self.await_start(watcher, &is_ready)
    }

    fn await_start(&self, watcher: &dyn Watcher, ready: &Receiver<Result<(), Failure>>) -> Result<()> {
        loop {
            match ready.recv_timeout(WAKE) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(Failure::Os(error))) => return Err(error.into()),
                Ok(Err(Failure::Timeout(tid))) => return Err(Error::Timeout(format!("thread {tid} does not stop"))),
                Ok(Err(Failure::Cancelled)) | Err(RecvTimeoutError::Disconnected) => return Err(Error::Cancelled),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(cancelled) = watcher.check() {
                        self.shared.cancelled.store(true, Ordering::SeqCst);
                        return Err(cancelled.into());
                    }
                }
            }
        }
    }

    /// Let the thread of the last hit continue, and return the next hit. None if there was no hit within `wait`, or if
    /// there will be no more.
    pub fn next(&self, watcher: &dyn Watcher, wait: Duration) -> Result<Option<Hit>> {
        self.go_on();
        let hits = self.hits.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match hits.recv_timeout(left.min(WAKE)) {
                Ok(hit) => {
                    self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
                    self.pending.store(self.waits, Ordering::SeqCst);
                    return Ok(Some(hit));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if left <= WAKE => return Ok(None),
                Err(RecvTimeoutError::Timeout) => watcher.check()?,
            }
        }
    }

    fn go_on(&self) {
        if self.pending.swap(false, Ordering::SeqCst) {
            let answers = self.answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some(answers) = answers.as_ref() {
                let _ = answers.send(());
            }
        }
    }

    /// Stop reporting, and wait for the end of the started program and all its child processes. Return whether they
    /// ended within `wait`.
    pub fn wait(&self, watcher: &dyn Watcher, wait: Duration) -> Result<bool> {
        self.stop_telling();
        let deadline = Instant::now() + wait;
        loop {
            let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Ok(true);
            }
            drop(thread);
            if Instant::now() >= deadline {
                return Ok(false);
            }
            wake(self.shared.tracer.load(Ordering::SeqCst));
            std::thread::sleep(WAKE.min(wait));
            watcher.check()?;
        }
    }

    fn stop_telling(&self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        self.go_on();
        drop(self.answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take());
    }

    /// Remove the patches and release the process. A started program keeps running. A second call does nothing.
    pub fn end(&self) {
        self.stop_telling();
        self.shared.is_left.store(true, Ordering::SeqCst);
        let Some(thread) = crate::work::take(&self.thread) else { return };
        while !thread.is_finished() {
            wake(self.shared.tracer.load(Ordering::SeqCst));
            std::thread::sleep(NAP);
        }
        let _ = thread.join();
    }

    pub fn finish(&self) -> Finish {
        Finish::of(self.shared.finish.load(Ordering::SeqCst))
    }

    /// Return whether the patches could not be removed; a guard then removes them as soon as it can.
    pub fn is_unrestored(&self) -> bool {
        self.shared.is_unrestored.load(Ordering::SeqCst)
    }

    /// Return a descriptor (eventfd(2)) that poll(2) reports as readable once a hit was reported.
    pub fn descriptor(&self) -> RawFd {
        self.counter.as_raw_fd()
    }

    /// Return the number of hits so far.
    pub fn hits(&self) -> u64 {
        self.shared.hits.load(Ordering::SeqCst)
    }

    /// Return the number of hits that were lost because gdbheap was too slow.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::SeqCst)
    }

    /// Return the total time for which threads were stopped at patched places.
    pub fn stood(&self) -> Duration {
        Duration::from_nanos(self.shared.stood.load(Ordering::SeqCst))
    }

    /// Return the total time for which the whole process was stopped, to insert and to remove the patches.
    pub fn held(&self) -> Duration {
        Duration::from_nanos(self.shared.held.load(Ordering::SeqCst))
    }

    /// Return the text of `/proc/PID/maps` at two times: when the patches were inserted, and when they were removed. A
    /// text is empty until it has been read.
    pub fn maps(&self) -> [Vec<u8>; 2] {
        self.shared.maps.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Return the id of the started process; None before the start.
    pub fn started(&self) -> Option<i32> {
        Some(self.shared.started.load(Ordering::SeqCst)).filter(|pid| *pid != 0)
    }

    /// Return the exit status of the started program, as wait(2) returns it; None before its end.
    pub fn status(&self) -> Option<i32> {
        let status = self.shared.status.load(Ordering::SeqCst);
        (status >= 0).then_some(status)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.end();
    }
}

fn counter() -> Result<OwnedFd, io::Error> {
    // SAFETY: the descriptor is new, and nothing else owns it.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
            ..0 => Err(io::Error::last_os_error()),
            descriptor => Ok(OwnedFd::from_raw_fd(descriptor)),
        }
    }
}

/// Return the number of the signal that interrupts a wait of the tracer's thread, and has no other effect.
fn wake_signal() -> i32 {
    libc::SIGRTMIN() + 6
}

extern "C" fn ignore(_signal: libc::c_int) {}

fn wake_by_signal() -> Result<(), io::Error> {
    // SAFETY: plain data, and a handler that does nothing.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(wake_signal(), &action, std::ptr::null_mut())
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn wake(tid: i32) {
    if tid > 0 {
        // SAFETY: takes numbers only.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, wake_signal()) };
    }
}

/// Unblock the wake signal on this thread only.
fn accept_wake() {
    // SAFETY: the set is plain data that the calls fill in.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, wake_signal());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}
