//! What the thread that traces processes tells of them, and how it waits for an answer.

use crate::folder::ProcessFolder;
use crate::process::tracer::Failure;
use crate::tables::read_table;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often is looked whether all is to end.
pub(crate) const WAKE: Duration = Duration::from_millis(20);

/// A thread that was seen: the process that it belongs to, at which place (None: it runs another program from now on), and
/// its registers when it came there, as the kernel lays them out.
#[derive(Clone, Debug)]
pub struct Hit {
    pub pid: i32,
    pub tid: i32,
    pub place: Option<usize>,
    pub registers: Vec<u64>,
    /// The bytes at its stack pointer as they were then; None of a thread that stands, whose stack is there to be read.
    pub stack: Option<Vec<u8>>,
    /// It ran while the mappings were read, which may have what it did, or not.
    pub doubtful: bool,
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
    /// A program that was started is not waited for any longer.
    pub(crate) is_left: AtomicBool,
    /// Its process; 0 before.
    pub(crate) started: AtomicI32,
    pub(crate) finish: AtomicU8,
    /// The thread of ours that traces; 0 when it has ended.
    pub(crate) tracer: AtomicI32,
    pub(crate) hits: AtomicU64,
    /// A guard puts the code back later: a thread slept too long for us.
    pub(crate) is_unrestored: AtomicBool,
    /// How many were told of that nobody has asked for yet.
    pub(crate) waiting: AtomicUsize,
    /// How many were lost on the way to us.
    pub(crate) lost: AtomicU64,
    /// Nanoseconds for which threads stood where they were seen, all together.
    pub(crate) stood: AtomicU64,
    /// Nanoseconds for which a whole process stood, to put patches in and to take them out.
    pub(crate) held: AtomicU64,
    /// `/proc/PID/maps` while the process stood, when the patches were put in and when they were taken out.
    pub(crate) maps: Mutex<[Vec<u8>; 2]>,
    /// As wait(2) gives it, of a process that we started; -1 before.
    pub(crate) status: AtomicI32,
}

impl Shared {
    pub(crate) fn note_maps(&self, place: usize, process: &ProcessFolder) {
        self.keep_maps(place, read_table(process.path("maps").as_ref(), u64::MAX).unwrap_or_default());
    }

    pub(crate) fn keep_maps(&self, place: usize, maps: Vec<u8>) {
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
}

impl Teller {
    /// A thread was seen; it stands until it is answered for, where that is wanted.
    pub(crate) fn tell(&self, pid: i32, tid: i32, place: Option<usize>, registers: Vec<u64>) {
        let met = Instant::now();
        self.shared.hits.fetch_add(u64::from(place.is_some()), Ordering::SeqCst);
        if self.pass_on(Hit { pid, tid, place, registers, stack: None, doubtful: false }) && self.waits {
            self.await_answer(met);
        }
        self.shared.stood.fetch_add(met.elapsed().as_nanos() as u64, Ordering::SeqCst);
    }

    /// A thread was seen that runs on; whether anybody hears of it.
    pub(crate) fn pass_on(&self, hit: Hit) -> bool {
        self.shared.waiting.fetch_add(1, Ordering::SeqCst);
        let heard = self.hits.send(hit).is_ok();
        if heard {
            count_up(&self.counter);
        }
        heard
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
