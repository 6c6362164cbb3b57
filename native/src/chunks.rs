//! The walk over glibc's chunks, and what is kept of it.
//!
//! A chunk, as it lies in memory (glibc 2.36, `p = malloc(24)` after a used chunk, header at p - 16):
//!
//! ```text
//! 0x..290: 00 00 00 00 00 00 00 00  21 00 00 00 00 00 00 00   prev_size | size, bits: 1 PREV_INUSE 2 IS_MMAPPED 4 NON_MAIN_ARENA
//! 0x..2a0: the 24 bytes of p, of which the last 8 lie in the next header's prev_size
//! ```
//!
//! In use is what the next chunk's PREV_INUSE says, minus the members of fast bins and thread caches: both look used.

use crate::bits::Bits;
use crate::space::Space;
use crate::window::Window;
use crate::work::{self, Cancelled, Control};
use pyo3::prelude::*;

pub const GRAIN: u64 = 16;
const SMALLEST: u64 = 0x20;
const PREV_INUSE: u64 = 1;
const SIZE_BITS: u64 = 7;
/// After damage: so many sound chunks in a row make an address a chunk again.
const SOUND_STEPS: u32 = 64;
const MOST_DAMAGE: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    Used = 0,
    Free = 1,
    Tcache = 2,
    Fast = 3,
    Top = 4,
    Fence = 5,
    /// Bytes between two stretches of the main arena that somebody else got from `sbrk`.
    Foreign = 6,
    Unexplained = 7,
}

pub const STATES: [&str; 8] = ["used", "free", "tcache", "fast", "top", "fencepost", "foreign", "unexplained"];

#[derive(Clone, Debug)]
pub struct Damage {
    pub address: u64,
    pub what: &'static str,
    pub expected: String,
    pub found: String,
}

/// A stretch of one arena to walk: [start, end), with the arena's top if it lies here (else 0).
#[derive(Clone, FromPyObject)]
pub struct Stretch {
    pub arena: u32,
    pub start: u64,
    pub end: u64,
    pub top: u64,
    /// Heads of the arena's fast bins (chunk addresses), by bin; size class `(index + 2) * 16`.
    pub fast: Vec<u64>,
    pub safe_linking: bool,
}

/// A walked stretch. Block starts are bits, one for 16 bytes; a block ends where the next one starts.
pub struct Region {
    pub stretch: Stretch,
    starts: Bits,
    low: Bits,
    high: Bits,
    /// Blocks that are no ordinary chunks, ascending.
    special: Vec<(u64, State)>,
    /// Used chunks of a size whose fast bin is not empty, with their link word; ascending.
    links: Vec<(u64, u64)>,
    /// The first bytes of chunks that may hold a Python object, unless there are too many of them.
    heads: Option<Vec<Head>>,
    pub damage: Vec<Damage>,
}

impl Region {
    fn new(mut stretch: Stretch) -> Region {
        let size = stretch.end - stretch.start;
        let fits = Bits::fits(3 * (size / GRAIN + 1));
        if !fits {
            stretch.end = stretch.start;
        }
        let bits = || Bits::new((stretch.end - stretch.start) / GRAIN + 1);
        let (starts, low, high) = (bits(), bits(), bits());
        let mut region = Region {
            stretch,
            starts,
            low,
            high,
            special: Vec::new(),
            links: Vec::new(),
            heads: Some(Vec::new()),
            damage: Vec::new(),
        };
        if !fits {
            let start = region.stretch.start;
            region.report(start, "size of a heap", "one that memory suffices for", format!("{size:#x}"));
        }
        region
    }

    fn index(&self, address: u64) -> u64 {
        (address - self.stretch.start) / GRAIN
    }

    fn put(&mut self, address: u64) {
        let index = self.index(address);
        self.starts.set(index);
    }

    fn put_special(&mut self, address: u64, state: State) {
        self.put(address);
        self.special.push((address, state));
    }

    fn mark(&mut self, address: u64, state: State) {
        let index = self.index(address);
        let code = state as u8;
        for (bits, on) in [(&mut self.low, code & 1), (&mut self.high, code >> 1 & 1)] {
            match on {
                1 => bits.set(index),
                _ => bits.clear(index),
            }
        }
    }

