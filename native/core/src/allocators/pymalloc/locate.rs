//! Find pymalloc: the heads of its lists of pools, and its tables of arenas.

use crate::allocators::pymalloc::pools::HEADER;
use gdbheap_access::bytes::{range_at, u32_at, u64_at};
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::words::Words;
use gdbheap_access::work::Watcher;
use std::collections::HashMap;

/// Return possible addresses of the array `usedpools`, each with the number of lists of pools that end in this array.
/// The last pool of a list points to the head of the list. The head lies 16 bytes before the two pointers of its size
/// class in `usedpools`. Only the headers of the pools in `ranges` are read.
pub fn find_list_ends(
    watcher: &dyn Watcher,
    space: &Space,
    ranges: &[(u64, u64)],
    pool_size: u64,
    alignment: u64,
) -> Result<HashMap<u64, u32>> {
    let mut found = HashMap::new();
    for (start, end) in ranges.iter().copied() {
        let mut at = start.next_multiple_of(pool_size);
        while at < end {
            watcher.check()?;
            let mut addresses = Vec::new();
            while at < end && addresses.len() < HEADERS_AT_ONCE {
                let Some(next) = space.next_backed(at) else { break };
                let Some(aligned) = next.checked_next_multiple_of(pool_size) else { break };
                at = aligned;
                if at < end {
                    addresses.push(at);
                }
                at = at.saturating_add(pool_size);
            }
            if addresses.is_empty() {
                break;
            }
            let mut headers = vec![0; addresses.len() * HEADER as usize];
            let good = space.many(&addresses, HEADER as usize, &mut headers);
            for (place, address) in addresses.iter().enumerate().filter(|(place, _)| good[*place]) {
                let header = &headers[place * HEADER as usize..(place + 1) * HEADER as usize];
                if let Some(usedpools) = ended_list(space, *address, header, pool_size, alignment) {
                    *found.entry(usedpools).or_insert(0) += 1;
                }
            }
        }
    }
    Ok(found)
}

const HEADERS_AT_ONCE: usize = 4 << 10;

/// Return the address of `usedpools` that the pool at `address` suggests; None unless the pool is in use and is the
/// last pool of its list. The `nextpool` of the last pool points to the head of the list. Heads at addresses where a
/// pool could begin are skipped, because there are many other heads.
fn ended_list(space: &Space, address: u64, header: &[u8], pool_size: u64, alignment: u64) -> Option<u64> {
    let (used, next) = (u32_at(header, 0), u64_at(header, 16));
    let (class, carved, furthest) = (u64::from(u32_at(header, 36)), u32_at(header, 40), u32_at(header, 44));
    let size = (class + 1) * alignment;
    let sound = used > 0 && size <= 512 && u64::from(furthest) + size == pool_size && u64::from(carved) <= pool_size;
    if !sound || next % 8 != 0 || next % pool_size == 0 || space.word(next.checked_add(24)?).ok()? != address {
        return None;
    }
    (next + 16).checked_sub(16 * class)
}

/// Return `(address, table)` of those words in [start, end) that point to a table of `struct arena_object` (48 bytes
/// each). The table must fit every sample `(pool address, arenaindex)`. `homes` are the ranges in which the table may
/// lie, ascending.
pub fn find_arena_tables(
    space: &Space,
    (start, end): (u64, u64),
    samples: &[(u64, u32)],
    homes: &[(u64, u64)],
    largest_arena: u64,
) -> Vec<(u64, u64)> {
    if samples.is_empty() {
        return Vec::new();
    }
    let at_home = |table: u64| range_at(homes, table).is_some();
    let words = Words::read(space, start, end);
    let mut candidates: Vec<(u64, u64)> = words
        .words
        .iter()
        .enumerate()
        .filter(|(_, word)| **word % 8 == 0 && at_home(**word))
        .map(|(index, word)| (words.start + index as u64 * 8, *word))
        .collect();
    for (pool, index) in samples {
        candidates = fitting_tables(space, candidates, *pool, *index, largest_arena);
    }
    candidates
}

/// Return those candidates `(address, table)` whose entry `index` describes an arena in which `pool` has been carved.
fn fitting_tables(
    space: &Space,
    candidates: Vec<(u64, u64)>,
    pool: u64,
    index: u32,
    largest_arena: u64,
) -> Vec<(u64, u64)> {
    let entry_of = |table: u64| table.wrapping_add(u64::from(index) * 48);
    let there: Vec<(u64, u64)> =
        candidates.into_iter().filter(|(_, table)| space.covers(entry_of(*table), ENTRY as u64)).collect();
    let addresses: Vec<u64> = there.iter().map(|(_, table)| entry_of(*table)).collect();
    let mut entries = vec![0; addresses.len() * ENTRY];
    let good = space.many(&addresses, ENTRY, &mut entries);
    let fits = |entry: &[u8]| {
        let (address, carved) = (u64_at(entry, 0), u64_at(entry, 8));
        let (free, total) = (u32_at(entry, 16), u32_at(entry, 20));
        let inside = address <= pool && pool < carved && carved.wrapping_sub(address) <= largest_arena;
        inside && free <= total && total <= 512
    };
    let kept = there.into_iter().zip(entries.chunks_exact(ENTRY)).zip(good);
    kept.filter(|((_, entry), good)| *good && fits(entry)).map(|((candidate, _), _)| candidate).collect()
}

/// The number of bytes of a `struct arena_object` that are read.
const ENTRY: usize = 24;
