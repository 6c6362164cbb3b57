//! Test the walk over chunks against a plain list of chunks.

mod support;

use gdbheap_core::allocators::glibc::{
    count_sizes, find_fits, list_chunks, walk_chunks, CacheList, ChunkFilter, Chunks, Stretch, STATES,
};
use gdbheap_core::allocators::BlockOrder;
use std::collections::BTreeSet;
use support::{Chance, Heap, NoWatcher};

const START: u64 = 0x5555_5555_0000;
const USED: usize = 0;
const FREE: usize = 1;
const TCACHE: usize = 2;
const FAST: usize = 3;

fn stretch(heap: &Heap, fast: Vec<u64>) -> Stretch {
    Stretch { arena: 0, start: heap.start, end: heap.end, top: heap.top, fast }
}

fn walked(heap: &Heap) -> Chunks {
    let walked = walk_chunks(&NoWatcher, &heap.memory.space(), vec![stretch(heap, Vec::new())], &[], true, false);
    walked.expect("not cancelled").0
}

fn agrees(heap: &Heap, chunks: &Chunks, chance: &mut Chance) {
    assert_eq!(chunks.damage().next(), None);
    let totals = &chunks.totals()[0].states;
    for (state, free) in [(USED, false), (FREE, true)] {
        let sizes = || heap.chunks.iter().filter(|chunk| chunk.2 == free).map(|chunk| chunk.1);
        assert_eq!((totals[state].count, totals[state].bytes), (sizes().count() as u64, sizes().sum()));
    }
    assert_eq!(totals.iter().map(|tally| tally.bytes).sum::<u64>(), heap.end - heap.start);
    for _ in 0..200 {
        let (address, size, free) = heap.chunks[chance.below(heap.chunks.len() as u64) as usize];
        let inside = address + chance.between(8, size + 7);
        let state = STATES[if free { FREE } else { USED }];
        assert_eq!(chunks.find(inside), Some((address, size, state)), "{inside:#x}");
    }
    for hole in chunks.holes(0) {
        let at = |address: u64| heap.chunks.iter().position(|chunk| chunk.0 == address).expect("a chunk");
        let (before, after) =
            (at(hole.start).checked_sub(1).map(|at| heap.chunks[at]), heap.chunks.get(at(hole.start) + 1));
        assert_eq!(hole.before.map(|edge| (edge.0, edge.1)), before.map(|chunk| (chunk.0, chunk.1)));
        let after = after.copied().unwrap_or((heap.top, heap.end - heap.top, false));
        assert_eq!(hole.after.map(|edge| (edge.0, edge.1)), Some((after.0, after.1)));
        assert!(chunks.holes(hole.end - hole.start).iter().any(|other| other.start == hole.start));
        assert!(chunks.holes(hole.end - hole.start + 1).iter().all(|other| other.start != hole.start));
    }
    let holes: Vec<(u64, u64)> = chunks.holes(0).iter().map(|hole| (hole.start, hole.end)).collect();
    let free = heap.chunks.iter().filter(|chunk| chunk.2).map(|(address, size, _)| (*address, address + size));
    assert_eq!(holes, free.collect::<Vec<_>>());
}

#[test]
fn chunks_are_those_of_the_heap() {
    let mut chance = Chance::new("chunks_are_those_of_the_heap");
    for _ in 0..40 {
        let size = chance.between(64, 1 << 17);
        let heap = Heap::draw(&mut chance, START, size, 1 << 15);
        agrees(&heap, &walked(&heap), &mut chance);
    }
}

/// Check that parts of 16 MiB are joined. Each part is walked on its own, from the first address that looks like a
/// chunk.
#[test]
fn parts_are_joined() {
    let mut chance = Chance::new("parts_are_joined");
    let start = START + 16 * chance.below(1 << 10);
    let heap = Heap::draw(&mut chance, start, 34 << 20, 2 << 20);
    agrees(&heap, &walked(&heap), &mut chance);
}

