//! How calls of an allocator are written down: a few bytes each, shared by whoever records, reads and repeats them.
//!
//! Calls come in the order in which they were made, by all threads, in stages of STAGE bytes. Each stage reads alone: it
//! begins with the time and the thread, and distances count from nothing. A zero byte ends one. docs/calls.md describes it
//! for other programs.
#![no_std]
#![forbid(unsafe_code)]

mod event;
pub mod header;
pub mod part;
mod reader;
pub mod waiting;
mod writer;

pub use event::{other, usual_size, Event};
pub use part::Damaged;
pub use reader::Reader;
pub use writer::{encode, Last, MAX_EVENT};

/// Bytes of a stage: what one mapping of the recorder's holds.
pub const STAGE: usize = 256 << 10;
