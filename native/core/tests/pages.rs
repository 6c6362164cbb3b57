//! Test pages of 4, 16 and 64 KiB: how they are counted, swept, trimmed and pinned. The results are compared with plain
//! models that look at each page.

mod support;

use gdbheap_access::memory::{Pages, PRESENT, SWAPPED};
use gdbheap_core::allocators::glibc::{released, trim_chunks, walk_chunks, Chunks, PageSum, Stretch};
use gdbheap_core::allocators::Store;
use gdbheap_core::memory_use::{pins, PinRules, Sum, Sweep};
use gdbheap_core::{Machine, PageSize, EM_X86_64};
use std::collections::BTreeSet;
use std::sync::Arc;
use support::{machine, Chance, Heap, NoWatcher};

const SIZES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
const START: u64 = 0x5555_5540_0000;
const PAGES: u64 = 200;
const HEAPS: u64 = 4;
const ATTEMPTS: usize = 1000;
/// The size of `struct malloc_chunk`: the header and the links that glibc keeps in a free chunk.
const HEAD: u64 = 48;

/// Consecutive pages that begin at START. `states` has the state of each page; 0 for a page that is absent.
struct RandomPages {
    size: u64,
    states: Vec<u8>,
}

impl RandomPages {
    fn new(chance: &mut Chance, size: u64, count: u64) -> RandomPages {
        let states = (0..count).map(|_| [0, PRESENT, PRESENT, SWAPPED][chance.below(4) as usize]).collect();
        RandomPages { size, states }
    }

    fn page(&self) -> PageSize {
        machine(self.size).page
    }

    fn pages(&self) -> Pages {
        let entry = |state: &u8| match *state {
            PRESENT => 1u64 << 63,
            SWAPPED => 1 << 62,
            _ => 0,
        };
        let entries = self.states.iter().flat_map(|state| entry(state).to_le_bytes()).collect();
        Pages::from_entries(&[(START, entries)], self.page()).expect("they ascend")
    }

    fn state(&self, page: u64) -> u8 {
        page.checked_sub(START / self.size).and_then(|place| self.states.get(place as usize)).copied().unwrap_or(0)
    }

    /// Return how many bytes of [start, end) lie in pages with this state.
    fn bytes(&self, start: u64, end: u64, state: u8) -> u64 {
        let inside = |page: u64| end.min((page + 1) * self.size) - start.max(page * self.size);
        (start / self.size..end.div_ceil(self.size)).filter(|page| self.state(*page) == state).map(inside).sum()
    }

    fn count(&self, pages: &BTreeSet<u64>, state: u8) -> u64 {
        pages.iter().filter(|page| self.state(**page) == state).count() as u64 * self.size
    }

    /// Return the whole pages between the head of a free chunk and its end. Each page is examined on its own.
    fn released(&self, start: u64, end: u64) -> BTreeSet<u64> {
        let touched = start / self.size..=end / self.size;
        touched.filter(|page| start + HEAD <= page * self.size && (page + 1) * self.size <= end).collect()
    }
}

fn for_each_size(test: &str, mut check: impl FnMut(&mut Chance, RandomPages)) {
    let mut chance = Chance::new(test);
    for size in SIZES {
        let drawn = RandomPages::new(&mut chance, size, PAGES);
        check(&mut chance, drawn);
    }
}

fn stretch_of(chance: &mut Chance, size: u64) -> (u64, u64) {
    let start = START + 8 * chance.below(PAGES * size / 8);
    let length = if chance.one_in(2) { chance.below(4 * size) } else { chance.below(200) };
    (start, start + length + 1)
}

#[test]
fn bytes_by_the_state_of_their_pages() {
    for_each_size("bytes_by_the_state_of_their_pages", |chance, drawn| {
        let pages = drawn.pages();
        for _ in 0..2000 {
            let (start, end) = stretch_of(chance, drawn.size);
            let expected = (drawn.bytes(start, end, PRESENT), drawn.bytes(start, end, SWAPPED));
            assert_eq!(pages.count(start, end), expected, "{start:#x} {end:#x}");
        }
    });
}

#[test]
fn whole_pages_are_released() {
    for_each_size("whole_pages_are_released", |chance, drawn| {
        let pages = drawn.pages();
        for _ in 0..2000 {
            let (start, end) = stretch_of(chance, drawn.size);
            let own = drawn.released(start, end);
            let (resident, swapped) = (drawn.count(&own, PRESENT), drawn.count(&own, SWAPPED));
            let expected = PageSum { whole: own.len() as u64 * drawn.size, resident, swapped };
            assert_eq!(released(&pages, start, end), expected, "{start:#x} {end:#x}");
        }
    });
}

