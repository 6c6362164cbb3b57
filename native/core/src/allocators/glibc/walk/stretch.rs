//! The final walk of a stretch. It joins the results of the parts, and handles fenceposts, the top chunk and damage.

use super::parts::{WalkedPart, PART, STRIDE};
use super::walker::{ChunkWalker, Header, SIZE_BITS};
use crate::allocators::damage::{hex, Damage};
use crate::allocators::glibc::chunks::{ChunkState, GRAIN, SMALLEST};
use crate::allocators::glibc::free_links::NON_MAIN_ARENA;
use crate::bits;
use gdbheap_access::error::Cancellation;
use gdbheap_access::work::Control;
use std::collections::HashSet;

const MAX_DAMAGE: usize = 1000;
/// If a walk fails, the sizes of at most this many chunks before the failure are checked, because one of them may be
/// wrong.
const MAX_ASTRAY: u32 = 8;
/// The largest number of bytes of a stretch that are searched for skipped chunks. A walk skips chunks if the size of a
/// chunk is too large. Without this limit, a hostile stretch with many wrong sizes could be searched forever.
const MAX_SEARCHED: u64 = 1 << 30;

/// The final walk of a stretch: it handles fenceposts, the top chunk and damage.
pub(super) struct Walk<'a> {
    pub(super) control: &'a Control<'a>,
    pub(super) walker: ChunkWalker<'a>,
    pub(super) special: Vec<(u64, ChunkState)>,
    pub(super) damage: Vec<Damage>,
    /// The number of fenceposts directly before the current address.
    pub(super) fences: u32,
    /// The number of bytes that were searched so far for chunks that a wrong size had skipped.
    pub(super) searched: u64,
}

