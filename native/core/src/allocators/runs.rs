//! Runs of equal blocks: slabs, spans, groups. A large block is a run with one block.

use crate::allocators::block::Cell;
use crate::allocators::tally::Tally;
use crate::bits::{self, Bits};
use gdbheap_access::error::{Error, Result};
use gdbheap_access::memory::space::Space;

/// A run of `count` blocks of `stride` bytes each, without gaps. `start`: the address of the first block.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub start: u64,
    pub stride: u64,
    pub count: u64,
}

impl Run {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.count * self.stride
    }

    pub(crate) fn block(&self, number: u64) -> u64 {
        self.start + number * self.stride
    }
}

/// The largest number of bytes that are read at once, and the largest number of bytes that are read of one block.
const WINDOW: u64 = 256 << 10;

/// Show each used block of a run as its number in the run and its first bytes. Bytes that cannot be read are zeros.
/// Return the number of bytes that could not be read. `used` has one bit for each block; `bytes` is a scratch buffer.
pub(crate) fn show_equal(
    space: &Space,
    run: &Run,
    used: &[u64],
    bytes: &mut Vec<u8>,
    mut show: impl FnMut(u64, &[u8]),
) -> u64 {
    let in_window = (WINDOW / run.stride).max(1);
    let each = run.stride.min(WINDOW);
    bytes.resize((in_window * each) as usize, 0);
    let (mut first, mut end, mut unread) = (0, 0, 0);
    for number in bits::members(used) {
        if number >= end {
            (first, end) = (number, (number + in_window).min(run.count));
            let window = &mut bytes[..((end - first) * each) as usize];
            let got = space.fill_words(run.block(first), window);
            window[got..].fill(0);
            unread += (window.len() - got) as u64;
        }
        let at = ((number - first) * run.stride) as usize;
        show(number, &bytes[at..at + each as usize]);
    }
    unread
}

/// The runs of one allocator, ascending and disjoint, with a bit for each used block.
pub struct Runs {
    pub(crate) runs: Vec<Run>,
    /// For each run, the number of its first block: a multiple of 64.
    firsts: Vec<u64>,
    used: Bits,
    numbers: u64,
}

/// The number of bitmaps that an allocator needs at once: for blocks in use, for blocks in two kinds of caches, and for
/// blocks that the allocator uses itself.
const COPIES: u64 = 4;
/// The largest offset in a block, in bytes, at which an object may begin. Headers, such as a PyGC_Head, may precede it.
const OBJECT_AT: u64 = 80;

impl Runs {
    /// Make a store of runs. Each run is given with one bit for each used block. Fails if runs overlap, or if there is
    /// too little memory for the bits of all blocks.
    pub fn new(mut runs: Vec<(Run, Vec<u64>)>) -> Result<Runs> {
        runs.sort_unstable_by_key(|(run, _)| run.start);
        let fits = |run: &Run| {
            let size = run.count.checked_mul(run.stride);
            run.stride > 0 && size.is_some_and(|size| size > 0 && run.start.checked_add(size).is_some())
        };
        let numbers =
            runs.iter().try_fold(0u64, |sum, (run, _)| sum.checked_add(run.count.checked_next_multiple_of(64)?));
        let fits_whole = |numbers: &u64| numbers.checked_mul(COPIES).is_some_and(Bits::fits);
        let numbers = numbers.filter(fits_whole).ok_or(Error::Memory("there are too many blocks"))?;
        let apart = runs.windows(2).all(|pair| fits(&pair[0].0) && pair[0].0.end() <= pair[1].0.start);
        if !apart || !runs.last().is_none_or(|(run, _)| fits(run)) {
            return Err(Error::invalid("runs must hold blocks, and not overlap"));
        }
        let (mut words, mut firsts) = (Vec::with_capacity((numbers / 64) as usize), Vec::new());
        for (run, used) in &runs {
            let first = words.len() as u64 * 64;
            firsts.push(first);
            words.extend(used.iter().copied().chain(std::iter::repeat(0)).take(run.count.div_ceil(64) as usize));
            bits::clear_range(&mut words, first + run.count, first + run.count.next_multiple_of(64));
        }
        let runs = runs.into_iter().map(|(run, _)| run).collect();
        Ok(Runs { runs, firsts, used: Bits::of(words), numbers })
    }

    pub(crate) fn block_numbers(&self) -> u64 {
        self.numbers
    }

    #[inline]
    pub(crate) fn run_at(&self, address: u64) -> Option<usize> {
        let place = self.runs.partition_point(|run| run.end() <= address);
        self.runs.get(place).is_some_and(|run| run.start <= address).then_some(place)
    }

    /// Return the used block that contains `address`; None if there is none.
    #[inline]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        let place = self.run_at(address)?;
        let run = &self.runs[place];
        let inside = (address - run.start) / run.stride;
        let number = self.firsts[place] + inside;
        self.used.get(number).then(|| Cell::plain(number, run.block(inside), run.stride))
    }

    pub(crate) fn block_of(&self, number: u64) -> Cell {
        let place = self.firsts.partition_point(|first| *first <= number).saturating_sub(1);
        let run = &self.runs[place];
        Cell::plain(number, run.block(number - self.firsts[place]), run.stride)
    }

    pub(crate) fn first_block(&self, place: usize) -> u64 {
        self.firsts.get(place).copied().unwrap_or(self.numbers)
    }

    /// Mark the block with this number as free.
    pub(crate) fn clear(&mut self, number: u64) {
        self.used.clear(number);
    }

    pub(crate) fn used_words(&self) -> &[u64] {
        self.used.words()
    }

    pub(crate) fn used_blocks(&self) -> impl Iterator<Item = Cell> + '_ {
        bits::members(self.used.words()).map(|number| self.block_of(number))
    }

    /// Return the bitmap of a run's blocks, in which the bits of used blocks are set.
    pub(crate) fn used_of(&self, place: usize) -> &[u64] {
        let first = (self.firsts[place] / 64) as usize;
        &self.used.words()[first..first + self.runs[place].count.div_ceil(64) as usize]
    }

    pub(crate) fn count_of(&self, place: usize) -> u64 {
        self.used_of(place).iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Append to `found` the ranges [start, end) of those blocks of a run whose bits are set in `words`. `found` is
    /// ascending. Adjacent blocks are joined.
    pub(crate) fn add_ranges(&self, place: usize, words: &[u64], found: &mut Vec<(u64, u64)>) {
        let run = &self.runs[place];
        for number in bits::members(words) {
            match found.last_mut() {
                Some(last) if last.1 == run.block(number) => last.1 += run.stride,
                _ => found.push((run.block(number), run.block(number + 1))),
            }
        }
    }

    pub(crate) fn used(&self) -> Tally {
        let mut sum = Tally::default();
        self.runs.iter().enumerate().for_each(|(place, run)| sum.add_many(self.count_of(place), run.stride));
        sum
    }

    /// Show each used block of a run as its address and its bytes. Bytes that cannot be read are zeros. `bytes` is a
    /// scratch buffer.
    pub(crate) fn show_used(&self, space: &Space, place: usize, bytes: &mut Vec<u8>, mut show: impl FnMut(u64, &[u8])) {
        let run = &self.runs[place];
        show_equal(space, run, self.used_of(place), bytes, |number, head| show(run.block(number), head));
    }

    /// Return whether an object may begin at `address`: at most 80 bytes after the start of a used block. The block
    /// must have at least `least` bytes.
    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        self.block_at(address).is_some_and(|block| address - block.address <= OBJECT_AT && block.size >= least)
    }
}
