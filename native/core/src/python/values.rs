//! Objects by value: equal strings, bytes, numbers, and tuples of such. Values are compared by two hashes, so that a pass
//! over all of them keeps a few words for each distinct one.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::{Jobs, Visitor, Walk};
use crate::bytes::{half_at, word_at};
use crate::error::Result;
use crate::firsts::Firsts;
use crate::memory::reader;
use crate::python::layout::TypeLayout;
use crate::python::sizing::{Sizing, STR_ASCII, STR_COMPACT};
use crate::python::types::Types;
use crate::work::{Control, Watcher};
use std::collections::hash_map::{DefaultHasher, RandomState};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

pub const STR: u8 = 1;
pub const BYTES: u8 = 2;
pub const INT: u8 = 3;
pub const FLOAT: u8 = 4;
pub const COMPLEX: u8 = 5;
pub const TUPLE: u8 = 6;
/// What is equal to nothing but itself, as an item of a tuple: None, True, False.
pub const SINGLE: u8 = 7;

const MAX_DEPTH: u32 = 8;
const MAX_ITEMS: u64 = 64 << 10;
const MAX_CONTENTS: u64 = 1 << 40;
const PIECE: usize = 256 << 10;
/// What is less is read with what lies near it.
const SMALL: u64 = 1 << 10;
/// The first bytes of an item that are read at once.
const ITEM_HEAD: usize = 64;
const REMEMBERED: usize = 1 << 16;
/// Addresses between two looks at whether to go on.
const AT_ONCE: usize = 4 << 10;

/// What of objects' fields tells their values.
#[derive(Clone, Debug)]
pub struct Values {
    /// Types with their kinds, STR to SINGLE.
    pub kinds: Vec<(u64, u8)>,
    pub sizing: Sizing,
    pub str_data: u64,
    pub bytes_data: u64,
    pub tuple_items: u64,
    pub ob_digit: u64,
    /// Where a number of C begins in a float or complex.
    pub number: u64,
}

/// Equal objects: the hash of their value, their kind, how many there are, the bytes of their blocks, of the largest one,
/// and the first of their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Equal {
    pub hash: u128,
    pub kind: u8,
    pub count: u64,
    pub bytes: u64,
    pub largest: u64,
    pub address: u64,
}

impl Equal {
    pub fn saved(&self) -> u64 {
        self.bytes - self.largest
    }

    fn of((hash, found): (Key, Counted)) -> Equal {
        let Counted { kind, count, bytes, largest, address } = found;
        Equal { hash: u128::from(hash[0]) << 64 | u128::from(hash[1]), kind, count, bytes, largest, address }
    }
}

/// The two halves of a hash: a number of 128 bits would have gaps beside it.
type Key = [u64; 2];

/// What is kept of each distinct value while they are counted, beside its hash.
#[derive(Clone, Copy)]
struct Counted {
    kind: u8,
    count: u64,
    bytes: u64,
    largest: u64,
    address: u64,
}

impl Counted {
    fn with(self, other: Counted) -> Counted {
        Counted {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            largest: self.largest.max(other.largest),
            address: self.address.min(other.address),
            ..self
        }
    }
}

/// Over all values of a kind: objects and their bytes; values that several have, those objects, and what one each would
/// save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSum {
    pub kind: u8,
    pub objects: u64,
    pub bytes: u64,
    pub values: u64,
    pub copies: u64,
    pub saved: u64,
}

/// One of the equal objects: the hash of its value, its address and the bytes of its block.
pub type Copied = (u128, u64, u64);

/// Two hashes at once, each with keys that no other run of ours has: what a target holds cannot have been chosen to have
/// the same, and of a hundred million values no two do by chance (one in 10^22).
struct Both(DefaultHasher, DefaultHasher);

impl Both {
    fn new() -> Both {
        static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
        let [one, other] = KEYS.get_or_init(Default::default);
        Both(one.build_hasher(), other.build_hasher())
    }

    fn whole(&self) -> u128 {
        u128::from(self.0.finish()) << 64 | u128::from(self.1.finish())
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn write_u8(&mut self, number: u8) {
        self.write(&[number]);
    }

    fn write_u64(&mut self, number: u64) {
        self.0.write_u64(number);
        self.1.write_u64(number);
    }

    fn write_hash(&mut self, hash: u128) {
        self.0.write_u128(hash);
        self.1.write_u128(hash);
    }
}

/// The object in a block: where it begins in its first bytes, its kind.
struct Found<'h> {
    address: u64,
    kind: u8,
    head: &'h [u8],
}

