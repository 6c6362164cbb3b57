//! Collect the words near a pointer to a block that may be a container of Rust. These are the candidates of one worker.

use super::channels::{may_be_index, LINE};
use super::triples::{Order, Triple};
use crate::allocators::block::Block;
use crate::by_address::Addresses;
use crate::structures::look::{keep, Look, Place};
use gdbheap_access::bytes::{range_at, word_at};
use gdbheap_access::memory::reader::Reader;
use std::sync::atomic::Ordering;

/// The size in bytes of the largest block that counts as a struct with fields at fixed places. A larger block counts as
/// a row of items.
const LARGEST_STRUCT: u64 = 1 << 10;
/// The difference of evidence, in bits, from which the order of a Vec's words is certain: texts give that much more
/// evidence for this order than for the other one. It is a thousand times SURE.
const MAJORITY: u32 = 14_000;
/// The size in bytes of a BTreeMap's node with children: twelve pointers to children, one to the parent, and two
/// counts.
const LEAST_NODE: u64 = 13 * 8 + 4;
/// The largest number of candidates whose text a worker reads to find the order of a Vec's words.
const VOTERS: u32 = 1 << 16;
/// The largest height of a BTreeMap. A higher tree would not fit into an address space.
const HIGHEST_TREE: u64 = 16;

/// A pointer to a block, and the words around this pointer.
pub(crate) struct Words<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: usize,
    /// The address of the pointer (`at`), and its value (`word`).
    pub(crate) at: u64,
    pub(crate) word: u64,
}

impl Words<'_> {
    fn before(&self, words: usize) -> Option<u64> {
        word_at(self.bytes, self.offset.checked_sub(8 * words)?)
    }

    fn after(&self, words: usize) -> Option<u64> {
        word_at(self.bytes, self.offset + 8 * words)
    }
}

/// A possible root of a BTreeMap.
pub(crate) struct Root {
    pub(crate) at: u64,
    pub(crate) node: u64,
    pub(crate) height: u64,
    pub(crate) length: u64,
}

/// A pointer to a block, followed by a possible pointer to a vtable.
pub(crate) struct Wide {
    pub(crate) at: u64,
    pub(crate) id: u32,
    pub(crate) vtable: u64,
    /// Whether the previous word also points to a block of the same size.
    pub(crate) follows_alike: bool,
    pub(crate) on_stack: bool,
}

/// Encode a field in one number: the usable bytes of the block that contains it, and its offset in the block.
pub(crate) fn field(usable: u64, offset: u64) -> u64 {
    usable << 32 | offset
}

#[derive(Default)]
pub(crate) struct Candidates {
    pub(crate) triples: Vec<Triple>,
    /// The addresses of pointers that may point to control bytes of tables.
    pub(crate) tables: Vec<u64>,
    pub(crate) roots: Vec<Root>,
    /// The addresses at which the receiving end of a channel may lie.
    pub(crate) channels: Vec<u64>,
    pub(crate) wide: Vec<Wide>,
    /// For each order of a Vec's words, the fields that contain pointers to blocks that are no buffers in that order.
    pub(crate) others: [Addresses; 2],
    /// The address of the block in which the last field lies, and the usable bytes of the block.
    last: (u64, u64),
    /// The number of bytes of memory that all candidates take.
    pub(crate) taken: u64,
    voted: u32,
}

impl Candidates {
    /// Record the containers to which a word may belong, if the word points to a block or into one.
    pub(crate) fn take(
        &mut self,
        look: &Look<'_>,
        reader: &mut Reader<'_>,
        words: &Words<'_>,
        (id, block): (u32, &Block),
        place: Place,
    ) {
        self.table(words);
        if words.word != block.address {
            return;
        }
        self.root(words, block);
        if words.at % LINE == 8 && words.before(1).is_some_and(may_be_index) {
            keep(&mut self.channels, words.at - 8, &mut self.taken);
        }
        let on_stack = place == Place::Stack;
        if let Some(vtable) = words.after(1).filter(|word| word % 8 == 0 && range_at(look.objects, *word).is_some()) {
            let before = words.before(1).and_then(|word| look.block_from(word));
            let follows_alike = before.is_some_and(|(_, other)| other.end - other.address == block.end - block.address);
            keep(&mut self.wide, Wide { at: words.at, id, vtable, follows_alike, on_stack }, &mut self.taken);
        }
        let requests = look.requests(block, true);
        let field = self.field(look, place, words.at);
        let make = |order, cap, len, next| {
            let sized = Triple::new(order, cap, len, requests)?;
            let other = other_length(look, words, order, (cap, next));
            Some(Triple {
                at: words.at,
                id,
                block: block.address,
                field,
                on_stack,
                next: next.unwrap_or(u64::MAX),
                other,
                ..sized
            })
        };
        let (before, one) = (words.before(1).unwrap_or(u64::MAX), words.after(1).unwrap_or(u64::MAX));
        let (two, three) = (words.after(2), words.after(3));
        let new = make(Order::CapFirst, before, one, two);
        let old = two.and_then(|len| make(Order::PointerFirst, one, len, three));
        let elected = elected(look);
        for (order, made) in [(Order::CapFirst, new), (Order::PointerFirst, old)] {
            match made {
                _ if elected.is_some_and(|elected| elected != order) => (),
                Some(triple) => {
                    if elected.is_none() {
                        self.vote(look, reader, &triple);
                    }
                    keep(&mut self.triples, triple, &mut self.taken);
                }
                None => {
                    let is_new = field != 0 && self.others[order as usize].insert(field);
                    self.taken += if is_new { 2 * std::mem::size_of_val(&field) as u64 } else { 0 };
                }
            }
        }
    }

