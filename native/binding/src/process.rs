//! Stops processes, copies processes, makes calls in their threads, and opens files that they name.

use crate::detaching::detached;
use crate::records::{field, records, Argument, FromObject};
use crate::rows::{all, answers, exports};
use crate::watch::{raised, watched};
use gdbheap_access::process::path_file::{self, PathFile};
use gdbheap_access::process::{self, Answer, Bytes, End, Plan, ProcessFolder, StoppedThread, Style, ThreadFacts};
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

/// Calls to make in a thread, and the way in which the thread returns from them.
///
/// - `restorer`: the address of code that returns from a signal handler.
/// - `keeper`: the address of code that stores a function's result through the register `keeper_register`, and moves
///   the stack pointer by `keeper_skips` bytes.
/// - `captured`: the file descriptor whose output is captured; -1 for none.
/// - `filtered`: whether the thread has a seccomp filter.
/// - `limit`: the time limit for all calls together, in seconds.
/// - `leaves`: whether the thread finishes the call on its own after the limit.
/// - `kept`: bytes that are restored after the calls. `freed`: bytes that are also restored if a call was undone.
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

/// The address of a function, and the arguments of the call.
type FunctionCall = (u64, Vec<u64>);

records! {
    CallPlan {
        calls, restorer, keeper, keeper_register, keeper_skips, captured, filtered, limit, leaves, kept, freed,
    }
}

answers! {
    /// A stopped thread and its general registers, in the order of the kernel's `NT_PRSTATUS`.
    struct ThreadState of StoppedThread {
        tid: i32,
        thread_pointer: u64,
        stack_pointer: u64,
        program_counter: u64,
        general: Vec<u64>,
    }

    /// The memory of a process in bytes, as the kernel sums it up.
    ///
    /// - `pss`: the proportional share of `rss`.
    /// - `proportional`: how many lines `Pss` of smaps were added up in `pss`. The kernel rounds each line down to
    ///   whole KiB.
    /// - `private`, `shared`, `anonymous`, `lazy` (MADV_FREE): parts of `rss`.
    /// - `private_huge`, `shared_huge`: hugetlbfs pages, which are in none of the other figures.
    /// - `swap_share`: the proportional share of `swap`; None if the kernel does not report it.
    /// - `fingerprint`: a hash of the sums, equal for processes that share one address space.
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

    /// A process and its memory. `name`: the name as in /proc/PID/status. `exe`: the path of its program. `command`:
    /// its arguments, each ended by a NUL. `memory`: None if the memory could not be read; then `error` is the errno.
    struct ProcessAccount {
        pid: i32,
        parent: i32,
        name: Vec<u8>,
        exe: Vec<u8>,
        command: Vec<u8>,
        memory: Option<ProcessMemory>,
        error: i32,
    }

    /// A file that is held open with O_PATH. `descriptor`: the caller must close it. `path`: the path without symbolic
    /// links. `kind`: the type of the file system that has the file (statfs(2), f_type).
    struct HeldFile {
        descriptor: i32,
        path: OsString,
        device: u64,
        inode: u64,
        mode: u32,
        size: u64,
        kind: u32,
    }

    /// The outcome of calls in a thread.
    ///
    /// - `end`: "returned"; "abandoned" (took too long and was undone); "left" (took too long, and the thread will
    ///   finish it); "gone" (the thread has ended, or runs another program); or "signal N" (the function caused this
    ///   signal).
    /// - `value`: the result of the last call.
    /// - `text`: the captured output.
    /// - `limit`: the time limit that the calls had, in seconds.
    struct CallResult { end: String, value: u64, text: Vec<u8>, limit: f64 }

    /// The facts about a thread by which the caller decides whether a call may be made in the thread.
    ///
    /// - `shadow_stack`: whether the thread has a shadow stack.
    /// - `dispatched`: whether its system calls are dispatched to user space (PR_SET_SYSCALL_USER_DISPATCH).
    /// - `sequence`: the word `rseq_cs` of its restartable sequences; 0 without one.
    /// - `entering`: whether the thread is entering a system call.
    /// - `restartable`: whether the system call in which the thread waits, if any, could be made again.
    /// - `vector_size`: the size in bytes of its vector registers.
    struct ThreadLook of ThreadFacts {
        registers: Vec<u64>,
        shadow_stack: bool,
        dispatched: bool,
        sequence: u64,
        entering: bool,
        restartable: bool,
        vector_size: usize,
    }
}

