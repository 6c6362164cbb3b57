//! Recorded allocator calls: the log's format, statistics, and plans to replay them.
#![forbid(unsafe_code)]

mod blocks;
mod by_time;
mod frames;
mod mappings;
mod memory_limit;
mod plan;
mod python_blocks;
mod stacks;
mod stats;
#[cfg(test)]
mod testing;

pub use frames::{first_tick, pack, waiting_stage, StageFrame, Stages};
pub use gdbheap_calls::{header, STAGE};
pub use memory_limit::Room;
pub use plan::{plan, Parent, Plan, PlanFile};
pub use python_blocks::PythonCalls;
pub use stacks::{live_stacks, CallStack, Caller, Code, LiveStacks, LoadedObject, Maker, Share, StackMoment};
pub use stats::{stats, Calls, InUse, Lives, Moment, Point, ResizeCounts, SizeRow, Span, Stats};
