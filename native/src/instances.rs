//! Single Python objects: the instances of some types, and what the objects in pools asked their size classes for.

use crate::census::claimed_pointer;
use crate::chunks::Chunks;
use crate::heaps::{Heaps, Place, Visitor, Walk};
use crate::pools::Pools;
use crate::space::Space;
use crate::types::{Kind, TypeLayout, Types, CLAIM};
use crate::work::{self, Control};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

/// While a list is cut to `top` rows, so many more may wait to be left out.
const SLACK: usize = 4096;

/// An object's address, its type's, the size of its block, and of the blocks that its fields own.
type Instance = (u64, u64, u64, u64);

/// Bytes of the blocks that the fields of the object in a block own.
fn buffers(heaps: &Heaps<'_>, kind: &Kind, address: u64, size: u64, head: &[u8]) -> u64 {
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for claim in &kind.claims {
        let pointer = claimed_pointer(heaps.space, claim, address, size, head);
        let outside = pointer.filter(|pointer| pointer.wrapping_sub(address) >= size);
        let Some((_, block, size)) = outside.and_then(|pointer| heaps.block_at(pointer)) else { continue };
        let holds = claim.follow != CLAIM || pointer == Some(block);
        if holds && !blocks.contains(&(block, size)) {
            blocks.push((block, size));
        }
    }
    blocks.iter().map(|(_, size)| size).sum()
}

#[derive(Clone, Copy)]
enum Order {
    Together,
    Bytes,
    Buffers,
    Type,
    Address,
}

impl Order {
    fn parse(text: &str) -> PyResult<Order> {
        Ok(match text {
            "together" => Order::Together,
            "bytes" => Order::Bytes,
            "buffers" => Order::Buffers,
            "type" => Order::Type,
            "address" => Order::Address,
            _ => return Err(PyValueError::new_err("the order is together, bytes, buffers, type or address")),
        })
    }
}

/// Collects the wanted instances, the first `top` of them.
struct Collector<'a> {
    heaps: Heaps<'a>,
    /// Blocks that only look like objects, by user address.
    without: &'a HashSet<u64>,
    types: Types<'a>,
    /// Types that are wanted, with the place of their names in alphabetical order.
    kinds: &'a HashMap<u64, u32>,
    order: Order,
    top: usize,
    rows: Vec<Instance>,
    /// Objects, their bytes and their buffers'.
    all: (u64, u64, u64),
}

impl Visitor for Collector<'_> {
    fn block(&mut self, _: Place, address: u64, size: u64, head: &[u8]) -> bool {
        let Some((number, true)) = self.types.object_in(head, size) else { return false };
        let kind = &self.types.kinds[number as usize];
        if !self.kinds.contains_key(&kind.address) || self.without.contains(&address) {
            return true;
        }
        let buffers = buffers(&self.heaps, kind, address, size, head);
        self.all = (self.all.0 + 1, self.all.1 + size, self.all.2 + buffers);
        self.rows.push((address + kind.pre, kind.address, size, buffers));
        if self.rows.len() >= self.top.saturating_mul(2).saturating_add(SLACK) {
            self.cut();
        }
        true
    }
}

impl Collector<'_> {
    fn key(&self, (address, kind, size, buffers): &Instance) -> (u64, u64, u64) {
        match self.order {
            Order::Together => (!(size + buffers), *address, 0),
            Order::Bytes => (!size, *address, 0),
            Order::Buffers => (!buffers, *address, 0),
            Order::Type => (u64::from(self.kinds.get(kind).copied().unwrap_or(0)), !(size + buffers), *address),
            Order::Address => (*address, 0, 0),
        }
    }

    fn cut(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_unstable_by_key(|row| self.key(row));
        rows.truncate(self.top);
        self.rows = rows;
    }
}

/// The live objects of the types at `kinds`, `(object, type, size, buffers)`, in order and cut to `top`, and before
/// them how many there are, their bytes and their buffers'. `kinds`: types with the place of their names in the
/// alphabet; `mapped`: mmapped chunks `(chunk, end)`, ascending. Raises ValueError for an order that is none,
/// KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (space, chunks, pools, mapped, layout, kinds, without, order, top=None, progress=None))]
#[allow(clippy::too_many_arguments, clippy::type_complexity)]
pub fn list_instances(
    py: Python<'_>,
    space: &Space,
    chunks: &Chunks,
    pools: &Pools,
    mapped: Vec<(u64, u64)>,
    layout: TypeLayout,
    kinds: HashMap<u64, u32>,
    without: HashSet<u64>,
    order: &str,
    top: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(u64, u64, u64, Vec<Instance>)> {
    let (order, top) = (Order::parse(order)?, top.unwrap_or(usize::MAX));
    let heaps = Heaps {
        space,
        chunks: Some(chunks),
        pools: Some(pools),
        mapped: &mapped,
        mimalloc: layout.mimalloc(),
        claimed: layout.claimed(),
    };
    let (jobs, total) = heaps.jobs();
    let init = || {
        let types = Types::new(space, Some(chunks), &layout);
        let (kinds, without) = (&kinds, &without);
        (Walk::new(heaps), Collector { heaps, without, types, kinds, order, top, rows: Vec::new(), all: (0, 0, 0) })
    };
    let work = |(walk, collector): &mut (Walk<'_>, Collector<'_>), job: &_, control: &Control| {
        walk.run(job, control, collector)
    };
    let workers = work::run(py, space, progress, total, &jobs, init, work)?;
    let mut collectors = workers.into_iter().map(|(_, collector)| collector);
    let Some(mut first) = collectors.next() else { return Ok((0, 0, 0, Vec::new())) };
    for other in collectors {
        let (count, size, buffers) = other.all;
        first.all = (first.all.0 + count, first.all.1 + size, first.all.2 + buffers);
        first.rows.extend(other.rows);
    }
    first.cut();
    Ok((first.all.0, first.all.1, first.all.2, first.rows))
}

/// Where objects tell their own size, beside `tp_basicsize` and `tp_itemsize`.
#[derive(Clone, FromPyObject)]
pub struct Sizing {
    pub ob_size: u64,
    /// Whether an int's word at `ob_size` is a tag that holds the digits above three bits.
    pub tagged: bool,
    pub flag_int: u64,
    pub flag_str: u64,
    pub str_length: u64,
    pub str_state: u64,
    /// Bits before those that tell the kind of a str, beyond the two of most builds.
    pub str_state_shift: u32,
    pub sizeof_ascii: u64,
    pub sizeof_compact: u64,
    /// Types whose objects carry the values of their attributes behind them; 0 if none do.
    pub flag_inline: u64,
}

const STR_COMPACT: u32 = 1 << 5;
const STR_ASCII: u32 = 1 << 6;

/// What a type says of its objects' sizes.
#[derive(Clone, Copy)]
pub struct Measure {
    pub basic: u64,
    pub item: u64,
}

/// Per size class: objects that tell their size, and the bytes that they asked for.
struct Asker<'a> {
    space: &'a Space,
    without: &'a HashSet<u64>,
    types: Types<'a>,
    sizing: &'a Sizing,
    measures: Vec<Option<Measure>>,
    rows: BTreeMap<u64, (u64, u64)>,
}

