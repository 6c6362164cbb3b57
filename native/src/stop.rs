//! A process that stands still, held by a thread of ours that does nothing else.
//!
//! Every request of ptrace has to come from the thread that seized the target. That thread also keeps the time: it lets
//! the target go when it was told to, whatever the rest of this process is doing then.

use crate::call::{self, Style};
use crate::calling::{answer_row, look_row, plan, AnswerRow, LookRow, PlanRow};
use crate::space::os_error;
use crate::tracer::{Failure, Registers, Tracer};
use crate::work::SignalsHeld;
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use std::io::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WAKE: Duration = Duration::from_millis(20);
const LONGEST: f64 = 1e9;
/// A call is not begun for less than this, and the rest is for what comes after it.
const SHORTEST_CALL: Duration = Duration::from_millis(500);
const TO_PUT_BACK: Duration = Duration::from_millis(200);

type Row = (i32, bool, Registers);
type Job = Box<dyn FnOnce(&mut Tracer) + Send>;
type Stopped = Result<Vec<Row>, Failure>;

/// Whether the target still stands. It is closed before the target is let go: whoever reads a byte and finds the gate
/// open afterwards has read it in time.
#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    missed: AtomicU64,
}

impl Gate {
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    /// Counts a read that came too late.
    pub fn miss(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

/// What the tracer's thread and the others both see.
#[derive(Default)]
struct Shared {
    gate: Arc<Gate>,
    cancelled: AtomicBool,
    expired: AtomicBool,
    mended: AtomicU64,
    /// Nanoseconds, once the target was let go.
    held: AtomicU64,
    /// When it will be let go, if it has a limit.
    deadline: OnceLock<Instant>,
}

#[pyclass(frozen)]
pub struct Stop {
    shared: Arc<Shared>,
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    rows: Vec<Row>,
    limit: Option<Duration>,
}

/// The target was let go before this could be done.
#[derive(Debug)]
pub struct LetGo;

/// The life of the tracer's thread: stop, do what is asked for, let go when told to or when the time is up.
fn hold(pid: i32, limit: Option<Duration>, shared: &Shared, answer: Sender<Stopped>, jobs: Receiver<Job>) {
    raise_priority();
    let mut tracer = Tracer::new(pid, limit);
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

fn serve(tracer: &mut Tracer, limit: Option<Duration>, shared: &Shared, jobs: &Receiver<Job>) {
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

/// This thread's own, where that is allowed: while it waits for a processor the target stands still.
fn raise_priority() {
    // SAFETY: two numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

impl Stop {
    /// An error for a thread that does not stand still.
    fn callable(&self, tid: i32) -> PyResult<()> {
        let held = self.rows.iter().any(|(known, stopped, _)| *known == tid && *stopped);
        held.then_some(()).ok_or_else(|| os_error(Error::from_raw_os_error(libc::EBUSY)))
    }

    /// The gate that a Space of this target has to look at.
    pub fn gate(&self) -> Arc<Gate> {
        self.shared.gate.clone()
    }

    /// Runs `work` on the thread that holds the target, and waits for it. Give the GIL away meanwhile.
    pub fn on_tracer<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tracer) -> R + Send + 'static,
    ) -> Result<R, LetGo> {
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
        drop(self.jobs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take());
        let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.end();
    }
}

fn too_late(_: LetGo) -> PyErr {
    os_error(Error::from_raw_os_error(libc::ETIME))
}

fn failed(failure: Failure) -> PyErr {
    match failure {
        Failure::Os(error) => os_error(error),
        Failure::Timeout(tid) => PyTimeoutError::new_err(format!("thread {tid} does not stop")),
        Failure::Cancelled => PyTimeoutError::new_err("cancelled"),
    }
}

/// Waits for the tracer's answer with the GIL given away; Ctrl-C sets `cancelled`, and the answer is waited for all the
/// same: what the tracer does then ends soon.
fn await_or_cancel<R: Send>(
    py: Python<'_>,
    answered: &Mutex<Receiver<R>>,
    cancelled: &AtomicBool,
) -> PyResult<Result<R, LetGo>> {
    let mut interrupted = None;
    loop {
        let look = || answered.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv_timeout(WAKE);
        match py.detach(look) {
            Ok(answer) => return interrupted.map_or(Ok(Ok(answer)), Err),
            Err(RecvTimeoutError::Disconnected) => return interrupted.map_or(Ok(Err(LetGo)), Err),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = py.check_signals() {
                    cancelled.store(true, Ordering::Relaxed);
                    interrupted = Some(error);
                }
            }
        }
    }
}

#[pymethods]
impl Stop {
    /// Stops every thread of `pid`, for `limit` seconds at most. Raises OSError (its errno tells why), TimeoutError,
    /// KeyboardInterrupt.
    #[new]
    #[pyo3(signature = (pid, limit=None))]
    fn new(py: Python<'_>, pid: i32, limit: Option<f64>) -> PyResult<Stop> {
        let limit = limit.map(|seconds| Duration::try_from_secs_f64(seconds.min(LONGEST))).transpose();
        let limit = limit.map_err(|_| PyValueError::new_err("the limit must be seconds, at least 0"))?;
        let shared = Arc::new(Shared::default());
        let (jobs, waiting) = channel();
        let (answer, answered) = channel();
        let theirs = shared.clone();
        let held = SignalsHeld::new();
        let body = move || hold(pid, limit, &theirs, answer, waiting);
        let thread = std::thread::Builder::new().name("gdbheap tracer".into()).stack_size(256 << 10).spawn(body);
        drop(held);
        let thread = thread.map_err(os_error)?;
        let mut stop =
            Stop { shared, jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)), rows: Vec::new(), limit };
        let answer = await_or_cancel(py, &Mutex::new(answered), &stop.shared.cancelled)?;
        stop.rows = answer.unwrap_or(Err(Failure::Cancelled)).map_err(failed)?;
        Ok(stop)
    }

