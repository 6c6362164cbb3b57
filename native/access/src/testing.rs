//! Watchers for the tests of this crate and of the crates that depend on it.
#![forbid(unsafe_code)]

use crate::error::Cancelled;
use crate::work::{Progress, Watcher};
use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::work::Unwatched;

/// A watcher that cancels all work at the first check.
pub struct Ended;

impl Watcher for Ended {
    fn attend(&self, _progress: Option<Progress>) -> Result<(), Cancelled> {
        Err(Cancelled)
    }
}

/// A watcher that allows a number of checks, and cancels all work at the check after them.
pub struct Cancelling(AtomicU64);

impl Cancelling {
    pub fn after(looks: u64) -> Cancelling {
        Cancelling(AtomicU64::new(looks))
    }
}

impl Watcher for Cancelling {
    fn attend(&self, _progress: Option<Progress>) -> Result<(), Cancelled> {
        let take = |left: u64| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map(drop).map_err(|_| Cancelled)
    }
}
