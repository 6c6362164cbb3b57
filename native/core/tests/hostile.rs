//! Test walkers with hostile bytes: they must end and must not panic, and their results must stay within bounds.

mod support;

use gdbheap_access::memory::{find_pointer, find_pointer_runs, Backing, Segment, Space};
use gdbheap_core::allocators::glibc::{
    find_extents, find_fenced, find_mmapped, follow_bins, walk_chunks, CacheList, MmappedStyle, Stretch,
};
use gdbheap_core::allocators::jemalloc::{self, find_trees, read_jemalloc, JemallocRoot, TreeShape};
use gdbheap_core::allocators::mallocng::{find_contexts, read_mallocng};
use gdbheap_core::allocators::mimalloc::{find_page_maps, find_segments, fit_of, read_mimalloc, MimallocRoot, FORMS};
use gdbheap_core::allocators::oldmalloc::{find_bins, read_oldmalloc, ChunkRanges};
use gdbheap_core::allocators::pymalloc::{find_arena_tables, find_list_ends, read_pools, used_blocks, ArenaRow};
use gdbheap_core::allocators::tcmalloc::{self, read_tcmalloc, TcmallocRoot};
use gdbheap_core::allocators::{find_list_heads, BlockLister, Heaps, Store};
use gdbheap_core::memory_use::packing;
use gdbheap_core::python::{take_census, CensusRequest, TypeLayout};
use gdbheap_core::{Cancellation, Progress, Watcher};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use support::{machine, Chance, Heap, Memory, NoWatcher};

const START: u64 = 0x5555_5555_0000;
const INPUTS: u64 = 150;

/// Make a memory of `size` bytes with hostile words at `start`.
fn bytes(chance: &mut Chance, start: u64, size: u64) -> Memory {
    let mut memory = Memory::of(start, vec![0; size as usize]);
    for at in (start..start + size).step_by(8) {
        let word = chance.hostile(start);
        memory.put(at, word);
    }
    memory
}

/// Make a heap that contains some hostile words.
fn torn(chance: &mut Chance) -> Heap {
    let size = chance.between(64, 1 << 15);
    let mut heap = Heap::draw(chance, START, size, 1 << 13);
    for _ in 0..chance.between(1, 20) {
        let at = START + 8 * chance.below((heap.end - heap.start) / 8);
        let word = chance.hostile(START);
        heap.memory.put(at, word);
    }
    heap
}

fn walk(chance: &mut Chance, memory: &Memory, start: u64, end: u64, top: u64) {
    let space = memory.space();
    let heads = (0..10).map(|_| if chance.one_in(2) { 0 } else { chance.hostile(start) }).collect();
    let stretch = Stretch { arena: chance.below(2) as u32, start, end, top, fast: heads };
    let list = CacheList { first: chance.hostile(start), entries: chance.below(1 << 12), size: chance.below(100) };
    let walked = walk_chunks(&NoWatcher, &space, vec![stretch], &[list], chance.one_in(2), chance.one_in(2));
    let (chunks, _) = walked.expect("not cancelled");
    let Some(totals) = chunks.totals().first() else { return };
    let sum: u64 = totals.states.iter().map(|tally| tally.bytes).sum();
    assert_eq!(sum, end - start, "blocks cover the stretch");
    assert!(chunks.holes(1).iter().all(|hole| start <= hole.start && hole.start < hole.end && hole.end <= end));
    follow_bins(&NoWatcher, &space, &chunks, &[chance.hostile(start), start]).expect("not cancelled");
    for _ in 0..20 {
        chunks.find(chance.hostile(start));
    }
    let layout =
        TypeLayout { ob_type: 8, tp_basicsize: 32, tp_flags: 168, smallest_heap_type: 64, ..Default::default() };
    let stores = [Store::Chunks(Arc::new(chunks))];
    let heaps = Heaps { space: &space, stores: &stores };
    let question = CensusRequest { roots: Vec::new(), watched: Vec::new(), unknown: 5 };
    take_census(&NoWatcher, heaps, &layout, &question, None).expect("not cancelled");
}

