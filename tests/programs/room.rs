//! Containers that use little of their capacity, and a channel without a reader: room SEED COUNT. Prints the capacity
//! and the length of each container in bytes.

use std::collections::HashMap;
use std::sync::mpsc;

struct Session {
    pending: Vec<[u64; 3]>,
    seen: HashMap<u64, [u64; 8]>,
    text: String,
}

struct Event {
    id: u64,
    topic: String,
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

fn session(state: &mut u64) -> Session {
    let mut pending: Vec<[u64; 3]> = (0..500 + next(state) % 500).map(|number| [number; 3]).collect();
    pending.truncate((3 + next(state) % 5) as usize);
    let mut seen = HashMap::new();
    for key in 0..4000 + next(state) % 4000 {
        seen.insert(key, [key; 8]);
    }
    seen.retain(|key, _| *key < 10);
    let mut text = "the text of a session, ".repeat(400 + next(state) as usize % 400);
    text.truncate(23);
    Session { pending, seen, text }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let mut state: u64 = arguments[1].parse().unwrap();
    let count: u64 = arguments[2].parse().unwrap();
    let sessions: Vec<Box<Session>> = (0..count).map(|_| Box::new(session(&mut state))).collect();
    let (sender, receiver) = mpsc::channel::<Event>();
    for id in 0..40 * count {
        sender.send(Event { id, topic: format!("orders/{:06}", id) }).unwrap();
    }
    for _ in 0..next(&mut state) % 100 {
        assert!(receiver.recv().unwrap().topic.len() > 6);
    }
    let (mut room, mut used) = (0, 0);
    for one in &sessions {
        room += one.pending.capacity() * 24 + one.text.capacity();
        used += one.pending.len() * 24 + one.text.len();
    }
    let left = 40 * count - receiver.recv().unwrap().id - 1;
    eprintln!("buffers {room} {used}\nmessages {left}\nmaps {}", sessions.iter().map(|one| one.seen.capacity()).sum::<usize>());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    drop((sessions, sender, receiver));
}