/// Hashes values, with items of tuples remembered by their address.
struct Reader<'a> {
    heaps: Heaps<'a>,
    layout: &'a TypeLayout,
    values: &'a Values,
    kinds: HashMap<u64, u8>,
    remembered: Vec<(u64, u128)>,
    /// Items mostly lie near each other.
    near: reader::Reader<'a>,
    buffer: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn new(heaps: Heaps<'a>, layout: &'a TypeLayout, values: &'a Values) -> Reader<'a> {
        let kinds = values.kinds.iter().copied().collect();
        let (near, remembered) = (reader::Reader::new(heaps.space), vec![(0, 0); REMEMBERED]);
        Reader { heaps, layout, values, kinds, remembered, near, buffer: Vec::new() }
    }

    /// The hash of an object's value; None where it cannot be read, or is of no kind that has one.
    fn hash(&mut self, found: &Found<'_>, depth: u32) -> Option<u128> {
        let mut hasher = Both::new();
        hasher.write_u8(found.kind);
        let word = |at: u64| word_at(found.head, at as usize);
        let values = self.values;
        match found.kind {
            STR => {
                let (start, size, width) = self.characters(found)?;
                hasher.write_u8(width);
                self.contents(&mut hasher, found, start, size)?;
            }
            BYTES => self.contents(&mut hasher, found, values.bytes_data, word(values.sizing.ob_size)?)?,
            INT => {
                let tag = word(values.sizing.ob_size)?;
                let digits = if values.sizing.tagged { tag >> 3 } else { (tag as i64).unsigned_abs() };
                hasher.write_u64(if values.sizing.tagged { tag & !4 } else { tag });
                self.contents(&mut hasher, found, values.ob_digit, digits.checked_mul(4)?)?;
            }
            FLOAT => hasher.write_u64(word(values.number)?),
            COMPLEX => {
                hasher.write_u64(word(values.number)?);
                hasher.write_u64(word(values.number + 8)?);
            }
            TUPLE => self.items(&mut hasher, found, depth)?,
            _ => hasher.write_u64(found.address),
        }
        Some(hasher.whole())
    }

    /// Where a str's characters begin, counted from the object or (up to 3.11, elsewhere) from nothing, their bytes, and
    /// the bytes of one.
    fn characters(&self, found: &Found<'_>) -> Option<(u64, u64, u8)> {
        let sizing = &self.values.sizing;
        let state = half_at(found.head, sizing.str_state as usize)? >> sizing.str_state_shift.min(31);
        let length = word_at(found.head, sizing.str_length as usize)?;
        let width = (state >> 2 & 7) as u8;
        if !matches!(width, 1 | 2 | 4) {
            return None;
        }
        let start = match (state & STR_COMPACT != 0, state & STR_ASCII != 0) {
            (true, true) => sizing.sizeof_ascii,
            (true, false) => sizing.sizeof_compact,
            _ => word_at(found.head, self.values.str_data as usize)?.wrapping_sub(found.address),
        };
        Some((start, length.checked_mul(width.into())?, width))
    }

    fn contents(&mut self, hasher: &mut Both, found: &Found<'_>, start: u64, size: u64) -> Option<()> {
        if size > MAX_CONTENTS {
            return None;
        }
        hasher.write_u64(size);
        let end = start.wrapping_add(size);
        if let (true, Some(bytes)) = (end >= start, found.head.get(start as usize..end as usize)) {
            hasher.write(bytes);
            return Some(());
        }
        let (mut at, mut left) = (found.address.wrapping_add(start), size);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(PIECE, 0);
        while left > 0 {
            let part = &mut buffer[..left.min(PIECE as u64) as usize];
            let got = if size < SMALL { self.near.fill(at, part) } else { self.heaps.space.fill(at, part) };
            if got < part.len() {
                break;
            }
            hasher.write(part);
            (at, left) = (at.wrapping_add(got as u64), left - got as u64);
        }
        self.buffer = buffer;
        (left == 0).then_some(())
    }

    fn items(&mut self, hasher: &mut Both, found: &Found<'_>, depth: u32) -> Option<()> {
        let (sizing, first) = (&self.values.sizing, self.values.tuple_items);
        let count = word_at(found.head, sizing.ob_size as usize)?;
        if depth >= MAX_DEPTH || count > MAX_ITEMS {
            return None;
        }
        hasher.write_u64(count);
        for index in 0..count {
            let place = first + 8 * index;
            let item = match word_at(found.head, place as usize) {
                Some(item) => item,
                None => self.near.any_word(found.address.wrapping_add(place))?,
            };
            hasher.write_hash(self.item(item, depth + 1)?);
        }
        Some(())
    }

    fn item(&mut self, address: u64, depth: u32) -> Option<u128> {
        let slot = (address >> 4) as usize % REMEMBERED;
        if address != 0 && self.remembered[slot].0 == address {
            return Some(self.remembered[slot].1);
        }
        let mut head = [0; ITEM_HEAD];
        let got = self.near.fill(address, &mut head);
        let kind = *self.kinds.get(&word_at(&head[..got], self.layout.ob_type as usize)?)?;
        let hash = self.hash(&Found { address, kind, head: &head[..got] }, depth)?;
        self.remembered[slot] = (address, hash);
        Some(hash)
    }
}

