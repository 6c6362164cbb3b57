//! Lost objects: counted_cycles KIND COUNT. KIND is `rc` or `arc` (children in a Vec, which keep one another),
//! `family`: parents with 20 children each, in a Vec whose unused room has stale pointers to other families; or `parent`:
//! forgotten parents that their children know by a Weak.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex};

struct Node {
    other: RefCell<Option<Rc<Node>>>,
    parent: RefCell<Weak<Node>>,
    data: [u8; 20000],
}

struct Shared {
    children: Mutex<Vec<Arc<Shared>>>,
    data: Vec<u64>,
}

struct Parent {
    children: Mutex<Vec<Arc<Child>>>,
    data: Vec<u64>,
}

struct Child {
    parent: Arc<Parent>,
    name: String,
}

fn family(number: u64) -> u64 {
    let parent = Arc::new(Parent { children: Mutex::new(Vec::new()), data: vec![number; 2500] });
    for child in 0..20 {
        let name = format!("child {child} of {number}");
        parent.children.lock().unwrap().push(Arc::new(Child { parent: parent.clone(), name }));
    }
    let children = parent.children.lock().unwrap();
    children.iter().map(|child| child.name.len() as u64 + child.parent.data[0]).sum()
}

fn node(byte: u8) -> Rc<Node> {
    Rc::new(Node { other: RefCell::new(None), parent: RefCell::new(Weak::new()), data: [byte; 20000] })
}

fn shared(number: u64) -> Arc<Shared> {
    Arc::new(Shared { children: Mutex::new(Vec::new()), data: vec![number; 2500] })
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let mut sum = 0;
    for number in 0..arguments[2].parse::<u64>().unwrap() {
        let (one, two) = (node(number as u8 | 1), node(1));
        let (three, four) = (shared(number), shared(1));
        match arguments[1].as_str() {
            "rc" => {
                *two.other.borrow_mut() = Some(one.clone());
                *one.other.borrow_mut() = Some(two);
            }
            "family" => sum += family(number),
            "arc" => {
                three.children.lock().unwrap().push(four.clone());
                four.children.lock().unwrap().push(three.clone());
            }
            _ => {
                *two.parent.borrow_mut() = Rc::downgrade(&one);
                *one.other.borrow_mut() = Some(two);
                std::mem::forget(one.clone());
            }
        }
        sum += u64::from(one.data[0]) + three.data[0] + four.data[0];
    }
    std::hint::black_box(sum);
    std::io::stdin().read_line(&mut String::new()).unwrap();
}
