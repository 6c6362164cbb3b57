//! Code for jemalloc and tcmalloc. Both cut extents of pages into runs of equal blocks.

use crate::allocators::block_list::{BlockList, BlockQuery, BlockRow};
use crate::allocators::damage::Damage;
use crate::allocators::holes::{Hole, HoleFinder};
use crate::allocators::listing::BlockLister;
use crate::allocators::part::Part;
use crate::allocators::runs::{Run, Runs};
use crate::bits::{self, Bits};
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::collections::BTreeMap;

/// The use of a range of memory: blocks, free pages, pages returned to the kernel, or the allocator's own data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The range has a run of blocks. The value is the start of the run.
    Run(u64),
    /// The pages are free, and were not returned to the kernel.
    Free,
    /// The pages are free, and the kernel may take them at any time.
    Muzzy,
    /// The pages were returned to the kernel, or were never used.
    Returned,
    Metadata,
    /// A thread is changing the range at this moment.
    Moving,
    Unexplained,
}

impl Use {
    /// Return the kind (`Part`) of a range without blocks; None for a run of blocks.
    fn part(self) -> Option<Part> {
        match self {
            Use::Run(_) => None,
            Use::Free | Use::Moving => Some(Part::FreeRun),
            Use::Muzzy => Some(Part::Muzzy),
            Use::Returned => Some(Part::Reserved),
            Use::Metadata => Some(Part::Header),
            Use::Unexplained => Some(Part::Unexplained),
        }
    }
}

/// A range of memory, such as an extent, whose bytes all have the same use. `root`: the index of the allocator, if
/// there are several of its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) of: Use,
    pub(crate) root: u32,
    pub(crate) arena: u32,
}

impl Piece {
    pub(crate) fn new(start: u64, end: u64, of: Use, root: u32) -> Piece {
        Piece { start, end, of, root, arena: 0 }
    }

    pub(crate) fn is_run(&self) -> bool {
        matches!(self.of, Use::Run(_))
    }
}

/// An address range [start, end) without gaps. `root`: the index of the allocator that owns it.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    pub start: u64,
    pub end: u64,
    pub root: u32,
    first: usize,
    last: usize,
}

/// All ranges of memory (pieces), ascending and disjoint, and the areas that these ranges form.
pub(crate) struct Areas {
    pub(crate) pieces: Vec<Piece>,
    areas: Vec<Area>,
}

impl Areas {
    /// Join adjacent pieces into areas. `pieces`: ascending and disjoint.
    pub(crate) fn of(pieces: Vec<Piece>) -> Areas {
        let mut areas: Vec<Area> = Vec::new();
        for (first, Piece { start, end, root, .. }) in pieces.iter().copied().enumerate() {
            match areas.last_mut().filter(|area| area.end == start && area.root == root) {
                Some(area) => (area.end, area.last) = (end, first + 1),
                None => areas.push(Area { start, end, root, first, last: first + 1 }),
            }
        }
        Areas { pieces, areas }
    }

    /// Return the piece that contains `address`; None outside all pieces.
    pub(crate) fn piece_at(&self, address: u64) -> Option<&Piece> {
        let place = self.pieces.partition_point(|piece| piece.end <= address);
        self.pieces.get(place).filter(|piece| piece.start <= address)
    }

    /// Remove the runs that are in no piece. `runs` ascend; `start_of` returns the start of each.
    pub(crate) fn retain_runs<T>(&self, runs: &mut Vec<T>, start_of: impl Fn(&T) -> u64) {
        let run = |piece: &Piece| if let Use::Run(start) = piece.of { Some(start) } else { None };
        let mut there = self.pieces.iter().filter_map(run).peekable();
        runs.retain(|run| {
            while there.next_if(|start| *start < start_of(run)).is_some() {}
            there.peek() == Some(&start_of(run))
        });
    }
}

