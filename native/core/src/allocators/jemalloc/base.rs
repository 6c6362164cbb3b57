//! jemalloc's own memory: base blocks, at multiples of 2 MiB, which contain extents, arenas and tables.
//!
//! A block begins with `{size_t size; base_block_t *next; extent}`. The extent describes the unused end of the block.

use crate::allocators::jemalloc::tree::words_from;
use gdbheap_access::bytes::{range_at, words};
use gdbheap_access::memory::space::Space;
use std::collections::{BTreeMap, BTreeSet};

const ALIGNMENT: u64 = 2 << 20;
const HEADER: u64 = 16 + 128;
/// The number of bytes at the start of a base block that are searched for pointers to other base blocks: `base_t` lies
/// there.
const HEAD: usize = 4 << 10;

/// A base block: memory of jemalloc's own data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BaseBlock {
    pub(crate) end: u64,
    next: u64,
}

/// Return the base block at `address`; None if there is none.
fn block_at(space: &Space, address: u64) -> Option<BaseBlock> {
    let [size, next, _, left, left_size] = words_from::<5>(space, address)?;
    let end = address.checked_add(size)?;
    let is_block = size > 0
        && size % ALIGNMENT == 0
        && next % ALIGNMENT == 0
        && left >= address + HEADER
        && left.checked_add(left_size) == Some(end)
        && space.covers(address, size);
    is_block.then_some(BaseBlock { end, next })
}

/// Return the possible base blocks in `ranges` (ascending), by address.
pub(crate) fn find_blocks(space: &Space, ranges: &[(u64, u64)]) -> BTreeMap<u64, BaseBlock> {
    let mut found = BTreeMap::new();
    for (start, end) in ranges.iter().copied() {
        let mut at = start;
        while let Some(next) = space.next_backed(at).map(|next| next / ALIGNMENT * ALIGNMENT) {
            let address = if next < at { next + ALIGNMENT } else { next };
            if address >= end {
                break;
            }
            found.extend(block_at(space, address).map(|block| (address, block)));
            at = address + ALIGNMENT;
        }
    }
    found
}

/// Return [start, end) of base blocks, ascending: those that contain the addresses in `inside`, and those that are
/// linked with them.
pub(crate) fn blocks_of(
    space: &Space,
    blocks: &BTreeMap<u64, BaseBlock>,
    inside: impl Iterator<Item = u64>,
) -> Vec<(u64, u64)> {
    let whole = |address: u64| {
        let (start, block) = blocks.range(..=address).next_back()?;
        (address < block.end).then_some(*start)
    };
    let (mut own, mut last) = (BTreeSet::new(), (0, 0));
    for address in inside {
        if !(last.0..last.1).contains(&address) {
            if let Some(start) = whole(address) {
                last = (start, blocks[&start].end);
                own.insert(start);
            }
        }
    }
    let newer: BTreeSet<(u64, u64)> = blocks.iter().map(|(start, block)| (block.next, *start)).collect();
    let mut new: Vec<u64> = own.iter().copied().collect();
    while let Some(start) = new.pop() {
        let newer = newer.range((start, 0)..=(start, u64::MAX)).map(|(_, newer)| *newer);
        let led =
            head_words(space, start).into_iter().chain([blocks[&start].next]).filter(|to| blocks.contains_key(to));
        let related: Vec<u64> = newer.chain(led).collect();
        new.extend(related.into_iter().filter(|start| own.insert(*start)));
    }
    let mut found: Vec<(u64, u64)> = own.into_iter().map(|start| (start, blocks[&start].end)).collect();
    found.dedup_by(|next, kept| next.0 < kept.1);
    found
}

/// Return those words of a base block's first page that may point to other base blocks.
fn head_words(space: &Space, start: u64) -> Vec<u64> {
    let mut bytes = vec![0; HEAD];
    let got = space.fill(start, &mut bytes);
    words(&bytes[..got]).into_iter().filter(|word| *word != 0 && word % ALIGNMENT == 0).collect()
}

/// Return those words of `data` that point into `blocks`, each once.
pub(crate) fn led_into(space: &Space, data: &[(u64, u64)], blocks: &[(u64, u64)]) -> BTreeSet<u64> {
    let (mut found, mut scratch) = (BTreeSet::new(), vec![0; HEAD << 4]);
    for (start, end) in data.iter().copied() {
        space.show(start, end, &mut scratch, |_, piece| {
            found.extend(words(piece).into_iter().filter(|word| word % 8 == 0 && range_at(blocks, *word).is_some()));
        });
    }
    found
}
