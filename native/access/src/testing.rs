//! Watchers for the tests of this crate and of the crates that depend on it.
#![forbid(unsafe_code)]

use crate::error::Cancellation;
use crate::work::{Progress, Watcher};
use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::work::NoWatcher;

/// A watcher that cancels all work at the first check.
pub struct CancellingWatcher;

impl Watcher for CancellingWatcher {
    fn attend(&self, _progress: Option<Progress>) -> Result<(), Cancellation> {
        Err(Cancellation)
    }
}

/// A watcher that allows a number of checks, and cancels all work at the check after them.
pub struct CheckLimit(AtomicU64);

impl CheckLimit {
    pub fn after(looks: u64) -> CheckLimit {
        CheckLimit(AtomicU64::new(looks))
    }
}

impl Watcher for CheckLimit {
    fn attend(&self, _progress: Option<Progress>) -> Result<(), Cancellation> {
        let take = |left: u64| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map(drop).map_err(|_| Cancellation)
    }
}
