//! Finding structures by their shape: circular lists' heads, tables of arenas, headers of mmapped chunks, plain words.

use crate::pools::HEADER;
use crate::space::Space;
use crate::window::Window;
use pyo3::prelude::*;
use std::collections::HashMap;

/// More than any module's data: what is scanned at once.
const MOST_BYTES: u64 = 64 << 20;

/// The words of a stretch, as far as they can be read.
struct Words {
    start: u64,
    words: Vec<u64>,
}

impl Words {
    fn read(space: &Space, start: u64, end: u64) -> Words {
        let start = start.next_multiple_of(8);
        let mut bytes = vec![0; end.saturating_sub(start).min(MOST_BYTES) as usize];
        let mut at = 0;
        while at < bytes.len() {
            let got = space.fill(start + at as u64, &mut bytes[at..]);
            // Absent pages stay zeros: no structure starts in them.
            at = (at + got) / 4096 * 4096 + 4096;
        }
        Words { start, words: bytes.chunks_exact(8).map(|word| crate::u64_at(word, 0)).collect() }
    }

    fn at(&self, space: &Space, address: u64) -> Option<u64> {
        let index = address.wrapping_sub(self.start);
        match index % 8 == 0 && index / 8 < self.words.len() as u64 {
            true => Some(self.words[(index / 8) as usize]),
            false => space.word(address).ok(),
        }
    }

    /// Whether the pair at `index` heads a circular list whose elements link at +16 (next) and +24 (previous).
    fn heads_list(&self, space: &Space, index: usize) -> bool {
        let (next, previous) = (self.words[index], self.words[index + 1]);
        let head = (self.start + index as u64 * 8).wrapping_sub(16);
        if next == head && previous == head {
            return true;
        }
        let plausible = |pointer: u64| pointer % 16 == 0 && pointer > 4096 && space.covers(pointer, 32);
        plausible(next)
            && plausible(previous)
            && self.at(space, next + 24) == Some(head)
            && self.at(space, previous + 16) == Some(head)
    }
}

/// The addresses of the words from `start` on that are still what they were in the beginning, `initial`, and whose value
/// lies in one of `ranges` (ascending).
#[pyfunction]
pub fn find_initial(space: &Space, start: u64, initial: &[u8], ranges: Vec<(u64, u64)>) -> Vec<u64> {
    let words = Words::read(space, start, start.saturating_add(initial.len() as u64));
    let initial = initial.get((words.start - start) as usize..).unwrap_or_default().chunks_exact(8);
    let leads = |word: u64| crate::range_at(&ranges, word).is_some();
    let same = words.words.iter().zip(initial).zip((words.start..).step_by(8));
    same.filter(|((word, old), _)| **word == crate::u64_at(old, 0) && leads(**word)).map(|(_, at)| at).collect()
}

/// Runs of at least `least` consecutive list heads in [start, end), as `(address of the first pair, pairs)`.
/// Some pairs inside a run may be out of order: damage must not hide the whole.
#[pyfunction]
pub fn find_list_heads(py: Python<'_>, space: &Space, start: u64, end: u64, least: usize) -> Vec<(u64, usize)> {
    let search = || {
        let words = Words::read(space, start, end);
        let mut found = Vec::new();
        for parity in 0..2 {
            runs_of_heads(space, &words, parity, least, &mut found);
        }
        found
    };
    if space.is_remote() {
        return search();
    }
    py.detach(search)
}

fn runs_of_heads(space: &Space, words: &Words, parity: usize, least: usize, found: &mut Vec<(u64, usize)>) {
    let pairs = words.words.len().saturating_sub(parity) / 2;
    let is_head = |pair: usize| words.heads_list(space, parity + 2 * pair);
    let mut pair = 0;
    while pair < pairs {
        if !is_head(pair) {
            pair += 1;
            continue;
        }
        let (first, mut last, mut broken) = (pair, pair, 0);
        pair += 1;
        while pair < pairs && pair - last <= MOST_BROKEN_TOGETHER && broken <= MOST_BROKEN {
            match is_head(pair) {
                true => last = pair,
                false => broken += 1,
            }
            pair += 1;
        }
        if last + 1 - first >= least {
            found.push((words.start + (parity + 2 * first) as u64 * 8, last + 1 - first));
        }
        pair = last + 1;
    }
}

/// Lists of a run that may be broken: by damage, or one half linked in a process that was stopped inside malloc.
const MOST_BROKEN: usize = 24;
const MOST_BROKEN_TOGETHER: usize = 4;

