//! Finds processes that share the memory of another process without being its threads (clone(2) with CLONE_VM).

use crate::patient::{ask_hastily, held, held_here};
use std::collections::HashSet;
use std::fs::read_dir;
use std::io::{Error, Result};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

const KCMP_VM: libc::c_int = 1;
/// The largest number of processes in execve(2) that are left out. kcmp(2) waits for such a process, which no longer
/// runs its old program.
const MAX_IN_EXEC: usize = 8;
/// The time between two checks whether late answers of kcmp(2) have come. An answer is late if the process is in
/// execve(2).
const CHECK: Duration = Duration::from_millis(10);
/// The number of checks for late answers of kcmp(2), if at most MAX_IN_EXEC answers are late. Their processes are then
/// left out.
const CHECKS_FOR_FEW: u32 = 10;
/// The number of checks for late answers of kcmp(2), if more than MAX_IN_EXEC answers are late. On a busy machine, an
/// ordinary execve(2) may last that long.
const CHECKS_FOR_MANY: u32 = 200;

/// Return whether two threads have the same memory, by kcmp(2). kcmp waits for a thread that is in execve(2), and
/// reports threads that have ended as equal.
pub(super) fn have_same_memory(one: i32, other: i32) -> bool {
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0 }
}

/// Return whether another process shares the memory of `pid`. The other process would keep running while all threads of
/// `pid` are stopped. False if kcmp(2) is refused or unavailable. ETIMEDOUT if too many processes do not answer.
pub fn has_sharer(pid: i32) -> Result<bool> {
    let names = read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let others = names.filter_map(|name| name.to_str()?.parse().ok()).filter(|other: &i32| *other != pid).collect();
    is_true_of_any(others, move |other| have_same_memory(pid, other))
}

/// Return whether the process `other` shares the memory of `pid`, as `has_sharer` does.
pub(super) fn is_sharer(pid: i32, other: i32) -> Result<bool> {
    is_true_of_any(vec![other], move |other| have_same_memory(pid, other))
}

/// Return whether `is_true` holds for one of `pids`. At most MAX_IN_EXEC of them may hang in `is_true`: they count as
/// false. ETIMEDOUT if more of them hang.
fn is_true_of_any(pids: Vec<i32>, is_true: impl Fn(i32) -> bool + Send + Sync + 'static) -> Result<bool> {
    // A process about which an earlier question hangs is asked only after that question was answered. Otherwise each
    // call would start more threads that hang.
    let earlier = hanging();
    let (mut postponed, unasked): (Vec<i32>, Vec<i32>) = pids.into_iter().partition(|pid| earlier.contains(pid));
    let progress = Progress { process: std::process::id(), unasked, ..Progress::default() };
    let progress = Arc::new(Mutex::new(progress));
    if let Some(mut hanging) = held_here(&HANGING) {
        hanging.push(progress.clone());
    }
    let (is_true, mut threads) = (Arc::new(is_true), 0);
    for check in 0..CHECKS_FOR_MANY {
        // Each thread continues as soon as the kernel lets it, so none of its answers is lost.
        while threads <= MAX_IN_EXEC && !held(&progress).is_asked() {
            threads += 1;
            let (progress, is_true) = (progress.clone(), is_true.clone());
            let work = move || {
                ask(&progress, &*is_true);
                Ok(())
            };
            match ask_hastily(unique(), "kcmp", work) {
                Err(error) if error.raw_os_error() != Some(libc::ETIMEDOUT) => return Err(error),
                _ => (),
            }
        }
        if !postponed.is_empty() {
            let earlier = hanging();
            let (late, free) = postponed.into_iter().partition(|pid| earlier.contains(pid));
            postponed = late;
            held(&progress).unasked.extend::<Vec<i32>>(free);
        }
        let (found, is_asked, late) = {
            let progress = held(&progress);
            (progress.found, progress.is_asked(), progress.asking.len() + postponed.len())
        };
        let is_enough = late == 0 || check >= CHECKS_FOR_FEW;
        if found || is_asked && is_enough && late <= MAX_IN_EXEC {
            return Ok(found);
        }
        sleep(CHECK);
    }
    Err(Error::from_raw_os_error(libc::ETIMEDOUT))
}

