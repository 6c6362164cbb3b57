//! Code for x86-64: its registers, its instructions, its system calls.

pub(crate) mod cache;
pub(crate) mod call;
pub(crate) mod decoding;
pub(crate) mod registers;
pub(crate) mod restarting;
pub(crate) mod stub;
pub(crate) mod system_call;
