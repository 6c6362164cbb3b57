//! All used blocks of a target as columns of numbers. Each column is shuffled by bytes: first it has the lowest byte of
//! all numbers, then the next byte of all numbers, and so on. A compressor finds long runs of equal bytes in such
//! columns.
//!
//! - `addresses`: u32, the distance from the previous block in units of 8 bytes. FAR if the address is instead the next
//!   number in `far` (u64, not shuffled).
//! - `sizes`: u32, including the allocator's overhead. FAR if the size is instead the next number in `large`.
//! - `kinds`: u16, the index of the block's type in `types` plus one; 0 for a block without a living object.
//! - `holders`: u16, the index of the holder in the list that was requested plus one; 0 if no single holder is known,
//!   u16::MAX for an unreachable block. Empty if no holders were requested.
//! - `offsets`: u8, the offset in its block at which the object begins; 0 for a block without a living object. Empty if
//!   the offsets are unknown, as in older files.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::{Job, Visitor, Walk};
use crate::graph::Graph;
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::{Error, Result};
use gdbheap_access::memory::own::give_back;
use gdbheap_access::work::{Control, Watcher};
use std::collections::HashMap;
use std::sync::Mutex;

const FAR: u32 = u32::MAX;
const UNIT: u64 = 8;
/// The largest number of types that get a number, because a number has 16 bits. An object of a further type is not
/// recorded: its block counts as a block without an object.
const MAX_TYPES: usize = u16::MAX as usize - 1;

/// The columns of a target's blocks, store after store (see the module). `counts`: the number of blocks of each store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockColumns {
    pub counts: Vec<u64>,
    pub addresses: Vec<u8>,
    pub far: Vec<u8>,
    pub sizes: Vec<u8>,
    pub large: Vec<u8>,
    pub kinds: Vec<u8>,
    pub holders: Vec<u8>,
    pub offsets: Vec<u8>,
    /// The addresses of the types that occur in `kinds`. The first of them has the number 1.
    pub types: Vec<u64>,
}

/// The columns of the blocks in one range of a store, which one worker lists at a time.
#[derive(Default)]
struct BlockPart {
    store: u32,
    number: u64,
    addresses: Vec<u32>,
    far: Vec<u64>,
    sizes: Vec<u32>,
    large: Vec<u64>,
    kinds: Vec<u16>,
    offsets: Vec<u8>,
    last: Option<u64>,
}

impl BlockPart {
    fn push(&mut self, address: u64, size: u64, (kind, offset): (u16, u8)) {
        let distance = self.last.and_then(|last| address.checked_sub(last)).filter(|distance| distance % UNIT == 0);
        match distance.map(|distance| distance / UNIT).filter(|units| *units < u64::from(FAR)) {
            Some(units) => self.addresses.push(units as u32),
            None => {
                self.addresses.push(FAR);
                self.far.push(address);
            }
        }
        self.last = Some(address);
        match u32::try_from(size) {
            Ok(size) if size != FAR => self.sizes.push(size),
            _ => {
                self.sizes.push(FAR);
                self.large.push(size);
            }
        }
        self.kinds.push(kind);
        self.offsets.push(offset);
    }
}

/// The kind and the offset for a block without a living object.
const NO_OBJECT: (u16, u8) = (0, 0);

/// A visitor that lists blocks as columns. Each worker thread has its own visitor.
struct Collector<'a> {
    types: Option<Types<'a>>,
    /// For each type, the number that all workers share; None if it was not looked up yet. The index is the number that
    /// this worker gave the type.
    known: Vec<Option<u16>>,
    shared: &'a Mutex<HashMap<u64, u16>>,
    part: BlockPart,
    done: Vec<BlockPart>,
}

