//! A stopped process, held by a thread of gdbheap that has no other task.
//!
//! Every ptrace request must come from the thread that seized the target. The same thread also watches the time limit,
//! and releases the target in time even if the rest of this process is blocked.
#![forbid(unsafe_code)]

use crate::arch::call;
use crate::error::{Error, Result};
use crate::folder::ProcessFolder;
use crate::memory::gate::Gate;
use crate::process::call::{Answer, Plan, Style, ThreadFacts};
use crate::process::calling;
use crate::process::tracer::{raise_priority, Failure, Registers, Tracer};
use crate::signals::SignalsHeld;
use crate::work::{take, Watcher};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WAKE: Duration = Duration::from_millis(20);
/// A call in a thread is refused (ETIME) if the process may be stopped for less than SHORTEST_CALL longer. The last
/// TO_PUT_BACK of the stop is not counted: it is reserved for restoring the thread.
const SHORTEST_CALL: Duration = Duration::from_millis(500);
const TO_PUT_BACK: Duration = Duration::from_millis(200);

type ThreadRow = (i32, bool, Registers);
type Job = Box<dyn FnOnce(&mut Tracer) + Send>;
type StopResult = Result<Vec<ThreadRow>, Failure>;

/// The state of a stop, which the tracer's thread shares with the threads that use the stop.
#[derive(Default)]
struct StopState {
    gate: Arc<Gate>,
    cancelled: AtomicBool,
    expired: AtomicBool,
    mended: AtomicU64,
    /// The time for which the target was stopped, in nanoseconds; 0 until it is released.
    held: AtomicU64,
    /// The time at which the target will be released; not set if it has no limit.
    deadline: OnceLock<Instant>,
}

/// A thread of the target, with its registers.
#[derive(Clone, Debug)]
pub struct StoppedThread {
    pub tid: i32,
    pub thread_pointer: u64,
    pub stack_pointer: u64,
    pub program_counter: u64,
    /// The general registers; empty if the thread was not stopped.
    pub general: Vec<u64>,
}

/// A process that is stopped until it is released or dropped, or its time is up.
pub struct Stop {
    shared: Arc<StopState>,
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    rows: Vec<ThreadRow>,
    limit: Option<Duration>,
}

/// The error of work that was not done because the target had already been released.
struct LetGo;

/// Run the tracer's thread: stop the process, do the jobs, and release the process on request or when the time is up.
fn hold(
    process: &ProcessFolder,
    limit: Option<Duration>,
    shared: &StopState,
    answer: Sender<StopResult>,
    jobs: Receiver<Job>,
) {
    raise_priority();
    let mut tracer = Tracer::new(process, limit);
    let stopped = tracer.stop(&shared.cancelled).map(|()| tracer.rows());
    shared.mended.store(tracer.mended, Ordering::Relaxed);
    if let Some((limit, since)) = limit.zip(tracer.since()) {
        let _ = shared.deadline.set(since + limit);
    }
    let failed = stopped.is_err();
    if answer.send(stopped).is_ok() && !failed {
        serve(&mut tracer, limit, shared, &jobs);
    }
    shared.gate.close();
    tracer.release();
    shared.held.store((tracer.held().as_nanos() as u64).max(1), Ordering::SeqCst);
}

fn serve(tracer: &mut Tracer, limit: Option<Duration>, shared: &StopState, jobs: &Receiver<Job>) {
    loop {
        let left = limit.zip(tracer.since()).map(|(limit, since)| limit.saturating_sub(since.elapsed()));
        let job = match left {
            Some(left) => jobs.recv_timeout(left),
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match job {
            Ok(job) => job(tracer),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                shared.expired.store(true, Ordering::SeqCst);
                return;
            }
        }
    }
}

impl Stop {
    /// Stop every thread of a process, for at most `limit`; None means without a limit.
    pub fn new(watcher: &dyn Watcher, process: &ProcessFolder, limit: Option<Duration>) -> Result<Stop> {
        let shared = Arc::new(StopState::default());
        let (jobs, waiting) = channel();
        let (answer, answered) = channel();
        let (theirs, process) = (shared.clone(), process.clone());
        let held = SignalsHeld::hold();
        let body = move || hold(&process, limit, &theirs, answer, waiting);
        let thread = std::thread::Builder::new().name("gdbheap tracer".into()).stack_size(256 << 10).spawn(body);
        drop(held);
        let thread = Mutex::new(Some(thread?));
        let mut stop = Stop { shared, jobs: Mutex::new(Some(jobs)), thread, rows: Vec::new(), limit };
        let answer = await_or_cancel(watcher, &answered, &stop.shared.cancelled)?;
        stop.rows = answer.unwrap_or(Err(Failure::Cancelled)).map_err(failed)?;
        Ok(stop)
    }

