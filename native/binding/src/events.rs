//! Calls that were recorded.

use crate::rows::{all, answers};
use crate::watch::{raised, watched, Report};
use gdbheap_core::events::{self, header, Frame, Parent, Plan, PlanFile, Room, Stages};
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
        inherited: u64,
        python: PythonCalls,
    }

    /// Calls of Python's own allocator; native/core/src/events/python_blocks.rs says what each is.
    struct PythonCalls of events::PythonCalls {
        calls: u64,
        unknown: u64,
        live_blocks: u64,
        live_bytes: u64,
        peak_bytes: u64,
    }

    /// An object that was loaded in [start, end): what is added to the addresses it was linked at, its build-id (maybe empty)
    /// and its path.
    struct LoadedCode of events::LoadedObject { start: u64, end: u64, bias: u64, build_id: Vec<u8>, path: Vec<u8> }

    /// A code object of Python's; native/core/src/events/stacks.rs says what each is.
    struct PythonCode of events::Code {
        release: u64,
        first_line: u64,
        name: (u64, Vec<u8>),
        file: (u64, Vec<u8>),
        lines: Vec<u8>,
    }

    /// A stack, innermost first: (number of the object, address), and groups of (number of the code, offset).
    struct CallStack of events::CallStack {
        native: Vec<(Option<u32>, u64)>,
        python: Vec<Vec<(Option<u32>, i64)>>,
        cut: bool,
        torn: bool,
        is_python: bool,
    }

    /// What a stack stands for: bytes and blocks in use, and all that it had allocated.
    struct StackShare of events::Share {
        stack: u32,
        bytes: f64,
        blocks: f64,
        allocated_bytes: f64,
        allocated_blocks: f64,
    }

    /// The smallest block in use at the end that holds the address that was asked for.
    struct BlockMaker of events::Maker { wanted: u64, address: u64, size: u64, stack: u32 }

    /// The stack of a call that was asked for.
    struct StackCaller of events::Caller { call: u64, stack: u32 }

    /// The shares after a call, and how many calls and blocks with a stack these come from.
    struct StackMoment { call: u64, shares: Vec<StackShare>, sampled_calls: u64, sampled_blocks: u64 }

    /// The stacks of a process, and what they stand for at each moment.
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

/// What was in use after each of the calls `moments` (from 1, ascending; one beyond the last is the end), by stacks.
/// `rest`: stages of the process that are not in the log yet; `mean`: every how many bytes a stack
/// was taken; `wanted`: addresses whose blocks at the end are looked for; `asked`: calls (ascending) whose stacks are;
/// `room`: bytes of memory that may be taken. Raises OSError, MemoryError, and ValueError for a stage that is larger than any; one
/// that is damaged ends it.
#[pyfunction]
#[pyo3(signature = (path, frames, room, mean, moments, rest=vec![], wanted=vec![], asked=vec![], progress=None))]
#[allow(clippy::too_many_arguments)]
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

/// Where a stage is in a recorder's file: (offset, bytes). `is_current`: nothing follows it yet.
#[pyfunction]
pub fn place_of_stage(stage: u64, is_current: bool) -> (u64, usize) {
    let place = if is_current { header::slot_of } else { header::offset_of };
    (place(stage), events::STAGE)
}

/// A stage as it stands in a log, and when its first call was made (0 where calls have no times). Raises MemoryError.
#[pyfunction]
pub fn pack_stage<'py>(py: Python<'py>, stage: &[u8]) -> PyResult<(Bound<'py, PyBytes>, u64)> {
    Ok((PyBytes::new(py, &py.detach(|| events::pack(stage)).map_err(raised)?), events::first_tick(stage)))
}

/// Stages of a process in a log: (offset, bytes, when the first call was made) of each.
pub type Frames = Vec<(u64, u64, u64)>;

pub fn frames_of(frames: Frames) -> Vec<Frame> {
    frames.into_iter().map(|(offset, size, tick)| Frame { offset, size, tick }).collect()
}

/// The calls that still wait in a recorder's header (its first bytes), as a stage; empty without any.
#[pyfunction]
pub fn waiting_stage<'py>(py: Python<'py>, header: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &events::waiting_stage(header))
}

/// Writes the plan of a process's calls into an empty file, `plan`; without one it only says what would be in it.
/// `mappings`: the program's own are repeated too. `parents`: processes that it was forked from, the eldest first: their frames,
/// and the number of the fork; `room`: bytes of memory that may be taken; `most`: bytes that the plan may have. Raises OSError,
/// MemoryError, and ValueError for a stage that is larger than any; one that is damaged ends it.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
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
