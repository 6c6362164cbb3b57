//! Read all chunks of musl's malloc before 1.2.1. A heap is recognized by its beginning and by the consecutive chunks
//! in it.

use crate::allocators::damage::{hex, Damage};
use crate::allocators::oldmalloc::bins::{ChunkLinks, MAX_DAMAGE};
use crate::allocators::oldmalloc::chunks::{Oldmalloc, Stretch};
use crate::allocators::oldmalloc::layout::{ChunkWords, GRAIN, HEADER, IN_USE, OF_MAPPING};
use crate::allocators::oldmalloc::parts::{ChunkRow, RowQueue};
use crate::bits::Bits;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::{Steps, Watcher};

/// The number of consecutive chunks that prove a heap, even if the next chunk is damaged.
const ENOUGH: usize = 8;
/// The number of chunks after which the rest of a heap is walked in parts. The parts cover the next AHEAD times as many
/// bytes as were walked so far.
const STEPS: usize = 1 << 16;
const AHEAD: u64 = 8;

/// The memory that may contain chunks: private anonymous memory without another owner, and the static data of modules.
/// Adjacent ranges are joined.
pub struct ChunkRanges<'a> {
    pub anonymous: &'a [(u64, u64)],
    pub data: &'a [(u64, u64)],
}

/// A heap as rows of chunks. `start`: the address of its first chunk.
struct HeapRows {
    start: u64,
    end: u64,
    rows: Vec<ChunkRow>,
    whole: bool,
    damage: Vec<Damage>,
}

/// Read all chunks. `mal`: the address of the malloc's state, which `find_bins` found. Fails if memory does not suffice
/// for all chunks.
pub fn read_oldmalloc(watcher: &dyn Watcher, space: &Space, mal: u64, given: &ChunkRanges<'_>) -> Result<Oldmalloc> {
    let mut found: Vec<(u64, HeapRows)> = Vec::new();
    for range in given.anonymous {
        find_heaps(watcher, space, *range, &mut found)?;
    }
    for range in given.data {
        find_given(watcher, space, *range, &mut found)?;
    }
    found.sort_by_key(|(base, _)| *base);
    let mut all = Oldmalloc::with_room(&found);
    let mut linked = ChunkLinks::default();
    for (base, tiled) in found {
        all.add(base, tiled, &mut linked);
    }
    all.damage.truncate(MAX_DAMAGE);
    all.compare_bins(watcher, space, mal, linked)?;
    Ok(all)
}

/// Find heaps, and mappings with only one chunk. Both begin at the start of a page.
fn find_heaps(
    watcher: &dyn Watcher,
    space: &Space,
    (low, high): (u64, u64),
    found: &mut Vec<(u64, HeapRows)>,
) -> Result<()> {
    let (mut window, mut steps) = (Window::new(space, high), space.steps(watcher, low, high));
    let page = window.page();
    let mut at = low.next_multiple_of(page);
    while let Some(next) = space.next_backed(at).map(|next| space.page().down(next).max(at)).filter(|at| *at < high) {
        at = next;
        let left = steps.left;
        steps.look()?;
        let head = window.bytes(at + HEADER, HEADER as usize).map(ChunkWords::of);
        let here = match head {
            Ok(head) if head.begins() && steps.left > 0 => tile(space, &mut window, at + HEADER, high, &mut steps)?,
            Ok(head) if is_mapping(head, at, high, page) => Some(mapping(&mut window, at, head.csize + HEADER)),
            _ => None,
        };
        match here {
            Some(tiled) => {
                steps.left = left;
                let (base, end) = (if tiled.is_mapping() { at } else { tiled.start }, tiled.end);
                found.push((base, tiled));
                at = end.next_multiple_of(page).max(at + page);
            }
            None => at += page,
        }
    }
    Ok(())
}

/// Find ranges of a module's data that the dynamic linker donated. A donated range may begin anywhere, so a range is
/// accepted only if its chunks reach the mark that ends it.
fn find_given(
    watcher: &dyn Watcher,
    space: &Space,
    (low, high): (u64, u64),
    found: &mut Vec<(u64, HeapRows)>,
) -> Result<()> {
    let (mut window, mut steps) = (Window::new(space, high), space.steps(watcher, low, high));
    let mut at = low.next_multiple_of(GRAIN) + HEADER;
    while let Some(next) = space.next_backed(at).map(|next| at + (next - at).next_multiple_of(GRAIN)) {
        if next >= high {
            break;
        }
        at = next;
        let left = steps.left;
        steps.look()?;
        let begins = window.bytes(at, HEADER as usize).is_ok_and(|bytes| ChunkWords::of(bytes).begins());
        match if begins && steps.left > 0 { tile(space, &mut window, at, high, &mut steps)? } else { None } {
            Some(tiled) if tiled.whole => {
                steps.left = left;
                at = tiled.end + GRAIN;
                found.push((tiled.start, tiled));
            }
            _ => at += GRAIN,
        }
    }
    Ok(())
}

