//! Follows processes that keep running, by patches in their code or by a tracepoint.

use crate::detaching::detached;
use crate::memory::Space;
use crate::records::{field, records, Argument, FromObject};
use crate::rows::{all, answers, exports};
use crate::watch::{raised, watched};
use gdbheap_access::process::patch::{self, Cave, CodePlace, Condition, LeftStub, Operand, Patch, Site, Test, Text};
use gdbheap_access::process::{
    self, Finish, FollowRequest, Hit, LaunchRequest, Module, ProcessFolder, ProgramMemory, TraceRequest,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ffi::CString;
use std::time::Duration;

/// The largest number of system call numbers in a filter, because the filter's jumps have a short reach.
const MAX_NUMBERS: usize = 100;

records! {
    Text { start, end }
    Cave { start, bytes, text, stays }
    Condition { operand, test, value }
    LeftStub { address, original, replacement, start, end }
    Patch { address, original, replacement, stub_at, stub, trap, seen_at }
    CodePlace { address, before, start, function, conditions }
}

impl FromObject for Operand {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Operand> {
        Ok(match object.extract::<String>()?.as_str() {
            "first" => Operand::First,
            "second" => Operand::Second,
            "product" => Operand::Product,
            "chunk size" => Operand::ChunkSize,
            other => return Err(PyValueError::new_err(format!("unknown operand {other:?}"))),
        })
    }
}

impl FromObject for Test {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Test> {
        Ok(match object.extract::<String>()?.as_str() {
            "==" => Test::Equal,
            ">=" => Test::AtLeast,
            "<=" => Test::AtMost,
            other => return Err(PyValueError::new_err(format!("unknown test {other:?}"))),
        })
    }
}

impl FromObject for process::Tracepoint {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<process::Tracepoint> {
        let number = |name: &str| field(object, "Tracepoint", name);
        Ok(process::Tracepoint { id: number("id")?, number_at: number("number_at")? as usize })
    }
}

answers! {
    /// A place in code that makes the system call `number`.
    ///
    /// - `address`: the address of the instruction after the system call.
    /// - `before`: the address of the instruction that loads the number.
    /// - `start`, `end`: the range of the function that contains both.
    struct CallSite of Site { address: u64, before: u64, number: u32, start: u64, end: u64 }

    /// A patch that a killed run of gdbheap left in a process. `original`: the bytes that were at `address`.
    /// `replacement`: the jump that is there now. `start`, `end`: the range of the patch's stub.
    struct LeftPatch of LeftStub { address: u64, original: Vec<u8>, replacement: Vec<u8>, start: u64, end: u64 }

    /// A patch of one place in the code.
    ///
    /// - `original`, `replacement`: the bytes at `address`, and the jump that replaces them.
    /// - `stub`: the code to which the jump leads. It is written at `stub_at`.
    /// - `trap`: the program counter of a thread that reports itself.
    /// - `seen_at`: the program counter that this thread would have without the patch.
    struct CodePatch of Patch {
        address: u64,
        original: Vec<u8>,
        replacement: Vec<u8>,
        stub_at: u64,
        stub: Vec<u8>,
        trap: u64,
        seen_at: u64,
    }

    /// A thread that was caught at a patched place.
    ///
    /// - `place`: the index of the place; None if the thread has started another program.
    /// - `registers`: the registers that the thread had at the place, in the order of the kernel's `NT_PRSTATUS`.
    /// - `stack`: the bytes at the thread's stack pointer at that moment; None if the thread is still stopped, or no
    ///   stacks were requested.
    /// - `doubtful`: whether the call was made while the mappings were read, at the beginning or at the end. The
    ///   mappings may or may not include the effect of such a call.
    struct PlaceHit of Hit {
        pid: i32,
        tid: i32,
        place: Option<usize>,
        registers: Vec<u64>,
        stack: Option<Vec<u8>>,
        doubtful: bool,
    }

    /// A tracepoint of the kernel. `number_at`: the offset in bytes of the system call number in its records.
    struct Tracepoint { id: u64, number_at: u64 }
}

exports! {
    classes: Follower;
    functions:
        find_call_sites, plan_patches, find_left_patches, find_tracepoint, restore_left_patches, registers_before_trap,
        return_from_trap;
}

/// Return the places where the code in `texts` makes one of the system calls `numbers`, ascending. `room`: the bytes
/// that the unwind tables of `modules` may take together.
#[pyfunction]
pub fn find_call_sites(
    py: Python<'_>,
    space: &Space,
    texts: Argument<Vec<Text>>,
    modules: Argument<Vec<Module>>,
    room: u64,
    numbers: Vec<u32>,
) -> Vec<CallSite> {
    all(detached(py, || patch::find_sites(&space.0, &texts.0, &modules.0, room, &numbers)))
}

/// Plan a patch for each place. The stubs, to which the patches jump, go into `caves`: unused bytes after the code of
/// objects. Raises ValueError with the reason if a patch is impossible.
#[pyfunction]
pub fn plan_patches(
    places: Argument<Vec<CodePlace>>,
    caves: Argument<Vec<Cave>>,
    signal: u32,
) -> PyResult<Vec<CodePatch>> {
    let planned = patch::plan_all(&places.0, &caves.0, signal);
    planned.map(all).map_err(raised)
}

/// Return the patches whose stubs are in `cave`, which is unused bytes after an object's code. Killed runs of gdbheap
/// left these patches.
#[pyfunction]
pub fn find_left_patches(cave: Argument<Cave>) -> Vec<LeftPatch> {
    all(patch::left_behind(&cave.0))
}

/// Remove leftover patches from a process that nobody traces. Return whether all patches are gone. `memory`: a
/// descriptor of the process's memory, opened before the patches were read. Raises OSError if `memory` is not an open
/// descriptor.
#[pyfunction]
pub fn restore_left_patches(
    py: Python<'_>,
    process: Argument<ProcessFolder>,
    memory: i32,
    left: Argument<Vec<LeftStub>>,
) -> PyResult<bool> {
    let memory = memory_of(memory)?;
    Ok(detached(py, || process::restore_left(&process.0, &memory, &left.0)))
}

fn memory_of(descriptor: i32) -> PyResult<ProgramMemory> {
    ProgramMemory::of(descriptor).map_err(|error| raised(error.into()))
}

/// Return the registers that a thread had when it came to `address`. The result is computed from `registers`, which the
/// thread has at the trap, and from `frame`, the bytes at its stack pointer. Raises ValueError if `registers` or
/// `frame` is too short.
#[pyfunction]
pub fn registers_before_trap(registers: Vec<u64>, frame: &[u8], address: u64) -> PyResult<Vec<u64>> {
    if registers.len() < 27 || frame.len() < patch::frame_size() {
        return Err(PyValueError::new_err("not a thread at a trap"));
    }
    Ok(patch::original_registers(&registers, frame, address).0)
}

/// Let a thread leave a trap: set it back to `address`, its place before the trap, with the registers and the signal
/// mask that it had there. The thread must be stopped at the trap, and traced by the calling thread. Raises OSError.
#[pyfunction]
pub fn return_from_trap(tid: i32, address: u64) -> PyResult<()> {
    process::return_from_trap(tid, address).map_err(|error| raised(error.into()))
}

/// Return the tracepoint at the end of every system call, for `Follower.of_tracepoint`. Raises OSError: EACCES if this
/// user may not read the tracepoint; EPERM if tracefs is not mounted and this user may not mount it; ENODEV if the
/// kernel has no such tracepoint.
#[pyfunction]
pub fn find_tracepoint() -> PyResult<Tracepoint> {
    let found = process::tracepoint().map_err(|error| raised(error.into()))?;
    Ok(Tracepoint { id: found.id, number_at: found.number_at as u64 })
}

/// Processes that are followed from `start` until `end`.
#[pyclass(frozen)]
pub struct Follower(process::Follower);

fn limit_of(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| PyValueError::new_err("not a limit in seconds"))
}

