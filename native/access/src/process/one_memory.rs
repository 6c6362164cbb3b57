//! Checks whether processes share one address space. Nothing in /proc proves that, because a forked copy has the same
//! bytes, too.
#![forbid(unsafe_code)]

use crate::patient::ask_hastily;
use crate::process::living::living_thread;
use crate::process::sharers::have_same_memory;
use std::path::Path;

/// Return whether all of these processes have the same memory (kcmp(2)). False if kcmp is refused or unavailable, or if
/// it waits for a process in execve(), which a file system may delay.
pub fn have_one_memory(pids: &[i32]) -> bool {
    let Some(first) = pids.first().copied() else { return false };
    let pids = pids.to_vec();
    ask_hastily(first, "one memory", move || Ok(are_one(&pids))).unwrap_or(false)
}

fn are_one(pids: &[i32]) -> bool {
    let threads = || pids.iter().map(|pid| Some(living_thread(Path::new(&format!("/proc/{pid}")))?.0)).collect();
    let Some(found): Option<Vec<i32>> = threads() else { return false };
    // Threads that have ended compare equal, too, because they have no memory.
    found.windows(2).all(|pair| have_same_memory(pair[0], pair[1])) && threads().as_ref() == Some(&found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_itself() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        assert!(have_one_memory(&[own, own]));
        assert!(!have_one_memory(&[own, i32::MAX]));
    }
}