/// The progress of the threads that ask about many processes. For each process whose answer hangs, there is one more
/// thread.
#[derive(Default)]
struct Progress {
    /// The id of our process, because a child that it forks does not have these threads.
    process: u32,
    unasked: Vec<i32>,
    asking: HashSet<i32>,
    found: bool,
}

impl Progress {
    fn is_asked(&self) -> bool {
        self.found || self.unasked.is_empty()
    }
}

/// Ask about the processes that no thread has asked about, until `is_true` holds for one of them.
fn ask(progress: &Mutex<Progress>, is_true: &impl Fn(i32) -> bool) {
    loop {
        let next = {
            let mut progress = held(progress);
            if progress.found {
                return;
            }
            let Some(next) = progress.unasked.pop() else { return };
            progress.asking.insert(next);
            next
        };
        let answer = is_true(next);
        let mut progress = held(progress);
        progress.asking.remove(&next);
        progress.found |= answer;
    }
}

/// The progress of earlier calls. Their threads may still wait for kcmp(2), so later calls do not ask about the same
/// processes again.
static HANGING: Mutex<Vec<Arc<Mutex<Progress>>>> = Mutex::new(Vec::new());

/// Return the processes about which questions of earlier calls are still unanswered.
fn hanging() -> HashSet<i32> {
    let Some(mut earlier) = held_here(&HANGING) else { return HashSet::new() };
    earlier.retain(|progress| {
        held_here(progress)
            .is_some_and(|progress| progress.process == std::process::id() && !progress.asking.is_empty())
    });
    earlier.iter().flat_map(|progress| held(progress).asking.clone()).collect()
}

/// Return a number that no earlier call has returned. The number identifies a thread that asks.
fn unique() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ask about 50 processes, whose ids start at `first`. `hangs`: how long the answer about each takes; `true_of`:
    /// the processes for which it is true.
    fn answer(
        first: i32,
        hangs: impl Fn(i32) -> Duration + Send + Sync + 'static,
        true_of: Option<i32>,
    ) -> Result<bool> {
        is_true_of_any((first..first + 50).collect(), move |pid| {
            sleep(hangs(pid - first));
            Some(pid - first) == true_of
        })
    }

    const MOMENT: Duration = Duration::from_millis(300);
    const EVER: Duration = Duration::from_secs(600);

    /// Check all cases in one test, because a call also counts the questions that hang in other calls.
    #[test]
    fn answers_are_waited_for() {
        assert!(!answer(0, |_| Duration::ZERO, None).expect("an answer"));
        for pid in [0, 25, 49] {
            assert!(answer(0, |_| Duration::ZERO, Some(pid)).expect("an answer"));
        }
        // Slow answers, as on a busy machine: more of them than threads.
        let slow = |pid| if pid % 4 == 0 { MOMENT } else { Duration::ZERO };
        assert!(!answer(100, slow, None).expect("an answer"));
        for (first, pid) in [(200, 1), (300, 47), (400, 49)] {
            assert!(answer(first, slow, Some(pid)).expect("an answer"), "{pid}");
        }
        // A few may hang, also in several calls.
        let few = i32::try_from(MAX_IN_EXEC).expect("a small number");
        let hang = move |most| move |pid| if pid < most { EVER } else { Duration::ZERO };
        for _ in 0..20 {
            assert!(!answer(500, hang(few), None).expect("an answer"));
        }
        assert!(answer(500, hang(few), Some(49)).expect("an answer"));
        let error = answer(500, hang(few + 1), None).expect_err("too many");
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
    }
}
