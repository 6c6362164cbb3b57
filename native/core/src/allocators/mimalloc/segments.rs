//! The segments of mimalloc, their pages, and the used blocks in the pages.

use crate::allocators::block::Cell;
use crate::allocators::damage::Damage;
use crate::allocators::evidence::Evidence;
use crate::allocators::mimalloc::areas::{read_areas, some_pages};
use crate::allocators::mimalloc::layout::{MimallocForm, SegmentFields, ENTRIES, HEAP_KEYS, MAX_SEGMENT_SLICES, SLICE};
use crate::allocators::mimalloc::page::{decoded, CountMismatch, Page};
use crate::allocators::mimalloc::spans::{Segment, SegmentContent, Span};
use crate::allocators::runs::show_equal;
use crate::allocators::slab::BlockSlab;
use crate::allocators::spread::spread;
use crate::allocators::tally::Tally;
use crate::bits::{self, Bits};
use gdbheap_access::bytes::{half_at, word_at};
use gdbheap_access::error::{Cancellation, MissingByte, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Steps, Watcher};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

const MAX_DAMAGE: usize = 1000;
/// The largest number of links that are followed on one list.
const MAX_WAITING: usize = 1 << 16;
/// The largest number of followed links, over all lists, that point to no used block.
const MAX_ASTRAY: u64 = 1 << 16;
const OBJECT_AT: u64 = 80;
/// The largest number of pages that are checked against a layout. SEGMENTS_ASKED is the limit for segments,
/// BLOCKS_ASKED the limit for the blocks of each page.
const PAGES_ASKED: usize = 128;
const SEGMENTS_ASKED: usize = 16;
const BLOCKS_ASKED: usize = 8;
/// The largest distance in bytes between the usual place of a heap's `thread_delayed_free` and its place in a padded
/// build.
const PADDED_TABLE: u64 = 16;

/// The memory of one heap of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUse {
    pub root: u32,
    /// The index of the heap among the heaps of its mimalloc.
    pub number: u32,
    /// The address of the heap; 0 for pages without a heap.
    pub heap: u64,
    pub pages: u64,
    /// The total size of the heap's pages with blocks in use.
    pub active: u64,
    /// The total size of the heap's pages without blocks in use.
    pub empty: u64,
    /// The total size of the heap's blocks in use.
    pub used: u64,
}

/// Return the sort key that groups pages by heap: the index of the mimalloc, then the heap's address minus one. Pages
/// without a heap come last.
fn owner_of(page: &Page) -> (u32, u64) {
    (page.root, page.heap.wrapping_sub(1))
}

/// All memory of one or more mimallocs, by address.
pub struct Mimalloc {
    pub(crate) segments: Vec<Segment>,
    pub(crate) pages: Vec<Page>,
    pub(super) used: Bits,
    numbers: u64,
    tagged: bool,
    /// The sort keys (`owner_of`) of the heaps that have pages, in order.
    owners: Vec<(u32, u64)>,
    /// For each mimalloc, whether its blocks record their requested size.
    padded: Vec<bool>,
    /// Damage in the segments.
    pub damage: Vec<Damage>,
    /// Pages whose lists contradict the page's count of used blocks.
    pub miscounted: Vec<CountMismatch>,
}

/// The fields of a segment's header that come before the table of slices.
struct Counts {
    slices: u64,
    entries: u64,
    thread: u64,
    used: u64,
}

impl Counts {
    /// Parse the fields from the bytes of a segment; None if the bytes end too early.
    fn of(bytes: &[u8], head: &SegmentFields) -> Option<Counts> {
        let word = |at: usize| word_at(bytes, at);
        Some(Counts {
            slices: word(head.counts)?.min(MAX_SEGMENT_SLICES),
            entries: word(head.counts + 24)?.min(ENTRIES),
            thread: word(head.counts + 32)?,
            used: word(head.used)?,
        })
    }
}

