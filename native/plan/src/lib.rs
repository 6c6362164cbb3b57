//! The plan of a replay: the recorded calls of one process in order, with places in a table instead of addresses.
//!
//! The plan has a header of 64-bit words, and then steps of one word each. A block gets a place in the table when it is
//! allocated. Once the block is freed, another block may get its place. So the table needs only as many places as there
//! were blocks in use at the same time.
#![no_std]
#![forbid(unsafe_code)]

/// The first word of a plan, by which the replayer recognizes it.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gdb plan");
pub const VERSION: u64 = 1;

/// The index of each 64-bit word of the header.
pub mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    /// The number of steps that follow.
    pub const STEPS: usize = 2;
    /// The number of places in the table of blocks.
    pub const BLOCKS: usize = 3;
    /// The number of places in the table of the program's mappings.
    pub const MAPPINGS: usize = 4;
    /// The number of threads. They are numbered from 0; thread 0 made the first call.
    pub const THREADS: usize = 5;
    /// The lowest address of a block; 0 if the plan has no block. The page of this address counts as the first page of
    /// the heap. The replay repeats the distance of that page from the next multiple of `ALIGNED`, because alignments
    /// above a page depend on it.
    pub const LOWEST: usize = 6;
    pub const WORDS: usize = 8;
}

/// The size of the header in bytes. The first step is at this offset.
pub const HEADER: usize = header::WORDS * 8;
/// The largest alignment in bytes that a replay reproduces. In glibc, the heap of a thread begins at a multiple of it.
pub const ALIGNED: u64 = 64 << 20;

/// The kinds of steps. Steps of the kinds up to `NOTHING` are calls, and are counted.
pub mod kind {
    /// A call of malloc. Like CALLOC and REALLOC, this step has the place of the block, and the requested size.
    pub const MALLOC: u64 = 1;
    pub const CALLOC: u64 = 2;
    pub const REALLOC: u64 = 3;
    pub const FREE: u64 = 4;
    /// A call of memalign, with a place and a size. The step `ALIGNMENT` comes before it.
    pub const MEMALIGN: u64 = 5;
    /// A realloc of the block at a place to size 0, which returned NULL.
    pub const RELEASE: u64 = 6;
    /// A call without effect: a call of free for NULL, or for a block whose allocation is unknown.
    pub const NOTHING: u64 = 7;
    /// The upper bits of the place and of the argument of the next step, if they do not fit into that step.
    pub const WIDE: u64 = 8;
    /// The next call returned NULL when it was recorded. The replay makes it fail as well.
    pub const FAILED: u64 = 9;
    pub const ALIGNMENT: u64 = 10;
    /// The following calls belong to the thread with this number.
    pub const THREAD: u64 = 11;
    /// The thread with this number ends.
    pub const END: u64 = 12;
    /// A call of mallopt, with the parameter and the value.
    pub const MALLOPT: u64 = 13;
    pub const TRIM: u64 = 14;
    /// A step that is none of these kinds. Its place says what it does (see `other`).
    pub const OTHER: u64 = 15;
}

/// The effects of steps of the kind OTHER. Each constant is the place of such a step.
pub mod other {
    /// The step has no effect. It was reserved for the end of a thread, and was not needed.
    pub const NONE: u64 = 0;
    /// The next FREE does not count as a call, because the recording does not contain it. It frees a block whose
    /// address was given to another block.
    pub const UNSEEN: u64 = 1;
    /// A new mapping. Three words follow: its place, its size and its protection.
    pub const MMAP: u64 = 2;
    /// Part of a mapping is unmapped. Three words follow: the place of the mapping, where the part begins, and the size
    /// of the part.
    pub const MUNMAP: u64 = 3;
}

const KIND_BITS: u32 = 4;
const PLACE_BITS: u32 = 28;
/// The lowest number of a place that does not fit into a step. Such a place needs a WIDE step before it.
pub const PLACE_LIMIT: u64 = 1 << PLACE_BITS;
/// The lowest argument that does not fit into a step. Such an argument needs a WIDE step before it.
pub const ARGUMENT_LIMIT: u64 = 1 << 32;

/// Build a step from its kind, its place and its argument. Bits that do not fit are dropped; a WIDE step must carry
/// them.
#[inline(always)]
pub const fn step(kind: u64, place: u64, argument: u64) -> u64 {
    kind | (place & (PLACE_LIMIT - 1)) << KIND_BITS | argument << (KIND_BITS + PLACE_BITS)
}

#[inline(always)]
pub const fn kind_of(step: u64) -> u64 {
    step & ((1 << KIND_BITS) - 1)
}

#[inline(always)]
pub const fn place_of(step: u64) -> u64 {
    (step >> KIND_BITS) & (PLACE_LIMIT - 1)
}

#[inline(always)]
pub const fn argument_of(step: u64) -> u64 {
    step >> (KIND_BITS + PLACE_BITS)
}

/// Join the two halves of a place. The upper half comes from the preceding WIDE step.
#[inline(always)]
pub const fn wide_place(upper: u64, lower: u64) -> u64 {
    upper << PLACE_BITS | lower
}

#[inline(always)]
pub const fn wide_argument(upper: u64, lower: u64) -> u64 {
    upper << 32 | lower
}
