//! Processes that run on and are followed, and what is put into their code for that.

use crate::memory::Space;
use crate::records::{field, records, Given, Read};
use crate::rows::{all, answers};
use crate::watch::watched;
use gdbheap_access::process::patch::{self, Cave, CodePlace, Condition, Left, Operand, Patch, Site, Test, Text};
use gdbheap_access::process::{self, Course, Finish, Hit, Module, ProcessFolder, ProgramMemory, Start, Traced};
use gdbheap_core::Watcher;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ffi::CString;
use std::time::Duration;

/// More do not fit into the filter's jumps.
const MAX_NUMBERS: usize = 100;

records! {
    Text { start, end }
    Cave { start, bytes, text, stays }
    Condition { operand, test, value }
    Left { address, original, replacement, start, end }
    Patch { address, original, replacement, stub_at, stub, trap, seen_at }
    CodePlace { address, before, start, function, conditions }
}

impl Read for Operand {
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

impl Read for Test {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<Test> {
        Ok(match object.extract::<String>()?.as_str() {
            "==" => Test::Equal,
            ">=" => Test::AtLeast,
            "<=" => Test::AtMost,
            other => return Err(PyValueError::new_err(format!("unknown test {other:?}"))),
        })
    }
}

impl Read for process::Tracepoint {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<process::Tracepoint> {
        let number = |name: &str| field(object, "Tracepoint", name);
        Ok(process::Tracepoint { id: number("id")?, number_at: number("number_at")? as usize })
    }
}

answers! {
    /// The instruction behind one that makes the system call `number`, the one that says which, and the function
    /// [start, end) that they are in.
    struct CallSite of Site { address: u64, before: u64, number: u32, start: u64, end: u64 }

    /// What a run that was killed left in a process: the place that it took, what was there, the jump that came there, and
    /// where the rest of it lies, [start, end).
    struct LeftPatch of Left { address: u64, original: Vec<u8>, replacement: Vec<u8>, start: u64, end: u64 }

    /// One place: `original` at `address` becomes `replacement`, and `stub` comes to `stub_at`. A thread that tells of
    /// itself stops with its program counter at `trap`, and is as it is at `seen_at` without the patch.
    struct CodePatch of Patch {
        address: u64,
        original: Vec<u8>,
        replacement: Vec<u8>,
        stub_at: u64,
        stub: Vec<u8>,
        trap: u64,
        seen_at: u64,
    }

    /// A thread that was seen: its process, at which place (an index; None: it runs another program from now on), its
    /// registers when it came there (`struct user_regs_struct`), the bytes at its stack pointer as they were then (None:
    /// it stands, or no stacks are wanted), and whether the mappings at the beginning or at the end may have what it did, or
    /// not.
    struct PlaceHit of Hit {
        pid: i32,
        tid: i32,
        place: Option<usize>,
        registers: Vec<u64>,
        stack: Option<Vec<u8>>,
        doubtful: bool,
    }

    /// A tracepoint of the kernel's: its number, and where its records have the number of the system call.
    struct Tracepoint { id: u64, number_at: u64 }
}

/// The places where the code in `texts` makes one of the system calls `numbers`, ascending. `room`: the bytes that the unwind
/// tables of `modules` may take.
#[pyfunction]
pub fn find_call_sites(
    py: Python<'_>,
    space: &Space,
    texts: Given<Vec<Text>>,
    modules: Given<Vec<Module>>,
    room: u64,
    numbers: Vec<u32>,
) -> Vec<CallSite> {
    all(py.detach(|| patch::find_sites(&space.0, &texts.0, &modules.0, room, &numbers)))
}

/// A patch for each place, whose code comes to the caves. Raises ValueError, which says why that cannot be.
#[pyfunction]
pub fn plan_patches(places: Given<Vec<CodePlace>>, caves: Given<Vec<Cave>>, signal: u32) -> PyResult<Vec<CodePatch>> {
    let planned = patch::plan_all(&places.0, &caves.0, signal);
    planned.map(all).map_err(crate::watch::raised)
}

/// What runs that were killed have left in a cave.
#[pyfunction]
pub fn find_left_patches(cave: Given<Cave>) -> Vec<LeftPatch> {
    all(patch::left_behind(&cave.0))
}

/// Takes out of a process that nobody traces what is still in of it; whether nothing is left. `memory`: the descriptor of
/// its memory, which was opened before that was read. Raises OSError.
#[pyfunction]
pub fn restore_left_patches(
    py: Python<'_>,
    process: Given<ProcessFolder>,
    memory: i32,
    left: Given<Vec<Left>>,
) -> PyResult<bool> {
    let memory = memory_of(memory)?;
    Ok(py.detach(|| process::restore_left(&process.0, &memory, &left.0)))
}

fn memory_of(descriptor: i32) -> PyResult<ProgramMemory> {
    ProgramMemory::of(descriptor).map_err(|error| crate::watch::raised(error.into()))
}

/// The registers that a thread had when it came to `address`, from those at the trap and the bytes at its stack pointer.
#[pyfunction]
pub fn registers_before_trap(registers: Vec<u64>, frame: &[u8], address: u64) -> PyResult<Vec<u64>> {
    if registers.len() < 27 || frame.len() < patch::frame_size() {
        return Err(PyValueError::new_err("not a thread at a trap"));
    }
    Ok(patch::original_registers(&registers, frame, address).0)
}

/// Puts a thread that stands at a trap, and that this thread's debugger holds, back to `address`, from where it came there.
/// Raises OSError.
#[pyfunction]
pub fn return_from_trap(tid: i32, address: u64) -> PyResult<()> {
    process::return_from_trap(tid, address).map_err(|error| crate::watch::raised(error.into()))
}

/// The tracepoint at the end of every system call, for `Follower.of_tracepoint`. Raises OSError: EACCES where this user may
/// not read of it, EPERM where tracefs is not mounted and this user may not mount it, ENODEV where the kernel has none.
#[pyfunction]
pub fn find_tracepoint() -> PyResult<Tracepoint> {
    let found = process::tracepoint().map_err(|error| crate::watch::raised(error.into()))?;
    Ok(Tracepoint { id: found.id, number_at: found.number_at as u64 })
}

/// Processes that are followed until this is ended.
#[pyclass(frozen)]
pub struct Follower(process::Follower);

fn limit_of(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| PyValueError::new_err("not a limit in seconds"))
}