impl Collector<'_> {
    fn begin(&mut self, job: &Job) {
        let part = BlockPart { store: job.first.store, number: job.first.number, ..BlockPart::default() };
        self.done.push(std::mem::replace(&mut self.part, part));
    }

    /// Return the number of the type of the living object in a block, and the object's offset in the block. Return
    /// NO_OBJECT if the block has none.
    #[inline(always)]
    fn kind_of(&mut self, head: &[u8], size: u64) -> (u16, u8) {
        let Some(types) = self.types.as_mut() else { return NO_OBJECT };
        let Some((number, true)) = types.object_in(head, size) else { return NO_OBJECT };
        let place = number as usize;
        let offset = (types.layout.outer_hook(head) as u64 + types.kinds[place].pre) as u8;
        if let Some(Some(kind)) = self.known.get(place) {
            return (*kind, offset);
        }
        let address = types.kinds[place].address;
        let mut shared = self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let next = shared.len() + 1;
        let kind = match shared.get(&address) {
            Some(kind) => *kind,
            None if next > MAX_TYPES => 0,
            None => *shared.entry(address).or_insert(next as u16),
        };
        self.known.resize(self.known.len().max(place + 1), None);
        self.known[place] = Some(kind);
        if kind == 0 {
            return NO_OBJECT;
        }
        (kind, offset)
    }
}

impl Visitor for Collector<'_> {
    const ALL: bool = true;

    #[inline(always)]
    fn block(&mut self, Block { address, size, .. }: Block, head: &[u8]) -> bool {
        let found = self.kind_of(head, size);
        self.part.push(address, size, found);
        found.0 != 0
    }

    fn plain_block(&mut self, Block { address, size, .. }: Block, _head: &[u8]) {
        self.part.push(address, size, NO_OBJECT);
    }
}

/// List all used blocks as columns. Without a `layout`, all blocks count as blocks without an object.
pub fn list_blocks(watcher: &dyn Watcher, heaps: Heaps<'_>, layout: Option<&TypeLayout>) -> Result<BlockColumns> {
    let (jobs, shared) = (heaps.jobs(), Mutex::new(HashMap::new()));
    let init = || {
        let types = layout.map(|layout| Types::new(heaps, layout));
        let (part, done) = (BlockPart::default(), Vec::new());
        (Walk::new(heaps), Collector { types, known: Vec::new(), shared: &shared, part, done })
    };
    let work = |(walk, collector): &mut (Walk<'_>, Collector<'_>), job: &Job, control: &Control| {
        collector.begin(job);
        walk.run(job, control, collector)
    };
    let states = heaps.space.task(watcher, Some(jobs.total)).run(&jobs.jobs, init, work)?;
    let of_worker = |(_, collector): (Walk<'_>, Collector<'_>)| collector.done.into_iter().chain([collector.part]);
    let parts: Vec<BlockPart> = states.into_iter().flat_map(of_worker).collect();
    let numbers = shared.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut types = vec![0; numbers.len()];
    numbers.into_iter().for_each(|(address, kind)| types[usize::from(kind) - 1] = address);
    let columns = joined(parts, heaps.stores.len(), types);
    give_back();
    Ok(columns)
}

/// Join the parts, ordered by store, and in each store by the order of the blocks.
fn joined(mut parts: Vec<BlockPart>, stores: usize, types: Vec<u64>) -> BlockColumns {
    parts.retain(|part| !part.kinds.is_empty());
    parts.sort_unstable_by_key(|part| (part.store, part.number));
    let mut counts = vec![0; stores];
    parts.iter().for_each(|part| counts[part.store as usize] += part.kinds.len() as u64);
    let count = counts.iter().sum::<u64>() as usize;
    let addresses = parts.iter().flat_map(|part| &part.addresses).map(|number| number.to_le_bytes());
    let sizes = parts.iter().flat_map(|part| &part.sizes).map(|number| number.to_le_bytes());
    let kinds = parts.iter().flat_map(|part| &part.kinds).map(|number| number.to_le_bytes());
    BlockColumns {
        counts,
        addresses: shuffled(addresses, count),
        far: parts.iter().flat_map(|part| &part.far).flat_map(|number| number.to_le_bytes()).collect(),
        sizes: shuffled(sizes, count),
        large: parts.iter().flat_map(|part| &part.large).flat_map(|number| number.to_le_bytes()).collect(),
        kinds: shuffled(kinds, count),
        holders: Vec::new(),
        offsets: parts.iter().flat_map(|part| &part.offsets).copied().collect(),
        types,
    }
}