exports! {
    classes: Stop, Descriptor, Frozen, OwnCopy;
    functions:
        process_accounts, read_patiently, read_at_patiently, read_link_patiently, end_where_deaf, open_patiently,
        watched_by_epolls, hold_file, hold_known, walk_to_file, reopen_file, filesystem_of, end_with_parent, has_sharer,
        have_one_memory, look_at_thread, call_in_thread;
}

const LONGEST: f64 = 1e9;

fn planned(given: CallPlan) -> PyResult<Plan> {
    let CallPlan { calls, restorer, keeper, keeper_register, keeper_skips, captured, filtered, limit, .. } = given;
    let fits = calls.iter().all(|(_, arguments)| arguments.len() <= 6);
    let is_kept = keeper == 0 || process::PRESERVED.contains(&keeper_register);
    if !fits || !is_kept || keeper_skips > 256 || keeper_skips % 8 != 0 {
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

/// Read a process from a Python value: a process id, which means the process that has this id now, or an object with
/// `pid` and `descriptor`.
///
/// `descriptor`: the descriptor of the process's folder in /proc, which was opened when the user named the process.
impl FromObject for ProcessFolder {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<ProcessFolder> {
        let found = match object.extract::<i32>() {
            Ok(pid) => ProcessFolder::open(pid),
            Err(_) => ProcessFolder::of(field(object, "process", "pid")?, field(object, "process", "descriptor")?),
        };
        found.map_err(os_error)
    }
}

/// A process that is stopped until it is released.
#[pyclass(frozen)]
pub struct Stop(pub process::Stop);

#[pymethods]
impl Stop {
    /// Stop every thread of a process, for at most `limit` seconds; None means without a limit. Raises TimeoutError if
    /// a thread does not stop. Also raises OSError and KeyboardInterrupt.
    #[new]
    #[pyo3(signature = (process, limit=None))]
    fn new(py: Python<'_>, process: Argument<ProcessFolder>, limit: Option<f64>) -> PyResult<Stop> {
        let limit = duration(limit)?;
        Ok(Stop(watched(py, None, |watcher| process::Stop::new(watcher, &process.0, limit))?))
    }

    /// The threads of the process, in ascending order of their ids.
    #[getter]
    fn threads(&self) -> Vec<ThreadState> {
        all(self.0.threads())
    }

    /// The threads that were not stopped, because they are in uninterruptible sleep.
    #[getter]
    fn unstopped(&self) -> Vec<i32> {
        self.0.unstopped().collect()
    }

    /// Return the facts about a stopped thread by which the caller decides whether a call may be made in the thread.
    /// Raises OSError.
    fn look(&self, py: Python<'_>, tid: i32) -> PyResult<ThreadLook> {
        detached(py, || self.0.look(tid)).map(ThreadLook::from).map_err(raised)
    }

    /// Make calls in a stopped thread, within the time that the process may be stopped. Raises OSError (ETIME if too
    /// little time is left to begin), and ValueError if the plan is not valid. Raises KeyboardInterrupt only after the
    /// calls have ended.
    fn call(&self, py: Python<'_>, tid: i32, plan: Argument<CallPlan>) -> PyResult<CallResult> {
        let plan = planned(plan.0)?;
        let (answer, limit) = watched(py, None, |watcher| self.0.call(watcher, tid, plan))?;
        Ok(call_result(answer, limit))
    }

    /// Let every thread continue as it was. A second call does nothing.
    fn release(&self, py: Python<'_>) {
        detached(py, || self.0.release());
    }

    /// The seconds for which the process was stopped; None while it still is.
    #[getter]
    fn seconds(&self) -> Option<f64> {
        self.0.held().map(|held| held.as_secs_f64())
    }

    /// Whether the process was released because the time limit was reached.
    #[getter]
    fn expired(&self) -> bool {
        self.0.expired()
    }

    /// The number of reads that were refused because they came after the process was released.
    #[getter]
    fn missed(&self) -> u64 {
        self.0.missed()
    }

    /// The number of system calls that were interrupted by the stop and restarted.
    #[getter]
    fn mended(&self) -> u64 {
        self.0.mended()
    }
}

/// An open file descriptor. It is closed when this object is deleted. No Python finalizer runs, because a Ctrl-C in a
/// finalizer would be lost.
#[pyclass(frozen)]
pub struct Descriptor(OwnedFd);

#[pymethods]
impl Descriptor {
    /// Take over the descriptor `number`. Raises ValueError if it is not a descriptor.
    #[new]
    fn new(number: i32) -> PyResult<Descriptor> {
        process::owned(number).map(Descriptor).ok_or_else(|| PyValueError::new_err("no descriptor"))
    }

    /// The number of the descriptor.
    #[getter]
    fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// A copy of this process that never runs, and the program that reads the copy.
#[pyclass(frozen)]
pub struct OwnCopy(process::OwnCopy);

#[pymethods]
impl OwnCopy {
    /// Copy this process, and let the copy start a program. `words`: the path of the program and its arguments; the
    /// process id of the copy is appended. `environment`: NAME=VALUE strings. No other Python thread runs meanwhile.
    /// The program has the memory of the copy open as descriptor OWN_MEMORY. Raises OSError, and ValueError if a string
    /// contains a null byte.
    #[new]
    fn new(words: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> PyResult<OwnCopy> {
        let strings = |words: Vec<Vec<u8>>| words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let [words, environment] = [strings(words)?, strings(environment)?];
        Ok(OwnCopy(process::OwnCopy::start(&words, &environment)?))
    }

    /// The process id of the copy.
    #[getter]
    fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// The seconds for which the calling thread was paused.
    #[getter]
    fn paused(&self) -> f64 {
        self.0.paused().as_secs_f64()
    }

    /// Wait for the program to end. Return its exit status and its output. Return None after `limit` seconds, or if its
    /// end was already waited for. After `limit` seconds the copy and the program are ended. They are also ended if a
    /// signal handler raises an error, such as KeyboardInterrupt.
    #[pyo3(signature = (limit=None))]
    fn wait<'py>(&self, py: Python<'py>, limit: Option<f64>) -> PyResult<Option<(i32, Bound<'py, PyBytes>)>> {
        let limit = duration(limit)?;
        let found = watched(py, None, |watcher| self.0.wait(watcher, limit))?;
        Ok(found.map(|ended| (ended.status, PyBytes::new(py, &ended.said))))
    }
}

/// A copy of another process that never runs.
#[pyclass(frozen)]
pub struct Frozen(process::ProcessCopy);

#[pymethods]
impl Frozen {
    /// Stop a process and copy it. The process stays stopped until `let_go`, for at most `limit` seconds. Raises
    /// RuntimeError with the reason if the process cannot be copied, and TimeoutError if its threads do not stop in
    /// time. Also raises OSError and KeyboardInterrupt. After an error, the process continues as before.
    #[new]
    #[pyo3(signature = (process, limit=None))]
    fn new(py: Python<'_>, process: Argument<ProcessFolder>, limit: Option<f64>) -> PyResult<Frozen> {
        let limit = duration(limit)?;
        Ok(Frozen(watched(py, None, |watcher| process::ProcessCopy::new(watcher, &process.0, limit))?))
    }

    /// The process id of the copy.
    #[getter]
    fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// The descriptor of the copy's folder in /proc. It is open as long as this object lives.
    #[getter]
    fn descriptor(&self) -> i32 {
        self.0.descriptor()
    }

    /// The number of system calls that were interrupted by the stop and restarted.
    #[getter]
    fn mended(&self) -> u64 {
        self.0.mended()
    }

    /// The threads of the process, in ascending order of their ids.
    #[getter]
    fn threads(&self) -> Vec<ThreadState> {
        all(self.0.threads())
    }

    /// The threads that were not stopped, because they are in uninterruptible sleep.
    #[getter]
    fn unstopped(&self) -> Vec<i32> {
        self.0.unstopped().collect()
    }

    /// The seconds for which the process was stopped; None while it still is.
    #[getter]
    fn seconds(&self) -> Option<f64> {
        self.0.held().map(|held| held.as_secs_f64())
    }

    /// Whether the process was released because the time limit was reached, before `let_go`.
    #[getter]
    fn expired(&self) -> bool {
        self.0.expired()
    }

    /// 1 if the copy was killed, else 0. No read of a copy comes too late, because the copy never runs.
    #[getter]
    fn missed(&self) -> u64 {
        self.0.missed()
    }

    /// Let the process continue. The copy remains readable until `end`.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        watched(py, None, |watcher| self.0.let_go(watcher))
    }

    /// End the copy, and make the process collect it. Return whether both succeeded within a few seconds. Afterwards,
    /// `seconds` includes the stop in which the process collected the copy. A second call returns True.
    fn end(&self, py: Python<'_>) -> PyResult<bool> {
        watched(py, None, |watcher| Ok(self.0.end(watcher)))
    }

    /// The process id of the guardian, if it still waits for the copy after `end`; else None.
    #[getter]
    fn left(&self) -> Option<i32> {
        self.0.left()
    }
}

/// Return the type of the file system of an open file (statfs(2), f_type). Raises OSError.
#[pyfunction]
pub fn filesystem_of(descriptor: i32) -> PyResult<u32> {
    process::filesystem(descriptor).map_err(os_error)
}

/// Have the kernel send `signal` to this process when the thread that created it ends. Return whether the process
/// `parent` is still its parent.
#[pyfunction]
pub fn end_with_parent(parent: i32, signal: i32) -> bool {
    process::end_with_parent(parent, signal)
}

/// Return whether another process shares the memory of `pid` (clone(2), CLONE_VM). A thread of `pid` does not count.
/// False if that is unknown. Raises TimeoutError if too many processes do not answer.
#[pyfunction]
pub fn has_sharer(py: Python<'_>, pid: i32) -> PyResult<bool> {
    detached(py, || process::has_sharer(pid)).map_err(os_error)
}

/// Return whether all of these processes share one memory (clone(2), CLONE_VM); False if that is unknown.
#[pyfunction]
pub fn have_one_memory(py: Python<'_>, pids: Vec<i32>) -> bool {
    detached(py, || process::have_one_memory(&pids))
}

/// Return the facts about a thread that the calling thread traces. By these facts the caller decides whether a call may
/// be made in the thread. Raises OSError.
#[pyfunction]
pub fn look_at_thread(tid: i32) -> PyResult<ThreadLook> {
    process::look(tid).map(ThreadLook::from).map_err(os_error)
}

/// Make calls in a thread that was attached by PTRACE_ATTACH, as gdb does. Raises OSError, and ValueError if the plan
/// is not valid.
#[pyfunction]
pub fn call_in_thread(py: Python<'_>, tid: i32, plan: Argument<CallPlan>) -> PyResult<CallResult> {
    let plan = planned(plan.0)?;
    let answer = detached(py, || process::call(tid, Style::Attached, &plan)).map_err(os_error)?;
    Ok(call_result(answer, plan.limit))
}

impl From<process::Account> for ProcessAccount {
    fn from(row: process::Account) -> ProcessAccount {
        let process::Account { pid, parent, name, exe, command, memory, error } = row;
        ProcessAccount { pid, parent, name, exe, command, memory: memory.map(ProcessMemory::from), error }
    }
}

/// Start a thread that ends this process if it does not react to a request to end: if SIGINT, SIGTERM or SIGHUP has
/// been pending for 2 s while the main thread is blocked in the kernel. The process also ends if a thread has waited 10
/// s for another process's memory. The process writes the message `deaf` or `blocked` and ends with status 1. A second
/// call does nothing.
#[pyfunction]
pub fn end_where_deaf(deaf: Vec<u8>, blocked: Vec<u8>) {
    gdbheap_access::signals::end_where_deaf(deaf, blocked);
}

/// Return the first `limit` bytes of a file in a process's folder in /proc. Raises TimeoutError if the kernel cannot
/// get the lock of the process's memory map, or waits for the process's execve().
#[pyfunction]
pub fn read_patiently<'py>(py: Python<'py>, path: &str, limit: u64) -> PyResult<Bound<'py, PyBytes>> {
    let found = detached(py, || gdbheap_access::patient::read_patiently(path.as_ref(), limit)).map_err(os_error)?;
    Ok(PyBytes::new(py, &found))
}

