//! What is asked of the walked chunks: how many of each size, and which ones match.

use crate::allocators::block_list::Order;
use crate::allocators::glibc::chunks::{Chunks, Region, State, CHUNK_HEADER, GRAIN, STATES};
use crate::allocators::tally::Tally;
use crate::firsts::Firsts;
use std::collections::HashMap;

/// Sizes below are counted in a table, the rarer ones above by hash.
const SMALL: u64 = 64 << 10;
/// used, free, tcache and fast: the states that a chunk of any size may have.
const COUNTED: usize = 4;

/// Chunks by state, in the order of STATES.
pub type Counts = [u64; COUNTED];

/// A row for each exact size of used and free chunks, ascending.
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

/// Which chunks are meant: a bit for each state in the order of STATES, sizes [minimum, maximum], one arena or all.
#[derive(Clone)]
pub struct Wanted {
    pub states: u32,
    pub minimum: u64,
    pub maximum: u64,
    pub arena: Option<u32>,
}

impl Wanted {
    pub(crate) fn takes(&self, size: u64, state: State) -> bool {
        self.states >> (state as u32) & 1 == 1 && (self.minimum..=self.maximum).contains(&size)
    }

    /// Whether a used chunk is among them.
    pub(crate) fn takes_listed(&self, (_, size, _, arena): &Listed) -> bool {
        self.takes(*size, State::Used) && self.arena.is_none_or(|wanted| wanted == *arena)
    }

    pub(crate) fn regions<'a>(&'a self, chunks: &'a Chunks) -> impl Iterator<Item = (usize, &'a Region)> {
        let regions = chunks.regions.iter().enumerate();
        regions.filter(|(_, region)| self.arena.is_none_or(|arena| region.stretch.arena == arena))
    }
}

/// A chunk in a list: `(header, size, state, arena)`.
pub type Listed = (u64, u64, &'static str, u32);

/// How many chunks are wanted and their bytes, and the first `top` of them in order.
pub fn list_chunks(chunks: &Chunks, wanted: &Wanted, order: Order, top: Option<usize>) -> (Tally, Vec<Listed>) {
    let (mut rows, mut sum) = (Firsts::new(top.unwrap_or(usize::MAX)), Tally::default());
    let key = |(address, size, _, arena): &Listed| order.key(*address, *size, Some(*arena));
    for (_, region) in wanted.regions(chunks) {
        let matching = region.all().filter(|(start, end, state)| wanted.takes(end - start, *state));
        matching.for_each(|(start, end, state)| {
            sum.add(end - start);
            rows.put((start, end - start, STATES[state as usize], region.stretch.arena), key);
        });
    }
    (sum, rows.finish(key))
}

/// The blocks in [start, end) that are used or wait in a thread's cache, at most `most`: `(user address, size, used)`.
pub fn held_chunks(chunks: &Chunks, start: u64, end: u64, most: usize) -> Vec<(u64, u64, bool)> {
    let Some(region) = chunks.region_of(start).map(|index| &chunks.regions[index]) else { return Vec::new() };
    let held = region.blocks(start, end).filter(|block| matches!(block.2, State::Used | State::Tcache));
    held.take(most).map(|(at, to, state)| (at + CHUNK_HEADER, to - at, state == State::Used)).collect()
}
