//! Code for aarch64: its registers, its system calls and their restart, calls of functions. The machine code of targets
//! is not changed on this processor.

pub(crate) mod cache;
pub(crate) mod call;
pub(crate) mod decoding;
pub(crate) mod registers;
pub(crate) mod restarting;
pub(crate) mod stub;
pub(crate) mod system_call;
