//! Messages in a channel from which nothing was received yet: unread SEED COUNT.

use std::io::stdin;
use std::sync::mpsc::channel;

struct Event {
    number: u64,
    payload: Vec<u8>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let seed: u64 = arguments[1].parse().unwrap();
    let (sender, receiver) = channel();
    for number in 0..arguments[2].parse().unwrap() {
        sender.send(Event { number, payload: vec![seed as u8; 600] }).unwrap();
    }
    eprintln!("there");
    stdin().read_line(&mut String::new()).unwrap();
    drop(sender);
    println!("{}", receiver.iter().map(|event| event.number + event.payload.len() as u64).sum::<u64>());
}
