//! An event of a recording, such as a call of malloc or a change of the current thread.

/// An allocator call, or information that the following calls need. `size` is the requested size in bytes. An address
/// of 0 means NULL.
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
    /// A call of one of these functions: memalign, aligned_alloc, posix_memalign, valloc, pvalloc.
    Memalign {
        size: u64,
        alignment: u64,
        result: u64,
    },
    Free {
        address: u64,
    },
    /// The usable size of the block that was returned last, if it differs from `usual_size`.
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
    /// The current thread ends. A few calls that its cleanup makes may follow.
    End,
    /// The time in nanoseconds (CLOCK_MONOTONIC).
    Time {
        nanoseconds: u64,
    },
    /// The time of the next call in ticks of the processor's clock. It is recorded only if calls are ordered by this
    /// clock.
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
    /// The process forks. `number` counts the forks of the process from 1. The header of the child's file has this
    /// number, too (`word::FORK`).
    Fork {
        number: u64,
    },
    /// The stack of the next call that allocates. `EventReader::content` returns the stack.
    Stack,
    /// A Python code object. The following stacks refer to it by its address, until another code object with the same
    /// address is recorded.
    Code,
    /// A loaded object (a program or a library). It replaces any object that was at its addresses before.
    Loaded,
    /// A call of malloc in Python's own allocator, which serves small blocks itself. If it calls malloc of the C
    /// library for a larger block, that call has its own event, which comes first. The addresses in Python's four
    /// events are written as distances from the previous address in such an event.
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

/// The kinds of events without an operation of their own. The first byte of such an event has the operation OTHER; its
/// lower five bits are the kind.
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
/// The unit in bytes of a size that is written into the lower five bits of the first byte. A size that is not a
/// multiple of the unit, or is too large, follows the first byte as a number.
pub(crate) const SIZE_UNIT: u64 = 8;
