//! Segments, arenas and pages that lie in none, as stretches of memory, each with what it is.

use crate::allocators::damage::Damage;
use crate::allocators::mimalloc::page::{Miscounted, Page};
use gdbheap_access::memory::space::Space;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Span {
    Info,
    Free,
    /// Never used so far.
    Untouched,
    Page(usize),
    Unexplained,
}

/// A segment, an arena of 3.x, or a page that lies in none.
pub struct Segment {
    pub address: u64,
    pub end: u64,
    /// The thread that has it; 0 where that one is gone.
    pub thread: u64,
    /// The place of its mimalloc among several.
    pub root: u32,
    pub(super) spans: Vec<(u64, Span)>,
}

/// What one worker read of a segment: itself, its pages with their used blocks, and damage.
pub(super) struct Read {
    pub(super) segment: Segment,
    pub(super) pages: Vec<(Page, Vec<u64>)>,
    pub(super) damage: Vec<Damage>,
    pub(super) miscounted: Vec<Miscounted>,
}

impl Read {
    pub(super) fn new(address: u64, end: u64, thread: u64, root: u32) -> Read {
        let segment = Segment { address, end, thread, root, spans: Vec::new() };
        Read { segment, pages: Vec::new(), damage: Vec::new(), miscounted: Vec::new() }
    }

    pub(super) fn report(
        &mut self,
        address: u64,
        what: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        self.damage.push(Damage::new(address, what, expected, found));
    }

    /// The page of one entry, or what else its span is.
    pub(super) fn add_page(&mut self, space: &Space, page: Page, is_first: bool, bytes: &mut Vec<u8>) {
        // 1: its page is on the way out, or in.
        if is_first || page.size <= 1 {
            self.segment.spans.push((page.start, if is_first { Span::Info } else { Span::Free }));
        } else {
            self.add_blocks(page, |page| page.used_bits(space, bytes));
        }
    }

    /// A page with blocks, which `read` reads if its own fields are right.
    pub(super) fn add_blocks(&mut self, page: Page, read: impl FnOnce(&Page) -> (Vec<u64>, Option<Miscounted>)) {
        let fault = page.fault();
        let span = if fault.is_some() { Span::Unexplained } else { Span::Page(self.pages.len()) };
        self.segment.spans.push((page.start, span));
        if fault.is_none() {
            let (used, miscounted) = read(&page);
            self.miscounted.extend(miscounted);
            self.pages.push((page, used));
        }
        self.damage.extend(fault);
    }

    /// Leaves off what lies from `limit` on: another one begins there.
    pub(super) fn cut(&mut self, limit: u64) {
        let found = format!("{:#x}", self.segment.end);
        self.report(self.segment.address, "end of a segment", format!("at most {limit:#x}"), found);
        self.segment.end = limit;
        self.segment.spans.retain(|(start, _)| *start < limit);
        let pages = &self.pages;
        let reaches = |span: &Span| matches!(span, Span::Page(place) if pages[*place].0.end > limit);
        let beyond = |(_, span): &&mut (u64, Span)| reaches(span);
        self.segment.spans.iter_mut().filter(beyond).for_each(|(_, span)| *span = Span::Unexplained);
        // Pages are in the order of their spans.
        self.pages.retain(|(page, _)| page.end <= limit);
    }
}