#[test]
fn each_page_is_swept_to_one_owner() {
    const OWNERS: usize = 4;
    for_each_size("each_page_is_swept_to_one_owner", |chance, drawn| {
        let mut sweep =
            Sweep::new(drawn.page(), Some(Arc::new(drawn.pages())), OWNERS, Vec::new(), Vec::new()).expect("no cuts");
        let (mut at, mut touched) = (START, vec![None; PAGES as usize]);
        let mut expected = vec![Sum::default(); OWNERS];
        while at < START + (PAGES - 8) * drawn.size {
            let start = at + if chance.one_in(3) { chance.below(2 * drawn.size) } else { 0 };
            let end = start + 1 + if chance.one_in(3) { chance.below(3 * drawn.size) } else { chance.below(99) };
            let owner = chance.below(OWNERS as u64) as usize;
            sweep.add(start, end, owner as u32).expect("it ascends");
            expected[owner].bytes += end - start;
            expected[owner].resident += drawn.bytes(start, end, PRESENT);
            expected[owner].swapped += drawn.bytes(start, end, SWAPPED);
            for page in start / drawn.size..end.div_ceil(drawn.size) {
                let page = &mut touched[(page - START / drawn.size) as usize];
                *page = (*page).max(Some(owner));
            }
            at = end;
        }
        for (place, owner) in touched.iter().enumerate().filter_map(|(place, owner)| Some((place, (*owner)?))) {
            expected[owner].pages += drawn.size;
            expected[owner].whole += if drawn.states[place] == PRESENT { drawn.size } else { 0 };
        }
        let mut found = vec![Sum::default(); OWNERS];
        sweep.finish().expect("it ascends")[0].iter().for_each(|(owner, sum)| found[*owner as usize] = *sum);
        let row = |sum: &Sum| (sum.bytes, sum.resident, sum.swapped, sum.pages, sum.whole);
        assert_eq!(found.iter().map(row).collect::<Vec<_>>(), expected.iter().map(row).collect::<Vec<_>>());
    });
}

/// Return ascending ranges of random pages of `drawn`, some of them neighbours.
fn some_ranges(chance: &mut Chance, drawn: &RandomPages, most: u64) -> Vec<(u64, u64)> {
    let (mut found, mut at) = (Vec::new(), START);
    loop {
        let start = at + if chance.one_in(3) { 0 } else { drawn.size * chance.between(1, most) };
        let end = start + drawn.size * chance.between(1, most);
        if end > START + PAGES * drawn.size {
            return found;
        }
        found.push((start, end));
        at = end;
    }
}

/// Return how many bytes of [start, end) lie in the ranges.
fn within(ranges: &[(u64, u64)], start: u64, end: u64) -> u64 {
    ranges.iter().map(|range| range.1.min(end).saturating_sub(range.0.max(start))).sum()
}

/// Split `range` at `cuts`, which divide it into numbered cells, and at the bounds of the missing ranges `lost`. Return
/// the parts as `(start, end, owner, cell)`. Missing parts belong to `loser`, the others to `owner`.
fn parts(
    range: (u64, u64),
    owner: usize,
    lost: &[(u64, u64)],
    loser: usize,
    cuts: &[u64],
) -> Vec<(u64, u64, usize, usize)> {
    let mut ends: BTreeSet<u64> =
        lost.iter().flat_map(|range| [range.0, range.1]).chain(cuts.iter().copied()).collect();
    ends.extend([range.0, range.1]);
    let ends: Vec<u64> = ends.into_iter().filter(|end| range.0 <= *end && *end <= range.1).collect();
    let whose = |start: u64| if within(lost, start, start + 1) > 0 { loser } else { owner };
    let cell = |start: u64| cuts.iter().filter(|cut| **cut <= start).count();
    ends.windows(2).map(|pair| (pair[0], pair[1], whose(pair[0]), cell(pair[0]))).collect()
}

