//! Test that memory which is cut off is distinguished from memory that contains zeros.

mod support;

use gdbheap_access::memory::{Source, Space};
use gdbheap_core::allocators::mimalloc::{form_named, read_mimalloc, Mimalloc, MimallocRoot};
use gdbheap_core::allocators::tcmalloc::{read_tcmalloc, MapShape, TcmallocRoot};
use gdbheap_core::allocators::{Extents, Run, Runs, SharedHeaps, Store};
use gdbheap_core::graph::{draw_blocks, draw_graph, Graph, GraphLayout, Tables};
use gdbheap_core::python::TypeLayout;
use std::collections::HashSet;
use std::sync::Arc;
use support::{machine, Memory, NoWatcher, PAGE};

const SEGMENT: u64 = 32 << 20;
const TABLE: u64 = 264;
const ENTRY: u64 = 80;
const SLICES: u64 = 512;
/// The offset of `thread_delayed_free` in `mi_heap_t`.
const DELAYED: u64 = 2840;

/// Make a segment of which only the first `size` bytes exist. It has a page for each address of a heap in `heaps`; the
/// other entries of its table are zeros.
fn segment(size: u64, heaps: &[u64]) -> Memory {
    let mut memory = Memory::of(SEGMENT, vec![0; (TABLE + (SLICES + 1) * ENTRY) as usize]);
    [(208, heaps.len() as u64), (224, SLICES), (232, 1), (248, SLICES), (TABLE, 1)]
        .iter()
        .for_each(|(at, word)| memory.put(SEGMENT + at, *word));
    for (heap, number) in heaps.iter().zip(1..) {
        let entry = SEGMENT + TABLE + number * ENTRY;
        memory.put_half(entry, if number == heaps.len() as u64 { (SLICES - number) as u32 } else { 1 });
        // The page has one block of 64 bytes, which is used.
        [(10, 1 | 1 << 16), (24, 1), (28, 64)].iter().for_each(|(at, half)| memory.put_half(entry + at, *half));
        memory.put(entry + 48, *heap);
    }
    memory.stretches[0].1.truncate(size as usize);
    memory
}

fn read(memory: &Memory) -> Mimalloc {
    let form = form_named("2.1.0").expect("the form of 3.13's copy");
    let roots = [MimallocRoot { form, padded: false, places: vec![SEGMENT] }];
    read_mimalloc(&NoWatcher, &memory.space(), &roots).expect("not cancelled")
}

/// Return the damage in a segment: for each place, what is wrong, and what was found there; None for absent bytes.
fn damage(memory: &Memory) -> Vec<(&'static str, Option<String>)> {
    let found = read(memory).damage.into_iter();
    found.map(|damage| (damage.what, Some(damage.found).filter(|_| !damage.is_absent))).collect()
}

#[test]
fn header_of_a_segment() {
    let zeros = Memory::of(SEGMENT, vec![0; (TABLE + (SLICES + 1) * ENTRY) as usize]);
    assert_eq!(damage(&zeros), []);
    for size in [8, 208, 224, TABLE - 8, TABLE - 1] {
        assert_eq!(damage(&segment(size, &[0])), [("header of a segment", None)], "{size}");
    }
}

#[test]
fn entry_of_a_page() {
    let whole = TABLE + (SLICES + 1) * ENTRY;
    assert_eq!(damage(&segment(whole, &[0])), []);
    assert_eq!(damage(&segment(whole, &[])), [("slice_count of a page", Some("0".to_string()))]);
    for size in [TABLE, TABLE + 7, TABLE + ENTRY, TABLE + ENTRY + 4, TABLE + ENTRY + 48] {
        let found = damage(&segment(size, &[0]));
        assert_eq!(found[0], ("entry of a page", None), "{size}");
    }
}

#[test]
fn list_of_a_heap() {
    let whole = TABLE + (SLICES + 1) * ENTRY;
    let mut memory = segment(whole, &[4096]);
    assert_eq!(damage(&memory), [("thread_delayed_free of a heap", None)]);
    memory.add(4096 + DELAYED, vec![0; 8]);
    assert_eq!(damage(&memory), []);
    let used = read(&memory).heaps()[0].2;
    assert_eq!(used, 1);
}

