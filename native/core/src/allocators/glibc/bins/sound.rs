//! The fast way to follow the bins, for rings without a wrong link.
//!
//! The links of a ring jump from chunk to chunk anywhere in memory, and each step waits for the one before it.
//! Therefore all links are first looked up in address order and on all cores; no look-up waits for another. After that
//! only the numbers of chunks have to be followed, not memory. The rings of numbers are cut into stretches at every
//! chunk whose number is a multiple of `step`. Many stretches are followed at a time, so that their waits overlap.
//! Finally the stretches of each ring are put together.
//!
//! Each link points to a chunk that points back, so no two chunks point to the same one. So a stretch never meets
//! another stretch, and each circle contains a cut.

use super::bin::{bin_of, BINS, NO_BIN, UNSORTED};
use super::free::{FreeOfRegion, Share};
use super::rings::{Ring, Rings};
use gdbheap_access::error::Result;
use gdbheap_access::work::{Control, Watcher};
use std::sync::atomic::{AtomicU32, Ordering};

/// The flag that distinguishes the number of a bin from the number of a chunk.
const HEAD: u32 = 1 << 31;
const NO_STRETCH: u32 = u32::MAX;
/// The smallest value of `step`. On average, about `step` links lie between two cuts of a ring.
const SHORTEST: usize = 64;
const MAX_CUTS: usize = 1 << 12;
const STRETCHES_IN_JOB: usize = 128;
const AT_ONCE: usize = 32;

/// The numbers of the first and the last chunk of a ring that is not empty.
struct RingEnds {
    bin: u32,
    first: u32,
    last: u32,
}

/// The rings of bins as lists of chunk numbers, and the stretches into which these lists are cut.
struct Numbers {
    /// For each chunk, the number of the next chunk in the ring. For the last chunk of a ring, HEAD with the number of
    /// the bin.
    next: Vec<u32>,
    /// The distance between cuts, in chunk numbers: a power of two.
    step: u32,
    /// For each stretch, the number of its first chunk.
    starts: Vec<u32>,
    /// For each chunk, the number of its stretch.
    stretches: Vec<AtomicU32>,
}

impl Rings<'_> {
    /// Follow all rings and record the bin of each chunk. Return false if any link or size is wrong; the recorded bins
    /// are then invalid.
    pub(super) fn are_sound(&self, watcher: &dyn Watcher, heads: &[u64], rings: &[Ring]) -> Result<bool> {
        let Some(next) = self.look_up_links(watcher, heads)? else { return Ok(false) };
        let Some(filled) = self.filled(rings) else { return Ok(false) };
        let numbers = Numbers::new(next, &filled);
        let ends = self.follow_stretches(watcher, &numbers)?;
        let Some(bins) = numbers.put_together(&filled, &ends) else { return Ok(false) };
        Ok(self.put_into_bins(&numbers, &bins))
    }

    /// Return the rings that contain chunks. None if a ring's head cannot be read, or points to no chunk that points
    /// back to it.
    fn filled(&self, rings: &[Ring]) -> Option<Vec<RingEnds>> {
        let mut filled = Vec::new();
        for ring in rings {
            let (first, last) = self.ends(*ring)?;
            if first == ring.head && last == ring.head {
                continue;
            }
            let number = |address| self.free.number_of_arena(ring.arena, address);
            let (first, last) = (number(first)?, number(last)?);
            if self.free.links(first).bk != ring.head || self.free.links(last).fd != ring.head {
                return None;
            }
            filled.push(RingEnds { bin: ring.bin as u32, first: first as u32, last: last as u32 });
        }
        Some(filled)
    }

    /// Return the target of each free chunk's `fd`, by the chunk's number. The target is the number of a chunk that
    /// points back, or HEAD with the number of a bin. Return None if any `fd` points elsewhere.
    fn look_up_links(&self, watcher: &dyn Watcher, heads: &[u64]) -> Result<Option<Vec<u32>>> {
        if self.free.len() >= HEAD as usize {
            return Ok(None);
        }
        let mut next = vec![0; self.free.len()];
        let work = |sound: &mut bool, share: &Share<'_, u32>, control: &Control| {
            control.advance(0)?;
            *sound = *sound && self.look_up_slice(share, heads);
            Ok(())
        };
        let shares = self.free.shares(&mut next);
        let sound = self.space.task(watcher, None).run(&shares, || true, work)?.into_iter().all(|sound| sound);
        drop(shares);
        Ok(sound.then_some(next))
    }

    fn look_up_slice(&self, share: &Share<'_, u32>, heads: &[u64]) -> bool {
        let Some(room) = share.take() else { return false };
        let region = &self.free.regions[share.slice.region];
        let bins = heads.get(region.arena as usize).copied().unwrap_or(0);
        let mut chunks = room.iter_mut().zip(share.slice.numbers.clone()).zip(region.addresses(&share.slice));
        chunks.all(|((next, number), address)| {
            let link = self.link(region, bins, number, address);
            *next = link.unwrap_or(0);
            link.is_some()
        })
    }

    /// Return the target of a chunk's `fd` as a number, as in `look_up_links`. None if `fd` points to neither a bin nor
    /// a chunk that points back. `bins`: the address of the bins of the chunk's arena.
    #[inline(always)]
    fn link(&self, region: &FreeOfRegion, bins: u64, number: usize, address: u64) -> Option<u32> {
        let fd = self.free.links(number).fd;
        let inside = fd.wrapping_sub(Ring::new(region.arena, bins, 1).head);
        if inside < (BINS - 1) * 16 && inside % 16 == 0 {
            return Some(HEAD | (inside / 16 + 1) as u32);
        }
        let next = region.number(fd).or_else(|| self.free.number_of_arena(region.arena, fd))?;
        (self.free.links(next).bk == address).then_some(next as u32)
    }

    /// Return the end of each stretch: the number of the chunk with which the next stretch begins, or HEAD with the
    /// number of a bin.
    fn follow_stretches(&self, watcher: &dyn Watcher, numbers: &Numbers) -> Result<Vec<u32>> {
        let count = numbers.starts.len();
        let jobs: Vec<_> =
            (0..count).step_by(STRETCHES_IN_JOB).map(|from| from..count.min(from + STRETCHES_IN_JOB)).collect();
        let work = |ends: &mut Vec<(u32, u32)>, job: &std::ops::Range<usize>, control: &Control| {
            control.advance(0)?;
            numbers.follow(job.clone(), ends);
            Ok(())
        };
        let mut ends = vec![HEAD; count];
        for (stretch, end) in self.space.task(watcher, None).run(&jobs, Vec::new, work)?.into_iter().flatten() {
            ends[stretch as usize] = end;
        }
        Ok(ends)
    }

    /// Record for every chunk the bin of its stretch. Return whether every chunk has the right size for its bin.
    fn put_into_bins(&self, numbers: &Numbers, bins: &[u8]) -> bool {
        numbers.stretches.iter().enumerate().all(|(number, stretch)| {
            let bin = bins.get(stretch.load(Ordering::Relaxed) as usize).copied().unwrap_or(NO_BIN);
            self.free.put(number, bin);
            let bin = u64::from(bin);
            bin == UNSORTED || bin == u64::from(NO_BIN) || bin == bin_of(self.free.links(number).size)
        })
    }
}