/// Visits objects of the kinds that have values.
struct Finder<'a, S> {
    types: Types<'a>,
    reader: Reader<'a>,
    without: &'a HashSet<u64>,
    wanted: &'a HashSet<u64>,
    sink: S,
}

trait Sink {
    fn take(&mut self, reader: &mut Reader<'_>, found: &Found<'_>, size: u64);
}

impl<S: Sink> Visitor for Finder<'_, S> {
    fn block(&mut self, Block { address, size, .. }: Block, head: &[u8]) -> bool {
        let Some((number, true)) = self.types.object_in(head, size) else { return false };
        let kind = &self.types.kinds[number as usize];
        let value = self.reader.kinds.get(&kind.address).filter(|_| self.wanted.contains(&kind.address));
        let Some(value) = value.copied().filter(|value| *value != SINGLE) else { return true };
        if self.without.contains(&address) {
            return true;
        }
        let pre = self.types.layout.outer_hook(head) as u64 + kind.pre;
        let found = Found { address: address + pre, kind: value, head: head.get(pre as usize..).unwrap_or_default() };
        self.sink.take(&mut self.reader, &found, size);
        true
    }
}

/// Counts equal ones whose hash is in one of `slices` parts of all.
struct Counter {
    part: u64,
    slices: u64,
    rows: HashMap<Key, Counted>,
}

impl Sink for Counter {
    fn take(&mut self, reader: &mut Reader<'_>, found: &Found<'_>, size: u64) {
        let Some(hash) = reader.hash(found, 0) else { return };
        if hash as u64 % self.slices != self.part {
            return;
        }
        let one = Counted { kind: found.kind, count: 1, bytes: size, largest: size, address: found.address };
        self.rows.entry([(hash >> 64) as u64, hash as u64]).and_modify(|row| *row = row.with(one)).or_insert(one);
    }
}

/// Collects the objects of some values.
struct Collector<'a> {
    hashes: &'a HashSet<u128>,
    rows: Vec<Copied>,
    most: usize,
}

impl Sink for Collector<'_> {
    fn take(&mut self, reader: &mut Reader<'_>, found: &Found<'_>, size: u64) {
        let Some(hash) = reader.hash(found, 0).filter(|hash| self.hashes.contains(hash)) else { return };
        if self.rows.len() < self.most {
            self.rows.push((hash, found.address, size));
        }
    }
}

/// Which objects are looked at: the types, and without blocks that only look like objects, by user address.
pub struct WantedValues {
    pub types: HashSet<u64>,
    pub without: HashSet<u64>,
}

fn walk<'a, S: Sink + Send>(
    watcher: &dyn Watcher,
    heaps: Heaps<'a>,
    layout: &'a TypeLayout,
    values: &'a Values,
    wanted: &'a WantedValues,
    sink: impl Fn() -> S + Sync,
) -> Result<Vec<S>> {
    let Jobs { jobs, total } = heaps.jobs();
    let init = || {
        let (types, reader) = (Types::new(heaps, layout), Reader::new(heaps, layout, values));
        let finder = Finder { types, reader, without: &wanted.without, wanted: &wanted.types, sink: sink() };
        (Walk::new(heaps), finder)
    };
    let work =
        |(walk, finder): &mut (Walk<'_>, Finder<'_, S>), job: &_, control: &Control| walk.run(job, control, finder);
    let workers = heaps.space.task(watcher, Some(total)).run(&jobs, init, work)?;
    Ok(workers.into_iter().map(|(_, finder)| finder.sink).collect())
}

