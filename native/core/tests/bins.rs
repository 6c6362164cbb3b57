//! Test that the bins of malloc are read as they were laid out: as rings of free chunks.

mod support;

use gdbheap_core::allocators::glibc::{follow_bins, walk_chunks, Bins, Chunks, Stretch};
use std::collections::BTreeMap;
use support::{Chance, Heap, Memory, NoWatcher};

const START: u64 = 0x5555_5555_0000;
/// The address of `malloc_state.bins`.
const STATE: u64 = 0x7f00_0000_1000;
const BINS: u64 = 127;

/// Return the bin for a size, as glibc's own two macros compute it.
fn bin_of(size: u64) -> u64 {
    if size < 1024 {
        return size >> 4;
    }
    for (shift, most, base) in [(6, 48, 48), (9, 20, 91), (12, 10, 110), (15, 4, 119), (18, 2, 124)] {
        if size >> shift <= most {
            return base + (size >> shift);
        }
    }
    126
}

fn head(state: u64, bin: u64) -> u64 {
    state + (bin - 1) * 16 - 16
}

/// Link the free chunks of a heap into rings, some of them into the unsorted ring. Return the bin of each chunk.
fn lay(chance: &mut Chance, heap: &mut Heap, state: u64) -> BTreeMap<u64, u64> {
    heap.memory.add(state, vec![0; 16 * BINS as usize]);
    let mut rings: BTreeMap<u64, Vec<(u64, u64)>> = (1..BINS).map(|bin| (bin, Vec::new())).collect();
    for (address, size, _) in heap.chunks.iter().filter(|chunk| chunk.2) {
        let bin = if chance.one_in(10) { 1 } else { bin_of(*size) };
        rings.entry(bin).or_default().push((*address, *size));
    }
    let mut found = BTreeMap::new();
    for (bin, mut chunks) in rings {
        // The chunks of a large bin are sorted, the largest first.
        chunks.sort_by_key(|(address, size)| (u64::MAX - size, *address));
        let ring: Vec<u64> = [head(state, bin)].into_iter().chain(chunks.iter().map(|chunk| chunk.0)).collect();
        for (place, chunk) in ring.iter().enumerate() {
            let (next, last) = (ring[(place + 1) % ring.len()], ring[(place + ring.len() - 1) % ring.len()]);
            heap.memory.put(chunk + 16, next);
            heap.memory.put(chunk + 24, last);
        }
        lay_sizes(&mut heap.memory, &chunks, bin);
        found.extend(chunks.iter().map(|(address, _)| (*address, bin)));
    }
    found
}

/// Link the first chunks of each size into a ring. The other chunks have no such links.
fn lay_sizes(memory: &mut Memory, chunks: &[(u64, u64)], bin: u64) {
    let mut firsts: Vec<u64> = Vec::new();
    for (place, (address, size)) in chunks.iter().enumerate().filter(|(_, (_, size))| *size >= 1024) {
        memory.put(address + 32, 0);
        memory.put(address + 40, 0);
        if bin > 1 && (place == 0 || chunks[place - 1].1 != *size) {
            firsts.push(*address);
        }
    }
    for (place, chunk) in firsts.iter().enumerate() {
        memory.put(chunk + 32, firsts[(place + 1) % firsts.len()]);
        memory.put(chunk + 40, firsts[(place + firsts.len() - 1) % firsts.len()]);
    }
}

/// Walk the chunks and follow the bins. `collects`: whether the walk collects the links; if not, another walk reads
/// them.
fn follow(heap: &Heap, collects: bool) -> (Chunks, Bins) {
    let space = heap.memory.space();
    let stretch = Stretch { arena: 0, start: heap.start, end: heap.end, top: heap.top, fast: Vec::new() };
    let (chunks, _) = walk_chunks(&NoWatcher, &space, vec![stretch], &[], true, collects).expect("not cancelled");
    let bins = follow_bins(&NoWatcher, &space, &chunks, &[STATE]).expect("not cancelled");
    (chunks, bins)
}

