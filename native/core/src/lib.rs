//! The native core of gdbheap: reads a target's memory in bulk, walks its allocators, classifies blocks.
//!
//! It decides nothing that the caller can tell it: most offsets are handed in, and what is left of layouts is with the
//! algorithm that needs it. It knows nothing of Python's interpreter as a host: who waits for long work is a `Watcher`, who
//! reads for it a `Source`. Whatever is read from a target is hostile: every count is bounded, every pointer is checked
//! against the segments, and arithmetic on it cannot panic.
//!
//! Imports point left: error, bytes, bits, by_address, machine, signals, folder, stat, tables, patient, work; packed and
//! symbols; memory; process; allocators; python; graph and memory_use; structures; history and events.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]

pub mod allocators;
pub(crate) mod bits;
pub(crate) mod by_address;
pub(crate) mod bytes;
pub(crate) mod error;
pub mod events;
pub(crate) mod firsts;
#[allow(unsafe_code)]
pub(crate) mod folder;
pub mod graph;
pub mod history;
pub(crate) mod machine;
#[allow(unsafe_code)]
pub mod memory;
pub mod memory_use;
pub mod packed;
pub mod patient;
#[allow(unsafe_code)]
pub mod process;
pub mod python;
#[allow(unsafe_code)]
pub mod signals;
pub(crate) mod stat;
pub mod structures;
pub mod symbols;
pub(crate) mod tables;
pub(crate) mod work;

pub use error::{Cancelled, Error, Missing, Result};
pub use machine::{Machine, PageSize};
pub use work::{Progress, Watcher};
