//! Stops every thread of a process by ptrace and lets them go again.
//!
//! PTRACE_SEIZE with PTRACE_INTERRUPT neither sends a signal nor disturbs a job-control stop, and the kernel detaches
//! by itself when the tracer dies, however it dies: the target always runs on.

use crate::call::{self, Style};
use crate::calling::{answer_row, look_row, plan, AnswerRow, LookRow, PlanRow};
use crate::space::os_error;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::io::Error;
use std::time::{Duration, Instant};

const PTRACE_EVENT_STOP: i32 = 128;
const PATIENCE: Duration = Duration::from_secs(10);

/// Registers of one stopped thread: the thread pointer, the stack pointer, the program counter, the general ones.
#[derive(Clone, Copy, Default)]
struct Registers {
    thread_pointer: u64,
    stack_pointer: u64,
    program_counter: u64,
    general: [u64; GENERAL],
}

#[derive(Clone, Copy, Default)]
struct Thread {
    stopped: bool,
    pending_signal: i32,
    registers: Registers,
}

#[pyclass(unsendable)]
pub struct Stop {
    pid: i32,
    threads: BTreeMap<i32, Thread>,
    since: Instant,
    seconds: Option<f64>,
}

fn request(kind: libc::c_uint, tid: i32, data: u64) -> Result<(), Error> {
    // SAFETY: the requests used here (SEIZE, INTERRUPT, DETACH) take no pointers.
    let answer = unsafe { libc::ptrace(kind as _, tid, std::ptr::null_mut::<libc::c_void>(), data) };
    if answer < 0 {
        return Err(Error::last_os_error());
    }
    Ok(())
}

fn register_set<const N: usize>(tid: i32, kind: i32) -> Option<[u64; N]> {
    let mut words = [0u64; N];
    let mut vector = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: N * 8 };
    // SAFETY: the vector describes `words`, and the kernel writes no more than its length.
    let answer = unsafe { libc::ptrace(libc::PTRACE_GETREGSET as _, tid, kind as usize, &mut vector) };
    (answer == 0).then_some(words)
}

#[cfg(target_arch = "x86_64")]
const GENERAL: usize = 15;
#[cfg(target_arch = "aarch64")]
const GENERAL: usize = 31;

/// `struct user_regs_struct`: the general ones are words 0 to 14, rip is 16, rsp 19, fs_base 21.
#[cfg(target_arch = "x86_64")]
fn registers(tid: i32) -> Option<Registers> {
    let words = register_set::<27>(tid, 1)?;
    let general = std::array::from_fn(|number| words[number]);
    Some(Registers { program_counter: words[16], stack_pointer: words[19], thread_pointer: words[21], general })
}

/// `struct user_pt_regs`: sp is word 31, pc 32; tpidr_el0 is in NT_ARM_TLS.
#[cfg(target_arch = "aarch64")]
fn registers(tid: i32) -> Option<Registers> {
    let words = register_set::<34>(tid, 1)?;
    let tls = register_set::<1>(tid, 0x401)?;
    let general = std::array::from_fn(|number| words[number]);
    Some(Registers { program_counter: words[32], stack_pointer: words[31], thread_pointer: tls[0], general })
}

impl Stop {
    /// An error for a thread that is not held, or to which a signal is being delivered.
    fn callable(&self, tid: i32) -> PyResult<()> {
        let held = self.threads.get(&tid).is_some_and(|thread| thread.stopped && thread.pending_signal == 0);
        held.then_some(()).ok_or_else(|| os_error(Error::from_raw_os_error(libc::EBUSY)))
    }

