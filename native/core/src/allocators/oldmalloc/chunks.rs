//! The chunks of musl's malloc before 1.2.1, by address.

use crate::allocators::block::Cell;
use crate::allocators::block_list::{BlockList, BlockQuery};
use crate::allocators::damage::Damage;
use crate::allocators::holes::{Hole, HoleFinder};
use crate::allocators::listing::BlockLister;
use crate::allocators::oldmalloc::layout::{GRAIN, HEADER};
use crate::allocators::part::Part;
use crate::allocators::tally::Tally;
use crate::bits::{self, Bits};
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::collections::BTreeMap;

const OBJECT_AT: u64 = 80;

/// An address range [start, end) of consecutive chunks. If it is a mapping with only one chunk, `base` is the start of
/// the mapping, and the chunk begins at `start`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) base: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The number of the first place in the range at which a chunk may begin.
    pub(crate) first: u64,
}

impl Stretch {
    pub(super) fn number(&self, address: u64) -> u64 {
        self.first + (address - self.start) / GRAIN
    }

    pub(super) fn numbers(&self) -> u64 {
        (self.end - self.start).div_ceil(GRAIN).next_multiple_of(64)
    }
}

/// All chunks of one malloc: in heaps, in ranges that the dynamic linker donated, and in mappings with one chunk each.
#[derive(Default)]
pub struct Oldmalloc {
    pub(crate) stretches: Vec<Stretch>,
    pub(super) starts: Bits,
    pub(super) used: Bits,
    pub(super) numbers: u64,
    pub damage: Vec<Damage>,
    /// Chunks that are free but in no bin, or that are in a bin but not free. A thread inside malloc may leave one such
    /// chunk.
    pub unbinned: Vec<Damage>,
}

impl Oldmalloc {
    #[inline]
    pub(super) fn stretch_at(&self, address: u64) -> Option<&Stretch> {
        let place = self.stretches.partition_point(|one| one.end <= address);
        self.stretches.get(place).filter(|one| one.start <= address)
    }

    fn end_of(&self, stretch: &Stretch, number: u64) -> u64 {
        let next = self.starts.first_from(number + 1).filter(|next| *next < stretch.first + stretch.numbers());
        next.map_or(stretch.end, |next| stretch.start + (next - stretch.first) * GRAIN)
    }

    fn cell(&self, stretch: &Stretch, number: u64) -> Cell {
        let (chunk, end) = (stretch.start + (number - stretch.first) * GRAIN, self.end_of(stretch, number));
        Cell { number, address: chunk + HEADER, size: end - chunk, end }
    }

    /// Return the chunk that contains `address`, whether it is used or free; None if there is none.
    fn chunk_at(&self, address: u64) -> Option<Cell> {
        let stretch = self.stretch_at(address)?;
        let number = self.starts.last_at(stretch.number(address)).filter(|number| *number >= stretch.first)?;
        Some(self.cell(stretch, number))
    }

