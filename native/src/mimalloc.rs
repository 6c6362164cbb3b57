//! CPython's own mimalloc: its segments, their pages, and which blocks are used.
//!
//! A segment is aligned to 32 MiB and begins with `mi_segment_t`: `used@208, cookie@216, segment_slices@224,
//! segment_info_slices@232, u32 kind@240, slice_entries@248, thread_id@256, slices[]@264`. A slice is 64 KiB; the entry of
//! a span's first one is its `mi_page_t`: `u32 slice_count@0, u32 slice_offset@4, bits@8 (the heap's tag from bit 3 on),
//! u16 capacity@10, u16 reserved@12, free@16, u32 used@24, u32 xblock_size@28, local_free@32, xthread_free@40 (two flags
//! below), xheap@48`. How long an entry is depends on the build. All this is 3.13's; in late 3.14 and in
//! 3.15 some of it lies elsewhere: see `Head::of` and `Page::parse_newer`. `used` counts blocks on `xthread_free`, and those
//! that wait on their heap's `thread_delayed_free`, too; here these are free.

use crate::bits::{self, Bits};
use crate::chunks::Tally;
use crate::space::Space;
use crate::work::{self, Control};
use pyo3::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

pub const ALIGNMENT: u64 = 32 << 20;
const SLICE: u64 = 64 << 10;
const ENTRIES: u64 = 512;
const LARGEST_HEAD: usize = 288;
const MOST_INFO_SLICES: u64 = 8;
const MOST_SEGMENT_SLICES: u64 = 1 << 26;
const HUGE_BLOCK: u64 = 1 << 31;
const MOST_DAMAGE: usize = 1000;
const MOST_WAITING: usize = 1 << 16;
/// A list is followed in a copy of the page if that is worth it: blocks of at most this size.
const MOST_BULK: u64 = 1024;
const OBJECT_AT: u64 = 80;

/// Where the Python side found things: bytes of `mi_page_t`, and the offset of `thread_delayed_free` in `mi_heap_t`.
#[derive(Clone, Copy, FromPyObject)]
pub struct MimallocLayout {
    pub entry: u64,
    pub delayed: u64,
    /// Whether each heap of a thread has its tag.
    pub tagged: bool,
    /// Whether it is that of late 3.14 and of 3.15.
    pub newer: bool,
}

/// Where the fields of `mi_segment_t` lie.
struct Head {
    used: usize,
    cookie: usize,
    /// `segment_slices`, then `segment_info_slices`, `kind`, `slice_entries`, `thread_id`, and `slices`.
    counts: usize,
    table: u64,
}

impl Head {
    fn of(newer: bool) -> Head {
        match newer {
            false => Head { used: 208, cookie: 216, counts: 224, table: 264 },
            true => Head { used: 216, cookie: 224, counts: 248, table: 288 },
        }
    }
}

