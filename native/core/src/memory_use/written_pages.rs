//! Count the private pages of a process that it shared with another process at a fork, grouped by what was written to
//! them.
//!
//! A page is compared with the same page of the other process, word by word. A word that differs has one of three
//! kinds: the reference count of a living object, a word that the collector puts before an object, or any other word.
//!
//! A page on which no word differs was written to, and then got its old contents again (restored). If it contains
//! objects, their reference counts probably went up and down again.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::{Jobs, Visitor, Walk};
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::Result;
use gdbheap_access::machine::PageSize;
use gdbheap_access::memory::pages::{Pages, PRESENT, SWAPPED};
use gdbheap_access::memory::sharing::PageSharing;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const PAGES_AT_ONCE: usize = 64;
/// The third word of the head that the collector puts before an object, for an object that it does not track. This is
/// the older, larger head (3.7 and before).
const UNTRACKED: u64 = -2i64 as u64;
const SHORT_HEAD: u64 = 16;

/// The reference counts of one type's objects that differ from those in the other process, and the pages with them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CountsOf {
    pub type_address: u64,
    /// The number of reference counts that differ.
    pub objects: u64,
    /// The number of pages on which such counts differ.
    pub pages: u64,
    /// The number of these pages on which nothing but reference counts differs.
    pub counts_alone: u64,
    /// The number of pages that were written to but are equal again. They contain objects of the type, but no object
    /// that the collector tracks.
    pub restored: u64,
    /// The number of pages that were written to but are equal again. They contain objects of the type, and an object
    /// that the collector tracks.
    pub restored_tracked: u64,
}

/// Numbers of pages of a process, by how they differ from the same pages of the other process. A private page was
/// written to since the fork, but may be equal again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenPages {
    /// Private pages that are equal again, and contain no objects.
    pub restored: u64,
    /// Private pages that are equal again, and contain objects, all of them untracked by the collector.
    pub restored_counts: u64,
    /// Private pages that are equal again, and contain at least one object that the collector tracks.
    pub restored_tracked: u64,
    /// Private pages on which only the collector's words differ.
    pub collector: u64,
    /// Private pages on which only reference counts differ.
    pub counts: u64,
    /// Private pages on which the collector's words and reference counts differ, but no other words.
    pub both: u64,
    /// Private pages on which a word differs that is neither a reference count nor a word of the collector.
    pub other: u64,
    /// Private pages that the other process does not have.
    pub only_here: u64,
    /// Pages that both processes still share, because neither has written to them.
    pub shared: u64,
    /// Private pages that would still be shared if neither reference counts nor the collector's words were written.
    /// They contain objects, all untracked, and no other word differs.
    pub quiet_own: u64,
    /// Pages that are still shared, and contain objects, all of them untracked by the collector.
    pub quiet_shared: u64,
    /// A row for each type whose objects are on pages that were written to.
    pub types: Vec<CountsOf>,
}

/// The facts that are known about a page: whether it contains objects, and whether the collector tracks one of these
/// objects.
#[derive(Default)]
struct PageContent {
    holds: AtomicBool,
    tracked: AtomicBool,
}

/// The private pages of a process, compared with those of another process. Each of these fields has a bit for each
/// word:
///
/// - `changed`: the word differs.
/// - `counts`: the word differs, and is a reference count.
/// - `collector`: the word differs, and belongs to the collector.
pub struct ComparedPages {
    page: PageSize,
    own: Vec<u64>,
    is_there: Vec<AtomicBool>,
    changed: Vec<AtomicU64>,
    counts: Vec<AtomicU64>,
    collector: Vec<AtomicU64>,
    own_seen: Vec<PageContent>,
    shared: Vec<u64>,
    shared_seen: Vec<PageContent>,
}

fn many<T: Default>(count: usize) -> Vec<T> {
    std::iter::repeat_with(T::default).take(count).collect()
}