/// The table of a segment. An entry that begins a span contains a page, with its address range. The walk of the table
/// stops if the table ends too early (`Cut`), or if an entry is `Wrong`.
struct SegmentTable<'a> {
    bytes: &'a [u8],
    form: &'a MimallocForm,
    head: &'a SegmentFields,
    address: u64,
    counts: &'a Counts,
}

enum Entry {
    Page(Page),
    Cut,
    Wrong(u64, u32),
}

impl SegmentTable<'_> {
    /// Return the entry with this number, and the number of slices in its span.
    fn entry(&self, index: u64) -> (Entry, u64) {
        let (at, start) = (self.head.table + index * self.form.entry(), self.address + index * SLICE);
        let bytes = self.bytes.get(at as usize..).map(|rest| &rest[..rest.len().min(self.form.entry() as usize)]);
        let counted = bytes.and_then(|bytes| Some((bytes, half_at(bytes, 0)?, half_at(bytes, 4)?)));
        let Some((bytes, slices, offset)) = counted else { return (Entry::Cut, 0) };
        let count = u64::from(slices);
        if count == 0 || offset != 0 || index + count > self.counts.slices {
            return (Entry::Wrong(self.counts.slices - index, slices), 0);
        }
        match self.form.page(bytes, start, start + count * SLICE, self.address + at) {
            Some(page) => (Entry::Page(page), count),
            None => (Entry::Cut, count),
        }
    }
}

fn header(space: &Space, address: u64, form: &MimallocForm, head: &SegmentFields) -> (Vec<u8>, Option<Counts>) {
    let mut bytes = vec![0; (head.table + (ENTRIES + 1) * form.entry()) as usize];
    let got = space.fill(address, &mut bytes);
    bytes.truncate(got);
    let counts = Counts::of(&bytes, head);
    (bytes, counts)
}

/// Return the pages of a segment without checking them.
fn pages_of(space: &Space, address: u64, form: &MimallocForm, head: &SegmentFields) -> Vec<Page> {
    let (bytes, counts) = header(space, address, form, head);
    let (mut pages, mut index) = (Vec::new(), 0);
    let Some(counts) = counts else { return pages };
    let table = SegmentTable { bytes: &bytes, form, head, address, counts: &counts };
    while index < counts.entries {
        let (entry, count) = table.entry(index);
        match entry {
            Entry::Page(page) if index > 0 && page.size > 1 => pages.push(page),
            _ => (),
        }
        index += if count == 0 { break } else { count };
    }
    pages
}

fn read_segment(
    (space, evidence): (&Space, &Evidence),
    root: u32,
    address: u64,
    form: &MimallocForm,
    head: &SegmentFields,
    scratch: &mut Vec<u8>,
) -> SegmentContent {
    let (bytes, counts) = header(space, address, form, head);
    let Some(counts) = counts else {
        let mut read = SegmentContent::new(address, address, 0, root);
        read.damage.push(Damage::absent(address, "header of a segment"));
        return read;
    };
    let mut read = SegmentContent::new(address, address.saturating_add(counts.slices * SLICE), counts.thread, root);
    let table = SegmentTable { bytes: &bytes, form, head, address, counts: &counts };
    let mut index = 0;
    while index < counts.entries {
        let (entry, count) = table.entry(index);
        let at = address + head.table + index * form.entry();
        let start = address + index * SLICE;
        match entry {
            Entry::Page(page) => read.add_page((space, evidence), Page { root, ..page }, index == 0, scratch),
            Entry::Cut => read.damage.push(Damage::absent(at, "entry of a page")),
            Entry::Wrong(most, found) => {
                read.report(at, "slice_count of a page", format!("1 to {most}"), found.to_string());
            }
        }
        if !matches!(entry, Entry::Page(_)) {
            read.segment.spans.push((start, Span::Unexplained));
        }
        index += if count == 0 { break } else { count };
    }
    if index >= counts.entries && index < counts.slices {
        read.segment.spans.push((address + index * SLICE, Span::Info));
    }
    if read.damage.is_empty() && counts.used != read.pages.len() as u64 {
        let (at, found) = (address + head.used as u64, read.pages.len() as u64);
        let damage = Damage::new(at, "used pages of a segment", counts.used.to_string(), found.to_string());
        let by_one = found.abs_diff(counts.used) == 1;
        read.miscounted.push(CountMismatch { damage, by_one, passing: by_one });
    }
    read
}