/// The owner of a run: the index of its allocator and the number of its arena. `is_slab`: whether the run may have
/// several blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) root: u32,
    pub(crate) arena: u32,
    pub(crate) is_slab: bool,
}

/// An allocator's own names for common states and lists, as answers show them. `list`: the list of a free block that is
/// in no cache. `has_arenas`: whether the allocator divides its memory into arenas.
pub(crate) struct StateNames {
    pub(crate) free: &'static str,
    pub(crate) returned: &'static str,
    pub(crate) list: &'static str,
    pub(crate) has_arenas: bool,
}

/// The part that contains an address: its start, size and state, and, for a free block, the list on which the block is.
#[derive(Clone, Copy, Debug)]
pub struct ExtentPart {
    pub address: u64,
    pub size: u64,
    pub state: &'static str,
    pub list: Option<&'static str>,
    pub root: u32,
    pub arena: Option<u32>,
}

/// The memory of one allocator, or of several of one kind (such as two jemallocs), for look-ups by address.
pub struct Extents {
    pub(crate) words: StateNames,
    pub(crate) runs: Runs,
    /// The owner of each run, by the index of the run.
    pub(crate) owners: Vec<Owner>,
    /// A bit for each block, by its number: whether the block is in a thread's cache.
    pub(crate) cached: Bits,
    /// A bit for each block, by its number: whether the block is in a transfer cache.
    pub(crate) transfer: Bits,
    /// A bit for each block, by its number: whether a thread's cache keeps its lists in the block.
    pub(crate) own: Bits,
    pub(crate) areas: Areas,
    pub(crate) damage: Vec<Damage>,
}

/// Three bitmaps of the blocks of a run. Each comes with the kind (`Part`) of the blocks whose bits are set in it.
type Lists<'a> = [(&'a [u64], Part); 3];

fn part_of(lists: &Lists<'_>, number: u64) -> Part {
    lists.iter().find(|(list, _)| bits::get(list, number)).map_or(Part::Free, |(_, part)| *part)
}

impl Extents {
    /// Make an `Extents` from runs alone: each run becomes one piece.
    pub fn of_runs(runs: Runs) -> Extents {
        let none = || Bits::new(runs.block_numbers());
        let words = StateNames { free: "free", returned: "returned", list: "run", has_arenas: false };
        let piece = |run: &Run| Piece::new(run.start, run.end(), Use::Run(run.start), 0);
        let (cached, transfer, own) = (none(), none(), none());
        let areas = Areas::of(runs.runs.iter().map(piece).collect());
        let owners = vec![Owner { root: 0, arena: 0, is_slab: true }; runs.runs.len()];
        Extents { words, runs, owners, cached, transfer, own, areas, damage: Vec::new() }
    }

    /// Return the areas, by ascending address.
    pub fn areas(&self) -> &[Area] {
        &self.areas.areas
    }

    pub fn run_count(&self) -> usize {
        self.runs.runs.len()
    }