/// A memory whose bytes at or after an address cannot be read, although they are mapped.
struct Unreadable(Memory, u64);

impl Source for Unreadable {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let size = buffer.len().min(self.1.saturating_sub(address) as usize);
        self.0.read(address, &mut buffer[..size])
    }
}

/// Return a space in which the bytes of `memory` at or after the address `cut` cannot be read. `memory` has one range.
fn unreadable_from(memory: Memory, cut: u64) -> Space {
    let (start, bytes) = &memory.stretches[0];
    let range = (*start, start + bytes.len() as u64);
    Space::for_remote(machine(PAGE), &[range], Box::new(Unreadable(memory, cut))).expect("one range")
}

#[test]
fn links_of_a_span() {
    const BASE: u64 = 0x40_0000;
    const PAGES: u64 = 0x4_0000;
    let (leaf, table, own, first) = (BASE + PAGES, BASE + 2 * PAGES, BASE + 3 * PAGES, BASE + 4 * PAGES);
    let mut memory = Memory::of(BASE, vec![0; 5 * PAGES as usize]);
    let put = |memory: &mut Memory, words: &[(u64, u64)]| words.iter().for_each(|(at, word)| memory.put(*at, *word));
    // The map has one leaf. The sizes of the classes are 8, 16 and so on. One page has blocks of class 4.
    put(&mut memory, &[(BASE, leaf), (leaf + 8 * (first / PAGES), own)]);
    (0..32).for_each(|pair| memory.put(table + 0x100 + 8 * pair, (16 * pair) | (16 * pair + 8) << 32));
    let (block, count) = (first + PAGES / 2, PAGES / 32);
    put(&mut memory, &[(own, first / PAGES), (own + 8, 1), (own + 32, first), (own + 40, (count - 2) | 4 << 16)]);
    memory.put(first, block);
    let read = |cut: u64| {
        let root =
            TcmallocRoot { root: BASE, shape: MapShape::of(PAGES).expect("one of them"), data: vec![(BASE, first)] };
        let space = unreadable_from(memory.clone(), cut);
        let found = read_tcmalloc(&NoWatcher, &space, &[(BASE, first + PAGES)], &[root]).expect("not cancelled");
        let damage = found.miscounted.iter().map(|damage| (damage.address, damage.what, damage.is_absent));
        (damage.collect::<Vec<_>>(), found.sums().iter().map(|row| row.listed).sum::<u64>())
    };
    assert_eq!(read(u64::MAX), (vec![], 64));
    assert_eq!(read(block), (vec![(block, "link of a free block", true)], 64));
}

/// Return the strengths of the edges between `count` blocks. The last word of each block points to the block before it.
/// The blocks before the block `cut` can be read. The blocks are so large that their last words are read one by one.
fn last_words(count: u64, cut: u64) -> HashSet<u32> {
    const BLOCK: u64 = (256 << 10) + 64;
    let mut memory = Memory::of(START, vec![0; (count * BLOCK) as usize]);
    (1..count).for_each(|number| memory.put(START + (number + 1) * BLOCK - 8, START + (number - 1) * BLOCK));
    let used = (0..count.div_ceil(64)).map(|word| u64::MAX >> (64 - (count - 64 * word).min(64))).collect();
    let runs = Runs::new(vec![(Run { start: START, stride: BLOCK, count }, used)]).expect("one run");
    let stores = vec![Store::Extents(Arc::new(Extents::of_runs(runs)))];
    let heaps = SharedHeaps { space: Arc::new(unreadable_from(memory, START + cut * BLOCK)), stores };
    let (tables, held) = (Tables::default(), HashSet::new());
    let graph = draw_blocks(&NoWatcher, heaps, &tables, &[], Vec::new(), &held, &[], &[], &[], &[], true, &[]);
    let graph = graph.expect("not cancelled");
    (0..count as u32).flat_map(|id| graph.edges(id).expect("a node")).map(|(_, strength)| strength).collect()
}

#[test]
fn last_words_of_blocks() {
    // All last words that can be read are references, so they are fields.
    assert_eq!(last_words(60, 60), HashSet::from([0]));
    assert_eq!(last_words(60, 18), HashSet::from([0]));
}