/// Heads of the lists of pools that lie in the ranges: `{usedpools: lists that end at its heads}`. A pool that is the last
/// of its list points to the head, 16 bytes before the pair of its size class. Looks at the pools' headers only.
#[pyfunction]
pub fn find_list_ends(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    pool_size: u64,
    alignment: u64,
) -> PyResult<HashMap<u64, u32>> {
    let mut found = HashMap::new();
    for (start, end) in ranges {
        let mut at = start.next_multiple_of(pool_size);
        while at < end {
            py.check_signals()?;
            let mut addresses = Vec::new();
            while at < end && addresses.len() < HEADERS_AT_ONCE {
                let Some(next) = space.next_backed(at) else { break };
                let Some(aligned) = next.checked_next_multiple_of(pool_size) else { break };
                at = aligned;
                if at < end {
                    addresses.push(at);
                }
                at = at.saturating_add(pool_size);
            }
            if addresses.is_empty() {
                break;
            }
            let mut headers = vec![0; addresses.len() * HEADER as usize];
            let good = space.many(&addresses, HEADER as usize, &mut headers);
            for (place, address) in addresses.iter().enumerate().filter(|(place, _)| good[*place]) {
                let header = &headers[place * HEADER as usize..(place + 1) * HEADER as usize];
                if let Some(usedpools) = ended_list(space, *address, header, pool_size, alignment) {
                    *found.entry(usedpools).or_insert(0) += 1;
                }
            }
        }
    }
    Ok(found)
}

const HEADERS_AT_ONCE: usize = 4096;

/// Where `usedpools` is by the pool at `address`, if that is one in use and the last of its list: what it points to is
/// no pool. (A head that lies where one could be is one of many.)
fn ended_list(space: &Space, address: u64, header: &[u8], pool_size: u64, alignment: u64) -> Option<u64> {
    let (used, next) = (crate::u32_at(header, 0), crate::u64_at(header, 16));
    let (class, carved, furthest) =
        (u64::from(crate::u32_at(header, 36)), crate::u32_at(header, 40), crate::u32_at(header, 44));
    let size = (class + 1) * alignment;
    let sound = used > 0 && size <= 512 && u64::from(furthest) + size == pool_size && u64::from(carved) <= pool_size;
    if !sound || next % 8 != 0 || next % pool_size == 0 || space.word(next.checked_add(24)?).ok()? != address {
        return None;
    }
    (next + 16).checked_sub(16 * class)
}

/// Addresses of words in [start, end) that point to a table of `struct arena_object` (48 bytes each) which fits every
/// sample `(pool address, arenaindex)`; `homes` are the ranges in which the table may lie, ascending.
#[pyfunction]
pub fn find_arena_tables(
    py: Python<'_>,
    space: &Space,
    start: u64,
    end: u64,
    samples: Vec<(u64, u32)>,
    homes: Vec<(u64, u64)>,
    largest_arena: u64,
) -> Vec<(u64, u64)> {
    let at_home = |table: u64| crate::range_at(&homes, table).is_some();
    let search = || {
        let words = Words::read(space, start, end);
        let mut candidates: Vec<(u64, u64)> = words
            .words
            .iter()
            .enumerate()
            .filter(|(_, word)| **word % 8 == 0 && at_home(**word))
            .map(|(index, word)| (words.start + index as u64 * 8, *word))
            .collect();
        for (pool, index) in &samples {
            candidates = fitting_tables(space, candidates, *pool, *index, largest_arena);
        }
        candidates
    };
    match space.is_remote() {
        _ if samples.is_empty() => Vec::new(),
        true => search(),
        false => py.detach(search),
    }
}

/// Of the candidates `(address, table)` those whose entry `index` is an arena with `pool` among its carved pools.
fn fitting_tables(
    space: &Space,
    candidates: Vec<(u64, u64)>,
    pool: u64,
    index: u32,
    largest_arena: u64,
) -> Vec<(u64, u64)> {
    let entry_of = |table: u64| table.wrapping_add(u64::from(index) * 48);
    let there: Vec<(u64, u64)> =
        candidates.into_iter().filter(|(_, table)| space.covers(entry_of(*table), ENTRY as u64)).collect();
    let addresses: Vec<u64> = there.iter().map(|(_, table)| entry_of(*table)).collect();
    let mut entries = vec![0; addresses.len() * ENTRY];
    let good = space.many(&addresses, ENTRY, &mut entries);
    let fits = |entry: &[u8]| {
        let (address, carved) = (crate::u64_at(entry, 0), crate::u64_at(entry, 8));
        let (free, total) = (crate::u32_at(entry, 16), crate::u32_at(entry, 20));
        let inside = address <= pool && pool < carved && carved.wrapping_sub(address) <= largest_arena;
        inside && free <= total && total <= 512
    };
    let kept = there.into_iter().zip(entries.chunks_exact(ENTRY)).zip(good);
    kept.filter(|((_, entry), good)| *good && fits(entry)).map(|((candidate, _), _)| candidate).collect()
}

