//! Follow the rings of the bins link by link, and report each wrong link with its address.

use super::bin::{bin_of, MAX_DAMAGE, NO_BIN, UNSORTED};
use super::free::{FreeChunks, Links};
use crate::allocators::damage::{hex, Damage};
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};

/// A direction in which to follow a bin's ring: forward by `fd` or backward by `bk`.
#[derive(Clone, Copy)]
struct Direction {
    on: fn(&Links) -> u64,
    back: fn(&Links) -> u64,
    /// The offset in bytes of the link in a chunk. If a bin's head is seen as a chunk, its link has the same offset.
    offset: u64,
    leads_astray: &'static str,
    not_back: &'static str,
    is_second: bool,
}

const CHECK_STEPS: u64 = 4 << 10;

const FORWARD: Direction = Direction {
    on: |chunk| chunk.fd,
    back: |chunk| chunk.bk,
    offset: 16,
    leads_astray: "fd in a bin",
    not_back: "bk of a free chunk",
    is_second: false,
};
const BACKWARD: Direction = Direction {
    on: |chunk| chunk.bk,
    back: |chunk| chunk.fd,
    offset: 24,
    leads_astray: "bk in a bin",
    not_back: "fd of a free chunk",
    is_second: true,
};

/// One bin of an arena, as a ring of chunks. `head` lies 16 bytes before the bin's pair of links: a chunk with these
/// links would begin there.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    pub(super) arena: u32,
    pub(super) bin: u64,
    pub(super) head: u64,
}

impl Ring {
    /// Make the ring of a bin. `bins` is the address of the arena's `malloc_state.bins`.
    pub(super) fn new(arena: u32, bins: u64, bin: u64) -> Ring {
        Ring { arena, bin, head: bins.wrapping_add((bin - 1) * 16).wrapping_sub(16) }
    }
}

pub(super) struct Rings<'a> {
    pub(super) space: &'a Space,
    pub(super) free: &'a FreeChunks,
}

impl Rings<'_> {
    /// Return the first and the last chunk of a ring; both are the ring's head if the ring is empty. None if the head
    /// cannot be read.
    pub(super) fn ends(&self, ring: Ring) -> Option<(u64, u64)> {
        let word = |offset| self.space.word(ring.head.wrapping_add(offset)).ok();
        Some((word(FORWARD.offset)?, word(BACKWARD.offset)?))
    }

    /// Follow all rings, record the bin of each chunk, and return the damage.
    pub(super) fn follow(&self, watcher: &dyn Watcher, rings: &[Ring]) -> Result<Vec<Damage>> {
        let work = |found: &mut Vec<Damage>, ring: &Ring, control: &Control| {
            found.extend(self.go_round(*ring, control)?);
            Ok(())
        };
        Ok(self.space.task(watcher, None).run(rings, Vec::new, work)?.into_iter().flatten().collect())
    }

    /// Follow one ring forward by `fd`. If a link is wrong, also follow the ring backward by `bk`.
    fn go_round(&self, ring: Ring, control: &Control) -> Result<Vec<Damage>, Cancellation> {
        let mut found = Vec::new();
        let Some((first, last)) = self.ends(ring) else {
            return Ok(vec![Damage::absent(ring.head, "head of a bin")]);
        };
        if let Some(end) = self.go(ring, first, FORWARD, &mut found, control)? {
            if last != end {
                found.push(Damage::new(ring.head.wrapping_add(24), "bk of a bin", hex(end), hex(last)));
            }
            return Ok(found);
        }
        self.go(ring, last, BACKWARD, &mut found, control)?;
        Ok(found)
    }

    /// Follow a ring's links in one direction, starting at `first`, and append wrong links to `found`. Return the last
    /// chunk; None if the links do not return to the head.
    #[inline(always)]
    fn go(
        &self,
        ring: Ring,
        first: u64,
        way: Direction,
        found: &mut Vec<Damage>,
        control: &Control,
    ) -> Result<Option<u64>, Cancellation> {
        let (mut before, mut at) = (ring.head, first);
        let mut steps = 0u64;
        while at != ring.head {
            let Some(number) = self.free.number_of_arena(ring.arena, at) else {
                found.push(Damage::new(
                    before.wrapping_add(way.offset),
                    way.leads_astray,
                    "a free chunk of this arena",
                    hex(at),
                ));
                return Ok(None);
            };
            let chunk = self.free.links(number);
            if self.free.put(number, ring.bin as u8) != NO_BIN {
                // A backward pass ends at the chunk where the forward pass ended. That chunk is already in its bin,
                // which is no damage here.
                if !way.is_second {
                    found.push(Damage::new(at, "free chunk", "in one bin, once", format!("again in bin {}", ring.bin)));
                }
                return Ok(None);
            }
            if (way.back)(&chunk) != before {
                found.push(Damage::new(at, way.not_back, hex(before), hex((way.back)(&chunk))));
            }
            if ring.bin != UNSORTED && bin_of(chunk.size) != ring.bin {
                let expected = format!("bin {}", bin_of(chunk.size));
                found.push(Damage::new(at, "bin of a free chunk", expected, format!("bin {}", ring.bin)));
            }
            (before, at) = (at, (way.on)(&chunk));
            steps += 1;
            if steps % CHECK_STEPS == 0 {
                control.advance(0)?;
            }
            if found.len() >= MAX_DAMAGE {
                return Ok(None);
            }
        }
        Ok(Some(before))
    }
}
