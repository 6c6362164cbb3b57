//! Count the requests to Python's own allocator.

use super::memory_limit::{AddressTable, LimitedTable, Room};
use gdbheap_calls::Event;

/// The figures of Python's own allocator, for objects and for other memory.
///
/// - `calls`: the number of calls of malloc, calloc, realloc and free.
/// - `unknown`: the number of calls that freed or resized a block whose allocation is not in the log.
/// - `live_blocks`: the number of blocks in use at the end.
/// - `live_bytes`: the number of bytes that were requested for these blocks.
/// - `peak_bytes`: the largest number of requested bytes in use at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonCalls {
    pub calls: u64,
    pub unknown: u64,
    pub live_blocks: u64,
    pub live_bytes: u64,
    pub peak_bytes: u64,
}

pub(super) struct PythonBlocks<'a> {
    pub(super) calls: PythonCalls,
    sizes: AddressTable<'a, u64>,
}

impl<'a> PythonBlocks<'a> {
    pub(super) fn new(room: &'a Room) -> PythonBlocks<'a> {
        PythonBlocks { calls: PythonCalls::default(), sizes: LimitedTable::new(room) }
    }

    /// Count the next event of a log. An event that is not a call of Python's allocator changes nothing.
    pub(super) fn add(&mut self, event: Event) {
        match event {
            Event::PythonMalloc { size, result } | Event::PythonCalloc { size, result } => self.allocate(result, size),
            Event::PythonRealloc { size, old, result } => {
                // If a realloc fails, the old block stays in use.
                if result != 0 {
                    self.release(old);
                }
                self.allocate(result, size);
            }
            Event::PythonFree { address } => self.release(address),
            _ => return,
        }
        self.calls.calls += 1;
        self.calls.live_blocks = self.sizes.len() as u64;
        self.calls.peak_bytes = self.calls.peak_bytes.max(self.calls.live_bytes);
    }

    fn allocate(&mut self, address: u64, size: u64) {
        if address != 0 {
            let before = self.sizes.insert(address, size).unwrap_or(0);
            self.calls.live_bytes = self.calls.live_bytes.saturating_sub(before).saturating_add(size);
        }
    }

    fn release(&mut self, address: u64) {
        match self.sizes.remove(&address) {
            Some(size) => self.calls.live_bytes = self.calls.live_bytes.saturating_sub(size),
            None => self.calls.unknown += u64::from(address != 0),
        }
    }
}
