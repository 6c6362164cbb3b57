//! What is asked of the walked chunks: how many of each size, which ones match, which would serve a request.

use crate::chunks::{Chunks, Region, State, Tally, CHUNK_HEADER, GRAIN, STATES};
use crate::heaps::{Heaps, Job, Place, Visitor, Walk};
use crate::lists::reveal;
use crate::space::Space;
use crate::types::{TypeLayout, Types};
use crate::work::{self, Control};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Sizes below are counted in a table, the rarer ones above by hash.
const SMALL: u64 = 64 << 10;
/// While a list is cut to `top` rows, so many more may wait to be left out.
const SLACK: usize = 4096;
/// used, free, tcache and fast: the states that a chunk of any size may have.
const COUNTED: usize = 4;

type Counts = [u64; COUNTED];

/// A row for each exact size of used and free chunks, ascending: `(size, [chunks] by state in the order of STATES)`,
/// of the states used, free, tcache and fast.
#[pyfunction]
pub fn count_sizes(py: Python<'_>, chunks: &Chunks) -> Vec<(u64, Counts)> {
    py.detach(|| {
        let mut small = vec![[0; COUNTED]; (SMALL / GRAIN) as usize];
        let mut large: HashMap<u64, Counts> = HashMap::new();
        for (start, end, state) in chunks.regions.iter().flat_map(Region::all) {
            let size = end - start;
            if (state as usize) < COUNTED {
                let counts = match size < SMALL {
                    true => &mut small[(size / GRAIN) as usize],
                    false => large.entry(size).or_default(),
                };
                counts[state as usize] += 1;
            }
        }
        let small = small.into_iter().enumerate().map(|(place, counts)| (place as u64 * GRAIN, counts));
        let mut rows: Vec<(u64, Counts)> =
            small.filter(|(_, counts)| counts.iter().any(|count| *count > 0)).chain(large).collect();
        rows.sort_unstable_by_key(|(size, _)| *size);
        rows
    })
}

/// Which chunks are meant: a bit for each state in the order of STATES, sizes [minimum, maximum], one arena or all.
#[derive(Clone, FromPyObject)]
pub struct Wanted {
    states: u32,
    minimum: u64,
    maximum: u64,
    arena: Option<u32>,
}

impl Wanted {
    fn takes(&self, size: u64, state: State) -> bool {
        self.states >> (state as u32) & 1 == 1 && (self.minimum..=self.maximum).contains(&size)
    }

    fn regions<'a>(&'a self, chunks: &'a Chunks) -> impl Iterator<Item = (usize, &'a Region)> {
        let regions = chunks.regions.iter().enumerate();
        regions.filter(|(_, region)| self.arena.is_none_or(|arena| region.stretch.arena == arena))
    }
}

/// A chunk in a list: `(header, size, state, arena)`.
type Listed = (u64, u64, &'static str, u32);

/// What a list is ordered by: the largest sizes, or the lowest addresses or arenas, first.
enum Order {
    Size,
    Address,
    Arena,
}

impl Order {
    fn parse(text: &str) -> PyResult<Order> {
        match text {
            "size" => Ok(Order::Size),
            "address" => Ok(Order::Address),
            "arena" => Ok(Order::Arena),
            _ => Err(PyValueError::new_err("the order is size, address or arena")),
        }
    }

    fn key(&self, (address, size, _, arena): &Listed) -> (u64, u64, u64) {
        match self {
            Order::Size => (!size, *address, 0),
            Order::Address => (*address, 0, 0),
            Order::Arena => (u64::from(*arena), !size, *address),
        }
    }
}

/// The first `top` rows of all that are put in.
struct Selection {
    order: Order,
    top: usize,
    rows: Vec<Listed>,
    all: Tally,
}

impl Selection {
    fn put(&mut self, row: Listed) {
        self.all.add(row.1);
        self.rows.push(row);
        if self.rows.len() >= self.top.saturating_mul(2).saturating_add(SLACK) {
            self.rows.select_nth_unstable_by_key(self.top, |row| self.order.key(row));
            self.rows.truncate(self.top);
        }
    }

    fn finish(mut self) -> (u64, u64, Vec<Listed>) {
        self.rows.sort_unstable_by_key(|row| self.order.key(row));
        self.rows.truncate(self.top);
        (self.all.count, self.all.bytes, self.rows)
    }
}

/// The chunks that are wanted, `(header, size, state, arena)`, in order and cut to `top`, and before them how many match
/// and their bytes. Raises ValueError for an order that is none.
#[pyfunction]
#[pyo3(signature = (chunks, wanted, order, top=None))]
pub fn list_chunks(
    py: Python<'_>,
    chunks: &Chunks,
    wanted: Wanted,
    order: &str,
    top: Option<usize>,
) -> PyResult<(u64, u64, Vec<Listed>)> {
    let order = Order::parse(order)?;
    Ok(py.detach(|| {
        let mut found = Selection { order, top: top.unwrap_or(usize::MAX), rows: Vec::new(), all: Tally::default() };
        for (_, region) in wanted.regions(chunks) {
            let matching = region.all().filter(|(start, end, state)| wanted.takes(end - start, *state));
            matching.for_each(|(start, end, state)| {
                found.put((start, end - start, STATES[state as usize], region.stretch.arena));
            });
        }
        found.finish()
    }))
}

/// Looks into chunks for live objects of some types.
struct Looker<'a> {
    chunks: &'a Chunks,
    wanted: &'a Wanted,
    kinds: &'a HashSet<u64>,
    types: Types<'a>,
    found: Vec<Listed>,
}

