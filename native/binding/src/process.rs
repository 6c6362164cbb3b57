//! Processes that stand still, and calls in their threads.

use crate::records::{field, records, Given, Read};
use crate::rows::{all, answers};
use crate::watch::{raised, watched};
use gdbheap_access::process::named::{self, Held};
use gdbheap_access::process::{self, Answer, Bytes, End, Look, Plan, ProcessFolder, Style, Thread};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashSet;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

/// What is called in a thread, and by which way it returns: the calls, the address of code that returns from a signal
/// handler (restorer), that of code that keeps a function's result (keeper) with the index of the register through which
/// it stores and the bytes by which it moves the stack pointer, the descriptor that is captured or -1, whether the thread
/// is filtered by seccomp, the limit in seconds, whether the thread finishes by itself after that, and what is put back
/// in any case, and after a call that was undone.
pub struct CallPlan {
    calls: Vec<FunctionCall>,
    restorer: u64,
    keeper: u64,
    keeper_register: usize,
    keeper_skips: u64,
    captured: i32,
    filtered: bool,
    limit: f64,
    leaves: bool,
    kept: Vec<Bytes>,
    freed: Vec<Bytes>,
}

/// A function's address, and its arguments.
type FunctionCall = (u64, Vec<u64>);

records! {
    CallPlan {
        calls, restorer, keeper, keeper_register, keeper_skips, captured, filtered, limit, leaves, kept, freed,
    }
}

answers! {
    /// A thread that stands still, and its general registers (`struct user_regs_struct`).
    struct ThreadState of Thread {
        tid: i32,
        thread_pointer: u64,
        stack_pointer: u64,
        program_counter: u64,
        general: Vec<u64>,
    }

    /// Bytes of a process by the kernel's sums: resident; of that its proportional share (`proportional`: how many lines
    /// said one, each cut to whole KiB), private, shared, anonymous, given back lazily; huge pages of hugetlbfs, which are
    /// in none of these; swapped, and the share of that, None where the kernel does not say. `fingerprint`: equal for
    /// equal texts.
    struct ProcessMemory of process::Memory {
        rss: u64,
        pss: u64,
        proportional: u64,
        private: u64,
        shared: u64,
        private_huge: u64,
        shared_huge: u64,
        anonymous: u64,
        lazy: u64,
        swap: u64,
        swap_share: Option<u64>,
        fingerprint: u64,
    }

    /// A process: its parent, its name as `status` has it, the path of its program, the words of its command with a NUL
    /// behind each, and its memory, None where that is refused (`error`: the number of the error).
    struct ProcessAccount {
        pid: i32,
        parent: i32,
        name: Vec<u8>,
        exe: Vec<u8>,
        command: Vec<u8>,
        memory: Option<ProcessMemory>,
        error: i32,
    }

    /// A file that is held by O_PATH: the descriptor, for the caller to close, its path without links, its status, and
    /// the kind of file system that it is on (statfs(2), f_type).
    struct HeldFile {
        descriptor: i32,
        path: OsString,
        device: u64,
        inode: u64,
        mode: u32,
        size: u64,
        kind: u32,
    }

    /// How calls ended: returned, abandoned, left, gone or `signal N`; the last result, the captured bytes, and the limit
    /// that they had in seconds.
    struct CallResult { end: String, value: u64, text: Vec<u8>, limit: f64 }

    /// What decides whether a call may be made in a thread: its registers, whether it has a shadow stack or dispatches its
    /// system calls, the word `rseq_cs`, whether it is entering a system call, and bytes of vector state.
    struct ThreadLook of Look {
        registers: Vec<u64>,
        shadow_stack: bool,
        dispatched: bool,
        sequence: u64,
        entering: bool,
        restartable: bool,
        vector_size: usize,
    }
}

const LONGEST: f64 = 1e9;

