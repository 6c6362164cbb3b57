//! Helpers of tests: a target made of bytes, a watcher that never cancels, and random numbers that can be repeated.
#![allow(dead_code, unused_imports)]

pub use chance::Chance;
use gdbheap_access::memory::{Source, Space};
pub use gdbheap_access::testing::NoWatcher;
use gdbheap_core::{Machine, EM_X86_64};

#[path = "../../../access/tests/support/chance.rs"]
mod chance;

/// The usual page size in bytes.
pub const PAGE: u64 = 4096;

/// Return a machine with pages of this size, and addresses of 47 bits.
pub fn machine(page: u64) -> Machine {
    Machine::new(EM_X86_64, 8, page, 1 << 47, u64::MAX).expect("a size that pages have")
}

/// A fake memory: ranges of bytes, ascending and disjoint.
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

/// A heap of glibc as it lies in memory, and the state of each of its chunks.
pub struct Heap {
    pub memory: Memory,
    pub start: u64,
    pub end: u64,
    pub top: u64,
    /// All chunks: address, size, and whether the chunk is free.
    pub chunks: Vec<(u64, u64, bool)>,
}

impl Heap {
    /// Make a main heap of at least `size` bytes at `start`. About half of the words in used chunks look like chunks.
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
        Heap::laid(chance, chunks)
    }

    /// Make a heap in which a few small chunks in use alternate with one free chunk of up to three pages.
    pub fn draw_islands(chance: &mut Chance, start: u64, size: u64, page: u64) -> Heap {
        let mut chunks: Vec<(u64, u64, bool)> = Vec::new();
        let mut at = start;
        while at < start + size {
            for _ in 0..chance.between(1, 6) {
                let size = 16 * chance.between(2, page / 64);
                chunks.push((at, size, false));
                at += size;
            }
            let size = 16 * chance.between(2, 3 * page / 16);
            chunks.push((at, size, true));
            at += size;
        }
        Heap::laid(chance, chunks)
    }

    /// Write adjacent chunks, ascending, and a top chunk after them.
    fn laid(chance: &mut Chance, mut chunks: Vec<(u64, u64, bool)>) -> Heap {
        // The chunk before the top is in use: if it were free, it would be a part of the top.
        if let Some(last) = chunks.last_mut() {
            last.2 = false;
        }
        let start = chunks.first().map_or(0, |chunk| chunk.0);
        let at = chunks.last().map_or(0, |chunk| chunk.0 + chunk.1);
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

/// Write the header of a chunk. `before`: the size of the previous chunk if that chunk is free.
fn head(memory: &mut Memory, address: u64, size: u64, before: Option<u64>) {
    if let Some(before) = before {
        memory.put(address, before);
    }
    memory.put(address + 8, size | u64::from(before.is_none()));
}
