//! The bytes of a target, and all that is done to a process: reading, stopping, following and calling it.
//!
//! Of the crates that read a target this alone is unsafe, and only in the modules that make system calls: the others forbid
//! it to themselves. What was read is hostile, and is handed on as it is: who reads for a caller is a `Source`, who waits
//! for long work a `Watcher`.
//!
//! Imports point left: error, bytes, machine, signals, folder, stat, tables, patient; work; testing; memory; process.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod bytes;
pub mod error;
pub(crate) mod folder;
pub mod machine;
pub mod memory;
pub mod patient;
pub mod process;
pub mod signals;
pub(crate) mod stat;
pub(crate) mod tables;
pub mod testing;
pub mod work;

pub use error::{Cancelled, Error, Missing, Result};
pub use machine::{Machine, PageSize};
pub use work::{Progress, Watcher};
