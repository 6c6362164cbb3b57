//! Full buffers whose words look like those of a Vec with few items: full SEED COUNT KIND. KIND is `deque`, `reader` or
//! `ring`, the VecDeque of rustc 1.66 and older. Prints their capacity and their length in bytes.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Repeat};

#[repr(C)]
struct Ring {
    tail: usize,
    head: usize,
    start: *mut u8,
    capacity: usize,
    number: usize,
}

struct Connection {
    number: u64,
    queue: VecDeque<u8>,
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

fn letter(state: &mut u64) -> u8 {
    b'a' + (next(state) % 26) as u8
}

/// Return a queue of text whose first letters were taken.
fn deque(state: &mut u64) -> Connection {
    let mut queue: VecDeque<u8> = VecDeque::with_capacity(60000);
    (0..60000).for_each(|_| queue.push_back(letter(state)));
    (0..80 + next(state) % 100).for_each(|_| assert!(queue.pop_front().is_some()));
    Connection { number: next(state), queue }
}

/// Return a reader of a file whose first bytes were read.
fn reader(state: &mut u64) -> BufReader<Repeat> {
    let mut reader = BufReader::with_capacity(60000, std::io::repeat(letter(state)));
    reader.fill_buf().unwrap();
    reader.consume(80 + next(state) as usize % 100);
    reader
}

fn ring(state: &mut u64) -> Ring {
    let text: Vec<u8> = (0..65536).map(|_| letter(state)).collect();
    let tail = 80 + next(state) as usize % 100;
    Ring { tail, head: tail - 1, start: text.leak().as_mut_ptr(), capacity: 65536, number: 70 + tail % 7 }
}

fn wait() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let mut state: u64 = arguments[1].parse().unwrap();
    let count: usize = arguments[2].parse().unwrap();
    match arguments[3].as_str() {
        "deque" => {
            let all: Vec<Box<Connection>> = (0..count).map(|_| Box::new(deque(&mut state))).collect();
            let held: usize = all.iter().map(|one| one.queue.len()).sum();
            eprintln!("{} {held}", all.iter().map(|one| one.queue.capacity()).sum::<usize>());
            wait();
            std::hint::black_box(all.iter().map(|one| one.number).max());
        }
        "reader" => {
            let all: Vec<Box<BufReader<Repeat>>> = (0..count).map(|_| Box::new(reader(&mut state))).collect();
            let held: usize = all.iter().map(|one| one.capacity()).sum();
            eprintln!("{held} {held}");
            wait();
            drop(all);
        }
        _ => {
            let all: Vec<Box<Ring>> = (0..count).map(|_| Box::new(ring(&mut state))).collect();
            let held: usize = all.iter().map(|one| one.head.wrapping_sub(one.tail) & (one.capacity - 1)).sum();
            eprintln!("{} {held}", all.iter().map(|one| one.capacity).sum::<usize>());
            wait();
            std::hint::black_box(all.iter().map(|one| one.start as usize + one.number).max());
        }
    }
}
