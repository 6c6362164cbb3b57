//! Runs long work on several processors, with a watcher that may cancel the work.
//!
//! Workers are separate threads. The calling thread wakes up a few times a second and calls the watcher, which receives
//! the progress and may cancel the work. If only the calling thread can read (a remote target), the calling thread does
//! the work itself.
#![forbid(unsafe_code)]

use crate::error::{Cancellation, Error, Result};
use crate::signals::{end_deaf, thread_id, SignalsHeld, StuckThreads};
use crate::stat::{SLEEPING, UNINTERRUPTIBLE};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const WAKE: Duration = Duration::from_millis(50);
/// How long workers may still run after a request to end the program. After that, a worker that runs counts as stuck.
const PATIENCE: Duration = Duration::from_secs(3);
const MAX_THREADS: usize = 8;
/// The number of steps between two checks for cancellation.
const STEPS_UNHEARD: u64 = 4 << 10;

/// The progress of some work, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

/// The observer of long work. It is called only on the thread that asked for the work.
pub trait Watcher: Sync {
    /// Decide whether the work should continue; an error cancels the work. `progress`: None if the work reports none.
    fn attend(&self, progress: Option<Progress>) -> Result<(), Cancellation>;

    /// Return whether a signal asked this program to end.
    fn is_told(&self) -> bool {
        false
    }

    /// Check whether the work should continue, without progress.
    fn check(&self) -> Result<(), Cancellation> {
        self.attend(None)
    }
}

/// A watcher that lets all work continue.
pub struct NoWatcher;

impl Watcher for NoWatcher {
    fn attend(&self, _progress: Option<Progress>) -> Result<(), Cancellation> {
        Ok(())
    }
}

/// The progress of some work, which its workers share with the thread that waits for them, and whether the work is
/// cancelled.
pub struct Control<'a> {
    watcher: &'a dyn Watcher,
    cancelled: AtomicBool,
    done: AtomicU64,
    total: Option<u64>,
    inline: bool,
}

impl Control<'_> {
    /// Count `bytes` as done. An error means that the worker must stop at once.
    #[inline]
    pub fn advance(&self, bytes: u64) -> Result<(), Cancellation> {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        if self.inline {
            self.attend();
        }
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Cancellation);
        }
        Ok(())
    }

    fn attend(&self) {
        let done = self.done.load(Ordering::Relaxed);
        let progress = self.total.map(|total| Progress { done: done.min(total), total });
        if self.watcher.attend(progress).is_err() {
            self.cancelled.store(true, Ordering::Relaxed);
        }
    }
}

/// Take a resource that only one worker may have; None if another worker has already taken it.
pub fn take<T>(room: &Mutex<Option<T>>) -> Option<T> {
    room.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
}

/// A function that checks, on the thread that does the work, whether the work should continue.
pub type ContinueCheck<'a> = &'a dyn Fn() -> Result<(), Cancellation>;

/// Counts the steps of a search on the calling thread, and checks occasionally whether to continue.
pub struct Steps<'a> {
    pub watcher: &'a dyn Watcher,
    taken: u64,
    /// How many more steps may find nothing. A step that finds something is not counted.
    pub left: u64,
}

impl Steps<'_> {
    pub fn new(watcher: &dyn Watcher, left: u64) -> Steps<'_> {
        Steps { watcher, taken: 0, left }
    }

    #[inline]
    pub fn take(&mut self) -> Result<(), Cancellation> {
        self.left = self.left.saturating_sub(1);
        self.look()
    }

    /// Check, once every STEPS_UNHEARD calls, whether to continue.
    #[inline]
    pub fn look(&mut self) -> Result<(), Cancellation> {
        self.taken += 1;
        match self.taken % STEPS_UNHEARD {
            0 => self.watcher.check(),
            _ => Ok(()),
        }
    }
}

fn threads_for(jobs: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    cores.min(MAX_THREADS).min(jobs).max(1)
}

