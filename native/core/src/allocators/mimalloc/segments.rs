//! The segments of mimalloc, their pages and the used blocks of these.

use crate::allocators::block::Cell;
use crate::allocators::damage::{Damage, ABSENT, READABLE};
use crate::allocators::mimalloc::layout::{parse_page, Head, MimallocLayout, ENTRIES, MAX_SEGMENT_SLICES, SLICE};
use crate::allocators::mimalloc::page::{Miscounted, Page};
use crate::allocators::tally::Tally;
use crate::bits::{self, Bits};
use crate::bytes::{half_at, word_at};
use crate::error::Result;
use crate::memory::space::Space;
use crate::work::{Control, Watcher};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

const MAX_DAMAGE: usize = 1000;
const MAX_WAITING: usize = 1 << 16;
const OBJECT_AT: u64 = 80;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Span {
    Info,
    Free,
    Page(usize),
    Unexplained,
}

pub struct Segment {
    pub address: u64,
    pub end: u64,
    /// The thread that has it; 0 where that one is gone.
    pub thread: u64,
    pub(super) spans: Vec<(u64, Span)>,
}

/// All of one mimalloc, by address.
pub struct Mimalloc {
    pub(crate) segments: Vec<Segment>,
    pub(crate) pages: Vec<Page>,
    pub(super) used: Bits,
    numbers: u64,
    tagged: bool,
    /// What is wrong in segments.
    pub damage: Vec<Damage>,
    /// Pages whose lists do not agree with their count.
    pub miscounted: Vec<Miscounted>,
}

/// What one worker read of a segment: its place among all, itself, its pages with their used blocks, and damage.
struct Read {
    place: usize,
    segment: Segment,
    pages: Vec<(Page, Vec<u64>)>,
    damage: Vec<Damage>,
    miscounted: Vec<Miscounted>,
}

/// What a segment says of itself before its table.
struct Counts {
    slices: u64,
    entries: u64,
    thread: u64,
    used: u64,
}

impl Counts {
    /// None where the bytes end too early.
    fn of(bytes: &[u8], head: &Head) -> Option<Counts> {
        let word = |at: usize| word_at(bytes, at);
        Some(Counts {
            slices: word(head.counts)?.min(MAX_SEGMENT_SLICES),
            entries: word(head.counts + 24)?.min(ENTRIES),
            thread: word(head.counts + 32)?,
            used: word(head.used)?,
        })
    }
}

impl Read {
    fn new(place: usize, address: u64, end: u64, thread: u64) -> Read {
        let segment = Segment { address, end, thread, spans: Vec::new() };
        Read { place, segment, pages: Vec::new(), damage: Vec::new(), miscounted: Vec::new() }
    }

    fn report(&mut self, address: u64, what: &'static str, expected: impl Into<String>, found: impl Into<String>) {
        self.damage.push(Damage::new(address, what, expected, found));
    }

    /// The page of one entry, or what else its span is.
    fn add_page(&mut self, space: &Space, page: Page, is_first: bool) {
        let fault = if is_first || page.size == 0 { None } else { page.fault() };
        let span = match (is_first, page.size, &fault) {
            (true, ..) => Span::Info,
            (_, 0, _) => Span::Free,
            (.., Some(_)) => Span::Unexplained,
            _ => Span::Page(self.pages.len()),
        };
        self.segment.spans.push((page.start, span));
        if matches!(span, Span::Page(_)) {
            let (used, miscounted) = page.used_bits(space);
            self.miscounted.extend(miscounted);
            self.pages.push((page, used));
        }
        self.damage.extend(fault);
    }
}

fn read_segment(space: &Space, place: usize, address: u64, layout: &MimallocLayout) -> Read {
    let head = Head::of(layout.release);
    let mut bytes = vec![0; (head.table + (ENTRIES + 1) * layout.entry) as usize];
    let got = space.fill(address, &mut bytes);
    bytes.truncate(got);
    let Some(Counts { slices, entries, thread, used }) = Counts::of(&bytes, &head) else {
        let mut read = Read::new(place, address, address, 0);
        read.report(address, "header of a segment", READABLE, ABSENT);
        return read;
    };
    let mut read = Read::new(place, address, address.saturating_add(slices * SLICE), thread);
    let mut index = 0;
    while index < entries {
        let (at, start) = (head.table + index * layout.entry, address + index * SLICE);
        let entry = bytes.get(at as usize..).map(|rest| &rest[..rest.len().min(layout.entry as usize)]);
        let counts = entry.and_then(|entry| Some((entry, u64::from(half_at(entry, 0)?), half_at(entry, 4)?)));
        let Some((entry, count, offset)) = counts else {
            read.report(address + at, "entry of a page", READABLE, ABSENT);
            read.segment.spans.push((start, Span::Unexplained));
            break;
        };
        if count == 0 || offset != 0 || index + count > slices {
            let expected = format!("1 to {}", slices - index);
            read.report(address + at, "slice_count of a page", expected, count.to_string());
            read.segment.spans.push((start, Span::Unexplained));
            break;
        }
        match parse_page(entry, start, start + count * SLICE, address + at, layout.release) {
            Some(page) => read.add_page(space, page, index == 0),
            None => {
                read.report(address + at, "entry of a page", READABLE, ABSENT);
                read.segment.spans.push((start, Span::Unexplained));
            }
        }
        index += count;
    }
    if read.damage.is_empty() && used != read.pages.len() as u64 {
        let (at, found) = (address + head.used as u64, read.pages.len().to_string());
        read.report(at, "used pages of a segment", used.to_string(), found);
    }
    read
}

