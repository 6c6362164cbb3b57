//! Calls of an allocator that were recorded: how a log keeps them, what they add up to, and how they are made again.
#![forbid(unsafe_code)]

mod frames;
mod mappings;
mod plan;
mod stacks;

pub use frames::{pack, waiting_stage, Frame, Stages};
pub use gdbheap_calls::STAGE;
pub use plan::{plan, Plan};
pub use stacks::{live_stacks, CallStack, Code, LiveStacks, LoadedObject, Maker, Moment, Share};
