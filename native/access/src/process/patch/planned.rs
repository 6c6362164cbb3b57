//! What is found in code and written into it: system calls, patches, and their conditions.
#![forbid(unsafe_code)]

/// The value that a condition compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The first or the second argument.
    First,
    Second,
    /// The product of the first two arguments, as for calloc.
    Product,
    /// The size word of the chunk that the first argument points into, without its flags. The condition does not hold
    /// for null.
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

/// A patch of one place: `replacement` replaces the bytes `original` at `address`, and `stub` is written at `stub_at`.
/// A thread that reports itself stops with its program counter at `trap`; without the patch it would be at `seen_at`.
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

/// What is wanted of a patch.
pub(crate) struct Wish<'a> {
    /// The place where threads should be seen.
    pub(crate) address: u64,
    /// Where the replaced instructions begin: at `address`, or before it; then they are executed first.
    pub(crate) from: u64,
    pub(crate) stub_at: u64,
    pub(crate) signal: u32,
    pub(crate) conditions: &'a [Condition],
}

/// A system call: the address after it, that of the instruction that loads its number, and the number.
pub(crate) struct Call {
    pub(crate) address: u64,
    pub(crate) before: u64,
    pub(crate) number: u32,
}
