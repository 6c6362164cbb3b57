//! The bytes of a target, and all that is done to a process: reading, stopping, following and calling it.
//!
//! Of the crates that read a target this alone is unsafe, and only in the modules that make system calls: the others forbid
//! it to themselves. What was read is hostile, and is handed on as it is: who reads for a caller is a `Source`, who waits
//! for long work a `Watcher`.
//!
//! What is of one processor stands in a folder named after it; `arch` is that of the processor which this is built for. The
//! folders have the same modules, and in them the same names: what one of them cannot do yet it refuses.
//!
//! Imports point left: error, bytes, machine, signals, folder, stat, tables, patient, child; work; testing; memory; process. `arch`
//! stands beside the last two, file by file.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
// What only x86-64 has a use for.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("access has no folder for this processor: see how to add a machine in CONTRIBUTING.md");

#[cfg(target_arch = "aarch64")]
#[path = "aarch64/mod.rs"]
#[allow(unsafe_code)]
pub(crate) mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
#[allow(unsafe_code)]
pub(crate) mod arch;
pub mod bytes;
#[allow(unsafe_code)]
pub mod child;
pub mod error;
#[allow(unsafe_code)]
pub(crate) mod folder;
pub mod machine;
#[allow(unsafe_code)]
pub mod memory;
pub mod patient;
#[allow(unsafe_code)]
pub mod process;
#[allow(unsafe_code)]
pub mod signals;
pub(crate) mod stat;
pub(crate) mod tables;
pub mod testing;
pub mod work;

pub use error::{Cancelled, Error, Missing, Result};
pub use machine::{Machine, PageSize};
pub use work::{Progress, Watcher};
