//! Room that containers have allocated and do not use: the ends, and the beginnings, of buffers that grew, and tables
//! that shrank no more.

use crate::chunks::Chunks;
use crate::heaps::Heaps;
use crate::mimalloc;
use crate::pages::{Pages, PAGE};
use crate::pools::{Pool, Pools};
use crate::sample::spread;
use crate::space::Space;
use crate::tables::Table;
use crate::types::{TypeLayout, Types};
use crate::work::{self, Control};
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// Containers of one type: where they say how many items they hold, how many they have room for, where their buffer
/// begins and (or -1) where in it the first item is, all as offsets from the object; bytes of an item, and bytes that are
/// needed behind the last one.
#[derive(FromPyObject)]
pub struct Growing {
    name: String,
    size_at: usize,
    allocated_at: usize,
    data_at: usize,
    first_at: i64,
    item: u64,
    behind: u64,
}

/// Containers that have such room; its bytes inside of pages that they use, in whole resident pages, and the container
/// that has the most of it.
#[derive(Clone, Copy, Default)]
struct Found {
    count: f64,
    small: f64,
    pages: f64,
    most: u64,
    address: u64,
}

impl Found {
    fn add(&mut self, address: u64, small: u64, pages: u64, weight: f64) {
        if small + pages == 0 {
            return;
        }
        self.count += weight;
        self.small += weight * small as f64;
        self.pages += weight * pages as f64;
        if small + pages > self.most {
            (self.most, self.address) = (small + pages, address);
        }
    }

    fn absorb(&mut self, other: &Found) {
        self.count += other.count;
        self.small += other.small;
        self.pages += other.pages;
        if other.most > self.most {
            (self.most, self.address) = (other.most, other.address);
        }
    }
}

enum Part<'a> {
    Pool(&'a Pool),
    Page(&'a mimalloc::Page),
}

impl Part<'_> {
    fn block_size(&self, heaps: &Heaps<'_>) -> u64 {
        match self {
            Part::Pool(pool) => heaps.pools.map_or(0, |pools| pool.block_size(pools.alignment)),
            Part::Page(page) => page.size,
        }
    }
}

/// A buffer shrinks by whole units of an allocator.
const UNIT: u64 = 16;
const MOST_ITEMS: u64 = 1 << 40;
const PARTS_IN_JOB: usize = 64;

struct Worker<'a> {
    heaps: Heaps<'a>,
    pages: Option<&'a Pages>,
    growing: &'a [Growing],
    tables: &'a [Table],
    types: Types<'a>,
    /// By the number of a type: its place in `growing` and then `tables`.
    shapes: Vec<Option<usize>>,
    found: Vec<Found>,
    bytes: Vec<u8>,
    weight: f64,
}

impl Worker<'_> {
    fn visit(&mut self, (part, weight): &(&Part<'_>, f64)) {
        self.weight = *weight;
        let mut bytes = std::mem::take(&mut self.bytes);
        let Heaps { space, pools, mimalloc, .. } = self.heaps;
        match (part, pools, mimalloc) {
            (Part::Pool(pool), Some(pools), _) => {
                pools.show_used(space, pool, &mut bytes, |block, head| self.look(block, head));
            }
            (Part::Page(page), _, Some(mimalloc)) => {
                mimalloc.show_used(space, page, &mut bytes, |block, head| self.look(block, head));
            }
            _ => (),
        }
        self.bytes = bytes;
    }

    fn shape_of(&mut self, number: usize) -> Option<usize> {
        for next in self.shapes.len()..=number {
            let bases = self.types.bases(self.types.kinds[next].address);
            let is_one = |wanted: &String| bases.iter().any(|(_, name)| name == wanted.as_bytes());
            let growing = self.growing.iter().map(|growing| &growing.name);
            self.shapes.push(growing.chain(self.tables.iter().map(|table| &table.name)).position(is_one));
        }
        self.shapes[number]
    }

    fn look(&mut self, block: u64, head: &[u8]) {
        let Some((number, true)) = self.types.object_in(head, head.len() as u64) else { return };
        let Some(shape) = self.shape_of(number as usize) else { return };
        let start = self.types.layout.outer_hook(head) + self.types.kinds[number as usize].pre as usize;
        let own = &head[start.min(head.len())..];
        let room = match self.growing.get(shape) {
            Some(growing) => self.room(growing, own),
            None => self.spare(&self.tables[shape - self.growing.len()], own),
        };
        if let Some((small, pages)) = room {
            self.found[shape].add(block + start as u64, small, pages, self.weight);
        }
    }

    /// The room of a container that begins with `head`, if its fields agree with the block that they point to.
    fn room(&self, growing: &Growing, head: &[u8]) -> Option<(u64, u64)> {
        let word = |at: usize| crate::u64_at(head, at);
        let (size, allocated, data) = (word(growing.size_at), word(growing.allocated_at), word(growing.data_at));
        let first = usize::try_from(growing.first_at).map_or(data, word);
        if size > allocated || allocated > MOST_ITEMS || data < PAGE {
            return None;
        }
        let (place, block, block_size) = self.heaps.block_at(data)?;
        let end = data + allocated * growing.item;
        let used = first.checked_add(size * growing.item)?;
        if end > place.end(block, block_size) || first < data || used > end {
            return None;
        }
        // Since 3.15 the zero behind the last byte is not counted.
        let (behind, before) = (self.released((used + growing.behind).min(end), end), self.released(data, first));
        Some((behind.0 + before.0, behind.1 + before.1))
    }

    fn spare(&mut self, table: &Table, head: &[u8]) -> Option<(u64, u64)> {
        Some((0, table.spare(head, &self.heaps, self.pages?, &mut self.types)?))
    }

    /// Of a stretch: what is too short for pages of its own, and what it has of those.
    fn released(&self, start: u64, end: u64) -> (u64, u64) {
        let (first, last) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if first >= last {
            return ((end - start) / UNIT * UNIT, 0);
        }
        (0, self.pages.map_or(0, |pages| pages.count(first, last).0))
    }
}