impl Visitor for Asker<'_> {
    fn block(&mut self, _: Place, address: u64, size: u64, head: &[u8]) -> bool {
        let Some((number, true)) = self.types.object_in(head, size) else { return false };
        if self.without.contains(&address) {
            return true;
        }
        let number = number as usize;
        if self.measures.len() <= number {
            self.measures.resize(number + 1, None);
        }
        let kind = &self.types.kinds[number];
        let space = self.space;
        let layout = self.types.layout;
        let measure = *self.measures[number].get_or_insert_with(|| Measure {
            basic: space.word(kind.address + layout.tp_basicsize).unwrap_or(0),
            item: space.word(kind.address + layout.tp_itemsize).unwrap_or(0),
        });
        let asked = asked_bytes(kind, measure, self.sizing, head);
        // What would be more than the block is no size.
        if let Some(asked) = asked.filter(|asked| *asked <= size) {
            let row = self.rows.entry(size).or_default();
            *row = (row.0 + 1, row.1 + asked);
        }
        true
    }
}

pub fn asked_bytes(kind: &Kind, measure: Measure, sizing: &Sizing, head: &[u8]) -> Option<u64> {
    let word = |offset: u64| crate::u64_at(head, (kind.pre + offset) as usize);
    if kind.flags & sizing.flag_str != 0 {
        let state = crate::u32_at(head, (kind.pre + sizing.str_state) as usize) >> sizing.str_state_shift.min(31);
        let characters = word(sizing.str_length).checked_add(1)?;
        let own = match (state & STR_COMPACT != 0, state & STR_ASCII != 0) {
            (false, _) => measure.basic,
            (true, true) => sizing.sizeof_ascii.checked_add(characters)?,
            (true, false) => characters.checked_mul(u64::from(state >> 2 & 7))?.checked_add(sizing.sizeof_compact)?,
        };
        return kind.pre.checked_add(own);
    }
    let items = match (measure.item, kind.flags & sizing.flag_int != 0) {
        (0, _) => 0,
        (_, true) if sizing.tagged => (word(sizing.ob_size) >> 3).max(1),
        _ => (word(sizing.ob_size) as i64).unsigned_abs(),
    };
    let behind = kind.pre + measure.basic;
    let inline = match kind.flags & sizing.flag_inline != 0 {
        // struct PyDictValues: four bytes, padded to eight; the values; a byte for each, padded to eight.
        true => {
            8 + u64::from(*head.get(behind as usize)?) * 8 + u64::from(*head.get(behind as usize)?).next_multiple_of(8)
        }
        false => 0,
    };
    items.checked_mul(measure.item)?.checked_add(behind + inline)
}

/// `(block size, objects that tell their size, bytes that they asked for)` of each size class, by size. Raises
/// KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (space, chunks, pools, layout, sizing, without, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn asked_sizes(
    py: Python<'_>,
    space: &Space,
    chunks: &Chunks,
    pools: &Pools,
    layout: TypeLayout,
    sizing: Sizing,
    without: HashSet<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<(u64, u64, u64)>> {
    let heaps =
        Heaps { space, chunks: None, pools: Some(pools), mapped: &[], mimalloc: layout.mimalloc(), claimed: None };
    let (jobs, total) = heaps.jobs();
    let init = || {
        let types = Types::new(space, Some(chunks), &layout);
        let (sizing, without) = (&sizing, &without);
        (Walk::new(heaps), Asker { space, without, types, sizing, measures: Vec::new(), rows: BTreeMap::new() })
    };
    let work = |(walk, asker): &mut (Walk<'_>, Asker<'_>), job: &_, control: &Control| walk.run(job, control, asker);
    let mut sums: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (_, asker) in work::run(py, space, progress, total, &jobs, init, work)? {
        for (size, (count, bytes)) in asker.rows {
            let row = sums.entry(size).or_default();
            *row = (row.0 + count, row.1 + bytes);
        }
    }
    Ok(sums.into_iter().map(|(size, (count, bytes))| (size, count, bytes)).collect())
}
