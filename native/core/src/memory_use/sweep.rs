//! Add up ranges of address space by owner.
//!
//! Each byte belongs to its owner, and counts as resident, swapped or absent. In addition, each whole page is assigned
//! to one owner. If several owners touch a page, the one with the highest rank gets it (a used block keeps the whole
//! page). So the pages of free memory are the pages without another owner.

use crate::allocators::part::{Part, PARTS};
use crate::allocators::store::Store;
use gdbheap_access::error::{Cancellation, Error, Result};
use gdbheap_access::machine::PageSize;
use gdbheap_access::memory::pages::{Pages, Run, PRESENT, SWAPPED};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;
use std::sync::Arc;

/// The memory that belongs to one owner, in bytes. `pages`, `whole` and `whole_huge` count whole pages, each for only
/// one owner.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    pub bytes: u64,
    pub resident: u64,
    pub swapped: u64,
    /// The bytes that are mapped to the kernel's zero page. They are not resident.
    pub zero: u64,
    /// The resident bytes of the owner's memory that are in huge pages.
    pub huge: u64,
    /// The bytes of the whole pages that are assigned to the owner, present or not.
    pub pages: u64,
    /// The resident part of `pages`.
    pub whole: u64,
    /// The part of `whole` that is in huge pages.
    pub whole_huge: u64,
}

/// A position in the two lists of a process's pages: in the list of page states (`run`), and in the list of huge pages
/// (`huge`).
#[derive(Clone, Copy, Default)]
struct Cursor {
    run: usize,
    huge: usize,
}

/// Sums of memory by owner, for ranges that are added in ascending order. The number of an owner is also its rank.
/// Cuts, which are at page boundaries, divide the address space into cells. Each cell has its own sums. Cell 0 lies
/// below the first cut, cell 1 between the first and the second cut, and so on.
pub struct Sweep {
    size: PageSize,
    pages: Option<Arc<Pages>>,
    owners: usize,
    cuts: Vec<u64>,
    sums: Vec<Sum>,
    /// The number of the current cell.
    cell: usize,
    /// The index of the first sum of the current cell.
    base: usize,
    /// The address at which the current cell ends.
    limit: u64,
    /// The position in the lists of pages up to which bytes were counted.
    bytes: Cursor,
    /// The position in the lists of pages up to which whole pages were counted. It lags behind `bytes`, because the
    /// owner of a page is known only at the page's end.
    whole: Cursor,
    page: u64,
    owner: u32,
    last: u64,
    /// The owners whose whole pages in huge pages are listed in `ranges`.
    kept: Vec<u32>,
    ranges: Vec<(u64, u64)>,
    lost: MissingRanges,
}

/// Address ranges whose contents should exist but are missing, as in a truncated core; ascending. Their bytes count for
/// `owner`, even if `add` is called with another owner. `at`: the position in `ranges`.
#[derive(Default)]
struct MissingRanges {
    ranges: Vec<(u64, u64)>,
    owner: u32,
    at: usize,
}

/// The number of an owner, and the sums of its memory.
pub type OwnerRow = (u32, Sum);

/// The owner of each kind of bytes in an allocator's memory, in the order of PARTS; None for a kind that does not
/// occur.
pub type Owners = [Option<u32>; PARTS.len()];

const NOBODY: u32 = u32::MAX;
/// The number of ranges that are added between two checks for cancellation.
const PARTS_IN_LOOK: u32 = 1 << 14;

/// The reason why the sums are incomplete: no owner was given for one kind of bytes, or the watcher cancelled the work.
#[derive(Default)]
struct AddError {
    part: Option<Part>,
    cancelled: Option<Cancellation>,
}

