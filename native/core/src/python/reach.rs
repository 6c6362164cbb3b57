//! Blocks that no known field claims, by who leads to them.
//!
//! From every place that is known (the fields of objects written in C, the state of modules, static data, stacks) the
//! words are followed to used blocks that are neither objects nor claimed, and from those on, nearest first. What is
//! reached belongs to the first that reached it. Some words are believed last, because memory that was handed out is
//! not cleared and old pointers stay in it: those in blocks that look like data rather than like structures, those at
//! the very end of a block, then those that point into a block rather than to where something begins, and, after all
//! others, of these the ones that are doubtful too or point to no word: a short text in what was a pointer. Where the heap
//! lies below 4 GiB, words of static data and of stacks that may be numbers (strays.rs) come after all that: of what such
//! a word leads into it names one block at most.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::bytes::u64_at;
use crate::python::layout::{TypeLayout, ALL, NOTHING};
use crate::python::marks::Marks;
use crate::python::strays::{self, Sign, LOW, ROUND};
use crate::python::types::Types;

/// So much of a block that was reached is followed.
const MAX_BYTES: u64 = 1 << 20;
const WINDOW: usize = 64 << 10;
/// A block is up to so much larger than what was asked for.
const SLACK: u64 = 16;
const WORD: u64 = 8;
/// Words that are believed later than others, in this order: fields of objects that may be round numbers, what may be
/// older than its block, what points into a block, both, static data that may be numbers, and what surely may.
const ROUND_FIELD: usize = 0;
const DOUBTFUL: usize = 1;
const INNER: usize = 2;
const DOUBTFUL_INNER: usize = 3;
const LATE: usize = 4;
const STRAY: usize = 5;
const ORDERS: usize = 6;
const SMALL_NEGATIVE: u64 = (-1i64 << 31) as u64;

#[derive(Clone, Copy)]
pub(crate) enum Owner {
    /// An object: the number of its type.
    Type(u32),
    /// A root: its number.
    Root(u32),
}

/// Bytes whose words are followed: [start, end) of `holder`, the object's address (0 for a root: the word's own).
#[derive(Clone, Copy)]
pub(crate) struct PointerRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) owner: Owner,
    pub(crate) holder: u64,
    /// Which words: ALL, or the one at this offset, and so in each block that it leads to.
    pub(crate) follow: i32,
    /// What the blocks that it leads to are to their owner.
    pub(crate) role: u8,
    /// Where a chain of links ends; 0 if that is not known.
    pub(crate) last: u64,
    /// Words from here on may be older than the block.
    pub(crate) doubtful: u64,
}

impl PointerRange {
    pub(crate) fn from_block(start: u64, end: u64, owner: Owner, holder: u64, follow: (i32, u8)) -> PointerRange {
        let (follow, role) = follow;
        match u64::try_from(follow) {
            Ok(offset) => {
                let link = start + offset;
                PointerRange {
                    start: link,
                    end: end.min(link + 8),
                    owner,
                    holder,
                    follow,
                    role,
                    last: 0,
                    doubtful: u64::MAX,
                }
            }
            Err(_) => PointerRange { start, end, owner, holder, follow, role, last: 0, doubtful: u64::MAX },
        }
    }

    /// Whether its words lie outside of the heaps.
    fn is_outside(&self) -> bool {
        self.holder == 0
    }

    /// Whether its words are an object's own fields.
    fn is_of_object(&self) -> bool {
        matches!(self.owner, Owner::Type(_)) && self.doubtful == u64::MAX
    }

    /// The same with the types of objects numbered anew.
    pub(crate) fn renumbered(&self, numbers: &[u32]) -> PointerRange {
        let owner = match self.owner {
            Owner::Type(number) => Owner::Type(numbers[number as usize]),
            root => root,
        };
        PointerRange { owner, ..*self }
    }
}

/// A block that was reached, and by whom.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) block: Block,
    pub(crate) owner: Owner,
    pub(crate) holder: u64,
    pub(crate) role: u8,
    follow: i32,
    last: u64,
}

