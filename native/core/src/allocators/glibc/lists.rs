//! The singly linked lists of free chunks whose headers say "in use": fast bins and thread caches.

use crate::allocators::damage::Damage;
use crate::allocators::glibc::chunks::{ChunkState, Chunks, Link, Region, CHUNK_HEADER};
use crate::allocators::tally::Tally;
use crate::bits;
use gdbheap_access::memory::space::Space;
use std::collections::HashSet;

const PAGE_BITS: u32 = 12;
const BIN_BITS: u64 = 15;

/// An index of many ascending addresses. For each page of a stretch, the index has the position of the first address
/// that lies in this page or after it.
pub(crate) struct PageIndex {
    start: u64,
    first: Vec<u32>,
}

impl PageIndex {
    /// Make the index. `addresses` ascend, and none is below `start`.
    pub(crate) fn new(start: u64, addresses: impl Iterator<Item = u64>) -> PageIndex {
        let mut first = Vec::new();
        for (place, address) in addresses.enumerate() {
            let page = ((address - start) >> PAGE_BITS) as usize;
            first.resize(first.len().max(page + 1), place as u32);
        }
        PageIndex { start, first }
    }

    /// Return the position in the ascending addresses at which a search for `address` has to begin; None outside the
    /// stretch.
    pub(crate) fn place(&self, address: u64) -> Option<usize> {
        let page = (address.checked_sub(self.start)? >> PAGE_BITS) as usize;
        self.first.get(page).map(|place| *place as usize)
    }
}

/// The chunks of one region that may be in a fast bin, ascending. `taken` has a set bit for each chunk that is known to
/// be in a fast bin.
struct Candidates {
    links: Vec<Link>,
    index: PageIndex,
    taken: Vec<u64>,
}

impl Candidates {
    fn new(region: &mut Region) -> Candidates {
        let links = std::mem::take(&mut region.links);
        let index = PageIndex::new(region.stretch.start, links.iter().map(|link| link.tagged));
        let taken = vec![0; links.len().div_ceil(64)];
        Candidates { links, index, taken }
    }

    /// Return the position of the candidate at `chunk`. None if no candidate is there, or if it has the wrong size for
    /// this bin.
    fn find(&self, chunk: u64, bin: u64) -> Option<usize> {
        let from = self.index.place(chunk)?;
        let behind = self.links[from..].iter().position(|link| link.tagged >= chunk)?;
        (self.links[from + behind].tagged == chunk | bin).then_some(from + behind)
    }
}

/// The progress of following one fast bin: the bin, and the chunk that comes next.
struct Cursor {
    arena: u32,
    bin: u64,
    head: u64,
    at: u64,
}

impl Chunks {
    /// Follow all fast bins at once, one step of each in turn. Each step waits for memory, and the waits of different
    /// bins overlap.
    pub(crate) fn follow_fast_bins(&mut self, safe_linking: bool) {
        let mut cursors: Vec<Cursor> = Vec::new();
        let mut begun = HashSet::new();
        for region in &self.regions {
            let arena = region.stretch.arena;
            // The fast bins belong to the arena: all regions of an arena have the same heads.
            if begun.insert(arena) {
                let heads = region.stretch.fast.iter().enumerate().filter(|(_, head)| **head != 0);
                cursors.extend(heads.map(|(bin, head)| Cursor { arena, bin: bin as u64, head: *head, at: *head }));
            }
        }
        let mut candidates: Vec<Candidates> = self.regions.iter_mut().map(Candidates::new).collect();
        let mut damage = Vec::new();
        while !cursors.is_empty() {
            cursors.retain_mut(|cursor| match self.take_fast(cursor, &mut candidates, safe_linking) {
                Ok(()) => cursor.at != 0,
                Err(expected) => {
                    damage.push((cursor.head, expected, cursor.at));
                    false
                }
            });
        }
        for (head, expected, found) in damage {
            self.report(head, "link of a fast bin", expected, found);
        }
        for (region, candidates) in self.regions.iter_mut().zip(candidates) {
            for (place, link) in candidates.links.iter().enumerate() {
                if bits::get(&candidates.taken, place as u64) {
                    region.mark(link.tagged & !BIN_BITS, ChunkState::Fast);
                }
            }
        }
    }

    fn take_fast(
        &self,
        cursor: &mut Cursor,
        candidates: &mut [Candidates],
        safe_linking: bool,
    ) -> Result<(), &'static str> {
        let region = self.region_of(cursor.at).filter(|index| self.regions[*index].stretch.arena == cursor.arena);
        let candidates = &mut candidates[region.ok_or("a chunk of this arena")?];
        let aligned = cursor.at & BIN_BITS == 0;
        let place = candidates.find(cursor.at, cursor.bin).filter(|_| aligned);
        let place = place.ok_or("a used chunk of the bin's size")?;
        if bits::get(&candidates.taken, place as u64) {
            return Err("a used chunk that is not in the list yet");
        }
        bits::set(&mut candidates.taken, place as u64);
        cursor.at = reveal(candidates.links[place].word, cursor.at + 16, safe_linking);
        Ok(())
    }

    fn report(&mut self, address: u64, what: &'static str, expected: &str, found: u64) {
        let index = self.region_of(address).unwrap_or(0);
        if let Some(region) = self.regions.get_mut(index) {
            region.damage.push(Damage::new(address, what, expected, format!("{found:#x}")));
        }
    }

    /// Follow one list of a thread cache, given as `(address of the first entry, number of entries, size)`. Return the
    /// number of entries taken, and the address to which the last link points.
    pub(crate) fn follow_tcache(&mut self, space: &Space, list: (u64, u64, u64), safe_linking: bool) -> (u64, u64) {
        let (mut at, count, size) = list;
        for taken in 0..count {
            let chunk = at.wrapping_sub(16);
            let Some(index) = self.region_of(chunk).filter(|_| at != 0) else { return (taken, at) };
            let region = &mut self.regions[index];
            let fits =
                |(start, end, state)| start == chunk && state == ChunkState::Used && [0, end - start].contains(&size);
            if !region.find(chunk).is_some_and(fits) {
                return (taken, at);
            }
            region.mark(chunk, ChunkState::Tcache);
            let Ok(link) = space.word(at) else { return (taken + 1, at) };
            at = reveal(link, at, safe_linking);
        }
        (count, at)
    }
}

/// Decode a link as glibc's REVEAL_PTR does (2.32 and later).
fn reveal(link: u64, at: u64, safe_linking: bool) -> u64 {
    if safe_linking {
        link ^ (at >> 12)
    } else {
        link
    }
}

/// Return the number and the total size of the chunks on each list of a thread cache. A list is given as `(address of
/// the first entry, number of entries)`.
pub fn sum_lists(space: &Space, chunks: &Chunks, lists: &[(u64, u64)], safe_linking: bool) -> Vec<Tally> {
    let sum = |(entry, count): &(u64, u64)| {
        let (mut at, mut sum) = (*entry, Tally::default());
        for _ in 0..*count {
            let chunk = at.wrapping_sub(CHUNK_HEADER);
            match chunks.locate(chunk) {
                Some((start, end, ChunkState::Tcache)) if start == chunk => sum.add(end - start),
                _ => break,
            }
            let Ok(link) = space.word(at) else { break };
            at = reveal(link, at, safe_linking);
        }
        sum
    };
    lists.iter().map(sum).collect()
}
