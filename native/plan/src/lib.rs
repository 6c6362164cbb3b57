//! The plan of a replay: the recorded calls of one process in order, with places in a table instead of addresses.
//!
//! A header of 64-bit words is followed by steps of one word each. A block gets a place when it is allocated; once it
//! is freed, another block may get the place. So the table is as long as the most blocks that were in use at once.
#![no_std]
#![forbid(unsafe_code)]

/// "gdb plan" as a word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gdb plan");
pub const VERSION: u64 = 1;

/// The indices of the words of the header.
pub mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    /// The number of steps that follow.
    pub const STEPS: usize = 2;
    /// The number of places in the table of blocks, and in that of the program's mappings.
    pub const BLOCKS: usize = 3;
    pub const MAPPINGS: usize = 4;
    /// The number of threads. They are numbered from 0; thread 0 made the first call.
    pub const THREADS: usize = 5;
    /// The lowest address of a block, or 0. Its page counts as the first page of the heap. The replay repeats the
    /// distance of that page from the next multiple of `ALIGNED`, because alignments above a page depend on it.
    pub const LOWEST: usize = 6;
    pub const WORDS: usize = 8;
}

/// The bytes of the header.
pub const HEADER: usize = header::WORDS * 8;
/// The largest alignment with which a block gets the same place again: the heap of a thread in glibc begins at such an
/// address.
pub const ALIGNED: u64 = 64 << 20;

/// The kinds of steps. Those up to `NOTHING` are calls, and are counted.
pub mod kind {
    /// A place, and the size.
    pub const MALLOC: u64 = 1;
    pub const CALLOC: u64 = 2;
    pub const REALLOC: u64 = 3;
    pub const FREE: u64 = 4;
    /// A place and the size, after `ALIGNMENT`.
    pub const MEMALIGN: u64 = 5;
    /// A realloc of a place to size 0, which returned NULL.
    pub const RELEASE: u64 = 6;
    /// A call without effect: free of NULL, or of a block whose allocation is unknown.
    pub const NOTHING: u64 = 7;
    /// The upper halves of the place and the size of the next step.
    pub const WIDE: u64 = 8;
    /// The next call failed when it was recorded.
    pub const FAILED: u64 = 9;
    pub const ALIGNMENT: u64 = 10;
    /// The following calls belong to this thread.
    pub const THREAD: u64 = 11;
    /// This thread ends.
    pub const END: u64 = 12;
    /// mallopt: its parameter and its value.
    pub const MALLOPT: u64 = 13;
    pub const TRIM: u64 = 14;
    /// Something else: the bits of the place say what (`other`).
    pub const OTHER: u64 = 15;
}

/// What a step of the kind OTHER does.
pub mod other {
    /// Nothing.
    pub const NONE: u64 = 0;
    /// The block of the next FREE was freed by something that was not recorded, so that FREE does not count as a call.
    pub const UNSEEN: u64 = 1;
    /// A mapping. Three words follow: its place, its size and its protection.
    pub const MMAP: u64 = 2;
    /// Part of a mapping is unmapped. Three words follow: its place, where the part begins, and its size.
    pub const MUNMAP: u64 = 3;
}

const KIND_BITS: u32 = 4;
const PLACE_BITS: u32 = 28;
/// The limits of what fits into a step without a WIDE before it.
pub const PLACE_LIMIT: u64 = 1 << PLACE_BITS;
pub const ARGUMENT_LIMIT: u64 = 1 << 32;

/// Build a step from its kind, its place and its argument. Only the lower bits of each are used.
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

/// Join the halves of a place; the upper half comes from a WIDE step.
#[inline(always)]
pub const fn wide_place(upper: u64, lower: u64) -> u64 {
    upper << PLACE_BITS | lower
}

#[inline(always)]
pub const fn wide_argument(upper: u64, lower: u64) -> u64 {
    upper << 32 | lower
}