/// Follow the chunks from `start` to the mark that ends a heap. None if no heap begins at `start`.
fn tile(
    space: &Space,
    window: &mut Window<'_>,
    start: u64,
    limit: u64,
    steps: &mut Steps<'_>,
) -> Result<Option<HeapRows>> {
    let mut found = HeapRows { start, end: start, rows: Vec::new(), whole: false, damage: Vec::new() };
    let (mut row, mut chunks, mut before, mut parts) = (ChunkRow::from(start), 0, IN_USE, RowQueue::default());
    let mut sought = start;
    for step in 0.. {
        steps.take()?;
        if step >= STEPS && row.end >= sought {
            // Look ahead in proportion to the bytes that were walked: one range may contain many short heaps.
            sought = limit.min(row.end.saturating_add(AHEAD.saturating_mul(row.end - start)));
            parts = RowQueue::find(steps.watcher, space, row.end, sought, limit)?;
        }
        let Ok(head) = window.bytes(row.end, HEADER as usize).map(ChunkWords::of) else {
            found.damage.push(Damage::absent(row.end, "head of a chunk"));
            break;
        };
        if head.psize != before {
            let damage = Damage::new(row.end, "psize of a chunk", hex(before), hex(head.psize));
            found.damage.push(damage);
        }
        if head.csize == IN_USE {
            found.whole = true;
            break;
        }
        if !head.fits(row.end, limit) {
            let expected = "a size that fits into the heap";
            found.damage.push(Damage::new(row.end + 8, "csize of a chunk", expected, hex(head.csize)));
            break;
        }
        before = head.csize;
        match parts.take(row.end) {
            Some(part) => {
                before = part.sizes.last().copied().unwrap_or(before);
                chunks += part.sizes.len();
                let next = ChunkRow::from(part.end);
                found.rows.extend([std::mem::replace(&mut row, next), part]);
            }
            None => {
                row.push(window, head);
                chunks += 1;
            }
        }
        if found.damage.len() > chunks / 2 {
            return Ok(None);
        }
    }
    found.end = row.end;
    found.rows.push(row);
    Ok((found.whole || chunks >= ENOUGH).then_some(found))
}

/// Return whether a mapping with only one chunk begins at `at`, judging by the head of the chunk there.
fn is_mapping(head: ChunkWords, at: u64, high: u64, page: u64) -> bool {
    let size = head.csize.checked_add(HEADER);
    let fits = |size: u64| size % page == 0 && size <= high - at;
    head.psize == OF_MAPPING && head.csize > HEADER && !head.is_used() && size.is_some_and(fits)
}

/// Return the chunk of a mapping that has only one chunk. If the chunk was aligned, the head at the mapping's start is
/// unchanged, and the chunk's own head contains the distance from the mapping's start.
fn mapping(window: &mut Window<'_>, base: u64, size: u64) -> HeapRows {
    let mut start = base + HEADER;
    for shift in 5..u64::BITS - 1 {
        let Some(user) = (base + GRAIN).checked_next_multiple_of(1 << shift).filter(|user| *user < base + size) else {
            break;
        };
        let chunk = user - HEADER;
        let head = window.bytes(chunk, HEADER as usize).map(ChunkWords::of);
        if chunk > start && head.is_ok_and(|head| head.psize == chunk - base && head.csize == base + size - chunk) {
            start = chunk;
        }
    }
    let sizes = vec![(base + size - start) | IN_USE];
    let row = ChunkRow { end: base + size, sizes, ..ChunkRow::default() };
    HeapRows { start, end: row.end, rows: vec![row], whole: false, damage: Vec::new() }
}

impl HeapRows {
    fn is_mapping(&self) -> bool {
        !self.whole && self.rows.iter().map(|row| row.sizes.len()).sum::<usize>() == 1
    }
}

impl Oldmalloc {
    /// Make an empty result, with bitmaps for as many heaps and mappings as memory allows. The pages of the bitmaps
    /// become resident only when a chunk is recorded.
    fn with_room(all: &[(u64, HeapRows)]) -> Oldmalloc {
        let of = |tiled: &HeapRows| Stretch { base: 0, start: tiled.start, end: tiled.end, first: 0 }.numbers();
        let sum = |sum: u64, (_, tiled): &(u64, HeapRows)| {
            sum.checked_add(of(tiled)).filter(|all| Bits::fits(all.saturating_mul(2))).unwrap_or(sum)
        };
        let numbers = all.iter().fold(0, sum);
        Oldmalloc { starts: Bits::new(numbers), used: Bits::new(numbers), ..Oldmalloc::default() }
    }

    fn add(&mut self, base: u64, tiled: HeapRows, linked: &mut ChunkLinks) {
        let stretch = Stretch { base, start: tiled.start, end: tiled.end, first: self.numbers };
        let behind = self.stretches.last().is_some_and(|last| last.end > base);
        let room = 64 * self.starts.words().len() as u64;
        if behind || tiled.start >= tiled.end || self.numbers + stretch.numbers() > room {
            return;
        }
        self.numbers += stretch.numbers();
        let mut number = stretch.first;
        for size in tiled.rows.iter().flat_map(|row| &row.sizes) {
            self.starts.set(number);
            if size & IN_USE != 0 {
                self.used.set(number);
            }
            number += (size & !IN_USE).div_ceil(GRAIN);
        }
        self.stretches.push(stretch);
        tiled.rows.into_iter().for_each(|row| linked.add(row.links, row.balance));
        self.damage.extend(tiled.damage);
    }
}
