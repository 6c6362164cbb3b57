// The consumer is slower than the producer: a backlog in an unbounded channel, and a map that shrank (librefang#3580).
use std::collections::HashMap;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

struct Event { id: u64, topic: String, payload: Vec<u8> }

fn main() {
    let (tx, rx) = mpsc::channel::<Event>();
    let seen: Arc<Mutex<HashMap<u64, [u64; 8]>>> = Arc::new(Mutex::new(HashMap::new()));
    let s = seen.clone();
    let _consumer = thread::spawn(move || {
        for e in rx {
            s.lock().unwrap().insert(e.id, [e.payload.len() as u64; 8]);
            thread::sleep(Duration::from_secs(600));
        }
    });
    for id in 0..100_000u64 {
        tx.send(Event { id, topic: format!("orders/{:06}", id), payload: vec![7; 600] }).unwrap();
    }
    // The consumer has begun: before that, its channel and its map are held by the argument of a thread.
    while seen.lock().unwrap().is_empty() {
        thread::yield_now();
    }
    {
        let mut m = seen.lock().unwrap();
        for id in 0..200_000u64 { m.insert(id, [id; 8]); }
        m.retain(|k, _| *k < 10);
    }
    println!("READY");
    thread::sleep(Duration::from_secs(600));
}
