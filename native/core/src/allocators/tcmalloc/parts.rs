//! The parts of tcmalloc's areas: blocks, padding, unused pages.

use crate::allocators::block_list::{Asked, BlockList};
use crate::allocators::part::{Part, Parts};
use crate::allocators::tcmalloc::areas::{Area, Piece, Use};
use crate::allocators::tcmalloc::walk::Tcmalloc;
use crate::bits;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::cmp::Reverse;

/// A run of unused bytes in tcmalloc's memory. `before` and `after` are the parts next to the run, as `(address, size,
/// what)`.
#[derive(Clone, Copy, Debug)]
pub struct TcmallocHole {
    pub start: u64,
    pub end: u64,
    pub before: Neighbour,
    pub after: Neighbour,
}

type Neighbour = Option<(u64, u64, &'static str)>;

/// The part of tcmalloc's memory that contains an address: its start, size and state, and, for a free block, the list
/// on which the block is.
#[derive(Clone, Copy, Debug)]
pub struct TcmallocFound {
    pub address: u64,
    pub size: u64,
    pub state: &'static str,
    pub list: Option<&'static str>,
    pub root: u32,
}

impl Parts for Tcmalloc {
    /// Show the parts of the area that begins at `start`.
    fn show_parts(&self, start: u64, mut show: impl FnMut(u64, u64, Part)) -> Option<u64> {
        let place = self.areas.areas.binary_search_by_key(&start, |area| area.start).ok()?;
        let area = &self.areas.areas[place];
        self.parts_of(area, &mut show);
        Some(area.end)
    }
}

impl Tcmalloc {
    /// Return the areas, by ascending address.
    pub fn areas(&self) -> &[Area] {
        &self.areas.areas
    }

    fn parts_of(&self, area: &Area, show: &mut impl FnMut(u64, u64, Part)) {
        // The runs of blocks are in the same order as their pieces.
        let mut place = self.runs.runs.partition_point(|run| run.start < area.start);
        for piece in self.areas.pieces_of(area) {
            match plain(piece.of) {
                Some((part, _)) => show(piece.start, piece.end, part),
                None => {
                    self.parts_of_run(piece, place, show);
                    place += 1;
                }
            }
        }
    }

    /// Show the blocks of a span, with neighbours of the same kind joined, and the padding after the blocks.
    fn parts_of_run(&self, piece: &Piece, place: usize, show: &mut impl FnMut(u64, u64, Part)) {
        let run = &self.runs.runs[place];
        let mut from = 0;
        while from < run.count {
            let part = self.part_of(place, from);
            let to = (from..run.count).find(|number| self.part_of(place, *number) != part).unwrap_or(run.count);
            show(run.block(from), run.block(to), part);
            from = to;
        }
        if run.end() < piece.end {
            show(run.end(), piece.end, Part::Padding);
        }
    }

    fn part_of(&self, place: usize, number: u64) -> Part {
        let lists = [
            (self.runs.used_of(place), Part::Used),
            (self.cached_of(place), Part::Cached),
            (self.transfer_of(place), Part::Waiting),
        ];
        lists.into_iter().find(|(list, _)| bits::get(list, number)).map_or(Part::Free, |(_, part)| part)
    }

    /// Return the part that contains `address`; None outside all areas. The state is used, free, `free pages`,
    /// `returned pages`, metadata, padding or unexplained.
    pub fn find(&self, address: u64) -> Option<TcmallocFound> {
        let piece = self.areas.piece_at(address)?;
        let of = |(start, end): (u64, u64), state, list| {
            Some(TcmallocFound { address: start, size: end - start, state, list, root: piece.root })
        };
        if let Some((_, word)) = plain(piece.of) {
            return of((piece.start, piece.end), word, None);
        }
        let Some(place) = self.runs.run_at(address) else {
            let end = self.runs.run_at(piece.start).map_or(piece.start, |place| self.runs.runs[place].end());
            return of((end, piece.end), "padding", None);
        };
        let run = &self.runs.runs[place];
        let number = (address - run.start) / run.stride;
        let block = (run.block(number), run.block(number + 1));
        match self.part_of(place, number) {
            Part::Used => of(block, "used", None),
            Part::Cached => of(block, "free", Some("thread cache")),
            Part::Waiting => of(block, "free", Some("transfer cache")),
            _ => of(block, "free", Some("span")),
        }
    }

    /// Return maximal runs of at least `minimum` unused bytes. Returned pages do not count as unused bytes.
    pub fn holes(&self, watcher: &dyn Watcher, minimum: u64) -> Result<Vec<TcmallocHole>> {
        let mut holes = Vec::new();
        for area in self.areas() {
            watcher.check()?;
            self.holes_of(area, minimum.max(1), &mut holes);
        }
        Ok(holes)
    }

    fn holes_of(&self, area: &Area, minimum: u64, holes: &mut Vec<TcmallocHole>) {
        let (mut open, mut before): (Option<(u64, u64)>, Neighbour) = (None, None);
        let mut close = |open: Option<(u64, u64)>, before: Neighbour, after: Neighbour| {
            if let Some((start, end)) = open.filter(|(start, end)| end - start >= minimum) {
                holes.push(TcmallocHole { start, end, before, after });
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

    /// Return [start, end) of the free pages that were not returned to the kernel, ascending.
    pub fn unused(&self) -> Vec<(u64, u64)> {
        let free = self.areas.pieces.iter().filter(|piece| piece.of == Use::Free);
        free.map(|piece| (piece.start, piece.end)).collect()
    }

    /// Return [start, end) of the blocks in threads' caches and in transfer caches, ascending, with adjacent blocks
    /// joined.
    pub fn waiting(&self) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for place in 0..self.runs.runs.len() {
            let words = self.cached_of(place).iter().zip(self.transfer_of(place)).map(|(one, two)| one | two);
            self.runs.add_ranges(place, &words.collect::<Vec<u64>>(), &mut found);
        }
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
        let meant = self.runs.runs.iter().enumerate().filter(|(_, run)| asked.takes(run.stride));
        asked.without_arenas(meant.flat_map(|(place, run)| {
            let is_meant = move |number: &u64| asked.takes_part(self.part_of(place, *number));
            (0..run.count).filter(is_meant).map(|number| (run.block(number), run.stride))
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

/// Return the kind of a piece without blocks, and the name of its state; None for a piece with blocks.
fn plain(of: Use) -> Option<(Part, &'static str)> {
    match of {
        Use::Blocks => None,
        Use::Free => Some((Part::FreeRun, "free pages")),
        Use::Returned => Some((Part::Reserved, "returned pages")),
        Use::Metadata => Some((Part::Header, "metadata")),
        Use::Unexplained => Some((Part::Unexplained, "unexplained")),
    }
}
