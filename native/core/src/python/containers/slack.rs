//! Measure the unused room of containers: at the end and at the beginning of buffers that grew, and in tables that did
//! not shrink.

use crate::allocators::groups::{spread_by_size, Group};
use crate::allocators::heaps::Heaps;
use crate::python::containers::tables::TableRule;
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::bytes::word_at;
use gdbheap_access::error::Result;
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::pages::Pages;
use gdbheap_access::work::{Control, Watcher};

/// The places of the size and the capacity of containers of one type, whose buffer grows.
/// - `size_at`: the offset, in the object, of the number of items.
/// - `allocated_at`: the offset of the number of items that fit.
/// - `data_at`: the offset of the pointer to the buffer.
/// - `first_at`: the offset of the pointer to the first item; -1 if the type has none.
/// - `item`: the size of an item in bytes.
/// - `behind`: how many bytes are needed after the last item.
#[derive(Clone, Debug)]
pub struct GrowthRule {
    pub name: String,
    pub size_at: usize,
    pub allocated_at: usize,
    pub data_at: usize,
    pub first_at: i64,
    pub item: u64,
    pub behind: u64,
}

/// The containers of one rule that have unused room.
/// - `count`: how many they are.
/// - `small`: their unused bytes in pages that also contain used bytes.
/// - `pages`: their unused bytes in whole resident pages.
/// - `most`, `address`: the largest unused room of one container, and its address.
#[derive(Clone, Copy, Default)]
struct UnusedRoom {
    count: f64,
    small: f64,
    pages: f64,
    most: u64,
    address: u64,
}

impl UnusedRoom {
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

    fn absorb(&mut self, other: &UnusedRoom) {
        self.count += other.count;
        self.small += other.small;
        self.pages += other.pages;
        if other.most > self.most {
            (self.most, self.address) = (other.most, other.address);
        }
    }
}

/// The unit in bytes by which an allocator shrinks a buffer.
const UNIT: u64 = 16;
const MAX_ITEMS: u64 = 1 << 40;
const GROUPS_IN_JOB: usize = 64;

struct Worker<'a> {
    heaps: Heaps<'a>,
    pages: Option<&'a Pages>,
    growing: &'a [GrowthRule],
    tables: &'a [TableRule],
    types: Types<'a>,
    /// For each type, by its number, the index of its rule in the list `growing` followed by `tables`.
    shapes: Vec<Option<usize>>,
    found: Vec<UnusedRoom>,
    bytes: Vec<u8>,
    weight: f64,
}

impl Worker<'_> {
    fn visit(&mut self, (group, weight): &(&Group, f64)) {
        self.weight = *weight;
        let mut bytes = std::mem::take(&mut self.bytes);
        let heaps = self.heaps;
        heaps.show_group(group, &mut bytes, |block, head| self.look(block, head));
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

    /// Return the unused room of a container that begins with `head`: the bytes in pages that also contain used bytes,
    /// and the resident bytes in whole pages. None if the container's fields do not agree with the block to which they
    /// point.
    fn room(&self, growing: &GrowthRule, head: &[u8]) -> Option<(u64, u64)> {
        let word = |at: usize| word_at(head, at);
        let (size, allocated, data) = (word(growing.size_at)?, word(growing.allocated_at)?, word(growing.data_at)?);
        let first = usize::try_from(growing.first_at).map_or(Some(data), word)?;
        if size > allocated || allocated > MAX_ITEMS || data < LOWEST {
            return None;
        }
        let block = self.heaps.block_at(data)?;
        let end = data + allocated * growing.item;
        let used = first.checked_add(size * growing.item)?;
        if end > block.end || first < data || used > end {
            return None;
        }
        // Since 3.15 the count does not include the zero after the last byte.
        let (behind, before) = (self.released((used + growing.behind).min(end), end), self.released(data, first));
        Some((behind.0 + before.0, behind.1 + before.1))
    }

    fn spare(&mut self, table: &TableRule, head: &[u8]) -> Option<(u64, u64)> {
        Some((0, table.spare(head, &self.heaps, self.pages?, &mut self.types)?))
    }

    /// Return the bytes that freeing [start, end) would release: `(bytes, 0)` if the range contains no whole page, else
    /// `(0, resident bytes of its whole pages)`.
    fn released(&self, start: u64, end: u64) -> (u64, u64) {
        let Some((first, last)) = self.heaps.space.machine.page.inside(start, end) else {
            return ((end - start) / UNIT * UNIT, 0);
        };
        (0, self.pages.map_or(0, |pages| pages.count(first, last).0))
    }
}

/// The containers that have unused room, and this room.
#[derive(Clone, Copy, Debug)]
pub struct Slack {
    pub containers: u64,
    /// The bytes of unused room in pages that also contain used bytes.
    pub small: u64,
    /// The bytes of unused room in whole resident pages.
    pub pages: u64,
    /// The largest unused room of one container, in bytes.
    pub most: u64,
    /// The address of the container with the largest unused room.
    pub address: u64,
}

/// The containers whose unused room is measured: those of the types for which there is a rule, in blocks of given
/// sizes.
pub struct WantedSlack {
    pub growing: Vec<GrowthRule>,
    pub tables: Vec<TableRule>,
    /// The sizes in bytes of the blocks with the containers to examine, as ranges (smallest, largest).
    pub sizes: Vec<(u64, u64)>,
    /// The largest number of groups of blocks that are examined for each block size; the result is then an estimate.
    /// None: all groups are examined, and the result is exact.
    pub most: Option<usize>,
}

/// Return a row for each rule of `growing` and of `tables`. Only containers that lie in groups of equal blocks are
/// examined.
pub fn list_slack(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    pages: Option<&Pages>,
    layout: &TypeLayout,
    wanted: &WantedSlack,
) -> Result<Vec<Slack>> {
    let WantedSlack { growing, tables, sizes, most } = wanted;
    let mut groups = heaps.groups();
    groups.retain(|group| sizes.iter().any(|(least, most)| (*least..=*most).contains(&group.size)));
    let wanted = spread_by_size(&groups, most.unwrap_or(usize::MAX));
    let jobs: Vec<&[(&Group, f64)]> = wanted.chunks(GROUPS_IN_JOB).collect();
    let init = || Worker {
        heaps,
        pages,
        growing,
        tables,
        types: Types::new(heaps, layout),
        shapes: Vec::new(),
        found: vec![UnusedRoom::default(); growing.len() + tables.len()],
        bytes: Vec::new(),
        weight: 1.0,
    };
    let work = |worker: &mut Worker<'_>, job: &&[(&Group, f64)], control: &Control| {
        job.iter().for_each(|group| worker.visit(group));
        control.advance(job.len() as u64)
    };
    let workers = heaps.space.task(watcher, None).run(&jobs, init, work)?;
    let mut sums = vec![UnusedRoom::default(); growing.len() + tables.len()];
    for worker in &workers {
        sums.iter_mut().zip(&worker.found).for_each(|(sum, found)| sum.absorb(found));
    }
    let slack = |sum: &UnusedRoom| {
        let UnusedRoom { count, small, pages, most, address } = *sum;
        Slack { containers: count as u64, small: small as u64, pages: pages as u64, most, address }
    };
    Ok(sums.iter().map(slack).collect())
}