fn shuffled<const N: usize>(numbers: impl Iterator<Item = [u8; N]>, count: usize) -> Vec<u8> {
    let mut planes = vec![0; N * count];
    for (place, number) in numbers.enumerate() {
        for (plane, byte) in number.into_iter().enumerate() {
            planes[plane * count + place] = byte;
        }
    }
    planes
}

/// A block that was read from columns. `kind` and `holder` are the numbers in the columns `kinds` and `holders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnRow {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) kind: u16,
    pub(crate) holder: u16,
}

impl BlockColumns {
    /// Fill the column `holders`: for each block, the innermost node of `among` that dominates it. The nodes are
    /// numbers in `graph`, the graph of the same blocks.
    pub fn held(mut self, watcher: &dyn Watcher, graph: &Graph, among: &[u32]) -> Result<BlockColumns> {
        let holders = graph.innermost(watcher, among)?;
        let mut found = Vec::with_capacity(self.count()?);
        self.show(|row| found.push(graph.find(row.address).map_or(0, |node| holders[node as usize])))?;
        self.holders = shuffled(found.iter().map(|holder| holder.to_le_bytes()), found.len());
        Ok(self)
    }

    /// Return the number of blocks. Fails if the columns have different lengths, which is possible because they come
    /// from a file.
    pub fn count(&self) -> Result<usize> {
        let sum = self.counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count)).ok_or_else(damaged)?;
        let count = usize::try_from(sum).map_err(|_| damaged())?;
        let is_wrong = |(length, width): &(usize, usize)| count.checked_mul(*width) != Some(*length);
        let lengths = [(self.addresses.len(), 4), (self.sizes.len(), 4), (self.kinds.len(), 2)];
        let optional = [(self.holders.len(), 2), (self.offsets.len(), 1)];
        let there = optional.iter().filter(|(length, _)| *length != 0);
        match lengths.iter().chain(there).any(is_wrong) {
            true => Err(damaged()),
            false => Ok(count),
        }
    }

    /// Check columns that come from a file. Fails in three cases: the columns have different lengths; `far` or `large`
    /// has too few or too many numbers; the kind of a block is above `types`, the number of types.
    pub fn check(&self, types: usize) -> Result<()> {
        let mut reader = ColumnReader::new(self)?;
        while let Some(row) = reader.read(self)? {
            if usize::from(row.kind) > types {
                return Err(Error::invalid("a block has a type that is not in the list of types"));
            }
        }
        match (self.far.len(), self.large.len()) == (8 * reader.far, 8 * reader.large) {
            true => Ok(()),
            false => Err(damaged()),
        }
    }

    /// Call `visit` for every block. Fails if the columns have different lengths, or if they end too early.
    pub(crate) fn show(&self, mut visit: impl FnMut(ColumnRow)) -> Result<()> {
        let mut reader = ColumnReader::new(self)?;
        while let Some(row) = reader.read(self)? {
            visit(row);
        }
        Ok(())
    }

    /// Return all blocks in the columns. Fails if the columns contradict each other.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> Result<Vec<ColumnRow>> {
        let mut rows = Vec::with_capacity(self.count()?);
        self.show(|row| rows.push(row))?;
        Ok(rows)
    }
}

/// A reader of the blocks in columns: its position in each column.
pub(crate) struct ColumnReader {
    count: usize,
    pub(crate) place: usize,
    far: usize,
    large: usize,
    address: u64,
}

impl ColumnReader {
    /// Begin at the first block. Fails if the columns have different lengths.
    pub(crate) fn new(columns: &BlockColumns) -> Result<ColumnReader> {
        Ok(ColumnReader { count: columns.count()?, place: 0, far: 0, large: 0, address: 0 })
    }