/// The counts that show how well a layout (`MimallocForm`) fits the memory of a target.
///
/// `pages`: how many pages were checked; `fit`: how many of them agree with the layout, including their lists and
/// counts. `padded`: how many used blocks of the checked pages record their requested size; 0 unless most of them do.
/// `entries`: how many entries of a map were read; `placed`: for how many of these entries the layout finds a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fit {
    pub entries: u64,
    pub placed: u64,
    pub pages: u64,
    pub fit: u64,
    pub padded: u64,
}

/// Check how well a layout fits a sample of pages. `places`: the addresses of segments, or the address of a map of
/// pages.
pub fn fit_of(watcher: &dyn Watcher, space: &Space, form: &MimallocForm, places: &[u64]) -> Result<Fit> {
    let few: Vec<&u64> = places.iter().collect();
    let sample = spread(&few, SEGMENTS_ASKED);
    let (mut pages, mut entries) = (Vec::new(), 0);
    for (place, _) in sample {
        watcher.check()?;
        let (found, count) = match form.head() {
            Some(head) => (pages_of(space, *place, form, head), 0),
            None => some_pages(watcher, space, form, *place)?,
        };
        pages.extend(found);
        entries += count;
    }
    let placed = pages.len() as u64;
    // Pages whose lists are all empty do not show where blocks begin.
    let (telling, silent): (Vec<&Page>, Vec<&Page>) = pages.iter().partition(|page| page.lists != [0; 3]);
    let asked = spread(if telling.is_empty() { &silent } else { &telling }, PAGES_ASKED);
    let (mut bytes, mut blocks) = (Vec::new(), 0);
    let mut found = Fit { entries, placed, pages: asked.len() as u64, ..Fit::default() };
    for (page, _) in asked {
        watcher.check()?;
        if page.fault().is_some() {
            continue;
        }
        let (used, off) = page.used_bits(space, &mut bytes);
        found.fit += u64::from(off.is_none_or(|off| off.by_one));
        for number in bits::members(&used).take(BLOCKS_ASKED).filter(|_| form.has_keys()) {
            blocks += 1;
            found.padded += u64::from(page.asked(space, number).is_some());
        }
    }
    // A block that a thread is changing may lack the record of its size. The chance of a false record is one in 16
    // million.
    found.padded *= u64::from(found.padded * 2 > blocks);
    Ok(found)
}

/// Return the owners of the pages in a sample of segments, ascending: addresses of heaps, or ids of threads. The list
/// is empty for layouts with a map.
pub fn owners_of(space: &Space, form: &MimallocForm, places: &[u64]) -> Vec<u64> {
    let few: Vec<&u64> = places.iter().collect();
    let Some(head) = form.head() else { return Vec::new() };
    let pages = spread(&few, SEGMENTS_ASKED).into_iter().flat_map(|(place, _)| pages_of(space, *place, form, head));
    pages.map(|page| page.heap).collect::<BTreeSet<u64>>().into_iter().collect()
}

/// One mimalloc: the layout of its structures, and the addresses of its segments or of its map of pages.
pub struct MimallocRoot {
    pub form: &'static MimallocForm,
    /// Whether the blocks record their requested size.
    pub padded: bool,
    pub places: Vec<u64>,
}