#[pymethods]
impl Follower {
    /// Create a follower of a process that will be patched. The process's threads report themselves by `signal`.
    ///
    /// `memory`: a descriptor of the process's memory, opened before the patches were planned. `waits`: whether a
    /// thread that reports itself stays stopped until the next hit is fetched, for at most `limit` seconds.
    #[staticmethod]
    fn of_process(
        process: Argument<ProcessFolder>,
        memory: i32,
        patches: Argument<Vec<Patch>>,
        signal: i32,
        waits: bool,
        limit: f64,
    ) -> PyResult<Follower> {
        let limit = limit_of(limit)?;
        let course = FollowRequest { process: process.0, memory: memory_of(memory)?, patches: patches.0, signal };
        Ok(Follower(process::Follower::of_process(course, waits, limit).map_err(raised)?))
    }

    /// Create a follower of the command `words`, which `start` starts, and of all its child processes. The follower
    /// reports their system calls with the given `numbers`; each number is a place. The processes keep running when the
    /// follower ends. Raises ValueError if `words` is not a valid command, or if there are too many numbers.
    #[staticmethod]
    fn of_program(words: Vec<Vec<u8>>, numbers: Vec<u32>, waits: bool, limit: f64) -> PyResult<Follower> {
        let limit = limit_of(limit)?;
        let words = words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let words = words.map_err(|_| PyValueError::new_err("a word has a null byte"))?;
        if words.is_empty() || numbers.len() > MAX_NUMBERS {
            return Err(PyValueError::new_err("not a command, or too many numbers"));
        }
        let start = LaunchRequest { words, numbers };
        Ok(Follower(process::Follower::of_program(start, waits, limit).map_err(raised)?))
    }

