//! The native core of gdbheap: it walks a target's allocators, classifies blocks, and builds the reference graph.
//!
//! The caller passes in policy and most offsets. All other facts about layouts are next to the algorithm that needs
//! them. Bytes come from `gdbheap_access`. The core knows no machine and does not use the Python interpreter that hosts
//! it. Whatever is read from a target is hostile: every count is bounded, every pointer is checked against the
//! segments, and arithmetic on such numbers cannot panic.
//!
//! A module imports only from the groups that precede its own group in this list: bits, by_address, top_rows, mangled,
//! demangle; packed, source_lines and symbols; allocators; python; graph and memory_use; structures; history and
//! events.
#![forbid(unsafe_code)]

pub mod allocators;
pub(crate) mod bits;
pub(crate) mod by_address;
pub mod demangle;
pub mod events;
pub mod graph;
pub mod history;
mod mangled;
pub mod memory_use;
pub mod packed;
pub mod python;
pub mod source_lines;
pub mod structures;
pub mod symbols;
pub(crate) mod top_rows;

pub use gdbheap_access::machine::EM_X86_64;
pub use gdbheap_access::{Cancellation, Error, Machine, MissingByte, PageSize, Progress, Result, Watcher};
