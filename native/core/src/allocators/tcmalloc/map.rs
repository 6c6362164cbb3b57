//! The map from each page to its span: `PageHeap::pagemap_`, an array in static data that points to leaves.

use crate::allocators::roots::{has_room, show_words, RootRange};
use crate::allocators::spread::spread;
use crate::allocators::tcmalloc::layout::{MapShape, Span, ALIGNMENT, SHAPES, SPAN_BYTES};
use gdbheap_access::bytes::words;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::Watcher;

const STRETCH: u64 = 4 << 10;
/// The number of elements of a table that are read to find out whether the table is a leaf.
const ELEMENTS_ASKED: usize = 32;
/// The number of spans that are sampled from a map. Most pages must point to a span that contains them.
const SPANS_ASKED: usize = 5000;
/// The number of leaves that are read to check a map's spans, or to see whether a table of sizes fits. Each leaf covers
/// 2 GiB of addresses or more.
pub(crate) const LEAVES_ASKED: usize = 16;

/// The address of the root of a map in static data, and the size of a page in bytes.
#[derive(Clone, Copy, Debug)]
pub struct FoundMap {
    pub address: u64,
    pub page: u64,
}

/// Find the roots of maps in `data` (ascending, joined). The leaves and spans of a map must lie in `anonymous` memory
/// (ascending, joined).
pub fn find_page_maps(
    watcher: &dyn Watcher,
    space: &Space,
    data: &[(u64, u64)],
    anonymous: &[(u64, u64)],
) -> Result<Vec<FoundMap>> {
    let mut found: Vec<FoundMap> = Vec::new();
    for (start, end) in data.iter().copied() {
        for shape in SHAPES.into_iter().filter(|shape| end - start >= shape.root_bytes()) {
            let search = Search { space, shape, data: (start, end), anonymous };
            let roots = search.roots(watcher)?;
            found.extend(roots.into_iter().map(|address| FoundMap { address, page: shape.bytes(1) }));
        }
    }
    Ok(found)
}

struct Search<'a> {
    space: &'a Space,
    shape: MapShape,
    data: (u64, u64),
    anonymous: &'a [(u64, u64)],
}

impl Search<'_> {
    fn roots(&self, watcher: &dyn Watcher) -> Result<Vec<u64>> {
        let Search { space, shape, data, anonymous } = *self;
        let place = RootRange { space, data, bytes: shape.root_bytes(), shift: shape.root_shift(), anonymous };
        let is_table = |word: u64| self.is_there(word, shape.leaf_bytes());
        place.roots(watcher, is_table, |word| self.upper_bits(word), |root| self.is_proven(watcher, root))
    }

    fn is_there(&self, address: u64, size: u64) -> bool {
        has_room(self.anonymous, address, ALIGNMENT, size)
    }

    /// Return a leaf's index in the root, derived from the first spans to which the leaf points. None if the leaf
    /// points to no span, or to something that cannot be a span.
    fn upper_bits(&self, leaf: u64) -> Option<u64> {
        let elements = self.first_elements(leaf)?;
        let mask = (1u64 << self.shape.leaf_bits()) - 1;
        elements.into_iter().find_map(|(index, word)| {
            let span = self.span_at(word)?;
            let inside = index.checked_sub(span.first & mask)?;
            let is_named = self.shape.bytes(inside) < span.size() && self.is_there(span.start, span.size());
            is_named.then_some(span.first >> self.shape.leaf_bits())
        })
    }

    /// Return the first elements of a leaf, each with its index; None if an element cannot be the address of a span. No
    /// more elements are read than needed.
    fn first_elements(&self, leaf: u64) -> Option<Vec<(u64, u64)>> {
        let (mut found, mut at, end) = (Vec::new(), leaf, leaf + self.shape.leaf_bytes());
        let mut bytes = [0; STRETCH as usize];
        while found.len() < ELEMENTS_ASKED {
            let Some(next) = self.space.next_backed(at).filter(|next| *next < end) else { break };
            let from = leaf + (next - leaf) / STRETCH * STRETCH;
            let got = self.space.fill(from, &mut bytes[..STRETCH.min(end - from) as usize]);
            for (word, index) in words(&bytes[..got]).into_iter().zip((from - leaf) / 8..) {
                if word != 0 && found.len() < ELEMENTS_ASKED {
                    if !self.is_there(word, SPAN_BYTES as u64) {
                        return None;
                    }
                    found.push((index, word));
                }
            }
            at = from + STRETCH;
        }
        Some(found)
    }

    fn span_at(&self, at: u64) -> Option<Span> {
        let mut bytes = [0; SPAN_BYTES];
        self.space.exact(at, &mut bytes).ok()?;
        Some(Span::of(self.shape, at, &bytes)).filter(|span| span.size() > 0 && span.end < u64::MAX)
    }

    /// Return whether most pages point to spans that contain these pages. The elements for pages in the middle of a
    /// span are leftovers and may point to anything.
    fn is_proven(&self, watcher: &dyn Watcher, root: u64) -> Result<bool> {
        let (mut right, mut wrong, mut behind) = (0u64, 0u64, 0);
        let (named, _) = named_spans(watcher, self.space, self.shape, root, LEAVES_ASKED)?;
        for (page, at) in named.into_iter().take(SPANS_ASKED) {
            let here = self.shape.bytes(page);
            if here < behind {
                continue;
            }
            match self.span_at(at).filter(|span| span.first <= page && here < span.end) {
                Some(span) => (right, behind) = (right + 1, span.end),
                None => wrong += 1,
            }
        }
        Ok(right > 0 && wrong <= right)
    }
}

