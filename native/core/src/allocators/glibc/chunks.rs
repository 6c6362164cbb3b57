//! The result of the walk over glibc's chunks, and queries on it.

use crate::allocators::block::UsedRange;
use crate::allocators::damage::Damage;
use crate::allocators::glibc::free_links::FreeLinks;
use crate::allocators::part::Part;
use crate::allocators::tally::Tally;
use crate::bits::Bits;
use gdbheap_access::bytes::{range_at, word_at};
use std::sync::{Mutex, OnceLock};

pub(crate) const GRAIN: u64 = 16;
pub(crate) const SMALLEST: u64 = 0x20;
/// The number of bytes between the start of a chunk and the address that malloc returned: `prev_size` and `size`.
pub const CHUNK_HEADER: u64 = 16;

/// Return whether malloc may have chosen a chunk with `usable` bytes for a request of `bytes`. malloc chooses the
/// smallest chunk that suffices. It also takes a chunk that is larger by GRAIN, because the remainder would be too
/// small for a chunk of its own.
pub(crate) fn may_be_given(usable: u64, bytes: u64) -> bool {
    const SIZE_FIELD: u64 = 8;
    let Some(chunk) = bytes.checked_add(SIZE_FIELD).and_then(|size| size.checked_next_multiple_of(GRAIN)) else {
        return false;
    };
    let least = chunk.max(SMALLEST) - SIZE_FIELD;
    usable == least || usable == least.saturating_add(GRAIN)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkState {
    Used = 0,
    Free = 1,
    Tcache = 2,
    Fast = 3,
    Top = 4,
    Fence = 5,
    /// Bytes that other code got from `sbrk`, between two stretches of the main arena.
    Foreign = 6,
    Unexplained = 7,
}

/// The names of states, in the order of `ChunkState`.
pub const STATES: [&str; 8] = ["used", "free", "tcache", "fast", "top", "fencepost", "foreign", "unexplained"];

impl ChunkState {
    /// Return the state as a `Part`, the kind of bytes that all allocators have in common.
    pub(crate) fn part(self) -> Part {
        match self {
            ChunkState::Used => Part::Used,
            ChunkState::Free | ChunkState::Fast => Part::Free,
            ChunkState::Tcache => Part::Cached,
            ChunkState::Top => Part::Top,
            ChunkState::Fence => Part::Header,
            ChunkState::Foreign => Part::Foreign,
            ChunkState::Unexplained => Part::Unexplained,
        }
    }
}

/// An address range [start, end) of one arena that has to be walked. `top` is the address of the arena's top chunk if
/// it lies in the range, else 0.
#[derive(Clone)]
pub struct Stretch {
    pub arena: u32,
    pub start: u64,
    pub end: u64,
    pub top: u64,
    /// For each fast bin of the arena, the address of its first chunk; 0 for an empty bin. The chunks of a bin have
    /// `(index + 2) * 16` bytes.
    pub fast: Vec<u64>,
}

/// A stretch that has been walked. The starts of its blocks are bits, one bit for every 16 bytes. A block ends where
/// the next one starts.
pub struct Region {
    pub(crate) stretch: Stretch,
    starts: Bits,
    low: Bits,
    high: Bits,
    /// The blocks that are not plain chunks, by ascending address: the top chunk, fenceposts, and bytes that are
    /// foreign or unexplained.
    special: Vec<(u64, ChunkState)>,
    /// Used chunks that may be in a fast bin, because they have the size of a fast bin that is not empty. The list is
    /// emptied when the fast bins are followed.
    pub(crate) links: Vec<Link>,
    /// The first bytes of chunks that may hold a Python object; None if there are too many such chunks.
    pub(crate) heads: Option<Vec<ChunkHead>>,
    pub(crate) damage: Vec<Damage>,
    /// The links of free chunks, if the walk collected them. They are taken out when the bins are followed.
    pub(crate) free_links: Mutex<Option<FreeLinks>>,
    /// The first bit and the end bit of each block of a megabyte or more. Because of this list, no search has to go
    /// through the many bits of a large block.
    giants: OnceLock<Vec<(u64, u64)>>,
}

/// A block is giant if at least this many consecutive bitmap words contain no start of another block. A word has 64
/// bits for GRAIN bytes each, so it covers 1 KiB.
const GIANT_WORDS: usize = 1024;

impl Region {
    /// Make a region from bitmaps. Bits in `starts` mark the starts of blocks, bits in `low` mark free chunks.
    pub(crate) fn new(
        stretch: Stretch,
        starts: Bits,
        low: Bits,
        special: Vec<(u64, ChunkState)>,
        damage: Vec<Damage>,
    ) -> Region {
        let high = Bits::new((stretch.end - stretch.start) / GRAIN + 1);
        Region {
            stretch,
            starts,
            low,
            high,
            special,
            links: Vec::new(),
            heads: None,
            damage,
            free_links: Mutex::new(None),
            giants: OnceLock::new(),
        }
    }

    /// Return the number of the block at `address` within the stretch. The address must lie in the stretch.
    #[inline]
    pub(crate) fn index(&self, address: u64) -> u64 {
        (address - self.stretch.start) / GRAIN
    }

    pub(crate) fn address(&self, index: u64) -> u64 {
        self.stretch.start + index * GRAIN
    }

    pub(crate) fn mark(&mut self, address: u64, state: ChunkState) {
        let index = self.index(address);
        let code = state as u8;
        for (bits, on) in [(&mut self.low, code & 1), (&mut self.high, code >> 1 & 1)] {
            match on {
                1 => bits.set(index),
                _ => bits.clear(index),
            }
        }
    }

    fn state(&self, address: u64) -> ChunkState {
        let index = self.index(address);
        match (self.high.get(index), self.low.get(index)) {
            (false, false) => self.special_state(address).unwrap_or(ChunkState::Used),
            (false, true) => ChunkState::Free,
            (true, false) => ChunkState::Tcache,
            (true, true) => ChunkState::Fast,
        }
    }

    fn special_state(&self, address: u64) -> Option<ChunkState> {
        let found = self.special.binary_search_by_key(&address, |(start, _)| *start).ok()?;
        Some(self.special[found].1)
    }

    /// Return the start, end and state of the block that contains `address`; None outside the region.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, u64, ChunkState)> {
        if address < self.stretch.start || address >= self.stretch.end {
            return None;
        }
        let index = self.index(address);
        let giants = self.giants.get_or_init(|| self.find_giants());
        if let Some(found) = range_at(giants, index) {
            let (start, end) = (self.address(giants[found].0), self.address(giants[found].1).min(self.stretch.end));
            return Some((start, end, self.state(start)));
        }
        let index = self.starts.last_at(index)?;
        let start = self.address(index);
        Some((start, self.end_of(index), self.state(start)))
    }

    fn find_giants(&self) -> Vec<(u64, u64)> {
        let words = self.starts.words();
        let mut giants = Vec::new();
        let mut last: Option<usize> = None;
        let top = |at: usize| at as u64 * 64 + 63 - u64::from(words[at].leading_zeros());
        for (at, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
            if let Some(before) = last.filter(|before| at - before > GIANT_WORDS) {
                giants.push((top(before), at as u64 * 64 + u64::from(word.trailing_zeros())));
            }
            last = Some(at);
        }
        if let Some(before) = last.filter(|before| words.len() - before > GIANT_WORDS) {
            giants.push((top(before), words.len() as u64 * 64));
        }
        giants
    }

    fn end_of(&self, index: u64) -> u64 {
        self.starts.first_from(index + 1).map_or(self.stretch.end, |next| self.address(next))
    }

    /// Return every block that starts in the address range [from, to), in order.
    pub(crate) fn blocks(&self, from: u64, to: u64) -> Blocks<'_> {
        let from = from.clamp(self.stretch.start, self.stretch.end);
        let index = self.starts.first_from((from - self.stretch.start).div_ceil(GRAIN));
        let special = self.special.partition_point(|(start, _)| *start < from);
        Blocks { region: self, next: index, to, special }
    }

    /// Return the first bytes of those used chunks in [from, to) that may contain Python objects; None if these bytes
    /// were not kept.
    pub(crate) fn heads(&self, from: u64, to: u64) -> Option<impl Iterator<Item = &ChunkHead>> {
        let heads = self.heads.as_ref()?;
        let place = |address| heads.partition_point(|head| head.chunk < address);
        Some(heads[place(from)..place(to)].iter().filter(|head| self.state(head.chunk) == ChunkState::Used))
    }

    /// Count the blocks and bytes in each state. Examine the bits of 64 possible blocks at a time.
    fn tallies(&self) -> [Tally; STATES.len()] {
        let mut tallies = [Tally::default(); STATES.len()];
        let mut blocks = 0;
        for (index, starts) in self.starts.words().iter().enumerate() {
            let (low, high) = (self.low.words()[index], self.high.words()[index]);
            blocks += u64::from(starts.count_ones());
            for (state, marked) in
                [(ChunkState::Free, low & !high), (ChunkState::Tcache, high & !low), (ChunkState::Fast, high & low)]
            {
                let mut left = marked;
                while left != 0 {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    let behind = starts & !(u64::MAX >> (63 - bit));
                    tallies[state as usize].add(match behind {
                        0 => self.size_at(index as u64 * 64 + u64::from(bit)),
                        _ => u64::from(behind.trailing_zeros() - bit) * GRAIN,
                    });
                }
            }
        }
        for (address, state) in &self.special {
            tallies[*state as usize].add(self.size_at(self.index(*address)));
        }
        let others = tallies.iter().fold(Tally::default(), |sum, tally| sum.with(tally));
        let first = self.starts.first_from(0).map_or(self.stretch.end, |index| self.address(index));
        tallies[ChunkState::Used as usize] =
            Tally { count: blocks - others.count, bytes: self.stretch.end - first - others.bytes };
        tallies
    }

    /// Return a bitmap in words of 64 bits, with one bit for each possible block. The bits of used blocks are set.
    pub(crate) fn used_words(&self) -> impl Iterator<Item = u64> + '_ {
        self.plain_words(|starts, low, high| starts & !(low | high))
    }

    /// Return a bitmap in words of 64 bits, with one bit for each possible block. The bits of free chunks that belong
    /// in a bin other than a fast bin are set.
    pub(crate) fn free_words(&self) -> impl Iterator<Item = u64> + '_ {
        self.plain_words(|starts, low, high| starts & low & !high)
    }

    /// Return a bitmap in words of 64 bits, with one bit for each possible block. `choose` computes each word from the
    /// same words of the bitmaps `starts`, `low` and `high`. The bits in `low` and `high` encode the state of a chunk.
    /// Blocks that are not plain chunks have no bit set.
    fn plain_words<'a>(&'a self, choose: impl Fn(u64, u64, u64) -> u64 + 'a) -> impl Iterator<Item = u64> + 'a {
        let mut special = self.special.iter().map(|(start, _)| self.index(*start)).peekable();
        self.starts.words().iter().enumerate().map(move |(place, starts)| {
            let mut chosen = choose(*starts, self.low.words()[place], self.high.words()[place]);
            while let Some(index) = special.next_if(|index| index / 64 == place as u64) {
                chosen &= !(1 << (index % 64));
            }
            chosen
        })
    }

    /// Return maximal runs of adjacent chunks that are free in bins or fast bins, as `(start, end, whether a chunk of
    /// the run is in a fast bin)`. malloc_consolidate() merges each run into one chunk.
    pub(crate) fn consolidated(&self) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = self.low.first_from(next)?;
            let (mut index, mut fast) = (first, false);
            let size = (self.stretch.end - self.stretch.start) / GRAIN;
            while index < size && self.low.get(index) {
                fast |= self.high.get(index);
                index = self.starts.first_from(index + 1).unwrap_or(size);
            }
            next = index;
            Some((self.stretch.start + first * GRAIN, self.stretch.start + index * GRAIN, fast))
        })
    }

    /// Return the address at which the top chunk starts once malloc_consolidate() has merged it with the free chunks
    /// below it.
    ///
    /// Return 0 if there is no top. The top stays as it is if none of these chunks is in a fast bin:
    /// malloc_consolidate() starts only from chunks in fast bins.
    pub(crate) fn top_after_consolidation(&self) -> u64 {
        let (mut at, mut fast) = (self.stretch.top, false);
        while let Some((start, _, state @ (ChunkState::Free | ChunkState::Fast))) = self.find(at.wrapping_sub(1)) {
            (at, fast) = (start, fast || state == ChunkState::Fast);
        }
        if fast {
            at
        } else {
            self.stretch.top
        }
    }

    fn size_at(&self, index: u64) -> u64 {
        self.end_of(index) - self.address(index)
    }

    /// Show the blocks that are not free, in order. `trimmed`: whether to assume that malloc_trim() also returns the
    /// memory of the top chunk.
    pub(crate) fn show_held(&self, trimmed: bool, mut show: impl FnMut(UsedRange)) {
        let top = self.top_after_consolidation();
        for (start, end, state) in self.all() {
            let ends = top != 0 && start >= top;
            if !(ends && trimmed) && (ends || !matches!(state, ChunkState::Free | ChunkState::Fast)) {
                let fixed = ends || !matches!(state, ChunkState::Used | ChunkState::Tcache);
                show(UsedRange { start, end, fixed, ends });
            }
        }
    }

    /// Show all parts of the stretch in address order, as start, end and kind.
    pub(crate) fn show_parts(&self, mut show: impl FnMut(u64, u64, Part)) {
        let mut at = self.stretch.start;
        for (start, end, state) in self.all() {
            if at < start {
                show(at, start, Part::Unexplained);
            }
            show(start, end, state.part());
            at = end;
        }
        if at < self.stretch.end {
            show(at, self.stretch.end, Part::Unexplained);
        }
    }

    pub(crate) fn all(&self) -> Blocks<'_> {
        self.blocks(self.stretch.start, self.stretch.end)
    }
}