#[test]
fn sizes_and_lists_agree_with_the_heap() {
    let mut chance = Chance::new("sizes_and_lists_agree_with_the_heap");
    let heap = Heap::draw(&mut chance, START, 1 << 18, 1 << 15);
    let chunks = walked(&heap);
    for (size, counts) in count_sizes(&chunks) {
        let of = |free: bool| heap.chunks.iter().filter(|chunk| chunk.1 == size && chunk.2 == free).count() as u64;
        assert_eq!((counts[USED], counts[FREE]), (of(false), of(true)), "{size}");
    }
    let minimum = chance.below(1 << 12);
    let wanted = ChunkFilter { states: 1 << FREE, minimum, maximum: u64::MAX, arena: Some(0) };
    let (all, rows) = list_chunks(&chunks, &wanted, BlockOrder::Size, Some(10));
    let mut own: Vec<(u64, u64)> =
        heap.chunks.iter().filter(|chunk| chunk.2 && chunk.1 >= minimum).map(|chunk| (!chunk.1, chunk.0)).collect();
    own.sort_unstable();
    assert_eq!(all.count, own.len() as u64);
    assert_eq!(rows.iter().map(|row| (!row.1, row.0)).collect::<Vec<_>>(), own[..own.len().min(10)]);
    let need = chance.between(32, 1 << 10) & !15;
    let best = heap.chunks.iter().filter(|chunk| chunk.2 && chunk.1 >= need).map(|chunk| chunk.1).min();
    let fit = &find_fits(&chunks, need, false, 3)[0];
    assert_eq!(fit.best.map(|(_, size)| size), best);
    let mut short: Vec<u64> =
        heap.chunks.iter().filter(|chunk| chunk.2 && chunk.1 < need).map(|chunk| chunk.1).collect();
    short.sort_unstable_by_key(|size| u64::MAX - size);
    assert_eq!(fit.short.iter().map(|piece| piece.1).collect::<Vec<_>>(), short[..short.len().min(3)]);
    assert_eq!(fit.top, heap.end - heap.top);
}

/// Check chains in every fast bin, up to the largest size that glibc.malloc.mxfast allows.
#[test]
fn every_fast_bin_is_followed() {
    let mut chance = Chance::new("every_fast_bin_is_followed");
    for _ in 0..20 {
        let mut heap = Heap::draw(&mut chance, START, 1 << 16, 1 << 12);
        let mut heads = vec![0; 10];
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for (number, head) in heads.iter_mut().enumerate() {
            let size = 32 + 16 * number as u64;
            let used = heap.chunks.iter().filter(|chunk| !chunk.2 && chunk.1 == size);
            let chain: Vec<u64> = used.map(|chunk| chunk.0).take(chance.below(9) as usize).collect();
            *head = chain.first().copied().unwrap_or(0);
            for (place, chunk) in chain.iter().enumerate() {
                heap.memory.put(chunk + 16, chain.get(place + 1).copied().unwrap_or(0));
                expected.push((*chunk, size));
            }
        }
        let space = heap.memory.space();
        let (chunks, _) =
            walk_chunks(&NoWatcher, &space, vec![stretch(&heap, heads)], &[], false, false).expect("not cancelled");
        assert_eq!(chunks.damage().next(), None);
        assert_eq!(chunks.totals()[0].states[FAST].count, expected.len() as u64);
        for (address, size) in expected {
            assert_eq!(chunks.find(address + 16), Some((address, size, STATES[FAST])), "{address:#x}");
        }
    }
}

