//! Recorded allocator calls.

use crate::rows::{all, answers, exports};
use crate::watch::{raised, watched, Report};
use gdbheap_core::events::{self, header, Frame, Parent, Plan, PlanFile, Room, Stages};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;

answers! {
    /// The contents of a replay plan; see native/core/src/events/plan.rs for each field.
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

    /// Calls of Python's own allocator; see native/core/src/events/python_blocks.rs for each field.
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

    /// A Python code object; see native/core/src/events/stacks.rs for each field.
    struct PythonCode of events::Code {
        release: u64,
        first_line: u64,
        name: (u64, Vec<u8>),
        file: (u64, Vec<u8>),
        lines: Vec<u8>,
    }

    /// A stack, innermost frame first. `native`: (index of the loaded object, address) of each C frame. `python`:
    /// groups of Python frames, each frame as (index of the code object, offset).
    struct CallStack of events::CallStack {
        native: Vec<(Option<u32>, u64)>,
        python: Vec<Vec<(Option<u32>, i64)>>,
        cut: bool,
        torn: bool,
        is_python: bool,
    }

    /// The share of a stack: the estimated bytes and blocks that are in use, and the estimated bytes and blocks that
    /// were ever allocated with this stack.
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

    /// The shares of all stacks after a call. They are computed from `sampled_calls` calls and `sampled_blocks` blocks.
    struct StackMoment { call: u64, shares: Vec<StackShare>, sampled_calls: u64, sampled_blocks: u64 }

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
        let events::StackMoment { call, shares, sampled_calls, sampled_blocks } = moment;
        StackMoment { call, shares: all(shares), sampled_calls, sampled_blocks }
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

/// Return the blocks in use after each of the calls `moments`, by stack.
///
/// `moments`: numbers of calls, from 1, ascending; a number beyond the last call means the end. `rest`: stages of the
/// process that are not in the log yet. `mean`: the average number of bytes between two stacks. `wanted`: addresses;
/// the blocks that contain them at the end are looked up. `asked`: numbers of calls, ascending, whose stacks are looked
/// up. `room`: how many bytes of memory may be used. The log is read up to the first damaged stage. Raises OSError,
/// MemoryError, and ValueError for a stage that is too large.
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
    Ok((PyBytes::new(py, &py.detach(|| events::pack(stage)).map_err(raised)?), events::first_tick(stage)))
}

/// The stages of a process in a log. Each stage has an offset, a size in bytes, and the time of its first call.
pub type Frames = Vec<(u64, u64, u64)>;

pub fn frames_of(frames: Frames) -> Vec<Frame> {
    frames.into_iter().map(|(offset, size, tick)| Frame { offset, size, tick }).collect()
}

/// Return, as a stage, the calls that still wait in the header of a recorder's file. The stage is empty if there are
/// none. `header`: the first bytes of the file.
#[pyfunction]
pub fn waiting_stage<'py>(py: Python<'py>, header: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &events::waiting_stage(header))
}

/// Write the plan of a process's calls into the empty file `plan`. Without a file, only return the contents that the
/// plan would have.
///
/// `mappings`: whether to replay the program's own mappings, too. `parents`: the processes from which this one was
/// forked, oldest first: for each, its frames and the number of the fork. `room`: how many bytes of memory may be used.
/// `most`: how many bytes the plan may have. The log is read up to the first damaged stage. Raises OSError,
/// MemoryError, and ValueError for a stage that is too large.
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
    let elders: Vec<(Vec<Frame>, u64)> = parents.into_iter().map(|(frames, fork)| (frames_of(frames), fork)).collect();
    let parents: Vec<Parent<'_>> = elders
        .iter()
        .map(|(frames, fork)| Parent { stages: Stages { file: &file, frames, room: &room }, fork: *fork })
        .collect();
    let stages = Stages { file: &file, frames: &frames, room: &room };
    let plan = plan.as_ref().map(|file| PlanFile { file, most });
    Ok(watched(py, progress, |watcher| events::plan(watcher, &parents, &stages, plan, mappings))?.into())
}
