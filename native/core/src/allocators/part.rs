//! What bytes of an allocator are, whichever it is.

/// What bytes of an allocator are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    /// Blocks that the program has.
    Used,
    /// Unused blocks.
    Free,
    /// Free blocks in a thread's cache.
    Cached,
    /// Free blocks on their way between threads' caches and where these fill up.
    Waiting,
    /// What is free at the end of a heap that grows there.
    Top,
    /// The allocator's own data.
    Header,
    /// What is left over between blocks.
    Padding,
    /// Bytes of a block in use that nobody asked for.
    Slack,
    /// Free space in which no block lies, as a whole pool or span.
    FreeRun,
    /// As that, and the kernel may take its pages.
    Muzzy,
    /// Address space that no block was ever in.
    Reserved,
    /// Bytes of another owner in between.
    Foreign,
    /// What the walk could not read.
    Unexplained,
}

/// The names of parts, in the order of `Part`.
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

/// Memory of an allocator beside its blocks too, part by part.
pub trait Parts {
    /// Shows, in order, all parts of what begins at `start`; where it ends, None where nothing begins there.
    fn show_parts(&self, start: u64, show: impl FnMut(u64, u64, Part)) -> Option<u64>;
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        PARTS[self as usize]
    }

    /// Whether blocks can be handed out of it.
    pub(crate) fn is_free(self) -> bool {
        matches!(self, Part::Free | Part::Cached | Part::Waiting | Part::FreeRun | Part::Muzzy)
    }
}
