//! Work without the GIL that does not abort the program when Python ends meanwhile.
//!
//! Up to 3.13, Python ends a daemon thread that takes the GIL after Python's end by unwinding its stack, which aborts the
//! process if Rust code is on the stack. Such a thread stays without the GIL instead, until the process exits.

use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Whether a thread ends Python or has ended it.
static ENDING: AtomicBool = AtomicBool::new(false);
thread_local! {
    /// Whether this thread ends Python.
    static IS_LAST: Cell<bool> = const { Cell::new(false) };
}
/// The number of threads that have found that Python runs, and that wait for the GIL.
static RETURNING: AtomicU32 = AtomicU32::new(0);
/// How long Python's end waits for these threads. Each of them gets the GIL within milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(100);

/// Do `work` without the GIL. If Python has ended meanwhile, this function returns only in the thread that ended Python.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let answer = py.detach(|| {
        let answer = work();
        RETURNING.fetch_add(1, Ordering::SeqCst);
        if has_ended() {
            RETURNING.fetch_sub(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        answer
    });
    RETURNING.fetch_sub(1, Ordering::SeqCst);
    answer
}

/// Return whether another thread ends Python or has ended it.
fn has_ended() -> bool {
    ENDING.load(Ordering::SeqCst) && !IS_LAST.get()
}

/// Keep all other threads from taking the GIL again, and wait until those that already wait for it have it.
pub fn hold_others(py: Python<'_>) {
    IS_LAST.set(true);
    ENDING.store(true, Ordering::SeqCst);
    let began = Instant::now();
    py.detach(|| {
        while RETURNING.load(Ordering::SeqCst) > 0 && began.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
    });
}
