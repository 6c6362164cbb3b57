//! Long work on all cores, with progress and Ctrl-C.
//!
//! Workers never touch Python. The calling thread wakes up a few times a second to report progress and to look for
//! signals. Where reading itself needs Python (a remote target) the same work runs on the calling thread.

use crate::space::Space;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

const WAKE: Duration = Duration::from_millis(50);
const MOST_THREADS: usize = 8;

/// The work was cancelled; whoever waits for it knows why.
#[derive(Debug)]
pub struct Cancelled;

/// What workers share with the thread that waits for them.
pub struct Control {
    cancelled: AtomicBool,
    done: AtomicU64,
    total: u64,
    inline: bool,
    progress: Option<Py<PyAny>>,
    failure: Mutex<Option<PyErr>>,
}

impl Control {
    /// Counts `bytes` as done; an error means: stop at once.
    pub fn advance(&self, bytes: u64) -> Result<(), Cancelled> {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        if self.inline {
            Python::attach(|py| self.attend(py));
        }
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Cancelled);
        }
        Ok(())
    }

    fn attend(&self, py: Python<'_>) {
        let mut answer = py.check_signals();
        if let (Ok(()), Some(progress)) = (&answer, &self.progress) {
            let done = self.done.load(Ordering::Relaxed).min(self.total);
            answer = progress.call1(py, (done, self.total)).map(|_| ());
        }
        if let Err(error) = answer {
            self.cancelled.store(true, Ordering::Relaxed);
            self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
        }
    }
}

/// Holds back all signals on this thread, so that the threads it starts never run a handler of gdb's or Python's.
pub struct SignalsHeld(libc::sigset_t);

impl SignalsHeld {
    #[allow(clippy::new_without_default)]
    pub fn new() -> SignalsHeld {
        // SAFETY: both sets are plain data that the calls fill in.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            SignalsHeld(before)
        }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: restores the mask that `new` got from the same call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

pub fn threads_for(jobs: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    cores.min(MOST_THREADS).min(jobs).max(1)
}

/// Does every job with one of a few workers' states; returns the states. `total` is what `advance` adds up to.
pub fn run<J, W>(
    py: Python<'_>,
    space: &Space,
    progress: Option<Py<PyAny>>,
    total: u64,
    jobs: &[J],
    init: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, &J, &Control) -> Result<(), Cancelled> + Sync,
) -> PyResult<Vec<W>>
where
    J: Sync,
    W: Send,
{
    let control = Control {
        cancelled: AtomicBool::new(false),
        done: AtomicU64::new(0),
        total,
        inline: space.is_remote(),
        progress,
        failure: Mutex::new(None),
    };
    control.attend(py);
    let next = AtomicUsize::new(0);
    let labour = || {
        let mut state = init();
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if work(&mut state, job, &control).is_err() {
                break;
            }
        }
        state
    };
    let states =
        if control.inline { Ok(vec![labour()]) } else { in_threads(py, threads_for(jobs.len()), &control, labour) };
    let failure = control.failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    match failure {
        Some(error) => Err(error),
        None => states.map_err(|_| PyRuntimeError::new_err("a worker thread failed")),
    }
}

fn in_threads<W: Send>(
    py: Python<'_>,
    count: usize,
    control: &Control,
    labour: impl Fn() -> W + Sync,
) -> std::thread::Result<Vec<W>> {
    let running = Mutex::new(count);
    let ended = Condvar::new();
    let leave = |_: ()| {
        *running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) -= 1;
        ended.notify_one();
    };
    std::thread::scope(|scope| {
        let held = SignalsHeld::new();
        let body = || {
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&labour));
            leave(());
            answer
        };
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(body)).collect();
        drop(held);
        while !py.detach(|| wait(&running, &ended)) {
            control.attend(py);
        }
        workers.into_iter().map(|worker| worker.join().and_then(|answer| answer)).collect()
    })
}

/// Waits for a short while; true when nobody works any more.
fn wait(running: &Mutex<usize>, ended: &Condvar) -> bool {
    let guard = running.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let answer = ended.wait_timeout_while(guard, WAKE, |count| *count > 0);
    *answer.unwrap_or_else(|poisoned| poisoned.into_inner()).0 == 0
}