/// A page: blocks of one size in a span of slices.
#[derive(Clone, Copy)]
pub struct Page {
    /// The first slice's and the last one's bounds.
    start: u64,
    end: u64,
    /// The first block.
    pub blocks: u64,
    pub size: u64,
    /// Blocks that were handed out at least once, and for how many there is room.
    pub capacity: u64,
    pub reserved: u64,
    /// What the page says of its used blocks.
    counted: u64,
    /// The three lists' heads.
    lists: [u64; 3],
    /// Which heap of a thread: 0 PyMem, 1 objects, 2 objects of the collector, 3 the same with a pre-header.
    pub tag: u8,
    heap: u64,
    entry: u64,
    /// Number of the first block among all; pages begin at multiples of 64.
    pub first: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Span {
    Info,
    Free,
    Page(usize),
    Unexplained,
}

pub struct Segment {
    pub address: u64,
    pub end: u64,
    thread: u64,
    spans: Vec<(u64, Span)>,
}

type Damage = (u64, &'static str, String, String);
/// What, expected, found; and whether a count is off by one.
type Fault = (&'static str, String, String, bool);

/// All of one mimalloc, by address.
#[pyclass(frozen)]
pub struct Mimalloc {
    pub segments: Vec<Segment>,
    pub pages: Vec<Page>,
    used: Bits,
    numbers: u64,
    tagged: bool,
    damage: Vec<Damage>,
    /// Pages whose lists do not fit their count, and whether they are off by one.
    miscounted: Vec<(Damage, bool)>,
}

const LISTS: [&str; 3] = ["free", "local_free", "xthread_free"];

impl Page {
    fn parse(bytes: &[u8], start: u64, end: u64, entry: u64, newer: bool) -> Page {
        if newer {
            return Page::parse_newer(bytes, start, end, entry);
        }
        let bits = bytes.get(8).copied().unwrap_or(0);
        let word = crate::u32_at(bytes, 10);
        let xblock = u64::from(crate::u32_at(bytes, 28));
        let size = if xblock < HUGE_BLOCK { xblock } else { end - start };
        // Small blocks do not begin where the slice does, so that not all of them fall on the same lines of the cache.
        let offset = if size <= 64 {
            3 * size
        } else if size <= 512 {
            size
        } else {
            0
        };
        Page {
            start,
            end,
            blocks: start + offset,
            size,
            capacity: u64::from(word & 0xffff),
            reserved: u64::from(word >> 16),
            counted: u64::from(crate::u32_at(bytes, 24)),
            lists: [crate::u64_at(bytes, 16), crate::u64_at(bytes, 32), crate::u64_at(bytes, 40) & !3],
            tag: bits >> 3 & 15,
            heap: crate::u64_at(bytes, 48),
            entry,
            first: 0,
        }
    }

    /// `free@16, local_free@24, u16 used@32, heap_tag@35, block_size@40, page_start@48, xthread_free@56, xheap@64`. A span
    /// without a page has the block size 0.
    fn parse_newer(bytes: &[u8], start: u64, end: u64, entry: u64) -> Page {
        let word = crate::u32_at(bytes, 10);
        let (size, blocks) = (crate::u64_at(bytes, 40), crate::u64_at(bytes, 48));
        let inside = (start..end).contains(&blocks);
        Page {
            start,
            end,
            blocks: if inside { blocks } else { end },
            size,
            capacity: u64::from(word & 0xffff),
            reserved: u64::from(word >> 16),
            counted: u64::from(crate::u32_at(bytes, 32) & 0xffff),
            lists: [crate::u64_at(bytes, 16), crate::u64_at(bytes, 24), crate::u64_at(bytes, 56) & !3],
            tag: bytes.get(35).copied().unwrap_or(0),
            heap: crate::u64_at(bytes, 64),
            entry,
            first: 0,
        }
    }

    fn fault(&self) -> Option<(&'static str, String, String)> {
        let room = (self.end - self.blocks) / self.size.max(1);
        if self.size < 8 || self.size % 8 != 0 {
            return Some(("xblock_size of a page", "a multiple of 8".into(), self.size.to_string()));
        }
        if self.reserved > room {
            return Some(("reserved blocks of a page", format!("at most {room}"), self.reserved.to_string()));
        }
        if self.capacity > self.reserved {
            return Some(("capacity of a page", format!("at most {}", self.reserved), self.capacity.to_string()));
        }
        let found = self.counted.to_string();
        (self.counted > self.capacity).then(|| ("used blocks of a page", format!("at most {}", self.capacity), found))
    }

    #[inline]
    fn number_at(&self, address: u64) -> Option<u64> {
        let number = address.checked_sub(self.blocks)? / self.size;
        (number < self.capacity).then_some(number)
    }

    /// The slices of the page.
    pub fn span(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    pub fn block(&self, number: u64) -> u64 {
        self.blocks + number * self.size
    }

    /// Calls `visit` for each block of a list; false where the list leaves the page, or meets itself.
    fn follow(&self, list: usize, link: impl Fn(u64) -> Option<u64>, mut visit: impl FnMut(u64) -> bool) -> bool {
        let mut at = self.lists[list];
        while at != 0 {
            match self.number_at(at).filter(|number| self.block(*number) == at) {
                Some(number) if visit(number) => {}
                _ => return false,
            }
            let Some(next) = link(at) else { return false };
            at = next;
        }
        true
    }

    /// The used blocks as bits, and what is wrong with the lists, if anything.
    fn used_bits(&self, space: &Space) -> (Vec<u64>, Option<Fault>) {
        let mut used = vec![u64::MAX; self.capacity.div_ceil(64) as usize];
        bits::clear_range(&mut used, self.capacity, self.capacity.next_multiple_of(64));
        let mut bytes = Vec::new();
        if self.size <= MOST_BULK && self.lists.iter().any(|list| *list != 0) {
            bytes.resize((self.capacity * self.size) as usize, 0);
            let got = space.fill(self.blocks, &mut bytes);
            bytes.truncate(got);
        }
        let link = |at: u64| match bytes.get((at - self.blocks) as usize..) {
            Some(rest) if rest.len() >= 8 => Some(crate::u64_at(rest, 0)),
            _ => space.word(at).ok(),
        };
        let (mut fault, mut waiting) = (None, 0);
        for (list, name) in LISTS.iter().enumerate() {
            let mut count = 0;
            let whole = self.follow(list, link, |number| {
                let is_new = bits::get(&used, number);
                bits::clear_range(&mut used, number, number + 1);
                count += u64::from(is_new);
                is_new
            });
            if !whole {
                let found = format!("it leaves the page or meets itself after {count}");
                fault =
                    fault.or(Some(("list of free blocks of a page", format!("{name} ends with zero"), found, false)));
            }
            waiting = count;
        }
        let left = used.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() + waiting;
        if left != self.counted {
            let found = format!("{} on no list but xthread_free", left);
            let is_one = left.abs_diff(self.counted) == 1;
            fault = fault.or(Some(("used blocks of a page", self.counted.to_string(), found, is_one)));
        }
        (used, fault)
    }
}

/// What one worker read: for each segment its place, itself, its pages with their used blocks, and damage.
type Read = (usize, Segment, Vec<(Page, Vec<u64>)>, Vec<Damage>, Vec<(Damage, bool)>);

fn read_segment(space: &Space, place: usize, address: u64, layout: &MimallocLayout) -> Read {
    let head = Head::of(layout.newer);
    let mut bytes = vec![0; (head.table + (ENTRIES + 1) * layout.entry) as usize];
    let got = space.fill(address, &mut bytes);
    bytes.truncate(got);
    let slices = crate::u64_at(&bytes, head.counts).min(MOST_SEGMENT_SLICES);
    let entries = crate::u64_at(&bytes, head.counts + 24).min(ENTRIES);
    let end = address.saturating_add(slices * SLICE);
    let mut segment = Segment { address, end, thread: crate::u64_at(&bytes, head.counts + 32), spans: Vec::new() };
    let (mut pages, mut damage, mut miscounted) = (Vec::new(), Vec::new(), Vec::new());
    let mut index = 0;
    while index < entries {
        let at = head.table + index * layout.entry;
        let entry = bytes.get(at as usize..(at + layout.entry) as usize).unwrap_or(&[]);
        let (count, offset) = (u64::from(crate::u32_at(entry, 0)), crate::u32_at(entry, 4));
        let start = address + index * SLICE;
        if count == 0 || offset != 0 || index + count > slices {
            let expected = format!("1 to {}", slices - index);
            damage.push((address + at, "slice_count of a page", expected, count.to_string()));
            segment.spans.push((start, Span::Unexplained));
            break;
        }
        let page = Page::parse(entry, start, start + count * SLICE, address + at, layout.newer);
        let fault = if index == 0 || page.size == 0 { None } else { page.fault() };
        segment.spans.push((
            start,
            match (index, page.size, &fault) {
                (0, ..) => Span::Info,
                (_, 0, _) => Span::Free,
                (.., Some(_)) => Span::Unexplained,
                _ => Span::Page(pages.len()),
            },
        ));
        if let Some((what, expected, found)) = fault {
            damage.push((address + at, what, expected, found));
        } else if index > 0 && page.size > 0 {
            let (used, fault) = page.used_bits(space);
            miscounted
                .extend(fault.map(|(what, expected, found, is_one)| ((page.entry, what, expected, found), is_one)));
            pages.push((page, used));
        }
        index += count;
    }
    let count = crate::u64_at(&bytes, head.used);
    if damage.is_empty() && count != pages.len() as u64 {
        damage.push((
            address + head.used as u64,
            "used pages of a segment",
            count.to_string(),
            pages.len().to_string(),
        ));
    }
    (place, segment, pages, damage, miscounted)
}

/// Reads every segment. `segments`: their addresses.
#[pyfunction]
pub fn read_mimalloc(
    py: Python<'_>,
    space: &Space,
    mut segments: Vec<u64>,
    layout: MimallocLayout,
) -> PyResult<Mimalloc> {
    segments.sort_unstable();
    let jobs: Vec<(usize, u64)> = segments.into_iter().enumerate().collect();
    let work = |parts: &mut Vec<Read>, (place, address): &(usize, u64), control: &Control| {
        parts.push(read_segment(space, *place, *address, &layout));
        control.advance(0)
    };
    let mut parts: Vec<_> = work::run(py, space, None, 0, &jobs, Vec::new, work)?.into_iter().flatten().collect();
    parts.sort_by_key(|(place, ..)| *place);
    let (mut segments, mut pages, mut words) = (Vec::<Segment>::new(), Vec::new(), Vec::new());
    let (mut damage, mut miscounted) = (Vec::new(), Vec::new());
    let starts: Vec<u64> = parts.iter().map(|(_, segment, ..)| segment.address).collect();
    for (place, mut segment, own, damaged, off) in parts {
        let limit = starts.get(place + 1).copied().unwrap_or(u64::MAX);
        if segment.end > limit {
            let found = format!("{:#x}", segment.end);
            damage.push((segment.address, "end of a segment", format!("at most {limit:#x}"), found));
            segment.end = limit;
        }
        for (_, span) in &mut segment.spans {
            if let Span::Page(index) = span {
                *index += pages.len();
            }
        }
        for (page, used) in own {
            pages.push(Page { first: words.len() as u64 * 64, ..page });
            words.extend(used);
        }
        segments.push(segment);
        damage.extend(damaged);
        miscounted.extend(off);
    }
    damage.truncate(MOST_DAMAGE);
    miscounted.truncate(MOST_DAMAGE);
    let numbers = words.len() as u64 * 64;
    let mut found =
        Mimalloc { segments, pages, used: Bits::of(words), numbers, tagged: layout.tagged, damage, miscounted };
    found.take_waiting(space, &layout);
    Ok(found)
}

impl Mimalloc {
    /// Blocks that other threads freed in full pages wait on the owning heap's list. Where a link leads to no block of
    /// the heap's pages the next one is still looked at, as long as it is in a segment: a page may be damaged.
    fn take_waiting(&mut self, space: &Space, layout: &MimallocLayout) {
        let heaps: BTreeSet<u64> = self.pages.iter().map(|page| page.heap).filter(|heap| *heap != 0).collect();
        for heap in heaps {
            let list = heap.wrapping_add(layout.delayed);
            let mut at = space.word(list).unwrap_or(0);
            let mut whole = true;
            for _ in 0..MOST_WAITING {
                if self.segment_at(at).is_none() {
                    break;
                }
                match self.waiting_block(heap, at) {
                    Some(number) => self.used.clear(number),
                    None => whole = false,
                }
                at = space.word(at).unwrap_or(0);
            }
            if !whole {
                let found = "a link to what is none".into();
                self.damage.push((list, "thread_delayed_free of a heap", "used blocks of its pages".into(), found));
            }
        }
    }

    /// The number of the used block at `address` in a page of `heap`.
    fn waiting_block(&self, heap: u64, address: u64) -> Option<u64> {
        let page = self.page_at(address).map(|index| &self.pages[index]).filter(|page| page.heap == heap)?;
        let number = page.number_at(address).filter(|number| page.block(*number) == address)?;
        Some(page.first + number).filter(|number| self.used.get(*number))
    }

    fn segment_at(&self, address: u64) -> Option<&Segment> {
        let place = self.segments.partition_point(|segment| segment.end <= address);
        self.segments.get(place).filter(|segment| segment.address <= address)
    }

    #[inline]
    fn page_at(&self, address: u64) -> Option<usize> {
        let place = self.pages.partition_point(|page| page.end <= address);
        self.pages.get(place).is_some_and(|page| page.start <= address).then_some(place)
    }

    /// The used block that holds `address`: number, address, size.
    #[inline]
    pub fn block_at(&self, address: u64) -> Option<(u64, u64, u64)> {
        let page = &self.pages[self.page_at(address)?];
        let number = page.number_at(address)?;
        let all = page.first + number;
        self.used.get(all).then(|| (all, page.block(number), page.size))
    }

    pub fn block_of_number(&self, number: u64) -> (u64, u64) {
        let place = self.pages.partition_point(|page| page.first <= number);
        let page = &self.pages[place.saturating_sub(1)];
        (page.block(number - page.first), page.size)
    }

    /// How many bits a number for each possible block takes.
    pub fn block_numbers(&self) -> u64 {
        self.numbers
    }

    /// The used blocks as words of 64 bits, by number.
    pub fn used_words(&self) -> &[u64] {
        self.used.words()
    }

    /// Number, address and size of every used block.
    pub fn used_blocks(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let of = |page| self.used_of(page).map(move |number: u64| (page.first + number, page.block(number), page.size));
        self.pages.iter().flat_map(of)
    }

    /// Shows the used blocks of a page, each with its address; what cannot be read is zeros. `bytes` is scratch.
    pub fn show_used(&self, space: &Space, page: &Page, bytes: &mut Vec<u8>, mut show: impl FnMut(u64, &[u8])) {
        bytes.resize((page.size * page.capacity) as usize, 0);
        let got = space.fill(page.blocks, bytes);
        bytes[got..].fill(0);
        for number in self.used_of(page) {
            let start = (number * page.size) as usize;
            show(page.block(number), &bytes[start..][..page.size as usize]);
        }
    }

    /// Numbers of the used blocks of a page within it, ascending.
    pub fn used_of<'a>(&'a self, page: &'a Page) -> impl Iterator<Item = u64> + 'a {
        let first = (page.first / 64) as usize;
        let words = self.used.words()[first..first + page.capacity.div_ceil(64) as usize].iter();
        words.enumerate().flat_map(|(index, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| u64::from(left.trailing_zeros()))?;
                left &= left - 1;
                Some(index as u64 * 64 + bit)
            })
        })
    }

    pub fn count_of(&self, page: &Page) -> u64 {
        let first = (page.first / 64) as usize;
        let words = &self.used.words()[first..first + page.capacity.div_ceil(64) as usize];
        words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether a used block of at least `least` bytes has `address` at its start or up to 80 bytes in.
    pub fn holds_object(&self, address: u64, least: u64) -> bool {
        let found = self.block_at(address);
        found.is_some_and(|(_, block, size)| address - block <= OBJECT_AT && size >= least)
    }

    /// Only free-threaded builds keep objects apart from PyMem's blocks.
    pub fn may_hold_objects(&self, page: &Page) -> bool {
        !self.tagged || page.tag != 0
    }

    /// Bytes of the blocks that may be objects.
    pub fn bytes_shown(&self) -> u64 {
        self.pages.iter().filter(|page| self.may_hold_objects(page)).map(|page| page.size * page.capacity).sum()
    }

    /// Up to `most` pages of each block size up to `largest`, spread over all, of those that may hold objects, each with
    /// how many it stands for.
    pub fn sample(&self, largest: u64, most: usize) -> Vec<(&Page, f64)> {
        let mut sizes: BTreeMap<u64, Vec<&Page>> = BTreeMap::new();
        let wanted = |page: &&Page| page.size <= largest && self.may_hold_objects(page);
        self.pages.iter().filter(wanted).for_each(|page| sizes.entry(page.size).or_default().push(page));
        sizes.values().flat_map(|pages| crate::sample::spread(pages, most)).collect()
    }

    pub fn used(&self) -> Tally {
        let mut sum = Tally::default();
        self.pages.iter().for_each(|page| sum.add_many(self.count_of(page), page.size));
        sum
    }

    /// Calls `visit(start, end, kind)` for the parts of a segment in order: kind used, free, `free span`, `segment
    /// header`, padding, unexplained.
    pub fn parts_of(&self, segment: &Segment, mut visit: impl FnMut(u64, u64, &'static str)) {
        let ends = segment.spans.iter().skip(1).map(|(start, _)| *start).chain([segment.end]);
        for ((start, span), end) in segment.spans.iter().zip(ends) {
            match span {
                Span::Info => visit(*start, end, "segment header"),
                Span::Free => visit(*start, end, "free span"),
                Span::Unexplained => visit(*start, end, "unexplained"),
                Span::Page(index) => self.parts_of_page(&self.pages[*index], &mut visit),
            }
        }
    }

    fn parts_of_page(&self, page: &Page, visit: &mut impl FnMut(u64, u64, &'static str)) {
        let mut part = |start: u64, end: u64, kind: &'static str| {
            if start < end {
                visit(start, end, kind);
            }
        };
        part(page.start, page.blocks, "padding");
        let mut at = 0;
        for number in self.used_of(page) {
            part(page.block(at), page.block(number), "free");
            part(page.block(number), page.block(number + 1), "used");
            at = number + 1;
        }
        part(page.block(at), page.block(page.reserved), "free");
        part(page.block(page.reserved), page.end, "padding");
    }

    fn holes_of(&self, segment: &Segment, minimum: u64, holes: &mut Vec<Hole>) {
        let (mut open, mut before): (Option<(u64, u64)>, Neighbour) = (None, None);
        let mut close = |open: Option<(u64, u64)>, before: Neighbour, behind: Neighbour| {
            if let Some((start, end)) = open.filter(|(start, end)| end - start >= minimum) {
                holes.push((start, end, before, behind));
            }
        };
        self.parts_of(segment, |start, end, kind| {
            if matches!(kind, "free" | "free span") {
                open = Some((open.map_or(start, |run| run.0), end));
                return;
            }
            let neighbour = Some((start, end - start, kind));
            close(open.take(), before, neighbour);
            before = neighbour;
        });
        close(open, before, None);
    }
}

type Neighbour = Option<(u64, u64, &'static str)>;
type Hole = (u64, u64, Neighbour, Neighbour);

#[pymethods]
impl Mimalloc {
    /// `(address, end, thread)` of every segment, by address; the thread is 0 where the one that had it is gone.
    fn segment_rows(&self) -> Vec<(u64, u64, u64)> {
        self.segments.iter().map(|segment| (segment.address, segment.end, segment.thread)).collect()
    }

    /// `(block size, pages, used blocks, free blocks)` of each block size, ascending.
    fn classes(&self) -> Vec<(u64, u64, u64, u64)> {
        let mut rows: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
        for page in &self.pages {
            let (row, used) = (rows.entry(page.size).or_default(), self.count_of(page));
            *row = (row.0 + 1, row.1 + used, row.2 + page.reserved.saturating_sub(used));
        }
        rows.into_iter().map(|(size, (pages, used, free))| (size, pages, used, free)).collect()
    }

    /// `(tag, pages, used blocks, their bytes, pages that no thread owns)` of each tag.
    fn heaps(&self) -> Vec<(u8, u64, u64, u64, u64)> {
        let mut rows: BTreeMap<u8, (u64, u64, u64, u64)> = BTreeMap::new();
        for page in &self.pages {
            let (row, used) = (rows.entry(page.tag).or_default(), self.count_of(page));
            let abandoned = u64::from(page.heap == 0);
            *row = (row.0 + 1, row.1 + used, row.2 + used * page.size, row.3 + abandoned);
        }
        rows.into_iter().map(|(tag, (pages, used, bytes, abandoned))| (tag, pages, used, bytes, abandoned)).collect()
    }

    /// Bytes of spans without a page, in all segments.
    #[getter]
    fn free_spans(&self) -> u64 {
        let mut sum = 0;
        for segment in &self.segments {
            let ends = segment.spans.iter().skip(1).map(|(start, _)| *start).chain([segment.end]);
            let free = segment.spans.iter().zip(ends).filter(|((_, span), _)| *span == Span::Free);
            sum += free.map(|((start, _), end)| end - start).sum::<u64>();
        }
        sum
    }

    #[getter]
    fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// What holds `address`: `(start, size, state, list)`; None outside every segment. The state is used, free, `free
    /// span`, `segment header`, padding or unexplained; the list that of a free block, None for one never handed out.
    fn find(&self, space: &Space, address: u64) -> Option<(u64, u64, &'static str, Option<&'static str>)> {
        let segment = self.segment_at(address)?;
        let page = self.page_at(address).map(|index| &self.pages[index]);
        if let Some((page, number)) = page.and_then(|page| Some((page, page.number_at(address)?))) {
            let is_used = self.used.get(page.first + number);
            let list = if is_used { None } else { list_of(space, page, number) };
            return Some((page.block(number), page.size, if is_used { "used" } else { "free" }, list));
        }
        let mut found = None;
        self.parts_of(segment, |start, end, kind| {
            if (start..end).contains(&address) {
                found = Some((start, end - start, kind, None));
            }
        });
        found
    }

    /// The used blocks `(address, size)` of the page whose slices hold `address`.
    fn used_in_page(&self, address: u64) -> Vec<(u64, u64)> {
        let Some(page) = self.page_at(address).map(|index| &self.pages[index]) else { return Vec::new() };
        self.used_of(page).map(|number| (page.block(number), page.size)).collect()
    }

    /// Damage met in segments: `(address, what, expected, found)`.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        self.damage.clone()
    }

    /// Pages whose lists do not fit their count, likewise; each with whether it is off by one, as a thread leaves it that
    /// stands inside mimalloc.
    #[getter]
    fn miscounted(&self) -> Vec<(Damage, bool)> {
        self.miscounted.clone()
    }

    /// Maximal runs of bytes that nobody holds, of at least `minimum`: `(start, end, before, behind)`, the neighbours as
    /// `(address, size, what)`.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<Hole>> {
        let mut holes = Vec::new();
        for segment in &self.segments {
            py.check_signals()?;
            self.holes_of(segment, minimum.max(1), &mut holes);
        }
        Ok(holes)
    }
}

fn list_of(space: &Space, page: &Page, wanted: u64) -> Option<&'static str> {
    let mut left = page.capacity;
    for (list, name) in LISTS.iter().enumerate() {
        let mut found = false;
        page.follow(
            list,
            |at| space.word(at).ok(),
            |number| {
                found |= number == wanted;
                left = left.saturating_sub(1);
                !found && left > 0
            },
        );
        if found {
            return Some(name);
        }
    }
    Some("thread_delayed_free")
}

/// A segment's header, as far as it is the same in all builds.
struct Header {
    slices: u64,
    info: u64,
    cookie: u64,
    used: u64,
    table: u64,
}

impl Header {
    fn read(space: &Space, address: u64, newer: bool) -> Option<Header> {
        let head = Head::of(newer);
        let mut bytes = [0; LARGEST_HEAD + 8];
        space.exact(address, &mut bytes).ok()?;
        let word = |offset| crate::u64_at(&bytes, offset);
        let (slices, info, kind, entries) =
            (word(head.counts), word(head.counts + 8), crate::u32_at(&bytes, head.counts + 16), word(head.counts + 24));
        let fits = kind <= 1
            && (1..=MOST_INFO_SLICES).contains(&info)
            && (info + 1..=MOST_SEGMENT_SLICES).contains(&slices)
            && entries == slices.min(ENTRIES)
            && (kind == 1 || slices == ENTRIES)
            && u64::from(crate::u32_at(&bytes, head.table as usize)) == info
            && crate::u32_at(&bytes, head.table as usize + 4) == 0;
        fits.then(|| Header {
            slices,
            info,
            cookie: word(head.cookie) ^ address,
            used: word(head.used),
            table: head.table,
        })
    }