#[pymethods]
impl Follower {
    /// Puts patches into a process and follows it: its threads tell of themselves by `signal`. `memory`: the descriptor of
    /// its memory, which was opened before the patches were planned. `waits`: a thread that came by stands until the next
    /// hit is asked for, for `limit` seconds at most. Raises OSError (its errno tells why; EILSEQ: the code is not what it was),
    /// TimeoutError, KeyboardInterrupt; the process then runs as before.
    #[staticmethod]
    fn of_process(
        py: Python<'_>,
        process: Given<ProcessFolder>,
        memory: i32,
        patches: Given<Vec<Patch>>,
        signal: i32,
        waits: bool,
        limit: f64,
    ) -> PyResult<Follower> {
        let limit = limit_of(limit)?;
        let course = Course { process: process.0, memory: memory_of(memory)?, patches: patches.0, signal };
        let follow = |watcher: &dyn Watcher| process::Follower::of_process(watcher, course, waits, limit);
        Ok(Follower(watched(py, None, follow)?))
    }

    /// Starts the command of these `words`, and follows it and all that it starts: each of their system calls `numbers`,
    /// which are the places. They run on when this ends. Raises OSError (its errno tells why it cannot be started),
    /// ValueError, KeyboardInterrupt.
    #[staticmethod]
    fn of_program(
        py: Python<'_>,
        words: Vec<Vec<u8>>,
        numbers: Vec<u32>,
        waits: bool,
        limit: f64,
    ) -> PyResult<Follower> {
        let limit = limit_of(limit)?;
        let words = words.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let words = words.map_err(|_| PyValueError::new_err("a word has a null byte"))?;
        if words.is_empty() || numbers.len() > MAX_NUMBERS {
            return Err(PyValueError::new_err("not a command, or too many numbers"));
        }
        let start = Start { words, numbers };
        let follow = |watcher: &dyn Watcher| process::Follower::of_program(watcher, start, waits, limit);
        Ok(Follower(watched(py, None, follow)?))
    }

