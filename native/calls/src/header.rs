//! The first bytes of a file in which one program's calls are recorded: who it is, and how far it has come. Stages follow.
//!
//! Words of 64 bits in the order of the constants; then the calls that a signal handler made in the middle of another call,
//! and text.

/// "gdbcalls" as a word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gdbcalls");
pub const VERSION: u64 = 1;
/// Bytes of the header. Two slots of STAGE bytes follow, of which stages are current in turn, and then the stages.
pub const SIZE: usize = 16 << 10;

/// Where a stage is in the file, unless it is current.
pub fn offset_of(stage: u64) -> u64 {
    SIZE as u64 + (2 + stage) * crate::STAGE as u64
}

/// Where it is while it is current.
pub fn slot_of(stage: u64) -> u64 {
    SIZE as u64 + stage % 2 * crate::STAGE as u64
}

/// Places of the words.
pub mod word {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const STAGE: usize = 2;
    pub const PID: usize = 3;
    /// Nanoseconds since 1970 when it began.
    pub const BEGAN: usize = 4;
    /// Stages that were begun. The last of them is in its slot, the others are in the file.
    pub const STAGES: usize = 5;
    /// Calls that could not be written down, because there was no room.
    pub const LOST: usize = 6;
    /// The parent's file by the number of its process and when it began, and the number of the fork in it; 0 for a program
    /// that was executed.
    pub const PARENT_PID: usize = 7;
    pub const PARENT_BEGAN: usize = 8;
    pub const FORK: usize = 9;
    /// How many calls wait below, to be written down with the one that they interrupted, and how many of them have been.
    pub const WAITING: usize = 10;
    pub const WRITTEN: usize = 11;
    /// Of a thread's lane: when the process began, as its first lane says. 0: the calls of all threads are here.
    pub const LANE_OF: usize = 12;
    /// Every how many bytes a stack is recorded, on average; 1: with each call; 0: none is.
    pub const STACKS: usize = 20;
}

/// Calls that wait: five words each.
pub const WAITING_AT: usize = 1 << 10;
pub const WAITING_WORDS: usize = 5;
pub const MAX_WAITING: usize = 64;
/// Text: NAME=VALUE, each with a zero byte behind it.
pub const TEXT_AT: usize = 8 << 10;
