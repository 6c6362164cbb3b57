//! What is written down.

/// A call, or what must be known to understand the calls that follow. Sizes in bytes as they were asked for; addresses 0 for
/// NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Malloc {
        size: u64,
        result: u64,
    },
    Calloc {
        size: u64,
        result: u64,
    },
    Realloc {
        size: u64,
        old: u64,
        result: u64,
    },
    /// memalign, aligned_alloc, posix_memalign, valloc, pvalloc.
    Memalign {
        size: u64,
        alignment: u64,
        result: u64,
    },
    Free {
        address: u64,
    },
    /// Usable bytes of the block that was given last, where they are not `usual_size`.
    Usable {
        size: u64,
    },
    /// Calls from here on are this thread's.
    Switch {
        thread: u32,
    },
    /// A thread is met for the first time, and calls from here on are its own. `tid`: the kernel's number.
    Thread {
        thread: u32,
        tid: u32,
    },
    /// The current thread ends; what the allocator does for that comes next.
    End,
    /// Nanoseconds (CLOCK_MONOTONIC).
    Time {
        nanoseconds: u64,
    },
    /// When the next call was made, by the processor's clock: where calls are ordered by it.
    Tick {
        ticks: u64,
    },
    Mmap {
        size: u64,
        protection: u32,
        flags: u32,
        result: u64,
    },
    Munmap {
        address: u64,
        size: u64,
    },
    Mremap {
        old: u64,
        old_size: u64,
        size: u64,
        result: u64,
    },
    Mallopt {
        parameter: i32,
        value: i32,
    },
    Trim {
        pad: u64,
    },
    /// The process forks; the child's header has the same number.
    Fork {
        number: u64,
    },
    /// The stack of the next call that allocates; `Reader::content` has it.
    Stack,
    /// A code object of Python's, which the stacks that follow have by its address; so has the next with the same one.
    Code,
    /// An object (a program, a library) that is loaded; what was there before is not any more.
    Loaded,
    /// Calls of Python's own allocator, which serves small blocks itself; what it calls for larger ones comes before. Their
    /// addresses count from one another's.
    PythonMalloc {
        size: u64,
        result: u64,
    },
    PythonCalloc {
        size: u64,
        result: u64,
    },
    PythonRealloc {
        size: u64,
        old: u64,
        result: u64,
    },
    PythonFree {
        address: u64,
    },
}

impl Event {
    /// The address of the block that a call gave; 0 without one.
    #[inline(always)]
    pub fn block(self) -> u64 {
        match self {
            Event::Malloc { result, .. }
            | Event::Calloc { result, .. }
            | Event::Realloc { result, .. }
            | Event::Memalign { result, .. } => result,
            _ => 0,
        }
    }
}

/// What `malloc_usable_size` says of most blocks of glibc's of this size: a chunk's size is a multiple of 16, and all but 8
/// bytes of it can be used.
pub fn usual_size(size: u64) -> u64 {
    (size.saturating_add(8 + 15) & !15).max(32) - 8
}

/// Upper three bits of an event's first byte.
pub(crate) mod operation {
    pub(crate) const MALLOC: u8 = 1;
    pub(crate) const FREE: u8 = 2;
    pub(crate) const REALLOC: u8 = 3;
    pub(crate) const CALLOC: u8 = 4;
    pub(crate) const MEMALIGN: u8 = 5;
    pub(crate) const SWITCH: u8 = 6;
    pub(crate) const OTHER: u8 = 7;
}

/// Lower five bits where the operation is OTHER.
pub mod other {
    pub(crate) const USABLE: u8 = 1;
    pub(crate) const THREAD: u8 = 2;
    pub(crate) const END: u8 = 3;
    pub(crate) const TIME: u8 = 4;
    pub(crate) const MMAP: u8 = 5;
    pub(crate) const MUNMAP: u8 = 6;
    pub(crate) const MREMAP: u8 = 7;
    pub(crate) const MALLOPT: u8 = 8;
    pub(crate) const TRIM: u8 = 9;
    pub(crate) const FORK: u8 = 10;
    pub const STACK: u8 = 11;
    pub const CODE: u8 = 12;
    pub const LOADED: u8 = 13;
    pub(crate) const PYTHON_MALLOC: u8 = 14;
    pub(crate) const PYTHON_CALLOC: u8 = 15;
    pub(crate) const PYTHON_REALLOC: u8 = 16;
    pub(crate) const PYTHON_FREE: u8 = 17;
    pub(crate) const TICK: u8 = 18;
}

pub(crate) const SHIFT: u8 = 5;
pub(crate) const LOW: u8 = (1 << SHIFT) - 1;
/// What the lower five bits of a size count.
pub(crate) const SIZE_UNIT: u64 = 8;