pub(crate) struct Blocks<'a> {
    region: &'a Region,
    next: Option<u64>,
    to: u64,
    special: usize,
}

impl Iterator for Blocks<'_> {
    type Item = (u64, u64, ChunkState);

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next?;
        let region = self.region;
        let start = region.address(index);
        if start >= self.to {
            return None;
        }
        self.next = region.starts.first_from(index + 1);
        let end = self.next.map_or(region.stretch.end, |next| region.address(next));
        let state = match region.special.get(self.special) {
            Some((address, state)) if *address == start => {
                self.special += 1;
                *state
            }
            _ => match (region.high.get(index), region.low.get(index)) {
                (false, false) => ChunkState::Used,
                (false, true) => ChunkState::Free,
                (true, false) => ChunkState::Tcache,
                (true, true) => ChunkState::Fast,
            },
        };
        Some((start, end, state))
    }
}

/// A used chunk that may be in a fast bin, because it has the right size. `word`: the first word after the header,
/// which is the link if the chunk is in the bin. `tagged`: the chunk's address, with the number of the bin in the four
/// low bits.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) tagged: u64,
    pub(crate) word: u64,
}

/// The number of bytes at the start of a chunk that are kept. They include all bytes that may precede a Python object,
/// and the fields of the object that point to its buffers.
pub(crate) const HEAD_BYTES: usize = 112;

