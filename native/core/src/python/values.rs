//! Count objects by value: equal strings, bytes, numbers, and tuples of these. Values are compared by two hashes, so
//! that a pass over all values keeps only a few words for each distinct value.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::{Job, Jobs, Visitor, Walk};
use crate::by_address::ByAddress;
use crate::python::layout::TypeLayout;
use crate::python::sizing::{SizeFields, STR_ASCII, STR_COMPACT};
use crate::python::types::Types;
use crate::top_rows::TopRows;
use gdbheap_access::bytes::{half_at, word_at};
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::memory::reader;
use gdbheap_access::work::{Control, Watcher};
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
/// The kind of None, True and False as items of a tuple. Each of these values equals only itself.
pub const SINGLE: u8 = 7;

const MAX_DEPTH: u32 = 8;
const MAX_ITEMS: u64 = 64 << 10;
const PIECE: usize = 256 << 10;
/// The size in bytes below which an item is read together with the memory near it.
const SMALL: u64 = 1 << 10;
/// The number of bytes at the start of an item that are read at once.
const ITEM_HEAD: usize = 64;
const REMEMBERED: usize = 1 << 16;
/// The number of hashed bytes between two checks for cancellation.
const BYTES_UNHEARD: u64 = 1 << 20;
/// The largest number of bytes that are cheap to hash. An item whose value took more bytes is hashed only once.
const CHEAP: u64 = 4 << 10;
/// The largest number of expensive items that one worker remembers.
const MAX_COSTLY: usize = 1 << 20;
/// Outside the objects' own blocks, a worker may read this number of bytes plus the size of the heaps.
const MAX_ELSEWHERE: u64 = 256 << 20;
/// The largest distance in bytes from a block's start to the object in it. The hooks of a debug build, the links of the
/// collector, and pointers to attributes may precede the object.
const MAX_BEFORE: u64 = 80;

/// The layout of the fields that contain the values of objects.
#[derive(Clone, Debug)]
pub struct Values {
    /// The types whose objects have values, each with its kind, from STR to SINGLE.
    pub kinds: Vec<(u64, u8)>,
    pub sizing: SizeFields,
    pub str_data: u64,
    pub bytes_data: u64,
    pub tuple_items: u64,
    pub ob_digit: u64,
    /// The offset in bytes of the C number in a float, and of the two C numbers in a complex.
    pub number: u64,
}

/// Objects with the same value.
/// - `hash`: the hash of the value.
/// - `kind`: its kind, from STR to SINGLE.
/// - `count`: the number of objects.
/// - `bytes`: the total size of their blocks.
/// - `largest`: the size of the largest block.
/// - `address`: the lowest address of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EqualGroup {
    pub hash: u128,
    pub kind: u8,
    pub count: u64,
    pub bytes: u64,
    pub largest: u64,
    pub address: u64,
}

impl EqualGroup {
    pub fn saved(&self) -> u64 {
        self.bytes - self.largest
    }

    fn of((hash, found): (Key, ValueCounts)) -> EqualGroup {
        let ValueCounts { kind, count, bytes, largest, address } = found;
        EqualGroup { hash: u128::from(hash[0]) << 64 | u128::from(hash[1]), kind, count, bytes, largest, address }
    }
}

/// The two halves of a hash of 128 bits. A single 128-bit number would leave alignment gaps next to it.
type Key = [u64; 2];

/// The data that is kept for each distinct value, besides its hash, while values are counted.
#[derive(Clone, Copy)]
struct ValueCounts {
    kind: u8,
    count: u64,
    bytes: u64,
    largest: u64,
    address: u64,
}

impl ValueCounts {
    fn with(self, other: ValueCounts) -> ValueCounts {
        ValueCounts {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            largest: self.largest.max(other.largest),
            address: self.address.min(other.address),
            ..self
        }
    }
}

/// The sums over all values of one kind.
/// - `objects`: the number of objects.
/// - `bytes`: the size of their blocks in bytes.
/// - `values`: how many values several objects have.
/// - `copies`: how many objects have one of these repeated values.
/// - `saved`: how many bytes one copy of each repeated value would save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSum {
    pub kind: u8,
    pub objects: u64,
    pub bytes: u64,
    pub values: u64,
    pub copies: u64,
    pub saved: u64,
}

