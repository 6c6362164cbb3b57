//! Test that memory which is cut off is distinguished from memory that contains zeros.

mod support;

use gdbheap_core::allocators::mimalloc::{form_named, read_mimalloc, Mimalloc, MimallocRoot};
use gdbheap_core::allocators::{Extents, Run, Runs, SharedHeaps, Store};
use gdbheap_core::graph::{draw_graph, Graph, GraphLayout};
use gdbheap_core::python::TypeLayout;
use std::sync::Arc;
use support::{Memory, Unwatched};

const SEGMENT: u64 = 32 << 20;
const TABLE: u64 = 264;
const ENTRY: u64 = 80;
const SLICES: u64 = 512;
/// The offset of `thread_delayed_free` in `mi_heap_t`.
const DELAYED: u64 = 2840;
const ABSENT: &str = "absent bytes";

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
    read_mimalloc(&Unwatched, &memory.space(), &roots).expect("not cancelled")
}

/// Return the damage in a segment: for each place, what is wrong and what was found there.
fn damage(memory: &Memory) -> Vec<(&'static str, String)> {
    read(memory).damage.into_iter().map(|damage| (damage.what, damage.found)).collect()
}

#[test]
fn header_of_a_segment() {
    let zeros = Memory::of(SEGMENT, vec![0; (TABLE + (SLICES + 1) * ENTRY) as usize]);
    assert_eq!(damage(&zeros), []);
    for size in [8, 208, 224, TABLE - 8, TABLE - 1] {
        assert_eq!(damage(&segment(size, &[0])), [("header of a segment", ABSENT.to_string())], "{size}");
    }
}

#[test]
fn entry_of_a_page() {
    let whole = TABLE + (SLICES + 1) * ENTRY;
    assert_eq!(damage(&segment(whole, &[0])), []);
    assert_eq!(damage(&segment(whole, &[])), [("slice_count of a page", "0".to_string())]);
    for size in [TABLE, TABLE + 7, TABLE + ENTRY, TABLE + ENTRY + 4, TABLE + ENTRY + 48] {
        let found = damage(&segment(size, &[0]));
        assert_eq!(found[0], ("entry of a page", ABSENT.to_string()), "{size}");
    }
}

#[test]
fn list_of_a_heap() {
    let whole = TABLE + (SLICES + 1) * ENTRY;
    let mut memory = segment(whole, &[4096]);
    assert_eq!(damage(&memory), [("thread_delayed_free of a heap", ABSENT.to_string())]);
    memory.add(4096 + DELAYED, vec![0; 8]);
    assert_eq!(damage(&memory), []);
    let used = read(&memory).heaps()[0].2;
    assert_eq!(used, 1);
}

const DATA: u64 = 0x10_0000;
const TYPE: u64 = DATA + 4096;
const NAME: u64 = DATA + 2048;
const START: u64 = 0x7f00_0000_0000;
const STRIDE: u64 = 4096;
const SUBCLASS: u64 = 1 << 31;
const WEAK: u64 = 208;

/// Make an object of a type of which only the first `size` bytes exist. The one field of the object points to another
/// block.
fn object_of_a_type(size: u64) -> SharedHeaps {
    let mut memory = Memory::of(DATA, vec![0; (TYPE + size - DATA) as usize]);
    memory.put(DATA + 8, DATA);
    memory.put(DATA + 32, 400);
    memory.put(DATA + 168, SUBCLASS);
    memory.put_bytes(NAME, b"Type\0");
    [(8, DATA), (24, NAME), (32, 24), (48, 8)].iter().for_each(|(at, word)| memory.put(TYPE + at, *word));
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
    draw_graph(&Unwatched, heaps, types, &layout, Vec::new(), &[], &[], &[], &[], false).expect("not cancelled")
}

#[test]
fn fields_of_a_type() {
    let (exact, likely) = ([(1, 0)], [(1, 1)]);
    let whole = graph_of(object_of_a_type(512));
    assert_eq!((whole.node(0).expect("a node").kind, whole.edges(0).expect("a node")), ("object", exact.to_vec()));
    let cut = graph_of(object_of_a_type(WEAK));
    assert_eq!((cut.node(0).expect("a node").kind, cut.edges(0).expect("a node")), ("object", likely.to_vec()));
}