impl ComparedPages {
    fn new(page: PageSize, sharing: PageSharing) -> ComparedPages {
        let words = sharing.own.len() * (page.bytes() / 512) as usize;
        ComparedPages {
            page,
            is_there: many(sharing.own.len()),
            changed: many(words),
            counts: many(words),
            collector: many(words),
            own_seen: many(sharing.own.len()),
            shared_seen: many(sharing.shared.len()),
            own: sharing.own,
            shared: sharing.shared,
        }
    }

    /// Return the number of groups of 64 words in a page.
    fn groups(&self) -> usize {
        (self.page.bytes() / 512) as usize
    }

    /// Return runs of adjacent pages, each as the index of its first page in `own`, and the index after its last page.
    fn runs(&self) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (place, address) in self.own.iter().enumerate() {
            match runs.last_mut() {
                Some((from, to))
                    if self.own[*to - 1] + self.page.bytes() == *address && *to - *from < PAGES_AT_ONCE =>
                {
                    *to = place + 1;
                }
                _ => runs.push((place, place + 1)),
            }
        }
        runs
    }

    /// Compare the pages of a run with those of the other process.
    fn compare(&self, (from, to): (usize, usize), here: &Space, there: &Space, pages: &Pages) {
        let size = self.page.bytes() as usize;
        let (mut mine, mut others) = (vec![0; (to - from) * size], vec![0; (to - from) * size]);
        let got = here.fill(self.own[from], &mut mine);
        for place in from..to {
            let (address, at) = (self.own[place], (place - from) * size);
            let in_memory = pages.runs_in(address, address + 1).any(|run| run.state == PRESENT || run.state == SWAPPED);
            let other = &mut others[at..at + size];
            if !in_memory || at + size > got || there.fill(address, other) < size {
                continue;
            }
            self.is_there[place].store(true, Relaxed);
            let pairs = mine[at..at + size].chunks_exact(8).zip(other.chunks_exact(8)).enumerate();
            for (word, _) in pairs.filter(|(_, (one, two))| one != two) {
                self.changed[place * self.groups() + word / 64].fetch_or(1 << (word % 64), Relaxed);
            }
        }
    }

    /// Return where `changed` has the bit of the word at `address`, as (index of its group, bit). None if the word does
    /// not differ. `place`: the index in `own` of the page with the word.
    fn changed_at(&self, place: usize, address: u64) -> Option<(usize, u64)> {
        let word = ((address - self.own[place]) / 8) as usize;
        let (group, bit) = (place * self.groups() + word / 64, 1 << (word % 64));
        (self.changed[group].load(Relaxed) & bit != 0).then_some((group, bit))
    }

    /// Return whether the other process has the page too, and all its bytes are equal. `place`: the index of the page.
    fn is_equal(&self, place: usize) -> bool {
        self.is_there[place].load(Relaxed) && !self.kind_of(place).0
    }

    /// Return which words of a page differ, as flags: (any words, reference counts, words of the collector, other
    /// words).
    fn kind_of(&self, place: usize) -> (bool, bool, bool, bool) {
        let mut kind = (false, false, false, false);
        for group in place * self.groups()..(place + 1) * self.groups() {
            let [changed, counts, collector] =
                [&self.changed, &self.counts, &self.collector].map(|bits| bits[group].load(Relaxed));
            kind.0 |= changed != 0;
            kind.1 |= counts != 0;
            kind.2 |= collector != 0;
            kind.3 |= changed & !counts & !collector != 0;
        }
        kind
    }

    fn sums(&self) -> WrittenPages {
        let mut sums = WrittenPages { shared: self.shared.len() as u64, ..WrittenPages::default() };
        for place in 0..self.own.len() {
            let seen = &self.own_seen[place];
            let (holds, tracked) = (seen.holds.load(Relaxed), seen.tracked.load(Relaxed));
            let kind = self.kind_of(place);
            let sum = match kind {
                _ if !self.is_there[place].load(Relaxed) => &mut sums.only_here,
                (false, ..) if tracked => &mut sums.restored_tracked,
                (false, ..) if holds => &mut sums.restored_counts,
                (false, ..) => &mut sums.restored,
                (_, _, _, true) => &mut sums.other,
                (_, true, true, _) => &mut sums.both,
                (_, true, _, _) => &mut sums.counts,
                _ => &mut sums.collector,
            };
            *sum += 1;
            let quiet = holds && !tracked && !kind.3 && self.is_there[place].load(Relaxed);
            sums.quiet_own += u64::from(quiet);
        }
        let quiet = |seen: &&PageContent| seen.holds.load(Relaxed) && !seen.tracked.load(Relaxed);
        sums.quiet_shared = self.shared_seen.iter().filter(quiet).count() as u64;
        sums
    }
}