#[derive(Clone, Copy)]
pub(crate) struct ChunkHead {
    pub(crate) chunk: u64,
    pub(crate) size: u8,
    pub(crate) bytes: [u8; HEAD_BYTES],
}

impl ChunkHead {
    pub(crate) fn new(chunk: u64, known: &[u8]) -> ChunkHead {
        let mut bytes = [0; HEAD_BYTES];
        let size = known.len().min(HEAD_BYTES);
        bytes[..size].copy_from_slice(&known[..size]);
        ChunkHead { chunk, size: size as u8, bytes }
    }

    /// Return the first bytes of the chunk, as far as they could be read.
    pub(crate) fn known(&self) -> &[u8] {
        &self.bytes[..self.size as usize]
    }

    /// Return whether a block with these first bytes may contain a Python object. There are two such cases. Either a
    /// possible address of a type lies at offset 8, 24 or 40. Or the block begins with the words of Python's debug
    /// hooks, and the address of a type comes after them.
    #[inline]
    pub(crate) fn may_be_object(known: &[u8], user_end: u64) -> bool {
        let is_pointer = |word: u64| word % 8 == 0 && (0x10000..user_end).contains(&word);
        [8, 24, 40].into_iter().any(|at| word_at(known, at).is_some_and(is_pointer))
            || word_at(known, 8).is_some_and(is_padding)
    }
}

