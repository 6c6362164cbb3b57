//! Places in a program's code at which a thread tells its tracer that it came by, and nothing happens without a tracer.
//!
//! A jump to a few instructions in unused bytes of the same object takes the place of the first ones there. Those look
//! whether this call is wanted, and only then send the thread itself a signal that is ignored: SIGURG, or another whose
//! default is to do nothing. A traced thread stops for it, as for any signal. Should the tracer be gone, in whatever way,
//! the signal is thrown away by the kernel and the thread goes on: where a breakpoint instruction would kill the process,
//! this cannot.
#![forbid(unsafe_code)]

mod cave;
pub(crate) mod header;
pub(crate) mod planned;
mod sites;
pub(crate) mod text;

pub use crate::arch::stub::{frame_size, original_registers};
pub use cave::{left_behind, plan_all, Cave, CodePlace, Left};
pub use planned::{Condition, Operand, Patch, Test};
pub use sites::{find_sites, Site, Text};
