//! Calls of an allocator that were recorded: how a log keeps them, what they add up to, and how they are made again.
#![forbid(unsafe_code)]

mod blocks;
mod frames;
mod mappings;
mod plan;
mod stats;

pub use frames::{pack, waiting_stage, Frame, Stages};
pub use gdbheap_calls::STAGE;
pub use plan::{plan, Plan};
pub use stats::{stats, Calls, InUse, Lives, Moment, Point, Resized, SizeRow, Span, Stats};
