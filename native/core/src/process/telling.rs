//! What the thread that traces processes tells of them, and how it waits for an answer.

use crate::process::tracer::Failure;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often is looked whether all is to end.
pub(crate) const WAKE: Duration = Duration::from_millis(20);

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
    pub(crate) fn of(number: u8) -> Finish {
        [Finish::Running, Finish::Asked, Finish::Gone, Finish::Exec][usize::from(number)]
    }
}

/// What the tracer's thread and the others both see.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) cancelled: AtomicBool,
    pub(crate) ending: AtomicBool,
    pub(crate) finish: AtomicU8,
    /// The thread of ours that traces; 0 when it has ended.
    pub(crate) tracer: AtomicI32,
    pub(crate) hits: AtomicU64,
    /// Nanoseconds for which threads stood where they were seen, all together.
    pub(crate) stood: AtomicU64,
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
    pub(crate) hits: Sender<Hit>,
    pub(crate) counter: Arc<OwnedFd>,
    pub(crate) answers: Receiver<()>,
    pub(crate) waits: bool,
    pub(crate) limit: Duration,
    pub(crate) began: Instant,
}

impl Teller {
    /// A thread was seen; it stands until it is answered for, where that is wanted.
    pub(crate) fn tell(&self, pid: i32, tid: i32, place: Option<usize>, registers: Vec<u64>) {
        let met = Instant::now();
        let at = (met - self.began).as_nanos() as u64;
        self.shared.hits.fetch_add(u64::from(place.is_some()), Ordering::SeqCst);
        if self.hits.send(Hit { pid, tid, place, registers, at }).is_ok() {
            count_up(&self.counter);
            if self.waits {
                self.await_answer(met);
            }
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

fn count_up(counter: &OwnedFd) {
    let one = 1u64;
    // SAFETY: reads eight bytes of this function; a counter that is full says enough.
    unsafe { libc::write(counter.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}
