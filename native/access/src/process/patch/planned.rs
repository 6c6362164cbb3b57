//! What is found in code and what is put into it: system calls, patches, and what these are to be like.
#![forbid(unsafe_code)]

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The first or second argument.
    First,
    Second,
    /// The product of the first two, as calloc's.
    Product,
    /// The size word of the chunk that the first argument points into, without its flags; never equal for null.
    ChunkSize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Equal,
    AtLeast,
    AtMost,
}

/// All of a stub's conditions have to hold for the thread to stop.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    pub operand: Operand,
    pub test: Test,
    pub value: u64,
}

/// One place: `original` at `address` becomes `replacement`, and `stub` comes to `stub_at`. A thread that tells of itself
/// stops with its program counter at `trap`, and is as it is at `seen_at` without the patch.
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

/// A function's bytes, which lie from `start` on.
#[derive(Clone, Copy)]
pub(crate) struct Function<'a> {
    pub(crate) code: &'a [u8],
    pub(crate) start: u64,
}

/// How a patch is to be.
pub(crate) struct Wish<'a> {
    /// Where threads are seen.
    pub(crate) address: u64,
    /// Where the instructions begin that are replaced: there, or before it: then they are carried out first.
    pub(crate) from: u64,
    pub(crate) stub_at: u64,
    pub(crate) signal: u32,
    pub(crate) conditions: &'a [Condition],
}

/// A system call: the address behind it, that of the instruction which puts the number into its register, and the number.
pub(crate) struct Call {
    pub(crate) address: u64,
    pub(crate) before: u64,
    pub(crate) number: u32,
}