impl Numbers {
    fn new(next: Vec<u32>, filled: &[RingEnds]) -> Numbers {
        let step = (next.len() / MAX_CUTS).max(SHORTEST).next_power_of_two() as u32;
        let cuts = (0..next.len() as u32).step_by(step as usize);
        let firsts = filled.iter().map(|ring| ring.first).filter(|first| first % step != 0);
        let starts = cuts.chain(firsts).collect();
        let stretches = next.iter().map(|_| AtomicU32::new(NO_STRETCH)).collect();
        Numbers { next, step, starts, stretches }
    }

    /// Follow the given stretches, AT_ONCE of them at the same time, and append the pair (stretch, end) of each to
    /// `ends`.
    fn follow(&self, stretches: std::ops::Range<usize>, ends: &mut Vec<(u32, u32)>) {
        let mut waiting = stretches.map(|stretch| (stretch as u32, self.starts[stretch]));
        let mut followed: Vec<(u32, u32)> = waiting.by_ref().take(AT_ONCE).collect();
        while !followed.is_empty() {
            followed.retain_mut(|(stretch, at)| {
                self.stretches[*at as usize].store(*stretch, Ordering::Relaxed);
                let next = self.next[*at as usize];
                if next & HEAD == 0 && next % self.step != 0 {
                    *at = next;
                    return true;
                }
                ends.push((*stretch, next));
                let other = waiting.next();
                (*stretch, *at) = other.unwrap_or_default();
                other.is_some()
            });
        }
    }

    /// Return the bin of each stretch. None if the links of a ring do not return to its head. Also None if the head
    /// names another chunk as its last one.
    fn put_together(&self, filled: &[RingEnds], ends: &[u32]) -> Option<Vec<u8>> {
        let mut bins = vec![NO_BIN; ends.len()];
        let mut others = self.next.len().div_ceil(self.step as usize);
        for ring in filled {
            let mut stretch = (ring.first / self.step) as usize;
            if ring.first % self.step != 0 {
                stretch = others;
                others += 1;
            }
            loop {
                if std::mem::replace(&mut bins[stretch], ring.bin as u8) != NO_BIN {
                    return None;
                }
                let end = ends[stretch];
                if end & HEAD != 0 {
                    break;
                }
                stretch = (end / self.step) as usize;
            }
            let is_last = self.stretches[ring.last as usize].load(Ordering::Relaxed) as usize == stretch;
            if ends[stretch] != HEAD | ring.bin || !is_last {
                return None;
            }
        }
        Some(bins)
    }
}
