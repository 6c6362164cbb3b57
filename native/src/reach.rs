//! Blocks that no known field claims, by who leads to them.
//!
//! From every place that is known (the fields of objects written in C, the state of modules, static data, stacks) the
//! words are followed to used blocks that are neither objects nor claimed, and from those on, nearest first. What is
//! reached belongs to whoever reached it first. A word that points into a block, tagged or not, counts only where none
//! points to its start.

use crate::heaps::{Heaps, Place};

/// So much of one block is followed.
const MOST_BYTES: u64 = 1 << 20;
const WINDOW: usize = 64 << 10;

#[derive(Clone, Copy)]
pub enum Owner {
    /// An object: the number of its type.
    Type(u32),
    /// A root: its number.
    Root(u32),
}

/// Bytes whose words are followed: [start, end) of `holder`, the object's address (for a root: the first word's).
#[derive(Clone, Copy)]
pub struct Lead {
    pub start: u64,
    pub end: u64,
    pub owner: Owner,
    pub holder: u64,
}

/// A block that was reached, and by whom.
#[derive(Clone, Copy)]
pub struct Reached {
    pub place: Place,
    pub address: u64,
    pub size: u64,
    pub owner: Owner,
    pub holder: u64,
}

pub struct Reach<'a> {
    heaps: &'a Heaps<'a>,
    bounds: (u64, u64),
    bytes: Vec<u8>,
    next: Vec<Lead>,
    inner: Vec<Reached>,
    pub reached: Vec<Reached>,
}

impl<'a> Reach<'a> {
    pub fn new(heaps: &'a Heaps<'a>) -> Reach<'a> {
        let bounds = heaps.bounds();
        Reach { heaps, bounds, bytes: vec![0; WINDOW], next: Vec::new(), inner: Vec::new(), reached: Vec::new() }
    }

    /// Follows `leads` in their order, then what they led to, until nothing new is found.
    pub fn run(&mut self, leads: Vec<Lead>) {
        let mut level = leads;
        while !level.is_empty() {
            level.iter().for_each(|lead| self.follow(lead));
            level = std::mem::take(&mut self.next);
            if level.is_empty() {
                std::mem::take(&mut self.inner).into_iter().for_each(|inner| self.take(inner));
                level = std::mem::take(&mut self.next);
            }
        }
    }

    fn follow(&mut self, lead: &Lead) {
        let end = match lead.owner {
            Owner::Type(_) => lead.end.min(lead.start + MOST_BYTES),
            Owner::Root(_) => lead.end,
        };
        let mut bytes = std::mem::take(&mut self.bytes);
        for at in (lead.start..end).step_by(WINDOW) {
            let size = (end - at).min(WINDOW as u64) as usize;
            let got = self.heaps.space.fill(at, &mut bytes[..size]);
            for (index, word) in bytes[..got].chunks_exact(8).enumerate() {
                let pointer = crate::u64_at(word, 0);
                if pointer >= self.bounds.0 && pointer < self.bounds.1 {
                    self.point(pointer, lead, at + index as u64 * 8);
                }
            }
        }
        self.bytes = bytes;
    }

    fn point(&mut self, pointer: u64, lead: &Lead, at: u64) {
        let Some((place, address, size)) = self.heaps.block_at(pointer) else { return };
        if !self.heaps.is_unknown(place) {
            return;
        }
        let holder = if lead.holder == 0 { at } else { lead.holder };
        let reached = Reached { place, address, size, owner: lead.owner, holder };
        match pointer == address {
            true => self.take(reached),
            false => self.inner.push(reached),
        }
    }

    fn take(&mut self, reached: Reached) {
        if !self.heaps.claim(reached.place) {
            return;
        }
        let Reached { place, address, size, owner, holder } = reached;
        self.reached.push(reached);
        let end = place.end(address, size).min(address + MOST_BYTES);
        self.next.push(Lead { start: address, end, owner, holder });
    }
}
