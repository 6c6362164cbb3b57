//! Processes that run on while a thread of ours sees what some of their threads do: this is its other side, which asks it
//! for one after the other.

use crate::error::{Error, Result};
use crate::process::chase::{Chase, Course};
use crate::process::launch::{Launch, Start};
use crate::process::tracer::Failure;
use crate::signals::SignalsHeld;
use crate::work::Watcher;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicU8, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WAKE: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_millis(1);

/// A thread that was seen: the process that it belongs to, at which place (None: it runs another program from now on), and
/// its registers when it came there (`struct user_regs_struct`).
#[derive(Clone, Debug)]
pub struct Hit {
    pub pid: i32,
    pub tid: i32,
    pub place: Option<usize>,
    pub registers: Vec<u64>,
    /// Nanoseconds since the beginning.
    pub at: u64,
}

/// Why nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Running,
    /// It was asked to end.
    Asked,
    /// The process has ended, or all have.
    Gone,
    /// The process runs another program.
    Exec,
}

impl Finish {
    fn of(number: u8) -> Finish {
        [Finish::Running, Finish::Asked, Finish::Gone, Finish::Exec][usize::from(number)]
    }
}

/// What the tracer's thread and the others both see.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) cancelled: AtomicBool,
    pub(crate) ending: AtomicBool,
    finish: AtomicU8,
    /// The thread of ours that traces; 0 when it has ended.
    tracer: AtomicI32,
    hits: AtomicU64,
    /// Nanoseconds for which threads stood where they were seen, all together.
    stood: AtomicU64,
    /// Nanoseconds for which a whole process stood, to put patches in and to take them out.
    pub(crate) held: AtomicU64,
    pub(crate) left_in: AtomicBool,
    /// `/proc/PID/maps` while the process stood, when the patches were put in and when they were taken out.
    pub(crate) maps: Mutex<[Vec<u8>; 2]>,
    /// As wait(2) gives it, of a process that we started; -1 before.
    pub(crate) status: AtomicI32,
}

impl Shared {
    pub(crate) fn note_maps(&self, place: usize, pid: i32) {
        let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        self.maps.lock().unwrap_or_else(|poisoned| poisoned.into_inner())[place] = maps;
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }
}

/// The tracer's thread tells of threads by this.
pub(crate) struct Teller {
    pub(crate) shared: Arc<Shared>,
    hits: Sender<Hit>,
    answers: Receiver<()>,
    waits: bool,
    limit: Duration,
    began: Instant,
}

impl Teller {
    /// A thread was seen; it stands until it is answered for, where that is wanted.
    pub(crate) fn tell(&self, pid: i32, tid: i32, place: Option<usize>, registers: Vec<u64>) {
        let met = Instant::now();
        let at = (met - self.began).as_nanos() as u64;
        self.shared.hits.fetch_add(u64::from(place.is_some()), Ordering::SeqCst);
        if self.hits.send(Hit { pid, tid, place, registers, at }).is_ok() && self.waits {
            self.await_answer(met);
        }
        self.shared.stood.fetch_add(met.elapsed().as_nanos() as u64, Ordering::SeqCst);
    }

    fn await_answer(&self, met: Instant) {
        while met.elapsed() < self.limit {
            match self.answers.recv_timeout(WAKE) {
                Err(RecvTimeoutError::Timeout) if !self.shared.is_ending() => {}
                _ => return,
            }
        }
    }
}

/// What the tracer's thread does: `ready` hears when the first thread may be seen, or why none will.
pub(crate) trait Trace: Send + 'static {
    fn trace(self, teller: Teller, ready: &Sender<Result<(), Failure>>) -> Finish;
}

