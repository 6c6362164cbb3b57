//! Find the few blocks that pin pages: pages that `malloc_trim()` could release only if these blocks were freed.
//!
//! A page of malloc's heaps is free if it has no byte of a block in use, and no header or links of a free
//! block. These may follow a block in use, so the 48 bytes after each such block count as used too.
//!
//! gdbheap looks for pins in pages of which at most half is in use. Blocks that share such a page form a group.
//! Removing the group also frees fuller pages that no other block touches. Other allocators free memory only in whole
//! units, when the last block in a unit is freed.

use crate::allocators::block::UsedRange;
use crate::allocators::holders::Heap;
use crate::allocators::store::Store;
use gdbheap_access::bytes::outside;
use gdbheap_access::machine::PageSize;
use gdbheap_access::memory::pages::Pages;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A group of blocks, as (start, end, number of blocks, total size of the blocks, freed bytes). The freed bytes are
/// those of the pages that would be freed without these blocks.
type PinRow = (u64, u64, u64, u64, u64);

/// The sums over all groups that are worth listing.
///
/// - `groups`: the number of groups.
/// - `blocks`: the number of their blocks.
/// - `bytes`: the total size of these blocks.
/// - `freed`: the bytes of the pages that would be freed without them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub groups: u64,
    pub blocks: u64,
    pub bytes: u64,
    pub freed: u64,
}

/// The groups whose removal would free the most memory, largest first, and the sums over all groups.
pub type Pins = (Vec<PinRow>, Totals);

/// The rules for pins: which pages count as freed memory, and which groups are listed.
#[derive(Clone, Copy)]
pub struct PinRules<'a> {
    pub page: PageSize,
    /// The resident pages; None if residency is unknown.
    pub pages: Option<&'a Pages>,
    /// The ranges of pages that the kernel does not take back, ascending. They never count as freed memory.
    pub ranges: &'a [(u64, u64)],
    /// The smallest number of bytes that a listed group must free.
    pub least: u64,
    /// The largest number of groups that are listed.
    pub most: usize,
}

/// A counter of the bytes of pages that would be freed: the resident bytes, or all bytes if residency is unknown. The
/// ranges `kept`, which the kernel does not take back, do not count.
struct FreedCounter<'a> {
    page: PageSize,
    pages: Option<&'a Pages>,
    kept: &'a [(u64, u64)],
}

impl FreedCounter<'_> {
    fn count(&self, start: u64, end: u64) -> u64 {
        let mut sum = 0;
        outside(start, end, self.kept, |from, to| sum += self.pages.map_or(to - from, |pages| pages.count(from, to).0));
        sum
    }
}

/// A collector of groups that are worth listing. They free at least `least` bytes, and at least twice as many bytes as
/// their blocks have. It keeps the `most` groups that free the most beyond the size of their blocks.
struct Best {
    least: u64,
    most: usize,
    heap: BinaryHeap<Reverse<(u64, PinRow)>>,
    totals: Totals,
}

impl Best {
    fn new(least: u64, most: usize) -> Best {
        Best { least, most, heap: BinaryHeap::new(), totals: Totals::default() }
    }

    fn offer(&mut self, row: PinRow) {
        let (_, _, blocks, bytes, freed) = row;
        if freed < self.least.max(1) || freed / 2 < bytes {
            return;
        }
        let sum = &mut self.totals;
        (sum.groups, sum.blocks) = (sum.groups + 1, sum.blocks + blocks);
        (sum.bytes, sum.freed) = (sum.bytes + bytes, sum.freed + freed);
        self.heap.push(Reverse((freed - bytes, row)));
        if self.heap.len() > self.most {
            self.heap.pop();
        }
    }

    fn rows(self) -> Pins {
        (self.heap.into_sorted_vec().into_iter().map(|Reverse((_, row))| row).collect(), self.totals)
    }
}

