//! The kinds of bytes in an allocator's memory, the same for all allocators.

/// The kind of a range of an allocator's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// Blocks in use by the program.
    Used,
    /// Free blocks.
    Free,
    /// Free blocks in a thread's cache.
    Cached,
    /// Free blocks in transfer caches between the threads' caches and the central lists.
    Waiting,
    /// The free end of a heap, where the heap grows.
    Top,
    /// The allocator's metadata.
    Header,
    /// Gaps between blocks.
    Padding,
    /// Bytes of a used block beyond the requested size.
    Slack,
    /// Free space that is not divided into blocks, such as a whole pool or span.
    FreeRun,
    /// Free space that is not divided into blocks, whose pages the kernel may take at any time (MADV_FREE).
    Muzzy,
    /// Address space that was never used for a block.
    Reserved,
    /// Bytes between the allocator's blocks that belong to another owner.
    Foreign,
    /// Bytes whose use the walk could not determine.
    Unexplained,
}

/// The names of the kinds of parts, in the order of `Part`.
pub const PARTS: [&str; 13] = [
    "used",
    "free",
    "cached",
    "waiting",
    "top",
    "header",
    "padding",
    "slack",
    "free run",
    "muzzy",
    "reserved",
    "foreign",
    "unexplained",
];

impl Part {
    pub(crate) fn name(self) -> &'static str {
        PARTS[self as usize]
    }

    /// Return whether the allocator can hand out blocks from a part of this kind.
    pub(crate) fn is_free(self) -> bool {
        matches!(self, Part::Free | Part::Cached | Part::Waiting | Part::FreeRun | Part::Muzzy)
    }
}