    /// Return each run with its index and its owner.
    pub(crate) fn owned_runs(&self) -> impl Iterator<Item = (usize, &Run, &Owner)> + '_ {
        self.runs.runs.iter().zip(&self.owners).enumerate().map(|(place, (run, owner))| (place, run, owner))
    }

    fn words_of<'a>(&self, list: &'a Bits, place: usize) -> &'a [u64] {
        let first = (self.runs.first_block(place) / 64) as usize;
        &list.words()[first..first + self.runs.runs[place].count.div_ceil(64) as usize]
    }

    pub(crate) fn cached_of(&self, place: usize) -> &[u64] {
        self.words_of(&self.cached, place)
    }

    pub(crate) fn transfer_of(&self, place: usize) -> &[u64] {
        self.words_of(&self.transfer, place)
    }

    fn lists_of(&self, place: usize) -> Lists<'_> {
        let (cached, transfer) = (self.cached_of(place), self.transfer_of(place));
        [(self.runs.used_of(place), Part::Used), (cached, Part::Cached), (transfer, Part::Waiting)]
    }

    /// Return whether a run is a block in which a thread's cache keeps its lists.
    pub(crate) fn is_own(&self, place: usize) -> bool {
        self.own.get(self.runs.first_block(place))
    }

    /// Show all parts of the area that begins at `start`, in address order. Return its end; None if no area begins
    /// there.
    pub(crate) fn show_parts(&self, start: u64, mut show: impl FnMut(u64, u64, Part)) -> Option<u64> {
        let place = self.areas.areas.binary_search_by_key(&start, |area| area.start).ok()?;
        let area = &self.areas.areas[place];
        self.parts_of(area, &mut show);
        Some(area.end)
    }

    fn parts_of(&self, area: &Area, show: &mut impl FnMut(u64, u64, Part)) {
        // The runs of blocks are in the same order as their pieces.
        let mut place = self.runs.runs.partition_point(|run| run.start < area.start);
        for piece in &self.areas.pieces[area.first..area.last] {
            match piece.of.part() {
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

    /// Show the parts of a piece with a run: its blocks, and the padding before and after them. Neighbours of the same
    /// kind are joined.
    fn parts_of_run(&self, piece: &Piece, place: usize, show: &mut impl FnMut(u64, u64, Part)) {
        let (run, lists) = (&self.runs.runs[place], self.lists_of(place));
        let mut whole = |start: u64, end: u64, part: Part| {
            if start < end {
                show(start, end, part);
            }
        };
        whole(piece.start, run.start, Part::Padding);
        let mut from = 0;
        while from < run.count {
            let part = part_of(&lists, from);
            let to = (from..run.count).find(|number| part_of(&lists, *number) != part).unwrap_or(run.count);
            whole(run.block(from), run.block(to), part);
            from = to;
        }
        whole(run.end(), piece.end, Part::Padding);
    }

    fn word(&self, of: Use) -> &'static str {
        match of {
            Use::Run(_) => "used",
            Use::Free | Use::Moving => self.words.free,
            Use::Muzzy => "muzzy pages",
            Use::Returned => self.words.returned,
            Use::Metadata => "metadata",
            Use::Unexplained => "unexplained",
        }
    }

    /// Return the part that contains `address`; None outside all areas.
    pub fn find(&self, address: u64) -> Option<ExtentPart> {
        let piece = self.areas.piece_at(address)?;
        let (root, arena) = (piece.root, self.words.has_arenas.then_some(piece.arena));
        let of = |(start, end): (u64, u64), state, list| {
            Some(ExtentPart { address: start, size: end - start, state, list, root, arena })
        };
        let Use::Run(start) = piece.of else { return of((piece.start, piece.end), self.word(piece.of), None) };
        let Some(place) = self.runs.run_at(address) else {
            let end = self.runs.run_at(start).map_or(start, |place| self.runs.runs[place].end());
            return of(if address < start { (piece.start, start) } else { (end, piece.end) }, "padding", None);
        };
        let run = &self.runs.runs[place];
        let number = (address - run.start) / run.stride;
        let block = (run.block(number), run.block(number + 1));
        match part_of(&self.lists_of(place), number) {
            _ if self.is_own(place) => of(block, "metadata", None),
            Part::Used => of(block, "used", None),
            Part::Cached => of(block, "free", Some("thread cache")),
            Part::Waiting => of(block, "free", Some("transfer cache")),
            _ => of(block, "free", Some(self.words.list)),
        }
    }

    /// Return the number of the arena that owns all of [start, end); None if several arenas do, or if there are no
    /// arenas.
    fn arena_of(&self, start: u64, end: u64) -> Option<u32> {
        let first = self.areas.pieces.partition_point(|piece| piece.end <= start);
        let pieces = self.areas.pieces[first..].iter().take_while(|piece| piece.start < end);
        let mut arenas = pieces.filter(|_| self.words.has_arenas).map(|piece| piece.arena);
        let arena = arenas.next()?;
        arenas.all(|other| other == arena).then_some(arena)
    }

    /// Return [start, end) of the pieces that have this use, ascending.
    pub fn pieces_of(&self, of: Use) -> Vec<(u64, u64)> {
        let pieces = self.areas.pieces.iter().filter(|piece| piece.of == of);
        pieces.map(|piece| (piece.start, piece.end)).collect()
    }

    /// Return [start, end) of the blocks in threads' caches and in transfer caches, ascending, with adjacent blocks
    /// joined.
    pub fn waiting(&self) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for place in 0..self.run_count() {
            let words = self.cached_of(place).iter().zip(self.transfer_of(place)).map(|(one, two)| one | two);
            self.runs.add_ranges(place, &words.collect::<Vec<u64>>(), &mut found);
        }
        found
    }

    /// Return the used blocks `(address, size)` of the run that contains `address`.
    pub fn used_in_run(&self, address: u64) -> Vec<(u64, u64)> {
        self.runs.run_at(address).map_or(Vec::new(), |place| self.used_of(place).collect())
    }

    fn used_of(&self, place: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let run = &self.runs.runs[place];
        bits::members(self.runs.used_of(place)).map(|number| (run.block(number), run.stride))
    }

    /// Return `(block size, runs, used blocks, free blocks)` of each block size, ascending. `root`: the index of the
    /// only allocator to include; None for all allocators. Blocks in caches count as free.
    pub fn classes(&self, root: Option<u32>) -> Vec<(u64, u64, u64, u64)> {
        let mut rows: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
        for (place, run, _) in self.owned_runs().filter(|(_, _, owner)| root.is_none_or(|root| root == owner.root)) {
            let (row, used) = (rows.entry(run.stride).or_default(), self.runs.count_of(place));
            *row = (row.0 + 1, row.1 + used, row.2 + run.count - used - u64::from(self.is_own(place)));
        }
        rows.into_iter().map(|(size, (runs, used, free))| (size, runs, used, free)).collect()
    }
}