    fn tasks(&self) -> Result<Vec<i32>, Error> {
        let entries = std::fs::read_dir(format!("/proc/{}/task", self.pid))?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// Seizes and interrupts the threads that are not ours yet; says how many there were.
    fn seize_new(&mut self) -> Result<usize, Error> {
        let mut fresh = 0;
        for tid in self.tasks()? {
            if self.threads.contains_key(&tid) {
                continue;
            }
            match request(libc::PTRACE_SEIZE, tid, 0) {
                Ok(()) => {}
                // A thread other than the first may end between the listing and the request.
                Err(error) if tid != self.pid && error.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(error) => return Err(error),
            }
            self.threads.insert(tid, Thread::default());
            let _ = request(libc::PTRACE_INTERRUPT, tid, 0);
            fresh += 1;
        }
        Ok(fresh)
    }

    /// Looks once whether a thread has stopped; drops it if it has ended.
    fn poll(&mut self, tid: i32) {
        let mut status = 0;
        // SAFETY: the kernel writes one integer.
        let answer = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) };
        if answer == 0 {
            return;
        }
        if answer < 0 || libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            self.threads.remove(&tid);
            return;
        }
        let event = status >> 16;
        let pending_signal = if event == PTRACE_EVENT_STOP { 0 } else { libc::WSTOPSIG(status) };
        let registers = registers(tid).unwrap_or_default();
        self.threads.insert(tid, Thread { stopped: true, pending_signal, registers });
    }

    fn await_all(&mut self, py: Python<'_>) -> PyResult<()> {
        let began = Instant::now();
        loop {
            let waiting: Vec<i32> = self.threads.iter().filter(|(_, t)| !t.stopped).map(|(tid, _)| *tid).collect();
            if waiting.is_empty() {
                return Ok(());
            }
            for tid in &waiting {
                self.poll(*tid);
            }
            if began.elapsed() > PATIENCE {
                let message = format!("thread {} does not stop (it sleeps uninterruptibly in the kernel)", waiting[0]);
                return Err(PyTimeoutError::new_err(message));
            }
            if began.elapsed() > Duration::from_millis(2) {
                py.detach(|| std::thread::sleep(Duration::from_micros(200)));
                py.check_signals()?;
            }
        }
    }

    fn let_go(&mut self) {
        for (tid, thread) in std::mem::take(&mut self.threads) {
            // A thread that has not reported its stop yet cannot be detached: it is waited for, briefly.
            let mut thread = thread;
            for _ in 0..1000 {
                if thread.stopped {
                    break;
                }
                self.threads.insert(tid, thread);
                self.poll(tid);
                match self.threads.remove(&tid) {
                    Some(polled) => thread = polled,
                    None => break,
                }
                std::thread::sleep(Duration::from_micros(100));
            }
            let _ = request(libc::PTRACE_DETACH, tid, thread.pending_signal as u64);
        }
        self.seconds.get_or_insert(self.since.elapsed().as_secs_f64());
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.let_go();
    }
}

#[pymethods]
impl Stop {
    /// Stops every thread of `pid`. Raises OSError (its errno tells why), TimeoutError, KeyboardInterrupt.
    #[new]
    fn new(py: Python<'_>, pid: i32) -> PyResult<Stop> {
        let mut stop = Stop { pid, threads: BTreeMap::new(), since: Instant::now(), seconds: None };
        // Each round may find threads that the ones not yet stopped have started since.
        while stop.seize_new().map_err(os_error)? > 0 {
            stop.await_all(py)?;
        }
        Ok(stop)
    }

    /// `(tid, thread pointer, stack pointer, program counter, general registers)` of each thread, by tid.
    #[getter]
    fn threads(&self) -> Vec<(i32, u64, u64, u64, Vec<u64>)> {
        let row = |(tid, thread): (&i32, &Thread)| {
            let Registers { thread_pointer, stack_pointer, program_counter, general } = thread.registers;
            (*tid, thread_pointer, stack_pointer, program_counter, general.to_vec())
        };
        self.threads.iter().map(row).collect()
    }

    /// What decides whether a call may be made in a thread that stands still. Raises OSError.
    fn look(&self, tid: i32) -> PyResult<LookRow> {
        self.callable(tid)?;
        Ok(look_row(call::look(tid).map_err(os_error)?))
    }

    /// Calls a function in a thread that stands still. Raises OSError, ValueError.
    fn call(&self, py: Python<'_>, tid: i32, row: PlanRow) -> PyResult<AnswerRow> {
        self.callable(tid)?;
        let plan = plan(row)?;
        let answer = py.detach(|| call::call(tid, Style::Seized, &plan));
        Ok(answer_row(answer.map_err(os_error)?))
    }

    /// Lets every thread go on as it was. A second call does nothing.
    fn release(&mut self) {
        self.let_go();
    }

    /// For how long the process has stood still, in seconds; final after `release`.
    #[getter]
    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or_else(|| self.since.elapsed().as_secs_f64())
    }
}
