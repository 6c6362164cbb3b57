//! Processes that stand still, and calls in their threads.

use crate::watch::{raised, watched};
use gdbheap_core::process::{self, Answer, End, Look, Plan, Style, Thread};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// `(tid, thread pointer, stack pointer, program counter, general registers)`.
type ThreadRow = (i32, u64, u64, u64, Vec<u64>);

/// `([(function, arguments)], restorer, keeper, index of keeper's register, bytes by which keeper moves the stack
/// pointer, descriptor that is captured or -1, whether the thread is filtered by seccomp, limit in seconds, whether the
/// thread finishes by itself after that, [(address, bytes)] to put back in any case, and after a call that was undone)`.
type PlanRow =
    (Vec<(u64, Vec<u64>)>, u64, u64, usize, u64, i32, bool, f64, bool, Vec<(u64, Vec<u8>)>, Vec<(u64, Vec<u8>)>);

/// `("returned", "abandoned", "left", "gone" or "signal N", result, captured bytes, the limit that it had in seconds)`.
type AnswerRow = (String, u64, Vec<u8>, f64);

/// `(registers, shadow stack, syscall user dispatch, rseq_cs, entering a system call, bytes of vector state)`.
type LookRow = (Vec<u64>, bool, bool, u64, bool, usize);

/// Registers in which a caller's value survives a function: rbx, rbp, r12 to r15 of `user_regs_struct`.
const KEPT: [usize; 6] = [5, 4, 3, 2, 1, 0];
const LONGEST: f64 = 1e9;

fn thread_row(thread: Thread) -> ThreadRow {
    let Thread { tid, thread_pointer, stack_pointer, program_counter, general } = thread;
    (tid, thread_pointer, stack_pointer, program_counter, general)
}

fn plan(row: PlanRow) -> PyResult<Plan> {
    let (calls, restorer, keeper, keeper_register, keeper_skips, captured, filtered, limit, leaves, kept, freed) = row;
    let fits = calls.iter().all(|(_, arguments)| arguments.len() <= 6);
    if !fits || !KEPT.contains(&keeper_register) || keeper_skips > 256 || keeper_skips % 8 != 0 {
        return Err(PyValueError::new_err("not a plan of a call"));
    }
    let limit = Duration::from_secs_f64(limit.clamp(0.0, 1e6));
    let cancelled = Arc::default();
    Ok(Plan {
        calls,
        restorer,
        keeper,
        keeper_register,
        keeper_skips,
        captured,
        filtered,
        limit,
        cancelled,
        leaves,
        kept,
        freed,
    })
}

fn answer_row(answer: Answer, limit: Duration) -> AnswerRow {
    let end = match answer.end {
        End::Returned => "returned".to_string(),
        End::Abandoned => "abandoned".to_string(),
        End::Left => "left".to_string(),
        End::Gone => "gone".to_string(),
        End::Failed(signal) => format!("signal {signal}"),
    };
    (end, answer.value, answer.text, limit.as_secs_f64())
}

fn look_row(look: Look) -> LookRow {
    let Look { registers, shadow_stack, dispatched, sequence, entering, vector_size } = look;
    (registers, shadow_stack, dispatched, sequence, entering, vector_size)
}

fn duration(limit: Option<f64>) -> PyResult<Option<Duration>> {
    let limit = limit.map(|seconds| Duration::try_from_secs_f64(seconds.min(LONGEST))).transpose();
    limit.map_err(|_| PyValueError::new_err("the limit must be seconds, at least 0"))
}

fn os_error(error: io::Error) -> PyErr {
    raised(error.into())
}

/// A process that stands still until it is released.
#[pyclass(frozen)]
pub struct Stop(pub process::Stop);

#[pymethods]
impl Stop {
    /// Stops every thread of `pid`, for `limit` seconds at most. Raises OSError (its errno tells why), TimeoutError,
    /// KeyboardInterrupt.
    #[new]
    #[pyo3(signature = (pid, limit=None))]
    fn new(py: Python<'_>, pid: i32, limit: Option<f64>) -> PyResult<Stop> {
        let limit = duration(limit)?;
        Ok(Stop(watched(py, None, |watcher| process::Stop::new(watcher, pid, limit))?))
    }

    /// `(tid, thread pointer, stack pointer, program counter, general registers)` of each thread, by tid.
    #[getter]
    fn threads(&self) -> Vec<ThreadRow> {
        self.0.threads().map(thread_row).collect()
    }

