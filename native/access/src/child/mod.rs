//! Child processes of gdbheap: the descriptors that they keep, the questions that they answer, and the wait for their
//! end.

pub mod apart;
pub(crate) mod descriptor;
pub(crate) mod pipe;
pub(crate) mod waiting;