impl Walk<'_> {
    pub(super) fn whole(&mut self, parts: Vec<WalkedPart>) -> Result<(), Cancellation> {
        let end = self.walker.info.stretch.end;
        let mut at = self.walker.info.stretch.start;
        for part in parts {
            let to = end.min(part.from + PART);
            at = self.join(part, at, to)?;
            while at < to {
                let next = self.walker.plain_chunks(at, to.min(at + STRIDE));
                self.control.advance(0)?;
                if next > at {
                    self.fences = 0;
                }
                at = if next < to.min(at + STRIDE) { self.step(next)? } else { next };
            }
        }
        self.walker.leave();
        Ok(())
    }

    /// Continue the walk from `at` through a part. Take over the part's chunks, beginning with the first chunk that
    /// both walks found. Return the address where the walk stopped.
    fn join(&mut self, part: WalkedPart, at: u64, to: u64) -> Result<u64, Cancellation> {
        if part.to <= at || to <= at {
            self.forget(part.from, to);
            return Ok(at);
        }
        if self.fences == 0 && bits::get(self.walker.starts, self.walker.index(at)) {
            self.forget(part.from, at);
            return Ok(self.take_over(part, at));
        }
        let words = (self.walker.index(part.from) / 64) as usize..self.walker.index(to).div_ceil(64) as usize;
        let doubted = (self.walker.starts[words.clone()].to_vec(), self.walker.low[words].to_vec());
        self.forget(part.from, to);
        self.catch_up(part, doubted, at, to)
    }

    /// Walk from `at` to a chunk of the part, then take over this chunk and the part's later chunks. `starts` and `low`
    /// are the part's bits. Return the address where the walk stopped.
    fn catch_up(
        &mut self,
        part: WalkedPart,
        (starts, low): (Vec<u64>, Vec<u64>),
        mut at: u64,
        to: u64,
    ) -> Result<u64, Cancellation> {
        let inside = |address: u64| (address - part.from) / GRAIN;
        while at < to.min(part.to) {
            if self.fences == 0 && bits::get(&starts, inside(at)) {
                let first = self.walker.index(part.from);
                for index in inside(at)..inside(to) {
                    for (old, new) in [(&starts, &mut *self.walker.starts), (&low, &mut *self.walker.low)] {
                        if bits::get(old, index) {
                            bits::set(new, first + index);
                        }
                    }
                }
                return Ok(self.take_over(part, at));
            }
            at = self.step(at)?;
        }
        Ok(at)
    }

    /// Take over the part's chunks at or after `at`. Return the address where the part's walk stopped.
    fn take_over(&mut self, part: WalkedPart, at: u64) -> u64 {
        if let Some(header) = self.walker.header(at) {
            self.settle(&header);
        }
        self.walker.links.extend(part.links.into_iter().filter(|link| link.tagged >= at));
        match (&mut self.walker.heads, part.heads) {
            (Some(heads), Some(found)) => heads.extend(found.into_iter().filter(|head| head.chunk >= at)),
            (heads, _) => *heads = None,
        }
        if let (Some(free), Some(found)) = (&mut self.walker.free, part.free) {
            free.take_over(found, at);
        }
        self.walker.previous = part.previous;
        self.walker.head = part.head;
        part.to
    }

    /// Remove the chunks that the walk of a part found in [from, to).
    fn forget(&mut self, from: u64, to: u64) {
        let (first, end) = (self.walker.index(from), self.walker.index(to));
        for words in [&mut *self.walker.starts, &mut *self.walker.low] {
            bits::clear_range(words, first, end);
        }
    }

    fn report(&mut self, damage: Damage) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(damage);
        }
    }

    fn put_special(&mut self, address: u64, state: ChunkState) {
        let index = self.walker.index(address);
        bits::set(self.walker.starts, index);
        self.special.push((address, state));
        self.walker.leave();
        self.fences = if state == ChunkState::Fence { self.fences + 1 } else { 0 };
    }

    fn settle(&mut self, next: &Header) {
        if let Some(before) = self.walker.previous.filter(|_| self.walker.contradicts(next)) {
            let (expected, found) = (format!("{:#x}", before.size()), format!("{:#x}", next.prev_size));
            self.report(Damage::new(next.address, "prev_size after a free chunk", expected, found));
        }
        self.walker.settle(next);
    }

    /// Add the block at `at`, which may be of any kind. Return the address where the next block starts.
    fn step(&mut self, at: u64) -> Result<u64, Cancellation> {
        let rest = self.walker.info.stretch.end - at;
        let Some(header) = self.walker.header(at).filter(|_| rest >= GRAIN) else {
            return self.cut(Damage::absent(at, "a chunk header"));
        };
        if at == self.walker.info.stretch.top {
            return Ok(self.take_top(&header));
        }
        if self.is_fence(&header) {
            self.take_short_top(&header);
            self.settle(&header);
            self.put_special(at, ChunkState::Fence);
            return self.after_fence(at + GRAIN);
        }
        if !self.walker.info.is_plain(&header) {
            let before = self.walker.previous.map_or(String::new(), |chunk| {
                format!(" (or another size of the chunk before, at {})", hex(chunk.address))
            });
            let expected = format!("16-aligned, {} to {}{before}", hex(SMALLEST), hex(rest));
            return self.cut(Damage::new(at, "size of a chunk", expected, hex(header.size_word)));
        }
        self.settle(&header);
        self.walker.put(header);
        self.fences = 0;
        Ok(at + header.size())
    }

    fn take_top(&mut self, header: &Header) -> u64 {
        let end = self.walker.info.stretch.end;
        self.settle(header);
        self.put_special(header.address, ChunkState::Top);
        let rest = end - header.address;
        if header.size() != rest {
            let found = format!("{:#x}", header.size());
            self.report(Damage::new(header.address, "size of the top chunk", format!("{rest:#x}"), found));
        }
        end
    }

    /// Check the chunk before a lone fencepost of size 0. If it is the rest of a top that was too small to be freed,
    /// mark it as a fencepost too. Unlike every chunk of a thread's arena, such a chunk lacks the NON_MAIN_ARENA flag
    /// (glibc malloc/malloc.c, `sysmalloc`).
    fn take_short_top(&mut self, fence: &Header) {
        let is_short_top = |chunk: &Header| chunk.size() == SMALLEST && chunk.size_word & NON_MAIN_ARENA == 0;
        let lone = fence.size() == 0 && self.fences == 0 && self.walker.info.stretch.arena != 0;
        if let Some(top) = self.walker.previous.take_if(|chunk| lone && is_short_top(chunk)) {
            self.put_special(top.address, ChunkState::Fence);
        }
    }

    /// Return whether a header is a fencepost. Its size is 0x10, or 0 at the end of a thread's heap. A fencepost of
    /// size 0 may be the only one there.
    fn is_fence(&self, header: &Header) -> bool {
        let at_end = header.address + GRAIN == self.walker.info.stretch.end;
        header.size() == GRAIN || (header.size() == 0 && header.prev_in_use() && (at_end || self.fences > 0))
    }

    /// Skip the bytes that other code got from `sbrk`. They follow a double fencepost in the middle of the main arena.
    fn after_fence(&mut self, at: u64) -> Result<u64, Cancellation> {
        let end = self.walker.info.stretch.end;
        let goes_on = |walk: &mut Self| walk.walker.header(at).is_some_and(|next| next.size() == GRAIN);
        if self.fences < 2 || at >= end || goes_on(self) {
            return Ok(at);
        }
        let next = self.walker.next_sound(at, end, self.control)?.unwrap_or(end);
        if next > at {
            self.put_special(at, ChunkState::Foreign);
        }
        Ok(next)
    }

    /// Continue a walk that cannot go on at the address of `damage`: correct the wrong size that led there, or report
    /// the damage. Return the next address at which a chunk begins.
    fn cut(&mut self, damage: Damage) -> Result<u64, Cancellation> {
        let at = damage.address;
        if let Some(next) = self.led_astray(at)? {
            return Ok(self.shorten(at, next));
        }
        self.report(damage);
        self.put_special(at, ChunkState::Unexplained);
        let end = self.walker.info.stretch.end;
        Ok(self.walker.next_sound(at + GRAIN, end, self.control)?.unwrap_or(end))
    }

    /// Return the address of a chunk that a wrong size skipped; None if there is none. No chunk begins at `at`, so one
    /// of the last few sizes before `at` may be wrong. The skipped chunk lies shortly before `at`, and a walk from it
    /// passes over `at`.
    fn led_astray(&mut self, at: u64) -> Result<Option<u64>, Cancellation> {
        let begin = self.special.last().map_or(self.walker.base, |(address, _)| address + GRAIN);
        let mut end = at;
        let mut failed = HashSet::new();
        for _ in 0..MAX_ASTRAY {
            let before = self.walker.index(end).checked_sub(1);
            let Some(index) = before.and_then(|index| bits::last_at(self.walker.starts, index)) else { break };
            let start = self.walker.base + index * GRAIN;
            if start < begin || at - start > PART || self.searched > MAX_SEARCHED {
                break;
            }
            self.searched += end - start;
            for address in (start + SMALLEST..end).step_by(GRAIN as usize) {
                if address % (64 << 10) == 0 {
                    self.control.advance(0)?;
                }
                if self.walker.passes(address, at, &mut failed) {
                    return Ok(Some(address));
                }
            }
            end = start;
        }
        Ok(None)
    }

    /// Let the chunk that contains `next` end at `next`, and report its size as damage. Drop the chunks that were found
    /// after it, up to `at`. Return `next`.
    fn shorten(&mut self, at: u64, next: u64) -> u64 {
        let index = bits::last_at(self.walker.starts, self.walker.index(next)).unwrap_or(0);
        let start = self.walker.base + index * GRAIN;
        self.forget(start, at);
        self.walker.links.truncate(self.walker.links.partition_point(|link| link.tagged < start));
        if let Some(heads) = &mut self.walker.heads {
            heads.truncate(heads.partition_point(|head| head.chunk < start));
        }
        if let Some(free) = &mut self.walker.free {
            free.truncate(start);
        }
        if let Some(header) = self.walker.header(start) {
            self.report(Damage::new(start, "size of a chunk", hex(next - start), hex(header.size_word)));
            let flags = header.size_word & SIZE_BITS;
            self.walker.put(Header { size_word: (next - start) | flags, ..header });
        }
        next
    }
}
