//! The format of recorded allocator calls, which the recorder, the reader and the replayer share. A call takes a few
//! bytes.
//!
//! The calls of all threads come in the order in which they were made, in stages of STAGE bytes. Each stage can be read
//! alone: it begins with the time and the thread, and distances start from 0. A zero byte ends the stage. docs/calls.md
//! describes the format for other programs.
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

/// The size of a stage in bytes. A stage fits into one mapping of the recorder.
pub const STAGE: usize = 256 << 10;
