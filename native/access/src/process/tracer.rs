//! Stops every thread of a process and releases them again. Everything must run on one thread of gdbheap.
//!
//! PTRACE_SEIZE with PTRACE_INTERRUPT neither sends a signal nor disturbs a job-control stop, and the kernel detaches
//! by itself when the tracer dies. These facts were observed:
//! - A signal that arrives between the two requests causes a signal-delivery-stop. The signal is passed on at once, and
//!   no wait consumes the stop before that. So a tracer that is killed in between takes no signal with it.
//! - Seizing a thread that is ending sometimes gives EPERM.
//! - A thread in state D (the parent in a vfork) does not stop before the kernel wakes it.
//! - Some system calls end with EINTR after a stop (signal(7)): they are restarted.

use crate::arch::registers::{self, GENERAL, PROGRAM_COUNTER, STACK_POINTER};
use crate::arch::restarting::{restart_interrupted, Restart};
use crate::arch::system_call::is_exec;
use crate::folder::ProcessFolder;
use crate::process::ptrace::{self, ThreadEvent};
use crate::signals::Alarm;
use crate::stat;
use std::collections::BTreeMap;
use std::io::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time in which running threads must stop. It is long because each thread must be scheduled first, and the machine
/// may be busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time for which a thread in state D (uninterruptible sleep) may delay the other threads.
pub(crate) const STUCK: Duration = Duration::from_millis(20);
/// The largest number of attempts to stop all threads.
const ATTEMPTS: usize = 4;
const QUICK: Duration = Duration::from_millis(2);
const NAP: Duration = Duration::from_micros(200);
const SEIZE_ATTEMPTS: usize = 5;

/// The registers of one stopped thread. The thread pointer, the stack pointer and the program counter are listed
/// separately, in addition to the general registers.
#[derive(Clone, Copy, Default)]
pub(crate) struct Registers {
    pub(crate) thread_pointer: u64,
    pub(crate) stack_pointer: u64,
    pub(crate) program_counter: u64,
    pub(crate) general: [u64; GENERAL],
}

#[derive(Clone, Copy, Default)]
pub(crate) struct TracedThread {
    /// Whether the thread is stopped. False only for a thread in uninterruptible sleep.
    pub(crate) stopped: bool,
    /// The signal of the job-control stop that the thread was in; 0 for none.
    pub(crate) group_stop: i32,
    pub(crate) registers: Registers,
    restart: Restart,
}

/// The signal number that the kernel reports when a thread stops at a system call (PTRACE_O_TRACESYSGOOD).
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;

/// Raise the priority of this thread, if that is allowed, because the target is stopped while this thread waits for a
/// processor.
pub(crate) fn raise_priority() {
    // SAFETY: two numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// The reason why a process was not stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    Os(Error),
    /// The thread with this id was not scheduled in time, or cannot be woken from its sleep.
    Timeout(i32),
    Cancelled,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Os(error)
    }
}

pub(crate) struct Tracer {
    pub(crate) process: ProcessFolder,
    pub(crate) pid: i32,
    /// The seized threads. After the process was released: the threads that had not stopped by then.
    pub(crate) threads: BTreeMap<i32, TracedThread>,
    /// The number of interrupted system calls that were restarted.
    pub(crate) mended: u64,
    patience: Duration,
    since: Option<Instant>,
    longest: Duration,
}

impl Tracer {
    pub(crate) fn new(process: &ProcessFolder, limit: Option<Duration>) -> Tracer {
        let patience = limit.map_or(PATIENCE, |limit| limit.min(PATIENCE));
        let (process, pid) = (process.clone(), process.pid());
        Tracer { process, pid, threads: BTreeMap::new(), mended: 0, patience, since: None, longest: Duration::ZERO }
    }