/// A search for the page that contains an address, in a list of pages. It caches the last result, because neighbouring
/// objects are mostly on the same page.
#[derive(Default)]
struct Lookup {
    page: Option<u64>,
    place: Option<usize>,
}

impl Lookup {
    fn find(&mut self, list: &[u64], page: PageSize, address: u64) -> Option<usize> {
        let start = page.number(address) * page.bytes();
        if self.page != Some(start) {
            (self.page, self.place) = (Some(start), list.binary_search(&start).ok());
        }
        self.place
    }
}

/// The reference counts of one type's objects.
///
/// - `objects`: how many counts differ.
/// - `changed`: the indices of the pages on which they differ.
/// - `restored`: the indices of the pages with such counts that are equal in both processes.
#[derive(Default)]
struct CountPlaces {
    objects: u64,
    changed: HashSet<usize>,
    restored: HashSet<usize>,
}

/// A visitor that marks each differing word whose kind is known: a reference count, or a word of the collector.
struct Marker<'a> {
    compared: &'a ComparedPages,
    types: Types<'a>,
    own: Lookup,
    shared: Lookup,
    found: ByType,
}

impl<'a> Marker<'a> {
    fn new(heaps: Heaps<'a>, layout: &'a TypeLayout, compared: &'a ComparedPages) -> Marker<'a> {
        let (own, shared) = (Lookup::default(), Lookup::default());
        Marker { compared, types: Types::new(heaps, layout), own, shared, found: HashMap::new() }
    }

    /// Mark the reference count of the object at `address` if it differs from the count in the other process. Add it to
    /// the changed counts of the object's type. If the whole page is equal in both processes, record the page for the
    /// type.
    fn count(&mut self, address: u64, type_address: u64) {
        let layout = self.types.layout;
        // A free-threaded build has two counts. The words of the first count also contain the object's mutex and the
        // collector's bits.
        let words: &[u64] = if layout.is_free_threaded() { &[8, 16] } else { &[layout.ob_refcnt] };
        for offset in words {
            let at = address + offset;
            let Some(place) = self.own.find(&self.compared.own, self.compared.page, at) else { continue };
            if let Some((group, bit)) = self.compared.changed_at(place, at) {
                self.compared.counts[group].fetch_or(bit, Relaxed);
                let row = self.found.entry(type_address).or_default();
                row.objects += 1;
                row.changed.insert(place);
            } else if self.compared.is_equal(place) {
                self.found.entry(type_address).or_default().restored.insert(place);
            }
        }
    }

    /// Mark the words in [start, end) that differ from the words in the other process. The collector puts these words
    /// before an object.
    fn head(&mut self, start: u64, end: u64) {
        for at in (start..end).step_by(8) {
            let Some(place) = self.own.find(&self.compared.own, self.compared.page, at) else { continue };
            let Some((group, bit)) = self.compared.changed_at(place, at) else { continue };
            self.compared.collector[group].fetch_or(bit, Relaxed);
        }
    }

    /// Record that an object lies at `address`, and whether the collector tracks it.
    fn see(&mut self, address: u64, tracked: bool) {
        let compared = self.compared;
        let own = self.own.find(&compared.own, compared.page, address).map(|place| &compared.own_seen[place]);
        let seen = own.or_else(|| {
            let place = self.shared.find(&compared.shared, compared.page, address)?;
            Some(&compared.shared_seen[place])
        });
        if let Some(seen) = seen {
            seen.holds.store(true, Relaxed);
            if tracked {
                seen.tracked.store(true, Relaxed);
            }
        }
    }
}

impl Visitor for Marker<'_> {
    fn block(&mut self, Block { address, size, .. }: Block, head: &[u8]) -> bool {
        let Some((number, alive)) = self.types.object_in(head, size) else { return false };
        if !alive {
            return true;
        }
        let layout = self.types.layout;
        let kind = &self.types.kinds[number as usize];
        let (pre, type_address) = (kind.pre + layout.outer_hook(head) as u64, kind.address);
        let gc = if kind.flags & layout.flag_gc != 0 { layout.gc_head } else { 0 };
        let start = (pre - gc) as usize;
        let word = |at: usize| head.get(at..at + 8).map_or(0, |bytes| u64_at(bytes, 0));
        let tracked = match gc {
            0 => false,
            SHORT_HEAD => word(start) != 0,
            _ => word(start + 16) != UNTRACKED,
        };
        let object = address + pre;
        self.see(object - gc, tracked);
        self.head(object - gc, object);
        self.count(object, type_address);
        true
    }
}

