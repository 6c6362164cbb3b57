//! Lets the tracer's thread report hits to other threads, and wait for their answers.

use crate::folder::ProcessFolder;
use crate::process::tracer::Failure;
use crate::tables::read_table;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The interval between two checks whether tracing should end.
pub(crate) const WAKE: Duration = Duration::from_millis(20);

/// A thread that was caught at a patched place.
///
/// - `place`: the index of the place; None if the process has started another program.
/// - `registers`: the registers that the thread had at the place, in the order in which ptrace(2) reports them.
#[derive(Clone, Debug)]
pub struct Hit {
    pub pid: i32,
    pub tid: i32,
    pub place: Option<usize>,
    pub registers: Vec<u64>,
    /// The bytes at the thread's stack pointer when it was at the place. None if the thread is still stopped, because
    /// its stack can then be read.
    pub stack: Option<Vec<u8>>,
    /// Whether the thread made its call while the mappings were read. The mappings may or may not include the effect of
    /// such a call.
    pub doubtful: bool,
}

/// The reason why there will be no more hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Running,
    /// The follower was asked to end.
    Asked,
    /// The process has ended, or all processes have.
    Gone,
    /// The process runs another program.
    Exec,
}

impl Finish {
    pub(crate) fn of(number: u8) -> Finish {
        [Finish::Running, Finish::Asked, Finish::Gone, Finish::Exec][usize::from(number)]
    }
}

/// The state of tracing, which the tracer's thread shares with the threads that fetch hits.
#[derive(Default)]
pub(crate) struct TraceState {
    pub(crate) cancelled: AtomicBool,
    pub(crate) ending: AtomicBool,
    /// Whether to stop waiting for the end of a program that was started.
    pub(crate) is_left: AtomicBool,
    /// The id of the process that was started; 0 before.
    pub(crate) started: AtomicI32,
    pub(crate) finish: AtomicU8,
    /// The id of the thread that traces; 0 after it has ended.
    pub(crate) tracer: AtomicI32,
    pub(crate) hits: AtomicU64,
    /// Whether patches are still in the target's code. The guard process will remove them, because a thread did not
    /// wake up in time.
    pub(crate) is_unrestored: AtomicBool,
    /// The number of hits that were reported but not fetched yet.
    pub(crate) waiting: AtomicUsize,
    /// The number of hits that were lost before they were reported.
    pub(crate) lost: AtomicU64,
    /// The total time for which threads were stopped at places, in nanoseconds.
    pub(crate) stood: AtomicU64,
    /// The total time for which a whole process was stopped to insert and to remove patches, in nanoseconds.
    pub(crate) held: AtomicU64,
    /// `/proc/PID/maps` of the stopped process, when the patches were inserted and when they were removed.
    pub(crate) maps: Mutex<[Vec<u8>; 2]>,
    /// The status of a process that was started, as wait(2) returns it; -1 before.
    pub(crate) status: AtomicI32,
}

impl TraceState {
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

/// The connection by which the tracer's thread reports hits.
pub(crate) struct Teller {
    pub(crate) shared: Arc<TraceState>,
    pub(crate) hits: Sender<Hit>,
    pub(crate) counter: Arc<OwnedFd>,
    pub(crate) answers: Receiver<()>,
    pub(crate) waits: bool,
    pub(crate) limit: Duration,
}

impl Teller {
    /// Report a thread as a hit. If answers are expected, the thread stays stopped until an answer comes.
    pub(crate) fn tell(&self, pid: i32, tid: i32, place: Option<usize>, registers: Vec<u64>) {
        let met = Instant::now();
        self.shared.hits.fetch_add(u64::from(place.is_some()), Ordering::SeqCst);
        if self.pass_on(Hit { pid, tid, place, registers, stack: None, doubtful: false }) && self.waits {
            self.await_answer(met);
        }
        self.shared.stood.fetch_add(met.elapsed().as_nanos() as u64, Ordering::SeqCst);
    }

    /// Send a hit to the follower, without waiting for an answer. Return whether the follower still listens.
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

/// The work of the tracer's thread. The thread sends Ok through `ready` once it can see hits, or the reason why there
/// will be no hits.
pub(crate) trait Trace: Send + 'static {
    fn trace(self, teller: Teller, ready: &Sender<Result<(), Failure>>) -> Finish;
}

fn count_up(counter: &OwnedFd) {
    let one = 1u64;
    // SAFETY: reads eight bytes of this function. If the counter is full, readers know already.
    unsafe { libc::write(counter.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}
