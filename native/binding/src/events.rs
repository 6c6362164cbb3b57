//! Recorded allocator calls: their stacks, and the plans that replay them.

use crate::detaching::detached;
use crate::rows::{all, answers, exports};
use crate::watch::{raised, watched, Report};
use gdbheap_core::events::{self, header, Parent, Plan, PlanFile, Room, StageFrame, Stages};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;

answers! {
    /// A summary of a plan that replays recorded calls: the numbers of calls, threads and mappings in it, and the
    /// requested bytes in use. native/core/src/events/plan.rs explains each field.
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
        inherited: u64,
        python: PythonCalls,
    }

    /// Sums over the recorded calls of Python's own allocator, which a replay leaves out.
    /// native/core/src/events/python_blocks.rs explains each field.
    struct PythonCalls of events::PythonCalls {
        calls: u64,
        unknown: u64,
        live_blocks: u64,
        live_bytes: u64,
        peak_bytes: u64,
    }

    /// An object that was loaded at [start, end). `bias`: the number to add to its linked addresses. `build_id`: empty
    /// if unknown.
    struct LoadedCode of events::LoadedObject { start: u64, end: u64, bias: u64, build_id: Vec<u8>, path: Vec<u8> }

    /// A Python code object that occurs in recorded stacks: its name, its file and its line table.
    /// native/core/src/events/stacks.rs explains each field.
    struct PythonCode of events::Code {
        release: u64,
        first_line: u64,
        name: (u64, Vec<u8>),
        file: (u64, Vec<u8>),
        lines: Vec<u8>,
    }

    /// A call stack. Both lists have the innermost frame first.
    ///
    /// - `native`: the C frames, each as (index of the loaded object, address).
    /// - `python`: the Python frames, each as (index of the code object, offset in bytes), in one group for each run of
    ///   the evaluator.
    /// - An index is None if the object is unknown.
    struct CallStack of events::CallStack {
        native: Vec<(Option<u32>, u64)>,
        python: Vec<Vec<(Option<u32>, i64)>>,
        cut: bool,
        torn: bool,
        is_python: bool,
    }

    /// Estimates for one stack: the bytes and blocks that were allocated with it and are in use, and all bytes and
    /// blocks that were ever allocated with it.
    struct StackShare of events::Share {
        stack: u32,
        bytes: f64,
        blocks: f64,
        allocated_bytes: f64,
        allocated_blocks: f64,
    }

    /// The smallest block in use at the end that contains the address `wanted`, and the stack that allocated it.
    struct BlockMaker of events::Maker { wanted: u64, address: u64, size: u64, stack: u32 }

    /// The stack of one of the calls that the caller asked about.
    struct StackCaller of events::Caller { call: u64, stack: u32 }

    /// The stacks with allocations up to the call with the number `call`, and what each allocated. The figures are
    /// estimates from the `sampled_blocks` recorded blocks in use.
    struct StackMoment { call: u64, shares: Vec<StackShare>, sampled_blocks: u64 }

    /// The stacks of a process, and the shares of these stacks after each of the given calls.
    struct LiveStacks {
        objects: Vec<LoadedCode>,
        codes: Vec<PythonCode>,
        stacks: Vec<CallStack>,
        moments: Vec<StackMoment>,
        makers: Vec<BlockMaker>,
        callers: Vec<StackCaller>,
        calls: u64,
        without: u64,
        whole: bool,
    }
}

exports! {
    functions: place_of_stage, pack_stage, waiting_stage, plan_calls, live_stacks;
}

impl From<events::StackMoment> for StackMoment {
    fn from(moment: events::StackMoment) -> StackMoment {
        let events::StackMoment { call, shares, sampled_blocks } = moment;
        StackMoment { call, shares: all(shares), sampled_blocks }
    }
}

impl From<events::LiveStacks> for LiveStacks {
    fn from(found: events::LiveStacks) -> LiveStacks {
        LiveStacks {
            objects: all(found.objects),
            codes: all(found.codes),
            stacks: all(found.stacks),
            moments: all(found.moments),
            makers: all(found.makers),
            callers: all(found.callers),
            calls: found.calls,
            without: found.without,
            whole: found.whole,
        }
    }
}