#[test]
fn chunks_of_anything() {
    let mut chance = Chance::new("chunks_of_anything");
    for _ in 0..INPUTS {
        let heap = torn(&mut chance);
        walk(&mut chance, &heap.memory, heap.start, heap.end, heap.top);
        let size = 16 * chance.between(2, 1 << 9);
        let memory = bytes(&mut chance, START, size);
        let top = START + 16 * chance.below(size / 16);
        walk(&mut chance, &memory, START, START + size, top);
    }
}

#[test]
fn pools_of_anything() {
    let mut chance = Chance::new("pools_of_anything");
    for _ in 0..INPUTS {
        let (pool_size, alignment) = [(4096u64, 8), (4096, 16), (16384, 16)][chance.below(3) as usize];
        let size = pool_size * chance.between(1, 6);
        let memory = bytes(&mut chance, START, size);
        let space = memory.space();
        let row = |chance: &mut Chance| ArenaRow {
            number: 0,
            index: chance.below(4) as u32,
            address: if chance.one_in(2) { START } else { chance.hostile(START) },
            carved: if chance.one_in(2) { START + size } else { chance.hostile(START) },
            size: if chance.one_in(2) { size } else { chance.hostile(START) },
        };
        let rows = vec![row(&mut chance), row(&mut chance)];
        let pools = read_pools(&NoWatcher, &space, rows, pool_size, alignment).expect("not cancelled");
        pools.verify(&NoWatcher, &space, 100).expect("not cancelled");
        pools.holes(&NoWatcher, &space, 1).expect("not cancelled");
        pools.classes();
        used_blocks(&space, &pools, START, 100);
        (0..20).for_each(|_| _ = pools.find(&space, chance.hostile(START)));
        find_list_ends(&NoWatcher, &space, &[(START, START + size)], pool_size, alignment).expect("not cancelled");
        let samples = [(chance.hostile(START), chance.below(1 << 32) as u32)];
        find_arena_tables(&space, (START, START + size), &samples, &[(START, START + size)], 1 << 20);
    }
}

#[test]
fn places_of_anything() {
    let mut chance = Chance::new("places_of_anything");
    for _ in 0..INPUTS {
        let size = 8 * chance.between(8, 1 << 11);
        let memory = bytes(&mut chance, START, size);
        let (space, ranges) = (memory.space(), [(START, START + size)]);
        find_list_heads(&space, START, START + size, 2);
        let (header_outside, moved) = (chance.one_in(2), chance.one_in(2));
        let style = MmappedStyle { header_outside, moved };
        for (_, _, mapped) in find_mmapped(&NoWatcher, &space, &ranges, style).expect("not cancelled") {
            assert!(mapped <= size);
        }
        let top = chance.hostile(START);
        for (start, end) in find_extents(&NoWatcher, &space, &ranges, top, 64).expect("not cancelled") {
            assert!(START <= start && start < end && end <= START + size);
        }
        let wanted = 16 * chance.between(4, 600);
        find_fenced(&NoWatcher, &space, &ranges, wanted, top).expect("not cancelled");
    }
}

/// A watcher that cancels the work after LOOKS checks for cancellation.
struct Impatient(AtomicU64);

impl Watcher for Impatient {
    fn attend(&self, _: Option<Progress>) -> Result<(), Cancellation> {
        match self.0.fetch_add(1, Relaxed) {
            LOOKS.. => Err(Cancellation),
            _ => Ok(()),
        }
    }
}

const LOOKS: u64 = 1000;

