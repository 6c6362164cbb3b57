//! Child processes of gdbheap: what they inherit, what they are asked, and their end.

pub mod apart;
pub(crate) mod descriptor;
pub(crate) mod pipe;
pub(crate) mod waiting;
