//! Containers of Rust with random contents: prints a row for each of their blocks (address, kind), then pauses.
//!
//! collections SEED ROUNDS: a container of each kind in static data, in blocks and on the stack; with ROUNDS above 0
//! they grow, shrink, are moved and dropped that often. The kind of a block comes from the program's own allocator,
//! which is told the kind before each call. The rows are stored as complements, so that they point to nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

const ROWS: usize = 1 << 20;

struct Row(AtomicUsize, AtomicU32);

#[allow(clippy::declare_interior_mutable_const)]
const NO_ROW: Row = Row(AtomicUsize::new(0), AtomicU32::new(0));
static TOLD: [Row; ROWS] = [NO_ROW; ROWS];
static NOW: AtomicU32 = AtomicU32::new(0);

/// Return the row of a block, by linear probing; a removed row keeps its place.
fn row_of(block: *mut u8) -> &'static Row {
    let hidden = !(block as usize);
    let mut place = hidden.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    loop {
        let row = &TOLD[place % ROWS];
        let known = row.0.load(Relaxed);
        if known == 0 || known == hidden {
            row.0.store(hidden, Relaxed);
            return row;
        }
        place += 1;
    }
}

struct Telling;

unsafe impl GlobalAlloc for Telling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = System.alloc(layout);
        row_of(block).1.store(NOW.load(Relaxed), Relaxed);
        block
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        row_of(block).1.store(0, Relaxed);
        System.dealloc(block, layout)
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let what = row_of(block).1.swap(0, Relaxed);
        let moved = System.realloc(block, layout, size);
        row_of(moved).1.store(what, Relaxed);
        moved
    }
}

#[global_allocator]
static ALLOCATOR: Telling = Telling;

const NAMES: [&str; 20] = [
    "", "plain", "string", "bytes", "vec", "slice", "deque", "table", "tree", "shared", "box", "box", "box", "box", "box",
    "counted", "counted", "counted", "counted", "counted",
];
const PLAIN: u32 = 1;
const STRING: u32 = 2;
const BYTES: u32 = 3;
const VEC: u32 = 4;
const SLICE: u32 = 5;
const DEQUE: u32 = 6;
const TABLE: u32 = 7;
const TREE: u32 = 8;
const SHARED: u32 = 9;
const BOX: u32 = 10;
const COUNTED: u32 = 15;

/// Run `make` with all its allocations recorded as the kind `what`.
fn told<T>(what: u32, make: impl FnOnce() -> T) -> T {
    let before = NOW.swap(what, Relaxed);
    let made = make();
    NOW.store(before, Relaxed);
    made
}

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    fn upto(&mut self, most: usize) -> usize {
        (self.next() % (most as u64 + 1)) as usize
    }
    fn text(&mut self) -> String {
        let length = self.upto(60);
        let letters = ['a', 'e', 'k', 'o', 'r', 's', 't', ' ', '7', '\u{fc}'];
        told(STRING, || {
            let mut made = String::new();
            (0..length).for_each(|_| made.push(letters[self.upto(9)]));
            if self.upto(2) == 0 { made.clone() } else { made }
        })
    }
}

trait Shape {
    fn area(&self) -> f64;
    fn number(&self) -> u32;
}

struct Circle(f64);
struct Square(f64, f64);
struct Named(String, u64);
struct Path(Vec<u64>, f64);
/// A type with the same methods as Circle, which the compiler may merge.
struct Twin(f64);

macro_rules! shapes {
    ($($type:ty, $number:expr, $area:expr;)*) => {
        $(impl Shape for $type {
            fn area(&self) -> f64 {
                let area: fn(&$type) -> f64 = $area;
                area(self)
            }
            fn number(&self) -> u32 {
                $number
            }
        })*
        fn types() -> Vec<&'static str> {
            vec![$(type_name::<$type>()),*]
        }
    };
}

shapes! {
    Circle, 0, |it| it.0;
    Square, 1, |it| it.0 * it.1;
    Named, 2, |it| it.0.len() as f64 + it.1 as f64;
    Path, 3, |it| it.0.len() as f64 * it.1;
    Twin, 4, |it| it.0;
}

struct Plain {
    numbers: [u64; 5],
}

/// A pointer among numbers that are no capacity and no length.
struct Trap {
    kind: usize,
    child: Box<[u64; 8]>,
    count: usize,
    other: Box<[u32; 6]>,
    more: usize,
    third: Box<[u64; 150]>,
    last: usize,
}

struct Item {
    name: String,
    numbers: Vec<u32>,
    weight: f64,
}

#[derive(Default)]
struct All {
    one: String,
    two: String,
    numbers: Vec<u32>,
    wide: Vec<u64>,
    bytes: Vec<u8>,
    texts: Vec<String>,
    nested: Vec<Vec<f64>>,
    items: Vec<Item>,
    slice: Box<[u64]>,
    ends: VecDeque<u64>,
    text_ends: VecDeque<String>,
    by_number: HashMap<u64, String>,
    by_name: HashMap<String, Vec<u16>>,
    keys: HashSet<u32>,
    pairs: HashMap<(u8, u8), u8>,
    sorted: BTreeMap<u64, String>,
    words: BTreeMap<String, Vec<u32>>,
    letters: BTreeSet<u8>,
    shapes: Vec<Box<dyn Shape>>,
    shape: Option<Box<dyn Shape>>,
    shared: Vec<Arc<Plain>>,
    single: Option<Rc<Plain>>,
    counted: Vec<Arc<dyn Shape>>,
    words_shared: Vec<Arc<str>>,
    traps: Vec<Box<Trap>>,
}