/// Return the blocks in use after each of the calls `moments`, summed up by the stack that allocated them.
///
/// - `moments`: numbers of calls, from 1, ascending. A number beyond the last call means the end.
/// - `rest`: stages of the process that are not in the log yet.
/// - `mean`: the average number of allocated bytes between two recorded stacks.
/// - `wanted`: addresses. The blocks that contain them at the end are looked up.
/// - `asked`: numbers of calls, ascending, whose stacks are looked up.
/// - `room`: how many bytes of memory may be used.
///
/// The log is read up to the first damaged stage. Raises OSError if the file cannot be read, MemoryError if `room` is
/// too small, and ValueError if a stage is too large.
#[pyfunction]
#[pyo3(signature = (path, frames, room, mean, moments, rest=vec![], wanted=vec![], asked=vec![], progress=None))]
pub fn live_stacks(
    py: Python<'_>,
    path: &str,
    frames: Frames,
    room: u64,
    mean: u64,
    moments: Vec<u64>,
    rest: Vec<Vec<u8>>,
    wanted: Vec<u64>,
    asked: Vec<u64>,
    progress: Option<Report>,
) -> PyResult<LiveStacks> {
    let file = File::open(path)?;
    let (frames, room) = (frames_of(frames), Room::new(room));
    let stages = Stages { file: &file, frames: &frames, room: &room };
    let found =
        watched(py, progress, |watcher| events::live_stacks(watcher, &stages, &rest, mean, &moments, &wanted, &asked))?;
    Ok(found.into())
}

/// Return the place of a stage in a recorder's file: its offset, and its size in bytes. `is_current`: whether no later
/// stage exists yet.
#[pyfunction]
pub fn place_of_stage(stage: u64, is_current: bool) -> (u64, usize) {
    let place = if is_current { header::slot_of } else { header::offset_of };
    (place(stage), events::STAGE)
}

/// Compress a stage for a log. Return the compressed stage, and the time of its first call (0 if calls have no times).
/// Raises MemoryError.
#[pyfunction]
pub fn pack_stage<'py>(py: Python<'py>, stage: &[u8]) -> PyResult<(Bound<'py, PyBytes>, u64)> {
    Ok((PyBytes::new(py, &detached(py, || events::pack(stage)).map_err(raised)?), events::first_tick(stage)))
}

/// The stages of a process in a log. Each stage has an offset, a size in bytes, and the time of its first call.
pub type Frames = Vec<(u64, u64, u64)>;

pub fn frames_of(frames: Frames) -> Vec<StageFrame> {
    frames.into_iter().map(|(offset, size, tick)| StageFrame { offset, size, tick }).collect()
}

/// Return, as a stage, the calls that still wait in the header of a recorder's file. The stage is empty if no calls
/// wait there. `header`: the first bytes of the file.
#[pyfunction]
pub fn waiting_stage<'py>(py: Python<'py>, header: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &events::waiting_stage(header))
}

/// Write the plan by which a process's calls can be replayed into the empty file `plan`, and return a summary of the
/// plan. If `plan` is None, only return the summary.
///
/// - `mappings`: whether to replay the program's own mappings, too.
/// - `parents`: the processes from which this one was forked, oldest first, each as (its frames, the number of the
///   fork).
/// - `room`: how many bytes of memory may be used.
/// - `most`: how many bytes the plan may have.
///
/// The log is read up to the first damaged stage. Raises OSError if a file cannot be read or written, MemoryError if
/// `room` is too small, and ValueError if a stage is too large.
#[pyfunction]
#[pyo3(signature = (path, frames, room, plan=None, most=0, mappings=false, parents=vec![], progress=None))]
pub fn plan_calls(
    py: Python<'_>,
    path: &str,
    frames: Frames,
    room: u64,
    plan: Option<&str>,
    most: u64,
    mappings: bool,
    parents: Vec<(Frames, u64)>,
    progress: Option<Report>,
) -> PyResult<ReplayPlan> {
    let file = File::open(path)?;
    let plan = plan.map(|plan| File::options().write(true).open(plan)).transpose()?;
    let (frames, room) = (frames_of(frames), Room::new(room));
    let elders: Vec<(Vec<StageFrame>, u64)> =
        parents.into_iter().map(|(frames, fork)| (frames_of(frames), fork)).collect();
    let parents: Vec<Parent<'_>> = elders
        .iter()
        .map(|(frames, fork)| Parent { stages: Stages { file: &file, frames, room: &room }, fork: *fork })
        .collect();
    let stages = Stages { file: &file, frames: &frames, room: &room };
    let plan = plan.as_ref().map(|file| PlanFile { file, most });
    Ok(watched(py, progress, |watcher| events::plan(watcher, &parents, &stages, plan, mappings))?.into())
}
