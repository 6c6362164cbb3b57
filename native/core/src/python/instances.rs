//! List single Python objects: the instances of given types, and the sizes that objects requested from their size
//! classes.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::allocators::store::Store;
use crate::allocators::walk::{Jobs, Visitor, Walk};
use crate::python::claims::claimed_pointer;
use crate::python::layout::{TypeLayout, CLAIM};
use crate::python::sizing::{asked_bytes, Measure, SizeFields};
use crate::python::types::{Kind, Types};
use crate::top_rows::TopRows;
use gdbheap_access::error::{Error, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;

/// An object: its address, the address of its type, the size of its block, and the total size of the blocks that its
/// fields own.
pub type Instance = (u64, u64, u64, u64);

/// Return the total size in bytes of the blocks that the fields of the object in a block own.
fn buffers(heaps: &Heaps<'_>, kind: &Kind, address: u64, size: u64, head: &[u8]) -> u64 {
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for claim in &kind.claims {
        let pointer = claimed_pointer(heaps.space, claim, address, size, head);
        let outside = pointer.filter(|pointer| pointer.wrapping_sub(address) >= size);
        let Some(block) = outside.and_then(|pointer| heaps.block_at(pointer)) else { continue };
        let holds = claim.follow != CLAIM || pointer == Some(block.address);
        if holds && !blocks.contains(&(block.address, block.size)) {
            blocks.push((block.address, block.size));
        }
    }
    blocks.iter().map(|(_, size)| size).sum()
}

/// The key by which a list of objects is sorted. The largest object comes first, unless the key is the type's name or
/// the address.
#[derive(Clone, Copy, Debug)]
pub enum ObjectOrder {
    Together,
    Bytes,
    Buffers,
    Type,
    Address,
}

impl FromStr for ObjectOrder {
    type Err = Error;

    fn from_str(text: &str) -> Result<ObjectOrder> {
        match text {
            "together" => Ok(ObjectOrder::Together),
            "bytes" => Ok(ObjectOrder::Bytes),
            "buffers" => Ok(ObjectOrder::Buffers),
            "type" => Ok(ObjectOrder::Type),
            "address" => Ok(ObjectOrder::Address),
            _ => Err(Error::invalid("the order is together, bytes, buffers, type or address")),
        }
    }
}

impl ObjectOrder {
    /// Return the sort key of an object. `kinds`: for each type, the position of its name in alphabetical order.
    fn key(self, (address, kind, size, buffers): &Instance, kinds: &HashMap<u64, u32>) -> (u64, u64, u64) {
        match self {
            ObjectOrder::Together => (!(size + buffers), *address, 0),
            ObjectOrder::Bytes => (!size, *address, 0),
            ObjectOrder::Buffers => (!buffers, *address, 0),
            ObjectOrder::Type => (u64::from(kinds.get(kind).copied().unwrap_or(0)), !(size + buffers), *address),
            ObjectOrder::Address => (*address, 0, 0),
        }
    }
}

/// The sums over all wanted objects: `count`, how many they are; `bytes`, the size of their blocks; `buffers`, the size
/// of the blocks that they own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Instances {
    pub count: u64,
    pub bytes: u64,
    pub buffers: u64,
}

impl Instances {
    fn with(self, other: Instances) -> Instances {
        let (count, bytes) = (self.count + other.count, self.bytes + other.bytes);
        Instances { count, bytes, buffers: self.buffers + other.buffers }
    }
}

/// A visitor that counts the wanted instances and collects the first `top` of them.
struct Collector<'a> {
    heaps: Heaps<'a>,
    /// The user addresses of blocks that only look like objects.
    without: &'a HashSet<u64>,
    types: Types<'a>,
    /// The wanted types, each with the position of its name in alphabetical order.
    kinds: &'a HashMap<u64, u32>,
    order: ObjectOrder,
    rows: TopRows<Instance>,
    all: Instances,
}

impl Visitor for Collector<'_> {
    fn block(&mut self, Block { address, size, .. }: Block, head: &[u8]) -> bool {
        let Some((number, true)) = self.types.object_in(head, size) else { return false };
        let kind = &self.types.kinds[number as usize];
        if !self.kinds.contains_key(&kind.address) || self.without.contains(&address) {
            return true;
        }
        let buffers = buffers(&self.heaps, kind, address, size, head);
        self.all = self.all.with(Instances { count: 1, bytes: size, buffers });
        let key = |row: &Instance| self.order.key(row, self.kinds);
        self.rows.put((address + kind.pre, kind.address, size, buffers), key);
        true
    }
}

