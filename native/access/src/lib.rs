//! Access to a target. This crate reads the target's bytes, and does everything that gdbheap does to a process:
//! reading, stopping, following and calling it.
//!
//! Of the crates that read a target, only this one has unsafe code, in the modules that make system calls. The other
//! crates forbid unsafe code. Data from a target may be hostile, and this crate passes it on unchecked. A caller that
//! reads bytes for this crate implements `Source`. A caller that waits for long work implements `Watcher`.
//!
//! Code for one processor is in a folder named after the processor; `arch` is the folder of the processor that this
//! crate is built for. The folders have the same modules with the same names. A function that one of the folders cannot
//! provide yet returns an error.
//!
//! A module imports only modules to its left: error, bytes, machine, signals, folder, stat, tables, patient, child;
//! work; testing; memory; process. Each file of `arch` belongs to one of the last two modules.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
// Some code is used only on x86-64.
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

pub use error::{Cancellation, Error, MissingByte, Result};
pub use machine::{Machine, PageSize};
pub use work::{Progress, Watcher};
