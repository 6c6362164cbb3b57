//! Calls of an allocator that were recorded: how a log keeps them, what they add up to, and how they are made again.
#![forbid(unsafe_code)]

mod frames;
mod mappings;
mod plan;
mod python_blocks;

pub use frames::{pack, waiting_stage, Frame, Stages};
pub use gdbheap_calls::STAGE;
pub use plan::{plan, Parent, Plan};
pub use python_blocks::PythonCalls;
