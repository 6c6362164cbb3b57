//! mimalloc 3: arenas with their pages, and pages that lie in none.

use crate::allocators::damage::{Damage, ABSENT, READABLE};
use crate::allocators::mimalloc::layout::{Family, MimallocForm, SLICE};
use crate::allocators::mimalloc::maps::{mapped_pages, origin, Arena, Origin, Slice};
use crate::allocators::mimalloc::page::{Miscounted, Page};
use crate::allocators::mimalloc::spans::{Read, Span};
use crate::allocators::spread::spread;
use crate::error::Result;
use crate::memory::space::Space;
use crate::work::{Control, Watcher};
use std::collections::BTreeMap;

/// Read by one worker at a time.
const PAGES_IN_JOB: usize = 64;
/// Of a map, where it is asked whether a form fits: most may be full, and tell nothing.
const ROWS_ASKED: usize = 1024;

type Used = (Vec<u64>, Option<Miscounted>);

/// The pages of `rows` of a map with where they are from, and those that could not be read or do not fit.
fn placed_pages(space: &Space, form: &MimallocForm, rows: Vec<(u64, u64, u64)>) -> (Vec<(Page, Origin)>, Vec<Damage>) {
    let size = form.fields.bytes;
    let places: Vec<u64> = rows.iter().map(|row| row.0).collect();
    let mut bytes = vec![0; size * rows.len()];
    let good = space.many(&places, size, &mut bytes);
    let (mut found, mut damage) = (Vec::new(), Vec::new());
    for (((at, first, last), is_there), bytes) in rows.into_iter().zip(good).zip(bytes.chunks_exact(size)) {
        let origin = origin(bytes, form, first, last).filter(|_| is_there);
        let page = origin.and_then(|origin| {
            let (Origin::Arena { start, end, .. } | Origin::Own { start, end }) = origin;
            Some((form.page(bytes, start, end, at)?, origin))
        });
        match (page, is_there) {
            (Some(page), _) => found.push(page),
            (None, false) => damage.push(Damage::new(at, "mi_page_t of a slice", READABLE, ABSENT)),
            (None, true) => {
                let expected = format!("memory around {first:#x}");
                damage.push(Damage::new(at + form.fields.memid as u64, "memid of a page", expected, "other memory"));
            }
        }
    }
    found.sort_by_key(|(page, _)| page.start);
    (found, damage)
}

/// A sample of the pages of a map, without those of arenas that are not as the form says, or say that the slices of a page are
/// free; and how many entries of the map were asked, whatever the form makes of them, that lead to readable memory and are for
/// slices that are there.
pub(super) fn some_pages(space: &Space, form: &MimallocForm, map: u64) -> (Vec<Page>, u64) {
    let Family::Map(head) = form.family else { return (Vec::new(), 0) };
    let mut arenas = BTreeMap::new();
    let mut fits = |page: &Page, origin: &Origin| match origin {
        Origin::Arena { arena, .. } => {
            let found = arenas.entry(*arena).or_insert_with(|| Arena::read(space, *arena, &head));
            found.as_ref().is_some_and(|found| page.end <= found.end && found.slice(page.start) == Slice::Own)
        }
        Origin::Own { .. } => true,
    };
    let rows = mapped_pages(space, map);
    let rows: Vec<(u64, u64, u64)> =
        spread(&rows.iter().collect::<Vec<_>>(), ROWS_ASKED).into_iter().map(|(row, _)| *row).collect();
    let is_there = |(at, first, last): &&(u64, u64, u64)| {
        at % 8 == 0 && space.covers(*first, last - first) && space.word(*at).is_ok()
    };
    let entries = rows.iter().filter(is_there).count() as u64;
    let pages = placed_pages(space, form, rows).0.into_iter();
    (pages.filter(|(page, origin)| fits(page, origin)).map(|(page, _)| page).collect(), entries)
}

/// The arenas and the pages beside them that a map leads to.
pub(super) fn read_areas(
    watcher: &dyn Watcher,
    space: &Space,
    root: u32,
    form: &'static MimallocForm,
    map: u64,
) -> Result<Vec<Read>> {
    let Family::Map(head) = form.family else { return Ok(Vec::new()) };
    let (found, mut damage) = placed_pages(space, form, mapped_pages(space, map));
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
            Some(arena) => areas.push((Some(arena), pages)),
            None => {
                damage.push(Damage::new(address, "header of an arena", "counts and bitmaps that fit", "others"));
                beside.extend(pages);
            }
        }
    }
    areas.extend(beside.into_iter().map(|page| (None, vec![page])));
    let pages: Vec<Page> = areas.iter().flat_map(|(_, pages)| pages.iter().copied()).collect();
    let mut used = read_pages(watcher, space, &pages)?.into_iter();
    let mut reads: Vec<Read> = areas.into_iter().map(|(arena, pages)| area(arena, pages, root, &mut used)).collect();
    match reads.first_mut() {
        Some(read) => read.damage.extend(damage),
        None if damage.is_empty() => (),
        None => reads.push(Read { damage, ..Read::new(map, map, 0, root) }),
    }
    Ok(reads)
}

/// The used blocks of pages, in their order; nothing of those whose own fields are wrong.
fn read_pages(watcher: &dyn Watcher, space: &Space, pages: &[Page]) -> Result<Vec<Used>> {
    let jobs: Vec<(usize, &[Page])> = pages.chunks(PAGES_IN_JOB).enumerate().collect();
    type Parts = (Vec<(usize, Vec<Used>)>, Vec<u8>);
    let work = |(parts, bytes): &mut Parts, (place, pages): &(usize, &[Page]), control: &Control| {
        let read = |page: &Page| match page.fault() {
            Some(_) => (Vec::new(), None),
            None => page.used_bits(space, bytes),
        };
        parts.push((*place, pages.iter().map(read).collect()));
        control.advance(0)
    };
    let mut parts: Vec<_> =
        space.task(watcher, None).run(&jobs, Parts::default, work)?.into_iter().flat_map(|part| part.0).collect();
    parts.sort_unstable_by_key(|(place, _)| *place);
    Ok(parts.into_iter().flat_map(|(_, used)| used).collect())
}

/// An arena, or what one page has for itself. Pages ascend; one that begins inside of another does not count.
fn area(arena: Option<Arena>, pages: Vec<Page>, root: u32, used: &mut impl Iterator<Item = Used>) -> Read {
    let (start, end) = match (&arena, pages.first()) {
        (Some(arena), _) => (arena.start, arena.end),
        (None, Some(page)) => (page.start, page.end),
        (None, None) => (0, 0),
    };
    let mut read = Read::new(start, end, 0, root);
    let mut at = start;
    if let Some(arena) = &arena {
        at = start + arena.info * SLICE;
        read.segment.spans.push((start, Span::Info));
    }
    for page in pages {
        let used = used.next().unwrap_or_default();
        if page.start < at || page.end > end {
            let found = format!("{:#x}", page.start);
            read.damage.push(Damage::new(page.entry, "slices of a page", format!("at least {at:#x}"), found));
            continue;
        }
        add_slices(&mut read, arena.as_ref(), at, page.start);
        at = page.end;
        read.add_blocks(page, |_| used);
    }
    add_slices(&mut read, arena.as_ref(), at, end);
    read
}

/// What lies between pages, [start, end), neighbours that are alike together.
fn add_slices(read: &mut Read, arena: Option<&Arena>, start: u64, end: u64) {
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