#[test]
fn caches_and_fast_bins_are_followed() {
    let mut chance = Chance::new("caches_and_fast_bins_are_followed");
    for _ in 0..20 {
        let safe_linking = chance.one_in(2);
        let mut heap = Heap::draw(&mut chance, START, 1 << 16, 1 << 12);
        let used = |size: u64| heap.chunks.iter().filter(move |chunk| !chunk.2 && chunk.1 == size).map(|chunk| chunk.0);
        // Some used chunks of one size are put into a cache, and some of another size into a fast bin. One of the
        // latter may be the chunk before the top.
        let last = heap.chunks.last().map_or(0, |chunk| chunk.1);
        let fast_size = if (64..=176).contains(&last) { last } else { 64 };
        let (cached, all): (Vec<u64>, Vec<u64>) = (used(48).take(20).collect(), used(fast_size).collect());
        let fast = all[all.len().saturating_sub(20)..].to_vec();
        let protect = |next: u64, at: u64| if safe_linking { next ^ (at >> 12) } else { next };
        for (place, chunk) in cached.iter().enumerate() {
            let next = cached.get(place + 1).map_or(0, |next| next + 16);
            heap.memory.put(chunk + 16, protect(next, chunk + 16));
        }
        for (place, chunk) in fast.iter().enumerate() {
            let next = fast.get(place + 1).copied().unwrap_or(0);
            heap.memory.put(chunk + 16, protect(next, chunk + 16));
        }
        let mut heads = vec![0; 10];
        heads[fast_size as usize / 16 - 2] = fast.first().copied().unwrap_or(0);
        let first = cached.first().map_or(0, |chunk| chunk + 16);
        let list = CacheList { first, entries: cached.len() as u64, size: 48 };
        let space = heap.memory.space();
        let (chunks, taken) =
            walk_chunks(&NoWatcher, &space, vec![stretch(&heap, heads)], &[list], safe_linking, false)
                .expect("not cancelled");
        assert_eq!(chunks.damage().next(), None);
        assert_eq!(taken[0], (cached.len() as u64, 0));
        let totals = &chunks.totals()[0].states;
        assert_eq!(totals[TCACHE].count, cached.len() as u64);
        assert_eq!(totals[FAST].count, fast.len() as u64);
        let fast: BTreeSet<u64> = fast.into_iter().collect();
        for with_fast in [false, true] {
            let is_free = |chunk: &(u64, u64, bool)| chunk.2 || (with_fast && fast.contains(&chunk.0));
            let (mut pieces, mut run): (Vec<u64>, u64) = (Vec::new(), 0);
            for chunk in &heap.chunks {
                run = if is_free(chunk) { run + chunk.1 } else { 0 };
                pieces.extend((run == chunk.1 && run > 0).then_some(0));
                pieces.last_mut().into_iter().filter(|_| run > 0).for_each(|last| *last = run);
            }
            // Free chunks below the top become a part of it.
            let top = heap.end - heap.top + run;
            pieces.truncate(pieces.len() - usize::from(run > 0));
            let fit = &find_fits(&chunks, 1 << 40, with_fast, usize::MAX)[0];
            pieces.sort_unstable_by_key(|size| u64::MAX - size);
            assert_eq!(fit.short.iter().map(|piece| piece.1).collect::<Vec<_>>(), pieces);
            assert_eq!((fit.best, fit.top), (None, top));
        }
    }
}

/// Check heaps that were full. Their top became a chunk in use and two fenceposts, or only one fencepost if 16 bytes
/// were left.
#[test]
fn full_heaps_end_in_fences() {
    let mut chance = Chance::new("full_heaps_end_in_fences");
    for fences in [vec![0u64], vec![16, 0], vec![16, 16]] {
        let mut heap = Heap::draw(&mut chance, START, 1 << 14, 1 << 10);
        let at = heap.end - 16 * fences.len() as u64;
        heap.memory.put(heap.top + 8, (at - heap.top) | 1);
        for (place, size) in fences.iter().enumerate() {
            heap.memory.put(at + 16 * place as u64 + 8, size | 1);
        }
        let stretch = Stretch { arena: 0, start: heap.start, end: heap.end, top: 0, fast: Vec::new() };
        let walked = walk_chunks(&NoWatcher, &heap.memory.space(), vec![stretch], &[], true, false);
        let chunks = walked.expect("not cancelled").0;
        assert_eq!(chunks.damage().next(), None, "{fences:?}");
        let used = heap.chunks.iter().filter(|chunk| !chunk.2).count() as u64 + 1;
        let totals = &chunks.totals()[0].states;
        assert_eq!(totals[USED].count, used, "{fences:?}");
        assert_eq!(totals.iter().map(|tally| tally.bytes).sum::<u64>(), heap.end - heap.start);
        assert_eq!(chunks.find(heap.top + 16), Some((heap.top, at - heap.top, STATES[USED])));
        // After a damaged size shortly before the end, the chunks before the fences are found again.
        let place = heap.chunks.len() - chance.between(3, 12) as usize;
        let (damaged, _, _) = heap.chunks[place..].iter().find(|chunk| !chunk.2).copied().expect("no two are free");
        heap.memory.put(damaged + 8, 1 << 63 | 1);
        let stretch = Stretch { arena: 0, start: heap.start, end: heap.end, top: 0, fast: Vec::new() };
        let walked = walk_chunks(&NoWatcher, &heap.memory.space(), vec![stretch], &[], true, false);
        let chunks = walked.expect("not cancelled").0;
        assert_ne!(chunks.damage().next(), None, "{fences:?}");
        assert_eq!(chunks.find(heap.top + 16), Some((heap.top, at - heap.top, STATES[USED])), "{fences:?}");
    }
}