/// Compare the private pages of one process (they are in `sharing`) with the pages of the other process. Afterwards the
/// other process is not needed any more.
pub fn compare(
    watcher: &dyn Watcher,
    here: &Space,
    other: &Space,
    other_pages: &Pages,
    sharing: PageSharing,
) -> Result<ComparedPages> {
    let compared = ComparedPages::new(here.page(), sharing);
    let work = |_: &mut (), run: &_, control: &Control| {
        compared.compare(*run, here, other, other_pages);
        control.advance(0)
    };
    here.task(watcher, None).run(&compared.runs(), || (), work)?;
    Ok(compared)
}

/// The blocks and objects of a process, by which differing words are classified. Without a `layout`, no objects are
/// known. `statics`: the objects outside blocks, as (address, address of the type).
pub struct WordOwners<'a> {
    pub heaps: Heaps<'a>,
    pub layout: Option<&'a TypeLayout>,
    pub statics: &'a [(u64, u64)],
}

/// Count a process's private pages, grouped by what was written to them.
pub fn written(watcher: &dyn Watcher, by: &WordOwners<'_>, compared: &ComparedPages) -> Result<WrittenPages> {
    let mut types: BTreeMap<u64, CountPlaces> = BTreeMap::new();
    if let Some(layout) = by.layout {
        for (address, found) in marked(watcher, by, layout, compared)? {
            let row = types.entry(address).or_default();
            row.objects += found.objects;
            row.changed.extend(found.changed);
            row.restored.extend(found.restored);
        }
    }
    let mut sums = compared.sums();
    let is_counts_alone = |place: &&usize| matches!(compared.kind_of(**place), (_, true, false, false));
    sums.types = types
        .into_iter()
        .map(|(type_address, CountPlaces { objects, changed, restored })| {
            let counts_alone = changed.iter().filter(is_counts_alone).count() as u64;
            let tracked =
                restored.iter().filter(|place| compared.own_seen[**place].tracked.load(Relaxed)).count() as u64;
            let (pages, restored) = (changed.len() as u64, restored.len() as u64 - tracked);
            CountsOf { type_address, objects, pages, counts_alone, restored, restored_tracked: tracked }
        })
        .collect();
    Ok(sums)
}

type ByType = HashMap<u64, CountPlaces>;

fn marked(
    watcher: &dyn Watcher,
    by: &WordOwners<'_>,
    layout: &TypeLayout,
    compared: &ComparedPages,
) -> Result<impl Iterator<Item = (u64, CountPlaces)>> {
    let Jobs { jobs, total } = by.heaps.jobs();
    let init = || (Walk::new(by.heaps), Marker::new(by.heaps, layout, compared));
    let work = |(walk, marker): &mut (Walk<'_>, Marker<'_>), job: &_, control: &Control| walk.run(job, control, marker);
    let mut rows: Vec<ByType> = Vec::new();
    for (_, marker) in by.heaps.space.task(watcher, Some(total)).run(&jobs, init, work)? {
        rows.push(marker.found);
    }
    let mut rest = Marker::new(by.heaps, layout, compared);
    by.statics.iter().for_each(|(address, kind)| rest.count(*address, *kind));
    rows.push(rest.found);
    Ok(rows.into_iter().flatten())
}

