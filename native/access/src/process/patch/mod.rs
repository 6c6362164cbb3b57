//! Patches: places in a program's code where a thread reports itself to its tracer. Without a tracer nothing happens
//! there.
//!
//! The first instructions at the place are replaced by a jump to a few instructions in unused bytes of the same object.
//! These few instructions check whether the call is wanted, and only then send the thread itself a signal that is
//! ignored: SIGURG, or another signal whose default is to do nothing. A traced thread stops for it, as for any signal.
//! If the tracer has ended, the kernel discards the signal and the thread continues. A breakpoint instruction without a
//! tracer would kill the process.
#![forbid(unsafe_code)]

mod cave;
pub(crate) mod header;
mod sites;
pub(crate) mod text;
pub(crate) mod types;

pub use crate::arch::stub::{frame_size, original_registers};
pub use cave::{left_behind, plan_all, Cave, CodePlace, LeftStub};
pub use sites::{find_sites, Site, Text};
pub use types::{Condition, Operand, Patch, Test};