    /// Return the threads of the process, in ascending order of their ids.
    pub fn threads(&self) -> impl Iterator<Item = StoppedThread> + '_ {
        self.rows.iter().map(|(tid, stopped, registers)| {
            let Registers { thread_pointer, stack_pointer, program_counter, general } = *registers;
            let general = if *stopped { general.to_vec() } else { Vec::new() };
            StoppedThread { tid: *tid, thread_pointer, stack_pointer, program_counter, general }
        })
    }

    /// Return the threads that were not stopped, because they are in uninterruptible sleep.
    pub fn unstopped(&self) -> impl Iterator<Item = i32> + '_ {
        self.rows.iter().filter(|(_, stopped, _)| !stopped).map(|(tid, _, _)| *tid)
    }

    /// Return the gate that a space of this target must check.
    pub fn gate(&self) -> Arc<Gate> {
        self.shared.gate.clone()
    }

    /// Return the facts about a stopped thread by which the caller decides whether a call may be made in the thread.
    /// Fails if the thread is not stopped.
    pub fn look(&self, tid: i32) -> Result<ThreadFacts> {
        self.callable(tid)?;
        Ok(self.on_tracer(move |_| call::look(tid)).map_err(too_late)??)
    }

    /// Make calls in a stopped thread, within the time that the process may be stopped. Return the answer, and the time
    /// limit of the calls. ETIME if too little time is left to begin. The watcher may cancel the calls.
    pub fn call(&self, watcher: &dyn Watcher, tid: i32, mut plan: Plan) -> Result<(Answer, Duration)> {
        self.callable(tid)?;
        let (may_stand, cancelled) = (self.limit, plan.cancelled.clone());
        let made = move |tracer: &mut Tracer| {
            let stood = tracer.since().map_or(Duration::ZERO, |since| since.elapsed());
            let left = may_stand.map(|limit| limit.saturating_sub(stood + TO_PUT_BACK));
            if left.is_some_and(|left| left < SHORTEST_CALL) {
                return Err(io::Error::from_raw_os_error(libc::ETIME));
            }
            if !tracer.stands_whole() {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            plan.limit = left.map_or(plan.limit, |left| plan.limit.min(left));
            Ok((calling::call(tid, Style::Seized, &plan)?, plan.limit))
        };
        let answered = self.begin(made).map_err(too_late)?;
        Ok(await_or_cancel(watcher, &answered, &cancelled)?.map_err(too_late)??)
    }

    /// Let every thread continue as it was. A second call does nothing.
    pub fn release(&self) {
        self.end();
    }

    /// Return the time for which the process was stopped; None while it still is.
    pub fn held(&self) -> Option<Duration> {
        let held = self.shared.held.load(Ordering::SeqCst);
        (held > 0).then_some(Duration::from_nanos(held))
    }

    /// Return whether the process was released because the time limit was reached.
    pub fn expired(&self) -> bool {
        let shared = &self.shared;
        let stands = shared.held.load(Ordering::SeqCst) == 0;
        // The tracer's thread may not have run since the deadline.
        let is_over = stands && shared.deadline.get().is_some_and(|at| Instant::now() >= *at);
        is_over || shared.expired.load(Ordering::SeqCst)
    }

    /// Return how many reads were refused because they came after the release of the process.
    pub fn missed(&self) -> u64 {
        self.shared.gate.missed()
    }

    /// Return how many system calls were interrupted by the stop and restarted.
    pub fn mended(&self) -> u64 {
        self.shared.mended.load(Ordering::Relaxed)
    }

    /// Return an error for a thread that is not stopped.
    fn callable(&self, tid: i32) -> Result<()> {
        let held = self.rows.iter().any(|(known, stopped, _)| *known == tid && *stopped);
        held.then_some(()).ok_or_else(|| io::Error::from_raw_os_error(libc::EBUSY).into())
    }

    /// Run `work` on the thread that holds the target, and wait for it.
    fn on_tracer<R: Send + 'static>(&self, work: impl FnOnce(&mut Tracer) -> R + Send + 'static) -> Result<R, LetGo> {
        self.begin(work)?.recv().map_err(|_| LetGo)
    }

    fn begin<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tracer) -> R + Send + 'static,
    ) -> Result<Receiver<R>, LetGo> {
        let (answer, answered) = channel();
        let job: Job = Box::new(move |tracer| {
            let _ = answer.send(work(tracer));
        });
        let sender = self.jobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        sender.ok_or(LetGo)?.send(job).map_err(|_| LetGo)?;
        Ok(answered)
    }

    fn end(&self) {
        drop(take(&self.jobs));
        if let Some(thread) = take(&self.thread) {
            let _ = thread.join();
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.end();
    }
}

fn too_late(_: LetGo) -> Error {
    io::Error::from_raw_os_error(libc::ETIME).into()
}

fn failed(failure: Failure) -> Error {
    match failure {
        Failure::Os(error) => error.into(),
        Failure::Timeout(tid) => Error::Timeout(format!("thread {tid} does not stop")),
        Failure::Cancelled => Error::Timeout("cancelled".into()),
    }
}

/// Wait for the tracer's answer. If the watcher cancels, set `cancelled` and still wait for the answer, because the
/// tracer will end soon.
fn await_or_cancel<R>(
    watcher: &dyn Watcher,
    answered: &Receiver<R>,
    cancelled: &AtomicBool,
) -> Result<Result<R, LetGo>> {
    let mut interrupted = false;
    loop {
        match answered.recv_timeout(WAKE) {
            Ok(_) | Err(RecvTimeoutError::Disconnected) if interrupted => return Err(Error::Cancelled),
            Ok(answer) => return Ok(Ok(answer)),
            Err(RecvTimeoutError::Disconnected) => return Ok(Err(LetGo)),
            Err(RecvTimeoutError::Timeout) => {
                if watcher.check().is_err() {
                    cancelled.store(true, Ordering::Relaxed);
                    interrupted = true;
                }
            }
        }
    }
}