/// One of several equal objects: the hash of its value, its address, and the size of its block in bytes.
pub type EqualObject = (u128, u64, u64);

/// Two hashes that are computed at the same time, with keys that are new in each run. Therefore nobody can build a
/// target that contains collisions. Among a hundred million values, two collide by chance with a probability of one in
/// 10^22.
struct DoubleHasher(DefaultHasher, DefaultHasher);

impl DoubleHasher {
    fn new() -> DoubleHasher {
        static KEYS: OnceLock<[RandomState; 2]> = OnceLock::new();
        let [one, other] = KEYS.get_or_init(Default::default);
        DoubleHasher(one.build_hasher(), other.build_hasher())
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

/// The object in a block: its kind, its first bytes, and the end of its block if that is known.
struct FoundObject<'h> {
    address: u64,
    kind: u8,
    head: &'h [u8],
    end: Option<u64>,
}

/// A value: its hash, and the depth of nested tuples in it.
#[derive(Clone, Copy)]
struct HashedValue {
    hash: u128,
    height: u32,
}

/// The reason why the value of an object cannot be hashed.
#[derive(Clone, Copy)]
enum HashError {
    /// Tuples are nested in the value more deeply than this number.
    Deeper(u32),
    /// The object cannot be read, its kind has no value, or the work was cancelled.
    Never,
}

type Answer = std::result::Result<HashedValue, HashError>;

/// Return a remembered result if it is also right for at most `depth` levels of nested tuples; else None.
fn known(answer: Answer, depth: u32) -> Option<Answer> {
    match answer {
        Ok(HashedValue { height, .. }) if height > depth => Some(Err(HashError::Deeper(depth))),
        Err(HashError::Deeper(tried)) if tried < depth => None,
        _ => Some(answer),
    }
}

/// A reader that hashes values, and remembers the hashes of tuples' items by address. Its work is proportional to the
/// bytes of the heaps, for three reasons. An object is read only inside its own block. An item that is expensive to
/// hash is hashed once. The number of bytes that are read outside blocks is limited.
struct ValueReader<'a> {
    heaps: Heaps<'a>,
    layout: &'a TypeLayout,
    values: &'a Values,
    kinds: HashMap<u64, u8>,
    remembered: Vec<(u64, Answer)>,
    /// The results for items that took many bytes to hash, by address.
    costly: ByAddress<Answer>,
    /// The number of bytes that were hashed so far.
    spent: u64,
    /// The value of `spent` at the next check for cancellation.
    next_look: u64,
    /// The number of bytes that may still be read outside objects' blocks.
    elsewhere: u64,
    ended: bool,
    /// A reader that keeps the memory near its last read, because items mostly lie near each other.
    near: reader::Reader<'a>,
    buffer: Vec<u8>,
}