    /// Return the time at which the process was stopped; None while it runs.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Return the time for which the process was stopped. If it was stopped several times, return the longest time.
    pub(crate) fn held(&self) -> Duration {
        self.longest.max(self.since.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    /// Stop all threads. Threads in uninterruptible sleep are waited for a few times, while the other threads run;
    /// after that they are left as they are. After an error no thread is held, even if the process has ended and its id
    /// was reused.
    pub(crate) fn stop(&mut self, cancelled: &AtomicBool) -> Result<(), Failure> {
        for attempt in 1..=ATTEMPTS {
            self.await_uninterruptible();
            match self.stop_once(attempt == ATTEMPTS, cancelled) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    self.release();
                    std::thread::sleep(STUCK);
                }
                Err(failure) => {
                    self.release();
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    /// Wait, for at most a few milliseconds, until no thread is in state D.
    fn await_uninterruptible(&self) {
        let began = Instant::now();
        while began.elapsed() < STUCK / 4
            && self.tasks().unwrap_or_default().iter().any(|tid| self.sleeps_uninterruptibly(*tid))
        {
            std::thread::sleep(NAP);
        }
    }

    /// Stop all threads once. Return true if all threads are stopped, or, on the `last` attempt, all threads that can
    /// be stopped.
    fn stop_once(&mut self, last: bool, cancelled: &AtomicBool) -> Result<bool, Failure> {
        self.since = Some(Instant::now());
        // Each round may find new threads, started by threads that were not stopped yet.
        loop {
            let fresh = self.seize_new(cancelled)?;
            if !self.await_stops(cancelled)? && !last {
                return Ok(false);
            }
            if fresh == 0 {
                break;
            }
        }
        // If the id of a held thread is still a thread id of the process, it belongs to the thread that was seized: a
        // held thread cannot lose its id.
        let living = self.tasks()?;
        let others: Vec<i32> = self.threads.keys().copied().filter(|tid| !living.contains(tid)).collect();
        others.into_iter().for_each(|tid| self.leave(tid));
        Ok(true)
    }

    fn tasks(&self) -> Result<Vec<i32>, Error> {
        self.process.tasks()
    }

    fn status(&self, tid: i32) -> String {
        self.process.path(&format!("task/{tid}/status"))
    }

    fn sleeps_uninterruptibly(&self, tid: i32) -> bool {
        stat::sleeps_uninterruptibly(&self.status(tid))
    }

    /// Seize and interrupt the threads that are not seized yet. Return the number of these threads. This may take long
    /// if there are very many.
    fn seize_new(&mut self, cancelled: &AtomicBool) -> Result<usize, Failure> {
        let mut fresh = 0;
        // The kernel waits for a thread of the process that is in execve(), which a file system may delay.
        let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        let _alarm = Alarm::after(self.patience.saturating_sub(waited))?;
        for tid in self.tasks()? {
            if self.threads.contains_key(&tid) {
                continue;
            }
            let seized = self.seize(tid).map_err(|error| match error.raw_os_error() {
                Some(libc::EINTR) => Failure::Timeout(tid),
                _ => Failure::Os(error),
            });
            if seized? {
                let restart = Restart::of(&self.process, tid);
                self.threads.insert(tid, TracedThread { restart, ..TracedThread::default() });
                let _ = ptrace::interrupt(tid);
                fresh += 1;
                self.go_on_waiting(tid, self.since.map_or(Duration::ZERO, |since| since.elapsed()), cancelled)?;
            }
        }
        Ok(fresh)
    }

    /// Return an error if the wait for a thread took too long or was cancelled.
    fn go_on_waiting(&self, tid: i32, waited: Duration, cancelled: &AtomicBool) -> Result<(), Failure> {
        match waited > self.patience {
            true => Err(Failure::Timeout(tid)),
            false if cancelled.load(Ordering::Relaxed) => Err(Failure::Cancelled),
            false => Ok(()),
        }
    }

    /// Seize a thread. Return false if it has ended meanwhile. For a thread that is ending, the kernel may return
    /// EPERM.
    fn seize(&self, tid: i32) -> Result<bool, Error> {
        let mut attempt = 0;
        loop {
            let Err(error) = ptrace::seize(tid, 0) else { return Ok(true) };
            attempt += 1;
            let ended = stat::has_ended(&self.status(tid));
            if ended && tid != self.pid {
                return Ok(false);
            }
            let known = matches!(error.raw_os_error(), Some(libc::EPERM | libc::ESRCH));
            if ended || !known || tid == self.pid || attempt == SEIZE_ATTEMPTS {
                return Err(error);
            }
            std::thread::sleep(NAP * 5);
        }
    }

    /// Check once whether a thread has stopped. If it has ended, forget it. If it stopped because of a signal, pass the
    /// signal on.
    fn poll(&mut self, tid: i32) {
        match ptrace::peek(tid) {
            ThreadEvent::Running => {}
            ThreadEvent::Gone => self.forget(tid),
            ThreadEvent::Stopped { signal, event: ptrace::EVENT_STOP } => {
                ptrace::wait(tid, false);
                let group_stop = if signal == libc::SIGTRAP { 0 } else { signal };
                let mut restart = self.restart_of(tid);
                restart.give_up(tid);
                if group_stop == 0 && restart_interrupted(tid) {
                    self.mended += 1;
                }
                let stopped = group_stop != 0 || !restart.begin(tid);
                let registers = if stopped { registers(tid).unwrap_or_default() } else { Registers::default() };
                self.threads.insert(tid, TracedThread { stopped, group_stop, registers, restart });
            }
            ThreadEvent::Stopped { signal: SYSCALL_STOP, event: 0 } => {
                ptrace::wait(tid, false);
                let mut restart = self.restart_of(tid);
                self.mended += u64::from(restart.go_on(tid));
                self.threads.insert(tid, TracedThread { restart, ..TracedThread::default() });
            }
            ThreadEvent::Stopped { signal, .. } => {
                let mut restart = self.restart_of(tid);
                restart.give_up(tid);
                self.threads.insert(tid, TracedThread { restart, ..TracedThread::default() });
                // Entering this stop has cancelled an interrupt that came just before it.
                let _ = ptrace::interrupt(tid);
                restart_unhandled(tid, signal);
                let _ = ptrace::go_on(tid, signal);
            }
        }
    }

    fn restart_of(&self, tid: i32) -> Restart {
        self.threads.get(&tid).map_or_else(Restart::default, |thread| thread.restart)
    }

    fn running(&self) -> Vec<i32> {
        self.threads.iter().filter(|(_, thread)| !thread.stopped).map(|(tid, _)| *tid).collect()
    }

    /// Return whether a thread that is not stopped may be in exec(2). A thread in exec(2) may take the place of a
    /// stopped thread.
    pub(crate) fn is_in_exec(&self) -> bool {
        self.running().iter().any(|tid| {
            let line = std::fs::read_to_string(self.process.path(&format!("task/{tid}/syscall"))).unwrap_or_default();
            let number = line.split_whitespace().next().and_then(|word| word.parse::<i64>().ok());
            number.is_none_or(|number| number < 0 || is_exec(number))
        })
    }

    /// Return whether all threads are stopped. A thread that runs or is in uninterruptible sleep could be in exec(2),
    /// and then take the place of the other threads.
    pub(crate) fn stands_whole(&self) -> bool {
        self.threads.values().all(|thread| thread.stopped)
    }

    /// Wait until all seized threads are stopped. Return false if the threads that do not stop are in state D.
    fn await_stops(&mut self, cancelled: &AtomicBool) -> Result<bool, Failure> {
        let began = Instant::now();
        loop {
            for tid in self.running() {
                self.poll(tid);
            }
            let running = self.running();
            let Some(first) = running.first() else { return Ok(true) };
            if began.elapsed() > STUCK && running.iter().all(|tid| self.sleeps_uninterruptibly(*tid)) {
                return Ok(false);
            }
            self.go_on_waiting(*first, began.elapsed(), cancelled)?;
            if began.elapsed() > QUICK {
                std::thread::sleep(NAP);
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Let every thread continue as it was. Return the time for which the process was stopped. A second call does
    /// nothing.
    pub(crate) fn release(&mut self) -> Duration {
        let stood = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        for tid in self.threads.keys().copied().collect::<Vec<i32>>() {
            self.let_go(tid);
        }
        self.longest = self.held();
        self.since = None;
        let began = Instant::now();
        while !self.threads.is_empty() && began.elapsed() < STUCK {
            self.let_rest_go();
            std::thread::yield_now();
        }
        stood
    }

    /// Release threads that have stopped since the process was released. Only a stopped thread can be released; the
    /// others stay seized. After `release`, the caller must call this until no thread is left. The kernel releases the
    /// threads when this thread of gdbheap ends.
    pub(crate) fn let_rest_go(&mut self) {
        for tid in self.running() {
            self.poll(tid);
            self.let_go(tid);
        }
    }

    fn let_go(&mut self, tid: i32) {
        if !self.threads.get(&tid).is_some_and(|thread| thread.stopped) {
            return;
        }
        if ptrace::detach(tid, 0).is_ok() {
            self.threads.remove(&tid);
        } else if stat::has_ended(&self.status(tid)) {
            self.forget(tid);
        } else {
            // Another thread has called exec(2), and has this id now.
            self.threads.insert(tid, TracedThread::default());
        }
    }

    /// Give up a thread that has ended, or a thread of another process that now has the id of the old thread.
    fn leave(&mut self, tid: i32) {
        let stopped = self.threads.get(&tid).is_some_and(|thread| thread.stopped);
        if stopped && ptrace::detach(tid, 0).is_ok() {
            self.threads.remove(&tid);
        } else {
            self.forget(tid);
        }
    }

    /// Forget a thread that has ended, and fetch its exit status. Until its tracer has done so, the thread exists as a
    /// zombie. The end of the process's first thread is reported to its parent, which may be this process.
    fn forget(&mut self, tid: i32) {
        self.threads.remove(&tid);
        if tid != self.pid || self.parent() != Some(std::process::id()) {
            ptrace::wait(tid, false);
        }
    }

    fn parent(&self) -> Option<u32> {
        stat::said(&self.process.path("status"), "PPid")?.parse().ok()
    }

    /// Return each thread: its id, whether it is stopped, and its registers. For a thread that is not stopped, the
    /// kernel reports only the stack pointer and the program counter.
    pub(crate) fn rows(&self) -> Vec<(i32, bool, Registers)> {
        let row = |(tid, thread): (&i32, &TracedThread)| match thread.stopped {
            true => (*tid, true, thread.registers),
            false => (*tid, false, self.known_asleep(*tid)),
        };
        self.threads.iter().map(row).collect()
    }

    /// Return the stack pointer and the program counter of a sleeping thread. They are the last two numbers in
    /// `task/TID/syscall` (proc(5)).
    fn known_asleep(&self, tid: i32) -> Registers {
        let line = std::fs::read_to_string(self.process.path(&format!("task/{tid}/syscall"))).unwrap_or_default();
        let numbers: Vec<u64> =
            line.split_whitespace().filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
        match numbers[..] {
            [.., stack_pointer, program_counter] => Registers { stack_pointer, program_counter, ..Default::default() },
            _ => Registers::default(),
        }
    }
}

fn registers(tid: i32) -> Option<Registers> {
    let words = registers::read(tid).ok()?;
    Some(Registers {
        program_counter: words[PROGRAM_COUNTER],
        stack_pointer: words[STACK_POINTER],
        thread_pointer: registers::thread_pointer(tid, &words),
        general: std::array::from_fn(|index| words[index]),
    })
}

/// Restart the system call of a thread that an ignored signal has woken. An ignored signal wakes a thread only if the
/// thread is traced. If a handler runs, or the signal stops the process, the call ends with EINTR as usual.
pub(crate) fn restart_unhandled(tid: i32, signal: i32) {
    if ![libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
        restart_interrupted(tid);
    }
}
