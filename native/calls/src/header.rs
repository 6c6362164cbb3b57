//! The header of a file with recorded calls. It names the process that made the calls. It also has the number of stages
//! (fixed-size parts of the recording) so far. The stages follow the header.
//!
//! The header has three parts:
//!
//! - 64-bit words, in the order of the constants in `word`.
//! - The calls that a signal handler made in the middle of another call.
//! - NAME=VALUE strings: the program, the allocator, the environment variables of the allocator, and the command line.

/// The first word of the header, by which a reader recognizes the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gdbcalls");
pub const VERSION: u64 = 1;
/// The size of the header in bytes. Two slots of STAGE bytes each follow the header. The stages are written into the
/// two slots alternately. The finished stages come after the slots.
pub const SIZE: usize = 16 << 10;

/// Return the offset in bytes of a stage in the file, once it is no longer current.
pub fn offset_of(stage: u64) -> u64 {
    SIZE as u64 + (2 + stage) * crate::STAGE as u64
}

/// Return the offset in bytes of a stage in the file while it is current.
pub fn slot_of(stage: u64) -> u64 {
    SIZE as u64 + stage % 2 * crate::STAGE as u64
}

/// The index of each 64-bit word of the header.
pub mod word {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 1;
    pub const STAGE: usize = 2;
    pub const PID: usize = 3;
    /// The time when the process began, in nanoseconds since 1970.
    pub const BEGAN: usize = 4;
    /// The number of stages that were begun. The last of these stages is in its slot; the others are in the file after
    /// the slots.
    pub const STAGES: usize = 5;
    /// The number of calls that were not recorded, because the disk had no space.
    pub const LOST: usize = 6;
    /// The parent's process id; 0 for a program that was executed.
    pub const PARENT_PID: usize = 7;
    /// The time when the parent's file began; 0 for a program that was executed.
    pub const PARENT_BEGAN: usize = 8;
    /// The number of the fork in the parent's file; 0 for a program that was executed.
    pub const FORK: usize = 9;
    /// The number of calls of signal handlers in the header. Each of them interrupted another call, and is written to
    /// the stage together with that call.
    pub const WAITING: usize = 10;
    /// The number of calls of signal handlers in the header (see `WAITING`) that have already been written to a stage.
    pub const WRITTEN: usize = 11;
    /// In a file for one thread (a lane): the time when the process began, according to its first lane. 0 means that
    /// the calls of all threads are in this file.
    pub const LANE_OF: usize = 12;
    /// The average number of bytes between two recorded stacks. 1: every call has a stack; 0: no stack is recorded.
    pub const STACKS: usize = 20;
}

/// The offset of the waiting calls in the header. Each waiting call has five words.
pub const WAITING_AT: usize = 1 << 10;
pub const WAITING_WORDS: usize = 5;
pub const MAX_WAITING: usize = 64;
/// The offset of the NAME=VALUE strings in the header. A zero byte ends each string.
pub const TEXT_AT: usize = 8 << 10;