    /// Vote for the order of this triple's words. The weight of the vote is the evidence that the words point to a
    /// text.
    fn vote(&mut self, look: &Look<'_>, reader: &mut Reader<'_>, triple: &Triple) {
        if self.voted < VOTERS {
            self.voted += 1;
            let mut judged = triple.clone();
            judged.judge(reader);
            look.votes[triple.order as usize].fetch_add(judged.text_bits as u32, Ordering::Relaxed);
        }
    }

    /// Return the field in which the word at `at` lies; zero if the word lies in no block, or in a block that is too
    /// large for a struct.
    fn field(&mut self, look: &Look<'_>, place: Place, at: u64) -> u64 {
        let Place::Block(address) = place else { return 0 };
        if self.last.0 != address {
            let usable = look.block_from(address).map_or(0, |(_, block)| block.end - block.address);
            self.last = (address, usable);
        }
        match self.last.1 {
            usable @ 1..=LARGEST_STRUCT => field(usable, at - address),
            _ => 0,
        }
    }

    fn table(&mut self, words: &Words<'_>) {
        let [Some(one), Some(two), Some(before)] = [words.after(1), words.after(2), words.before(1).or(Some(0))] else {
            return;
        };
        // The mask follows the pointer. With older versions of rustc it precedes the pointer.
        let is_new = words.after(3).is_some_and(|three| is_table(one, two, three));
        if words.word % 16 == 0 && (is_new || is_table(before, one, two)) {
            keep(&mut self.tables, words.at, &mut self.taken);
        }
    }

    fn root(&mut self, words: &Words<'_>, block: &Block) {
        let Some(one) = words.after(1).filter(|_| block.end - block.address >= LEAST_NODE) else { return };
        let pairs = [words.after(2).map(|length| (one, length)), words.before(1).map(|height| (height, one))];
        for (height, length) in pairs.into_iter().flatten() {
            if (1..=HIGHEST_TREE).contains(&height) && length > height {
                keep(&mut self.roots, Root { at: words.at, node: words.word, height, length }, &mut self.taken);
            }
        }
    }
}

/// Return the order of a Vec's words in this program; None until it is certain.
fn elected(look: &Look<'_>) -> Option<Order> {
    let [new, old] =
        [Order::CapFirst, Order::PointerFirst].map(|order| look.votes[order as usize].load(Ordering::Relaxed));
    match new.abs_diff(old) >= MAJORITY {
        true => Some(if new > old { Order::CapFirst } else { Order::PointerFirst }),
        false => None,
    }
}

/// Return the length that words near a pointer and a capacity may state; 0 if no word fits. {capacity, pointer, head,
/// length} is a VecDeque since 1.67, {tail, head, pointer, capacity} a VecDeque up to 1.66, and {pointer, capacity,
/// position, filled} a BufReader.
fn other_length(look: &Look<'_>, words: &Words<'_>, order: Order, (cap, next): (u64, Option<u64>)) -> u64 {
    let behind =
        next.filter(|length| *length <= cap && !(order == Order::CapFirst && is_capacity(look, words, *length)));
    let ring = match (order, words.before(2), words.before(1)) {
        // If these words follow a pointer to a block, they belong to another Vec.
        (Order::PointerFirst, Some(tail), Some(head))
            if cap.is_power_of_two()
                && tail.max(head) < cap
                && words.before(3).is_none_or(|word| look.block_from(word).is_none()) =>
        {
            head.wrapping_sub(tail) & (cap - 1)
        }
        _ => 0,
    };
    behind.unwrap_or(0).max(ring)
}

/// Return whether the word after a triple is the capacity of another container that follows the triple.
fn is_capacity(look: &Look<'_>, words: &Words<'_>, cap: u64) -> bool {
    let (Some(pointer), Some(len)) = (words.after(3), words.after(4)) else { return false };
    let block = look.block_from(pointer);
    block.is_some_and(|(_, block)| Triple::new(Order::CapFirst, cap, len, look.requests(&block, true)).is_some())
}

/// Return whether these three numbers may be the mask of a hash table, its number of free slots and its number of
/// items.
pub(crate) fn is_table(mask: u64, left: u64, items: u64) -> bool {
    let is_mask = (3..u64::MAX / 2).contains(&mask) && (mask + 1).is_power_of_two();
    is_mask && left <= mask && items <= mask && left + items <= mask
}
