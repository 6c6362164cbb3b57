//! Finds processes that share the memory of another process without being its threads (clone(2) with CLONE_VM).

use crate::patient::ask_hastily;
use std::fs::read_dir;
use std::io::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const KCMP_VM: libc::c_int = 1;
/// The most processes in execve(2) that are left out. kcmp(2) waits for such a process, which no longer runs its old
/// program.
const MAX_IN_EXEC: usize = 8;

/// Return whether two threads have the same memory, by kcmp(2). kcmp waits for a thread that is in execve(2), and
/// reports threads that have ended as equal.
pub(super) fn have_same_memory(one: i32, other: i32) -> bool {
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
}

/// Return whether another process shares the memory of `pid`. That process would keep running while all threads of
/// `pid` are stopped. False if kcmp(2) is refused or unavailable. ETIMEDOUT if too many processes do not answer.
pub fn has_sharer(pid: i32) -> Result<bool> {
    let names = read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let others: Vec<i32> =
        names.filter_map(|name| name.to_str()?.parse().ok()).filter(|other: &i32| *other != pid).collect();
    let (others, next) = (Arc::new(others), Arc::new(AtomicUsize::new(0)));
    for _ in 0..=MAX_IN_EXEC {
        let first = next.load(Ordering::SeqCst);
        let Some(key) = others.get(first) else { return Ok(false) };
        let (others, next) = (others.clone(), next.clone());
        let found = ask_hastily(*key, "kcmp", move || Ok(any_shares(pid, &others, &next)));
        match found {
            Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT) => (),
            found => return found,
        }
    }
    Err(Error::from_raw_os_error(libc::ETIMEDOUT))
}

/// Return whether one of `others`, from index `next` on, shares the memory of `pid`. Advances `next`.
fn any_shares(pid: i32, others: &[i32], next: &AtomicUsize) -> bool {
    while let Some(other) = others.get(next.fetch_add(1, Ordering::SeqCst)) {
        if have_same_memory(pid, *other) {
            return true;
        }
    }
    false
}
