//! mimalloc 3: arenas with their pages, and pages outside arenas.

use crate::allocators::damage::Damage;
use crate::allocators::evidence::Evidence;
use crate::allocators::mimalloc::layout::{ArenaHead, Family, MimallocForm, SLICE};
use crate::allocators::mimalloc::maps::{mapped_pages, origin, Arena, Origin, Slice};
use crate::allocators::mimalloc::page::{Page, UsedBits};
use crate::allocators::mimalloc::spans::{SegmentContent, Span};
use crate::allocators::spread::spread;
use gdbheap_access::bytes::range_at;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};
use std::collections::BTreeMap;

/// The number of pages that one worker reads at a time.
const PAGES_IN_JOB: usize = 64;
/// The number of rows of a map that are checked against a layout (`MimallocForm`). The number is large because many
/// pages may be full, and a full page proves nothing.
const ROWS_ASKED: usize = 1024;
/// The number of submaps that are read to check a layout (`MimallocForm`). A submap covers 512 MiB of addresses.
const SUBMAPS_ASKED: usize = 16;

type UsedBlocks = std::result::Result<UsedBits, Damage>;

/// The address of a misplaced `mi_page_t`, and the damage there.
type MisplacedPage = (u64, Damage);

/// Return the pages to which a map points, as `mapped_pages` does. If the map may have stale entries (leftovers),
/// return only those pages whose `mi_page_t` lies at the start of their first slice. For each of these pages, return
/// only this slice.
fn rows_of(
    watcher: &dyn Watcher,
    space: &Space,
    head: &ArenaHead,
    map: u64,
    most: Option<usize>,
) -> Result<Vec<(u64, u64, u64)>> {
    let rows = mapped_pages(watcher, space, map, most)?;
    if !head.leftovers {
        return Ok(rows);
    }
    let own = rows.into_iter().filter(|(at, first, _)| at == first);
    Ok(own.map(|(at, first, _)| (at, first, first + SLICE)).collect())
}

/// Read the pages in `rows` of a map. Return the pages with their origins, and the damage of the rows whose page cannot
/// be read or does not fit.
fn placed_pages(
    space: &Space,
    form: &MimallocForm,
    head: &ArenaHead,
    rows: Vec<(u64, u64, u64)>,
) -> (Vec<(Page, Origin)>, Vec<MisplacedPage>) {
    let size = form.fields.bytes;
    let places: Vec<u64> = rows.iter().map(|row| row.0).collect();
    let mut bytes = vec![0; size * rows.len()];
    let good = space.many(&places, size, &mut bytes);
    let (mut found, mut damage) = (Vec::new(), Vec::new());
    let mut starts = BTreeMap::new();
    let mut first_slice = |arena: u64| match head.start {
        Some(field) => *starts.entry(arena).or_insert_with(|| space.word(arena.checked_add(field as u64)?).ok()),
        None => Some(arena),
    };
    for (((at, first, last), is_there), bytes) in rows.into_iter().zip(good).zip(bytes.chunks_exact(size)) {
        let origin = origin(bytes, form, (first, last), &mut first_slice).filter(|_| is_there);
        let page = origin.and_then(|origin| {
            let (Origin::Arena { start, end, .. } | Origin::Own { start, end }) = origin;
            Some((form.page(bytes, start, end, at)?, origin))
        });
        match (page, is_there) {
            (Some(page), _) => found.push(page),
            (None, false) => damage.push((at, Damage::absent(at, "mi_page_t of a slice"))),
            (None, true) => {
                let expected = format!("the memory that contains {first:#x}");
                let place = at + form.fields.memid as u64;
                damage.push((at, Damage::new(place, "memid of a page", expected, "other memory")));
            }
        }
    }
    found.sort_by_key(|(page, _)| page.start);
    (found, damage)
}

/// Return the pages that the layout `form` finds for a sample of a map's entries, and the number of sampled entries.
/// Pages are left out if their arena contradicts the layout, or says that their slices are free. An entry counts if it
/// points to readable memory and belongs to mapped slices. If the map may have stale entries, an entry counts only if
/// its page is returned.
pub(super) fn some_pages(
    watcher: &dyn Watcher,
    space: &Space,
    form: &MimallocForm,
    map: u64,
) -> Result<(Vec<Page>, u64)> {
    let Family::Map(head) = form.family else { return Ok((Vec::new(), 0)) };
    let mut arenas = BTreeMap::new();
    let mut fits = |page: &Page, origin: &Origin| match origin {
        Origin::Arena { arena, .. } => {
            let found = arenas.entry(*arena).or_insert_with(|| Arena::read(space, *arena, &head));
            found.as_ref().is_some_and(|found| page.end <= found.end && found.slice(page.start) == Slice::Own)
        }
        Origin::Own { .. } => true,
    };
    let rows = rows_of(watcher, space, &head, map, Some(SUBMAPS_ASKED))?;
    let rows: Vec<(u64, u64, u64)> =
        spread(&rows.iter().collect::<Vec<_>>(), ROWS_ASKED).into_iter().map(|(row, _)| *row).collect();
    let is_there = |(at, first, last): &&(u64, u64, u64)| {
        at % 8 == 0 && space.covers(*first, last - first) && space.word(*at).is_ok()
    };
    let entries = rows.iter().filter(is_there).count();
    let pages = placed_pages(space, form, &head, rows).0.into_iter();
    let pages: Vec<Page> = pages.filter(|(page, origin)| fits(page, origin)).map(|(page, _)| page).collect();
    // Leftover entries point to whatever was written after their pages were freed. They do not count as evidence
    // against a form.
    let entries = if head.leftovers { pages.len() } else { entries };
    Ok((pages, entries as u64))
}

