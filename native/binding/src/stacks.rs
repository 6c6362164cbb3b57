//! The stacks of threads that stand still.

use crate::memory::Space;
use crate::records::{records, Given};
use crate::rows::answers;
use gdbheap_core::process::{self, Module, REGISTERS};
use pyo3::prelude::*;

records! {
    Module { start, end, table_start, table_end }
}

answers! {
    /// The program counters of a thread's frames, innermost first, and why the walk ended early or "".
    struct Unwound { counters: Vec<u64>, cut: String }
}

/// The frames of each thread.
///
/// `threads`: their registers as DWARF numbers them, rip last.
#[pyfunction]
pub fn unwind_stacks(
    py: Python<'_>,
    space: &Space,
    modules: Given<Vec<Module>>,
    threads: Vec<[u64; REGISTERS]>,
) -> Vec<Unwound> {
    let row = |(counters, cut)| Unwound { counters, cut };
    py.detach(|| process::unwind_stacks(&space.0, modules.0, threads)).into_iter().map(row).collect()
}

/// Whether a word in [start, end) of the target lies in [low, high]. What cannot be read is as bad as one that does.
#[pyfunction]
pub fn mentions(space: &Space, start: u64, end: u64, low: u64, high: u64) -> bool {
    process::mentions(&space.0, start, end, low, high)
}