/// A block in use in a heap.
///
/// - `number`: the number of the block, from 1 at the start of the heap.
/// - `start`, `end`: its address range.
/// - `before`: the total size of all blocks before it.
#[derive(Clone, Copy)]
struct Holder {
    number: u64,
    start: u64,
    end: u64,
    before: u64,
    /// Whether the block cannot be freed, or freeing it would free no page.
    fixed: bool,
}

impl Holder {
    /// Return the number of the last page that the block pins. The result may be the page after that of the block's
    /// last byte. The header of free memory right after the block may lie there.
    #[inline(always)]
    fn reached(&self, page: PageSize) -> u64 {
        page.number(self.end + Heap::HEAD - 1)
    }
}

/// A page that blocks touch. `held`: the number of bytes of blocks in the page; `first`, `last`: the first and the last
/// of these blocks.
struct TouchedPage {
    page: u64,
    held: u64,
    first: Holder,
    last: Holder,
    fixed: bool,
}

/// A group of consecutive blocks that share pages. `freed`: the bytes that would be freed without these blocks.
struct Group {
    first: Holder,
    last: Holder,
    freed: u64,
}

struct PinGrouper<'a> {
    page: PageSize,
    freed: &'a FreedCounter<'a>,
    best: &'a mut Best,
    /// The pages that the next block may touch too, ascending. There are at most two of them.
    pages: Vec<TouchedPage>,
    group: Option<Group>,
    /// The page that the group's last block shares with later blocks, if more than half of the page is in use. The pair
    /// is (number of the last of these blocks, bytes that would be freed). The page counts once these blocks join the
    /// group.
    shared: Option<(u64, u64)>,
    /// The fuller pages that only one block touches, if the block is in no group yet. The pair is (number of the block,
    /// bytes that would be freed). The pages count once the block joins a group.
    alone: Option<(u64, u64)>,
}

impl PinGrouper<'_> {
    #[inline(always)]
    fn feed(&mut self, holder: Holder) {
        let size = self.page;
        match self.pages.as_mut_slice() {
            // This is the common case: the block lies in the same page as the previous block, and so does the header of
            // free memory after it.
            [page] if size.number(holder.start) == page.page && holder.reached(size) == page.page => {
                page.held += holder.end - holder.start;
                page.last = holder;
                page.fixed |= holder.fixed;
            }
            _ => self.feed_several(holder),
        }
    }

    fn feed_several(&mut self, holder: Holder) {
        let page = self.page;
        let (first, last) = (page.number(holder.start), page.number(holder.end.max(holder.start + 1) - 1));
        self.settle_before(first);
        self.touch(first, holder.end.min(page.start(first + 1)) - holder.start, holder);
        if last > first {
            // The previous block may reach into the second page of this block too.
            let shared = self.pages.iter().any(|page| page.page == first + 1);
            if shared && first + 1 < last {
                self.touch(first + 1, page.bytes(), holder);
            }
            self.settle_before(last);
            let inner = first + 1 + u64::from(shared);
            if inner < last && !holder.fixed {
                let freed = self.freed.count(page.start(inner), page.start(last));
                self.fuller(holder.number, holder.number, freed);
            }
            self.touch(last, holder.end - page.start(last), holder);
        }
        let reached = holder.reached(page);
        if reached > last {
            self.touch(reached, 0, holder);
        }
    }

    fn touch(&mut self, page: u64, held: u64, holder: Holder) {
        match self.pages.iter_mut().find(|touched| touched.page == page) {
            Some(touched) => {
                touched.held += held;
                touched.last = holder;
                touched.fixed |= holder.fixed;
            }
            None => self.pages.push(TouchedPage { page, held, first: holder, last: holder, fixed: holder.fixed }),
        }
    }

    /// Add the pages with numbers below `end` to groups. All blocks that touch these pages are known by now.
    fn settle_before(&mut self, end: u64) {
        while self.pages.first().is_some_and(|page| page.page < end) {
            let page = self.pages.remove(0);
            if page.fixed {
                continue;
            }
            let freed = self.freed.count(self.page.start(page.page), self.page.start(page.page + 1));
            match page.held * 2 <= self.page.bytes() {
                true => self.join(page.first, page.last, freed),
                false => self.fuller(page.first.number, page.last.number, freed),
            }
        }
    }

    fn join(&mut self, first: Holder, last: Holder, freed: u64) {
        let joins = self.group.as_ref().is_some_and(|group| {
            let bridged = self.shared.is_some_and(|(until, _)| until <= last.number);
            first.number <= group.last.number || (first.number == group.last.number + 1 && bridged)
        });
        if !joins {
            self.close();
        }
        let group = self.group.get_or_insert(Group { first, last, freed: 0 });
        group.freed += freed;
        if last.number > group.last.number {
            group.last = last;
        }
        let inside = |number: u64| (group.first.number..=group.last.number).contains(&number);
        let pending = [self.shared.take(), self.alone.take()];
        group.freed +=
            pending.iter().flatten().filter(|(number, _)| inside(*number)).map(|(_, freed)| freed).sum::<u64>();
    }

    fn fuller(&mut self, first: u64, last: u64, freed: u64) {
        match self.group.as_mut() {
            Some(group) if last <= group.last.number => group.freed += freed,
            Some(group) if first <= group.last.number => self.shared = Some((last, freed)),
            _ if first == last => {
                let before = self.alone.filter(|(number, _)| *number == first).map_or(0, |(_, freed)| freed);
                self.alone = Some((first, before + freed));
            }
            _ => {}
        }
    }

    fn close(&mut self) {
        self.shared = None;
        let Some(Group { first, last, freed }) = self.group.take() else { return };
        let bytes = last.before + (last.end - last.start) - first.before;
        self.best.offer((first.start, last.end, last.number - first.number + 1, bytes, freed));
    }
}