/// The part of `struct arena_object` that is looked at.
const ENTRY: usize = 24;

/// How glibc writes the header of an mmapped chunk: up to 2.42 `prev_size + size` is the mapping, since 2.43 the
/// header's own 16 bytes are not in `size`, and bit 0 of prev_size says huge page.
#[derive(Clone, Copy, FromPyObject)]
pub struct MmappedStyle {
    pub header_outside: bool,
    pub page: u64,
    /// Look also for headers whose mapping mremap moved away from the alignment that memalign gave it.
    pub moved: bool,
}

/// How far into its mapping such a header is looked for.
const MOST_SHIFT: u64 = 4 << 20;

/// The mmapped chunks in a range, which begins where a mapping of somebody else ends: `(base, chunk, bytes mapped)`.
#[pyfunction]
pub fn find_mmapped(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    style: MmappedStyle,
) -> PyResult<Vec<(u64, u64, u64)>> {
    let mut found = Vec::new();
    for (start, end) in ranges {
        py.check_signals()?;
        let search = || mmapped_in(space, start, end, style);
        found.extend(if space.is_remote() { search() } else { py.detach(search) });
    }
    Ok(found)
}

fn mmapped_in(space: &Space, start: u64, end: u64, style: MmappedStyle) -> Vec<(u64, u64, u64)> {
    let mut found = Vec::new();
    let mut window = Window::new(space, end);
    let mut at = start;
    while at < end {
        match mmapped_at(&mut window, at, end, style) {
            Some((chunk, total)) => {
                found.push((at, chunk, total));
                at += total;
            }
            None => at = space.next_backed(at + style.page).map_or(end, |next| next / style.page * style.page),
        }
    }
    found
}

fn mapped_total(words: (u64, u64), style: MmappedStyle) -> (u64, u64) {
    let (prev_size, size) = (words.0, words.1 & !7);
    match style.header_outside {
        true => (prev_size & !1, (prev_size & !1).wrapping_add(size).wrapping_add(16)),
        false => (prev_size, prev_size.wrapping_add(size)),
    }
}

fn mmapped_at(window: &mut Window<'_>, base: u64, end: u64, style: MmappedStyle) -> Option<(u64, u64)> {
    let (shift, total) = mmapped_header(window, base, style)?;
    if shift != 0 {
        return None;
    }
    // memalign moves the header inside and leaves the first one as it was; a later mremap changes only the live one.
    // So a header further in whose prev_size is its distance from the base is the one that counts.
    let mut alignment = 32;
    while alignment < end - base {
        let chunk = (base + 16).next_multiple_of(alignment) - 16;
        if let Some(inner) = shifted_header(window, base, chunk, end, style) {
            return Some((chunk, inner));
        }
        let Some(next) = alignment.checked_mul(2) else { break };
        alignment = next;
    }
    let furthest = if style.moved { total.min(MOST_SHIFT).min(end - base) } else { 0 };
    for start in (style.page..=furthest).step_by(style.page as usize) {
        let chunk = base + start - 16;
        if let Some(inner) = shifted_header(window, base, chunk, end, style) {
            return Some((chunk, inner));
        }
    }
    (total <= end - base).then_some((base, total))
}

/// Bytes mapped, if at `chunk` is the header of the mapping that begins at `base`, further in.
fn shifted_header(window: &mut Window<'_>, base: u64, chunk: u64, end: u64, style: MmappedStyle) -> Option<u64> {
    if chunk <= base || chunk >= end {
        return None;
    }
    let (shift, total) = mmapped_header(window, chunk, style)?;
    (shift == chunk - base && total <= end - base).then_some(total)
}

/// `(distance from the mapping's base, bytes mapped)` if the words at `chunk` are an mmapped chunk's.
fn mmapped_header(window: &mut Window<'_>, chunk: u64, style: MmappedStyle) -> Option<(u64, u64)> {
    let bytes = window.bytes(chunk, 16).ok()?;
    let words = (crate::u64_at(bytes, 0), crate::u64_at(bytes, 8));
    let (shift, total) = mapped_total(words, style);
    let sound = words.1 & 7 == 2 && words.1 > 0x20 && total % style.page == 0 && total > shift;
    sound.then_some((shift, total))
}