/// Read the arenas to which a map points, and the pages outside arenas.
pub(super) fn read_areas(
    watcher: &dyn Watcher,
    (space, evidence): (&Space, &Evidence),
    root: u32,
    form: &'static MimallocForm,
    map: u64,
) -> Result<Vec<SegmentContent>> {
    let Family::Map(head) = form.family else { return Ok(Vec::new()) };
    let (found, misplaced) = placed_pages(space, form, &head, rows_of(watcher, space, &head, map, None)?);
    let mut damage = Vec::new();
    let found: Vec<(Page, Origin)> = found.into_iter().map(|(page, from)| (Page { root, ..page }, from)).collect();
    let (mut arenas, mut beside) = (BTreeMap::<u64, Vec<Page>>::new(), Vec::new());
    for (page, from) in found {
        match from {
            Origin::Arena { arena, .. } => arenas.entry(arena).or_default().push(page),
            Origin::Own { .. } => beside.push(page),
        }
    }
    let mut areas = Vec::new();
    for (address, pages) in arenas {
        match Arena::read(space, address, &head) {
            Some(arena) => {
                let is_page = |page: &Page| !head.leftovers || arena.slice(page.start) == Slice::Own;
                let pages = pages.into_iter().filter(is_page).collect();
                areas.push((Some(arena), pages));
            }
            None => {
                damage.push(Damage::new(
                    address,
                    "header of an arena",
                    "counts and bitmaps that agree",
                    "a contradiction",
                ));
                beside.extend(pages);
            }
        }
    }
    areas.extend(beside.into_iter().map(|page| (None, vec![page])));
    damage.extend(lasting(space, misplaced, head.leftovers.then_some(areas.as_slice())));
    let mut areas: Vec<Area> = areas.into_iter().map(|(arena, pages)| Area::of(arena, pages, head.leftovers)).collect();
    areas.sort_by_key(|area| area.start);
    // Pages that reach into the next area are not read, because they are cut off at its start.
    let limits: Vec<u64> = areas.iter().skip(1).map(|area| area.start).chain([u64::MAX]).collect();
    let pages = areas.iter().zip(limits).flat_map(|(area, limit)| area.pages.iter().map(move |page| (*page, limit)));
    let pages: Vec<(Page, bool)> = pages.map(|(page, limit)| (page, page.end <= limit)).collect();
    let mut used = read_pages(watcher, space, evidence, &pages)?.into_iter();
    let mut reads: Vec<SegmentContent> = areas.into_iter().map(|area| area.read(root, &mut used)).collect();
    match reads.first_mut() {
        Some(read) => read.damage.extend(damage),
        None if damage.is_empty() => (),
        None => reads.push(SegmentContent { damage, ..SegmentContent::new(map, map, 0, root) }),
    }
    Ok(reads)
}

/// Return the damage of those misplaced entries that are not stale. `areas` is only given for a map that may have stale
/// entries: there, entries in other pages, in free slices or in unmapped memory are stale.
fn lasting(space: &Space, misplaced: Vec<MisplacedPage>, areas: Option<&[(Option<Arena>, Vec<Page>)]>) -> Vec<Damage> {
    let Some(areas) = areas else { return misplaced.into_iter().map(|(_, damage)| damage).collect() };
    let mut spans: Vec<(u64, u64)> =
        areas.iter().flat_map(|(_, pages)| pages.iter().map(|page| (page.start, page.end))).collect();
    spans.sort_unstable();
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for (start, end) in spans {
        match taken.last_mut().filter(|last| last.1 >= start) {
            Some(last) => last.1 = last.1.max(end),
            None => taken.push((start, end)),
        }
    }
    let is_free = |at: u64, arena: &Arena| (arena.start..arena.end).contains(&at) && arena.slice(at) != Slice::Own;
    let is_leftover = |at: u64| {
        let arenas = || areas.iter().filter_map(|(arena, _)| arena.as_ref());
        range_at(&taken, at).is_some() || !space.covers(at, SLICE) || arenas().any(|arena| is_free(at, arena))
    };
    misplaced.into_iter().filter(|(at, _)| !is_leftover(*at)).map(|(_, damage)| damage).collect()
}

