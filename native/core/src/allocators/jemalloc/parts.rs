//! The parts of jemalloc's areas: blocks, padding, unused pages.

use crate::allocators::block_list::{Asked, BlockList, BlockRow};
use crate::allocators::jemalloc::areas::{Area, Piece, Span};
use crate::allocators::jemalloc::walk::Jemalloc;
use crate::allocators::part::{Part, Parts};
use crate::bits;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::cmp::Reverse;

/// A run of unused bytes in jemalloc's memory. `before` and `after` are the parts next to the run, as `(address, size,
/// what)`.
#[derive(Clone, Copy, Debug)]
pub struct JemallocHole {
    pub start: u64,
    pub end: u64,
    /// The number of the arena that owns the whole run; None if several arenas own it.
    pub arena: Option<u32>,
    pub before: Neighbour,
    pub after: Neighbour,
}

/// Several ranges [start, end).
type Ranges = Vec<(u64, u64)>;

type Neighbour = Option<(u64, u64, &'static str)>;

/// The part of jemalloc's memory that contains an address: its start, size and state, and, for a free block, the list
/// on which the block is.
#[derive(Clone, Copy, Debug)]
pub struct JemallocFound {
    pub address: u64,
    pub size: u64,
    pub state: &'static str,
    pub list: Option<&'static str>,
    pub root: u32,
    pub arena: u32,
}

impl Parts for Jemalloc {
    /// Show the parts of the area that begins at `start`.
    fn show_parts(&self, start: u64, mut show: impl FnMut(u64, u64, Part)) -> Option<u64> {
        let place = self.areas.areas.binary_search_by_key(&start, |area| area.start).ok()?;
        let area = &self.areas.areas[place];
        self.parts_of(area, &mut show);
        Some(area.end)
    }
}

impl Jemalloc {
    /// Return the areas, by ascending address.
    pub fn areas(&self) -> &[Area] {
        &self.areas.areas
    }

    fn parts_of(&self, area: &Area, show: &mut impl FnMut(u64, u64, Part)) {
        let pieces = self.areas.pieces_of(area);
        // The runs of blocks are in the same order as their pieces.
        let mut place = self.runs.runs.partition_point(|run| run.start < area.start);
        for piece in pieces {
            match plain(piece.span) {
                Some(part) => show(piece.start, piece.end, part),
                None => {
                    match self.is_own(place) {
                        true => show(piece.start, piece.end, Part::Header),
                        false => self.parts_of_run(piece, place, show),
                    }
                    place += 1;
                }
            }
        }
    }

    /// Show the parts of an active extent: its blocks, and the padding before and after them. Neighbours of the same
    /// kind are joined.
    fn parts_of_run(&self, piece: &Piece, place: usize, show: &mut impl FnMut(u64, u64, Part)) {
        let (run, used, cached) = (&self.runs.runs[place], self.runs.used_of(place), self.cached_of(place));
        let mut whole = |start: u64, end: u64, part: Part| {
            if start < end {
                show(start, end, part);
            }
        };
        whole(piece.start, run.start, Part::Padding);
        let mut from = 0;
        while from < run.count {
            let part = part_of(used, cached, from);
            let to = (from..run.count).find(|number| part_of(used, cached, *number) != part).unwrap_or(run.count);
            whole(run.block(from), run.block(to), part);
            from = to;
        }
        whole(run.end(), piece.end, Part::Padding);
    }

    /// Return the part that contains `address`; None outside all areas. The state is used, free, `dirty pages`, `muzzy
    /// pages`, `retained address space`, metadata, padding or unexplained.
    pub fn find(&self, address: u64) -> Option<JemallocFound> {
        let piece = self.areas.piece_at(address)?;
        let (root, arena) = (piece.root, piece.arena);
        let of = |(start, end): (u64, u64), state, list| {
            Some(JemallocFound { address: start, size: end - start, state, list, root, arena })
        };
        let Some(place) = self.runs.run_at(address).filter(|_| piece.is_run()) else {
            let Span::Run(start) = piece.span else { return of((piece.start, piece.end), word(piece.span), None) };
            let end = self.runs.run_at(start).map_or(start, |place| self.runs.runs[place].end());
            return of(if address < start { (piece.start, start) } else { (end, piece.end) }, "padding", None);
        };
        let run = &self.runs.runs[place];
        let number = (address - run.start) / run.stride;
        let block = (run.block(number), run.block(number + 1));
        match part_of(self.runs.used_of(place), self.cached_of(place), number) {
            _ if self.is_own(place) => of(block, "metadata", None),
            Part::Used => of(block, "used", None),
            Part::Cached => of(block, "free", Some("thread cache")),
            _ => of(block, "free", Some("slab")),
        }
    }

    /// Return maximal runs of at least `minimum` unused bytes. Retained address space does not count as unused bytes.
    pub fn holes(&self, watcher: &dyn Watcher, minimum: u64) -> Result<Vec<JemallocHole>> {
        let mut holes = Vec::new();
        for area in self.areas() {
            watcher.check()?;
            self.holes_of(area, minimum.max(1), &mut holes);
        }
        Ok(holes)
    }

    fn holes_of(&self, area: &Area, minimum: u64, holes: &mut Vec<JemallocHole>) {
        let (mut open, mut before): (Option<(u64, u64)>, Neighbour) = (None, None);
        let mut close = |open: Option<(u64, u64)>, before: Neighbour, after: Neighbour| {
            if let Some((start, end)) = open.filter(|(start, end)| end - start >= minimum) {
                holes.push(JemallocHole { start, end, arena: self.arena_of(start, end), before, after });
            }
        };
        self.parts_of(area, &mut |start, end, part| {
            if part.is_free() {
                open = Some((open.map_or(start, |run| run.0), end));
                return;
            }
            // If the neighbour is a run of used blocks, report only the one block that touches the hole.
            let edge = |address: u64| match self.runs.block_at(address) {
                Some(cell) if part == Part::Used => Some((cell.address, cell.size, part.name())),
                _ => Some((start, end - start, part.name())),
            };
            close(open.take(), before, edge(start));
            before = edge(end - 1);
        });
        close(open, before, None);
    }

    /// Return the number of the arena that owns all of [start, end); None if several arenas do.
    fn arena_of(&self, start: u64, end: u64) -> Option<u32> {
        let first = self.areas.pieces.partition_point(|piece| piece.end <= start);
        let mut arenas =
            self.areas.pieces[first..].iter().take_while(|piece| piece.start < end).map(|piece| piece.arena);
        let arena = arenas.next()?;
        arenas.all(|other| other == arena).then_some(arena)
    }

    /// Return [start, end) of the extents without blocks: first the dirty extents, then the muzzy ones, each list
    /// ascending.
    pub fn unused(&self) -> (Ranges, Ranges) {
        let of = |span: Span| {
            let pieces = self.areas.pieces.iter().filter(|piece| piece.span == span);
            pieces.map(|piece| (piece.start, piece.end)).collect()
        };
        (of(Span::Dirty), of(Span::Muzzy))
    }

    /// Return [start, end) of the blocks in threads' caches, ascending, with adjacent blocks joined.
    pub fn waiting(&self) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        (0..self.runs.runs.len()).for_each(|place| self.runs.add_ranges(place, self.cached_of(place), &mut found));
        found
    }

    /// Return the used blocks `(address, size)` of the run that contains `address`.
    pub fn used_in_run(&self, address: u64) -> Vec<(u64, u64)> {
        let Some(place) = self.runs.run_at(address) else { return Vec::new() };
        let run = &self.runs.runs[place];
        bits::members(self.runs.used_of(place)).map(|number| (run.block(number), run.stride)).collect()
    }

    /// Return the used blocks `(address, size)` of `least` to `largest` bytes, ascending by address.
    fn used_of_sizes(&self, least: u64, largest: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let meant = self.runs.runs.iter().enumerate().filter(move |(_, run)| (least..=largest).contains(&run.stride));
        meant.flat_map(|(place, run)| {
            bits::members(self.runs.used_of(place)).map(|number| (run.block(number), run.stride))
        })
    }

    /// List the blocks that pass the filter. Blocks in threads' caches count as cached.
    pub fn list_blocks(&self, asked: &Asked) -> BlockList {
        let meant = self.runs.runs.iter().zip(&self.owners).enumerate().filter(|(place, (run, (root, arena, _)))| {
            asked.takes(run.stride) && asked.takes_arena(*root, *arena) && !self.is_own(*place)
        });
        asked.rows_of(meant.flat_map(|(place, (run, (_, arena, _)))| {
            let is_meant =
                move |number: &u64| asked.takes_part(part_of(self.runs.used_of(place), self.cached_of(place), *number));
            let row = |number| BlockRow { address: run.block(number), size: run.stride, arena: Some(*arena) };
            (0..run.count).filter(is_meant).map(row)
        }))
    }

    /// Return the first `most` used blocks `(address, size)` of `least` to `largest` bytes.
    pub fn first_used(&self, least: u64, largest: u64, most: usize) -> Vec<(u64, u64)> {
        self.used_of_sizes(least, largest).take(most).collect()
    }

    /// Return the `most` largest used blocks `(address, size)` of at least `least` bytes, largest first.
    pub fn largest_used(&self, least: u64, most: usize) -> Vec<(u64, u64)> {
        let mut found: Vec<(u64, u64)> = self.used_of_sizes(least, u64::MAX).collect();
        found.sort_unstable_by_key(|&(address, size)| (Reverse(size), address));
        found.truncate(most);
        found
    }
}

fn part_of(used: &[u64], cached: &[u64], number: u64) -> Part {
    match (bits::get(used, number), bits::get(cached, number)) {
        (true, _) => Part::Used,
        (false, true) => Part::Cached,
        (false, false) => Part::Free,
    }
}

/// Return the kind of a piece without blocks; None for a run of blocks.
fn plain(span: Span) -> Option<Part> {
    match span {
        Span::Run(_) => None,
        Span::Dirty | Span::Moving => Some(Part::FreeRun),
        Span::Muzzy => Some(Part::Muzzy),
        Span::Retained => Some(Part::Reserved),
        Span::Metadata => Some(Part::Header),
        Span::Unexplained => Some(Part::Unexplained),
    }
}

/// Return the name of the state of a piece.
fn word(span: Span) -> &'static str {
    match span {
        Span::Run(_) => "used",
        Span::Dirty | Span::Moving => "dirty pages",
        Span::Muzzy => "muzzy pages",
        Span::Retained => "retained address space",
        Span::Metadata => "metadata",
        Span::Unexplained => "unexplained",
    }
}