/// Read all memory of several mimallocs.
pub fn read_mimalloc(watcher: &dyn Watcher, space: &Space, roots: &[MimallocRoot]) -> Result<Mimalloc> {
    let (mut reads, mut jobs, evidence) = (Vec::new(), Vec::new(), Evidence::default());
    for (root, number) in roots.iter().zip(0..) {
        match root.form.head() {
            Some(head) => jobs.extend(root.places.iter().map(|place| (number, *place, root.form, head))),
            None => {
                for map in &root.places {
                    reads.extend(read_areas(watcher, (space, &evidence), number, root.form, *map)?);
                }
            }
        }
    }
    type Job<'a> = (u32, u64, &'a MimallocForm, &'a SegmentFields);
    let work = |(parts, bytes): &mut (Vec<SegmentContent>, Vec<u8>),
                (number, address, form, head): &Job<'_>,
                control: &Control| {
        parts.push(read_segment((space, &evidence), *number, *address, form, head, bytes));
        control.advance(0)
    };
    reads.extend(space.task(watcher, None).run(&jobs, Default::default, work)?.into_iter().flat_map(|part| part.0));
    let mut found = Mimalloc::of(reads, roots);
    for (root, number) in roots.iter().zip(0..) {
        found.take_waiting(watcher, space, root.form, number)?;
    }
    Ok(found)
}

impl Mimalloc {
    fn of(mut reads: Vec<SegmentContent>, roots: &[MimallocRoot]) -> Mimalloc {
        reads.sort_by_key(|read| read.segment.address);
        let (mut segments, mut pages, mut words) = (Vec::<Segment>::new(), Vec::new(), Vec::new());
        let (mut damage, mut miscounted) = (Vec::new(), Vec::new());
        let limits: Vec<u64> = reads.iter().skip(1).map(|read| read.segment.address).chain([u64::MAX]).collect();
        for (mut read, limit) in reads.into_iter().zip(limits) {
            if read.segment.end > limit {
                read.cut(limit);
            }
            let own = read.segment.spans.iter_mut().filter_map(|(_, span)| match span {
                Span::Page(place) => Some(place),
                _ => None,
            });
            own.zip(pages.len()..).for_each(|(place, number)| *place = number);
            for (page, used) in read.pages {
                pages.push(Page { first: words.len() as u64 * 64, ..page });
                words.extend(used);
            }
            segments.push(read.segment);
            damage.extend(read.damage);
            miscounted.extend(read.miscounted);
        }
        damage.truncate(MAX_DAMAGE);
        miscounted.truncate(MAX_DAMAGE);
        let (numbers, tagged) = (words.len() as u64 * 64, roots.iter().any(|root| root.form.tagged));
        let padded = roots.iter().map(|root| root.padded).collect();
        let owners = pages.iter().map(owner_of).collect::<BTreeSet<(u32, u64)>>().into_iter().collect();
        Mimalloc { owners, padded, segments, pages, used: Bits::of(words), numbers, tagged, damage, miscounted }
    }
}

/// Decode a link in the list of a heap. If links are encoded, the heap's own keys are used.
fn heap_link(
    space: &Space,
    form: &MimallocForm,
    heap: u64,
    delayed: u64,
    word: u64,
) -> std::result::Result<u64, MissingByte> {
    if !form.encoded {
        return Ok(word);
    }
    let place = heap.wrapping_add(delayed + HEAP_KEYS);
    let keys = [space.word(place)?, space.word(place.wrapping_add(8))?];
    let link = decoded(word, keys);
    Ok(if link == heap { 0 } else { link })
}

impl Mimalloc {
    /// Mark as free the blocks that other threads freed in full pages and put on the owning heap's list
    /// (`thread_delayed_free`). A page may be damaged. Therefore a link to an address in a segment is followed even if
    /// no block of the heap's pages is there.
    fn take_waiting(&mut self, watcher: &dyn Watcher, space: &Space, form: &MimallocForm, root: u32) -> Result<()> {
        let Some(first) = form.delayed else { return Ok(()) };
        let own = self.pages.iter().filter(|page| page.root == root).map(|page| page.heap);
        let heaps: BTreeSet<u64> = own.filter(|heap| *heap != 0).collect();
        // In padded builds the table before the list is longer. In other builds the list is always at its usual place,
        // even if the list there is damaged.
        let moved = if form.has_keys() { PADDED_TABLE } else { 0 };
        let (mut best, mut least) = (first, (u64::MAX, Reverse(0)));
        for delayed in (first..=first + moved).step_by(8).filter(|_| moved > 0) {
            let (mut steps, mut wrong, mut blocks) = (Steps::new(watcher, MAX_ASTRAY), 0, 0);
            for heap in &heaps {
                let (found, fault) = self.waiting(&mut steps, space, form, (*heap, delayed))?;
                (wrong, blocks) = (wrong + u64::from(fault.is_some()), blocks + found.len());
            }
            if (wrong, Reverse(blocks)) < least {
                (best, least) = (delayed, (wrong, Reverse(blocks)));
            }
        }
        let mut steps = Steps::new(watcher, MAX_ASTRAY);
        for heap in heaps {
            let (blocks, fault) = self.waiting(&mut steps, space, form, (heap, best))?;
            blocks.into_iter().for_each(|number| self.used.clear(number));
            self.damage.extend(fault.filter(|_| self.damage.len() < MAX_DAMAGE));
        }
        Ok(())
    }