/// A visitor that marks the pages that used blocks touch. `held`: pages with objects of the types `of`. `mixed`: pages
/// with any other block.
struct TypePageMarker<'a> {
    types: Types<'a>,
    of: &'a HashSet<u64>,
    pages: &'a [u64],
    page: PageSize,
    held: &'a [AtomicBool],
    mixed: &'a [AtomicBool],
}

impl TypePageMarker<'_> {
    fn mark(&self, block: Block, marks: &[AtomicBool]) {
        let start = self.page.number(block.address) * self.page.bytes();
        let first = self.pages.partition_point(|page| *page < start);
        let touched = self.pages[first..].iter().take_while(|page| **page < block.address + block.size);
        touched.zip(&marks[first..]).for_each(|(_, mark)| mark.store(true, Relaxed));
    }
}

impl Visitor for TypePageMarker<'_> {
    const ALL: bool = true;

    fn block(&mut self, block: Block, head: &[u8]) -> bool {
        let found = self.types.object_in(head, block.size);
        let is_of = |number: u32| self.of.contains(&self.types.kinds[number as usize].address);
        let marks = if found.is_some_and(|(number, _)| is_of(number)) { self.held } else { self.mixed };
        self.mark(block, marks);
        found.is_some()
    }

    fn plain_block(&mut self, block: Block, _head: &[u8]) {
        self.mark(block, self.mixed);
    }
}

/// Return those of `pages` (ascending) on which all blocks in use are objects of the types at the addresses `of`. Pages
/// without any such object are left out.
pub fn pages_of_types(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    of: &HashSet<u64>,
    pages: &[u64],
) -> Result<Vec<u64>> {
    let (held, mixed) = (many(pages.len()), many(pages.len()));
    let page = heaps.space.page();
    let Jobs { jobs, total } = heaps.jobs();
    let init = || {
        let types = Types::new(heaps, layout);
        (Walk::new(heaps), TypePageMarker { types, of, pages, page, held: &held, mixed: &mixed })
    };
    let work =
        |(walk, alike): &mut (Walk<'_>, TypePageMarker<'_>), job: &_, control: &Control| walk.run(job, control, alike);
    heaps.space.task(watcher, Some(total)).run(&jobs, init, work)?;
    let is_alike = |place: &usize| held[*place].load(Relaxed) && !mixed[*place].load(Relaxed);
    Ok((0..pages.len()).filter(is_alike).map(|place| pages[place]).collect())
}

/// Return a hash of 16 bytes for each page, one after the other, so that pages with equal bytes can be counted. Pages
/// of zeros and pages that cannot be read are left out.
pub fn page_marks(watcher: &dyn Watcher, space: &Space, pages: &[u64], page: PageSize) -> Result<Vec<u8>> {
    let task = space.task(watcher, None);
    let parts: Vec<&[u64]> = pages.chunks(PAGES_AT_ONCE).collect();
    let work = |out: &mut Vec<u8>, part: &&[u64], control: &Control| {
        let mut bytes = vec![0; page.bytes() as usize];
        for address in part.iter() {
            if space.fill(*address, &mut bytes) == bytes.len() && bytes.iter().any(|byte| *byte != 0) {
                out.extend(mark(&bytes));
            }
        }
        control.advance(0)
    };
    Ok(task.run(&parts, Vec::new, work)?.concat())
}

/// Hash a page's bytes to 128 bits: two multiplicative hashes with different constants, each mixed after every word.
fn mark(bytes: &[u8]) -> [u8; 16] {
    let (mut one, mut two) = (0x9e37_79b9_7f4a_7c15u64, 0xc2b2_ae3d_27d4_eb4fu64);
    for word in bytes.chunks_exact(8).map(|word| u64_at(word, 0)) {
        one = (one ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        one ^= one >> 32;
        two = (two.rotate_left(29) ^ word).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        two ^= two >> 29;
    }
    let mut mark = [0; 16];
    mark[..8].copy_from_slice(&one.to_le_bytes());
    mark[8..].copy_from_slice(&two.to_le_bytes());
    mark
}
