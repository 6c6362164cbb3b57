//! Finds a living thread of a process whose first thread has ended before others.
//!
//! The kernel then shows the process below /proc/PID as a zombie without memory. Its memory is visible only in the
//! folder task/TID of another thread (proc(5)).
#![forbid(unsafe_code)]

use crate::stat::has_ended;
use std::path::{Path, PathBuf};

/// Return the thread with the lowest id that has not ended, and its folder; None if all have ended. `folder`: the
/// process's folder in /proc.
pub(crate) fn living_thread(folder: &Path) -> Option<(i32, PathBuf)> {
    let tasks = folder.join("task");
    let names = std::fs::read_dir(&tasks).ok()?.flatten();
    let mut found: Vec<i32> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    found.sort_unstable();
    let all = found.into_iter().map(|tid| (tid, tasks.join(tid.to_string())));
    all.into_iter().find(|(_, task)| task.join("status").to_str().is_some_and(|status| !has_ended(status)))
}
