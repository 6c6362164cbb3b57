//! What is of aarch64: its registers are read, and programs are started under a filter; all else is refused.

pub(crate) mod cache;
pub(crate) mod call;
pub(crate) mod decoding;
pub(crate) mod frame;
pub(crate) mod registers;
pub(crate) mod restarting;
pub(crate) mod stub;
pub(crate) mod system_call;