/// Values with `least` objects or more: the `top` of them whose objects would save the most if there were one each (or, if
/// `by_bytes`, that have the most bytes), and sums by kind. `slices`: in how many passes, each with as large a part of the
/// distinct values in memory.
#[allow(clippy::too_many_arguments)]
pub fn equal_values(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    values: &Values,
    wanted: &WantedValues,
    least: u64,
    by_bytes: bool,
    slices: u64,
    top: usize,
) -> Result<(Vec<Equal>, Vec<KindSum>, u64)> {
    let slices = slices.max(1);
    let (mut rows, mut sums, mut count): (_, BTreeMap<u8, KindSum>, u64) = (Firsts::new(top), BTreeMap::new(), 0);
    let order = |row: &Equal| (!if by_bytes { row.bytes } else { row.saved() }, row.address);
    for part in 0..slices {
        let counters = walk(watcher, heaps, layout, values, wanted, || Counter { part, slices, rows: HashMap::new() })?;
        let mut counters = counters.into_iter();
        let mut all = counters.next().map(|counter| counter.rows).unwrap_or_default();
        for (hash, row) in counters.flat_map(|counter| counter.rows) {
            all.entry(hash).and_modify(|old| *old = old.with(row)).or_insert(row);
        }
        for row in all.into_iter().map(Equal::of) {
            let sum = sums.entry(row.kind).or_insert(KindSum { kind: row.kind, ..KindSum::default() });
            (sum.objects, sum.bytes) = (sum.objects + row.count, sum.bytes + row.bytes);
            if row.count > 1 {
                (sum.values, sum.copies, sum.saved) = (sum.values + 1, sum.copies + row.count, sum.saved + row.saved());
            }
            if row.count >= least {
                count += 1;
                rows.put(row, order);
            }
        }
    }
    Ok((rows.finish(order), sums.into_values().collect(), count))
}

/// The objects whose values have these hashes, by address; at most `most`.
pub fn equal_objects(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    values: &Values,
    wanted: &WantedValues,
    hashes: &HashSet<u128>,
    most: usize,
) -> Result<Vec<Copied>> {
    let sink = || Collector { hashes, rows: Vec::new(), most };
    let found = walk(watcher, heaps, layout, values, wanted, sink)?;
    let mut rows: Vec<Copied> = found.into_iter().flat_map(|collector| collector.rows).collect();
    rows.sort_unstable_by_key(|(_, address, _)| *address);
    rows.truncate(most);
    Ok(rows)
}

/// The hashes of the values of the objects at these addresses, wherever they lie; None where one cannot be read, or is of no
/// kind that has one. Quick where neighbours follow each other.
pub fn value_hashes(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    values: &Values,
    addresses: &[u64],
) -> Result<Vec<Option<u128>>> {
    heaps.space.task(watcher, None).alone(|control| {
        let mut reader = Reader::new(heaps, layout, values);
        let mut found = Vec::with_capacity(addresses.len());
        for part in addresses.chunks(AT_ONCE) {
            found.extend(part.iter().map(|address| reader.item(*address, 0)));
            control.advance(0)?;
        }
        Ok(found)
    })
}

/// Objects by the block's size (an offset of -1), or by the number at an offset from the object.
struct Tallier<'a> {
    types: Types<'a>,
    kinds: &'a HashMap<u64, i64>,
    without: &'a HashSet<u64>,
    rows: HashMap<u64, (u64, u64)>,
}

impl Visitor for Tallier<'_> {
    fn block(&mut self, Block { address, size, .. }: Block, head: &[u8]) -> bool {
        let Some((number, true)) = self.types.object_in(head, size) else { return false };
        let kind = &self.types.kinds[number as usize];
        let Some(at) = self.kinds.get(&kind.address).filter(|_| !self.without.contains(&address)) else { return true };
        let place = self.types.layout.outer_hook(head) as u64 + kind.pre;
        let key = match *at {
            at if at < 0 => size,
            at => match word_at(head, place.saturating_add(at as u64) as usize) {
                Some(word) => (word as i64).unsigned_abs(),
                None => return true,
            },
        };
        let row = self.rows.entry(key).or_default();
        *row = (row.0 + 1, row.1 + size);
        true
    }
}

/// `(key, objects, bytes of their blocks)` of the live objects of the types at `kinds`, by key: the size of their block
/// where a type's offset is negative, else the number at that offset from the object, without its sign.
pub fn tally_objects(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    kinds: &HashMap<u64, i64>,
    without: &HashSet<u64>,
) -> Result<Vec<(u64, u64, u64)>> {
    let Jobs { jobs, total } = heaps.jobs();
    let init =
        || (Walk::new(heaps), Tallier { types: Types::new(heaps, layout), kinds, without, rows: HashMap::new() });
    let work = |(walk, one): &mut (Walk<'_>, Tallier<'_>), job: &_, control: &Control| walk.run(job, control, one);
    let mut rows: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (_, one) in heaps.space.task(watcher, Some(total)).run(&jobs, init, work)? {
        for (key, (count, bytes)) in one.rows {
            let row = rows.entry(key).or_default();
            *row = (row.0 + count, row.1 + bytes);
        }
    }
    Ok(rows.into_iter().map(|(key, (count, bytes))| (key, count, bytes)).collect())
}
