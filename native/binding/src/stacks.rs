//! The stacks of stopped threads, and the names of functions.

use crate::detaching::detached;
use crate::memory::Space;
use crate::records::{records, Argument};
use crate::rows::{all, answers, exports};
use crate::watch::watched;
use gdbheap_access::process::{self, Module, Stack};
use gdbheap_core::Watcher;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard};

records! {
    Module { start, end, table_start, table_end }
}

answers! {
    /// The stack of one thread. All lists have the innermost frame first.
    ///
    /// - `counters`, `pointers`: the program counter and the stack pointer of each frame.
    /// - `starts`: the address at which each frame's function begins; 0 if unknown.
    /// - `cut`: why the walk ended early, or "".
    /// - `unknown`: the program counter outside all objects, if this is why the walk ended.
    /// - `saved`: the registers that functions saved for their callers, as (index of the frame, DWARF number of the
    ///   register, address). Only `unwind_stacks` fills it.
    /// - `taken`: the work that was done, in bytes of table entries.
    struct Unwound of process::Unwound {
        counters: Vec<u64>,
        pointers: Vec<u64>,
        starts: Vec<u64>,
        cut: String,
        unknown: Option<u64>,
        saved: Vec<(u64, u64, u64)>,
        taken: u64,
    }
}

exports! {
    classes: Unwinder;
    functions: demangle, unwind_stacks, mentions;
}

/// Return the stack of each thread. Raises KeyboardInterrupt.
///
/// - `room`: how many bytes of memory the tables of `modules` may take together.
/// - `effort`: the limit of the work for all threads together, in bytes of the table entries of their frames. If it is
///   not enough, the last stacks end early.
/// - `threads`: the registers of each thread by DWARF number, the program counter last.
#[pyfunction]
pub fn unwind_stacks(
    py: Python<'_>,
    space: &Space,
    modules: Argument<Vec<Module>>,
    room: u64,
    effort: u64,
    threads: Vec<Vec<u64>>,
) -> PyResult<Vec<Unwound>> {
    let unwind = |watcher: &dyn Watcher| process::unwind_stacks(watcher, &space.0, modules.0, room, effort, threads);
    Ok(all(watched(py, None, unwind)?))
}

/// An unwinder of the stacks of single threads. It caches the unwind tables of code that it has seen.
#[pyclass(frozen)]
pub struct Unwinder(Mutex<process::Unwinder>);

impl Unwinder {
    fn lock(&self) -> MutexGuard<'_, process::Unwinder> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl Unwinder {
    /// Create an unwinder for code of the objects `modules`, whose tables may take `room` bytes together.
    #[new]
    fn new(modules: Argument<Vec<Module>>, room: u64) -> Unwinder {
        Unwinder(Mutex::new(process::Unwinder::new(modules.0, room)))
    }

    /// Replace the loaded objects. The tables of objects that stay loaded are kept. All tables may take `room` bytes
    /// together.
    fn renew(&self, py: Python<'_>, modules: Argument<Vec<Module>>, room: u64) {
        detached(py, || self.lock().renew(modules.0, room));
    }

    /// Return the frames of a thread, computed from its registers (by DWARF number, the program counter last). Raises
    /// KeyboardInterrupt.
    ///
    /// - `tables`: the memory from which more unwind tables are read.
    /// - `space`: the memory from which the stack is read.
    /// - `stack`: the bytes at the stack pointer at the moment of these registers. If given, the stack is read from
    ///   these bytes instead.
    #[pyo3(signature = (tables, space, registers, stack=None))]
    fn unwind(
        &self,
        py: Python<'_>,
        tables: &Space,
        space: &Space,
        registers: Vec<u64>,
        stack: Option<&[u8]>,
    ) -> PyResult<Unwound> {
        let stack = match stack {
            Some(bytes) => {
                let start = registers.get(tables.0.machine.frames.stack_pointer).copied().unwrap_or_default();
                Stack::Copied { start, bytes }
            }
            None => Stack::Live(&space.0),
        };
        let unwind = |watcher: &dyn Watcher| self.lock().unwind(watcher, &tables.0, stack, registers);
        Ok(watched(py, None, unwind)?.into())
    }
}

/// Return the C++ or Rust name of a linker symbol, without parameters, result and hash; None for any other symbol.
#[pyfunction]
pub fn demangle(symbol: &str) -> Option<String> {
    gdbheap_core::demangle::demangle(symbol)
}

/// Return whether a word in [start, end) of the target has a value in [low, high]; true if part of the range cannot be
/// read.
#[pyfunction]
pub fn mentions(space: &Space, start: u64, end: u64, low: u64, high: u64) -> bool {
    process::mentions(&space.0, start, end, low, high)
}
