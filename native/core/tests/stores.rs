//! Test all queries with two kinds of stores: a made-up allocator with two blocks, and several heaps of malloc.

mod support;

use gdbheap_core::allocators::glibc::{walk_chunks, Stretch};
use gdbheap_core::allocators::{Extents, Part, Run, Runs, SharedHeaps, Store, PARTS};
use gdbheap_core::graph::{draw_graph, Graph, GraphLayout, Root};
use gdbheap_core::memory_use::{pins, PinRules, Sweep};
use gdbheap_core::python::{list_instances, take_census, CensusRequest, ObjectOrder, TypeLayout, WantedInstances};
use gdbheap_core::{Cancellation, Error, Progress, Watcher};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use support::{machine, Chance, Heap, Memory, NoWatcher, PAGE};

const DATA: u64 = 0x10_0000;
const START: u64 = 0x7f00_0000_0000;
const STRIDE: u64 = 4096;
const COUNT: u64 = 8;
const LAST: u64 = START + 7 * STRIDE;

/// Make two blocks. A word of data points to the first block, which points to nothing. Nothing points to the second
/// block, which points to the first.
fn twins() -> SharedHeaps {
    let mut memory = Memory::of(START, vec![0; (COUNT * STRIDE) as usize]);
    memory.add(DATA, START.to_le_bytes().to_vec());
    memory.put(LAST + 8, START);
    let run = Run { start: START, stride: STRIDE, count: COUNT };
    let runs = Runs::new(vec![(run, vec![0b1000_0001])]).expect("one run");
    SharedHeaps { space: Arc::new(memory.space()), stores: vec![Store::Extents(Arc::new(Extents::of_runs(runs)))] }
}

fn types() -> TypeLayout {
    TypeLayout { ob_type: 8, tp_basicsize: 32, tp_flags: 168, smallest_heap_type: 64, ..Default::default() }
}

fn graph_of(heaps: SharedHeaps, roots: &[Root]) -> Graph {
    let layout = GraphLayout {
        ob_size: 16,
        set_key: 0,
        tp_weaklistoffset: 0,
        tp_dictoffset: 0,
        sizeof_type: 0,
        forms: Vec::new(),
        frame: None,
        keys: None,
        flag_heap_type: 0,
        flag_managed_dict: 0,
        managed_dict: 0,
        flag_inline_values: 0,
        closed: Vec::new(),
        closed_families: Vec::new(),
        interpreters: Vec::new(),
    };
    draw_graph(&NoWatcher, heaps, types(), &layout, Vec::new(), roots, &[], &[], &[], &[], false)
        .expect("not cancelled")
}

#[test]
fn twins_in_the_census() {
    let heaps = twins();
    let graph = graph_of(twins(), &[Root { phase: 2, pointers: Vec::new(), ranges: vec![(DATA, DATA + 8)] }]);
    let question = CensusRequest { roots: vec![1], watched: vec![START], unknown: 5 };
    let census = take_census(&NoWatcher, heaps.lend(), &types(), &question, Some(&graph)).expect("not cancelled");
    let [store] = &census.stores[..] else { panic!("one store") };
    assert_eq!((store.name, store.used.count, store.used.bytes), ("runs", 2, 2 * STRIDE));
    assert_eq!((store.unclassified.count, store.unclassified.bytes), (1, STRIDE));
    assert_eq!(census.unknown, [(LAST, STRIDE)]);
    assert_eq!(census.roots[1].count, 1);
    assert_eq!(census.owners, [(START, 0, 0, 1)]);
}

#[test]
fn twins_among_instances() {
    let (kinds, without, order, top) = (HashMap::new(), HashSet::new(), ObjectOrder::Address, None);
    let wanted = WantedInstances { kinds, without, order, top };
    let (all, rows) = list_instances(&NoWatcher, twins().lend(), &types(), &wanted).expect("not cancelled");
    assert_eq!((all.count, rows.len()), (0, 0));
}

#[test]
fn twins_in_the_graph() {
    let graph = graph_of(twins(), &[Root { phase: 0, pointers: vec![START + 16], ranges: Vec::new() }]);
    assert_eq!(graph.nodes(), 3);
    assert_eq!((graph.find(START + 5), graph.find(LAST), graph.find(START + STRIDE)), (Some(0), Some(1), None));
    let last = graph.node(1).expect("a node");
    assert_eq!((last.place, last.address, last.size), ("block", LAST, STRIDE));
    assert_eq!(graph.edges(1).expect("a node"), [(0, 1)]);
    assert_eq!(graph.edges(2).expect("a node"), [(0, 0)]);
    assert_eq!(graph.retained(&NoWatcher, &[0]).expect("not cancelled"), [STRIDE]);
    let lost = graph.unreachable(&NoWatcher, 5, &Default::default()).expect("not cancelled").rows;
    assert_eq!(lost.iter().map(|lost| &lost.addresses[..]).collect::<Vec<_>>(), [[LAST]]);
}

/// A watcher that cancels all work at the first check.
struct CancellingWatcher;