/// Reads every segment. `segments`: their addresses.
pub fn read_mimalloc(
    watcher: &dyn Watcher,
    space: &Space,
    mut segments: Vec<u64>,
    layout: MimallocLayout,
) -> Result<Mimalloc> {
    segments.sort_unstable();
    let jobs: Vec<(usize, u64)> = segments.into_iter().enumerate().collect();
    let work = |parts: &mut Vec<Read>, (place, address): &(usize, u64), control: &Control| {
        parts.push(read_segment(space, *place, *address, &layout));
        control.advance(0)
    };
    let mut parts: Vec<_> = space.task(watcher, None).run(&jobs, Vec::new, work)?.into_iter().flatten().collect();
    parts.sort_by_key(|read| read.place);
    let (mut segments, mut pages, mut words) = (Vec::<Segment>::new(), Vec::new(), Vec::new());
    let (mut damage, mut miscounted) = (Vec::new(), Vec::new());
    let starts: Vec<u64> = parts.iter().map(|read| read.segment.address).collect();
    for Read { place, mut segment, pages: own, damage: damaged, miscounted: off } in parts {
        let limit = starts.get(place + 1).copied().unwrap_or(u64::MAX);
        if segment.end > limit {
            let found = format!("{:#x}", segment.end);
            let expected = format!("at most {limit:#x}");
            damage.push(Damage::new(segment.address, "end of a segment", expected, found));
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
    damage.truncate(MAX_DAMAGE);
    miscounted.truncate(MAX_DAMAGE);
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
            let (mut next, mut whole) = (space.word(list), true);
            for _ in 0..MAX_WAITING {
                let Ok(at) = next else { break };
                if self.segment_at(at).is_none() {
                    break;
                }
                match self.waiting_block(heap, at) {
                    Some(number) => self.used.clear(number),
                    None => whole = false,
                }
                next = space.word(at);
            }
            let fault = match (whole, next) {
                (false, _) => Some(("used blocks of its pages", "a link to something else")),
                (_, Err(_)) => Some((READABLE, ABSENT)),
                _ => None,
            };
            if let Some((expected, found)) = fault {
                self.damage.push(Damage::new(list, "thread_delayed_free of a heap", expected, found));
            }
        }
    }

    /// The number of the used block at `address` in a page of `heap`.
    fn waiting_block(&self, heap: u64, address: u64) -> Option<u64> {
        let page = self.page_at(address).map(|index| &self.pages[index]).filter(|page| page.heap == heap)?;
        let number = page.number_at(address).filter(|number| page.block(*number) == address)?;
        Some(page.first + number).filter(|number| self.used.get(*number))
    }

    pub(super) fn segment_at(&self, address: u64) -> Option<&Segment> {
        let place = self.segments.partition_point(|segment| segment.end <= address);
        self.segments.get(place).filter(|segment| segment.address <= address)
    }

    #[inline]
    pub(super) fn page_at(&self, address: u64) -> Option<usize> {
        let place = self.pages.partition_point(|page| page.end <= address);
        self.pages.get(place).is_some_and(|page| page.start <= address).then_some(place)
    }

    /// The used block that holds `address`.
    #[inline]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        let page = &self.pages[self.page_at(address)?];
        let number = page.number_at(address)?;
        let all = page.first + number;
        self.used.get(all).then(|| Cell::plain(all, page.block(number), page.size))
    }

    pub(crate) fn block_of(&self, number: u64) -> Cell {
        let place = self.pages.partition_point(|page| page.first <= number);
        let page = &self.pages[place.saturating_sub(1)];
        Cell::plain(number, page.block(number - page.first), page.size)
    }

    /// How many bits a number for each possible block takes.
    pub(crate) fn block_numbers(&self) -> u64 {
        self.numbers
    }

    /// The used blocks as words of 64 bits, by number.
    pub(crate) fn used_words(&self) -> &[u64] {
        self.used.words()
    }

    /// Every used block.
    pub(crate) fn used_blocks(&self) -> impl Iterator<Item = Cell> + '_ {
        let of = |page: &'_ Page| {
            let page = *page;
            let cell = move |number| Cell::plain(page.first + number, page.block(number), page.size);
            bits::members(self.words_of(&page)).map(cell)
        };
        self.pages.iter().flat_map(of)
    }

    /// Shows the used blocks of a page, each with its address; what cannot be read is zeros. `bytes` is scratch.
    pub(crate) fn show_used(&self, space: &Space, page: &Page, bytes: &mut Vec<u8>, mut show: impl FnMut(u64, &[u8])) {
        bytes.resize((page.size * page.capacity) as usize, 0);
        let got = space.fill(page.blocks, bytes);
        bytes[got..].fill(0);
        for number in self.used_of(page) {
            let start = (number * page.size) as usize;
            show(page.block(number), &bytes[start..][..page.size as usize]);
        }
    }

    /// Numbers of the used blocks of a page within it, ascending.
    pub(crate) fn used_of<'a>(&'a self, page: &'a Page) -> impl Iterator<Item = u64> + 'a {
        bits::members(self.words_of(page))
    }

    /// The used blocks of a page as bits.
    pub(crate) fn words_of(&self, page: &Page) -> &[u64] {
        let first = (page.first / 64) as usize;
        &self.used.words()[first..first + page.capacity.div_ceil(64) as usize]
    }

    pub(crate) fn count_of(&self, page: &Page) -> u64 {
        self.words_of(page).iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether a used block of at least `least` bytes has `address` at its start or up to 80 bytes in.
    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        self.block_at(address).is_some_and(|block| address - block.address <= OBJECT_AT && block.size >= least)
    }

    /// Only free-threaded builds keep objects apart from PyMem's blocks.
    pub(crate) fn may_hold_objects(&self, page: &Page) -> bool {
        !self.tagged || page.tag != 0
    }

    /// Bytes of the blocks that may be objects.
    pub(crate) fn bytes_shown(&self) -> u64 {
        self.pages.iter().filter(|page| self.may_hold_objects(page)).map(|page| page.size * page.capacity).sum()
    }

    /// The pages that may hold objects, by their indices.
    pub(crate) fn object_pages(&self) -> impl Iterator<Item = (usize, &Page)> {
        self.pages.iter().enumerate().filter(|(_, page)| self.may_hold_objects(page))
    }

    pub(crate) fn used(&self) -> Tally {
        let mut sum = Tally::default();
        self.pages.iter().for_each(|page| sum.add_many(self.count_of(page), page.size));
        sum
    }

    /// All segments, by address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// `(block size, pages, used blocks, free blocks)` of each block size, ascending.
    pub fn classes(&self) -> Vec<(u64, u64, u64, u64)> {
        let mut rows: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
        for page in &self.pages {
            let (row, used) = (rows.entry(page.size).or_default(), self.count_of(page));
            *row = (row.0 + 1, row.1 + used, row.2 + page.reserved.saturating_sub(used));
        }
        rows.into_iter().map(|(size, (pages, used, free))| (size, pages, used, free)).collect()
    }

    /// `(tag, pages, used blocks, their bytes, pages that no thread owns)` of each tag.
    pub fn heaps(&self) -> Vec<(u8, u64, u64, u64, u64)> {
        let mut rows: BTreeMap<u8, (u64, u64, u64, u64)> = BTreeMap::new();
        for page in &self.pages {
            let (row, used) = (rows.entry(page.tag).or_default(), self.count_of(page));
            let abandoned = u64::from(page.heap == 0);
            *row = (row.0 + 1, row.1 + used, row.2 + used * page.size, row.3 + abandoned);
        }
        rows.into_iter().map(|(tag, (pages, used, bytes, abandoned))| (tag, pages, used, bytes, abandoned)).collect()
    }

    /// Bytes of spans without a page, in all segments.
    pub fn free_spans(&self) -> u64 {
        let mut sum = 0;
        for segment in &self.segments {
            let ends = segment.spans.iter().skip(1).map(|(start, _)| *start).chain([segment.end]);
            let free = segment.spans.iter().zip(ends).filter(|((_, span), _)| *span == Span::Free);
            sum += free.map(|((start, _), end)| end - start).sum::<u64>();
        }
        sum
    }
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// The used blocks `(address, size)` of the page whose slices hold `address`.
    pub fn used_in_page(&self, address: u64) -> Vec<(u64, u64)> {
        let Some(page) = self.page_at(address).map(|index| &self.pages[index]) else { return Vec::new() };
        self.used_of(page).map(|number| (page.block(number), page.size)).collect()
    }

    /// The `most` largest used blocks `(address, size)` of at least `least` bytes, largest first.
    pub fn largest_used(&self, least: u64, most: usize) -> Vec<(u64, u64)> {
        let large = self.pages.iter().filter(|page| page.size >= least);
        let of_page = |page| self.used_of(page).map(|number| (page.block(number), page.size));
        let mut found: Vec<(u64, u64)> = large.flat_map(of_page).collect();
        found.sort_unstable_by_key(|&(address, size)| (Reverse(size), address));
        found.truncate(most);
        found
    }
}
