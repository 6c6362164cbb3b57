//! The format of recorded allocator calls, which the recorder, the reader and the replayer share. A call takes a few
//! bytes.
//!
//! The calls of all threads come in the order in which they were made, in stages of STAGE bytes. Each stage can be read
//! alone: it begins with the time and the thread. Addresses are written as distances from the previous address, which
//! is 0 at the start of a stage. A zero byte ends the stage. docs/calls.md describes the format for other programs.
#![no_std]
#![forbid(unsafe_code)]

mod event;
pub mod header;
pub mod part;
mod reader;
pub mod waiting;
mod writer;

pub use event::{other, usual_size, Event};
pub use part::StageError;
pub use reader::EventReader;
pub use writer::{encode, LastValues, MAX_EVENT};

/// The size of a stage in bytes. A stage fits into one mapping of the recorder.
pub const STAGE: usize = 256 << 10;