const DATA: u64 = 0x10_0000;
const TYPE: u64 = DATA + 4096;
const NAME: u64 = DATA + 2048;
const START: u64 = 0x7f00_0000_0000;
const STRIDE: u64 = 4096;
const SUBCLASS: u64 = 1 << 31;
const WEAK: u64 = 208;
/// The `tp_dealloc` of classes.
const CLASS: u64 = 16;

/// Make an object. Only the first `size` bytes of its type exist. The one field of the object points to another block.
/// `base`: the address of the type's base; if it is not 0, the type is a class.
fn object_of_a_type(size: u64, base: u64) -> SharedHeaps {
    let mut memory = Memory::of(DATA, vec![0; (TYPE + size - DATA) as usize]);
    memory.put(DATA + 8, DATA);
    memory.put(DATA + 32, 400);
    memory.put(DATA + 168, SUBCLASS);
    memory.put_bytes(NAME, b"Type\0");
    memory.put_bytes(NAME + 8, b"Base\0");
    [(24, NAME + 8), (32, 16), (48, 8)].iter().for_each(|(at, word)| memory.put(DATA + 1024 + at, *word));
    [(8, DATA), (24, NAME), (32, 24), (48, 8)].iter().for_each(|(at, word)| memory.put(TYPE + at, *word));
    if base != 0 {
        memory.put(TYPE + 48, CLASS);
        memory.put(TYPE + 256, base);
    }
    memory.add(START, vec![0; 2 * STRIDE as usize]);
    [1, TYPE, START + STRIDE].iter().zip(0..).for_each(|(word, at)| memory.put(START + 8 * at, *word));
    let runs = Runs::new(vec![(Run { start: START, stride: STRIDE, count: 2 }, vec![0b11])]).expect("one run");
    SharedHeaps { space: Arc::new(memory.space()), stores: vec![Store::Extents(Arc::new(Extents::of_runs(runs)))] }
}

fn graph_of(heaps: SharedHeaps) -> Graph {
    let types = TypeLayout {
        ob_type: 8,
        tp_name: 24,
        tp_basicsize: 32,
        tp_itemsize: 40,
        tp_dealloc: 48,
        tp_flags: 168,
        tp_base: 256,
        class_dealloc: CLASS,
        closed: vec!["Base".to_string()],
        flag_type_subclass: SUBCLASS,
        smallest_heap_type: 64,
        data: vec![(DATA, TYPE + 512)],
        ..Default::default()
    };
    let layout = GraphLayout {
        ob_size: 16,
        set_key: 0,
        tp_weaklistoffset: WEAK,
        tp_dictoffset: 288,
        sizeof_type: 0,
        forms: Vec::new(),
        frame: None,
        keys: None,
        flag_heap_type: 1 << 9,
        flag_managed_dict: 0,
        managed_dict: 0,
        flag_inline_values: 0,
        closed: vec!["Type".to_string()],
        closed_families: Vec::new(),
        interpreters: Vec::new(),
    };
    draw_graph(&NoWatcher, heaps, types, &layout, Vec::new(), &[], &[], &[], &[], &[], false).expect("not cancelled")
}

#[test]
fn fields_of_a_type() {
    let (exact, likely) = ([(1, 0)], [(1, 1)]);
    let whole = graph_of(object_of_a_type(512, 0));
    assert_eq!((whole.node(0).expect("a node").kind, whole.edges(0).expect("a node")), ("object", exact.to_vec()));
    let cut = graph_of(object_of_a_type(WEAK, 0));
    assert_eq!((cut.node(0).expect("a node").kind, cut.edges(0).expect("a node")), ("object", likely.to_vec()));
}

#[test]
fn fields_of_a_base() {
    // All fields of a known base are known. A base that is missing may have any fields.
    const BASE: u64 = DATA + 1024;
    let of = |base: u64| {
        let heaps = object_of_a_type(512, base);
        graph_of(heaps).edges(0).expect("a node")
    };
    assert_eq!((of(BASE), of(DATA - 4096)), (vec![(1, 0)], vec![(1, 1)]));
}