fn plain(chance: &mut Chance) -> Plain {
    Plain { numbers: [chance.next(), 1, 1, chance.next(), 4] }
}

fn numbers<T>(chance: &mut Chance, most: usize, make: fn(u64) -> T) -> Vec<T> {
    let count = chance.upto(most);
    match chance.upto(2) {
        0 => told(VEC, || (0..count).map(|_| make(chance.next())).collect()),
        1 => {
            let room = count + chance.upto(9);
            let mut made = told(VEC, || Vec::with_capacity(room));
            (0..count).for_each(|_| made.push(make(chance.next())));
            made
        }
        _ => {
            let mut made = Vec::new();
            told(VEC, || (0..count).for_each(|_| made.push(make(chance.next()))));
            made
        }
    }
}

fn boxed(chance: &mut Chance, what: u32) -> Box<dyn Shape> {
    let side = chance.upto(99) as f64;
    match what {
        0 => told(BOX, || Box::new(Circle(side))),
        1 => told(BOX + 1, || Box::new(Square(side, 2.0))),
        2 => {
            let named = Named(chance.text(), 1);
            told(BOX + 2, || Box::new(named))
        }
        3 => {
            let path = Path(numbers(chance, 30, |number| number), 1.5);
            told(BOX + 3, || Box::new(path))
        }
        _ => told(BOX + 4, || Box::new(Twin(side))),
    }
}

fn counted(chance: &mut Chance, what: u32) -> Arc<dyn Shape> {
    let side = chance.upto(99) as f64;
    match what {
        0 => told(COUNTED, || Arc::new(Circle(side))),
        1 => told(COUNTED + 1, || Arc::new(Square(side, 2.0))),
        2 => {
            let named = Named(chance.text(), 1);
            told(COUNTED + 2, || Arc::new(named))
        }
        3 => {
            let path = Path(numbers(chance, 30, |number| number), 1.5);
            told(COUNTED + 3, || Arc::new(path))
        }
        _ => told(COUNTED + 4, || Arc::new(Twin(side))),
    }
}

fn trap(chance: &mut Chance) -> Box<Trap> {
    let filled = |chance: &mut Chance| chance.next() & 0x7f7f_7f7f_7f7f_7f7f;
    told(PLAIN, || {
        Box::new(Trap {
            kind: chance.upto(64),
            child: Box::new([0; 8].map(|_: u64| filled(chance))),
            count: chance.upto(24),
            other: Box::new([0; 6].map(|_: u32| filled(chance) as u32)),
            more: chance.upto(1200),
            third: Box::new([0; 150].map(|_: u64| filled(chance))),
            last: chance.upto(1200),
        })
    })
}

impl All {
    fn fill(&mut self, chance: &mut Chance, most: usize) {
        self.one = chance.text();
        self.two = chance.text();
        self.numbers = numbers(chance, most * 3, |number| number as u32);
        self.wide = numbers(chance, most * 40, |number| number);
        let length = chance.upto(most * 3);
        told(BYTES, || (0..length).for_each(|_| self.bytes.push(chance.next() as u8)));
        for _ in 0..chance.upto(most) {
            let text = chance.text();
            told(VEC, || self.texts.push(text));
            let row = numbers(chance, 40, |number| number as f64);
            told(VEC, || self.nested.push(row));
            let item = Item { name: chance.text(), numbers: numbers(chance, 40, |number| number as u32), weight: 1.0 };
            told(VEC, || self.items.push(item));
            let text = chance.text();
            told(TABLE, || self.by_number.insert(chance.next(), text));
            let (text, row) = (chance.text(), numbers(chance, 20, |number| number as u16));
            told(TABLE, || self.by_name.insert(text, row));
            told(TABLE, || self.pairs.insert((chance.upto(9) as u8, chance.upto(9) as u8), 1));
            let (key, text) = (chance.upto(1000) as u64, chance.text());
            told(TREE, || self.sorted.insert(key, text));
            let (text, row) = (chance.text(), numbers(chance, 9, |number| number as u32));
            told(TREE, || self.words.insert(text, row));
            let what = chance.upto(4) as u32;
            let shape = boxed(chance, what);
            told(VEC, || self.shapes.push(shape));
            let what = chance.upto(4) as u32;
            let shape = counted(chance, what);
            told(VEC, || {
                (0..chance.upto(2)).for_each(|_| self.counted.push(shape.clone()));
                self.counted.push(shape);
            });
            let shared = told(SHARED, || Arc::new(plain(chance)));
            told(VEC, || (0..chance.upto(9)).for_each(|_| self.shared.push(shared.clone())));
            let made = trap(chance);
            told(VEC, || self.traps.push(made));
            let text = told(STRING, || format!("shared text {}", chance.next()));
            let text: Arc<str> = told(SHARED, || Arc::from(text.as_str()));
            told(VEC, || (0..chance.upto(3)).for_each(|_| self.words_shared.push(text.clone())));
        }
        let made = numbers(chance, 40, |number| number);
        self.slice = told(SLICE, || made.iter().copied().collect());
        for _ in 0..chance.upto(most * 9) {
            told(DEQUE, || self.ends.push_back(chance.next()));
            let text = chance.text();
            told(DEQUE, || self.text_ends.push_back(text));
            if chance.upto(2) == 0 {
                self.ends.pop_front();
                self.text_ends.pop_front();
            }
            told(TABLE, || self.keys.insert(chance.upto(3000) as u32));
            told(TREE, || self.letters.insert(chance.upto(200) as u8));
        }
        let what = chance.upto(4) as u32;
        self.shape = Some(boxed(chance, what));
        self.single = Some(told(SHARED, || Rc::new(plain(chance))));
    }

