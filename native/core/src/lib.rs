//! The native core of gdbheap: walks a target's allocators, classifies blocks, draws the graph.
//!
//! It decides nothing that the caller can tell it: most offsets are handed in, and what is left of layouts is with the
//! algorithm that needs it. Bytes come from `gdbheap_access`; it knows no machine, and nothing of Python's interpreter as a
//! host. Whatever is read from a target is hostile: every count is bounded, every pointer is checked against the segments,
//! and arithmetic on it cannot panic.
//!
//! Imports point left: bits, by_address, firsts, mangled, demangle; packed and symbols; allocators; python; graph and
//! memory_use; structures; history and events.
#![forbid(unsafe_code)]

pub mod allocators;
pub(crate) mod bits;
pub(crate) mod by_address;
pub mod demangle;
pub mod events;
pub(crate) mod firsts;
pub mod graph;
pub mod history;
mod mangled;
pub mod memory_use;
pub mod packed;
pub mod python;
pub mod structures;
pub mod symbols;

pub use gdbheap_access::{Cancelled, Error, Machine, Missing, PageSize, Progress, Result, Watcher};
