//! Long work on all cores, with a watcher that may end it.
//!
//! Workers are threads of their own. The calling thread wakes up a few times a second and calls the watcher, who learns
//! how far the work is and may end it. Where only the calling thread can read (a remote target) it does the work itself.
#![forbid(unsafe_code)]

use crate::error::{Cancelled, Error, Result};
use crate::signals::{end, thread_id, SignalsHeld, Stuck};
use crate::stat::{SLEEPING, UNINTERRUPTIBLE};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const WAKE: Duration = Duration::from_millis(50);
/// Workers that have not ended so long after a signal do not hear of it.
const PATIENCE: Duration = Duration::from_secs(3);
const MAX_THREADS: usize = 8;
/// Steps between two looks at whether to go on.
const STEPS_UNHEARD: u64 = 4 << 10;

/// How far some work is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

/// Somebody who waits for long work. Called on the thread that asked for the work, and on no other.
pub trait Watcher: Sync {
    /// Looks whether the work is to go on; an error ends it. `progress`: None where nothing is counted.
    fn attend(&self, progress: Option<Progress>) -> Result<(), Cancelled>;

    /// Whether a signal asked this program to end.
    fn is_told(&self) -> bool {
        false
    }

    /// Looks whether the work is to go on.
    fn check(&self) -> Result<(), Cancelled> {
        self.attend(None)
    }
}

/// What workers share with the thread that waits for them.
pub struct Control<'a> {
    watcher: &'a dyn Watcher,
    cancelled: AtomicBool,
    done: AtomicU64,
    total: Option<u64>,
    inline: bool,
}

impl Control<'_> {
    /// Counts `bytes` as done; an error means: stop at once.
    #[inline]
    pub fn advance(&self, bytes: u64) -> Result<(), Cancelled> {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        if self.inline {
            self.attend();
        }
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Cancelled);
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

/// Takes what one worker at most may have; None when it is taken.
pub fn take<T>(room: &Mutex<Option<T>>) -> Option<T> {
    room.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
}

/// Looks whether the work is to go on, on whatever thread that does it.
pub type Look<'a> = &'a dyn Fn() -> Result<(), Cancelled>;

/// Steps of a search on the calling thread, with a look now and then at whether to go on.
pub struct Steps<'a> {
    pub watcher: &'a dyn Watcher,
    taken: u64,
    /// Steps that may still lead to nothing; one that leads somewhere is given back.
    pub left: u64,
}

impl Steps<'_> {
    pub fn new(watcher: &dyn Watcher, left: u64) -> Steps<'_> {
        Steps { watcher, taken: 0, left }
    }

    #[inline]
    pub fn take(&mut self) -> Result<(), Cancelled> {
        self.left = self.left.saturating_sub(1);
        self.look()
    }

    /// Looks now and then whether to go on.
    #[inline]
    pub fn look(&mut self) -> Result<(), Cancelled> {
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

/// Work that is about to be done, and who watches it.
pub struct Task<'a> {
    pub watcher: &'a dyn Watcher,
    /// What `advance` adds up to; None: nothing is counted.
    pub total: Option<u64>,
    /// Whether the calling thread has to do it all.
    pub inline: bool,
}

impl Task<'_> {
    /// Does every job with one of a few workers' states; returns the states.
    pub fn run<J, W>(
        &self,
        jobs: &[J],
        init: impl Fn() -> W + Sync,
        work: impl Fn(&mut W, &J, &Control<'_>) -> Result<(), Cancelled> + Sync,
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

    /// Does one piece of work on a thread of its own, so that the watcher can end it.
    pub fn alone<T: Send>(&self, work: impl Fn(&Control<'_>) -> Result<T, Cancelled> + Sync) -> Result<T> {
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
    let running = Mutex::new(Running { count, threads: Vec::new() });
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
        let (mut stuck, mut told) = (Stuck::default(), None);
        while !wait(&running, &ended) {
            control.attend();
            if control.cancelled.load(Ordering::Relaxed) {
                // Whatever it does: what a target says may have it compute for hours.
                if control.watcher.is_told() && told.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    end();
                }
                // One that reads a file of a server that is gone hears nothing of it. All signals are held back there.
                let threads = held(&running).threads.clone();
                stuck.look(&threads, &[SLEEPING, UNINTERRUPTIBLE]);
            }
        }
        workers.into_iter().map(|worker| worker.join().and_then(|answer| answer)).collect()
    })
}

/// The workers that have not ended: how many, and the numbers of those that have begun.
struct Running {
    count: usize,
    threads: Vec<i32>,
}

fn held(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a short while; true once all workers have ended.
fn wait(running: &Mutex<Running>, ended: &Condvar) -> bool {
    let answer = ended.wait_timeout_while(held(running), WAKE, |running| running.count > 0);
    answer.unwrap_or_else(PoisonError::into_inner).0.count == 0
}