/// How many words of the `sources`, `(start, end, number)`, point into each of the `targets`, which ascend and are
/// disjoint: `{(number, place of the target): words}`, without zeros.
#[pyfunction]
pub fn count_pointers(
    py: Python<'_>,
    space: &Space,
    sources: Vec<(u64, u64, u32)>,
    targets: Vec<(u64, u64)>,
) -> PyResult<HashMap<(u32, usize), u64>> {
    let mut found = HashMap::new();
    for (start, end, number) in sources {
        py.check_signals()?;
        for word in Words::read(space, start, end).words {
            if let Some(place) = crate::range_at(&targets, word) {
                *found.entry((number, place)).or_insert(0) += 1;
            }
        }
    }
    Ok(found)
}

/// Stretches of a main arena that has had to do without `sbrk`: page-aligned, beginning with a chunk that has nothing
/// before it, and a walk from there ends at a double fencepost on a page's end, or at `top`. `(start, end)` of each.
/// A range may begin with one inside a page; behind each one of them, `foreign` bytes are searched in steps of 16.
#[pyfunction]
pub fn find_extents(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    top: u64,
    page: u64,
    foreign: u64,
) -> PyResult<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for (start, end) in ranges {
        py.check_signals()?;
        let search = || extents_in(space, start, end, top, page.max(16), foreign);
        found.extend(if space.is_remote() { search() } else { py.detach(search) });
    }
    Ok(found)
}

fn extents_in(space: &Space, start: u64, end: u64, top: u64, page: u64, foreign: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut window = Window::new(space, end);
    let (mut at, mut closely) = (start, start);
    while at < end {
        match extent_at(&mut window, at, end, top, page) {
            Some(stop) => {
                found.push((at, stop));
                at = stop.next_multiple_of(16);
                closely = at.saturating_add(foreign);
            }
            None if at < closely => at += 16,
            None => at = space.next_backed(at + page).map_or(end, |next| next / page * page),
        }
    }
    found
}

fn extent_at(window: &mut Window<'_>, start: u64, limit: u64, top: u64, page: u64) -> Option<u64> {
    let header = |window: &mut Window<'_>, at: u64| -> Option<(u64, u64)> {
        let bytes = window.bytes(at, 16).ok()?;
        Some((crate::u64_at(bytes, 0), crate::u64_at(bytes, 8)))
    };
    let (prev_size, word) = header(window, start)?;
    if prev_size != 0 || word & 7 != 1 {
        return None;
    }
    let mut at = start;
    loop {
        let (_, word) = header(window, at)?;
        let (size, rest) = (word & !7, limit.checked_sub(at)?);
        if at == top {
            // A top that does not end with a page is damaged: it has 32 bytes or more.
            let sound = size <= rest && (at + size) % page == 0 && size >= 32;
            let end = if sound { at + size } else { at.checked_add(32)?.next_multiple_of(page) };
            return (end <= limit).then_some(end);
        }
        if size == 16 && at > start {
            // Two, or three where the old top was too small to be freed.
            let mut stop = at + 16;
            while stop % page != 0 && stop < at + 48 && header(window, stop)?.1 & !7 == 16 {
                stop += 16;
            }
            return (stop % page == 0 && stop >= at + 32).then_some(stop);
        }
        if size < 32 || size % 16 != 0 || size >= rest {
            return None;
        }
        at += size;
    }
}

/// Places of an extent of exactly `size` bytes by its ends alone: page-aligned, a first chunk that has nothing before
/// it, and a double fencepost or the end of `top` behind the last one.
#[pyfunction]
pub fn find_fenced(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    size: u64,
    top: u64,
    page: u64,
) -> PyResult<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for (start, end) in ranges {
        py.check_signals()?;
        let search = || fenced_in(space, start.next_multiple_of(page.max(16)), end, size, top, page.max(16));
        found.extend(if space.is_remote() { search() } else { py.detach(search) });
    }
    Ok(found)
}

fn fenced_in(space: &Space, start: u64, end: u64, size: u64, top: u64, page: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut window = Window::new(space, end);
    let mut at = start;
    while end.checked_sub(at).is_some_and(|rest| rest >= size.max(page)) {
        let begins = window.bytes(at, 16).is_ok_and(|first| crate::u64_at(first, 0) == 0 && first[8] & 7 == 1);
        if begins && ends_extent(space, at, at + size, top) {
            found.push((at, at + size));
        }
        at = space.next_backed(at + page).map_or(end, |next| next / page * page);
    }
    found
}

fn ends_extent(space: &Space, start: u64, end: u64, top: u64) -> bool {
    let size_at = |header: u64| space.word(header.wrapping_add(8)).map(|word| word & !7).ok();
    let is_fence = |header: u64| size_at(header) == Some(16);
    match (start..end).contains(&top) {
        true => size_at(top).and_then(|size| top.checked_add(size)) == Some(end),
        false => is_fence(end.wrapping_sub(32)) && is_fence(end.wrapping_sub(16)),
    }
}
