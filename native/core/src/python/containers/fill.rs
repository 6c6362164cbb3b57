//! Count how full containers are: the items that they contain, and the items that fit before they grow.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::{Jobs, Visitor, Walk};
use crate::python::containers::slack::GrowthRule;
use crate::python::containers::tables::TableRule;
use crate::python::dict_keys::{optional, MAX_SLOTS};
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::bytes::word_at;
use gdbheap_access::error::Result;
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};
use std::collections::{HashMap, HashSet};

const TENTHS: usize = 10;
const TABLE_HEAD: usize = 64;

/// How full the containers of one kind are.
/// - `count`: the number of all containers.
/// - `empty`: how many containers can take no item.
/// - `shared`: how many containers share their table with others.
/// - `used`: the number of items in all other containers.
/// - `room`: how many items fit into these other containers.
/// - `tenths`: a histogram of these other containers by their fullness, in ten classes: up to 10 %, 10 % to 20 %, and
///   so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    pub count: u64,
    pub empty: u64,
    pub shared: u64,
    pub used: u64,
    pub room: u64,
    pub tenths: Vec<u64>,
}

impl Fill {
    fn add(&mut self, measured: ItemCount) {
        self.tenths.resize(TENTHS, 0);
        self.count += 1;
        match measured {
            ItemCount::Empty => self.empty += 1,
            ItemCount::Shared => self.shared += 1,
            ItemCount::Of(used, room) => {
                self.used = self.used.saturating_add(used);
                self.room = self.room.saturating_add(room);
                let tenth = (u128::from(used) * TENTHS as u128).div_ceil(u128::from(room)).max(1) as usize;
                self.tenths[tenth.min(TENTHS) - 1] += 1;
            }
        }
    }

    fn with(mut self, other: &Fill) -> Fill {
        self.tenths.resize(TENTHS, 0);
        self.tenths.iter_mut().zip(&other.tenths).for_each(|(own, more)| *own += more);
        self.count += other.count;
        self.empty += other.empty;
        self.shared += other.shared;
        self.used = self.used.saturating_add(other.used);
        self.room = self.room.saturating_add(other.room);
        self
    }
}

enum ItemCount {
    Empty,
    Shared,
    /// The number of items of the container, and the number of items that fit, which is not 0.
    Of(u64, u64),
}

impl ItemCount {
    fn of(used: u64, room: u64) -> ItemCount {
        match used.max(room) {
            0 => ItemCount::Empty,
            room => ItemCount::Of(used, room),
        }
    }
}

impl GrowthRule {
    fn measure(&self, head: &[u8]) -> Option<ItemCount> {
        let (used, room) = (word_at(head, self.size_at)?, word_at(head, self.allocated_at)?);
        let room = room.saturating_sub(self.behind);
        (used <= MAX_SLOTS && room <= MAX_SLOTS).then(|| ItemCount::of(used, room))
    }
}

impl TableRule {
    fn measure(&self, head: &[u8], space: &Space) -> Option<ItemCount> {
        let (used, table) = (word_at(head, self.used_at)?, word_at(head, self.table_at)?);
        if used > MAX_SLOTS || table < LOWEST {
            return None;
        }
        if let Some(at) = optional(self.shared_at) {
            if word_at(head, at)? != 0 {
                return Some(ItemCount::Shared);
            }
        }
        if let Some(at) = optional(self.mask_at) {
            let mask = word_at(head, at).filter(|mask| *mask < MAX_SLOTS)?;
            // The rules are those of Python's sources. dictobject.c of Python 2: two thirds of the slots are usable.
            // setobject.c: a table grows when five times the number of filled slots reaches three times the mask.
            let room = if self.entries.is_some() { (mask + 1) * 2 / 3 } else { (mask * 3).saturating_sub(1) / 5 };
            return Some(ItemCount::of(used, room));
        }
        let mut own = [0; TABLE_HEAD];
        let got = space.fill(table, &mut own);
        Some(ItemCount::of(used, self.head?.room(&own[..got])?))
    }
}

/// The containers to count. `kinds`: maps the address of each type to an index into the list `growing` followed by
/// `tables`. `without`: the user addresses of blocks that only look like objects.
pub struct WantedFill {
    pub kinds: HashMap<u64, usize>,
    pub growing: Vec<GrowthRule>,
    pub tables: Vec<TableRule>,
    pub without: HashSet<u64>,
}

struct Filler<'a> {
    types: Types<'a>,
    wanted: &'a WantedFill,
    rows: Vec<Fill>,
}

impl Visitor for Filler<'_> {
    fn block(&mut self, Block { address, size, .. }: Block, head: &[u8]) -> bool {
        let Some((number, true)) = self.types.object_in(head, size) else { return false };
        let kind = &self.types.kinds[number as usize];
        let Some(place) = self.wanted.kinds.get(&kind.address).copied() else { return true };
        let start = self.types.layout.outer_hook(head) + kind.pre as usize;
        let own = head.get(start..).unwrap_or_default();
        let growing = self.wanted.growing.len();
        let measured = match self.wanted.growing.get(place) {
            Some(growing) => growing.measure(own),
            None => self.wanted.tables.get(place - growing).and_then(|table| table.measure(own, self.types.space)),
        };
        if let (Some(measured), Some(row), false) =
            (measured, self.rows.get_mut(place), self.wanted.without.contains(&address))
        {
            row.add(measured);
        }
        true
    }
}

/// Return a row for each kind of container: first the kinds of `growing`, then those of `tables`.
pub fn count_fill(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    wanted: &WantedFill,
) -> Result<Vec<Fill>> {
    let Jobs { jobs, total } = heaps.jobs();
    let blank = vec![Fill::default(); wanted.growing.len() + wanted.tables.len()];
    let init = || (Walk::new(heaps), Filler { types: Types::new(heaps, layout), wanted, rows: blank.clone() });
    let work = |(walk, one): &mut (Walk<'_>, Filler<'_>), job: &_, control: &Control| walk.run(job, control, one);
    let mut rows = blank.clone();
    for (_, one) in heaps.space.task(watcher, Some(total)).run(&jobs, init, work)? {
        rows = rows.into_iter().zip(&one.rows).map(|(row, more)| row.with(more)).collect();
    }
    Ok(rows)
}