    /// Return the used block that contains `address`; None if there is none.
    #[inline]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        self.chunk_at(address).filter(|cell| cell.address <= address && self.used.get(cell.number))
    }

    pub(crate) fn block_of(&self, number: u64) -> Cell {
        let place = self.stretches.partition_point(|one| one.first <= number).saturating_sub(1);
        self.cell(&self.stretches[place], number)
    }

    pub(crate) fn block_numbers(&self) -> u64 {
        self.numbers
    }

    pub(crate) fn used_words(&self) -> &[u64] {
        self.used.words()
    }

    pub(crate) fn used_blocks(&self) -> impl Iterator<Item = Cell> + '_ {
        bits::members(self.used.words()).map(|number| self.block_of(number))
    }

    /// Return the chunks of a stretch in order, as `(chunk, whether it is used)`.
    pub(crate) fn chunks_of<'a>(&'a self, stretch: &'a Stretch) -> impl Iterator<Item = (Cell, bool)> + 'a {
        let last = stretch.first + stretch.numbers();
        let mut next = self.starts.first_from(stretch.first);
        std::iter::from_fn(move || {
            let number = next.filter(|number| *number < last)?;
            next = self.starts.first_from(number + 1);
            Some((self.cell(stretch, number), self.used.get(number)))
        })
    }

    fn all(&self) -> impl Iterator<Item = (Cell, bool)> + '_ {
        self.stretches.iter().flat_map(|stretch| self.chunks_of(stretch))
    }

    pub(crate) fn used(&self) -> Tally {
        let mut sum = Tally::default();
        self.all().filter(|(_, used)| *used).for_each(|(cell, _)| sum.add(cell.size));
        sum
    }

    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        self.block_at(address)
            .is_some_and(|cell| address - cell.address <= OBJECT_AT && cell.end - cell.address >= least)
    }

    /// Return [start, end) of each mapping with only one chunk, and the size of this chunk. Freeing the chunk frees the
    /// mapping.
    pub(crate) fn wholes(&self) -> impl Iterator<Item = (u64, u64, Tally)> + '_ {
        let mapped = self.stretches.iter().filter(|one| one.base < one.start);
        mapped.map(|one| (one.base, one.end, Tally { count: 1, bytes: one.end - one.start }))
    }

    /// Show, in order, the parts of the heap or mapping that begins at `start`. Return its end, or None if none begins
    /// there.
    pub(crate) fn show_parts(&self, start: u64, mut show: impl FnMut(u64, u64, Part)) -> Option<u64> {
        let stretch = &self.stretches[self.stretches.binary_search_by_key(&start, |one| one.base).ok()?];
        if stretch.base < stretch.start {
            show(stretch.base, stretch.start, Part::Padding);
        }
        for (cell, used) in self.chunks_of(stretch) {
            if used {
                show(cell.address - HEADER, cell.address, Part::Header);
                show(cell.address, cell.end, Part::Used);
            } else {
                show(cell.address - HEADER, cell.end, Part::Free);
            }
        }
        Some(stretch.end)
    }
}

impl Oldmalloc {
    /// Return [start, end) of heaps, of ranges that the dynamic linker donated, and of mappings, ascending.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.stretches.iter().map(|one| (one.base, one.end)).collect()
    }

    /// Return `(size, used chunks, free chunks)` of each chunk size, ascending. Sizes include the header.
    pub fn sizes(&self) -> Vec<(u64, u64, u64)> {
        let mut sums: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (cell, used) in self.all() {
            let sum = sums.entry(cell.size).or_default();
            *(if used { &mut sum.0 } else { &mut sum.1 }) += 1;
        }
        sums.into_iter().map(|(size, (used, free))| (size, used, free)).collect()
    }

    /// Return the chunk that contains `address`: its user address, its size in bytes including the header, "used" or
    /// "free", and its end. Return None if there is no chunk.
    pub fn find(&self, address: u64) -> Option<(u64, u64, &'static str, u64)> {
        let cell = self.chunk_at(address)?;
        Some((cell.address, cell.size, if self.used.get(cell.number) { "used" } else { "free" }, cell.end))
    }
}

impl BlockLister for Oldmalloc {
    fn damage(&self) -> &[Damage] {
        &self.damage
    }

    fn holes(&self, watcher: &dyn Watcher, minimum: u64) -> Result<Vec<Hole>> {
        let mut found = HoleFinder::new(minimum);
        for stretch in &self.stretches {
            watcher.check()?;
            for (cell, used) in self.chunks_of(stretch) {
                let part = if used { Part::Used } else { Part::Free };
                found.add(cell.address - HEADER, cell.end, part, |_| (cell.address, cell.size, part.name()));
            }
            found.end_region(|_, _| None);
        }
        Ok(found.holes)
    }

    /// List the chunks that pass the filter; no chunk counts as cached.
    fn list_blocks(&self, asked: &BlockQuery) -> BlockList {
        let is_meant = |used: bool| asked.takes_part(if used { Part::Used } else { Part::Free });
        let meant = self.all().filter(|(cell, used)| is_meant(*used) && asked.takes(cell.size));
        asked.without_arenas(meant.map(|(cell, _)| (cell.address, cell.size)))
    }

    fn used_of_sizes(&self, least: u64, largest: u64) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        let used = self.all().filter(move |(cell, used)| *used && (least..=largest).contains(&cell.size));
        Box::new(used.map(|(cell, _)| (cell.address, cell.size)))
    }
}