impl BlockLister for Extents {
    fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Return the holes of at least `minimum` bytes. Pages that were returned to the kernel do not count as unused
    /// bytes.
    fn holes(&self, watcher: &dyn Watcher, minimum: u64) -> Result<Vec<Hole>> {
        let mut found = HoleFinder::new(minimum);
        for area in self.areas() {
            watcher.check()?;
            self.parts_of(area, &mut |start, end, part| {
                // Of several used blocks, only the one next to the hole is its neighbour.
                found.add(start, end, part, |address| match self.runs.block_at(address) {
                    Some(cell) if part == Part::Used => (cell.address, cell.size, part.name()),
                    _ => (start, end - start, part.name()),
                });
            });
            found.end_region(|start, end| self.arena_of(start, end));
        }
        Ok(found.holes)
    }

    fn list_blocks(&self, asked: &BlockQuery) -> BlockList {
        let takes = |owner: &Owner| match self.words.has_arenas {
            true => asked.takes_arena(owner.root, owner.arena),
            false => asked.arena.is_none(),
        };
        let meant = self
            .owned_runs()
            .filter(|(place, run, owner)| asked.takes(run.stride) && takes(owner) && !self.is_own(*place));
        asked.rows_of(meant.flat_map(|(place, run, owner)| {
            let (lists, arena) = (self.lists_of(place), self.words.has_arenas.then_some(owner.arena));
            let is_meant = move |number: &u64| asked.takes_part(part_of(&lists, *number));
            let row = move |number| BlockRow { address: run.block(number), size: run.stride, arena };
            (0..run.count).filter(is_meant).map(row)
        }))
    }

    fn used_of_sizes(&self, least: u64, largest: u64) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        let meant = self.owned_runs().filter(move |(_, run, _)| (least..=largest).contains(&run.stride));
        Box::new(meant.flat_map(|(place, _, _)| self.used_of(place)))
    }
}