/// Offer the groups of blocks in a heap to `best`. `trimmed`: whether the free end of the heap is returned to the
/// kernel. If it is not, the last block below it counts as fixed: freeing this block would only make the end larger.
fn offer_heap(heap: Heap<'_>, trimmed: bool, freed: &FreedCounter<'_>, best: &mut Best) {
    let mut grouping =
        PinGrouper { page: freed.page, freed, best, pages: Vec::new(), group: None, shared: None, alone: None };
    let (mut number, mut before) = (0, 0);
    // This fixed holder without bytes stands for the header of free memory at the start of the heap.
    let start = heap.start();
    let mut waiting = Holder { number, start, end: start, before, fixed: true };
    heap.show_held(trimmed, |UsedRange { start, end, fixed, ends }| {
        number += 1;
        grouping.feed(Holder { fixed: waiting.fixed || ends, ..waiting });
        waiting = Holder { number, start, end, before, fixed };
        before += end - start;
    });
    grouping.feed(waiting);
    grouping.settle_before(u64::MAX);
    grouping.close();
}

/// Collect the groups that `offer` finds. Return those that pin the most, largest first, and the sums over all groups.
fn find(wanted: PinRules<'_>, offer: impl FnOnce(&FreedCounter<'_>, &mut Best)) -> Pins {
    let PinRules { page, pages, ranges, least, most } = wanted;
    let mut best = Best::new(least, most);
    offer(&FreedCounter { page, pages, kept: ranges }, &mut best);
    best.rows()
}

/// Find the groups of blocks in a store that pin pages. `trimmed`: the start addresses of the heaps whose free end is
/// returned.
pub fn pins(store: &Store, trimmed: &[u64], wanted: PinRules<'_>) -> Pins {
    find(wanted, |freed, best| {
        store.show_wholes(|start, end, used| {
            if used.count > 0 {
                best.offer((start, end, used.count, used.bytes, freed.count(start, end)));
            }
        });
        for heap in store.heaps() {
            offer_heap(heap, trimmed.contains(&heap.start()), freed, best);
        }
    })
}