/// Check the sums that a sweep finds for each cell (a range between two cuts). There are huge pages, and missing memory
/// that has an owner of its own.
#[test]
fn sweeps_in_cells_with_huge_pages_and_missing_memory() {
    const OWNERS: usize = 5;
    for_each_size("sweeps_in_cells_with_huge_pages_and_missing_memory", |chance, drawn| {
        let huge: Vec<(u64, u64)> = some_ranges(chance, &drawn, 9);
        let lost: Vec<(u64, u64)> = if chance.one_in(3) { Vec::new() } else { some_ranges(chance, &drawn, 20) };
        let cuts: Vec<u64> = some_ranges(chance, &drawn, 30).iter().map(|range| range.1).collect();
        let (loser, keeper) = (chance.below(OWNERS as u64) as usize, chance.below(OWNERS as u64) as usize);
        let mut pages = drawn.pages();
        pages.huge = Some(huge.clone());
        let mut sweep = Sweep::new(drawn.page(), Some(Arc::new(pages)), OWNERS, cuts.clone(), vec![keeper as u32])
            .expect("they ascend");
        sweep.set_lost(lost.clone(), loser as u32).expect("they ascend");
        let mut expected = vec![vec![Sum::default(); OWNERS]; cuts.len() + 1];
        let (mut at, mut touched) = (START, vec![None; PAGES as usize]);
        while at < START + (PAGES - 12) * drawn.size {
            let start = at + if chance.one_in(3) { chance.below(3 * drawn.size) } else { 0 };
            let end = start + 1 + if chance.one_in(3) { chance.below(6 * drawn.size) } else { chance.below(99) };
            let owner = chance.below(OWNERS as u64) as usize;
            sweep.add(start, end, owner as u32).expect("it ascends");
            for (start, end, owner, cell) in parts((start, end), owner, &lost, loser, &cuts) {
                let sum = &mut expected[cell][owner];
                sum.bytes += end - start;
                sum.resident += drawn.bytes(start, end, PRESENT);
                sum.swapped += drawn.bytes(start, end, SWAPPED);
                sum.huge += within(&huge, start, end);
                for page in start / drawn.size..end.div_ceil(drawn.size) {
                    let page = &mut touched[(page - START / drawn.size) as usize];
                    *page = (*page).max(Some((owner, cell)));
                }
            }
            at = end;
        }
        let mut kept: Vec<u64> = Vec::new();
        for (place, (owner, cell)) in touched.iter().enumerate().filter_map(|(place, found)| Some((place, (*found)?))) {
            let (start, sum) = (START + place as u64 * drawn.size, &mut expected[cell][owner]);
            let is_huge = within(&huge, start, start + drawn.size);
            sum.pages += drawn.size;
            sum.whole += if drawn.states[place] == PRESENT { drawn.size } else { 0 };
            sum.whole_huge += is_huge;
            kept.extend((is_huge > 0 && owner == keeper).then_some(start));
        }
        let row = |sum: &Sum| {
            (sum.bytes, sum.resident, sum.swapped, sum.zero, sum.huge, sum.pages, sum.whole, sum.whole_huge)
        };
        for (cell, (rows, expected)) in sweep.finish().expect("it ascends").iter().zip(&expected).enumerate() {
            let mut found = vec![Sum::default(); OWNERS];
            rows.iter().for_each(|(owner, sum)| found[*owner as usize] = *sum);
            let (found, expected): (Vec<_>, Vec<_>) =
                (found.iter().map(row).collect(), expected.iter().map(row).collect());
            assert_eq!(found, expected, "cell {cell}");
        }
        let ranges = sweep.huge_ranges();
        assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
        let pages = |range: &(u64, u64)| (range.0..range.1).step_by(drawn.size as usize).collect::<Vec<_>>();
        assert_eq!(ranges.iter().flat_map(pages).collect::<Vec<_>>(), kept);
    });
}

/// Make a heap in the pages of `drawn`. Some of its free chunks are larger than a page.
fn heap_in(chance: &mut Chance, drawn: &RandomPages) -> (Heap, Chunks) {
    let start = START + 16 * chance.below(1 << 10);
    let heap = match chance.one_in(2) {
        true => Heap::draw(chance, start, 150 * drawn.size, 12 * drawn.size),
        false => Heap::draw_islands(chance, start, 150 * drawn.size, drawn.size),
    };
    let stretch = Stretch { arena: 0, start: heap.start, end: heap.end, top: heap.top, fast: Vec::new() };
    let walked = walk_chunks(&NoWatcher, &heap.memory.space(), vec![stretch], &[], true, false);
    let chunks = walked.expect("not cancelled").0;
    (heap, chunks)
}

/// Return the pages that malloc_trim() would release if the chunks in [gone.0, gone.1) were free too.
fn released_without(heap: &Heap, drawn: &RandomPages, gone: (u64, u64)) -> BTreeSet<u64> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (address, size, free) in &heap.chunks {
        if !(*free || (gone.0..gone.1).contains(address)) {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.1 == *address => last.1 = address + size,
            _ => runs.push((*address, address + size)),
        }
    }
    runs.iter().flat_map(|(start, end)| drawn.released(*start, *end)).collect()
}

