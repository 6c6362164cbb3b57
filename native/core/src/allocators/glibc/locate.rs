//! Find memory of malloc that is on no list of malloc: mmapped chunks, and stretches of a main arena that could not use
//! `sbrk`.

use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::{Steps, Watcher};

/// The way in which glibc writes the header of an mmapped chunk. Up to 2.42, `prev_size + size` is the size of the
/// mapping. Since 2.43, `size` excludes the 16 bytes of the header itself, and bit 0 of `prev_size` marks huge pages.
#[derive(Clone, Copy)]
pub struct MmappedStyle {
    pub header_outside: bool,
    /// Whether to search also for the headers of chunks that mremap moved: such a chunk may have lost the alignment
    /// that memalign gave it.
    pub moved: bool,
}

/// The largest distance from the start of a mapping at which gdbheap looks for the header of a moved chunk.
const MAX_SHIFT: u64 = 4 << 20;

/// Return the mmapped chunks in `ranges`, as `(start of the mapping, chunk, bytes mapped)`. A range must begin where a
/// mapping of another owner ends, and not inside a chunk.
pub fn find_mmapped(
    watcher: &dyn Watcher,
    space: &Space,
    ranges: &[(u64, u64)],
    style: MmappedStyle,
) -> Result<Vec<(u64, u64, u64)>> {
    let mut found = Vec::new();
    for (start, end) in ranges.iter().copied() {
        watcher.check()?;
        found.extend(mmapped_in(watcher, space, (start, end), style)?);
    }
    Ok(found)
}

fn mmapped_in(
    watcher: &dyn Watcher,
    space: &Space,
    (start, end): (u64, u64),
    style: MmappedStyle,
) -> Result<Vec<(u64, u64, u64)>> {
    let mut found = Vec::new();
    let (mut window, mut steps) = (Window::new(space, end), space.steps(watcher, start, end));
    let mut at = start;
    while at < end {
        let left = steps.left;
        match mmapped_at(&mut window, at, end, style, &mut steps)? {
            Some((chunk, total)) => {
                steps.left = left;
                found.push((at, chunk, total));
                at += total;
            }
            None => at = next_page(space, at, end),
        }
    }
    Ok(found)
}

/// Return the start of the next page whose bytes the target or its core has. The search begins after the page that
/// contains `at`. Return `end` if there is no such page.
fn next_page(space: &Space, at: u64, end: u64) -> u64 {
    let page = space.machine.page.bytes();
    at.checked_add(page).and_then(|next| space.next_backed(next)).map_or(end, |next| next / page * page)
}

fn mapped_total(words: (u64, u64), style: MmappedStyle) -> (u64, u64) {
    let (prev_size, size) = (words.0, words.1 & !7);
    match style.header_outside {
        true => (prev_size & !1, (prev_size & !1).wrapping_add(size).wrapping_add(16)),
        false => (prev_size, prev_size.wrapping_add(size)),
    }
}

fn mmapped_at(
    window: &mut Window<'_>,
    base: u64,
    end: u64,
    style: MmappedStyle,
    steps: &mut Steps<'_>,
) -> Result<Option<(u64, u64)>, Cancellation> {
    steps.look()?;
    let Some((0, total)) = mmapped_header(window, base, style) else { return Ok(None) };
    // memalign puts a second header inside the mapping and leaves the first one unchanged. A later mremap changes only
    // the second header. So a second header is the right one if its prev_size is its distance from the base.
    let mut alignment = 32;
    while alignment < end - base {
        let chunk = (base + 16).next_multiple_of(alignment) - 16;
        if let Some(inner) = shifted_header(window, base, chunk, end, style) {
            return Ok(Some((chunk, inner)));
        }
        let Some(next) = alignment.checked_mul(2) else { break };
        alignment = next;
    }
    let furthest = if style.moved && steps.left > 0 { total.min(MAX_SHIFT).min(end - base) } else { 0 };
    let page = window.page();
    for start in (page..=furthest).step_by(page as usize) {
        steps.take()?;
        let chunk = base + start - 16;
        if let Some(inner) = shifted_header(window, base, chunk, end, style) {
            return Ok(Some((chunk, inner)));
        }
    }
    Ok((total <= end - base).then_some((base, total)))
}

/// Return the size of the mapping that begins at `base`, if its header is at `chunk` inside the mapping; otherwise
/// None.
fn shifted_header(window: &mut Window<'_>, base: u64, chunk: u64, end: u64, style: MmappedStyle) -> Option<u64> {
    if chunk <= base || chunk >= end {
        return None;
    }
    let (shift, total) = mmapped_header(window, chunk, style)?;
    (shift == chunk - base && total <= end - base).then_some(total)
}

/// Return `(distance from the mapping's base, bytes mapped)` if the words at `chunk` are the header of an mmapped
/// chunk.
fn mmapped_header(window: &mut Window<'_>, chunk: u64, style: MmappedStyle) -> Option<(u64, u64)> {
    let bytes = window.bytes(chunk, 16).ok()?;
    let words = (u64_at(bytes, 0), u64_at(bytes, 8));
    let (shift, total) = mapped_total(words, style);
    let sound = words.1 & 7 == 2 && words.1 > 0x20 && total % window.page() == 0 && total > shift;
    sound.then_some((shift, total))
}

