//! Whether a stopped process is still stopped.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A gate that is closed before the target is released: a byte was read in time if the gate is open afterwards.
#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    missed: AtomicU64,
}

impl Gate {
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    /// Count a read that came too late.
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