    /// The threads that sleep uninterruptibly and were not stopped.
    #[getter]
    fn unstopped(&self) -> Vec<i32> {
        self.0.unstopped().collect()
    }

    /// What decides whether a call may be made in a thread that stands still. Raises OSError.
    fn look(&self, py: Python<'_>, tid: i32) -> PyResult<LookRow> {
        py.detach(|| self.0.look(tid)).map(look_row).map_err(raised)
    }

    /// Makes calls in a thread that stands still, for no longer than the process may stand. Raises OSError (ETIME where
    /// the time that is left is too short to begin), ValueError, KeyboardInterrupt once they have ended.
    fn call(&self, py: Python<'_>, tid: i32, row: PlanRow) -> PyResult<AnswerRow> {
        let plan = plan(row)?;
        let (answer, limit) = watched(py, None, |watcher| self.0.call(watcher, tid, plan))?;
        Ok(answer_row(answer, limit))
    }

    /// Lets every thread go on as it was. A second call does nothing.
    fn release(&self, py: Python<'_>) {
        py.detach(|| self.0.release());
    }

    /// For how long the process stood still, in seconds; None while it does.
    #[getter]
    fn seconds(&self) -> Option<f64> {
        self.0.held().map(|held| held.as_secs_f64())
    }

    /// Whether the process was let go because its time was up.
    #[getter]
    fn expired(&self) -> bool {
        self.0.expired()
    }

    /// How many reads came after the process was let go, and were refused.
    #[getter]
    fn missed(&self) -> u64 {
        self.0.missed()
    }

    /// How many system calls that the stop had cut short were told to start again.
    #[getter]
    fn mended(&self) -> u64 {
        self.0.mended()
    }
}

/// A copy of a process that nobody runs.
#[pyclass(frozen)]
pub struct Frozen(process::Frozen);

#[pymethods]
impl Frozen {
    /// Stops `pid` and copies it. It stands until `let_go`, for `limit` seconds at most. Raises OSError, TimeoutError,
    /// RuntimeError (which says why no copy can be made), KeyboardInterrupt; the target then runs as before.
    #[new]
    #[pyo3(signature = (pid, limit=None))]
    fn new(py: Python<'_>, pid: i32, limit: Option<f64>) -> PyResult<Frozen> {
        let limit = duration(limit)?;
        Ok(Frozen(watched(py, None, |watcher| process::Frozen::new(watcher, pid, limit))?))
    }

    /// The id of the copy.
    #[getter]
    fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// How many system calls that the stop had cut short were told to start again.
    #[getter]
    fn mended(&self) -> u64 {
        self.0.mended()
    }

    /// As Stop's.
    #[getter]
    fn threads(&self) -> Vec<ThreadRow> {
        self.0.threads().map(thread_row).collect()
    }

    /// As Stop's.
    #[getter]
    fn unstopped(&self) -> Vec<i32> {
        self.0.unstopped().collect()
    }

    /// For how long the target stood still, in seconds; None while it does.
    #[getter]
    fn seconds(&self) -> Option<f64> {
        self.0.held().map(|held| held.as_secs_f64())
    }

    /// Whether it was let go because its time was up, before `let_go`.
    #[getter]
    fn expired(&self) -> bool {
        self.0.expired()
    }

    /// Reads of a copy are never too late, but it may have been killed: 1 then.
    #[getter]
    fn missed(&self) -> u64 {
        self.0.missed()
    }

    /// Lets the target run; the copy stays.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        watched(py, None, |watcher| self.0.let_go(watcher))
    }

    /// Ends the copy and has the target collect it; whether that went well. ``seconds`` has that stop too then. A second
    /// call says True.
    fn end(&self, py: Python<'_>) -> PyResult<bool> {
        watched(py, None, |watcher| Ok(self.0.end(watcher)))
    }
}

/// What decides whether a call may be made in a thread that this thread's debugger holds. Raises OSError.
#[pyfunction]
pub fn look_at_thread(tid: i32) -> PyResult<LookRow> {
    process::look(tid).map(look_row).map_err(os_error)
}

/// Makes a call in a thread that is attached to by PTRACE_ATTACH, as gdb does. Raises OSError, ValueError.
#[pyfunction]
pub fn call_in_thread(py: Python<'_>, tid: i32, row: PlanRow) -> PyResult<AnswerRow> {
    let plan = plan(row)?;
    let answer = py.detach(|| process::call(tid, Style::Attached, &plan)).map_err(os_error)?;
    Ok(answer_row(answer, plan.limit))
}
