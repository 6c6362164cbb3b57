//! The types for results of the search in code, and for new code: system calls, patches, and the conditions of patches.
#![forbid(unsafe_code)]

/// The value that a condition compares with a number: an argument of the function, or a value computed from its
/// arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    First,
    Second,
    /// The product of the first two arguments, as for calloc.
    Product,
    /// The size of the chunk that the first argument points into, from the chunk's header without its flags. The
    /// condition does not hold for a null argument.
    ChunkSize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Equal,
    AtLeast,
    AtMost,
}

/// A condition of a stub. All conditions must hold for the thread to stop.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    pub operand: Operand,
    pub test: Test,
    pub value: u64,
}

/// A patch of one place in the code.
///
/// - `original`, `replacement`: the bytes at `address`, and the jump that replaces them.
/// - `stub`: the code to which the jump leads. It is written at `stub_at`.
/// - `trap`: the program counter of a thread that reports itself.
/// - `seen_at`: the program counter that this thread would have without the patch.
#[derive(Clone, Debug)]
pub struct Patch {
    pub address: u64,
    pub original: Vec<u8>,
    pub replacement: Vec<u8>,
    pub stub_at: u64,
    pub stub: Vec<u8>,
    pub trap: u64,
    pub seen_at: u64,
}

/// The bytes of a function, which begin at `start`.
#[derive(Clone, Copy)]
pub(crate) struct Function<'a> {
    pub(crate) code: &'a [u8],
    pub(crate) start: u64,
}

/// The request for a patch that catches threads at `address` if all `conditions` hold, and reports them by `signal`.
pub(crate) struct PatchRequest<'a> {
    /// The address at which threads should be caught.
    pub(crate) address: u64,
    /// The address of the first replaced instruction: `address`, or before it. Instructions before `address` are
    /// executed first.
    pub(crate) from: u64,
    pub(crate) stub_at: u64,
    pub(crate) signal: u32,
    pub(crate) conditions: &'a [Condition],
}

/// A system call in code.
///
/// - `address`: the address after the system call instruction.
/// - `before`: the address of the instruction that loads the number of the system call.
pub(crate) struct Call {
    pub(crate) address: u64,
    pub(crate) before: u64,
    pub(crate) number: u32,
}
