//! The events of a recording.

/// A call, or information that the following calls need. Sizes are the requested bytes. An address of 0 means NULL.
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
    /// The usable bytes of the block that was returned last, if they differ from `usual_size`.
    Usable {
        size: u64,
    },
    /// The following calls belong to the thread with this number.
    Switch {
        thread: u32,
    },
    /// A thread is seen for the first time, and the following calls belong to it. `tid`: the kernel's thread id.
    Thread {
        thread: u32,
        tid: u32,
    },
    /// The current thread ends. The calls that the allocator makes at the thread's end follow.
    End,
    /// The time in nanoseconds (CLOCK_MONOTONIC).
    Time {
        nanoseconds: u64,
    },
    /// The time of the next call by the processor's clock. It is recorded only if calls are ordered by this clock.
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
    /// The process forks. The header of the child's file has the same number.
    Fork {
        number: u64,
    },
    /// The stack of the next call that allocates. `Reader::content` returns the stack.
    Stack,
    /// A Python code object. The following stacks refer to it by its address, until another code object with the same
    /// address is recorded.
    Code,
    /// A loaded object (a program or a library). It replaces any object that was at its addresses before.
    Loaded,
    /// Calls of Python's own allocator, which serves small blocks itself. If it calls malloc for a larger block, that
    /// call of malloc comes first. Each address in these events is written as the distance from the address before.
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
    /// Return the address of the block that an allocating call returned; 0 if there is none.
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

/// Return the usual result of `malloc_usable_size` for a glibc block of `size` requested bytes.
///
/// The size of a chunk is a multiple of 16, and all but 8 bytes of it are usable.
pub fn usual_size(size: u64) -> u64 {
    (size.saturating_add(8 + 15) & !15).max(32) - 8
}

/// The operations: the upper three bits of an event's first byte.
pub(crate) mod operation {
    pub(crate) const MALLOC: u8 = 1;
    pub(crate) const FREE: u8 = 2;
    pub(crate) const REALLOC: u8 = 3;
    pub(crate) const CALLOC: u8 = 4;
    pub(crate) const MEMALIGN: u8 = 5;
    pub(crate) const SWITCH: u8 = 6;
    pub(crate) const OTHER: u8 = 7;
}

/// The kinds of other events: the lower five bits of the first byte, if the operation is OTHER.
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
/// The unit of sizes that are written into the lower five bits of the first byte.
pub(crate) const SIZE_UNIT: u64 = 8;
