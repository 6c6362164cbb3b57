//! Code for aarch64: its registers, its system calls, calls of functions. Code is not changed, and calls that a stop ends
//! with EINTR are not restarted.

pub(crate) mod cache;
pub(crate) mod call;
pub(crate) mod decoding;
pub(crate) mod registers;
pub(crate) mod restarting;
pub(crate) mod stub;
pub(crate) mod system_call;