/// A process that is followed until this is ended or dropped.
pub struct Follower {
    shared: Arc<Shared>,
    hits: Mutex<Receiver<Hit>>,
    answers: Mutex<Option<Sender<()>>>,
    pending: AtomicBool,
    waits: bool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Follower {
    /// Stops a process for as long as it takes to put the patches in, and follows it from then on. A thread that came by
    /// a place stands, if it `waits`, until the next one is asked for, or for as long as `limit`.
    pub fn of_process(watcher: &dyn Watcher, course: Course, waits: bool, limit: Duration) -> Result<Follower> {
        Follower::new(watcher, Chase::new(course, limit), waits, limit)
    }

    /// Starts a program, and follows it and all processes that it starts, to their end.
    pub fn of_program(watcher: &dyn Watcher, start: Start, waits: bool, limit: Duration) -> Result<Follower> {
        Follower::new(watcher, Launch::new(start), waits, limit)
    }

    fn new(watcher: &dyn Watcher, work: impl Trace, waits: bool, limit: Duration) -> Result<Follower> {
        wake_by_signal()?;
        let shared = Arc::new(Shared::default());
        let (ready, is_ready) = channel();
        let (sender, hits) = channel();
        let (answers, answered) = channel();
        let teller =
            Teller { shared: shared.clone(), hits: sender, answers: answered, waits, limit, began: Instant::now() };
        shared.status.store(-1, Ordering::SeqCst);
        let theirs = shared.clone();
        let held = SignalsHeld::new();
        let body = move || {
            accept_wake();
            // SAFETY: takes nothing.
            theirs.tracer.store(unsafe { libc::syscall(libc::SYS_gettid) } as i32, Ordering::SeqCst);
            let finish = work.trace(teller, &ready);
            theirs.finish.store(finish as u8, Ordering::SeqCst);
            theirs.tracer.store(0, Ordering::SeqCst);
        };
        let thread = std::thread::Builder::new().name("gdbheap tracer".into()).stack_size(256 << 10).spawn(body);
        drop(held);
        let thread = Mutex::new(Some(thread?));
        let answers = Mutex::new(Some(answers));
        let follower =
            Follower { shared, hits: Mutex::new(hits), answers, pending: AtomicBool::new(false), waits, thread };
        follower.await_start(watcher, &is_ready)?;
        Ok(follower)
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

    /// The next thread that comes by, after that of the last hit was let go on; None when there was none for as long as
    /// `wait`, or nothing more will come.
    pub fn next(&self, watcher: &dyn Watcher, wait: Duration) -> Result<Option<Hit>> {
        self.go_on();
        let hits = self.hits.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match hits.recv_timeout(left.min(WAKE)) {
                Ok(hit) => {
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

    /// Takes the patches out and lets the process go; of a program that was started waits for the end of it and of all that
    /// it started. A second call does nothing.
    pub fn end(&self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        self.go_on();
        drop(self.answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take());
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

    /// How many threads came by.
    pub fn hits(&self) -> u64 {
        self.shared.hits.load(Ordering::SeqCst)
    }

    /// For how long threads stood at the places, all hits together.
    pub fn stood(&self) -> Duration {
        Duration::from_nanos(self.shared.stood.load(Ordering::SeqCst))
    }

    /// For how long the whole process stood, to put the patches in and to take them out.
    pub fn held(&self) -> Duration {
        Duration::from_nanos(self.shared.held.load(Ordering::SeqCst))
    }

    /// The text of `/proc/PID/maps` when the patches were put in, and when they were taken out; empty before.
    pub fn maps(&self) -> [Vec<u8>; 2] {
        self.shared.maps.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// How the program that was started ended, as wait(2) gives it; None before.
    pub fn status(&self) -> Option<i32> {
        let status = self.shared.status.load(Ordering::SeqCst);
        (status >= 0).then_some(status)
    }

    /// Whether the patches could not be taken out, because a thread sleeps uninterruptibly in the kernel.
    pub fn left_in(&self) -> bool {
        self.shared.left_in.load(Ordering::SeqCst)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.end();
    }
}

/// A signal that ends a wait of the tracer's thread, and does nothing else.
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

/// Lets the wake signal through on this thread, and on no other.
fn accept_wake() {
    // SAFETY: the set is plain data that the calls fill in.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, wake_signal());
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}