    fn state(&self, address: u64) -> State {
        let index = self.index(address);
        match (self.high.get(index), self.low.get(index)) {
            (false, false) => self.special_state(address).unwrap_or(State::Used),
            (false, true) => State::Free,
            (true, false) => State::Tcache,
            (true, true) => State::Fast,
        }
    }

    fn special_state(&self, address: u64) -> Option<State> {
        let found = self.special.binary_search_by_key(&address, |(start, _)| *start).ok()?;
        Some(self.special[found].1)
    }

    fn report(&mut self, address: u64, what: &'static str, expected: impl Into<String>, found: impl Into<String>) {
        if self.damage.len() < MOST_DAMAGE {
            self.damage.push(Damage { address, what, expected: expected.into(), found: found.into() });
        }
    }

    /// The block that holds `address`: its start, end and state.
    pub fn find(&self, address: u64) -> Option<(u64, u64, State)> {
        if address < self.stretch.start || address >= self.stretch.end {
            return None;
        }
        let index = self.starts.last_at(self.index(address))?;
        let start = self.stretch.start + index * GRAIN;
        Some((start, self.end_of(index), self.state(start)))
    }

    fn end_of(&self, index: u64) -> u64 {
        self.starts.first_from(index + 1).map_or(self.stretch.end, |next| self.stretch.start + next * GRAIN)
    }

    /// Every block that starts in [from, to), in order.
    pub fn blocks(&self, from: u64, to: u64) -> Blocks<'_> {
        let from = from.clamp(self.stretch.start, self.stretch.end);
        let index = self.starts.first_from((from - self.stretch.start).div_ceil(GRAIN));
        let special = self.special.partition_point(|(start, _)| *start < from);
        Blocks { region: self, next: index, to, special }
    }

    /// The heads of used chunks in [from, to) that may hold Python objects; None where they were not kept.
    pub fn heads(&self, from: u64, to: u64) -> Option<impl Iterator<Item = &Head>> {
        let heads = self.heads.as_ref()?;
        let place = |address| heads.partition_point(|head| head.chunk < address);
        Some(heads[place(from)..place(to)].iter().filter(|head| self.state(head.chunk) == State::Used))
    }

    pub fn all(&self) -> Blocks<'_> {
        self.blocks(self.stretch.start, self.stretch.end)
    }
}

pub struct Blocks<'a> {
    region: &'a Region,
    next: Option<u64>,
    to: u64,
    special: usize,
}

impl Iterator for Blocks<'_> {
    type Item = (u64, u64, State);

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next?;
        let region = self.region;
        let start = region.stretch.start + index * GRAIN;
        if start >= self.to {
            return None;
        }
        self.next = region.starts.first_from(index + 1);
        let end = self.next.map_or(region.stretch.end, |next| region.stretch.start + next * GRAIN);
        let state = match region.special.get(self.special) {
            Some((address, state)) if *address == start => {
                self.special += 1;
                *state
            }
            _ => match (region.high.get(index), region.low.get(index)) {
                (false, false) => State::Used,
                (false, true) => State::Free,
                (true, false) => State::Tcache,
                (true, true) => State::Fast,
            },
        };
        Some((start, end, state))
    }
}

/// One header as read: where, its two words, and the first word behind it.
#[derive(Clone, Copy)]
struct Header {
    address: u64,
    prev_size: u64,
    size_word: u64,
    link: u64,
}

impl Header {
    fn size(&self) -> u64 {
        self.size_word & !SIZE_BITS
    }

    fn prev_in_use(&self) -> bool {
        self.size_word & PREV_INUSE != 0
    }
}

struct Walk<'a> {
    control: &'a Control,
    region: Region,
    head: Head,
    window: Window<'a>,
    fast_sizes: u64,
    previous: Option<Header>,
}