/// Check searches in a core that contains little memory but has segments for nearly the whole address space. Searches
/// must skip the memory that does not exist.
#[test]
fn claims_of_anything() {
    let mut chance = Chance::new("claims_of_anything");
    let (start, end, size) = (1 << 30, 1 << 47, 1 << 20);
    let path = std::env::temp_dir().join(format!("gdbheap-claims-{}", std::process::id()));
    std::fs::write(&path, &bytes(&mut chance, start, size).stretches[0].1).expect("room for a file");
    let middle = (1u64 << 46) + 4096 * chance.below(1 << 20);
    let zeros = |start, end| Segment { start, end, backing: Backing::Zeros };
    let file = |start| Segment { start, end: start + size, backing: Backing::File { index: 0, offset: 0 } };
    let segments = vec![file(start), zeros(start + size, middle), file(middle), zeros(middle + size, end)];
    let paths = [path.to_string_lossy().into_owned()];
    let space = Space::for_core(machine(support::PAGE), segments, &paths).expect("disjoint segments");
    std::fs::remove_file(&path).expect("the file");
    let (ranges, style) = ([(start, end)], MmappedStyle { header_outside: false, moved: true });
    let watcher = || Impatient(AtomicU64::new(0));
    find_contexts(&watcher(), &space, &ranges).expect("few looks");
    find_bins(&watcher(), &space, &ranges).expect("few looks");
    find_mmapped(&watcher(), &space, &ranges, style).expect("few looks");
    find_extents(&watcher(), &space, &ranges, start, 64).expect("few looks");
    find_fenced(&watcher(), &space, &ranges, 1 << 20, start).expect("few looks");
    find_list_ends(&watcher(), &space, &ranges, 4096, 16).expect("few looks");
    find_segments(&watcher(), &space, &ranges, &FORMS[0]).expect("few looks");
    find_page_maps(&watcher(), &space, &ranges).expect("few looks");
    find_trees(&watcher(), &space, &ranges, &[(middle, end)]).expect("few looks");
    tcmalloc::find_page_maps(&watcher(), &space, &ranges, &[(middle, end)]).expect("few looks");
    for (anonymous, data) in [(&ranges[..], &[][..]), (&[][..], &ranges[..])] {
        let _ = read_oldmalloc(&watcher(), &space, start, &ChunkRanges { anonymous, data }).expect("few looks");
    }
}

/// A watcher that cancels all work at the first check.
struct CancellingWatcher;

impl Watcher for CancellingWatcher {
    fn attend(&self, _: Option<Progress>) -> Result<(), Cancellation> {
        Err(Cancellation)
    }
}

/// Check that functions which test whether a layout fits can be cancelled. This is needed because the tables that they
/// read may have as many pages as the target likes.
#[test]
fn questions_about_forms_are_ended() {
    let root = START.next_multiple_of(1 << 26);
    let mut memory = Memory::of(root, vec![0; 8 << 20]);
    memory.put(root, root + (4 << 20));
    let space = memory.space();
    assert!(fit_of(&CancellingWatcher, &space, &FORMS[0], &[root]).is_err());
    let shape = TreeShape::of(48).expect("one of two");
    assert!(jemalloc::fit_of(&CancellingWatcher, &space, &jemalloc::FORMS[0], root, shape).is_err());
    let shape = tcmalloc::MapShape::of(1 << 13).expect("one of them");
    assert!(tcmalloc::fit_of(&CancellingWatcher, &space, &TcmallocRoot { root, shape, data: Vec::new() }).is_err());
    assert!(find_pointer(&CancellingWatcher, &space, (root, root + (8 << 20)), (1, 2)).is_err());
    assert!(find_pointer_runs(&CancellingWatcher, &space, &[(root, root + (8 << 20))], (1, 2), 1).is_err());
}

/// A watcher that only counts the checks for cancellation.
#[derive(Default)]
struct CheckCounter(AtomicU64);

