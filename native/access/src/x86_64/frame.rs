//! The registers of a frame, by their numbers in unwind tables (System V ABI, DWARF).
#![forbid(unsafe_code)]

/// rax to r15, and the return address.
pub const REGISTERS: usize = 17;
pub const STACK_POINTER: usize = 7;
pub(crate) const RETURN_ADDRESS: usize = 16;
/// The registers that a function must preserve: rbx, rbp and r12 to r15.
pub(crate) const KEPT: [u16; 6] = [3, 6, 12, 13, 14, 15];
/// Why no stack is followed; None if stacks are followed.
pub(crate) const REFUSAL: Option<&str> = None;
