//! A target made of bytes, a watcher who does not look, and chance that can be repeated.
#![allow(dead_code)]

use gdbheap_core::memory::{Source, Space};
use gdbheap_core::{Cancelled, Machine, Progress, Watcher};
use std::time::{SystemTime, UNIX_EPOCH};

/// The usual size of a page.
pub const PAGE: u64 = 4096;

/// x86-64, with pages of this size.
pub fn machine(page: u64) -> Machine {
    Machine::new(8, page, 1 << 47, u64::MAX).expect("a size that pages have")
}

/// Lets all work go on.
pub struct Unwatched;

impl Watcher for Unwatched {
    fn attend(&self, _: Option<Progress>) -> Result<(), Cancelled> {
        Ok(())
    }
}

/// Stretches of memory, ascending and disjoint.
#[derive(Clone, Default)]
pub struct Memory {
    pub stretches: Vec<(u64, Vec<u8>)>,
}

impl Memory {
    pub fn of(start: u64, bytes: Vec<u8>) -> Memory {
        Memory { stretches: vec![(start, bytes)] }
    }

    pub fn add(&mut self, start: u64, bytes: Vec<u8>) {
        self.stretches.push((start, bytes));
        self.stretches.sort_by_key(|(start, _)| *start);
    }

    fn place(&self, address: u64) -> Option<(usize, usize)> {
        let holds = |(start, bytes): &(u64, Vec<u8>)| *start <= address && address - start < bytes.len() as u64;
        let index = self.stretches.iter().position(holds)?;
        Some((index, (address - self.stretches[index].0) as usize))
    }

    pub fn put(&mut self, address: u64, word: u64) {
        self.put_bytes(address, &word.to_le_bytes());
    }

    pub fn put_half(&mut self, address: u64, half: u32) {
        self.put_bytes(address, &half.to_le_bytes());
    }

    pub fn put_bytes(&mut self, address: u64, bytes: &[u8]) {
        let (index, at) = self.place(address).expect("an address of this memory");
        self.stretches[index].1[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn word(&self, address: u64) -> u64 {
        let (index, at) = self.place(address).expect("an address of this memory");
        u64::from_le_bytes(self.stretches[index].1[at..at + 8].try_into().expect("eight bytes"))
    }

    pub fn space(&self) -> Space {
        let range = |(start, bytes): &(u64, Vec<u8>)| (*start, start + bytes.len() as u64);
        let ranges: Vec<(u64, u64)> = self.stretches.iter().map(range).collect();
        Space::for_remote(machine(PAGE), &ranges, Box::new(self.clone())).expect("disjoint stretches")
    }
}

impl Source for Memory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some((index, at)) = self.place(address) else { return 0 };
        let bytes = &self.stretches[index].1[at..];
        let size = bytes.len().min(buffer.len());
        buffer[..size].copy_from_slice(&bytes[..size]);
        size
    }
}

/// splitmix64: a few lines, and good enough to draw heaps.
pub struct Chance(u64);

impl Chance {
    /// A fresh seed, which a test that fails has printed; GDBHEAP_SEED repeats it.
    pub fn new(test: &str) -> Chance {
        let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
        let seed = std::env::var("GDBHEAP_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(fresh);
        println!("{test}: GDBHEAP_SEED={seed}");
        Chance(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end.max(1)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Words as hostile memory has them: pointers, sizes, small numbers, the edges of what a word can be.
    pub fn hostile(&mut self, near: u64) -> u64 {
        match self.below(8) {
            0 => self.word(),
            1 => self.below(64),
            2 => u64::MAX - self.below(64),
            3 => near.wrapping_add(self.below(1 << 16)),
            4 => near.wrapping_add(self.below(1 << 16)) & !15,
            5 => self.below(1 << 12) & !15 | self.below(8),
            6 => 1 << self.below(64),
            _ => 0,
        }
    }
}

/// A heap of glibc's, as it lies in memory, and what each chunk of it is.
pub struct Heap {
    pub memory: Memory,
    pub start: u64,
    pub end: u64,
    pub top: u64,
    /// Each chunk: address, size, free.
    pub chunks: Vec<(u64, u64, bool)>,
}

impl Heap {
    /// A main heap of at least `size` bytes at `start`. What is in used chunks looks like chunks as often as not.
    pub fn draw(chance: &mut Chance, start: u64, size: u64, largest: u64) -> Heap {
        let mut chunks: Vec<(u64, u64, bool)> = Vec::new();
        let mut at = start;
        while at < start + size {
            let large = chance.one_in(50);
            let units = if large { chance.between(2, largest / 16) } else { chance.between(2, 40) };
            let after_free = chunks.last().is_some_and(|(_, _, free)| *free);
            chunks.push((at, units * 16, !after_free && chance.one_in(4)));
            at += units * 16;
        }
        // What lies before the top is in use, or it would be part of the top.
        if let Some(last) = chunks.last_mut() {
            last.2 = false;
        }
        let (top, end) = (at, (at + 4096).next_multiple_of(4096));
        let mut memory = Memory::of(start, vec![0; (end - start) as usize]);
        let mut before = None;
        for (address, size, free) in &chunks {
            for word in (address + 16..address + size).step_by(8) {
                let value = chance.hostile(*address);
                memory.put(word, value);
            }
            head(&mut memory, *address, *size, before);
            before = free.then_some(*size);
        }
        head(&mut memory, top, end - top, None);
        Heap { memory, start, end, top, chunks }
    }
}

/// Writes a header; `before`: the size of the chunk before it if that is free.
fn head(memory: &mut Memory, address: u64, size: u64, before: Option<u64>) {
    if let Some(before) = before {
        memory.put(address, before);
    }
    memory.put(address + 8, size | u64::from(before.is_none()));
}