/// Return an O_PATH descriptor of an entry of an open folder. A symbolic link is not followed. Raises OSError. One of
/// its reasons (EAGAIN) is that the kernel would have to search the folder, and might wait for the folder's lock.
#[pyfunction]
pub fn hold_known(folder: i32, name: OsString) -> PyResult<i32> {
    let name = CString::new(name.into_vec())?;
    process::hold_known(folder, &name).map(OwnedFd::into_raw_fd).map_err(os_error)
}

/// Return the data that a process has registered with its epoll descriptors, ascending, each value once, and whether
/// all of it could be read. `folder`: the process's folder in /proc. `numbers`: the epoll descriptors of the process.
/// Raises OSError, and TimeoutError if the kernel cannot get the lock of an epoll.
#[pyfunction]
pub fn watched_by_epolls(py: Python<'_>, folder: &str, numbers: Vec<i32>) -> PyResult<(Vec<u64>, bool)> {
    detached(py, || process::watched(folder.as_ref(), &numbers)).map_err(os_error)
}

/// Return `size` bytes at `offset` of a file in a process's folder in /proc, or fewer if the file ends before. Raises
/// the same errors as `read_patiently`.
#[pyfunction]
pub fn read_at_patiently<'py>(py: Python<'py>, path: &str, offset: u64, size: usize) -> PyResult<Bound<'py, PyBytes>> {
    let found =
        detached(py, || gdbheap_access::patient::read_at_patiently(path.as_ref(), offset, size)).map_err(os_error)?;
    Ok(PyBytes::new(py, &found))
}