/// Long work, and the watcher that observes it.
pub struct Task<'a> {
    pub watcher: &'a dyn Watcher,
    /// The sum of all bytes that the work will count by `advance`; None if nothing is counted.
    pub total: Option<u64>,
    /// Whether the calling thread must do all the work.
    pub inline: bool,
}

impl Task<'_> {
    /// Do all jobs on several workers. Each worker has its own state, which `init` creates. Return the states of all
    /// workers.
    pub fn run<J, W>(
        &self,
        jobs: &[J],
        init: impl Fn() -> W + Sync,
        work: impl Fn(&mut W, &J, &Control<'_>) -> Result<(), Cancellation> + Sync,
    ) -> Result<Vec<W>>
    where
        J: Sync,
        W: Send,
    {
        let Task { watcher, total, inline } = *self;
        let control = Control { watcher, cancelled: AtomicBool::new(false), done: AtomicU64::new(0), total, inline };
        control.attend();
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut state = init();
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                if work(&mut state, job, &control).is_err() {
                    break;
                }
            }
            state
        };
        let states = if inline { Ok(vec![worker()]) } else { in_threads(threads_for(jobs.len()), &control, worker) };
        match control.cancelled.into_inner() {
            true => Err(Error::Cancelled),
            false => states.map_err(|_| Error::Failed("a worker thread failed")),
        }
    }

    /// Do `work` on a separate thread, so that the watcher can cancel it.
    pub fn alone<T: Send>(&self, work: impl Fn(&Control<'_>) -> Result<T, Cancellation> + Sync) -> Result<T> {
        let job = |state: &mut Option<T>, _: &(), control: &Control<'_>| {
            *state = Some(work(control)?);
            Ok(())
        };
        let states = self.run(&[()], || None, job)?;
        states.into_iter().flatten().next().ok_or(Error::Memory("the work was not done"))
    }
}

fn in_threads<W: Send>(
    count: usize,
    control: &Control<'_>,
    worker: impl Fn() -> W + Sync,
) -> std::thread::Result<Vec<W>> {
    let running = Mutex::new(RunningWorkers { count, threads: Vec::new() });
    let ended = Condvar::new();
    let begun = || held(&running).threads.push(thread_id());
    let finished = || {
        let mut running = held(&running);
        running.count -= 1;
        running.threads.retain(|thread| *thread != thread_id());
        ended.notify_one();
    };
    std::thread::scope(|scope| {
        let signals = SignalsHeld::hold();
        let body = || {
            begun();
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&worker));
            finished();
            answer
        };
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(body)).collect();
        drop(signals);
        let (mut stuck, mut told) = (StuckThreads::default(), None);
        while !wait(&running, &ended) {
            control.attend();
            if control.cancelled.load(Ordering::Relaxed) {
                // The worker may be computing for hours, because of a hostile target.
                if control.watcher.is_told() && told.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    end_deaf();
                }
                // A worker that reads a file of an unreachable server does not notice the cancellation. All signals are
                // blocked in it.
                let threads = held(&running).threads.clone();
                stuck.look(&threads, &[SLEEPING, UNINTERRUPTIBLE]);
            }
        }
        workers.into_iter().map(|worker| worker.join().and_then(|answer| answer)).collect()
    })
}

/// The workers that have not ended. `count`: their number, including those that have not begun. `threads`: the thread
/// ids of the workers that have begun.
struct RunningWorkers {
    count: usize,
    threads: Vec<i32>,
}

fn held(running: &Mutex<RunningWorkers>) -> MutexGuard<'_, RunningWorkers> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wait for a short time, or until all workers have ended. Return whether all workers have ended.
fn wait(running: &Mutex<RunningWorkers>, ended: &Condvar) -> bool {
    let answer = ended.wait_timeout_while(held(running), WAKE, |running| running.count > 0);
    answer.unwrap_or_else(PoisonError::into_inner).0.count == 0
}