impl Watcher for CheckCounter {
    fn attend(&self, _: Option<Progress>) -> Result<(), Cancellation> {
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// Check that only a sample of a tree's leaves is read to see whether a layout fits, however many there are.
#[test]
fn few_leaves_are_asked() {
    let (root, leaf) = (START.next_multiple_of(1 << 26), 2 << 20);
    let mut memory = Memory::of(root, vec![0; leaf as usize * 101]);
    (1..=100).for_each(|number| memory.put(root + 8 * number, root + leaf * number));
    let (space, looks) = (memory.space(), [CheckCounter::default(), CheckCounter::default()]);
    let shape = TreeShape::of(48).expect("one of two");
    jemalloc::fit_of(&looks[0], &space, &jemalloc::FORMS[0], root, shape).expect("not cancelled");
    let shape = tcmalloc::MapShape::of(1 << 13).expect("one of them");
    tcmalloc::fit_of(&looks[1], &space, &TcmallocRoot { root, shape, data: Vec::new() }).expect("not cancelled");
    assert_eq!(looks.map(|count| count.0.into_inner()), [16, 16]);
}

/// Check memory in which a chain of chunks begins on each page and reaches the end of the memory. Also check memory in
/// which a header on each page claims a far larger mapping. Far fewer bytes must be read than all these chains and
/// mappings have together.
#[test]
fn chains_from_each_page() {
    let (pages, page) = (2048, support::PAGE);
    let of = |header: [u64; 2]| {
        let mut memory = Memory::of(START, vec![0; (pages * page) as usize]);
        for at in (START..START + pages * page).step_by(page as usize) {
            memory.put(at, header[0]);
            memory.put(at + 8, header[1]);
        }
        memory.space()
    };
    let (ranges, all) = ([(START, START + pages * page)], pages * pages / 2 * page);
    let space = of([0, page | 1]);
    assert_eq!(find_extents(&NoWatcher, &space, &ranges, 0, 64).expect("not cancelled"), []);
    assert!(space.bytes_read() < all / 2, "{} of {all} bytes", space.bytes_read());
    let space = of([0, (1 << 40) | 2]);
    let style = MmappedStyle { header_outside: false, moved: true };
    assert_eq!(find_mmapped(&NoWatcher, &space, &ranges, style).expect("not cancelled"), []);
    assert!(space.bytes_read() < all / 2, "{} of {all} bytes", space.bytes_read());
}

#[test]
fn segments_of_anything() {
    let mut chance = Chance::new("segments_of_anything");
    let segment = 32 << 20;
    for _ in 0..INPUTS / 3 {
        let form = &FORMS[chance.below(FORMS.len() as u64) as usize];
        let size = chance.between(1 << 12, 1 << 18) & !7;
        let mut memory = bytes(&mut chance, segment, size);
        // The counts are plausible, so that more than the header is read.
        let counts = if form.cookie() == 216 { 224 } else { 248 };
        for (place, value) in [(0, 512), (8, 1), (16, 0), (24, 512)] {
            if !chance.one_in(5) {
                memory.put(segment + counts + place, value);
            }
        }
        let space = memory.space();
        let ranges = [(segment, segment + size)];
        find_segments(&NoWatcher, &space, &ranges, form).expect("not cancelled");
        find_page_maps(&NoWatcher, &space, &ranges).expect("not cancelled");
        let places = vec![segment, 2 * segment];
        fit_of(&NoWatcher, &space, form, &places).expect("not cancelled");
        let roots = [MimallocRoot { form, padded: chance.one_in(2), places }];
        let found = read_mimalloc(&NoWatcher, &space, &roots).expect("not cancelled");
        found.asked_by_class(&NoWatcher, &space, None).expect("not cancelled");
        packing(found.slabs(), None);
        found.holes(&NoWatcher, 1).expect("not cancelled");
        found.classes(None);
        found.heap_use();
        found.heaps();
        (0..50).for_each(|_| _ = found.find(&space, chance.hostile(segment)));
    }
}

/// Check pages that each have a heap of their own. The lists of all heaps point to one chain of addresses that are not
/// blocks. The last link of the chain points back into the chain, or the chain ends.
#[test]
fn lists_of_many_heaps() {
    let mut chance = Chance::new("lists_of_many_heaps");
    let (segment, head, pages, size) = (32 << 20, 224, 511, 1 << 18);
    let form = FORMS.iter().find(|form| form.name == "2.1.0").expect("one of them");
    for (links, back) in [(1, Some(0)), (3000, Some(chance.below(2000))), (3000, None)] {
        let (list, heaps) = (segment + (1 << 16), segment + (2 << 16));
        let mut memory = Memory::of(segment, vec![0; size]);
        [512, 1, 0, 512, 1]
            .into_iter()
            .enumerate()
            .for_each(|(at, word)| memory.put(segment + head + 8 * at as u64, word));
        memory.put(segment + head + 40, 1);
        for number in 1..=pages {
            let entry = segment + head + 40 + 80 * number;
            for (at, word) in [(0, 1), (8, 1 << 32 | 1 << 16), (24, 1024 << 32 | 1), (48, heaps + 8 * number)] {
                memory.put(entry + at, word);
            }
        }
        (0..1000).for_each(|place| memory.put(heaps + 8 * place, list));
        for number in 0..links {
            let next = if number + 1 < links { Some(number + 1) } else { back };
            memory.put(list + 8 * number, next.map_or(0, |next| list + 8 * next));
        }
        let space = memory.space();
        let root = MimallocRoot { form, padded: false, places: vec![segment] };
        let found = read_mimalloc(&NoWatcher, &space, &[root]).expect("not cancelled");
        assert_eq!((found.page_count(), found.damage.len()), (pages as usize, pages as usize));
        assert!(space.bytes_read() < 2 << 20, "{} bytes", space.bytes_read());
    }
}

/// Check trees whose roots, leaves and extents are random words.
#[test]
fn trees() {
    let mut chance = Chance::new("trees");
    for _ in 0..INPUTS / 3 {
        let size = 16 << 10;
        let mut memory = bytes(&mut chance, START, size);
        memory.add(START + (4 << 20), vec![0; 64]);
        // Some of the words are addresses of leaves and extents that can be read.
        for at in (START..START + size).step_by(8) {
            if chance.one_in(4) {
                let word = START + chance.between(0, size / 64) * 64;
                memory.put(at, word);
            }
        }
        let space = memory.space();
        let ranges = [(START, START + (4 << 20))];
        find_trees(&NoWatcher, &space, &ranges, &ranges).expect("not cancelled");
        for form in &jemalloc::FORMS {
            let shape = TreeShape::of(if chance.one_in(2) { 48 } else { 57 }).expect("one of two");
            jemalloc::fit_of(&NoWatcher, &space, form, START, shape).expect("not cancelled");
            let root = JemallocRoot { form, root: START, shape, data: ranges.to_vec(), storage: ranges.to_vec() };
            let found = read_jemalloc(&NoWatcher, &space, &ranges, &[root]).expect("not cancelled");
            found.extents.holes(&NoWatcher, 1).expect("not cancelled");
            found.class_use();
            found.samples(&NoWatcher, &space).expect("not cancelled");
            packing(found.slabs(NonZeroU32::new(chance.below(3) as u32)), None);
            found.extents.waiting();
            found.arena_use();
            (0..50).for_each(|_| _ = found.extents.find(chance.hostile(START)));
        }
    }
}

/// Check a ring of threads' caches whose bins overlap. All bins have the same list, or each list begins one word after
/// the previous one.
#[test]
fn caches_that_share() {
    let (block, size, data, entries, caches) = (2u64 << 20, 2u64 << 20, 1 << 20, 0xfff8, 5);
    for (form, apart) in [(0, 0), (0, 8), (2, 0), (2, 8)] {
        let form = &jemalloc::FORMS[form];
        let mut memory = Memory::of(block, vec![8; size as usize]);
        let (arena, ring, bins, list) = (block + 4096, block + (1 << 17), block + (1 << 18), block + (1 << 20));
        for (place, word) in [(0, size), (8, 0), (24, block + 144), (32, size - 144)] {
            memory.put(block + place, word);
        }
        for number in 0..caches + 300 {
            let (head, last) = (list + apart * number, list + apart * number + entries);
            let is_new = form.name.starts_with("5.3");
            let old = [(entries / 8) << 32, 0, last];
            let low = (head & 0xffff) + entries;
            let bin = if is_new { [head, 0, (low & 0xffff) << 32 | (head & 0xffff) << 16] } else { old };
            bin.iter().zip(0..).for_each(|(word, place)| memory.put(bins + 24 * number + 8 * place, *word));
        }
        for number in 0..caches {
            let (next, before) = ((number + 1) % caches, (number + caches - 1) % caches);
            let own = bins + 24 * number;
            let link = [ring + 32 * next, ring + 32 * before, own, own];
            link.iter().zip(0..).for_each(|(word, place)| memory.put(ring + 32 * number + 8 * place, *word));
        }
        memory.put(arena, ring);
        memory.add(data, arena.to_le_bytes().to_vec());
        let space = memory.space();
        let shape = TreeShape::of(48).expect("one of two");
        let root = JemallocRoot { form, root: 1 << 40, shape, data: vec![(data, data + 8)], storage: Vec::new() };
        read_jemalloc(&NoWatcher, &space, &[(block, block + size)], &[root]).expect("not cancelled");
        assert!(space.bytes_read() < 2 * size, "{} bytes", space.bytes_read());
    }
}

/// Make a context of mallocng with one page of metadata. Its groups may lie anywhere and be of any kind.
fn slots(chance: &mut Chance, size: u64) -> Memory {
    let (area, secret) = (START + 0x1000, 0x1234_5678_9abc_def0);
    let mut memory = bytes(chance, START, size);
    for (place, word) in [(0, secret), (8, 1), (56, area), (64, area)] {
        memory.put(START + place, word);
    }
    for (place, word) in [(0, secret), (8, if chance.one_in(8) { area } else { 0 }), (16, 101)] {
        memory.put(area + place, word);
    }
    for number in 0..101 {
        let meta = area + 24 + 40 * number;
        let mem = START + 0x2000 + 16 * chance.below((size - 0x2000) / 16);
        let mapped = chance.one_in(2);
        let mem = if mapped { mem & !4095 } else { mem };
        let slots = chance.below(32);
        let free = chance.below(1 << (slots + 1));
        let bits = slots | (1 << 5) | (chance.below(12) << 6) | if mapped { chance.below(4) << 12 } else { 0 };
        for (place, word) in [(16, mem), (24, free), (32, if chance.one_in(9) { chance.hostile(START) } else { bits })]
        {
            memory.put(meta + place, word);
        }
        if chance.one_in(2) && mem + 8 <= START + size {
            memory.put(mem, meta);
        }
    }
    memory
}

#[test]
fn slots_of_anything() {
    let mut chance = Chance::new("slots_of_anything");
    for _ in 0..INPUTS {
        let size = chance.between(3, 40) << 12;
        let memory = slots(&mut chance, size);
        let space = memory.space();
        find_contexts(&NoWatcher, &space, &[(START, START + size)]).expect("not cancelled");
        let found = read_mallocng(&NoWatcher, &space, START).expect("not cancelled");
        let regions = found.regions();
        assert!(regions.windows(2).all(|pair| pair[0].1 <= pair[1].0), "regions are apart");
        assert!(regions.iter().all(|(start, end)| START <= *start && start < end && *end <= START + size));
        let holes = found.holes(&NoWatcher, 1).expect("not cancelled");
        assert!(holes.windows(2).all(|pair| pair[0].end <= pair[1].start), "holes are apart");
        let free: u64 = found.classes().iter().map(|(size, _, _, free)| size * free).sum();
        assert!(holes.iter().map(|hole| hole.end - hole.start).sum::<u64>() == free, "holes are the free slots");
        let used = found.first_used(0, u64::MAX, usize::MAX);
        assert_eq!(used.len() as u64, found.classes().iter().map(|(_, _, used, _)| used).sum::<u64>());
        for (address, _) in &used {
            assert!(found.find(*address).is_some_and(|(start, ..)| start == *address), "{address:#x}");
        }
        (0..50).for_each(|_| _ = (found.find(chance.hostile(START)), found.own_part(chance.hostile(START))));
        found.asked_by_class();
        regions.iter().for_each(|(start, _)| _ = found.used_with(*start));
    }
}

/// Make a map of tcmalloc with pages of 256 KiB, one leaf and a table of sizes. Its spans may lie anywhere and be of
/// any kind.
fn spans(chance: &mut Chance) -> (Memory, u64) {
    let (leaf, table, own, page) = (START + 0x4_0000, START + 0x8_0000, START + 0x9_0000, 0x4_0000);
    let first = (START + 0xa_0000).next_multiple_of(page);
    let pages = chance.between(2, 6);
    let end = first + pages * page;
    let mut memory = Memory::of(START, vec![0; (end - START) as usize]);
    memory.put(START + 8 * (START >> 33), leaf);
    for pair in 0..32 {
        memory.put(table + 0x100 + 8 * pair, (16 * pair) | (16 * pair + 8) << 32);
    }
    for number in 0..pages {
        let (at, start) = (own + 48 * number, first + number * page);
        let named = if chance.one_in(9) { chance.hostile(START) } else { at };
        memory.put(leaf + 8 * (start >> 18 & 0x7fff), named);
        let class = chance.below(70);
        let free = start + 8 * class * chance.below(5000);
        let objects = if chance.one_in(3) { 0 } else { free };
        let length = if chance.one_in(5) { chance.below(4) } else { 1 };
        let bits = chance.below(1 << 15) | class << 16 | chance.below(4) << 24;
        for (place, word) in [(0, start >> 18), (8, length), (32, objects), (40, bits)] {
            memory.put(at + place, if chance.one_in(30) { chance.hostile(START) } else { word });
        }
        for _ in 0..chance.below(300) {
            let from = start + 8 * chance.below(page / 8);
            let to = start + 8 * chance.below(page / 8);
            memory.put(from, if chance.one_in(20) { chance.hostile(START) } else { to });
        }
    }
    (memory, end)
}

#[test]
fn spans_of_anything() {
    let mut chance = Chance::new("spans_of_anything");
    let mut walked = 0;
    // About one input in ten has blocks.
    for _ in 0..INPUTS {
        let (memory, end) = spans(&mut chance);
        let (space, all, data) = (memory.space(), [(START, end)], [(START, START + 0x9_0000)]);
        tcmalloc::find_page_maps(&NoWatcher, &space, &data, &all).expect("not cancelled");
        let shape = tcmalloc::MapShape::of(1 << 18).expect("one of them");
        let root = TcmallocRoot { root: START, shape, data: data.to_vec() };
        tcmalloc::fit_of(&NoWatcher, &space, &root).expect("not cancelled");
        let found = read_tcmalloc(&NoWatcher, &space, &all, &[root]).expect("not cancelled");
        assert!(found.extents.areas().windows(2).all(|pair| pair[0].end <= pair[1].start), "areas are apart");
        let size: u64 = found.extents.areas().iter().map(|area| area.end - area.start).sum();
        let rows = found.sums();
        let sums = rows.iter().map(|row| {
            let blocks = row.used + row.listed + row.transfer + row.cached + row.waste;
            blocks + row.free + row.returned + row.metadata
        });
        assert!(sums.sum::<u64>() <= size, "no byte is counted twice");
        let holes = found.extents.holes(&NoWatcher, 1).expect("not cancelled");
        assert!(holes.windows(2).all(|pair| pair[0].end <= pair[1].start), "holes are apart");
        packing(found.slabs(), None);
        assert!(found.extents.waiting().windows(2).all(|pair| pair[0].1 < pair[1].0), "what waits is apart");
        let used = found.extents.first_used(0, u64::MAX, usize::MAX);
        for (address, size) in &used {
            let here = found.extents.find(*address).expect("what is in use is there");
            assert_eq!((here.address, here.size, here.state), (*address, *size, "used"));
        }
        walked += used.len();
        (0..50).for_each(|_| _ = found.extents.find(chance.hostile(START)));
    }
    assert!(walked > 0, "no input had a block");
}

#[test]
fn old_chunks_of_anything() {
    let mut chance = Chance::new("old_chunks_of_anything");
    for _ in 0..INPUTS {
        let size = chance.between(3, 40) << 12;
        let mut memory = bytes(&mut chance, START, size);
        let (mut at, mut before) = (START + 0x1010, 1);
        // This is a heap that fills the memory and contains some hostile words.
        while at + 0x400 < START + size {
            let this = (32 * chance.between(1, 30)) | chance.below(2);
            for (place, word) in [(0, before), (8, this)] {
                memory.put(at + place, if chance.one_in(40) { chance.hostile(START) } else { word });
            }
            (at, before) = (at + (this & !1), this);
        }
        memory.put(at, before);
        memory.put(at + 8, 1);
        let space = memory.space();
        let ranges = [(START, START + size)];
        find_bins(&NoWatcher, &space, &ranges).expect("not cancelled");
        let (anonymous, data) = if chance.one_in(2) { (&ranges[..], &[][..]) } else { (&[][..], &ranges[..]) };
        let Ok(found) = read_oldmalloc(&NoWatcher, &space, START, &ChunkRanges { anonymous, data }) else { continue };
        let regions = found.regions();
        assert!(regions.windows(2).all(|pair| pair[0].1 <= pair[1].0), "regions are apart");
        assert!(regions.iter().all(|(start, end)| START <= *start && start < end && *end <= START + size));
        let rows = found.sizes();
        let all: u64 = rows.iter().map(|(size, used, free)| size * (used + free)).sum();
        assert!(all <= regions.iter().map(|(start, end)| end - start).sum::<u64>());
        let holes = found.holes(&NoWatcher, 1).expect("not cancelled");
        let free: u64 = rows.iter().map(|(size, _, free)| size * free).sum();
        assert_eq!(holes.iter().map(|hole| hole.end - hole.start).sum::<u64>(), free);
        for (address, _) in found.first_used(0, u64::MAX, usize::MAX) {
            assert!(found.find(address).is_some_and(|(start, ..)| start == address));
        }
        (0..50).for_each(|_| _ = found.find(chance.hostile(START)));
    }
}