/// Containers, small bytes, bytes of resident pages, what one has at most, its address.
type Row = (u64, u64, u64, u64, u64);

/// One row for each of `growing` and of `tables`, of those that lie in blocks of `sizes`, each (smallest, largest), of
/// pymalloc or of CPython's mimalloc; with `most` the first three are estimates, from so many pools or pages of each size.
#[pyfunction]
#[pyo3(signature = (space, chunks, pools, mapped, layout, pages, growing, tables, sizes, most=None))]
#[allow(clippy::too_many_arguments)]
pub fn list_slack(
    py: Python<'_>,
    space: &Space,
    chunks: Option<&Chunks>,
    pools: Option<&Pools>,
    mut mapped: Vec<(u64, u64)>,
    layout: TypeLayout,
    pages: Option<&Pages>,
    growing: Vec<Growing>,
    tables: Vec<Table>,
    sizes: Vec<(u64, u64)>,
    most: Option<usize>,
) -> PyResult<Vec<Row>> {
    mapped.sort_unstable();
    let heaps = Heaps { space, chunks, pools, mapped: &mapped, mimalloc: layout.mimalloc(), claimed: layout.claimed() };
    let parts = parts_of(&heaps, &sizes);
    let mut by_size: BTreeMap<u64, Vec<&Part<'_>>> = BTreeMap::new();
    parts.iter().for_each(|part| by_size.entry(part.block_size(&heaps)).or_default().push(part));
    let wanted: Vec<_> = by_size.values().flat_map(|parts| spread(parts, most.unwrap_or(usize::MAX))).collect();
    let jobs: Vec<&[(&Part<'_>, f64)]> = wanted.chunks(PARTS_IN_JOB).collect();
    let init = || Worker {
        heaps,
        pages,
        growing: &growing,
        tables: &tables,
        types: Types::new(space, chunks, &layout),
        shapes: Vec::new(),
        found: vec![Found::default(); growing.len() + tables.len()],
        bytes: Vec::new(),
        weight: 1.0,
    };
    let work = |worker: &mut Worker<'_>, job: &&[(&Part<'_>, f64)], control: &Control| {
        job.iter().for_each(|part| worker.visit(part));
        control.advance(job.len() as u64)
    };
    let workers = work::run(py, space, None, wanted.len() as u64, &jobs, init, work)?;
    let mut sums = vec![Found::default(); growing.len() + tables.len()];
    for worker in &workers {
        sums.iter_mut().zip(&worker.found).for_each(|(sum, found)| sum.absorb(found));
    }
    let flat = |sum: &Found| (sum.count as u64, sum.small as u64, sum.pages as u64, sum.most, sum.address);
    Ok(sums.iter().map(flat).collect())
}

/// The pools or pages with blocks of those sizes that may hold objects.
fn parts_of<'a>(heaps: &Heaps<'a>, sizes: &[(u64, u64)]) -> Vec<Part<'a>> {
    let fits = |size: u64| sizes.iter().any(|(least, most)| (*least..=*most).contains(&size));
    let of_mimalloc = heaps.mimalloc.iter().flat_map(|mimalloc| {
        mimalloc.pages.iter().filter(|page| mimalloc.may_hold_objects(page) && fits(page.size)).map(Part::Page)
    });
    let of_pools = heaps.pools.iter().flat_map(|pools| {
        pools.pools.iter().filter(|pool| !pool.is_free() && fits(pool.block_size(pools.alignment))).map(Part::Pool)
    });
    of_mimalloc.chain(of_pools).collect()
}