/// Return the target of a symbolic link in a process's folder in /proc. Raises the same errors as `read_patiently`.
#[pyfunction]
pub fn read_link_patiently(py: Python<'_>, path: &str) -> PyResult<OsString> {
    detached(py, || gdbheap_access::patient::read_link_patiently(path.as_ref())).map(OsString::from).map_err(os_error)
}

/// Return a descriptor of a file in a process's folder in /proc, open for reading, and for writing if `writable`.
/// Raises the same errors as `read_patiently`.
#[pyfunction]
pub fn open_patiently(py: Python<'_>, path: &str, writable: bool) -> PyResult<i32> {
    let found = detached(py, || gdbheap_access::patient::open_patiently(path.as_ref(), writable)).map_err(os_error)?;
    Ok(found.into_raw_fd())
}

impl From<PathFile> for HeldFile {
    fn from(held: PathFile) -> HeldFile {
        let PathFile { file, path, found, kind } = held;
        let (device, inode, mode, size) = (found.dev(), found.ino(), found.mode(), found.size());
        HeldFile { descriptor: file.into_raw_fd(), path: path.into(), device, inode, mode, size, kind }
    }
}

/// Open a file with O_PATH. Symbolic links are followed. If `follows` is False, a symbolic link at the end of the path
/// is opened itself. Use this function only for paths of gdbheap itself, and of users who may name any file. Raises
/// OSError, and TimeoutError if the file system does not answer.
#[pyfunction]
#[pyo3(signature = (path, follows=true))]
pub fn hold_file(py: Python<'_>, path: OsString, follows: bool) -> PyResult<HeldFile> {
    detached(py, || path_file::hold(path.as_ref(), follows)).map(HeldFile::from).map_err(os_error)
}

