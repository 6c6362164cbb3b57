//! Parts of a long heap, walked by all cores. A walk can only begin where a chunk is known to begin. Therefore a part
//! begins at the first address that looks like a chunk. The walk through the whole heap takes over a part's chunks,
//! beginning with the first chunk that both walks found. Two walks from the same chunk find the same chunks.

use crate::allocators::oldmalloc::bins::Balance;
use crate::allocators::oldmalloc::layout::{ChunkWords, GRAIN, HEADER, IN_USE};
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::Watcher;
use std::collections::VecDeque;

/// The size of a part in bytes.
const PART: u64 = 4 << 20;
/// The number of consecutive chunks that prove that a chunk begins at an address. Fewer chunks suffice if they reach
/// the end of the part.
const ENOUGH: usize = 4;

/// A row of chunks that follow each other without gaps.
#[derive(Default)]
pub(super) struct ChunkRow {
    pub(super) end: u64,
    /// The sizes of the chunks, each with the bit that says whether the chunk is in use.
    pub(super) sizes: Vec<u64>,
    /// The link `next` of each free chunk; zero if the link cannot be read.
    pub(super) links: Vec<u64>,
    /// The checksum of the links of all free chunks in the row.
    pub(super) balance: Balance,
}

impl ChunkRow {
    pub(super) fn from(start: u64) -> ChunkRow {
        ChunkRow { end: start, ..ChunkRow::default() }
    }

    /// Append the chunk with this head.
    pub(super) fn push(&mut self, window: &mut Window<'_>, head: ChunkWords) {
        if !head.is_used() {
            let links = window.bytes(self.end + HEADER, 16).map(|bytes| (u64_at(bytes, 0), u64_at(bytes, 8)));
            let (next, previous) = links.unwrap_or((0, 0));
            self.links.push(next);
            self.balance.add(self.end, next, previous);
        }
        self.sizes.push(head.csize);
        self.end += head.size();
    }
}

/// The rows of chunks that the walks of parts have found, ascending. Rows that the walk through the whole heap has
/// passed are removed.
#[derive(Default)]
pub(super) struct RowQueue {
    rows: VecDeque<(u64, ChunkRow)>,
    /// The address of the next chunk in the first row.
    at: u64,
    /// The index of the next chunk among the chunks of the first row.
    chunk: usize,
    /// The index, in the first row, of the link of the next free chunk.
    link: usize,
}

impl RowQueue {
    /// Walk the parts of [start, end) on all cores. The heap may reach up to `limit`. Return an empty queue if fewer
    /// than two parts contain memory.
    pub(super) fn find(watcher: &dyn Watcher, space: &Space, start: u64, end: u64, limit: u64) -> Result<RowQueue> {
        let (mut jobs, mut at) = (Vec::new(), start);
        while let Some(next) = space.next_backed(at).filter(|next| *next < end) {
            let from = start + (next - start) / PART * PART;
            jobs.push(from);
            at = from.saturating_add(PART);
        }
        if jobs.len() < 2 {
            return Ok(RowQueue::default());
        }
        let found = space.task(watcher, None).run(&jobs, Vec::new, |found, from, control| {
            found.extend(part(&mut Window::new(space, limit), *from, from.saturating_add(PART).min(end), limit));
            control.advance(0)
        })?;
        let mut rows: Vec<(u64, ChunkRow)> = found.into_iter().flatten().collect();
        rows.sort_unstable_by_key(|(first, _)| *first);
        Ok(RowQueue { at: rows.first().map_or(0, |(first, _)| *first), rows: rows.into(), chunk: 0, link: 0 })
    }

    /// Return the chunk at `address` and all later chunks of its part; None if the walk of no part found this chunk.
    pub(super) fn take(&mut self, address: u64) -> Option<ChunkRow> {
        while let Some((_, part)) = self.rows.front() {
            while self.at < address && self.chunk < part.sizes.len() {
                let size = part.sizes[self.chunk];
                self.at += size & !IN_USE;
                self.link += usize::from(size & IN_USE == 0);
                self.chunk += 1;
            }
            if self.at > address && self.chunk < part.sizes.len() {
                return None;
            }
            let is_there = self.at == address && self.chunk < part.sizes.len();
            let (chunk, link) = (self.chunk, self.link);
            let part = self.rows.pop_front();
            (self.at, self.chunk, self.link) = (self.rows.front().map_or(0, |(first, _)| *first), 0, 0);
            if is_there {
                return part.map(|(_, mut row)| {
                    row.sizes.drain(..chunk);
                    if row.links.drain(..link).len() > 0 {
                        row.balance = Balance::UNKNOWN;
                    }
                    row
                });
            }
        }
        None
    }
}

/// Return the chunks that begin in [from, to), and the address of the first one. None if no plausible row of chunks
/// begins in the range.
fn part(window: &mut Window<'_>, from: u64, to: u64, limit: u64) -> Option<(u64, ChunkRow)> {
    (from.next_multiple_of(GRAIN)..to).step_by(GRAIN as usize).find_map(|grain| {
        let row = row(window, grain + HEADER, to, limit);
        (row.sizes.len() >= ENOUGH || (row.end >= to && !row.sizes.is_empty())).then_some((grain + HEADER, row))
    })
}

/// Return the chunks from `first` up to `to`, or up to the first place where no chunk fits the chunk before it.
fn row(window: &mut Window<'_>, first: u64, to: u64, limit: u64) -> ChunkRow {
    let (mut row, mut before) = (ChunkRow::from(first), None);
    while row.end < to {
        let Ok(head) = window.bytes(row.end, HEADER as usize).map(ChunkWords::of) else { break };
        if !head.fits(row.end, limit) || before.is_some_and(|size| size != head.psize) {
            break;
        }
        row.push(window, head);
        before = Some(head.csize);
    }
    row
}
