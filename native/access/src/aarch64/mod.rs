//! Code for aarch64. Registers can be read, and programs can be started under a filter; everything else returns an
//! error.

pub(crate) mod cache;
pub(crate) mod call;
pub(crate) mod decoding;
pub(crate) mod registers;
pub(crate) mod restarting;
pub(crate) mod stub;
pub(crate) mod system_call;