/// Compare the trimmed memory of a heap with the model. In some ranges of the heap, the kernel takes back no page.
/// Return the number of bytes of the trimmed pages.
fn check_trim(chance: &mut Chance, drawn: &RandomPages) -> u64 {
    let (heap, chunks) = heap_in(chance, drawn);
    let locked = if chance.one_in(2) { Vec::new() } else { some_ranges(chance, drawn, 30) };
    let is_free = |page: &u64| within(&locked, page * drawn.size, (page + 1) * drawn.size) == 0;
    let own: BTreeSet<u64> = released_without(&heap, drawn, (0, 0)).into_iter().filter(is_free).collect();
    let whole = own.len() as u64 * drawn.size;
    let with_pages = |chunk: &&(u64, u64, bool)| chunk.2 && !drawn.released(chunk.0, chunk.0 + chunk.1).is_empty();
    let count_of_chunks = heap.chunks.iter().filter(with_pages).count() as u64;
    for pages in [None, Some(drawn.pages())] {
        let trimmed = &trim_chunks(&chunks, drawn.page(), pages.as_ref(), &locked)[0];
        let count = |state| if pages.is_some() { drawn.count(&own, state) } else { 0 };
        assert_eq!(trimmed.released, PageSum { whole, resident: count(PRESENT), swapped: count(SWAPPED) });
        assert_eq!((trimmed.chunks, trimmed.top), (count_of_chunks, heap.top));
        assert_eq!((trimmed.start, trimmed.end), (heap.start, heap.end));
    }
    whole
}

#[test]
fn what_trim_gives_back_of_a_heap() {
    for_each_size("what_trim_gives_back_of_a_heap", |chance, drawn| {
        let whole: u64 = (0..HEAPS).map(|_| check_trim(chance, &drawn)).sum();
        assert!(whole > 0, "no free chunk has a page");
    });
}

/// Compare the groups of pins with the model. Return the number of groups.
fn check_pins(chance: &mut Chance, drawn: &RandomPages) -> u64 {
    let (heap, chunks) = heap_in(chance, drawn);
    let pages = drawn.pages();
    let before = released_without(&heap, drawn, (0, 0));
    let kept = PinRules { page: drawn.page(), pages: Some(&pages), ranges: &[], least: 1, most: 1000 };
    let store = Store::Chunks(Arc::new(chunks));
    let (rows, totals) = pins(&store, &[], kept);
    assert_eq!(rows.len() as u64, totals.groups);
    // The groups that free the most bytes in addition to their own bytes come first.
    assert!(rows.windows(2).all(|pair| pair[0].4 - pair[0].3 >= pair[1].4 - pair[1].3));
    let sums = (totals.blocks, totals.bytes, totals.freed);
    let sum = |value: fn(&(u64, u64, u64, u64, u64)) -> u64| rows.iter().map(value).sum::<u64>();
    assert_eq!(sums, (sum(|row| row.2), sum(|row| row.3), sum(|row| row.4)));
    let mut ranges: Vec<(u64, u64)> = rows.iter().map(|row| (row.0, row.1)).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "a block is in two groups");
    let (first, same) = pins(&store, &[], PinRules { most: 3, ..kept });
    assert_eq!(same.groups, totals.groups);
    let gains = |rows: &[(u64, u64, u64, u64, u64)]| rows.iter().map(|row| row.4 - row.3).collect::<Vec<_>>();
    assert_eq!(gains(&first), gains(&rows[..rows.len().min(3)]));
    for (start, end, blocks, bytes, freed) in rows {
        assert!(freed >= 2 * bytes);
        let members = || heap.chunks.iter().filter(|chunk| !chunk.2 && start <= chunk.0 && chunk.0 < end);
        assert_eq!((members().count() as u64, members().map(|chunk| chunk.1).sum()), (blocks, bytes));
        let after: BTreeSet<u64> = released_without(&heap, drawn, (start, end)).difference(&before).copied().collect();
        assert_eq!(drawn.count(&after, PRESENT), freed, "{start:#x} {end:#x}");
    }
    totals.groups
}

#[test]
fn what_pins_would_free_of_a_heap() {
    for_each_size("what_pins_would_free_of_a_heap", |chance, drawn| {
        let mut groups: u64 = (0..HEAPS).map(|_| check_pins(chance, &drawn)).sum();
        // With large pages, groups are rare: a few blocks seldom pin a page.
        for _ in 0..ATTEMPTS {
            if groups > 0 {
                return;
            }
            groups += check_pins(chance, &drawn);
        }
        panic!("nothing is pinned");
    });
}

#[test]
fn machines_that_are_none() {
    for (word, page) in [(4, 4096), (8, 0), (8, 2048), (8, 4097), (8, 12288), (8, 1 << 30), (8, u64::MAX)] {
        assert!(Machine::new(EM_X86_64, word, page, 1 << 47, u64::MAX).is_err(), "{word} {page}");
    }
}
