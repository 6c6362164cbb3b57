//! Calls that were recorded.

use crate::rows::answers;
use crate::watch::{raised, watched, Report};
use gdbheap_core::events::{self, Frame, Plan, Stages};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;

answers! {
    /// What is in a replayer's plan; native/core/src/events/plan.rs says what each is.
    struct ReplayPlan of Plan {
        calls: u64,
        threads: u64,
        unknown: u64,
        failed: u64,
        mappings: u64,
        live_blocks: u64,
        live_bytes: u64,
        peak_bytes: u64,
        peak_call: u64,
        whole: bool,
    }
}

/// Bytes of a stage in a recorder's file.
#[pyfunction]
pub fn stage_bytes() -> usize {
    events::STAGE
}

/// A stage as it stands in a log. Raises MemoryError.
#[pyfunction]
pub fn pack_stage<'py>(py: Python<'py>, stage: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &py.detach(|| events::pack(stage)).map_err(raised)?))
}

/// The calls that still wait in a recorder's header (its first bytes), as a stage; empty without any.
#[pyfunction]
pub fn waiting_stage<'py>(py: Python<'py>, header: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &events::waiting_stage(header))
}

/// Writes the plan of a process's calls into an empty file, `plan`; without one it only says what would be in it. `frames`:
/// (offset, bytes) of its stages in the log. `mappings`: the program's own are repeated too. Raises OSError, and ValueError for
/// a stage that is larger than any; one that is damaged ends it.
#[pyfunction]
#[pyo3(signature = (path, frames, plan=None, mappings=false, progress=None))]
pub fn plan_calls(
    py: Python<'_>,
    path: &str,
    frames: Vec<(u64, u64)>,
    plan: Option<&str>,
    mappings: bool,
    progress: Option<Report>,
) -> PyResult<ReplayPlan> {
    let file = File::open(path)?;
    let plan = plan.map(|plan| File::options().write(true).open(plan)).transpose()?;
    let frames = stages_of(frames);
    let stages = Stages { file: &file, frames: &frames };
    Ok(watched(py, progress, |watcher| events::plan(watcher, &stages, plan.as_ref(), mappings))?.into())
}

/// (offset, bytes) of each, as the core has them.
pub fn stages_of(frames: Vec<(u64, u64)>) -> Vec<Frame> {
    frames.into_iter().map(|(offset, size)| Frame { offset, size }).collect()
}