/// Return `(start, end)` of the extents: the stretches of a main arena that could not use `sbrk`. An extent is
/// page-aligned and begins with a chunk that has no chunk before it. A walk from there ends at `top`, or at a double
/// fencepost at the end of a page. An extent at the start of a range may be unaligned. The same holds for an extent in
/// the `foreign` bytes after another one. Therefore these bytes are searched in steps of 16.
pub fn find_extents(
    watcher: &dyn Watcher,
    space: &Space,
    ranges: &[(u64, u64)],
    top: u64,
    foreign: u64,
) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for (start, end) in ranges.iter().copied() {
        watcher.check()?;
        found.extend(extents_in(watcher, space, (start, end), top, foreign)?);
    }
    Ok(found)
}

fn extents_in(
    watcher: &dyn Watcher,
    space: &Space,
    (start, end): (u64, u64),
    top: u64,
    foreign: u64,
) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let (mut window, mut steps) = (Window::new(space, end), space.steps(watcher, start, end));
    let (mut at, mut closely) = (start, start);
    while at < end {
        let left = steps.left;
        match extent_at(&mut window, at, end, top, &mut steps)? {
            Some(stop) => {
                steps.left = left;
                found.push((at, stop));
                at = stop.next_multiple_of(16);
                closely = at.saturating_add(foreign);
            }
            None if at < closely => at += 16,
            None => at = next_page(space, at, end),
        }
    }
    Ok(found)
}

/// Return the end of the extent (see `find_extents`) that begins at `start`; None if none begins there.
fn extent_at(
    window: &mut Window<'_>,
    start: u64,
    limit: u64,
    top: u64,
    steps: &mut Steps<'_>,
) -> Result<Option<u64>, Cancellation> {
    steps.look()?;
    let mut at = start;
    if steps.left == 0 || !header(window, start).is_some_and(|(prev_size, word)| prev_size == 0 && word & 7 == 1) {
        return Ok(None);
    }
    loop {
        steps.take()?;
        match extent_step(window, (start, limit), at, top) {
            Some(Step::Chunk(next)) => at = next,
            Some(Step::End(stop)) => return Ok(Some(stop)),
            None => return Ok(None),
        }
    }
}

fn header(window: &mut Window<'_>, at: u64) -> Option<(u64, u64)> {
    let bytes = window.bytes(at, 16).ok()?;
    Some((u64_at(bytes, 0), u64_at(bytes, 8)))
}

enum Step {
    /// The walk continues with the chunk at this address.
    Chunk(u64),
    /// The walk has reached the end of the extent, which is at this address.
    End(u64),
}

/// Return the next step of a walk that began at `start` and has reached the chunk at `at`; None if no chunk is there.
fn extent_step(window: &mut Window<'_>, (start, limit): (u64, u64), at: u64, top: u64) -> Option<Step> {
    let page = window.page();
    let (_, word) = header(window, at)?;
    let (size, rest) = (word & !7, limit.checked_sub(at)?);
    if at == top {
        // An undamaged top chunk ends at the end of a page and has at least 32 bytes.
        let sound = size <= rest && (at + size) % page == 0 && size >= 32;
        let end = if sound { at + size } else { at.checked_add(32)?.next_multiple_of(page) };
        return (end <= limit).then_some(Step::End(end));
    }
    if size == 16 && at > start {
        // The stretch ends with two fenceposts, or with three if the old top was too small to be freed.
        let mut stop = at + 16;
        while stop % page != 0 && stop < at + 48 && header(window, stop)?.1 & !7 == 16 {
            stop += 16;
        }
        return (stop % page == 0 && stop >= at + 32).then_some(Step::End(stop));
    }
    (size >= 32 && size % 16 == 0 && size < rest).then(|| Step::Chunk(at + size))
}

/// Find extents (see `find_extents`) of exactly `size` bytes by their two ends alone. The start is page-aligned, and a
/// chunk begins there that has no chunk before it. The end is the end of a double fencepost or of `top`.
pub fn find_fenced(
    watcher: &dyn Watcher,
    space: &Space,
    ranges: &[(u64, u64)],
    size: u64,
    top: u64,
) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for (start, end) in ranges.iter().copied() {
        watcher.check()?;
        found.extend(fenced_in(watcher, space, (start, end), size, top)?);
    }
    Ok(found)
}

fn fenced_in(
    watcher: &dyn Watcher,
    space: &Space,
    (start, end): (u64, u64),
    size: u64,
    top: u64,
) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let (mut window, mut steps) = (Window::new(space, end), Steps::new(watcher, u64::MAX));
    let page = window.page();
    let mut at = start.next_multiple_of(page);
    while end.checked_sub(at).is_some_and(|rest| rest >= size.max(page)) {
        steps.look()?;
        let begins = window.bytes(at, 16).is_ok_and(|first| u64_at(first, 0) == 0 && first[8] & 7 == 1);
        if begins && ends_extent(space, at, at + size, top) {
            found.push((at, at + size));
        }
        at = next_page(space, at, end);
    }
    Ok(found)
}

fn ends_extent(space: &Space, start: u64, end: u64, top: u64) -> bool {
    let size_at = |header: u64| space.word(header.wrapping_add(8)).map(|word| word & !7).ok();
    let is_fence = |header: u64| size_at(header) == Some(16);
    match (start..end).contains(&top) {
        true => size_at(top).and_then(|size| top.checked_add(size)) == Some(end),
        false => is_fence(end.wrapping_sub(32)) && is_fence(end.wrapping_sub(16)),
    }
}