fn planned(given: CallPlan) -> PyResult<Plan> {
    let CallPlan { calls, restorer, keeper, keeper_register, keeper_skips, captured, filtered, limit, .. } = given;
    let fits = calls.iter().all(|(_, arguments)| arguments.len() <= 6);
    if !fits || !process::PRESERVED.contains(&keeper_register) || keeper_skips > 256 || keeper_skips % 8 != 0 {
        return Err(PyValueError::new_err("not a plan of a call"));
    }
    let limit = Duration::from_secs_f64(limit.clamp(0.0, 1e6));
    let cancelled = Arc::default();
    let CallPlan { leaves, kept, freed, .. } = given;
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

fn call_result(answer: Answer, limit: Duration) -> CallResult {
    let end = match answer.end {
        End::Returned => "returned".to_string(),
        End::Abandoned => "abandoned".to_string(),
        End::Left => "left".to_string(),
        End::Gone => "gone".to_string(),
        End::Failed(signal) => format!("signal {signal}"),
    };
    CallResult { end, value: answer.value, text: answer.text, limit: limit.as_secs_f64() }
}

fn duration(limit: Option<f64>) -> PyResult<Option<Duration>> {
    let limit = limit.map(|seconds| Duration::try_from_secs_f64(seconds.min(LONGEST))).transpose();
    limit.map_err(|_| PyValueError::new_err("the limit must be seconds, at least 0"))
}

fn os_error(error: io::Error) -> PyErr {
    raised(error.into())
}

/// The id of a process, which means whoever has it now; or an object with that (`pid`), and with the descriptor of the
/// folder in /proc that was opened when the process was named (`descriptor`).
impl Read for ProcessFolder {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<ProcessFolder> {
        let found = match object.extract::<i32>() {
            Ok(pid) => ProcessFolder::open(pid),
            Err(_) => ProcessFolder::of(field(object, "process", "pid")?, field(object, "process", "descriptor")?),
        };
        found.map_err(os_error)
    }
}

/// A process that stands still until it is released.
#[pyclass(frozen)]
pub struct Stop(pub process::Stop);

#[pymethods]
impl Stop {
    /// Stops every thread of a process, for `limit` seconds at most. Raises OSError (its errno tells why), TimeoutError,
    /// KeyboardInterrupt.
    #[new]
    #[pyo3(signature = (process, limit=None))]
    fn new(py: Python<'_>, process: Given<ProcessFolder>, limit: Option<f64>) -> PyResult<Stop> {
        let limit = duration(limit)?;
        Ok(Stop(watched(py, None, |watcher| process::Stop::new(watcher, &process.0, limit))?))
    }

    /// Each thread, by tid.
    #[getter]
    fn threads(&self) -> Vec<ThreadState> {
        all(self.0.threads())
    }

    /// The threads that sleep uninterruptibly and were not stopped.
    #[getter]
    fn unstopped(&self) -> Vec<i32> {
        self.0.unstopped().collect()
    }

    /// What decides whether a call may be made in a thread that stands still. Raises OSError.
    fn look(&self, py: Python<'_>, tid: i32) -> PyResult<ThreadLook> {
        py.detach(|| self.0.look(tid)).map(ThreadLook::from).map_err(raised)
    }

    /// Makes calls in a thread that stands still, for no longer than the process may stand. Raises OSError (ETIME where
    /// the time that is left is too short to begin), ValueError, KeyboardInterrupt once they have ended.
    fn call(&self, py: Python<'_>, tid: i32, plan: Given<CallPlan>) -> PyResult<CallResult> {
        let plan = planned(plan.0)?;
        let (answer, limit) = watched(py, None, |watcher| self.0.call(watcher, tid, plan))?;
        Ok(call_result(answer, limit))
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

/// An open file descriptor, which is closed with this: in no code of Python's, where Ctrl-C would come to nothing.
#[pyclass(frozen)]
pub struct Descriptor(OwnedFd);

#[pymethods]
impl Descriptor {
    /// Takes `number` over. Raises ValueError for what is no descriptor.
    #[new]
    fn new(number: i32) -> PyResult<Descriptor> {
        process::owned(number).map(Descriptor).ok_or_else(|| PyValueError::new_err("no descriptor"))
    }

    /// Its number.
    #[getter]
    fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// A copy of this very process that never runs, and the program that reads it.
#[pyclass(frozen)]
pub struct OwnCopy(process::OwnCopy);

#[pymethods]
impl OwnCopy {
    /// Copies this process, and has the copy start a program: its words, the first of which is its path and behind which
    /// comes the id of the copy, and its environment, as NAME=VALUE. No other thread of Python's runs meanwhile. The program has the copy's memory open
    /// as descriptor OWN_MEMORY. Raises OSError, ValueError.
    #[new]
    fn new(words: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> PyResult<OwnCopy> {
        let strings = |words: Vec<Vec<u8>>| words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let [words, environment] = [strings(words)?, strings(environment)?];
        Ok(OwnCopy(process::OwnCopy::start(&words, &environment)?))
    }

    /// The id of the copy.
    #[getter]
    fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// For how many seconds the calling thread stood.
    #[getter]
    fn paused(&self) -> f64 {
        self.0.paused().as_secs_f64()
    }

    /// Waits for the end of the program: its status and what it wrote. None where that takes longer than `limit` seconds, or it was
    /// waited for before; then both are ended. Raises KeyboardInterrupt and what handlers of signals raise, and both are ended, too.
    #[pyo3(signature = (limit=None))]
    fn wait<'py>(&self, py: Python<'py>, limit: Option<f64>) -> PyResult<Option<(i32, Bound<'py, PyBytes>)>> {
        let limit = duration(limit)?;
        let found = watched(py, None, |watcher| self.0.wait(watcher, limit))?;
        Ok(found.map(|ended| (ended.status, PyBytes::new(py, &ended.said))))
    }
}

/// A copy of a process that never runs.
#[pyclass(frozen)]
pub struct Frozen(process::Frozen);

#[pymethods]
impl Frozen {
    /// Stops a process and copies it. It stands until `let_go`, for `limit` seconds at most. Raises OSError, TimeoutError,
    /// RuntimeError (which says why no copy can be made), KeyboardInterrupt; the target then runs as before.
    #[new]
    #[pyo3(signature = (process, limit=None))]
    fn new(py: Python<'_>, process: Given<ProcessFolder>, limit: Option<f64>) -> PyResult<Frozen> {
        let limit = duration(limit)?;
        Ok(Frozen(watched(py, None, |watcher| process::Frozen::new(watcher, &process.0, limit))?))
    }

    /// The id of the copy.
    #[getter]
    fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// The descriptor of its folder in /proc, which stays open as long as this lives.
    #[getter]
    fn descriptor(&self) -> i32 {
        self.0.descriptor()
    }

    /// How many system calls that the stop had cut short were told to start again.
    #[getter]
    fn mended(&self) -> u64 {
        self.0.mended()
    }

    /// As Stop's.
    #[getter]
    fn threads(&self) -> Vec<ThreadState> {
        all(self.0.threads())
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

    /// Ends the copy and has the target collect it; whether that went well, which is waited for no longer than some seconds.
    /// ``seconds`` has that stop too then. A second call says True.
    fn end(&self, py: Python<'_>) -> PyResult<bool> {
        watched(py, None, |watcher| Ok(self.0.end(watcher)))
    }

    /// After `end`: the process that still waits for the end of the copy; None where there is none.
    #[getter]
    fn left(&self) -> Option<i32> {
        self.0.left()
    }
}

/// The kind of file system that an open file is on (statfs(2), f_type). Raises OSError.
#[pyfunction]
pub fn filesystem_of(descriptor: i32) -> PyResult<u32> {
    process::filesystem(descriptor).map_err(os_error)
}

/// Has the kernel send this process a signal when the thread that made it ends; whether `parent` still is its parent.
#[pyfunction]
pub fn end_with_parent(parent: i32, signal: i32) -> bool {
    process::end_with_parent(parent, signal)
}

/// Whether a process that is no thread of `pid` has the same memory (clone(2), CLONE_VM). False where that cannot be told.
/// Raises TimeoutError where too many processes do not say.
#[pyfunction]
pub fn has_sharer(py: Python<'_>, pid: i32) -> PyResult<bool> {
    py.detach(|| process::has_sharer(pid)).map_err(os_error)
}

/// Whether all of these processes have the same memory (clone(2), CLONE_VM). False where that cannot be told.
#[pyfunction]
pub fn have_one_memory(py: Python<'_>, pids: Vec<i32>) -> bool {
    py.detach(|| process::have_one_memory(&pids))
}

/// What decides whether a call may be made in a thread that this thread's debugger holds. Raises OSError.
#[pyfunction]
pub fn look_at_thread(tid: i32) -> PyResult<ThreadLook> {
    process::look(tid).map(ThreadLook::from).map_err(os_error)
}

/// Makes a call in a thread that is attached to by PTRACE_ATTACH, as gdb does. Raises OSError, ValueError.
#[pyfunction]
pub fn call_in_thread(py: Python<'_>, tid: i32, plan: Given<CallPlan>) -> PyResult<CallResult> {
    let plan = planned(plan.0)?;
    let answer = py.detach(|| process::call(tid, Style::Attached, &plan)).map_err(os_error)?;
    Ok(call_result(answer, plan.limit))
}

impl From<process::Account> for ProcessAccount {
    fn from(row: process::Account) -> ProcessAccount {
        let process::Account { pid, parent, name, exe, command, memory, error } = row;
        ProcessAccount { pid, parent, name, exe, command, memory: memory.map(ProcessMemory::from), error }
    }
}

/// Ends this process by `line` and status 1 from now on where a signal that asks for its end (SIGINT, SIGTERM, SIGHUP) waits
/// for 2 s while the first thread waits in the kernel, deaf to it. A second call does nothing.
#[pyfunction]
pub fn end_where_deaf(line: Vec<u8>) {
    gdbheap_access::signals::end_where_deaf(line);
}

/// The first `limit` bytes of a file in the folder of a process in /proc. Raises TimeoutError where the kernel waits in vain
/// for the lock of its memory map, or for its execve().
#[pyfunction]
pub fn read_patiently<'py>(py: Python<'py>, path: &str, limit: u64) -> PyResult<Bound<'py, PyBytes>> {
    let found = py.detach(|| gdbheap_access::patient::read_patiently(path.as_ref(), limit)).map_err(os_error)?;
    Ok(PyBytes::new(py, &found))
}

/// A descriptor (O_PATH) of what a folder that is open has by a name; a link is not followed. Raises OSError, also where the kernel
/// would have to look into the folder, and might wait for its lock.
#[pyfunction]
pub fn hold_known(folder: i32, name: OsString) -> PyResult<i32> {
    let name = CString::new(name.into_vec())?;
    process::hold_known(folder, &name).map(OwnedFd::into_raw_fd).map_err(os_error)
}

/// The data that a process gave to epoll with all that its epolls watch, ascending, each once, and whether that is all.
/// `folder`: of the process in /proc; `numbers`: its descriptors of epolls. Raises OSError, TimeoutError where the kernel waits in
/// vain for the lock of one.
#[pyfunction]
pub fn watched_by_epolls(py: Python<'_>, folder: &str, numbers: Vec<i32>) -> PyResult<(Vec<u64>, bool)> {
    py.detach(|| process::watched(folder.as_ref(), &numbers)).map_err(os_error)
}

/// `size` bytes of such a file from an offset on; fewer at its end. Raises as `read_patiently`.
#[pyfunction]
pub fn read_at_patiently<'py>(py: Python<'py>, path: &str, offset: u64, size: usize) -> PyResult<Bound<'py, PyBytes>> {
    let found =
        py.detach(|| gdbheap_access::patient::read_at_patiently(path.as_ref(), offset, size)).map_err(os_error)?;
    Ok(PyBytes::new(py, &found))
}

/// Where a link in such a folder leads. Raises as `read_patiently`.
#[pyfunction]
pub fn read_link_patiently(py: Python<'_>, path: &str) -> PyResult<OsString> {
    py.detach(|| gdbheap_access::patient::read_link_patiently(path.as_ref())).map(OsString::from).map_err(os_error)
}

/// A descriptor of such a file, open to read, and to write if `writable`. Raises as `read_patiently`.
#[pyfunction]
pub fn open_patiently(py: Python<'_>, path: &str, writable: bool) -> PyResult<i32> {
    let found = py.detach(|| gdbheap_access::patient::open_patiently(path.as_ref(), writable)).map_err(os_error)?;
    Ok(found.into_raw_fd())
}

impl From<Held> for HeldFile {
    fn from(held: Held) -> HeldFile {
        let Held { file, path, found, kind } = held;
        let (device, inode, mode, size) = (found.dev(), found.ino(), found.mode(), found.size());
        HeldFile { descriptor: file.into_raw_fd(), path: path.into(), device, inode, mode, size, kind }
    }
}

/// Holds a file by O_PATH, whatever links lead to it; without `follows` a link at the end is held itself. For paths of our own
/// and of who may name any file. Raises OSError, TimeoutError where nobody answers for it.
#[pyfunction]
#[pyo3(signature = (path, follows=true))]
pub fn hold_file(py: Python<'_>, path: OsString, follows: bool) -> PyResult<HeldFile> {
    py.detach(|| named::hold(path.as_ref(), follows)).map(HeldFile::from).map_err(os_error)
}

/// Holds a file that a target names below its `root` folder, where absolute links begin, too. Raises OSError (EXDEV
/// where the path leads to another mount than those with the ids `mounts`; with `checks_root` the folder's own counts),
/// TimeoutError where nobody answers.
#[pyfunction]
pub fn walk_to_file(
    py: Python<'_>,
    root: OsString,
    path: OsString,
    mounts: HashSet<u64>,
    checks_root: bool,
) -> PyResult<HeldFile> {
    py.detach(|| named::walk(root.as_ref(), path.as_ref(), mounts, checks_root)).map(HeldFile::from).map_err(os_error)
}

/// A descriptor that reads the very file that `held` holds by O_PATH, which is closed. Raises OSError, TimeoutError
/// where nobody answers.
#[pyfunction]
pub fn reopen_file(py: Python<'_>, held: i32) -> PyResult<i32> {
    let file = process::owned(held).ok_or_else(|| PyValueError::new_err("no descriptor"))?;
    let found = py.detach(|| named::reopen(file.into())).map_err(os_error)?;
    Ok(found.into_raw_fd())
}

/// What the kernel says of the memory of processes, by their ids, or of all; ascending. Of those that are gone or have no
/// memory (kernel threads, zombies) there is no row. `root`: where proc is mounted. Raises OSError, KeyboardInterrupt.
#[pyfunction]
#[pyo3(signature = (root, pids=None))]
pub fn process_accounts(py: Python<'_>, root: &str, pids: Option<Vec<i32>>) -> PyResult<Vec<ProcessAccount>> {
    let pids = match pids {
        Some(pids) => pids,
        None => process::every_process(root).map_err(os_error)?,
    };
    Ok(all(watched(py, None, |watcher| process::accounts(watcher, root, &pids))?))
}