    fn churn(&mut self, other: &mut All, chance: &mut Chance) {
        match chance.upto(7) {
            0 => {
                std::mem::swap(&mut self.texts, &mut other.texts);
                std::mem::swap(&mut self.by_name, &mut other.by_name);
            }
            1 => {
                self.texts.pop();
                self.nested.pop();
                self.shapes.pop();
                self.items.pop();
                self.traps.pop();
            }
            2 => {
                self.by_number.clear();
                self.sorted.clear();
                self.text_ends.clear();
            }
            3 => self.keys.retain(|key| key % 3 > 0),
            4 => {
                self.numbers.shrink_to_fit();
                self.wide.truncate(3);
            }
            5 => {
                self.letters.retain(|letter| letter % 2 > 0);
                self.words.pop_first_of(chance);
            }
            6 => {
                self.shared.truncate(self.shared.len() / 2);
                self.counted.truncate(self.counted.len() / 2);
                self.words_shared.clear();
            }
            _ => {
                let text = chance.text();
                told(STRING, || self.two.push_str(&text));
                self.shape = other.shape.take();
            }
        }
    }
}

trait PopFirst {
    fn pop_first_of(&mut self, chance: &mut Chance);
}

impl PopFirst for BTreeMap<String, Vec<u32>> {
    fn pop_first_of(&mut self, chance: &mut Chance) {
        let key = told(STRING, || self.keys().nth(chance.upto(5)).cloned());
        if let Some(key) = key {
            self.remove(&key);
        }
    }
}

/// Return empty containers; an empty VecDeque has a block in older releases.
fn empty() -> Box<All> {
    let all = told(DEQUE, All::default);
    told(PLAIN, || Box::new(all))
}

static mut IN_STATIC: Option<All> = None;

extern "C" {
    fn pause() -> i32;
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|number| number.parse::<u64>().unwrap());
    let mut chance = Chance(arguments.next().unwrap());
    let rounds = arguments.next().unwrap();
    drop(arguments);
    let mut on_stack = told(DEQUE, All::default);
    on_stack.fill(&mut chance, 60);
    let mut in_static = told(DEQUE, All::default);
    in_static.fill(&mut chance, 60);
    unsafe { IN_STATIC = Some(in_static) };
    let mut in_blocks: Vec<Box<All>> = told(VEC, || Vec::with_capacity(24));
    for _ in 0..24 {
        let mut all = empty();
        all.fill(&mut chance, 60);
        in_blocks.push(all);
    }
    for _ in 0..rounds {
        let (place, other) = (chance.upto(23), chance.upto(23));
        if chance.upto(9) == 0 {
            let mut fresh = empty();
            fresh.fill(&mut chance, 60);
            in_blocks[place] = fresh;
        } else if place != other {
            let mut taken = std::mem::replace(&mut *in_blocks[other], told(DEQUE, All::default));
            in_blocks[place].churn(&mut taken, &mut chance);
            *in_blocks[other] = taken;
        }
    }
    let sum: f64 = in_blocks.iter().flat_map(|all| &all.shapes).map(|shape| shape.area() + shape.number() as f64).sum();
    let traps = in_blocks.iter().flat_map(|all| &all.traps);
    let used: usize = traps.map(|it| it.kind + it.count + it.more + it.last + it.child.len() + it.other.len() + it.third.len()).sum();
    let items: f64 = in_blocks.iter().flat_map(|all| &all.items).map(|it| it.weight + it.name.len() as f64).sum();
    let shared: u64 = in_blocks.iter().flat_map(|all| &all.shared).map(|it| it.numbers[0] & 1).sum();
    eprintln!("sum {sum} {used} {items} {shared} {}", on_stack.one.len());
    let types = types();
    for row in &TOLD {
        let what = row.1.load(Relaxed) as usize;
        let of = if what >= BOX as usize { types[(what - BOX as usize) % 5] } else { "" };
        if what > 0 {
            eprintln!("block {:#x} {} {}", !row.0.load(Relaxed), NAMES[what], of);
        }
    }
    unsafe { pause() };
    drop(on_stack);
    drop(in_blocks);
}
