//! Parse the header of a slot. It says where the block begins in the slot, and how many bytes were requested.

use crate::allocators::mallocng::layout::{IN_BAND, UNIT};
use gdbheap_access::bytes::{u32_at, u64_at};
use gdbheap_access::memory::window::Window;

/// If the third byte before a slot has this value, the block does not begin at the slot's start.
const CYCLED: u8 = 7 << 5;
/// The value that `free` writes to the third byte before a block.
const FREED: u8 = 255;
const NESTED: u8 = 6;
/// If `reserved` has this value, the slot's last four bytes contain the number of bytes after the requested ones.
const COUNTED_BEHIND: u8 = 5;
const HEADER: u64 = 8;
/// The number of values of `offset`, which has 16 bits. A block with a large alignment may begin this many units or
/// more into its slot. The upper bits of its offset are then lost.
const OFFSETS: u64 = 1 << 16;
/// The largest number of values that are tried for the lost upper bits of an offset: enough for an alignment of 4 GiB.
const MOST_LOST: usize = 4 << 10;
const SMALL: u64 = 4 << 10;

/// The content of a slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The slot contains a block. The block begins `skipped` bytes into the slot, and ends `reserved` bytes before the
    /// end of the slot. `intact`: whether the byte after the block is unchanged.
    Block {
        skipped: u64,
        reserved: u64,
        intact: bool,
    },
    /// The slot contains another group.
    Group,
    /// The slot was taken but not written yet, or is being freed.
    Moving,
    /// The header is not one that mallocng would write.
    Broken,
    Absent,
}

/// A slot. `storage`: the address of the first slot of its group. `index`: its index in the group. `start`: its start.
/// `end`: the end of its usable bytes.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) storage: u64,
    pub(super) index: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Slot {
    /// Read the header of the slot and return the content of the slot.
    pub(super) fn read(&self, window: &mut Window<'_>) -> Content {
        // Small slots are read as a whole, because the places that have to be read in them are not in order.
        if self.end - self.start <= SMALL {
            let _ = window.bytes(self.start - HEADER, (self.end - self.start + HEADER) as usize);
        }
        // The bytes before the first slot are the end of the group's header and the slot's own header.
        let mut head = [0; HEADER as usize];
        match window.bytes(self.start - HEADER, HEADER as usize) {
            Ok(bytes) => head.copy_from_slice(bytes),
            Err(_) => return Content::Absent,
        }
        if head[5] == CYCLED {
            return self.read_further(u64::from(head[6]) | u64::from(head[7]) << 8, window);
        }
        self.block_at(self.start, &head, window)
    }

    /// Read the block that begins `units` units into the slot, or further inside if upper bits of the offset were lost.
    fn read_further(&self, units: u64, window: &mut Window<'_>) -> Content {
        let mut found = Content::Broken;
        let starts = (self.start + units * UNIT..self.end).step_by((OFFSETS * UNIT) as usize);
        for start in starts.take(MOST_LOST) {
            let mut head = [0; HEADER as usize];
            match window.bytes(start - HEADER, HEADER as usize) {
                Ok(bytes) => head.copy_from_slice(bytes),
                Err(_) => return Content::Absent,
            }
            match self.block_at(start, &head, window) {
                block @ Content::Block { .. } => return block,
                other if found == Content::Broken => found = other,
                _ => (),
            }
        }
        found
    }

    /// Parse the eight bytes before `start` as the header of a block that begins at `start`.
    fn block_at(&self, start: u64, head: &[u8; 8], window: &mut Window<'_>) -> Content {
        let (index, reserved, offset) =
            (u32::from(head[5] & 31), head[5] >> 5, u64::from(head[6]) | u64::from(head[7]) << 8);
        if head[5] == FREED || u64_at(head, 0) >> 32 == 0 && self.start != self.storage {
            return Content::Moving;
        }
        let units = match (head[4], offset) {
            (0, offset) => offset,
            (_, 0) => u64::from(u32_at(head, 0)),
            _ => return Content::Broken,
        };
        if index != self.index || start != self.storage + units * UNIT {
            return Content::Broken;
        }
        match reserved {
            NESTED => Content::Group,
            COUNTED_BEHIND => self.counted_behind(start, window),
            0..=4 if u64::from(reserved) <= self.end - start => self.ends(start, u64::from(reserved), window),
            _ => Content::Broken,
        }
    }

    fn counted_behind(&self, start: u64, window: &mut Window<'_>) -> Content {
        let count = window.bytes(self.end - IN_BAND, IN_BAND as usize).map(|bytes| u64::from(u32_at(bytes, 0)));
        match count {
            Ok(count) if count >= u64::from(COUNTED_BEHIND) && count <= self.end - start => {
                self.ends(start, count, window)
            }
            Ok(_) => Content::Broken,
            Err(_) => Content::Absent,
        }
    }

    /// Return the content of a slot whose block begins at `start`. The byte after a block must be zero, because `free`
    /// and `realloc` check that.
    fn ends(&self, start: u64, reserved: u64, window: &mut Window<'_>) -> Content {
        let behind = window.bytes(self.end - reserved, 1).map(|bytes| bytes[0]);
        let intact = reserved == 0 || behind.is_ok_and(|byte| byte == 0);
        Content::Block { skipped: start - self.start, reserved, intact }
    }
}
