//! What is of x86-64: its registers, its code, its system calls.

pub(crate) mod limits;
pub(crate) mod registers;
pub(crate) mod stub;