/// Return the used blocks of each page, in the order of `pages`. No blocks are returned for a page whose own fields are
/// wrong, or whose bool in `pages` is false.
fn read_pages(
    watcher: &dyn Watcher,
    space: &Space,
    evidence: &Evidence,
    pages: &[(Page, bool)],
) -> Result<Vec<UsedBlocks>> {
    let jobs: Vec<(usize, &[(Page, bool)])> = pages.chunks(PAGES_IN_JOB).enumerate().collect();
    type Parts = (Vec<(usize, Vec<UsedBlocks>)>, Vec<u8>);
    let work = |(parts, bytes): &mut Parts, (place, pages): &(usize, &[(Page, bool)]), control: &Control| {
        let read = |(page, wanted): &(Page, bool)| match *wanted && page.fault().is_none() {
            true => page.proven_bits(space, evidence, bytes),
            false => Ok((Vec::new(), None)),
        };
        parts.push((*place, pages.iter().map(read).collect()));
        control.advance(0)
    };
    let mut parts: Vec<_> =
        space.task(watcher, None).run(&jobs, Parts::default, work)?.into_iter().flat_map(|part| part.0).collect();
    parts.sort_unstable_by_key(|(place, _)| *place);
    Ok(parts.into_iter().flat_map(|(_, used)| used).collect())
}

/// Return whether `page` comes from a stale entry of the map, which a released page may leave. `next` is the page that
/// begins after `page`. The entry is stale only if `next` begins inside `page`. One of two more conditions must hold.
/// Either `page` has no used block. Or `next` has used blocks and begins among the blocks of `page`.
fn is_leftover(page: &Page, next: &Page) -> bool {
    let blocks_end = page.blocks.saturating_add(page.reserved.saturating_mul(page.size));
    next.start < page.end && (page.counted == 0 || next.counted > 0 && next.start < blocks_end)
}

/// An arena, or the memory of one page outside arenas, with its damage.
struct Area {
    arena: Option<Arena>,
    start: u64,
    end: u64,
    /// The pages by ascending address. No page begins inside another one.
    pages: Vec<Page>,
    damage: Vec<Damage>,
}

impl Area {
    /// Make an area from its pages, which are in ascending order. A page that begins inside another page is dropped. It
    /// is reported as damage unless the map has `leftovers`. Dropped pages are not read, because there may be any
    /// number of them, each of any size.
    fn of(arena: Option<Arena>, pages: Vec<Page>, leftovers: bool) -> Area {
        let (start, end) = match (&arena, pages.first()) {
            (Some(arena), _) => (arena.start, arena.end),
            (None, Some(page)) => (page.start, page.end),
            (None, None) => (0, 0),
        };
        let mut at = start + arena.as_ref().map_or(0, |arena| arena.info * SLICE);
        let (mut kept, mut damage) = (Vec::with_capacity(pages.len()), Vec::new());
        let mut pages = pages.into_iter().peekable();
        while let Some(page) = pages.next() {
            if leftovers && (page.start < at || pages.peek().is_some_and(|next| is_leftover(&page, next))) {
                continue;
            }
            if page.start < at || page.end > end {
                let found = format!("{:#x}", page.start);
                damage.push(Damage::new(page.entry, "slices of a page", format!("at least {at:#x}"), found));
                continue;
            }
            at = page.end;
            kept.push(page);
        }
        Area { arena, start, end, pages: kept, damage }
    }

    /// Convert the area to the content of a segment. `used` yields the used blocks of each of its pages, in order.
    fn read(self, root: u32, used: &mut impl Iterator<Item = UsedBlocks>) -> SegmentContent {
        let mut read = SegmentContent::new(self.start, self.end, 0, root);
        read.damage = self.damage;
        let mut at = self.start;
        if let Some(arena) = &self.arena {
            at += arena.info * SLICE;
            read.segment.spans.push((self.start, Span::Info));
        }
        for page in self.pages {
            let used = used.next().unwrap_or(Ok((Vec::new(), None)));
            add_slices(&mut read, self.arena.as_ref(), at, page.start);
            at = page.end;
            read.add_blocks(page, |_| used);
        }
        add_slices(&mut read, self.arena.as_ref(), at, self.end);
        read
    }
}

/// Add the slices between pages in [start, end) to `read`. Neighbours of the same kind are joined.
fn add_slices(read: &mut SegmentContent, arena: Option<&Arena>, start: u64, end: u64) {
    let Some(arena) = arena else { return };
    let mut last = None;
    for address in (start..end).step_by(SLICE as usize) {
        let slice = arena.slice(address);
        if last.replace(slice) != Some(slice) {
            let span = match slice {
                Slice::Own => Span::Info,
                Slice::Free => Span::Free,
                Slice::Untouched => Span::Untouched,
            };
            read.segment.spans.push((address, span));
        }
    }
}