/// Open with O_PATH a file that a target names. The path begins at the target's `root` folder, and so do absolute
/// symbolic links.
///
/// Raises OSError (EXDEV if the path leads to a mount that is not in `mounts`), and TimeoutError if the file system
/// does not answer. `checks_root`: whether the mount of the root folder must be in `mounts`, too.
#[pyfunction]
pub fn walk_to_file(
    py: Python<'_>,
    root: OsString,
    path: OsString,
    mounts: HashSet<u64>,
    checks_root: bool,
) -> PyResult<HeldFile> {
    detached(py, || path_file::walk(root.as_ref(), path.as_ref(), mounts, checks_root))
        .map(HeldFile::from)
        .map_err(os_error)
}

/// Open for reading the file that the O_PATH descriptor `held` refers to, and close `held`. Return the new descriptor.
/// The new descriptor refers to the same file, even if the file was renamed. Raises OSError, and TimeoutError if the
/// file system does not answer.
#[pyfunction]
pub fn reopen_file(py: Python<'_>, held: i32) -> PyResult<i32> {
    let file = process::owned(held).ok_or_else(|| PyValueError::new_err("no descriptor"))?;
    let found = detached(py, || path_file::reopen(file.into())).map_err(os_error)?;
    Ok(found.into_raw_fd())
}

/// Return the kernel's figures for the memory of the processes `pids`, by ascending id. If `pids` is None, return those
/// of all processes. Processes that are gone or have no memory (kernel threads, zombies) are left out. `root`: where
/// proc is mounted. Raises OSError, KeyboardInterrupt.
#[pyfunction]
#[pyo3(signature = (root, pids=None))]
pub fn process_accounts(py: Python<'_>, root: &str, pids: Option<Vec<i32>>) -> PyResult<Vec<ProcessAccount>> {
    let pids = match pids {
        Some(pids) => pids,
        None => process::every_process(root).map_err(os_error)?,
    };
    Ok(all(watched(py, None, |watcher| process::accounts(watcher, root, &pids))?))
}
