//! Queries on the walked chunks: counts by size, and lists of matching chunks.

use crate::allocators::block_list::BlockOrder;
use crate::allocators::glibc::chunks::{ChunkState, Chunks, Region, CHUNK_HEADER, GRAIN, STATES};
use crate::allocators::tally::Tally;
use crate::top_rows::TopRows;
use std::collections::HashMap;

/// Chunks of at least this size in bytes are counted in a hash map, because such sizes are rare. Smaller chunks are
/// counted in a table.
const SMALL: u64 = 64 << 10;
/// The number of states in which chunks are counted: used, free, tcache and fast. Chunks in these states may have any
/// size.
const COUNTED: usize = 4;

/// Counts of chunks by state, in the order of STATES.
pub type Counts = [u64; COUNTED];

/// Count used and free chunks by exact size. Return one row for each size, ascending.
pub fn count_sizes(chunks: &Chunks) -> Vec<(u64, Counts)> {
    let mut small = vec![[0; COUNTED]; (SMALL / GRAIN) as usize];
    let mut large: HashMap<u64, Counts> = HashMap::new();
    for (start, end, state) in chunks.regions.iter().flat_map(Region::all) {
        let size = end - start;
        if (state as usize) < COUNTED {
            let counts = match size < SMALL {
                true => &mut small[(size / GRAIN) as usize],
                false => large.entry(size).or_default(),
            };
            counts[state as usize] += 1;
        }
    }
    let small = small.into_iter().enumerate().map(|(place, counts)| (place as u64 * GRAIN, counts));
    let mut rows: Vec<(u64, Counts)> =
        small.filter(|(_, counts)| counts.iter().any(|count| *count > 0)).chain(large).collect();
    rows.sort_unstable_by_key(|(size, _)| *size);
    rows
}

/// A filter for chunks. `states` has a bit for each accepted state, in the order of STATES. `minimum` and `maximum`
/// bound the size, both inclusive. `arena` is the only accepted arena, None for all arenas.
#[derive(Clone)]
pub struct ChunkFilter {
    pub states: u32,
    pub minimum: u64,
    pub maximum: u64,
    pub arena: Option<u32>,
}

impl ChunkFilter {
    pub(crate) fn takes(&self, size: u64, state: ChunkState) -> bool {
        self.states >> (state as u32) & 1 == 1 && (self.minimum..=self.maximum).contains(&size)
    }

    /// Return whether a used chunk passes the filter.
    pub(crate) fn takes_listed(&self, (_, size, _, arena): &ListedChunk) -> bool {
        self.takes(*size, ChunkState::Used) && self.arena.is_none_or(|wanted| wanted == *arena)
    }

    pub(crate) fn regions<'a>(&'a self, chunks: &'a Chunks) -> impl Iterator<Item = (usize, &'a Region)> {
        let regions = chunks.regions.iter().enumerate();
        regions.filter(|(_, region)| self.arena.is_none_or(|arena| region.stretch.arena == arena))
    }
}

/// A chunk in a list: `(address of the header, size, state, arena)`.
pub type ListedChunk = (u64, u64, &'static str, u32);

/// Count and list the chunks that pass the filter. Return their number, their total size, and the first `top` of them
/// in the given order.
pub fn list_chunks(
    chunks: &Chunks,
    wanted: &ChunkFilter,
    order: BlockOrder,
    top: Option<usize>,
) -> (Tally, Vec<ListedChunk>) {
    let (mut rows, mut sum) = (TopRows::new(top.unwrap_or(usize::MAX)), Tally::default());
    let key = |(address, size, _, arena): &ListedChunk| order.key(*address, *size, Some(*arena));
    for (_, region) in wanted.regions(chunks) {
        let matching = region.all().filter(|(start, end, state)| wanted.takes(end - start, *state));
        matching.for_each(|(start, end, state)| {
            sum.add(end - start);
            rows.put((start, end - start, STATES[state as usize], region.stretch.arena), key);
        });
    }
    (sum, rows.finish(key))
}

/// Return at most `most` blocks in [start, end) that are in use or in a thread's cache, as `(user address, size,
/// whether in use)`.
pub fn held_chunks(chunks: &Chunks, start: u64, end: u64, most: usize) -> Vec<(u64, u64, bool)> {
    let Some(region) = chunks.region_of(start).map(|index| &chunks.regions[index]) else { return Vec::new() };
    let held = region.blocks(start, end).filter(|block| matches!(block.2, ChunkState::Used | ChunkState::Tcache));
    held.take(most).map(|(at, to, state)| (at + CHUNK_HEADER, to - at, state == ChunkState::Used)).collect()
}