/// Return whether a word may be the second word that Python's debug hooks put before a block. That word is a letter,
/// then the same byte seven times.
#[inline]
pub(crate) fn is_padding(word: u64) -> bool {
    matches!(word as u8, b'o' | b'm' | b'r') && word >> 16 == (word << 8) >> 16
}

/// All blocks of all arenas of a target.
pub struct Chunks {
    pub(crate) regions: Vec<Region>,
    /// For each region, the number of its first block, a multiple of 64. One more entry at the end is the first number
    /// that is not used.
    pub(super) firsts: Vec<u64>,
    totals: OnceLock<Vec<RegionTotals>>,
}

type FoundChunk = Option<(u64, u64, &'static str)>;

/// A run of adjacent free chunks. `before` and `after` are the blocks next to the run as `(address, size, state)`; None
/// at an end of the region.
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    pub start: u64,
    pub end: u64,
    /// The index of the region that contains the hole.
    pub region: usize,
    pub before: FoundChunk,
    pub after: FoundChunk,
}

/// The number and the total size of the blocks of a region in each state.
#[derive(Clone, Copy, Debug)]
pub struct RegionTotals {
    pub arena: u32,
    pub start: u64,
    pub end: u64,
    /// The blocks in each state, in the order of `STATES`.
    pub states: [Tally; STATES.len()],
}