impl Watcher for CancellingWatcher {
    fn attend(&self, _: Option<Progress>) -> Result<(), Cancellation> {
        Err(Cancellation)
    }
}

#[test]
fn twins_in_the_sweep() {
    let heaps = twins();
    let mut owners = [None; PARTS.len()];
    let mut sweep = Sweep::new(machine(PAGE).page, None, 2, Vec::new(), Vec::new()).expect("no cuts");
    owners[Part::Used as usize] = Some(1);
    assert!(
        sweep.add_blocks(&NoWatcher, &heaps.space, &heaps.stores[0], START, owners).is_err(),
        "nobody owns what is free"
    );
    let mut sweep = Sweep::new(machine(PAGE).page, None, 2, Vec::new(), Vec::new()).expect("no cuts");
    owners[Part::Free as usize] = Some(0);
    assert!(
        sweep.add_blocks(&NoWatcher, &heaps.space, &heaps.stores[0], START + STRIDE, owners).is_err(),
        "no run begins there"
    );
    let cancelled = sweep.add_blocks(&CancellingWatcher, &heaps.space, &heaps.stores[0], START, owners);
    assert!(matches!(cancelled, Err(Error::Cancelled)), "the watcher is asked");
    let end = sweep.add_blocks(&NoWatcher, &heaps.space, &heaps.stores[0], START, owners).expect("a run");
    assert_eq!(end, START + COUNT * STRIDE);
    let cells = sweep.finish().expect("it ascends");
    let rows: Vec<_> = cells[0].iter().map(|(owner, sum)| (*owner, sum.bytes, sum.pages)).collect();
    assert_eq!(rows, [(0, 6 * STRIDE, 6 * STRIDE), (1, 2 * STRIDE, 2 * STRIDE)]);
}

#[test]
fn twins_as_pins() {
    let kept = PinRules { page: machine(PAGE).page, pages: None, ranges: &[], least: 1, most: 5 };
    let (rows, totals) = pins(&twins().stores[0], &[], kept);
    assert_eq!(rows, [(START, START + COUNT * STRIDE, 2, 2 * STRIDE, COUNT * STRIDE)]);
    assert_eq!((totals.groups, totals.blocks, totals.freed), (1, 2, COUNT * STRIDE));
}

#[test]
fn runs_that_cannot_be() {
    let run = |start, stride, count| (Run { start, stride, count }, Vec::new());
    let wrong = [
        vec![run(START, 0, 4)],
        vec![run(START, 16, 0)],
        vec![run(START, 16, u64::MAX)],
        vec![run(START, 1 << 40, 1 << 40)],
        vec![run(u64::MAX - 4096, 4096, 2)],
        vec![run(START, 4096, 2), run(START + 4096, 16, 2)],
    ];
    for runs in wrong {
        assert!(Runs::new(runs).is_err());
    }
    assert!(Runs::new(Vec::new()).is_ok());
}

/// Check that the used chunks of several heaps and the blocks of a run have consecutive numbers, in the order of their
/// stores.
#[test]
fn numbers_have_no_gap() {
    let mut chance = Chance::new("numbers_have_no_gap");
    for _ in 0..20 {
        let heaps: Vec<Heap> =
            (0..3).map(|number| Heap::draw(&mut chance, START + (number << 24), 1 << 14, 1 << 12)).collect();
        let mut memory = Memory::default();
        heaps.iter().flat_map(|heap| heap.memory.stretches.clone()).for_each(|(start, bytes)| memory.add(start, bytes));
        let stretch =
            |heap: &Heap| Stretch { arena: 0, start: heap.start, end: heap.end, top: heap.top, fast: Vec::new() };
        let stretches: Vec<Stretch> = heaps.iter().map(stretch).collect();
        let space = Arc::new(memory.space());
        let (chunks, _) = walk_chunks(&NoWatcher, &space, stretches, &[], false, false).expect("not cancelled");
        let first = Run { start: DATA, stride: 48, count: 100 };
        let bits: u64 = chance.word();
        let runs = Runs::new(vec![(first, vec![bits])]).expect("one run");
        let stores = vec![Store::Chunks(Arc::new(chunks)), Store::Extents(Arc::new(Extents::of_runs(runs)))];
        let graph = graph_of(SharedHeaps { space, stores }, &[]);
        let used = heaps.iter().flat_map(|heap| &heap.chunks).filter(|(_, _, free)| !free);
        let chunks = used.map(|(address, size, _)| (address + 16, *size));
        let blocks = (0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| (DATA + 48 * bit, 48));
        let expected: Vec<(u64, u64)> = chunks.chain(blocks).collect();
        assert_eq!(graph.nodes(), expected.len());
        for (id, (address, size)) in (0..).zip(&expected) {
            assert_eq!(graph.find(address + chance.below(size - 16)), Some(id), "{address:#x}");
            let node = graph.node(id).expect("a node");
            assert_eq!((node.address, node.size), (*address, *size));
        }
    }
}