impl<'a> Walk<'a> {
    fn new(space: &'a Space, stretch: Stretch, control: &'a Control) -> Walk<'a> {
        let fast_sizes = stretch
            .fast
            .iter()
            .enumerate()
            .filter(|(_, head)| **head != 0)
            .fold(0, |mask, (bin, _)| mask | 4u64 << bin);
        let window = Window::new(space, stretch.end);
        let head = Head { chunk: 0, size: 0, bytes: [0; HEAD_BYTES] };
        Walk { control, head, region: Region::new(stretch), window, fast_sizes, previous: None }
    }

    fn header(&mut self, address: u64) -> Option<Header> {
        let rest = self.region.stretch.end.saturating_sub(address);
        let bytes = self.window.bytes(address, if rest >= 24 { 24 } else { 16 }).ok()?;
        let link = if bytes.len() >= 24 { crate::u64_at(bytes, 16) } else { 0 };
        Some(Header { address, prev_size: crate::u64_at(bytes, 0), size_word: crate::u64_at(bytes, 8), link })
    }

    fn whole(mut self) -> Result<Region, Cancelled> {
        let end = self.region.stretch.end;
        let mut at = self.region.stretch.start;
        let mut reported = at;
        while at < end {
            at = self.step(at)?;
            if at - reported >= 1 << 20 {
                self.control.advance(at - reported)?;
                reported = at;
            }
        }
        self.control.advance(at - reported)?;
        Ok(self.region)
    }

    /// Takes the block at `at`; returns where the next one starts.
    fn step(&mut self, at: u64) -> Result<u64, Cancelled> {
        let stretch_end = self.region.stretch.end;
        let Some(header) = self.header(at).filter(|_| stretch_end - at >= GRAIN) else {
            return self.cut(at, "a chunk header", "bytes that can be read", "absent bytes");
        };
        if at == self.region.stretch.top {
            return Ok(self.take_top(header));
        }
        let size = header.size();
        if self.is_fence(&header) {
            self.settle_previous(&header);
            self.region.put_special(at, State::Fence);
            self.previous = None;
            return self.after_fence(at + GRAIN);
        }
        if size < SMALLEST || size % GRAIN != 0 || size > stretch_end - at {
            let most = stretch_end - at;
            return self.cut(
                at,
                "size of a chunk",
                &format!("16-aligned, 32 to {most}"),
                &format!("{:#x}", header.size_word),
            );
        }
        self.settle_previous(&header);
        self.region.put(at);
        self.previous = Some(header);
        if self.region.heads.is_some() {
            self.keep_head(at, size);
        }
        Ok(at + size)
    }

    fn take_top(&mut self, header: Header) -> u64 {
        let end = self.region.stretch.end;
        self.settle_previous(&header);
        self.region.put_special(header.address, State::Top);
        self.previous = None;
        let rest = end - header.address;
        if header.size() != rest {
            let found = format!("{:#x}", header.size());
            self.region.report(header.address, "size of the top chunk", format!("{rest:#x}"), found);
        }
        end
    }

    /// A fencepost: size 0x10, or 0 behind one and at the end of a thread heap.
    fn is_fence(&self, header: &Header) -> bool {
        let after_fence = || {
            let last = self.region.special.last();
            last.is_some_and(|(address, state)| *state == State::Fence && address + GRAIN == header.address)
        };
        header.size() == GRAIN || (header.size() == 0 && header.prev_in_use() && after_fence())
    }

    /// Behind a double fence in the middle of the main arena lie the bytes of a foreign `sbrk`.
    fn after_fence(&mut self, at: u64) -> Result<u64, Cancelled> {
        let fences = &self.region.special;
        let double = fences.len() >= 2
            && fences[fences.len() - 2].0 + GRAIN == at - GRAIN
            && fences[fences.len() - 2].1 == State::Fence;
        if !double || at >= self.region.stretch.end || self.header(at).is_some_and(|next| next.size() == GRAIN) {
            return Ok(at);
        }
        let next = self.next_sound(at)?;
        if next > at {
            self.region.put_special(at, State::Foreign);
        }
        Ok(next)
    }

    /// Remembers the first bytes of the chunk at hand, until it is known whether it is in use.
    fn keep_head(&mut self, at: u64, size: u64) {
        let bytes = self.window.available(at + 16, HEAD_BYTES.min(size as usize - 8));
        self.head.chunk = at;
        self.head.size = bytes.len() as u8;
        self.head.bytes[..bytes.len()].copy_from_slice(bytes);
        self.head.bytes[bytes.len()..].fill(0);
    }

    /// What the next header says of the chunk before it.
    fn settle_previous(&mut self, next: &Header) {
        let Some(previous) = self.previous else { return };
        if !next.prev_in_use() {
            self.region.mark(previous.address, State::Free);
            if next.prev_size != previous.size() {
                let (expected, found) = (format!("{:#x}", previous.size()), format!("{:#x}", next.prev_size));
                self.region.report(next.address, "prev_size behind a free chunk", expected, found);
            }
            return;
        }
        if let Some(heads) = self.region.heads.as_mut().filter(|_| self.head.may_be_object()) {
            match heads.len() < MOST_HEADS {
                true => heads.push(self.head),
                false => self.region.heads = None,
            }
        }
        let bin = previous.size() / GRAIN;
        if bin < 64 && self.fast_sizes >> bin & 1 == 1 {
            self.region.links.push((previous.address, previous.link));
        }
    }

    /// The walk cannot go on at `at`: reports why, and goes on at the next address that is a chunk again.
    fn cut(&mut self, at: u64, what: &'static str, expected: &str, found: &str) -> Result<u64, Cancelled> {
        self.region.report(at, what, expected, found);
        self.region.put_special(at, State::Unexplained);
        self.previous = None;
        self.next_sound(at + GRAIN)
    }

    /// The next address from which a walk reaches an end, or takes `SOUND_STEPS` sound chunks in a row.
    fn next_sound(&mut self, from: u64) -> Result<u64, Cancelled> {
        let end = self.region.stretch.end;
        let mut at = from;
        while at < end {
            if self.is_sound(at) {
                return Ok(at);
            }
            at += GRAIN;
            if at % (64 << 10) == 0 {
                self.control.advance(0)?;
            }
        }
        Ok(end)
    }

    fn is_sound(&mut self, start: u64) -> bool {
        let (end, top) = (self.region.stretch.end, self.region.stretch.top);
        let mut at = start;
        let mut before = 0;
        for _ in 0..SOUND_STEPS {
            let Some(header) = self.header(at) else { return false };
            let size = header.size();
            if before != 0 && !header.prev_in_use() && header.prev_size != before {
                return false;
            }
            if at == top {
                return size == end - at;
            }
            if size == GRAIN && before != 0 {
                // The end of a stretch of the main arena: a double fence.
                return self.header(at + GRAIN).is_some_and(|second| second.size() == GRAIN);
            }
            if size < SMALLEST || size % GRAIN != 0 || size > end - at {
                return false;
            }
            before = size;
            at += size;
            if at == end {
                return true;
            }
        }
        true
    }
}