impl<'a> ValueReader<'a> {
    fn new(heaps: Heaps<'a>, layout: &'a TypeLayout, values: &'a Values, total: u64) -> ValueReader<'a> {
        ValueReader {
            heaps,
            layout,
            values,
            kinds: values.kinds.iter().copied().collect(),
            remembered: vec![(0, Err(HashError::Never)); REMEMBERED],
            costly: ByAddress::default(),
            spent: 0,
            next_look: BYTES_UNHEARD,
            elsewhere: total.saturating_add(MAX_ELSEWHERE),
            ended: false,
            near: reader::Reader::new(heaps.space),
            buffer: Vec::new(),
        }
    }

    /// Add `bytes` to the number of hashed bytes. Fails if the work was cancelled.
    fn spend(&mut self, bytes: u64, control: &Control<'_>) -> std::result::Result<(), HashError> {
        self.spent += bytes;
        if self.spent >= self.next_look {
            self.next_look = self.spent + BYTES_UNHEARD;
            self.ended |= control.advance(0).is_err();
        }
        if self.ended {
            Err(HashError::Never)
        } else {
            Ok(())
        }
    }

    /// Subtract `bytes` from the number of bytes that may be read outside objects' blocks. Fails if too few are left.
    fn spend_elsewhere(&mut self, bytes: u64) -> std::result::Result<(), HashError> {
        self.elsewhere = self.elsewhere.checked_sub(bytes).ok_or(HashError::Never)?;
        Ok(())
    }

    /// Return the end of the block in which an object begins at `address`; None if there is no such block.
    fn end_of_block(&self, address: u64) -> Option<u64> {
        let block = self.heaps.block_at(address).filter(|block| address - block.address <= MAX_BEFORE)?;
        Some(block.end)
    }

    /// Check whether the bytes from offset `start` to `start + size` of an object may be read: they lie inside the
    /// object's block, or are within the limit for reading outside blocks.
    fn admit(&mut self, found: &FoundObject<'_>, start: u64, size: u64) -> std::result::Result<(), HashError> {
        if found.end.is_none() && size <= CHEAP {
            return Ok(());
        }
        let from = found.address.wrapping_add(start);
        let to = from.checked_add(size).ok_or(HashError::Never)?;
        match found.end.or_else(|| self.end_of_block(found.address)) {
            Some(end) if from >= found.address && from < end => (to <= end).then_some(()).ok_or(HashError::Never),
            _ => self.spend_elsewhere(size),
        }
    }

    /// Hash the value of an object in which tuples are nested at most `depth` deep.
    fn hash(&mut self, found: &FoundObject<'_>, depth: u32, control: &Control<'_>) -> Answer {
        let mut hasher = DoubleHasher::new();
        hasher.write_u8(found.kind);
        let height = match found.kind {
            TUPLE => self.items(&mut hasher, found, depth, control)?,
            _ => self.plain(&mut hasher, found, control).map(|()| 0).ok_or(HashError::Never)?,
        };
        Ok(HashedValue { hash: hasher.whole(), height })
    }

    fn plain(&mut self, hasher: &mut DoubleHasher, found: &FoundObject<'_>, control: &Control<'_>) -> Option<()> {
        let word = |at: u64| word_at(found.head, at as usize);
        let values = self.values;
        match found.kind {
            STR => {
                let (start, size, width) = self.characters(found)?;
                hasher.write_u8(width);
                self.contents(hasher, found, start, size, control)?;
            }
            BYTES => self.contents(hasher, found, values.bytes_data, word(values.sizing.ob_size)?, control)?,
            INT => {
                let tag = word(values.sizing.ob_size)?;
                let digits = if values.sizing.tagged { tag >> 3 } else { (tag as i64).unsigned_abs() };
                hasher.write_u64(if values.sizing.tagged { tag & !4 } else { tag });
                self.contents(hasher, found, values.ob_digit, digits.checked_mul(4)?, control)?;
            }
            FLOAT => hasher.write_u64(word(values.number)?),
            COMPLEX => {
                hasher.write_u64(word(values.number)?);
                hasher.write_u64(word(values.number + 8)?);
            }
            _ => hasher.write_u64(found.address),
        }
        Some(())
    }

    /// Return the offset of the characters of a str from the object, the size of all characters in bytes, and the size
    /// of one character; None if the fields of the str are impossible. The offset may point outside the object, because
    /// up to 3.11 the characters may lie elsewhere.
    fn characters(&self, found: &FoundObject<'_>) -> Option<(u64, u64, u8)> {
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

    fn contents(
        &mut self,
        hasher: &mut DoubleHasher,
        found: &FoundObject<'_>,
        start: u64,
        size: u64,
        control: &Control<'_>,
    ) -> Option<()> {
        hasher.write_u64(size);
        let end = start.wrapping_add(size);
        if let (true, Some(bytes)) = (end >= start, found.head.get(start as usize..end as usize)) {
            hasher.write(bytes);
            return Some(());
        }
        self.admit(found, start, size).ok()?;
        let (mut at, mut left) = (found.address.wrapping_add(start), size);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(PIECE, 0);
        while left > 0 {
            let part = &mut buffer[..left.min(PIECE as u64) as usize];
            let got = if size < SMALL { self.near.fill(at, part) } else { self.heaps.space.fill(at, part) };
            if got < part.len() || self.spend(got as u64, control).is_err() {
                break;
            }
            hasher.write(part);
            (at, left) = (at.wrapping_add(got as u64), left - got as u64);
        }
        self.buffer = buffer;
        (left == 0).then_some(())
    }

    /// Hash the items of a tuple. Return the depth of nested tuples in it.
    fn items(
        &mut self,
        hasher: &mut DoubleHasher,
        found: &FoundObject<'_>,
        depth: u32,
        control: &Control<'_>,
    ) -> std::result::Result<u32, HashError> {
        let (sizing, first) = (&self.values.sizing, self.values.tuple_items);
        let count = word_at(found.head, sizing.ob_size as usize).ok_or(HashError::Never)?;
        if count > MAX_ITEMS {
            return Err(HashError::Never);
        }
        let below = depth.checked_sub(1).ok_or(HashError::Deeper(depth))?;
        self.admit(found, first, 8 * count)?;
        hasher.write_u64(count);
        let mut height = 0;
        for index in 0..count {
            let place = first + 8 * index;
            let word = word_at(found.head, place as usize);
            let item = word.or_else(|| self.near.any_word(found.address.wrapping_add(place)));
            self.spend(8, control)?;
            let item = self.item(item.ok_or(HashError::Never)?, below, control).map_err(|why| match why {
                HashError::Deeper(_) => HashError::Deeper(depth),
                HashError::Never => HashError::Never,
            })?;
            hasher.write_hash(item.hash);
            height = height.max(item.height);
        }
        Ok(height + 1)
    }

    fn item(&mut self, address: u64, depth: u32, control: &Control<'_>) -> Answer {
        let slot = (address >> 4) as usize % REMEMBERED;
        let remembered = Some(self.remembered[slot]).filter(|(known, _)| address != 0 && *known == address);
        let answer = remembered.map(|(_, answer)| answer).or_else(|| self.costly.get(&address).copied());
        if let Some(answer) = answer.and_then(|answer| known(answer, depth)) {
            return answer;
        }
        let before = self.spent;
        let answer = self.read_item(address, depth, control);
        self.remembered[slot] = (address, answer);
        match self.spent - before {
            spent if spent > CHEAP => self.keep(address, answer, spent).and(answer),
            _ => answer,
        }
    }

    fn read_item(&mut self, address: u64, depth: u32, control: &Control<'_>) -> Answer {
        let mut head = [0; ITEM_HEAD];
        self.spend(head.len() as u64, control)?;
        let got = self.near.fill(address, &mut head);
        let head = &head[..got];
        let kind = word_at(head, self.layout.ob_type as usize).and_then(|kind| self.kinds.get(&kind).copied());
        self.hash(&FoundObject { address, kind: kind.ok_or(HashError::Never)?, head, end: None }, depth, control)
    }

    /// Remember the result for an item that took many bytes to hash. A result cannot be remembered if no block begins
    /// at the item, or if too many items are remembered already. Then subtract its bytes from the number of bytes that
    /// may be read outside objects' blocks.
    fn keep(&mut self, address: u64, answer: Answer, spent: u64) -> std::result::Result<HashedValue, HashError> {
        let has_room = self.costly.len() < MAX_COSTLY || self.costly.contains_key(&address);
        match has_room && self.end_of_block(address).is_some() {
            true => drop(self.costly.insert(address, answer)),
            false => self.spend_elsewhere(spent)?,
        }
        answer
    }
}

/// A visitor of blocks. It hashes the value of each wanted object, and passes the hash to `sink`.
struct Finder<'a, S> {
    types: Types<'a>,
    reader: ValueReader<'a>,
    wanted: &'a WantedValues,
    sink: S,
}

trait Sink {
    fn take(&mut self, found: &FoundObject<'_>, hash: u128, size: u64);
}

/// A finder with a `Control`, so that it can be cancelled while it hashes a large value.
struct CancellableFinder<'f, 'a, S> {
    finder: &'f mut Finder<'a, S>,
    control: &'f Control<'f>,
}

impl<S: Sink> Visitor for CancellableFinder<'_, '_, S> {
    fn block(&mut self, block: Block, head: &[u8]) -> bool {
        self.finder.block(block, head, self.control)
    }
}

impl<S: Sink> Finder<'_, S> {
    fn block(&mut self, block: Block, head: &[u8], control: &Control<'_>) -> bool {
        let Block { address, size, end, .. } = block;
        let Some((number, true)) = self.types.object_in(head, size) else { return false };
        let kind = &self.types.kinds[number as usize];
        let value = self.reader.kinds.get(&kind.address).filter(|_| self.wanted.types.contains(&kind.address));
        let Some(value) = value.copied().filter(|value| *value != SINGLE) else { return true };
        if self.wanted.without.contains(&address) {
            return true;
        }
        let pre = self.types.layout.outer_hook(head) as u64 + kind.pre;
        let head = head.get(pre as usize..).unwrap_or_default();
        let found = FoundObject { address: address + pre, kind: value, head, end: Some(end) };
        if let Ok(HashedValue { hash, .. }) = self.reader.hash(&found, MAX_DEPTH, control) {
            self.sink.take(&found, hash ^ u128::from(self.wanted.number(address)), size);
        }
        true
    }
}

/// A counter of equal values, for one of several passes. It counts only values whose hash modulo `slices` is `part`, to
/// save memory.
struct Counter {
    part: u64,
    slices: u64,
    rows: HashMap<Key, ValueCounts>,
}

impl Sink for Counter {
    fn take(&mut self, found: &FoundObject<'_>, hash: u128, size: u64) {
        if hash as u64 % self.slices != self.part {
            return;
        }
        let one = ValueCounts { kind: found.kind, count: 1, bytes: size, largest: size, address: found.address };
        self.rows.entry([(hash >> 64) as u64, hash as u64]).and_modify(|row| *row = row.with(one)).or_insert(one);
    }
}

/// A collector of the objects whose values have given hashes.
struct Collector<'a> {
    hashes: &'a HashSet<u128>,
    rows: Vec<EqualObject>,
    most: usize,
}