/// Return the leaves of a map, each with the number of the first page that it covers. Leaves that overlap others are
/// dropped, so that hostile data is not read many times.
pub(crate) fn leaves(space: &Space, shape: MapShape, root: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    show_words(space, root, shape.root_bytes(), 8, |index, word| found.push((word, index << shape.leaf_bits())));
    found.retain(|(leaf, _)| leaf % ALIGNMENT == 0 && space.covers(*leaf, shape.leaf_bytes()));
    found.sort_unstable();
    found.dedup_by(|next, kept| next.0 < kept.0.saturating_add(shape.leaf_bytes()));
    found.sort_unstable_by_key(|(_, page)| *page);
    found
}

/// Pairs (number of a page, address of the span to which it points), and the addresses of leaves.
type PageSpans = (Vec<(u64, u64)>, Vec<u64>);

/// Return pairs `(number of a page, address of the span to which the page points)`, ascending, and the leaves. If
/// neighbouring pages point to the same span, only the first of them is returned. At most `most` leaves are read.
pub(crate) fn named_spans(
    watcher: &dyn Watcher,
    space: &Space,
    shape: MapShape,
    root: u64,
    most: usize,
) -> Result<PageSpans> {
    let leaves = leaves(space, shape, root);
    let mut found: Vec<(u64, u64)> = Vec::new();
    for ((leaf, first), _) in spread(&leaves.iter().collect::<Vec<_>>(), most) {
        watcher.check()?;
        show_words(space, *leaf, shape.leaf_bytes(), 8, |index, word| {
            if word % ALIGNMENT == 0 && found.last().is_none_or(|(_, last)| *last != word) {
                found.push((first + index, word));
            }
        });
    }
    Ok((found, leaves.into_iter().map(|(leaf, _)| leaf).collect()))
}

/// Return the spans to which their own first page points, ascending and disjoint. A span to which only a page inside
/// another span points is a leftover.
pub(crate) fn spans(space: &Space, shape: MapShape, named: &[(u64, u64)]) -> Vec<Span> {
    let (mut found, mut behind): (Vec<Span>, u64) = (Vec::new(), 0);
    for ((page, _), span) in named.iter().zip(named_in(space, shape, named)) {
        let real = span.filter(|span| span.end > span.start && span.end <= space.machine.user_end);
        if let Some(span) = real.filter(|span| span.first == *page && span.start >= behind) {
            behind = span.end;
            found.push(span);
        }
    }
    found
}

/// Read the spans to which pages point, and return them in the order of the pages. A span that cannot be read is None.
/// The spans are read in address order, because many of them are neighbours.
fn named_in(space: &Space, shape: MapShape, named: &[(u64, u64)]) -> Vec<Option<Span>> {
    let mut order: Vec<(u64, usize)> = named.iter().enumerate().map(|(place, (_, at))| (*at, place)).collect();
    order.sort_unstable();
    let (mut found, mut window) = (vec![None; named.len()], Window::new(space, u64::MAX));
    for (at, place) in order {
        found[place] = window.bytes(at, SPAN_BYTES).ok().map(|bytes| Span::of(shape, at, bytes));
    }
    found
}