pub(crate) struct Reach<'a> {
    heaps: Heaps<'a>,
    marks: &'a Marks<'a>,
    bounds: (u64, u64),
    types: Types<'a>,
    bytes: Vec<u8>,
    next: Vec<PointerRange>,
    /// What words lead to that are believed later.
    later: [Vec<Reached>; ORDERS],
    pub(crate) reached: Vec<Reached>,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(heaps: Heaps<'a>, marks: &'a Marks<'a>, layout: &'a TypeLayout) -> Reach<'a> {
        Reach {
            heaps,
            marks,
            bounds: heaps.bounds(),
            types: Types::new(heaps, layout),
            bytes: vec![0; WINDOW],
            next: Vec::new(),
            later: Default::default(),
            reached: Vec::new(),
        }
    }

    /// Follows `leads` in their order, then what they led to, until nothing new is found.
    pub(crate) fn run(&mut self, leads: Vec<PointerRange>) {
        self.run_until(leads, ORDERS);
    }

    /// The same without what leads into a block, which waits for the next `run`.
    pub(crate) fn run_to_starts(&mut self, leads: Vec<PointerRange>) {
        self.run_until(leads, INNER);
    }

    fn run_until(&mut self, leads: Vec<PointerRange>, orders: usize) {
        let mut level = leads;
        loop {
            level.iter().for_each(|lead| self.follow(lead));
            level = std::mem::take(&mut self.next);
            for order in 0..orders {
                if level.is_empty() {
                    let later = std::mem::take(&mut self.later[order]);
                    level = self.believe(later);
                }
            }
            if level.is_empty() {
                break;
            }
        }
    }

    fn believe(&mut self, later: Vec<Reached>) -> Vec<PointerRange> {
        later.into_iter().for_each(|reached| self.take(reached));
        std::mem::take(&mut self.next)
    }

    fn follow(&mut self, lead: &PointerRange) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let space = self.heaps.space;
        space.show(lead.start, lead.end, &mut bytes, |at, bytes| {
            let is_data = lead.doubtful != u64::MAX && looks_like_data(bytes, space.machine.user_end);
            for (index, word) in bytes.chunks_exact(8).enumerate() {
                let pointer = u64_at(word, 0);
                if pointer >= self.bounds.0 && pointer < self.bounds.1 {
                    let address = at + index as u64 * 8;
                    self.point(pointer, lead, address, is_data || address >= lead.doubtful);
                }
            }
        });
        self.bytes = bytes;
    }

    /// Follows what a register of a thread of the root `number` holds, whose stack pointer is `at`.
    pub(crate) fn point_from_register(&mut self, value: u64, at: u64, number: u32) {
        if value >= self.bounds.0 && value < self.bounds.1 {
            let lead = PointerRange::from_block(at, at, Owner::Root(number), at, (ALL, 0));
            self.point(value, &lead, at, false);
        }
    }

    /// Makes a block that is known by its shape the owner's; it is not followed.
    pub(crate) fn give(&mut self, block: u64, owner: Owner) {
        let found = self.heaps.block_at(block).filter(|block| self.marks.is_unknown(block.place));
        if let Some(block) = found {
            self.take(Reached { block, owner, holder: block.address, role: 0, follow: NOTHING, last: 0 });
        }
    }

    fn point(&mut self, pointer: u64, lead: &PointerRange, at: u64, doubtful: bool) {
        let Some(block) = self.heaps.block_at(pointer) else { return };
        // An allocator's own pointers, also those that it left in what it handed out again, are to headers.
        if block.shares_header_at(pointer) || !self.marks.is_unknown(block.place) {
            return;
        }
        // A link leads to the start of a block or nowhere.
        let begins = pointer == block.address
            || lead.follow == ALL && strays::begins_inside(|at| self.heaps.space.word(at).ok(), &block, pointer);
        if !begins && lead.follow != ALL {
            return;
        }
        let holder = if lead.is_outside() { at } else { lead.holder };
        let PointerRange { owner, role, follow, last, .. } = *lead;
        let reached = Reached { block, owner, holder, role, follow, last };
        if lead.is_outside() && pointer < LOW {
            let sign = strays::sign(&mut self.types, &self.heaps, at, pointer, begins);
            return self.note(reached, sign);
        }
        let is_round = pointer < LOW && pointer % ROUND == 0 && lead.is_of_object();
        match begins {
            true if doubtful => self.later[DOUBTFUL].push(reached),
            true if is_round && follow == ALL => self.later[ROUND_FIELD].push(reached),
            true => self.take(reached),
            false if doubtful || pointer % WORD != 0 => self.later[DOUBTFUL_INNER].push(reached),
            false => self.later[INNER].push(reached),
        }
    }

    /// Notes what a word of static data or of a stack leads to that may be a number.
    fn note(&mut self, reached: Reached, sign: Sign) {
        match sign {
            Sign::Reference => self.take(reached),
            Sign::Late => self.later[LATE].push(reached),
            Sign::Stray => self.later[STRAY].push(Reached { follow: NOTHING, ..reached }),
            Sign::Nothing => (),
        }
    }

    fn take(&mut self, reached: Reached) {
        if !self.marks.claim(reached.block.place) {
            return;
        }
        let Reached { block: Block { address, end, .. }, owner, holder, role, follow, last } = reached;
        self.reached.push(reached);
        let mut lead = PointerRange::from_block(address, end.min(address + MAX_BYTES), owner, holder, (follow, role));
        lead.last = last;
        if follow == ALL {
            lead.doubtful = end - SLACK;
        }
        if last != address && follow != NOTHING {
            self.next.push(lead);
        }
    }
}

/// Whether more than a quarter of the words that are not zero are neither pointers nor small numbers.
fn looks_like_data(bytes: &[u8], user_end: u64) -> bool {
    let words = || bytes.chunks_exact(8).map(|word| u64_at(word, 0)).filter(|word| *word != 0);
    let others = words().filter(|word| (user_end..SMALL_NEGATIVE).contains(word)).count();
    others * 4 > words().count()
}