impl Sink for Collector<'_> {
    fn take(&mut self, found: &FoundObject<'_>, hash: u128, size: u64) {
        if self.rows.len() < self.most && self.hashes.contains(&hash) {
            self.rows.push((hash, found.address, size));
        }
    }
}

/// The objects to examine.
/// - `types`: the types of the objects.
/// - `without`: the user addresses of blocks that only look like objects.
/// - `apart`: ranges of memory (start, end, number), ascending. Objects in two ranges can be equal only if the ranges
///   have the same number. All other memory has the number 0.
pub struct WantedValues {
    pub types: HashSet<u64>,
    pub without: HashSet<u64>,
    pub apart: Vec<(u64, u64, u64)>,
}

impl WantedValues {
    fn number(&self, address: u64) -> u64 {
        let after = self.apart.partition_point(|(start, ..)| *start <= address);
        let found = after.checked_sub(1).map(|place| self.apart[place]).filter(|(_, end, _)| address < *end);
        found.map_or(0, |(.., number)| number)
    }
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
        let (types, reader) = (Types::new(heaps, layout), ValueReader::new(heaps, layout, values, total));
        let finder = Finder { types, reader, wanted, sink: sink() };
        (Walk::new(heaps), finder)
    };
    let work = |(walk, finder): &mut (Walk<'_>, Finder<'_, S>), job: &Job, control: &Control| {
        walk.run(job, control, &mut CancellableFinder { finder, control })
    };
    let workers = heaps.space.task(watcher, Some(total)).run(&jobs, init, work)?;
    Ok(workers.into_iter().map(|(_, finder)| finder.sink).collect())
}