    /// Return the numbers of the blocks on the `thread_delayed_free` list of a heap, and the error in the list, if
    /// there is one. A block that is not a used block of the heap's pages, or that is listed twice, is an error. After
    /// MAX_ASTRAY such links in all lists together, no further link is followed.
    fn waiting(
        &self,
        steps: &mut Steps,
        space: &Space,
        form: &MimallocForm,
        (heap, delayed): (u64, u64),
    ) -> Result<(BTreeSet<u64>, Option<Damage>), Cancellation> {
        // The head is a plain address even if links are encoded.
        let (mut next, mut whole) = (space.word(heap.wrapping_add(delayed)), true);
        let (mut blocks, mut met) = (BTreeSet::new(), 0);
        for count in 1..=MAX_WAITING {
            let Ok(at) = next else { break };
            if self.segment_at(at).is_none() {
                break;
            }
            match self.waiting_block(heap, at) {
                Some(number) if blocks.insert(number) => steps.look()?,
                is_met => {
                    whole = false;
                    steps.take()?;
                    if is_met.is_some() || at == met || steps.left == 0 {
                        break;
                    }
                }
            }
            if count.is_power_of_two() {
                met = at;
            }
            next = space.word(at).and_then(|word| heap_link(space, form, heap, delayed, word));
        }
        let (list, what) = (heap.wrapping_add(delayed), "thread_delayed_free of a heap");
        let fault = match (whole, next) {
            (false, _) => Some(Damage::new(list, what, "used blocks of its pages", "a link to something else")),
            (_, Err(_)) => Some(Damage::absent(list, what)),
            _ => None,
        };
        Ok((blocks, fault))
    }

    /// Return the number of the used block at `address`; None if `address` is not in a page of `heap`.
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

    /// Return the used block that contains `address`; None if there is none.
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

    /// Return the limit of block numbers: the number of every block is smaller. A bitmap with one bit for each block
    /// has this many bits.
    pub(crate) fn block_numbers(&self) -> u64 {
        self.numbers
    }

    /// Return a bitmap in words of 64 bits, in which the bit with the number of each used block is set.
    pub(crate) fn used_words(&self) -> &[u64] {
        self.used.words()
    }