    /// Whether the spans of the slices follow each other up to the end of the segment.
    fn tiles(&self, space: &Space, address: u64, entry: u64) -> bool {
        let (mut index, entries) = (self.info, self.slices.min(ENTRIES));
        while index < entries {
            let Ok(word) = space.word(address + self.table + index * entry) else { return false };
            if word >> 32 != 0 || word == 0 {
                return false;
            }
            index += word;
        }
        index == self.slices
    }
}

/// What looks like a segment's header at a multiple of 32 MiB in `ranges`: `(address, cookie ^ address, used pages, whether
/// its slices tile it by entries of `entry` bytes)`. One that was given back keeps its header for a while, and has no used
/// pages.
#[pyfunction]
pub fn find_segments(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    entry: u64,
    newer: bool,
) -> PyResult<Vec<(u64, u64, u64, bool)>> {
    let (mut found, mut at) = (Vec::new(), 0);
    for (start, end) in ranges {
        let mut address = start.max(at).next_multiple_of(ALIGNMENT);
        while let Some(next) = space.next_backed(address).and_then(|next| next.checked_next_multiple_of(ALIGNMENT)) {
            address = next;
            if address >= end {
                break;
            }
            py.check_signals()?;
            let mut size = 1;
            if let Some(header) = Header::read(space, address, newer) {
                let tiles = header.tiles(space, address, entry);
                found.push((address, header.cookie, header.used, tiles));
                // Nothing begins inside of a segment that is larger.
                size = if tiles && header.used > 0 { header.slices * SLICE } else { 1 };
            }
            let next = address.checked_add(size).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
            let Some(next) = next else { break };
            (address, at) = (next, next);
        }
    }
    Ok(found)
}