/// Return a function that adds each range to the owner of its kind of bytes. It checks for cancellation after every
/// PARTS_IN_LOOK ranges.
fn adding<'a, 's>(
    watcher: &'a dyn Watcher,
    sweeper: &'a mut Sweeper<'s>,
    by_part: [u32; PARTS.len()],
    unadded: &'a mut AddError,
) -> impl FnMut(u64, u64, Part) + use<'a, 's> {
    let mut count = 0u32;
    move |from, to, part| {
        count = count.wrapping_add(1);
        if count % PARTS_IN_LOOK == 0 && unadded.cancelled.is_none() {
            unadded.cancelled = watcher.check().err();
        }
        match by_part[part as usize] {
            _ if unadded.cancelled.is_some() => (),
            NOBODY => unadded.part = Some(part),
            owner => sweeper.add(from, to, owner),
        }
    }
}

/// Return `end`, the end of the memory that was added. Fails if the sums are incomplete (`unadded`). Also fails if
/// `end` is None: no memory begins at the given address.
fn ended(end: Option<u64>, unadded: AddError) -> Result<u64> {
    if let Some(cancelled) = unadded.cancelled {
        return Err(cancelled.into());
    }
    match unadded.part {
        Some(part) => Err(Error::Invalid(format!("nobody owns what is {}", PARTS[part as usize]))),
        None => end.ok_or_else(|| Error::invalid("nothing of it begins there")),
    }
}

/// A sweep that is being used, and the page size and lists of pages that it needs.
struct Sweeper<'a> {
    sweep: &'a mut Sweep,
    size: PageSize,
    runs: &'a [Run],
    huge: &'a [(u64, u64)],
}

impl Sweeper<'_> {
    #[inline]
    fn add(&mut self, start: u64, end: u64, owner: u32) {
        if self.sweep.lost.ranges.is_empty() {
            self.add_there(start, end, owner);
        } else {
            self.add_around(start, end, owner);
        }
    }

    /// Add a range to its owner. The missing bytes in the range are added to the owner of missing bytes instead.
    #[cold]
    fn add_around(&mut self, start: u64, end: u64, owner: u32) {
        let mut at = start;
        while at < end {
            let lost = &mut self.sweep.lost;
            skip(&lost.ranges, &mut lost.at, |range| range.1 <= at);
            let (from, to) = lost.ranges.get(lost.at).copied().unwrap_or((u64::MAX, u64::MAX));
            let (stop, whose) = if from <= at { (to.min(end), lost.owner) } else { (from.min(end), owner) };
            self.add_there(at, stop, whose);
            at = stop;
        }
    }

    #[inline]
    fn add_there(&mut self, start: u64, end: u64, owner: u32) {
        match end <= self.sweep.limit {
            true if start < end => self.add_inside(start, end, owner),
            true => {}
            false => self.add_across(start, end, owner),
        }
    }

    /// Add a range that extends beyond the current cell, one cell after the other.
    #[cold]
    fn add_across(&mut self, start: u64, end: u64, owner: u32) {
        let mut at = start;
        while at < end {
            while self.sweep.limit <= at {
                self.settle();
                self.sweep.next_cell();
            }
            let stop = end.min(self.sweep.limit);
            self.add_inside(at, stop, owner);
            at = stop;
        }
    }

    #[inline]
    fn sum(&mut self, owner: u32) -> &mut Sum {
        &mut self.sweep.sums[self.sweep.base + owner as usize]
    }

    #[inline]
    fn add_inside(&mut self, start: u64, end: u64, owner: u32) {
        self.count_bytes(start, end, owner);
        let (first, last) = (self.size.number(start), self.size.number(end - 1));
        if first != self.sweep.page {
            self.settle();
            (self.sweep.page, self.sweep.owner) = (first, owner);
        } else {
            self.sweep.owner = self.sweep.owner.max(owner);
        }
        if last > first {
            self.settle();
            self.count_pages(first + 1, last, owner);
            (self.sweep.page, self.sweep.owner) = (last, owner);
        }
        self.sweep.last = end;
    }

    /// Count the current page as a whole page, for the highest owner that touches it.
    fn settle(&mut self) {
        let page = self.sweep.page;
        if page != u64::MAX {
            self.count_pages(page, page + 1, self.sweep.owner);
            self.sweep.page = u64::MAX;
        }
    }

    #[inline]
    fn count_bytes(&mut self, start: u64, end: u64, owner: u32) {
        skip(self.runs, &mut self.sweep.bytes.run, |run| run.end <= start);
        let (runs, from) = (self.runs, self.sweep.bytes.run);
        let huge = if self.huge.is_empty() { 0 } else { self.sweep.bytes.count_huge(self.huge, start, end) };
        let sum = self.sum(owner);
        sum.bytes += end - start;
        sum.huge += huge;
        for run in runs[from..].iter().take_while(|run| run.start < end) {
            let size = run.end.min(end) - run.start.max(start);
            match run.state {
                PRESENT => sum.resident += size,
                SWAPPED => sum.swapped += size,
                _ => sum.zero += size,
            }
        }
    }

    fn count_pages(&mut self, first: u64, end: u64, owner: u32) {
        let (start, end) = (self.size.start(first), self.size.start(end));
        skip(self.runs, &mut self.sweep.whole.run, |run| run.end <= start);
        let (runs, from) = (self.runs, self.sweep.whole.run);
        let huge = if self.huge.is_empty() { 0 } else { self.sweep.whole.count_huge(self.huge, start, end) };
        if huge > 0 && self.sweep.kept.contains(&owner) {
            self.keep_huge(start, end);
        }
        let sum = self.sum(owner);
        sum.pages += end - start;
        sum.whole_huge += huge;
        let present = runs[from..].iter().take_while(|run| run.start < end).filter(|run| run.state == PRESENT);
        sum.whole += present.map(|run| run.end.min(end) - run.start.max(start)).sum::<u64>();
    }

    fn keep_huge(&mut self, start: u64, end: u64) {
        for range in self.huge[self.sweep.whole.huge..].iter().take_while(|range| range.0 < end) {
            let (from, to) = (range.0.max(start), range.1.min(end));
            match self.sweep.ranges.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => self.sweep.ranges.push((from, to)),
            }
        }
    }
}

