//! Collect the candidates of one worker: a pointer to a block, and words near the pointer, that together may be a
//! container of Rust.

use super::channels::{may_be_index, LINE};
use super::triples::{Triple, WordOrder};
use crate::allocators::block::Block;
use crate::by_address::Addresses;
use crate::structures::search_input::{keep, SearchInput, WordPlace};
use gdbheap_access::bytes::{range_at, word_at};
use gdbheap_access::memory::reader::Reader;
use std::sync::atomic::Ordering;

/// The size in bytes of the largest block that counts as a struct with fields at fixed places. A larger block counts as
/// a row of items.
const LARGEST_STRUCT: u64 = 1 << 10;
/// The order of a Vec's words is certain if text gives this much more evidence, in bits, for it than for the other
/// order. The number is a thousand times SURE.
const MAJORITY: u32 = 14_000;
/// The smallest size in bytes of a BTreeMap node that is not a leaf: twelve pointers to children, one to the parent,
/// and two counts.
const LEAST_NODE: u64 = 13 * 8 + 4;
/// The largest number of candidates whose text a worker reads to find the order of a Vec's words.
const VOTERS: u32 = 1 << 16;
/// The largest height of a BTreeMap. A higher tree would not fit into an address space.
const HIGHEST_TREE: u64 = 16;

/// A pointer to a block, and the words around this pointer.
pub(crate) struct PointerWords<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: usize,
    /// The address at which the pointer itself lies.
    pub(crate) at: u64,
    /// The address to which the pointer points.
    pub(crate) word: u64,
}

impl PointerWords<'_> {
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
pub(crate) struct WidePointer {
    pub(crate) at: u64,
    pub(crate) id: u32,
    pub(crate) vtable: u64,
    /// Whether the previous word also points to a block of the same size.
    pub(crate) follows_alike: bool,
    pub(crate) on_stack: bool,
}

/// Encode a field of a struct in one number: the size of the struct's block, and the offset of the field in it. Fields
/// of equal structs have the same number.
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
    pub(crate) wide: Vec<WidePointer>,
    /// For each order of a Vec's words, the fields that cannot contain Vecs in this order. At least one pointer in such
    /// a field points to a block that does not fit.
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
        look: &SearchInput<'_>,
        reader: &mut Reader<'_>,
        words: &PointerWords<'_>,
        (id, block): (u32, &Block),
        place: WordPlace,
    ) {
        self.table(words);
        if words.word != block.address {
            return;
        }
        self.root(words, block);
        if words.at % LINE == 8 && words.before(1).is_some_and(may_be_index) {
            keep(&mut self.channels, words.at - 8, &mut self.taken);
        }
        let on_stack = place == WordPlace::Stack;
        if let Some(vtable) = words.after(1).filter(|word| word % 8 == 0 && range_at(look.objects, *word).is_some()) {
            let before = words.before(1).and_then(|word| look.block_from(word));
            let follows_alike = before.is_some_and(|(_, other)| other.end - other.address == block.end - block.address);
            keep(&mut self.wide, WidePointer { at: words.at, id, vtable, follows_alike, on_stack }, &mut self.taken);
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
        let new = make(WordOrder::CapFirst, before, one, two);
        let old = two.and_then(|len| make(WordOrder::PointerFirst, one, len, three));
        let elected = elected(look);
        for (order, made) in [(WordOrder::CapFirst, new), (WordOrder::PointerFirst, old)] {
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

    /// Vote for the order of this triple's words. The weight of the vote is the evidence that the words point to text.
    fn vote(&mut self, look: &SearchInput<'_>, reader: &mut Reader<'_>, triple: &Triple) {
        if self.voted < VOTERS {
            self.voted += 1;
            let mut judged = triple.clone();
            judged.judge(reader);
            look.votes[triple.order as usize].fetch_add(judged.text_bits as u32, Ordering::Relaxed);
        }
    }

    /// Return the field in which the word at `at` lies; zero if the word lies in no block, or in a block that is too
    /// large for a struct.
    fn field(&mut self, look: &SearchInput<'_>, place: WordPlace, at: u64) -> u64 {
        let WordPlace::Block(address) = place else { return 0 };
        if self.last.0 != address {
            let usable = look.block_from(address).map_or(0, |(_, block)| block.end - block.address);
            self.last = (address, usable);
        }
        match self.last.1 {
            usable @ 1..=LARGEST_STRUCT => field(usable, at - address),
            _ => 0,
        }
    }

    fn table(&mut self, words: &PointerWords<'_>) {
        let [Some(one), Some(two), Some(before)] = [words.after(1), words.after(2), words.before(1).or(Some(0))] else {
            return;
        };
        // The mask follows the pointer. With older versions of rustc it precedes the pointer.
        let is_new = words.after(3).is_some_and(|three| is_table(one, two, three));
        if words.word % 16 == 0 && (is_new || is_table(before, one, two)) {
            keep(&mut self.tables, words.at, &mut self.taken);
        }
    }

    fn root(&mut self, words: &PointerWords<'_>, block: &Block) {
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
fn elected(look: &SearchInput<'_>) -> Option<WordOrder> {
    let [new, old] =
        [WordOrder::CapFirst, WordOrder::PointerFirst].map(|order| look.votes[order as usize].load(Ordering::Relaxed));
    match new.abs_diff(old) >= MAJORITY {
        true => Some(if new > old { WordOrder::CapFirst } else { WordOrder::PointerFirst }),
        false => None,
    }
}

/// Return the length that words near a pointer and a capacity may state; 0 if no word fits. {capacity, pointer, head,
/// length} is a VecDeque since 1.67, {tail, head, pointer, capacity} a VecDeque up to 1.66, and {pointer, capacity,
/// position, filled} a BufReader.
fn other_length(
    look: &SearchInput<'_>,
    words: &PointerWords<'_>,
    order: WordOrder,
    (cap, next): (u64, Option<u64>),
) -> u64 {
    let behind =
        next.filter(|length| *length <= cap && !(order == WordOrder::CapFirst && is_capacity(look, words, *length)));
    let ring = match (order, words.before(2), words.before(1)) {
        // If these words follow a pointer to a block, they belong to another Vec.
        (WordOrder::PointerFirst, Some(tail), Some(head))
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

/// Return whether the word `cap` after a triple is the capacity of another Vec that follows, and not a part of the
/// triple.
fn is_capacity(look: &SearchInput<'_>, words: &PointerWords<'_>, cap: u64) -> bool {
    let (Some(pointer), Some(len)) = (words.after(3), words.after(4)) else { return false };
    let block = look.block_from(pointer);
    block.is_some_and(|(_, block)| Triple::new(WordOrder::CapFirst, cap, len, look.requests(&block, true)).is_some())
}

/// Return whether these three numbers may be the mask of a hash table, its number of free slots and its number of
/// items.
pub(crate) fn is_table(mask: u64, left: u64, items: u64) -> bool {
    let is_mask = (3..u64::MAX / 2).contains(&mask) && (mask + 1).is_power_of_two();
    is_mask && left <= mask && items <= mask && left + items <= mask
}
