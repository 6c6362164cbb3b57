//! Follow the doubly linked lists of free chunks. Find the bin of each free chunk and check every link.
//!
//! A free chunk's first words are `fd` and `bk`. In a large bin, the first chunk of each size also has `fd_nextsize`
//! and `bk_nextsize` after these words. Bin n is a ring whose head overlays `malloc_state.bins`, as if a chunk began 16
//! bytes before the bin's pair of words. Bin 1 is the unsorted bin. Bins 2 to 63 are small bins of one size each. Bins
//! 64 to 126 are large bins.

mod bin;
mod free;
mod rings;
mod sound;

use crate::allocators::damage::{hex, Damage};
use crate::allocators::glibc::chunks::Chunks;
use crate::allocators::tally::Tally;
pub(crate) use bin::BINS;
use bin::{MAX_DAMAGE, NO_BIN, SMALL_BINS};
use free::FreeChunks;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;
use rings::{Ring, Rings};
use std::collections::BTreeMap;

pub use bin::least_sizes;

/// The bins of all free chunks, and the damage that was found in the bins.
pub struct Bins {
    free: FreeChunks,
    /// Wrong links of free chunks, and wrong flags of chunks in use.
    pub damage: Vec<Damage>,
}

impl Bins {
    /// Return `(arena, bin, chunks)` of every bin that is not empty. The row for bin 0 counts the free chunks that are
    /// in no bin.
    pub fn rows(&self) -> Vec<(u32, u64, Tally)> {
        let mut rows: BTreeMap<(u32, u64), Tally> = BTreeMap::new();
        for region in &self.free.regions {
            let mut tallies = [Tally::default(); BINS as usize];
            for number in region.numbers() {
                tallies[self.free.bin(number) as usize].add(self.free.links(number).size);
            }
            for (bin, tally) in tallies.iter().enumerate().filter(|(_, tally)| tally.count != 0) {
                let row = rows.entry((region.arena, bin as u64)).or_default();
                *row = row.with(tally);
            }
        }
        rows.into_iter().map(|((arena, bin), tally)| (arena, bin, tally)).collect()
    }

    /// Return the number of the bin that contains a free chunk: 0 if no bin contains it, None if `chunk` is not a free
    /// chunk.
    pub fn find(&self, chunk: u64) -> Option<u8> {
        self.free.number(chunk).map(|number| self.free.bin(number))
    }
}

/// Follow the bins of every arena. `heads` has the address of `malloc_state.bins` for each arena. If the address is 0,
/// the arena is skipped.
pub fn follow_bins(watcher: &dyn Watcher, space: &Space, chunks: &Chunks, heads: &[u64]) -> Result<Bins> {
    let (free, mut damage) = FreeChunks::of(watcher, space, chunks)?;
    let rings = Rings { space, free: &free };
    let all: Vec<Ring> = heads
        .iter()
        .enumerate()
        .filter(|(_, bins)| **bins != 0)
        .flat_map(|(arena, bins)| (1..BINS).map(move |bin| Ring::new(arena as u32, *bins, bin)))
        .collect();
    if !rings.are_sound(watcher, heads, &all)? {
        free.forget_bins();
        damage.extend(rings.follow(watcher, &all)?);
    }
    check_places(&free, &mut damage);
    check_sizes_links(&free, &mut damage);
    damage.sort_by_key(|damage| damage.address);
    damage.truncate(MAX_DAMAGE);
    Ok(Bins { free, damage })
}

/// Report free chunks that are in no bin.
fn check_places(free: &FreeChunks, found: &mut Vec<Damage>) {
    for region in &free.regions {
        for number in region.numbers().filter(|number| free.bin(*number) == NO_BIN) {
            if found.len() >= MAX_DAMAGE {
                return;
            }
            found.push(Damage::new(region.address(number), "free chunk", "in a bin of its arena", "in no bin"));
        }
    }
}

/// Report wrong `fd_nextsize` and `bk_nextsize` links: in a large bin, the first chunks of neighbouring sizes must
/// point to each other.
fn check_sizes_links(free: &FreeChunks, found: &mut Vec<Damage>) {
    const EXPECTED: &str = "the first chunk of another size, whose link points back";
    for link in &free.size_links {
        let bin = free.number(link.address).map_or(NO_BIN, |number| free.bin(number));
        if u64::from(bin) < SMALL_BINS || found.len() >= MAX_DAMAGE {
            continue;
        }
        if free.size_link(link.fd).map(|next| next.bk) != Some(link.address) {
            found.push(Damage::new(link.address, "fd_nextsize", EXPECTED, hex(link.fd)));
        }
        if free.size_link(link.bk).map(|last| last.fd) != Some(link.address) {
            found.push(Damage::new(link.address, "bk_nextsize", EXPECTED, hex(link.bk)));
        }
    }
}
