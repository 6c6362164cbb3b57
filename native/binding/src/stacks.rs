//! The stacks of threads that stand still.

use crate::memory::Space;
use gdbheap_core::process::{self, Module, REGISTERS};
use pyo3::prelude::*;

/// `(start, end, address of .eh_frame_hdr, end of the segment that it lies in)` of a loaded object.
type ModuleRow = (u64, u64, u64, u64);

/// For each thread `([program counters, innermost first], why the walk ended early or "")`.
///
/// `threads`: their registers as DWARF numbers them, rip last.
#[pyfunction]
pub fn unwind_stacks(
    py: Python<'_>,
    space: &Space,
    modules: Vec<ModuleRow>,
    threads: Vec<[u64; REGISTERS]>,
) -> Vec<(Vec<u64>, String)> {
    let module = |(start, end, table_start, table_end)| Module { start, end, table_start, table_end };
    py.detach(|| process::unwind_stacks(&space.0, modules.into_iter().map(module).collect(), threads))
}

/// Whether a word in [start, end) of the target lies in [low, high]. What cannot be read is as bad as one that does.
#[pyfunction]
pub fn mentions(space: &Space, start: u64, end: u64, low: u64, high: u64) -> bool {
    process::mentions(&space.0, start, end, low, high)
}