    /// Return the next block; None after the last one. Every call must pass the same columns. Fails if the columns end
    /// too early.
    #[inline(always)]
    pub(crate) fn read(&mut self, columns: &BlockColumns) -> Result<Option<ColumnRow>> {
        if self.place >= self.count {
            return Ok(None);
        }
        let (count, place) = (self.count, self.place);
        let byte = |planes: &[u8], plane: usize| u32::from(planes[plane * count + place]);
        let short = |planes: &[u8]| (byte(planes, 0) | byte(planes, 1) << 8) as u16;
        let number = |planes: &[u8]| u32::from(short(planes)) | byte(planes, 2) << 16 | byte(planes, 3) << 24;
        self.address = match number(&columns.addresses) {
            FAR => next_of(&columns.far, &mut self.far)?,
            units => self.address.wrapping_add(u64::from(units) * UNIT),
        };
        let size = match number(&columns.sizes) {
            FAR => next_of(&columns.large, &mut self.large)?,
            size => size.into(),
        };
        let holder = if columns.holders.is_empty() { 0 } else { short(&columns.holders) };
        self.place += 1;
        Ok(Some(ColumnRow { address: self.address, size, kind: short(&columns.kinds), holder }))
    }
}

/// Return the number with the index `place` in a list of eight-byte numbers, and increase the index by one.
fn next_of(numbers: &[u8], place: &mut usize) -> Result<u64> {
    let bytes = numbers.chunks_exact(8).nth(*place).ok_or_else(damaged)?;
    *place += 1;
    Ok(u64_at(bytes, 0))
}

fn damaged() -> Error {
    Error::invalid("the columns of blocks do not fit each other")
}

#[cfg(test)]
pub(super) mod tests {
    use super::{joined, BlockColumns, BlockPart, ColumnRow};

    /// A random generator that is good enough for tests (xorshift64*).
    pub(crate) struct Random(pub(crate) u64);

    impl Random {
        pub(crate) fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
        }
    }

    /// Make columns of these blocks by joining parts of `length` blocks.
    pub(crate) fn columns(rows: &[ColumnRow], length: usize) -> BlockColumns {
        let part = |(number, rows): (usize, &[ColumnRow])| {
            let mut part = BlockPart { number: number as u64, ..BlockPart::default() };
            rows.iter().for_each(|row| part.push(row.address, row.size, (row.kind, 0)));
            part
        };
        joined(rows.chunks(length).enumerate().map(part).rev().collect(), 1, Vec::new())
    }

    /// Make blocks with small and huge distances and sizes. Some blocks are at lower addresses than the previous block.
    pub(crate) fn rows(random: &mut Random, count: u64) -> Vec<ColumnRow> {
        let mut address = 1 << 20;
        (0..count)
            .map(|_| {
                address = match random.below(50) {
                    0 => random.below(1 << 47),
                    1 => address + (random.below(1 << 40) & !7),
                    2 => address + 1 + random.below(100),
                    _ => address + 16 * (1 + random.below(40)),
                };
                let size = match random.below(60) {
                    0 => random.below(1 << 40),
                    1 => u64::from(u32::MAX) - 1 + random.below(3),
                    _ => 16 * random.below(40),
                };
                ColumnRow { address, size, kind: random.below(6) as u16, holder: 0 }
            })
            .collect()
    }

    #[test]
    fn read_back() {
        for seed in 1..40 {
            let mut random = Random(seed);
            let made = rows(&mut random, seed * 17 % 300);
            assert_eq!(columns(&made, 1 + seed as usize % 9).rows().unwrap(), made);
        }
    }

    #[test]
    fn columns_that_do_not_fit() {
        let good = columns(&rows(&mut Random(7), 200), 50);
        assert!(good.rows().is_ok() && !good.far.is_empty() && !good.large.is_empty());
        let wrong = [
            BlockColumns { counts: vec![199], ..good.clone() },
            BlockColumns { counts: vec![u64::MAX, 2], ..good.clone() },
            BlockColumns { counts: vec![u64::MAX / 2], ..good.clone() },
            BlockColumns { kinds: good.kinds[1..].to_vec(), ..good.clone() },
            BlockColumns { far: Vec::new(), ..good.clone() },
            BlockColumns { large: vec![1, 2, 3], ..good.clone() },
        ];
        assert!(wrong.iter().all(|columns| columns.rows().is_err()));
    }
}
