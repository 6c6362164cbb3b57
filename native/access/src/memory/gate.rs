//! A flag that says whether a stopped process is still stopped.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A flag that is set before the target is released: the gate is then closed. If the gate is still open after a read,
/// the bytes were read while the target was stopped.
#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    missed: AtomicU64,
}

impl Gate {
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    /// Count a read that came too late, after the release of the target.
    pub(crate) fn miss(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}