impl Visitor for Looker<'_> {
    fn wants(&self, size: u64) -> bool {
        self.wanted.takes(size, State::Used)
    }

    fn block(&mut self, place: Place, address: u64, size: u64, head: &[u8]) -> bool {
        let (Some((number, true)), Place::Chunk(region, _)) = (self.types.object_in(head, size), place) else {
            return false;
        };
        if self.kinds.contains(&self.types.kinds[number as usize].address) {
            let arena = self.chunks.regions[region].stretch.arena;
            self.found.push((address - CHUNK_HEADER, size, STATES[State::Used as usize], arena));
        }
        true
    }
}

/// The wanted used chunks that look like live objects of one of the types at `kinds`, in no order:
/// `(header, size, state, arena)`. Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (space, chunks, layout, kinds, wanted, progress=None))]
pub fn list_objects(
    py: Python<'_>,
    space: &Space,
    chunks: &Chunks,
    layout: TypeLayout,
    kinds: HashSet<u64>,
    mut wanted: Wanted,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Listed>> {
    wanted.states &= 1 << State::Used as u32;
    let heaps = Heaps { space, chunks: Some(chunks), pools: None, mapped: &[], mimalloc: None, claimed: None };
    let regions: HashSet<usize> = wanted.regions(chunks).map(|(index, _)| index).collect();
    let (mut jobs, _) = heaps.jobs();
    jobs.retain(|job| matches!(job, Job::Chunks(region, ..) if regions.contains(region)));
    let total = jobs.iter().map(|job| if let Job::Chunks(_, from, to) = job { to - from } else { 0 }).sum();
    let init = || {
        let types = Types::new(space, Some(chunks), &layout);
        (Walk::new(heaps), Looker { chunks, wanted: &wanted, kinds: &kinds, types, found: Vec::new() })
    };
    let work = |(walk, looker): &mut (Walk<'_>, Looker<'_>), job: &_, control: &Control| walk.run(job, control, looker);
    let lookers = work::run(py, space, progress, total, &jobs, init, work)?;
    Ok(lookers.into_iter().flat_map(|(_, looker)| looker.found).collect())
}

/// A single free chunk, or several that malloc would merge: `(header, size)`.
type Piece = (u64, u64);
/// Of one arena: its number, the smallest piece that suffices, the largest that do not, and the bytes of its top.
type Fit = (u32, Option<Piece>, Vec<Piece>, u64);

#[derive(Default)]
struct Pieces {
    best: Option<Piece>,
    short: Vec<Piece>,
    top: u64,
}

impl Pieces {
    fn put(&mut self, piece: Piece, need: u64, most: usize) {
        if piece.1 >= need {
            self.best = Some(self.best.map_or(piece, |best| if piece.1 < best.1 { piece } else { best }));
            return;
        }
        let place = self.short.partition_point(|(_, size)| *size >= piece.1);
        if place < most {
            self.short.insert(place, piece);
            self.short.truncate(most);
        }
    }

    fn take_region(&mut self, region: &Region, need: u64, with_fast: bool, most: usize) {
        let mut open: Option<Piece> = None;
        for (start, end, state) in region.all() {
            if state == State::Free || (with_fast && state == State::Fast) {
                open = Some(open.map_or((start, end - start), |(first, _)| (first, end - first)));
            } else if state == State::Top {
                self.top = open.take().map_or(0, |(_, size)| size) + (end - start);
            } else if let Some(piece) = open.take() {
                self.put(piece, need, most);
            }
        }
        if let Some(piece) = open {
            self.put(piece, need, most);
        }
    }
}

/// What each arena has for a request whose chunk has `need` bytes; of the pieces that are too small the `most` largest.
/// `with_fast`: as after malloc_consolidate(), which merges what is in fast bins with its neighbours.
#[pyfunction]
pub fn find_fits(py: Python<'_>, chunks: &Chunks, need: u64, with_fast: bool, most: usize) -> Vec<Fit> {
    py.detach(|| {
        let mut arenas: BTreeMap<u32, Pieces> = BTreeMap::new();
        for region in &chunks.regions {
            arenas.entry(region.stretch.arena).or_default().take_region(region, need, with_fast, most);
        }
        arenas.into_iter().map(|(arena, pieces)| (arena, pieces.best, pieces.short, pieces.top)).collect()
    })
}

/// The chunks and bytes on each list of a thread cache, `(first entry, entries)`.
#[pyfunction]
pub fn sum_lists(space: &Space, chunks: &Chunks, lists: Vec<(u64, u64)>, safe_linking: bool) -> Vec<(u64, u64)> {
    let sum = |(entry, count): (u64, u64)| {
        let (mut at, mut sum) = (entry, Tally::default());
        for _ in 0..count {
            let chunk = at.wrapping_sub(CHUNK_HEADER);
            match chunks.locate(chunk) {
                Some((start, end, State::Tcache)) if start == chunk => sum.add(end - start),
                _ => break,
            }
            let Ok(link) = space.word(at) else { break };
            at = reveal(link, at, safe_linking);
        }
        (sum.count, sum.bytes)
    };
    lists.into_iter().map(sum).collect()
}
