//! The registers of a frame, by their numbers in unwind tables (DWARF for the Arm 64-bit Architecture).
#![forbid(unsafe_code)]

/// x0 to x30, and the stack pointer.
pub const REGISTERS: usize = 32;
pub const STACK_POINTER: usize = 31;
pub(crate) const RETURN_ADDRESS: usize = 30;
/// The registers that a function must preserve: x19 to x29.
pub(crate) const KEPT: [u16; 11] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
/// Why no stack is followed: the innermost frame may have its return address only in x30, apart from the program
/// counter, and signed.
pub(crate) const REFUSAL: Option<&str> = Some("stacks of aarch64 are not followed yet");