/// So much of a chunk's memory is kept: what precedes a Python object, and its fields that own buffers.
pub const HEAD_BYTES: usize = 112;
/// Beyond so many the heads are read again when they are asked for.
const MOST_HEADS: usize = 1 << 17;

#[derive(Clone, Copy)]
pub struct Head {
    pub chunk: u64,
    pub size: u8,
    pub bytes: [u8; HEAD_BYTES],
}

impl Head {
    /// Whether a type's address may stand where the blocks of Python objects have it: 8, 24 or 40 bytes in.
    fn may_be_object(&self) -> bool {
        let pointer = |at| {
            let word = crate::u64_at(&self.bytes, at);
            word % 8 == 0 && (0x10000..1 << 47).contains(&word)
        };
        pointer(8) || pointer(24) || pointer(40)
    }
}

/// Every block of every arena of a target.
#[pyclass(frozen)]
pub struct Chunks {
    pub regions: Vec<Region>,
}

/// Blocks and bytes in one state.
#[derive(Clone, Copy, Default)]
pub struct Tally {
    pub count: u64,
    pub bytes: u64,
}

impl Tally {
    pub fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }

    pub fn add_many(&mut self, count: u64, bytes_each: u64) {
        self.count += count;
        self.bytes += count * bytes_each;
    }

    pub fn take(&mut self, bytes: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

type Found = Option<(u64, u64, &'static str)>;
/// A hole: start, end, region, and the blocks before and behind it (address, size, state) unless it touches an end.
type Hole = (u64, u64, usize, Found, Found);

/// Arena, start, end, and `(count, bytes)` by state in the order of STATES.
type RegionTotals = (u32, u64, u64, Vec<(u64, u64)>);

impl Chunks {
    pub fn region_of(&self, address: u64) -> Option<usize> {
        let index = self.regions.partition_point(|region| region.stretch.end <= address);
        (index < self.regions.len() && self.regions[index].stretch.start <= address).then_some(index)
    }

    pub fn locate(&self, address: u64) -> Option<(u64, u64, State)> {
        self.regions[self.region_of(address)?].find(address)
    }

    /// The block whose bytes hold `address`: a used chunk's reach eight bytes into the next header.
    pub fn holder(&self, address: u64) -> Option<(u64, u64, State)> {
        self.locate(address.wrapping_sub(8)).or_else(|| self.locate(address))
    }

    /// Whether a used chunk of at least `least` bytes has `address` 16 to 80 bytes in. Looks at a few bits only.
    pub fn holds_object(&self, address: u64, least: u64) -> bool {
        let Some(region) = self.region_of(address).map(|index| &self.regions[index]) else { return false };
        (16..=80).step_by(16).any(|inside| {
            let Some(chunk) = address.checked_sub(inside).filter(|chunk| *chunk >= region.stretch.start) else {
                return false;
            };
            let index = region.index(chunk);
            let is_start = (chunk - region.stretch.start) % GRAIN == 0 && region.starts.get(index);
            is_start && !region.starts.any(index + 1, index + least / GRAIN) && region.state(chunk) == State::Used
        })
    }

    /// Follows the fast bins by the links collected in the walk.
    fn follow_fast_bins(&mut self, space: &Space) {
        let mut seen = std::collections::HashSet::new();
        let heads: Vec<Stretch> = self.regions.iter().map(|region| region.stretch.clone()).collect();
        for stretch in heads.into_iter().filter(|stretch| seen.insert(stretch.arena)) {
            for head in &stretch.fast {
                self.follow_fast_bin(space, *head, stretch.safe_linking);
            }
        }
        self.regions.iter_mut().for_each(|region| region.links = Vec::new());
    }

    fn follow_fast_bin(&mut self, space: &Space, head: u64, safe_linking: bool) {
        let mut at = head;
        while at != 0 {
            let Some(index) = self.region_of(at) else { return self.report_link(head, at, "a chunk of this arena") };
            let region = &mut self.regions[index];
            let found = region.find(at);
            if found.map(|(start, _, state)| (start, state)) != Some((at, State::Used)) {
                return self.report_link(head, at, "a used chunk, once");
            }
            region.mark(at, State::Fast);
            let link = match region.links.binary_search_by_key(&at, |(chunk, _)| *chunk) {
                Ok(place) => region.links[place].1,
                Err(_) => space.word(at + 16).unwrap_or(0),
            };
            at = reveal(link, at + 16, safe_linking);
        }
    }

    fn report_link(&mut self, head: u64, found: u64, expected: &'static str) {
        let index = self.region_of(head).unwrap_or(0);
        if let Some(region) = self.regions.get_mut(index) {
            region.report(head, "link of a fast bin", expected, format!("{found:#x}"));
        }
    }

    /// Follows one list of a thread cache; returns how many entries it took.
    fn follow_tcache(&mut self, space: &Space, entry: u64, count: u64, safe_linking: bool) -> u64 {
        let mut at = entry;
        for taken in 0..count {
            if at == 0 {
                return taken;
            }
            let chunk = at.wrapping_sub(16);
            let Some(index) = self.region_of(chunk) else { return taken };
            let region = &mut self.regions[index];
            if region.find(chunk).map(|(start, _, state)| (start, state)) != Some((chunk, State::Used)) {
                return taken;
            }
            region.mark(chunk, State::Tcache);
            let Ok(link) = space.word(at) else { return taken + 1 };
            at = reveal(link, at, safe_linking);
        }
        count
    }
}

/// glibc's REVEAL_PTR (2.32 and later).
fn reveal(link: u64, at: u64, safe_linking: bool) -> u64 {
    if safe_linking {
        link ^ (at >> 12)
    } else {
        link
    }
}

/// Walks every stretch. `caches`: the lists of all thread caches as `(first entry, entries)`.
/// Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (space, stretches, caches, safe_linking, progress=None))]
pub fn walk_chunks(
    py: Python<'_>,
    space: &Space,
    stretches: Vec<Stretch>,
    caches: Vec<(u64, u64)>,
    safe_linking: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Chunks, Vec<u64>)> {
    let stretches: Vec<Stretch> = stretches
        .into_iter()
        .filter(|stretch| stretch.start < stretch.end && stretch.start % GRAIN == 0 && stretch.fast.len() <= 16)
        .collect();
    let total = stretches.iter().map(|stretch| stretch.end - stretch.start).sum();
    let work = |done: &mut Vec<Region>, stretch: &Stretch, control: &Control| {
        done.push(Walk::new(space, stretch.clone(), control).whole()?);
        Ok(())
    };
    let done = work::run(py, space, progress, total, &stretches, Vec::new, work)?;
    let mut chunks = Chunks { regions: done.into_iter().flatten().collect() };
    chunks.regions.sort_by_key(|region| region.stretch.start);
    chunks.follow_fast_bins(space);
    let taken = caches.iter().map(|(entry, count)| chunks.follow_tcache(space, *entry, *count, safe_linking)).collect();
    Ok((chunks, taken))
}

#[pymethods]
impl Chunks {
    /// A row for each region: `(arena, start, end, [(count, bytes)] by state in the order of STATES)`.
    fn totals(&self, py: Python<'_>) -> Vec<RegionTotals> {
        py.detach(|| {
            self.regions
                .iter()
                .map(|region| {
                    let mut tallies = [Tally::default(); STATES.len()];
                    region.all().for_each(|(start, end, state)| tallies[state as usize].add(end - start));
                    let tallies = tallies.iter().map(|tally| (tally.count, tally.bytes)).collect();
                    (region.stretch.arena, region.stretch.start, region.stretch.end, tallies)
                })
                .collect()
        })
    }

    /// The block whose bytes hold each address: `(chunk address, size, state)`, or None outside every region. A chunk
    /// holds what malloc_usable_size says: from its size word to behind the next chunk's prev_size.
    fn find_many(&self, addresses: Vec<u64>) -> Vec<Found> {
        let named = |(start, end, state): (u64, u64, State)| (start, end - start, STATES[state as usize]);
        addresses.iter().map(|address| self.holder(*address).map(named)).collect()
    }

    /// The arena of the region that holds `address`.
    fn arena_of(&self, address: u64) -> Option<u32> {
        Some(self.regions[self.region_of(address)?].stretch.arena)
    }

    /// Maximal runs of free chunks (bins, fast bins and thread caches) of at least `minimum` bytes.
    fn holes(&self, py: Python<'_>, minimum: u64) -> Vec<Hole> {
        py.detach(|| {
            let mut holes = Vec::new();
            for (index, region) in self.regions.iter().enumerate() {
                holes_of(region, index, minimum, &mut holes);
            }
            holes
        })
    }

    /// Damage met by the walk: `(address, what, expected, found)`.
    #[getter]
    fn damage(&self) -> Vec<(u64, &'static str, String, String)> {
        let row = |damage: &Damage| (damage.address, damage.what, damage.expected.clone(), damage.found.clone());
        self.regions.iter().flat_map(|region| region.damage.iter().map(row)).collect()
    }
}

fn holes_of(region: &Region, index: usize, minimum: u64, holes: &mut Vec<Hole>) {
    let mut before: Found = None;
    let mut open: Option<(u64, u64)> = None;
    let mut close = |open: &mut Option<(u64, u64)>, before: Found, behind: Found| {
        if let Some((start, end)) = open.take().filter(|(start, end)| end - start >= minimum) {
            holes.push((start, end, index, before, behind));
        }
    };
    for (start, end, state) in region.all() {
        if matches!(state, State::Free | State::Tcache | State::Fast) {
            open = Some((open.map_or(start, |(first, _)| first), end));
            continue;
        }
        let block = Some((start, end - start, STATES[state as usize]));
        close(&mut open, before, block);
        before = block;
    }
    close(&mut open, before, None);
}