/// The objects to list, and the order of the list.
pub struct WantedInstances {
    /// The types of the objects, each with the position of its name in alphabetical order.
    pub kinds: HashMap<u64, u32>,
    /// The user addresses of blocks that only look like objects.
    pub without: HashSet<u64>,
    pub order: ObjectOrder,
    pub top: Option<usize>,
}

/// Return the count of live objects of the wanted types, and the first of these objects in the given order.
pub fn list_instances(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    wanted: &WantedInstances,
) -> Result<(Instances, Vec<Instance>)> {
    let WantedInstances { kinds, without, order, top } = wanted;
    let (order, top) = (*order, top.unwrap_or(usize::MAX));
    let Jobs { jobs, total } = heaps.jobs();
    let init = || {
        let (types, all, rows) = (Types::new(heaps, layout), Instances::default(), TopRows::new(top));
        (Walk::new(heaps), Collector { heaps, without, types, kinds, order, rows, all })
    };
    let work = |(walk, collector): &mut (Walk<'_>, Collector<'_>), job: &_, control: &Control| {
        walk.run(job, control, collector)
    };
    let workers = heaps.space.task(watcher, Some(total)).run(&jobs, init, work)?;
    let mut collectors = workers.into_iter().map(|(_, collector)| collector);
    let Some(mut first) = collectors.next() else { return Ok((Instances::default(), Vec::new())) };
    for other in collectors {
        first.all = first.all.with(other.all);
        first.rows.extend(other.rows);
    }
    Ok((first.all, first.rows.finish(|row| order.key(row, kinds))))
}

/// A visitor that adds up, for each size class, the number of objects whose size is known, and the bytes that they
/// requested.
struct Asker<'a> {
    space: &'a Space,
    without: &'a HashSet<u64>,
    types: Types<'a>,
    sizing: &'a SizeFields,
    /// The sizes of each type, by the type's number: None until the type is read; `Some(None)` if the sizes cannot be
    /// read.
    measures: Vec<Option<Option<Measure>>>,
    rows: BTreeMap<u64, (u64, u64)>,
}

impl Visitor for Asker<'_> {
    fn block(&mut self, Block { address, size, .. }: Block, head: &[u8]) -> bool {
        let Some((number, true)) = self.types.object_in(head, size) else { return false };
        if self.without.contains(&address) {
            return true;
        }
        let number = number as usize;
        if self.measures.len() <= number {
            self.measures.resize(number + 1, None);
        }
        let kind = &self.types.kinds[number];
        let measured = || Measure::of(self.space, self.types.layout, kind.address);
        let measure = *self.measures[number].get_or_insert_with(measured);
        let asked = measure.and_then(|measure| asked_bytes(kind, measure, self.sizing, head));
        // A size that is larger than the block is invalid.
        if let Some(asked) = asked.filter(|asked| *asked <= size) {
            let row = self.rows.entry(size).or_default();
            *row = (row.0 + 1, row.1 + asked);
        }
        true
    }
}

/// Return `(block size, objects of known size, bytes that these objects requested)` of each size class, by ascending
/// size. Only stores that keep equal blocks together are examined. `without`: the user addresses of blocks that only
/// look like objects.
pub fn asked_sizes(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    sizing: &SizeFields,
    without: &HashSet<u64>,
) -> Result<Vec<(u64, u64, u64)>> {
    let Jobs { jobs, total } = heaps.jobs_of(Store::has_groups);
    let init = || {
        let (space, types) = (heaps.space, Types::new(heaps, layout));
        (Walk::new(heaps), Asker { space, without, types, sizing, measures: Vec::new(), rows: BTreeMap::new() })
    };
    let work = |(walk, asker): &mut (Walk<'_>, Asker<'_>), job: &_, control: &Control| walk.run(job, control, asker);
    let mut sums: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (_, asker) in heaps.space.task(watcher, Some(total)).run(&jobs, init, work)? {
        for (size, (count, bytes)) in asker.rows {
            let row = sums.entry(size).or_default();
            *row = (row.0 + count, row.1 + bytes);
        }
    }
    Ok(sums.into_iter().map(|(size, (count, bytes))| (size, count, bytes)).collect())
}