impl Chunks {
    pub(crate) fn new(regions: Vec<Region>) -> Chunks {
        let mut firsts = vec![0];
        let mut next = 0;
        for region in &regions {
            next += region.starts.words().len() as u64 * 64;
            firsts.push(next);
        }
        Chunks { regions, firsts, totals: OnceLock::new() }
    }

    pub(crate) fn region_of(&self, address: u64) -> Option<usize> {
        let index = self.regions.partition_point(|region| region.stretch.end <= address);
        (index < self.regions.len() && self.regions[index].stretch.start <= address).then_some(index)
    }

    /// Return the region that begins at `address`; None if there is none.
    pub(crate) fn region_from(&self, address: u64) -> Option<&Region> {
        let region = &self.regions[self.region_of(address)?];
        (region.stretch.start == address).then_some(region)
    }

    /// Return the number of the block whose user address is `address`; None if the address cannot be that of a block.
    #[inline(always)]
    pub(crate) fn number_from(&self, address: u64) -> Option<u64> {
        let chunk = address.checked_sub(CHUNK_HEADER)?;
        let place = self.region_of(chunk)?;
        let region = &self.regions[place];
        ((chunk - region.stretch.start) % GRAIN == 0).then(|| self.firsts[place] + region.index(chunk))
    }

    pub(crate) fn locate(&self, address: u64) -> Option<(u64, u64, ChunkState)> {
        self.regions[self.region_of(address)?].find(address)
    }

