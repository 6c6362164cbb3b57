//! lost_boxes SEED TABLE: boxes and vectors that are forgotten or leaked and then lost, circles of Rc, trees of boxes;
//! and some that are held. Without Rust's own start, whose blocks for the main thread would not be the program's.
#![no_main]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::mem::{forget, size_of};
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};

const DIRECT: c_int = 0;
const INDIRECT: c_int = 1;
const CYCLE: c_int = 2;
const BY_LAYOUT: c_int = 6;

extern "C" {
    fn planted_between(low: usize, high: usize) -> usize;
    fn planted_note(block: *const c_void, size: usize, kind: c_int, group: u64);
    fn planted_group() -> u64;
    fn planted_apart(plant: extern "C" fn());
    fn planted_begin(argc: c_int, argv: *const *const c_char);
    fn planted_end() -> c_int;
}

#[used]
static HELD: AtomicPtr<Tree> = AtomicPtr::new(std::ptr::null_mut());
#[used]
static INSIDE: AtomicPtr<[u64; 8]> = AtomicPtr::new(std::ptr::null_mut());

struct Tree {
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
    words: Vec<u64>,
}

struct Partner {
    other: RefCell<Option<Rc<Partner>>>,
    _data: [u64; 5],
}

fn between(low: usize, high: usize) -> usize {
    unsafe { planted_between(low, high) }
}

fn group() -> u64 {
    unsafe { planted_group() }
}

fn note<T>(block: *const T, size: usize, kind: c_int, group: u64) {
    unsafe { planted_note(block.cast(), size, kind, group) }
}

fn tree(depth: usize) -> Box<Tree> {
    let branch = |depth: usize| (depth > 0 && between(0, 3) > 0).then(|| tree(depth - 1));
    let (left, right) = (branch(depth), branch(depth));
    Box::new(Tree { left, right, words: vec![7; between(1, 60)] })
}

fn note_tree(tree: &Tree, kind: c_int, group: u64) {
    note(tree, size_of::<Tree>(), kind, group);
    note(tree.words.as_ptr(), tree.words.capacity() * 8, INDIRECT, group);
    for branch in [&tree.left, &tree.right].into_iter().flatten() {
        note_tree(branch, INDIRECT, group);
    }
}

/// Return the counts of an Rc: two counts precede the value, and a pointer to an Rc leads to them.
fn counts<T>(one: &Rc<T>) -> *const u8 {
    Rc::as_ptr(one).cast::<u8>().wrapping_sub(16)
}

fn circle() {
    let of = group();
    let partner = || {
        let made = Rc::new(Partner { other: RefCell::new(None), _data: [3; 5] });
        note(counts(&made), size_of::<Partner>() + 16, CYCLE, of);
        made
    };
    // In no Vec: freed memory keeps its words, and a later block has some of them after its requested bytes.
    let first = partner();
    let mut last = Rc::clone(&first);
    for _ in 0..between(1, 30) {
        let next = partner();
        *last.other.borrow_mut() = Some(Rc::clone(&next));
        last = next;
    }
    *last.other.borrow_mut() = Some(first);
}

extern "C" fn plant() {
    for _ in 0..between(2, 12) {
        let lost = tree(6);
        note_tree(&lost, DIRECT, group());
        let _ = Box::leak(lost);
    }
    for _ in 0..between(1, 20) {
        let text = "x".repeat(between(1, 5000));
        note(text.as_ptr(), text.capacity(), DIRECT, group());
        forget(text);
    }
    for _ in 0..between(1, 20) {
        circle();
    }
    let shared = Rc::new([5_u64; 8]);
    note(counts(&shared), 64 + 16, BY_LAYOUT, group());
    INSIDE.store(Rc::into_raw(shared).cast_mut(), Ordering::Relaxed);
    HELD.store(Box::into_raw(tree(5)), Ordering::Relaxed);
}

#[no_mangle]
pub extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    unsafe {
        planted_begin(argc, argv);
        planted_apart(plant);
        planted_end()
    }
}
