//! What a replayer is told to do: the recorded calls of one process, in their order, with places in a table instead of
//! addresses.
//!
//! A header of words of 64 bits, then steps of one word each. A place is handed to a block when it is allocated, and to another
//! once it is freed: the table is as long as the most blocks that were in use at once.
#![no_std]
#![forbid(unsafe_code)]

/// "gdb plan" as a word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gdb plan");
pub const VERSION: u64 = 1;

/// The words of the header, by their places.
pub mod header {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    /// Steps that follow.
    pub const STEPS: usize = 2;
    /// Places in the table of blocks, and of the program's mappings.
    pub const BLOCKS: usize = 3;
    pub const MAPPINGS: usize = 4;
    /// Threads, each numbered from 0; 0 is the one that called first.
    pub const THREADS: usize = 5;
    /// The lowest address of a block, or 0: its page is taken for the first of the heap, whose distance from the next multiple
    /// of `ALIGNED` is repeated, as alignments above a page depend on it.
    pub const LOWEST: usize = 6;
    pub const WORDS: usize = 8;
}

/// Bytes of the header.
pub const HEADER: usize = header::WORDS * 8;
/// The largest alignment that has a block in the same place again: a heap of a thread of glibc's begins at such an address.
pub const ALIGNED: u64 = 64 << 20;

/// What a step does. Those up to `NOTHING` are calls, and are counted.
pub mod kind {
    /// A place, and the size.
    pub const MALLOC: u64 = 1;
    pub const CALLOC: u64 = 2;
    pub const REALLOC: u64 = 3;
    pub const FREE: u64 = 4;
    /// A place and the size, after `ALIGNMENT`.
    pub const MEMALIGN: u64 = 5;
    /// realloc to nothing, of a place, that gave NULL.
    pub const RELEASE: u64 = 6;
    /// A call that has no effect: free of NULL, or of a block that nobody is known to have allocated.
    pub const NOTHING: u64 = 7;
    /// The place and the size of the next step in its upper halves.
    pub const WIDE: u64 = 8;
    /// The next call failed when it was recorded.
    pub const FAILED: u64 = 9;
    pub const ALIGNMENT: u64 = 10;
    /// Calls from here on are this thread's.
    pub const THREAD: u64 = 11;
    /// This thread ends.
    pub const END: u64 = 12;
    /// mallopt: its parameter and its value.
    pub const MALLOPT: u64 = 13;
    pub const TRIM: u64 = 14;
    /// Others: what is done stands in the place's bits.
    pub const OTHER: u64 = 15;
}

/// What an OTHER does.
pub mod other {
    /// Nothing.
    pub const NONE: u64 = 0;
    /// The block of the next FREE was freed by something that was not recorded: it counts as no call.
    pub const UNSEEN: u64 = 1;
    /// A mapping: three words follow, its place, its size and its protection.
    pub const MMAP: u64 = 2;
    /// Part of a mapping goes: three words follow, its place, where the part begins and its size.
    pub const MUNMAP: u64 = 3;
}

const KIND_BITS: u32 = 4;
const PLACE_BITS: u32 = 28;
/// What fits in a step that no WIDE comes before.
pub const PLACE_LIMIT: u64 = 1 << PLACE_BITS;
pub const ARGUMENT_LIMIT: u64 = 1 << 32;

/// A step: what, where, and how much; the lower bits of each.
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

/// A place or a size of which WIDE has the upper half.
#[inline(always)]
pub const fn wide_place(upper: u64, lower: u64) -> u64 {
    upper << PLACE_BITS | lower
}

#[inline(always)]
pub const fn wide_argument(upper: u64, lower: u64) -> u64 {
    upper << 32 | lower
}
