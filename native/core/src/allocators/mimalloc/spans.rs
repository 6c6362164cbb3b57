//! Segments, arenas and pages outside arenas, as ranges of memory that consist of spans.

use crate::allocators::damage::Damage;
use crate::allocators::evidence::Evidence;
use crate::allocators::mimalloc::page::{CountMismatch, Page, UsedBits};
use gdbheap_access::memory::space::Space;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Span {
    Info,
    Free,
    /// A span of slices that were never used.
    Untouched,
    Page(usize),
    Unexplained,
}

/// A segment of mimalloc up to 2.x, an arena of 3.x, or a page of 3.x outside arenas.
pub struct Segment {
    pub address: u64,
    pub end: u64,
    /// The thread that owns the segment; 0 if that thread has ended.
    pub thread: u64,
    /// The index of the mimalloc that owns the segment, if the target has several.
    pub root: u32,
    pub(super) spans: Vec<(u64, Span)>,
}

/// One segment as a worker read it: its spans, its pages with their used blocks, and the damage.
pub(super) struct SegmentContent {
    pub(super) segment: Segment,
    pub(super) pages: Vec<(Page, Vec<u64>)>,
    pub(super) damage: Vec<Damage>,
    pub(super) miscounted: Vec<CountMismatch>,
}

impl SegmentContent {
    pub(super) fn new(address: u64, end: u64, thread: u64, root: u32) -> SegmentContent {
        let segment = Segment { address, end, thread, root, spans: Vec::new() };
        SegmentContent { segment, pages: Vec::new(), damage: Vec::new(), miscounted: Vec::new() }
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

    /// Add the span of one entry of the table: a page, free slices, or, if `is_first` is true, the segment's header.
    pub(super) fn add_page(
        &mut self,
        (space, evidence): (&Space, &Evidence),
        page: Page,
        is_first: bool,
        bytes: &mut Vec<u8>,
    ) {
        // A size of 1 means that the page is being added or removed.
        if is_first || page.size <= 1 {
            self.segment.spans.push((page.start, if is_first { Span::Info } else { Span::Free }));
        } else {
            self.add_blocks(page, |page| page.proven_bits(space, evidence, bytes));
        }
    }

    /// Add a page with blocks. `read` reads the blocks if the page's own fields are right.
    pub(super) fn add_blocks(&mut self, page: Page, read: impl FnOnce(&Page) -> Result<UsedBits, Damage>) {
        let (span, fault) = match page.fault().map_or_else(|| read(&page), Err) {
            Ok((used, miscounted)) => {
                let span = Span::Page(self.pages.len());
                self.miscounted.extend(miscounted);
                self.pages.push((page, used));
                (span, None)
            }
            Err(fault) => (Span::Unexplained, Some(fault)),
        };
        self.segment.spans.push((page.start, span));
        self.damage.extend(fault);
    }

    /// Drop everything at or after the address `limit`, because another segment begins there.
    pub(super) fn cut(&mut self, limit: u64) {
        let found = format!("{:#x}", self.segment.end);
        self.report(self.segment.address, "end of a segment", format!("at most {limit:#x}"), found);
        self.segment.end = limit;
        self.segment.spans.retain(|(start, _)| *start < limit);
        let pages = &self.pages;
        let reaches = |span: &Span| matches!(span, Span::Page(place) if pages[*place].0.end > limit);
        let beyond = |(_, span): &&mut (u64, Span)| reaches(span);
        self.segment.spans.iter_mut().filter(beyond).for_each(|(_, span)| *span = Span::Unexplained);
        // The pages are in the same order as their spans.
        self.pages.retain(|(page, _)| page.end <= limit);
    }
}