#[test]
fn every_free_chunk_is_in_its_bin() {
    let mut chance = Chance::new("every_free_chunk_is_in_its_bin");
    for _ in 0..20 {
        let mut heap = Heap::draw(&mut chance, START, 1 << 17, 1 << 16);
        let laid = lay(&mut chance, &mut heap, STATE);
        let (_, bins) = follow(&heap, chance.one_in(2));
        assert_eq!(bins.damage, []);
        for (address, _, free) in &heap.chunks {
            assert_eq!(bins.find(*address).map(u64::from), laid.get(address).copied(), "{address:#x} {free}");
        }
        let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
        laid.values().for_each(|bin| *sums.entry(*bin).or_default() += 1);
        let rows: BTreeMap<u64, u64> = bins.rows().iter().map(|(_, bin, tally)| (*bin, tally.count)).collect();
        assert_eq!(rows, sums);
    }
}

#[test]
fn a_damaged_link_is_found() {
    let mut chance = Chance::new("a_damaged_link_is_found");
    for _ in 0..20 {
        let mut heap = Heap::draw(&mut chance, START, 1 << 16, 1 << 14);
        let laid = lay(&mut chance, &mut heap, STATE);
        let place = chance.below(laid.len() as u64) as usize;
        let Some(chunk) = laid.keys().nth(place).copied() else { continue };
        let link = chunk + if chance.one_in(2) { 16 } else { 24 };
        let wrong = heap.memory.word(link) ^ (1 << chance.between(3, 46));
        heap.memory.put(link, wrong);
        let (_, bins) = follow(&heap, chance.one_in(2));
        assert_ne!(bins.damage, []);
    }
}

/// Check that damage is found if each of two arenas has a chunk of the other arena in a bin. Every link still points to
/// a free chunk that links back.
#[test]
fn a_bin_with_chunks_of_another_arena_is_found() {
    let mut chance = Chance::new("a_bin_with_chunks_of_another_arena_is_found");
    let mut found = 0;
    for _ in 0..20 {
        let (other_start, other_state) = (START + (1 << 30), STATE + (1 << 20));
        let mut heap = Heap::draw(&mut chance, START, 1 << 16, 1 << 10);
        let mut other = Heap::draw(&mut chance, other_start, 1 << 16, 1 << 10);
        // Set the flag in chunks in use which says that they lie in a thread's arena.
        for (chunk, _, _) in other.chunks.iter().filter(|chunk| !chunk.2) {
            let size = other.memory.word(chunk + 8);
            other.memory.put(chunk + 8, size | 4);
        }
        let (own, foreign) = (lay(&mut chance, &mut heap, STATE), lay(&mut chance, &mut other, other_state));
        let mut memory = heap.memory.clone();
        other.memory.stretches.iter().for_each(|(start, bytes)| memory.add(*start, bytes.clone()));
        let same = |(chunk, bin): (&u64, &u64)| Some((*chunk, *foreign.iter().find(|other| other.1 == bin)?.0));
        let small = own.iter().filter(|(_, bin)| (2..64).contains(*bin));
        let Some((one, two)) = small.into_iter().find_map(same) else { continue };
        let stretch =
            |heap: &Heap, arena| Stretch { arena, start: heap.start, end: heap.end, top: heap.top, fast: Vec::new() };
        for exchanged in [false, true] {
            if exchanged {
                let links = |chunk: u64| [memory.word(chunk + 16), memory.word(chunk + 24)];
                for (chunk, [next, last]) in [(one, links(two)), (two, links(one))] {
                    memory.put(chunk + 16, next);
                    memory.put(chunk + 24, last);
                    memory.put(next + 24, chunk);
                    memory.put(last + 16, chunk);
                }
            }
            let space = memory.space();
            let stretches = vec![stretch(&heap, 0), stretch(&other, 1)];
            let (chunks, _) =
                walk_chunks(&NoWatcher, &space, stretches, &[], true, chance.one_in(2)).expect("not cancelled");
            let bins = follow_bins(&NoWatcher, &space, &chunks, &[STATE, other_state]).expect("not cancelled");
            assert_eq!(!bins.damage.is_empty(), exchanged, "{:?}", bins.damage.first());
            found += usize::from(exchanged);
        }
    }
    assert!(found > 0, "the arenas have no bin in common");
}