    /// Create a follower of the system calls of a process that have one of the given `numbers`; each number is a place.
    /// The follower stops no thread. `stacks`: whether to include the bytes at the threads' stack pointers. Raises
    /// ValueError if there are no numbers, or too many.
    #[staticmethod]
    fn of_tracepoint(
        process: Argument<ProcessFolder>,
        tracepoint: Argument<process::Tracepoint>,
        numbers: Vec<u32>,
        stacks: bool,
    ) -> PyResult<Follower> {
        if numbers.is_empty() || numbers.len() > MAX_NUMBERS {
            return Err(PyValueError::new_err("no numbers, or too many"));
        }
        let traced = TraceRequest { process: process.0, tracepoint: tracepoint.0, numbers, stacks };
        Ok(Follower(process::Follower::of_tracepoint(traced).map_err(raised)?))
    }

    /// Begin to follow. A second call does nothing. Raises OSError if the command cannot be started, or if the code has
    /// changed (EILSEQ); TimeoutError if a thread does not stop; and KeyboardInterrupt. After such an error, call
    /// `end`; the process then runs as before, unless `is_unrestored` is true.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        watched(py, None, |watcher| self.0.start(watcher))
    }

    /// Let the thread of the last hit continue, and return the next hit. None if there was no hit for `seconds`, or if
    /// there will be no more. Raises KeyboardInterrupt.
    fn next(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<PlaceHit>> {
        let wait = Duration::try_from_secs_f64(seconds.clamp(0.0, 1e6)).unwrap_or_default();
        Ok(watched(py, None, |watcher| self.0.next(watcher, wait))?.map(PlaceHit::from))
    }

    /// Stop reporting, and wait for the end of the started program and all its child processes. Return whether they
    /// ended within `seconds`. Raises KeyboardInterrupt.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let wait = Duration::try_from_secs_f64(seconds.clamp(0.0, 1e6)).unwrap_or_default();
        watched(py, None, |watcher| self.0.wait(watcher, wait))
    }

    /// Remove the patches and release the process. A started program keeps running. A second call does nothing.
    fn end(&self, py: Python<'_>) {
        detached(py, || self.0.end());
    }

    /// The reason why there will be no more hits; "" while there may be more hits. "asked": the follower was asked to
    /// end. "gone": the process has ended. "exec": the process runs another program.
    #[getter]
    fn finish(&self) -> &'static str {
        match self.0.finish() {
            Finish::Running => "",
            Finish::Asked => "asked",
            Finish::Gone => "gone",
            Finish::Exec => "exec",
        }
    }

    /// Whether `end` could not remove the patches, because a thread is in uninterruptible sleep. Another process of
    /// gdbheap then removes them as soon as it can.
    #[getter]
    fn is_unrestored(&self) -> bool {
        self.0.is_unrestored()
    }

    /// A descriptor that poll(2) reports as readable once a thread was caught at a place.
    #[getter]
    fn descriptor(&self) -> i32 {
        self.0.descriptor()
    }

    /// The number of hits so far.
    #[getter]
    fn hits(&self) -> u64 {
        self.0.hits()
    }

    /// The number of hits that were lost because they came faster than they were fetched. This number is counted only
    /// for `of_tracepoint`, and is known only after the end.
    #[getter]
    fn lost(&self) -> u64 {
        self.0.lost()
    }

    /// The total time in seconds for which threads were stopped at patched places.
    #[getter]
    fn stood(&self) -> f64 {
        self.0.stood().as_secs_f64()
    }

    /// The total time in seconds for which the whole process was stopped, to insert and to remove the patches.
    #[getter]
    fn held(&self) -> f64 {
        self.0.held().as_secs_f64()
    }

    /// The text of `/proc/PID/maps` at two times: when the patches were inserted, and when they were removed.
    #[getter]
    fn maps(&self) -> (Vec<u8>, Vec<u8>) {
        let [before, after] = self.0.maps();
        (before, after)
    }

    /// The id of the started process; None before the start.
    #[getter]
    fn started(&self) -> Option<i32> {
        self.0.started()
    }

    /// The exit status of the started program, as os.wait returns it; None before its end.
    #[getter]
    fn status(&self) -> Option<i32> {
        self.0.status()
    }
}