/// Return three results: the values that several objects have (at least `least`), the sums by kind, and the number of
/// all such values. Of the values, only the first `top` are returned.
/// - `by_bytes`: whether the values with the most bytes come first. If not, those come first of which one copy would
///   save the most.
/// - `slices`: the number of passes. Each pass keeps one part of the distinct values in memory.
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
) -> Result<(Vec<EqualGroup>, Vec<KindSum>, u64)> {
    let slices = slices.max(1);
    let (mut rows, mut sums, mut count): (_, BTreeMap<u8, KindSum>, u64) = (TopRows::new(top), BTreeMap::new(), 0);
    let order = |row: &EqualGroup| (!if by_bytes { row.bytes } else { row.saved() }, row.address);
    for part in 0..slices {
        let counters = walk(watcher, heaps, layout, values, wanted, || Counter { part, slices, rows: HashMap::new() })?;
        let mut counters = counters.into_iter();
        let mut all = counters.next().map(|counter| counter.rows).unwrap_or_default();
        for (hash, row) in counters.flat_map(|counter| counter.rows) {
            all.entry(hash).and_modify(|old| *old = old.with(row)).or_insert(row);
        }
        for row in all.into_iter().map(EqualGroup::of) {
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

/// Return the objects whose values have these hashes, by ascending address; at most `most` objects.
pub fn equal_objects(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    values: &Values,
    wanted: &WantedValues,
    hashes: &HashSet<u128>,
    most: usize,
) -> Result<Vec<EqualObject>> {
    let sink = || Collector { hashes, rows: Vec::new(), most };
    let found = walk(watcher, heaps, layout, values, wanted, sink)?;
    let mut rows: Vec<EqualObject> = found.into_iter().flat_map(|collector| collector.rows).collect();
    rows.sort_unstable_by_key(|(_, address, _)| *address);
    rows.truncate(most);
    Ok(rows)
}

/// Return the hash of the value of each object at these addresses, wherever the object lies; None for an object that
/// cannot be read or whose kind has no value. The function is fast if consecutive addresses are near each other.
pub fn value_hashes(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    values: &Values,
    addresses: &[u64],
) -> Result<Vec<Option<u128>>> {
    heaps.space.task(watcher, None).alone(|control| {
        let mut reader = ValueReader::new(heaps, layout, values, heaps.jobs().total);
        let mut found = Vec::with_capacity(addresses.len());
        for address in addresses {
            found.push(reader.item(*address, MAX_DEPTH, control).ok().map(|hashed| hashed.hash));
            if reader.ended {
                return Err(Cancellation);
            }
        }
        control.advance(0)?;
        Ok(found)
    })
}

/// A counter of objects by the size of their block (for types with a negative offset), or by the number at the offset
/// that is given for their type.
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

/// Return `(key, number of objects, bytes of their blocks)` of the live objects of the types in `kinds`, by key.
/// `kinds` maps the address of each type to an offset. If the offset is negative, the key is the size of the object's
/// block. Otherwise the key is the absolute value of the number at this offset in the object.
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

#[cfg(test)]
mod tests {
    use super::{ValueReader, Values, BYTES, CHEAP, ITEM_HEAD, MAX_DEPTH, REMEMBERED, TUPLE};
    use crate::allocators::claimed_blocks::ClaimedBlocks;
    use crate::allocators::heaps::Heaps;
    use crate::allocators::store::Store;
    use crate::python::layout::TypeLayout;
    use crate::python::sizing::SizeFields;
    use gdbheap_access::error::Error;
    use gdbheap_access::machine::{Machine, EM_X86_64};
    use gdbheap_access::memory::space::{Source, Space};
    use gdbheap_access::testing::{CheckLimit, NoWatcher};
    use gdbheap_access::work::{Control, Task, Watcher};
    use std::sync::Arc;

    const START: u64 = 0x10000;
    const MIB: u64 = 1 << 20;
    const LARGE: u64 = START + MIB;
    /// An address that falls on the same slot of the remembered items as LARGE does.
    const OTHER: u64 = LARGE + ((REMEMBERED as u64) << 4);
    const END: u64 = START + 16 * MIB;
    const OF_BYTES: u64 = 1;
    const OF_TUPLE: u64 = 2;
    const OB_SIZE: u64 = 16;
    const ITEMS: u64 = 24;

    /// A fake memory of zeros, except for the given words.
    struct WordMemory(Vec<(u64, u64)>);

    impl Source for WordMemory {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            buffer.fill(0);
            for (at, byte) in self.0.iter().flat_map(|(at, word)| (*at..).zip(word.to_le_bytes())) {
                let place = at.checked_sub(address).and_then(|place| buffer.get_mut(place as usize));
                place.into_iter().for_each(|place| *place = byte);
            }
            buffer.len()
        }
    }

    /// Return the words of an object that has `size` bytes or items.
    fn object(address: u64, kind: u64, size: u64) -> [(u64, u64); 2] {
        [(address + 8, kind), (address + OB_SIZE, size)]
    }

    /// Call `act` with a reader. The memory has blocks of 4 KiB at START, of 1 MiB at LARGE, and of 8 MiB at OTHER.
    fn reading<T: Send>(
        watcher: &dyn Watcher,
        words: Vec<(u64, u64)>,
        act: impl Fn(&mut ValueReader<'_>, &Control<'_>) -> T + Sync,
    ) -> Result<T, Error> {
        let machine = Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).expect("a machine");
        let space = Space::for_remote(machine, &[(START, END)], Box::new(WordMemory(words))).expect("one range");
        let places = vec![(START, START + 4096), (LARGE, LARGE + MIB), (OTHER, OTHER + 8 * MIB)];
        let stores = [Store::Claimed(Arc::new(ClaimedBlocks { places, closed: false }))];
        let heaps = Heaps { space: &space, stores: &stores };
        let layout = TypeLayout { ob_type: 8, ..TypeLayout::default() };
        let values = Values {
            kinds: vec![(OF_BYTES, BYTES), (OF_TUPLE, TUPLE)],
            sizing: SizeFields { ob_size: OB_SIZE, ..SizeFields::default() },
            str_data: 0,
            bytes_data: 32,
            tuple_items: ITEMS,
            ob_digit: 24,
            number: 16,
        };
        let task = Task { watcher, total: None, inline: true };
        task.alone(|control| {
            let found = act(&mut ValueReader::new(heaps, &layout, &values, 0), control);
            control.advance(0)?;
            Ok(found)
        })
    }

    #[test]
    fn a_large_value_listens() {
        let words = object(OTHER, OF_BYTES, 4 * MIB).to_vec();
        let hash = |reader: &mut ValueReader<'_>, control: &Control<'_>| reader.item(OTHER, MAX_DEPTH, control).is_ok();
        assert!(reading(&NoWatcher, words.clone(), hash).expect("not cancelled"));
        let ended = |reader: &mut ValueReader<'_>, control: &Control<'_>| {
            assert!(reader.item(OTHER, MAX_DEPTH, control).is_err() && reader.ended && reader.spent < 2 * MIB);
        };
        assert!(matches!(reading(&CheckLimit::after(0), words, ended), Err(Error::Cancelled)));
    }

    #[test]
    fn a_large_item_is_hashed_once() {
        let items = (0..400).map(|place| (START + ITEMS + 8 * place, if place % 2 == 0 { LARGE } else { OTHER }));
        let mut words: Vec<_> = object(START, OF_TUPLE, 400).into_iter().chain(items).collect();
        words.extend(object(LARGE, OF_BYTES, MIB / 2).into_iter().chain(object(OTHER, OF_BYTES, MIB / 2)));
        let spent = reading(&NoWatcher, words, |reader, control| {
            assert!(reader.item(START, MAX_DEPTH, control).is_ok());
            reader.spent
        });
        assert!(spent.expect("not cancelled") < 2 * MIB);
    }

    #[test]
    fn values_elsewhere_have_a_budget() {
        let (first, second) = (END - 4 * MIB, END - 2 * MIB);
        let words = [object(first, OF_BYTES, 16 * CHEAP), object(second, OF_BYTES, 16 * CHEAP)].concat();
        let found = reading(&NoWatcher, words, |reader, control| {
            // This suffices for reading the value itself, and for the cost of not remembering it.
            reader.elsewhere = 2 * 16 * CHEAP + 2 * ITEM_HEAD as u64;
            [first, second].map(|address| reader.item(address, MAX_DEPTH, control).is_ok())
        });
        assert_eq!(found.expect("not cancelled"), [true, false]);
    }

    #[test]
    fn a_size_ends_with_its_block() {
        let words = object(START, OF_BYTES, MIB).to_vec();
        let hash = |reader: &mut ValueReader<'_>, control: &Control<'_>| reader.item(START, MAX_DEPTH, control).is_ok();
        assert!(!reading(&NoWatcher, words, hash).expect("not cancelled"));
    }
}