    /// `(tid, thread pointer, stack pointer, program counter, general registers)` of each thread, by tid.
    #[getter]
    fn threads(&self) -> Vec<(i32, u64, u64, u64, Vec<u64>)> {
        let row = |(tid, stopped, registers): &Row| {
            let Registers { thread_pointer, stack_pointer, program_counter, general } = *registers;
            let general = if *stopped { general.to_vec() } else { Vec::new() };
            (*tid, thread_pointer, stack_pointer, program_counter, general)
        };
        self.rows.iter().map(row).collect()
    }

    /// The threads that sleep uninterruptibly and were not stopped.
    #[getter]
    fn unstopped(&self) -> Vec<i32> {
        self.rows.iter().filter(|(_, stopped, _)| !stopped).map(|(tid, _, _)| *tid).collect()
    }

    /// What decides whether a call may be made in a thread that stands still. Raises OSError.
    fn look(&self, py: Python<'_>, tid: i32) -> PyResult<LookRow> {
        self.callable(tid)?;
        let look = py.detach(|| self.on_tracer(move |_| call::look(tid)));
        Ok(look_row(look.map_err(too_late)?.map_err(os_error)?))
    }

    /// Makes calls in a thread that stands still, for no longer than the process may stand. Raises OSError (ETIME where
    /// the time that is left is too short to begin), ValueError, KeyboardInterrupt once they have ended.
    fn call(&self, py: Python<'_>, tid: i32, row: PlanRow) -> PyResult<AnswerRow> {
        self.callable(tid)?;
        let mut plan = plan(row)?;
        let (may_stand, cancelled) = (self.limit, plan.cancelled.clone());
        let made = move |tracer: &mut Tracer| {
            let stood = tracer.since().map_or(Duration::ZERO, |since| since.elapsed());
            let left = may_stand.map(|limit| limit.saturating_sub(stood + TO_PUT_BACK));
            if left.is_some_and(|left| left < SHORTEST_CALL) {
                return Err(Error::from_raw_os_error(libc::ETIME));
            }
            plan.limit = left.map_or(plan.limit, |left| plan.limit.min(left));
            Ok((call::call(tid, Style::Seized, &plan)?, plan.limit))
        };
        let answered = Mutex::new(self.begin(made).map_err(too_late)?);
        let answer = await_or_cancel(py, &answered, &cancelled)?.map_err(too_late)?;
        let (answer, limit) = answer.map_err(os_error)?;
        Ok(answer_row(answer, limit))
    }

    /// Lets every thread go on as it was. A second call does nothing.
    fn release(&self, py: Python<'_>) {
        py.detach(|| self.end());
    }

    /// For how long the process stood still, in seconds; None while it does.
    #[getter]
    fn seconds(&self) -> Option<f64> {
        let held = self.shared.held.load(Ordering::SeqCst);
        (held > 0).then_some(held as f64 / 1e9)
    }

    /// Whether the process was let go because its time was up.
    #[getter]
    fn expired(&self) -> bool {
        let shared = &self.shared;
        let stands = shared.held.load(Ordering::SeqCst) == 0;
        // The tracer's thread may not have had a processor since.
        let is_over = stands && shared.deadline.get().is_some_and(|at| Instant::now() >= *at);
        is_over || shared.expired.load(Ordering::SeqCst)
    }

    /// How many reads came after the process was let go, and were refused.
    #[getter]
    fn missed(&self) -> u64 {
        self.shared.gate.missed()
    }

    /// How many system calls that the stop had cut short were told to start again.
    #[getter]
    fn mended(&self) -> u64 {
        self.shared.mended.load(Ordering::Relaxed)
    }
}