    /// Sees each of the system calls `numbers`, which are the places, of a process whose threads do not stand for it. `stacks`:
    /// with the bytes at their stack pointers. Raises OSError (its errno tells why), KeyboardInterrupt.
    #[staticmethod]
    fn of_tracepoint(
        py: Python<'_>,
        process: Given<ProcessFolder>,
        tracepoint: Given<process::Tracepoint>,
        numbers: Vec<u32>,
        stacks: bool,
    ) -> PyResult<Follower> {
        if numbers.is_empty() || numbers.len() > MAX_NUMBERS {
            return Err(PyValueError::new_err("no numbers, or too many"));
        }
        let traced = Traced { process: process.0, tracepoint: tracepoint.0, numbers, stacks };
        let follow = |watcher: &dyn Watcher| process::Follower::of_tracepoint(watcher, traced);
        Ok(Follower(watched(py, None, follow)?))
    }

    /// The next thread that comes by, once that of the last hit was let go on; None when there was none for `seconds`, or
    /// nothing more will come. Raises KeyboardInterrupt.
    fn next(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<PlaceHit>> {
        let wait = Duration::try_from_secs_f64(seconds.clamp(0.0, 1e6)).unwrap_or_default();
        Ok(watched(py, None, |watcher| self.0.next(watcher, wait))?.map(PlaceHit::from))
    }

    /// Tells of nothing more, and waits for the end of a program that was started, and of all that it started; whether that
    /// came within so many seconds. Raises KeyboardInterrupt.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let wait = Duration::try_from_secs_f64(seconds.clamp(0.0, 1e6)).unwrap_or_default();
        watched(py, None, |watcher| self.0.wait(watcher, wait))
    }

    /// Takes the patches out and lets the process go; a program that was started runs on. A second call does nothing.
    fn end(&self, py: Python<'_>) {
        py.detach(|| self.0.end());
    }

    /// Why nothing more comes: "asked", "gone" (the process has ended) or "exec" (it runs another program); "" while
    /// something may.
    #[getter]
    fn finish(&self) -> &'static str {
        match self.0.finish() {
            Finish::Running => "",
            Finish::Asked => "asked",
            Finish::Gone => "gone",
            Finish::Exec => "exec",
        }
    }

    /// Whether the patches could not be taken out by `end`, because of a thread that sleeps uninterruptibly: a process of
    /// ours does it once it can.
    #[getter]
    fn is_unrestored(&self) -> bool {
        self.0.is_unrestored()
    }

    /// A descriptor that poll(2) reports once a thread was seen.
    #[getter]
    fn descriptor(&self) -> i32 {
        self.0.descriptor()
    }

    /// How many threads came by.
    #[getter]
    fn hits(&self) -> u64 {
        self.0.hits()
    }

    /// How many were lost because they came faster than they were asked for (`of_tracepoint`; known once it has ended).
    #[getter]
    fn lost(&self) -> u64 {
        self.0.lost()
    }

    /// For how many seconds threads stood at places, all hits together.
    #[getter]
    fn stood(&self) -> f64 {
        self.0.stood().as_secs_f64()
    }

    /// For how many seconds the whole process stood, to put the patches in and to take them out.
    #[getter]
    fn held(&self) -> f64 {
        self.0.held().as_secs_f64()
    }

    /// The text of `/proc/PID/maps` while the process stood: when the patches were put in, and when they were taken out.
    #[getter]
    fn maps(&self) -> (Vec<u8>, Vec<u8>) {
        let [before, after] = self.0.maps();
        (before, after)
    }

    /// The process that was started; None before.
    #[getter]
    fn started(&self) -> Option<i32> {
        self.0.started()
    }

    /// How the program that was started ended, as os.wait gives it; None before.
    #[getter]
    fn status(&self) -> Option<i32> {
        self.0.status()
    }
}
