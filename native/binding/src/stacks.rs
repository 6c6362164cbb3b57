//! The stacks of threads that stand still, and the names of functions.

use crate::memory::Space;
use crate::records::{records, Given};
use crate::rows::{all, answers};
use crate::watch::watched;
use gdbheap_access::process::{self, Module, Stack, REGISTERS};
use gdbheap_core::Watcher;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard};

records! {
    Module { start, end, table_start, table_end }
}

answers! {
    /// The program counters of a thread's frames, innermost first, their stack pointers, where the function of each begins (0:
    /// unknown), why the walk ended early or "", and the program counter that no object holds if that is why. `saved`: (place of
    /// the frame, register as DWARF numbers it, address) of what its function saved for its callers; only of `unwind_stacks`.
    struct Unwound of process::Unwound {
        counters: Vec<u64>,
        pointers: Vec<u64>,
        starts: Vec<u64>,
        cut: String,
        unknown: Option<u64>,
        saved: Vec<(u64, u64, u64)>,
    }
}

/// The frames of each thread.
///
/// `room`: the bytes that the tables of `modules` may take; `threads`: their registers as DWARF numbers them, rip last.
/// Raises KeyboardInterrupt.
#[pyfunction]
pub fn unwind_stacks(
    py: Python<'_>,
    space: &Space,
    modules: Given<Vec<Module>>,
    room: u64,
    threads: Vec<[u64; REGISTERS]>,
) -> PyResult<Vec<Unwound>> {
    let unwind = |watcher: &dyn Watcher| process::unwind_stacks(watcher, &space.0, modules.0, room, threads);
    Ok(all(watched(py, None, unwind)?))
}

/// Follows the stacks of single threads, and keeps the tables of the code that it has met.
#[pyclass(frozen)]
pub struct Unwinder(Mutex<process::Unwinder>);

impl Unwinder {
    fn lock(&self) -> MutexGuard<'_, process::Unwinder> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[pymethods]
impl Unwinder {
    /// Of code in the objects `modules`, whose tables may take `room` bytes.
    #[new]
    fn new(modules: Given<Vec<Module>>, room: u64) -> Unwinder {
        Unwinder(Mutex::new(process::Unwinder::new(modules.0, room)))
    }

    /// Other objects are loaded now; the tables of those that stay are kept. All may take `room` bytes.
    fn renew(&self, py: Python<'_>, modules: Given<Vec<Module>>, room: u64) {
        py.detach(|| self.lock().renew(modules.0, room));
    }

    /// The frames of the thread with these registers (as DWARF numbers them, rip last). `tables`: where tables are read that
    /// were not needed before; `space`: where its stack is read, unless `stack` has the bytes at its stack pointer as they
    /// were when it had these registers. Raises KeyboardInterrupt.
    #[pyo3(signature = (tables, space, registers, stack=None))]
    fn unwind(
        &self,
        py: Python<'_>,
        tables: &Space,
        space: &Space,
        registers: [u64; REGISTERS],
        stack: Option<&[u8]>,
    ) -> PyResult<Unwound> {
        let stack = match stack {
            Some(bytes) => Stack::Copied { start: registers[process::STACK_POINTER], bytes },
            None => Stack::Live(&space.0),
        };
        let unwind = |watcher: &dyn Watcher| self.lock().unwind(watcher, &tables.0, stack, registers);
        Ok(watched(py, None, unwind)?.into())
    }
}

/// The name behind a linker's symbol of C++ or Rust, without parameters, result and hash; None for any other symbol.
#[pyfunction]
pub fn demangle(symbol: &str) -> Option<String> {
    gdbheap_core::demangle::demangle(symbol)
}

/// Whether a word in [start, end) of the target lies in [low, high]. What cannot be read is as bad as one that does.
#[pyfunction]
pub fn mentions(space: &Space, start: u64, end: u64, low: u64, high: u64) -> bool {
    process::mentions(&space.0, start, end, low, high)
}