    /// Return the block whose bytes include `address`; None outside all regions. The bytes of a used chunk include the
    /// first eight bytes of the next chunk's header.
    pub(crate) fn holder(&self, address: u64) -> Option<(u64, u64, ChunkState)> {
        self.locate(address.wrapping_sub(8)).or_else(|| self.locate(address))
    }

    /// Return the number and the total size of all used chunks.
    pub(crate) fn used(&self) -> Tally {
        let used = self.totals().iter().map(|totals| totals.states[ChunkState::Used as usize]);
        used.fold(Tally::default(), |sum, tally| sum.with(&tally))
    }

    /// Return the blocks of each region by state. They are counted at the first call.
    pub fn totals(&self) -> &[RegionTotals] {
        let row = |region: &Region| {
            let Stretch { arena, start, end, .. } = region.stretch;
            RegionTotals { arena, start, end, states: region.tallies() }
        };
        self.totals.get_or_init(|| self.regions.iter().map(row).collect())
    }

    /// Return whether an object may begin at `address`. A used chunk of at least `least` bytes must begin 16 to 80
    /// bytes before it. Only a few bits are looked up.
    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        let Some(region) = self.region_of(address).map(|index| &self.regions[index]) else { return false };
        (16..=80).step_by(8).any(|inside| {
            let Some(chunk) = address.checked_sub(inside).filter(|chunk| *chunk >= region.stretch.start) else {
                return false;
            };
            let index = region.index(chunk);
            let is_start = (chunk - region.stretch.start) % GRAIN == 0 && region.starts.get(index);
            is_start && !region.starts.any(index + 1, index + least / GRAIN) && region.state(chunk) == ChunkState::Used
        })
    }

    /// Return the block whose bytes include `address`, as (address of the chunk, size, state). A chunk's bytes are its
    /// size word and the bytes that malloc_usable_size counts. So they include the next chunk's prev_size, but not the
    /// chunk's own prev_size.
    pub fn find(&self, address: u64) -> FoundChunk {
        self.holder(address).map(|(start, end, state)| (start, end - start, STATES[state as usize]))
    }

    /// Return the number of the arena whose region contains `address`; None outside all regions.
    pub fn arena_of(&self, address: u64) -> Option<u32> {
        Some(self.regions[self.region_of(address)?].stretch.arena)
    }

    /// Return maximal runs of free chunks (bins, fast bins and thread caches) of at least `minimum` bytes.
    pub fn holes(&self, minimum: u64) -> Vec<Hole> {
        let mut holes = Vec::new();
        for (index, region) in self.regions.iter().enumerate() {
            holes_of(region, index, minimum, &mut holes);
        }
        holes
    }

    /// Return the damage that the walk found.
    pub fn damage(&self) -> impl Iterator<Item = &Damage> {
        self.regions.iter().flat_map(|region| &region.damage)
    }
}

fn holes_of(region: &Region, index: usize, minimum: u64, holes: &mut Vec<Hole>) {
    let mut before: FoundChunk = None;
    let mut open: Option<(u64, u64)> = None;
    let mut close = |open: &mut Option<(u64, u64)>, before: FoundChunk, after: FoundChunk| {
        if let Some((start, end)) = open.take().filter(|(start, end)| end - start >= minimum) {
            holes.push(Hole { start, end, region: index, before, after });
        }
    };
    for (start, end, state) in region.all() {
        if matches!(state, ChunkState::Free | ChunkState::Tcache | ChunkState::Fast) {
            open = Some((open.map_or(start, |(first, _)| first), end));
            continue;
        }
        let block = Some((start, end - start, STATES[state as usize]));
        close(&mut open, before, block);
        before = block;
    }
    close(&mut open, before, None);
}