impl Cursor {
    /// Return how many bytes of huge pages lie in [start, end).
    fn count_huge(&mut self, ranges: &[(u64, u64)], start: u64, end: u64) -> u64 {
        skip(ranges, &mut self.huge, |range| range.1 <= start);
        let inside = ranges[self.huge..].iter().take_while(|range| range.0 < end);
        inside.map(|range| range.1.min(end) - range.0.max(start)).sum()
    }
}

/// Move an index forward to the first entry of the list for which `is_over` is false.
#[inline]
fn skip<T>(list: &[T], at: &mut usize, is_over: impl Fn(&T) -> bool) {
    while list.get(*at).is_some_and(&is_over) {
        *at += 1;
    }
}

impl Sweep {
    fn next_cell(&mut self) {
        self.cell += 1;
        self.base += self.owners;
        self.limit = self.cuts.get(self.cell).copied().unwrap_or(u64::MAX);
    }

    fn with<R>(&mut self, start: u64, act: impl FnOnce(&mut Sweeper<'_>) -> R) -> Result<R> {
        if start < self.last {
            return Err(Error::Invalid(format!("stretches must ascend: {start:#x} after {:#x}", self.last)));
        }
        let pages = self.pages.clone();
        let runs = pages.as_ref().map_or(&[][..], |pages| &pages.runs);
        let huge = pages.as_ref().and_then(|pages| pages.huge.as_deref()).unwrap_or_default();
        Ok(act(&mut Sweeper { size: self.size, sweep: self, runs, huge }))
    }

    fn check(&self, owner: u32) -> Result<u32> {
        if owner as usize >= self.owners {
            return Err(Error::invalid("no such owner"));
        }
        Ok(owner)
    }

    /// Make a sweep with empty sums.
    ///
    /// - `size`: the page size.
    /// - `pages`: the states of the pages; None if they are unknown.
    /// - `owners`: the number of owners.
    /// - `cuts`: ascending page addresses at which new cells begin.
    /// - `kept`: the owners for which `huge_ranges` returns ranges.
    pub fn new(
        size: PageSize,
        pages: Option<Arc<Pages>>,
        owners: usize,
        cuts: Vec<u64>,
        kept: Vec<u32>,
    ) -> Result<Sweep> {
        if cuts.windows(2).any(|pair| pair[0] >= pair[1]) || cuts.iter().any(|cut| size.down(*cut) != *cut) {
            return Err(Error::invalid("cuts must ascend and be whole pages"));
        }
        let sums = vec![Sum::default(); owners * (cuts.len() + 1)];
        let limit = cuts.first().copied().unwrap_or(u64::MAX);
        let (page, cell, base, owner, last) = (u64::MAX, 0, 0, 0, 0);
        let (bytes, whole, ranges) = (Cursor::default(), Cursor::default(), Vec::new());
        let lost = MissingRanges::default();
        Ok(Sweep {
            size,
            pages,
            owners,
            cuts,
            sums,
            cell,
            base,
            limit,
            bytes,
            whole,
            page,
            owner,
            last,
            kept,
            ranges,
            lost,
        })
    }

    /// Assign `ranges` (ascending and disjoint) to `owner` from now on, even if a later call names another owner for
    /// them.
    pub fn set_lost(&mut self, ranges: Vec<(u64, u64)>, owner: u32) -> Result<()> {
        let ascend = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if !ascend || ranges.iter().any(|range| range.0 >= range.1) {
            return Err(Error::invalid("ranges must ascend"));
        }
        self.lost = MissingRanges { ranges, owner: self.check(owner)?, at: 0 };
        Ok(())
    }

    /// Return ascending ranges `(start, end)` of the whole pages in huge pages that belong to the owners in `kept`.
    pub fn huge_ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Add a range [start, end) of one owner.
    pub fn add(&mut self, start: u64, end: u64, owner: u32) -> Result<()> {
        let owner = self.check(owner)?;
        self.with(start, |sweeper| sweeper.add(start, end, owner))
    }

    /// Add all ranges of the memory that begins at `start` in a store. Return the end of this memory.
    ///
    /// `owners`: the owner of each kind of bytes, in the order of PARTS; None for a kind that does not occur. Fails if
    /// a kind that occurs has no owner, or if no memory of the store begins at `start`.
    pub fn add_blocks(
        &mut self,
        watcher: &dyn Watcher,
        space: &Space,
        store: &Store,
        start: u64,
        owners: Owners,
    ) -> Result<u64> {
        let (by_part, mut unadded) = (self.by_part(owners)?, AddError::default());
        watcher.check()?;
        let add =
            |sweeper: &mut Sweeper| store.show_parts(space, start, adding(watcher, sweeper, by_part, &mut unadded));
        let end = self.with(start, add)?;
        ended(end, unadded)
    }

    fn by_part(&self, owners: Owners) -> Result<[u32; PARTS.len()]> {
        owners.iter().flatten().try_for_each(|owner| self.check(*owner).map(drop))?;
        Ok(owners.map(|owner| owner.unwrap_or(NOBODY)))
    }

    /// Return, for each cell, the owners that have memory in it, with their sums.
    pub fn finish(&mut self) -> Result<Vec<Vec<OwnerRow>>> {
        self.with(self.last, |sweeper| sweeper.settle())?;
        let row = |(owner, sum): (usize, &Sum)| (owner as u32, *sum);
        let some = |(_, sum): &(usize, &Sum)| sum.bytes | sum.pages != 0;
        let cells = self.sums.chunks(self.owners.max(1));
        Ok(cells.map(|cell| cell.iter().enumerate().filter(some).map(row).collect()).collect())
    }
}
