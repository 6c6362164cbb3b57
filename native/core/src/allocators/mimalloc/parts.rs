//! The parts of a segment of mimalloc, and the unused bytes in it.

use crate::allocators::block_list::{BlockList, BlockQuery, BlockRow};
use crate::allocators::damage::Damage;
use crate::allocators::holes::{Hole, HoleFinder};
use crate::allocators::listing::BlockLister;
use crate::allocators::mimalloc::page::{list_of, Page};
use crate::allocators::mimalloc::segments::Mimalloc;
use crate::allocators::mimalloc::spans::{Segment, Span};
use crate::allocators::part::Part;
use crate::bits;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;

/// The part that contains an address: `(start, size, state, list)`.
type FoundBlock = (u64, u64, &'static str, Option<&'static str>);

impl Mimalloc {
    /// Show the parts of a segment in order: used, slack, free, free spans, headers, padding, unexplained. A block that
    /// records its requested size is shown as used up to that size, and as slack after it.
    pub(crate) fn show_parts(&self, space: &Space, segment: &Segment, visit: impl FnMut(u64, u64, Part)) {
        self.parts_in(segment, Some(space), visit);
    }

    /// Show the parts of a segment in order. Slack is not shown separately: it is part of the used blocks.
    fn parts_of(&self, segment: &Segment, visit: impl FnMut(u64, u64, Part)) {
        self.parts_in(segment, None, visit);
    }

    fn parts_in(&self, segment: &Segment, space: Option<&Space>, mut visit: impl FnMut(u64, u64, Part)) {
        let ends = segment.spans.iter().skip(1).map(|(start, _)| *start).chain([segment.end]);
        for ((start, span), end) in segment.spans.iter().zip(ends) {
            match span {
                Span::Info => visit(*start, end, Part::Header),
                Span::Free => visit(*start, end, Part::FreeRun),
                Span::Untouched => visit(*start, end, Part::Reserved),
                Span::Unexplained => visit(*start, end, Part::Unexplained),
                Span::Page(index) => self.parts_of_page(&self.pages[*index], space, &mut visit),
            }
        }
    }

    fn parts_of_page(&self, page: &Page, space: Option<&Space>, visit: &mut impl FnMut(u64, u64, Part)) {
        let mut show = |start: u64, end: u64, part: Part| {
            if start < end {
                visit(start, end, part);
            }
        };
        show(page.start, page.blocks, Part::Padding);
        let mut told: Vec<(u64, u64)> = Vec::new();
        if let Some(space) = space.filter(|_| self.tells(page)) {
            page.show_asked(space, self.words_of(page), |number, asked| told.push((number, asked)));
        }
        let (mut at, mut told) = (0, told.into_iter().peekable());
        for number in self.used_of(page) {
            show(page.block(at), page.block(number), Part::Free);
            let asked = told.next_if(|(of, _)| *of == number).map_or(page.size, |(_, asked)| asked.min(page.size));
            show(page.block(number), page.block(number) + asked, Part::Used);
            show(page.block(number) + asked, page.block(number + 1), Part::Slack);
            at = number + 1;
        }
        show(page.block(at), page.block(page.reserved), Part::Free);
        show(page.block(page.reserved), page.end, Part::Padding);
    }

    /// Return the number of the heap that owns all pages in [start, end). None if there are no pages, or if several
    /// heaps own them.
    fn arena_of(&self, start: u64, end: u64) -> Option<u32> {
        let first = self.pages.partition_point(|page| page.end <= start);
        let mut heaps = self.pages[first..].iter().take_while(|page| page.start < end).map(|page| self.heap_of(page));
        let heap = heaps.next()?;
        heaps.all(|other| other == heap).then_some(heap)
    }

    /// Return the index of the mimalloc that owns `address`, and the part that contains `address`; None outside every
    /// segment. The state is used, free, `free span`, `segment header`, reserved, padding or unexplained. For a free
    /// block, the list is the one that contains the block; None for a block that was never handed out.
    pub fn find(&self, space: &Space, address: u64) -> Option<(u32, FoundBlock)> {
        let segment = self.segment_at(address)?;
        Some((segment.root, self.find_in(space, segment, address)?))
    }

    fn find_in(&self, space: &Space, segment: &Segment, address: u64) -> Option<FoundBlock> {
        let page = self.page_at(address).map(|index| &self.pages[index]);
        if let Some((page, number)) = page.and_then(|page| Some((page, page.number_at(address)?))) {
            let is_used = self.used.get(page.first + number);
            let list = if is_used { None } else { list_of(space, page, number) };
            return Some((page.block(number), page.size, if is_used { "used" } else { "free" }, list));
        }
        let mut found = None;
        self.parts_of(segment, |start, end, part| {
            if (start..end).contains(&address) {
                found = Some((start, end - start, word(part), None));
            }
        });
        found
    }

    /// Return the number of the heap that owns the page at `address`; None if there is no page.
    pub fn arena_at(&self, address: u64) -> Option<u32> {
        self.page_at(address).map(|place| self.heap_of(&self.pages[place]))
    }
}

impl BlockLister for Mimalloc {
    fn damage(&self) -> &[Damage] {
        &self.damage
    }

    fn holes(&self, watcher: &dyn Watcher, minimum: u64) -> Result<Vec<Hole>> {
        let mut found = HoleFinder::new(minimum);
        for segment in &self.segments {
            watcher.check()?;
            self.parts_of(segment, |start, end, part| {
                found.add(start, end, part, |_| (start, end - start, word(part)));
            });
            found.end_region(|start, end| self.arena_of(start, end));
        }
        Ok(found.holes)
    }

    /// List the blocks that pass the filter. Free blocks include those that were never handed out. No block counts as
    /// cached.
    fn list_blocks(&self, asked: &BlockQuery) -> BlockList {
        let is_meant = |page: &&Page| asked.takes(page.size) && (asked.used || !asked.cached);
        let meant = self.pages.iter().filter(is_meant).map(|page| (page, self.heap_of(page)));
        asked.rows_of(meant.filter(|(page, heap)| asked.takes_arena(page.root, *heap)).flat_map(|(page, heap)| {
            let words = self.words_of(page);
            // The bitmap of a page covers only the blocks that were handed out at least once. Later blocks were never
            // handed out.
            let is_used = |number: u64| number < 64 * words.len() as u64 && bits::get(words, number);
            let row = move |number| BlockRow { address: page.block(number), size: page.size, arena: Some(heap) };
            (0..page.reserved).filter(move |number| is_used(*number) == asked.used).map(row)
        }))
    }

    fn used_of_sizes(&self, least: u64, largest: u64) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        let meant = self.pages.iter().filter(move |page| (least..=largest).contains(&page.size));
        Box::new(meant.flat_map(|page| self.used_of(page).map(|number| (page.block(number), page.size))))
    }
}

/// Return mimalloc's name for a kind of part.
fn word(part: Part) -> &'static str {
    match part {
        Part::Header => "segment header",
        Part::FreeRun => "free span",
        other => other.name(),
    }
}
