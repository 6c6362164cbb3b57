//! Test pages of 4, 16 and 64 KiB: how they are counted, swept, trimmed and pinned. The results are compared with plain
//! models that look at each page.

mod support;

use gdbheap_access::memory::{Pages, PRESENT, SWAPPED};
use gdbheap_core::allocators::glibc::{released, trim_chunks, walk_chunks, Chunks, Released, Stretch};
use gdbheap_core::allocators::Store;
use gdbheap_core::memory_use::{pins, Kept, Sum, Sweep};
use gdbheap_core::{Machine, PageSize, EM_X86_64};
use std::collections::BTreeSet;
use std::sync::Arc;
use support::{machine, Chance, Heap, Unwatched};

const SIZES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
const START: u64 = 0x5555_5540_0000;
const PAGES: u64 = 200;
const HEAPS: u64 = 4;
const ATTEMPTS: usize = 1000;
/// The size of `struct malloc_chunk`: the header and the links that glibc keeps in a free chunk.
const HEAD: u64 = 48;

/// Consecutive pages from START on. `states` has the state of each page; 0 for a page that is absent.
struct Drawn {
    size: u64,
    states: Vec<u8>,
}

impl Drawn {
    fn new(chance: &mut Chance, size: u64, count: u64) -> Drawn {
        let states = (0..count).map(|_| [0, PRESENT, PRESENT, SWAPPED][chance.below(4) as usize]).collect();
        Drawn { size, states }
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

fn for_each_size(test: &str, mut check: impl FnMut(&mut Chance, Drawn)) {
    let mut chance = Chance::new(test);
    for size in SIZES {
        let drawn = Drawn::new(&mut chance, size, PAGES);
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
            let expected = Released { whole: own.len() as u64 * drawn.size, resident, swapped };
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

/// Make a heap in the pages of `drawn`. Some of its free chunks are larger than a page.
fn heap_in(chance: &mut Chance, drawn: &Drawn) -> (Heap, Chunks) {
    let start = START + 16 * chance.below(1 << 10);
    let heap = Heap::draw(chance, start, 150 * drawn.size, 12 * drawn.size);
    let stretch = Stretch { arena: 0, start: heap.start, end: heap.end, top: heap.top, fast: Vec::new() };
    let walked = walk_chunks(&Unwatched, &heap.memory.space(), vec![stretch], &[], true, false);
    let chunks = walked.expect("not cancelled").0;
    (heap, chunks)
}

/// Return the pages that malloc_trim() would release if the chunks in [gone.0, gone.1) were free too.
fn released_without(heap: &Heap, drawn: &Drawn, gone: (u64, u64)) -> BTreeSet<u64> {
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

/// Compare what is trimmed with the model. Return the number of bytes of the trimmed pages.
fn check_trim(chance: &mut Chance, drawn: &Drawn) -> u64 {
    let (heap, chunks) = heap_in(chance, drawn);
    let own = released_without(&heap, drawn, (0, 0));
    let whole = own.len() as u64 * drawn.size;
    for pages in [None, Some(drawn.pages())] {
        let trimmed = &trim_chunks(&chunks, drawn.page(), pages.as_ref(), &[])[0];
        let count = |state| if pages.is_some() { drawn.count(&own, state) } else { 0 };
        assert_eq!(trimmed.released, Released { whole, resident: count(PRESENT), swapped: count(SWAPPED) });
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
fn check_pins(chance: &mut Chance, drawn: &Drawn) -> u64 {
    let (heap, chunks) = heap_in(chance, drawn);
    let pages = drawn.pages();
    let before = released_without(&heap, drawn, (0, 0));
    let kept = Kept { page: drawn.page(), pages: Some(&pages), ranges: &[], least: 1, most: 1000 };
    let (rows, totals) = pins(&Store::Chunks(Arc::new(chunks)), &[], kept);
    assert_eq!(rows.len() as u64, totals.groups);
    for (start, end, blocks, bytes, freed) in rows {
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