    /// Return every used block.
    pub(crate) fn used_blocks(&self) -> impl Iterator<Item = Cell> + '_ {
        let of = |page: &'_ Page| {
            let page = *page;
            let cell = move |number| Cell::plain(page.first + number, page.block(number), page.size);
            bits::members(self.words_of(&page)).map(cell)
        };
        self.pages.iter().flat_map(of)
    }

    /// Show each used block of a page as its address and its bytes. Bytes that cannot be read are zeros. `bytes` is a
    /// scratch buffer.
    pub(crate) fn show_used(&self, space: &Space, page: &Page, bytes: &mut Vec<u8>, mut show: impl FnMut(u64, &[u8])) {
        show_equal(space, &page.run(), self.words_of(page), bytes, |number, head| show(page.block(number), head));
    }

    /// Return the numbers that the used blocks of a page have within the page, ascending.
    pub(crate) fn used_of<'a>(&'a self, page: &'a Page) -> impl Iterator<Item = u64> + 'a {
        bits::members(self.words_of(page))
    }

    /// Return the used blocks of a page as a bitmap.
    pub(crate) fn words_of(&self, page: &Page) -> &[u64] {
        let first = (page.first / 64) as usize;
        &self.used.words()[first..first + page.capacity.div_ceil(64) as usize]
    }

    pub(crate) fn count_of(&self, page: &Page) -> u64 {
        self.words_of(page).iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Return whether an object may begin at `address`: at most 80 bytes after the start of a used block. The block
    /// must have at least `least` bytes.
    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        self.block_at(address).is_some_and(|block| address - block.address <= OBJECT_AT && block.size >= least)
    }

    /// Return whether a page may contain objects. Only free-threaded builds keep objects apart from PyMem's blocks.
    pub(crate) fn may_hold_objects(&self, page: &Page) -> bool {
        !self.tagged || page.tag != 0
    }

    /// Return the total number of bytes of the blocks that may be objects.
    pub(crate) fn bytes_shown(&self) -> u64 {
        self.pages.iter().filter(|page| self.may_hold_objects(page)).map(|page| page.size * page.capacity).sum()
    }

    /// Return the pages that may contain objects, each with its index.
    pub(crate) fn object_pages(&self) -> impl Iterator<Item = (usize, &Page)> {
        self.pages.iter().enumerate().filter(|(_, page)| self.may_hold_objects(page))
    }

    pub(crate) fn used(&self) -> Tally {
        let mut sum = Tally::default();
        self.pages.iter().for_each(|page| sum.add_many(self.count_of(page), page.size));
        sum
    }

    /// Return whether the blocks of this page record their requested size.
    pub(super) fn tells(&self, page: &Page) -> bool {
        self.padded.get(page.root as usize).copied().unwrap_or(false)
    }

    /// Return the requested size of the used block that contains `address`; None if the block does not record it.
    pub fn asked_at(&self, space: &Space, address: u64) -> Option<u64> {
        let page = self.page_at(address).map(|index| &self.pages[index]).filter(|page| self.tells(page))?;
        page.asked(space, page.number_at(address)?)
    }

    /// Return `(block size, used blocks, their requested bytes)` of each block size whose blocks record their requested
    /// size, ascending. `root`: the index of one mimalloc; None for all of them. A block that does not record its
    /// requested size counts with its full size.
    pub fn asked_by_class(
        &self,
        watcher: &dyn Watcher,
        space: &Space,
        root: Option<u32>,
    ) -> Result<Vec<(u64, u64, u64)>> {
        let telling = self.pages_of(root).filter(|page| self.tells(page));
        let jobs: Vec<(usize, &Page)> = telling.enumerate().collect();
        let work = |rows: &mut Vec<(u64, u64, u64)>, (_, page): &(usize, &Page), control: &Control| {
            let (mut told, mut asked) = (0, 0);
            page.show_asked(space, self.words_of(page), |_, size| (told, asked) = (told + 1, asked + size));
            let used = self.count_of(page);
            rows.push((page.size, used, asked + (used - told) * page.size));
            control.advance(0)
        };
        let found = space.task(watcher, None).run(&jobs, Vec::new, work)?;
        let mut rows: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (size, used, asked) in found.into_iter().flatten() {
            let row = rows.entry(size).or_default();
            *row = (row.0 + used, row.1 + asked);
        }
        Ok(rows.into_iter().map(|(size, (used, asked))| (size, used, asked)).collect())
    }

    /// Return the pages as slabs, each with the heap that owns it.
    pub fn slabs(&self) -> impl Iterator<Item = BlockSlab> + '_ {
        self.pages.iter().map(|page| BlockSlab {
            root: page.root,
            keeper: page.heap,
            size: page.size,
            start: page.start,
            end: page.end,
            room: page.reserved,
            live: self.count_of(page),
            waiting: 0,
        })
    }

    /// Return all segments, by address.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    fn pages_of(&self, root: Option<u32>) -> impl Iterator<Item = &Page> {
        self.pages.iter().filter(move |page| root.is_none_or(|root| root == page.root))
    }

    /// Return the number of the heap that owns a page. Heaps are numbered by address. The last number is for pages
    /// without a heap: the thread that owned such a page has ended, or has given up the page because it was full.
    pub(super) fn heap_of(&self, page: &Page) -> u32 {
        let first = self.owners.partition_point(|(root, _)| *root < page.root);
        let place = self.owners.partition_point(|owner| *owner < owner_of(page));
        (place - first) as u32
    }

    /// Return the memory of each heap, ordered by the index of its mimalloc and by the heap's number in that mimalloc.
    pub fn heap_use(&self) -> Vec<HeapUse> {
        let mut rows: BTreeMap<(u32, u32), HeapUse> = BTreeMap::new();
        for page in &self.pages {
            let number = self.heap_of(page);
            let row = rows.entry((page.root, number)).or_default();
            (row.root, row.number, row.heap) = (page.root, number, page.heap);
            let (size, used) = (page.end - page.start, self.count_of(page));
            row.pages += 1;
            *(if used > 0 { &mut row.active } else { &mut row.empty }) += size;
            row.used += used * page.size;
        }
        rows.into_values().collect()
    }

    /// Return `(block size, pages, used blocks, free blocks)` of each block size, ascending. `root`: the index of one
    /// mimalloc; None for all of them.
    pub fn classes(&self, root: Option<u32>) -> Vec<(u64, u64, u64, u64)> {
        let mut rows: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
        for page in self.pages_of(root) {
            let (row, used) = (rows.entry(page.size).or_default(), self.count_of(page));
            *row = (row.0 + 1, row.1 + used, row.2 + page.reserved.saturating_sub(used));
        }
        rows.into_iter().map(|(size, (pages, used, free))| (size, pages, used, free)).collect()
    }

    /// Return `(tag, pages, used blocks, total size of these blocks, pages that no thread owns)` of each tag.
    pub fn heaps(&self) -> Vec<(u8, u64, u64, u64, u64)> {
        let mut rows: BTreeMap<u8, (u64, u64, u64, u64)> = BTreeMap::new();
        for page in &self.pages {
            let (row, used) = (rows.entry(page.tag).or_default(), self.count_of(page));
            let abandoned = u64::from(page.heap == 0);
            *row = (row.0 + 1, row.1 + used, row.2 + used * page.size, row.3 + abandoned);
        }
        rows.into_iter().map(|(tag, (pages, used, bytes, abandoned))| (tag, pages, used, bytes, abandoned)).collect()
    }

    /// Return the total number of bytes of the spans without a page, in all segments.
    pub fn free_spans(&self) -> u64 {
        let mut sum = 0;
        for segment in &self.segments {
            let ends = segment.spans.iter().skip(1).map(|(start, _)| *start).chain([segment.end]);
            let free = segment.spans.iter().zip(ends).filter(|((_, span), _)| *span == Span::Free);
            sum += free.map(|((start, _), end)| end - start).sum::<u64>();
        }
        sum
    }
    /// Return [start, end) of pages without used blocks and of spans without a page, ascending. Even a span that was
    /// never used may be resident, because the kernel may have used a huge page.
    pub fn empty_spans(&self) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for segment in &self.segments {
            let ends = segment.spans.iter().skip(1).map(|(start, _)| *start).chain([segment.end]);
            for ((start, span), end) in segment.spans.iter().zip(ends) {
                match span {
                    Span::Free | Span::Untouched => found.push((*start, end)),
                    Span::Page(place) if self.count_of(&self.pages[*place]) == 0 => found.push((*start, end)),
                    _ => (),
                }
            }
        }
        found
    }

    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Return the used blocks `(address, size)` of the page whose slices contain `address`.
    pub fn used_in_page(&self, address: u64) -> Vec<(u64, u64)> {
        let Some(page) = self.page_at(address).map(|index| &self.pages[index]) else { return Vec::new() };
        self.used_of(page).map(|number| (page.block(number), page.size)).collect()
    }
}
