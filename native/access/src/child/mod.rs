//! Processes of our own: what a child gets of us, what it is asked, and its end.

pub mod apart;
pub(crate) mod descriptor;
pub(crate) mod pipe;
pub(crate) mod waiting;
