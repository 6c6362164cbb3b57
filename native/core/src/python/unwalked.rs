//! Find Python's blocks in memory that is not walked because malloc belongs to an unknown allocator. They are found by
//! the fields of objects.
//!
//! Words in the walked blocks, in static data and on stacks point to objects. The type of an object and its own fields
//! give its size, its buffers and their sizes. The words of objects and buffers point to other objects, and so on. Each
//! range that is found lies in memory where blocks may be, is disjoint from all other ranges, and belongs to the first
//! object that claims it. A size that does not fit into its mapping is rejected, because the target may contain
//! anything.

use crate::allocators::block::Block;
use crate::allocators::claimed_blocks::ClaimedBlocks;
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::{Jobs, Visitor, Walk};
use crate::by_address::Addresses;
use crate::python::claims::{array_kind, claimed_pointer, PlacedClaim, STRIDES};
use crate::python::dict_keys::TableHead;
use crate::python::layout::{Extent, TypeLayout};
use crate::python::sizing::{asked_bytes, Measure, SizeFields};
use crate::python::types::{Kind, Types};
use gdbheap_access::bytes::{range_at, u64_at};
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};
use std::collections::{BTreeMap, HashMap};

/// Rule for the size of a buffer: `unit` times the word at `at` of the owner, plus `more`. The owner is the object that
/// points to the buffer.
const COUNT: u8 = 1;
/// A rule for the size of a buffer: the buffer contains the keys of a dict, whose head gives the size.
const KEYS: u8 = 2;
/// A rule for the size of a buffer: the buffer is a string, and the size includes the 0 byte at its end.
const TEXT: u8 = 3;
/// A rule for the size of a buffer: the word at `at` of the owner is the number of items. The word at `unit` of the
/// owner points to the description of an item (array.array). The description has the item's size at `more`.
const ITEMS: u8 = 4;
/// A rule for the size of a buffer: the buffer is an object of variable size. It has `more` bytes, and one byte more
/// for each item that its `ob_size`, at `unit`, counts.
const VARIABLE: u8 = 6;
/// A rule for the size of a buffer: the buffer contains the values of a split dict. The word at `at` of the owner
/// points to the dict's keys.
const SPLIT: u8 = 7;
/// A rule for the size of a buffer: the buffer consists of a header with the number of values, the values, and a byte
/// for each value.
const HEADED: u8 = 8;
/// A rule for the size of a buffer: the buffer is the state of a module.
const STATE: u8 = 9;
/// Rule for the size of a string's buffer. The word at `at` of the owner is the number of characters; one more ends the
/// string. The width of a character is in the owner's bits at `unit`, from bit `more` on.
const CHARACTERS: u8 = 10;
/// Rule for the size of a buffer with the attribute values of an object. A prefix precedes them, and its last byte is
/// its size. The word at `unit` of the type points to the type's keys. The number of values is the sum of two words
/// there: the number of entries (at `more`), and before it that of free entries.
const PREFIXED: u8 = 11;

/// The number of bytes of an object that are read to find its size.
const HEAD: usize = 4 << 10;
/// The largest number of attribute values, because their sizes are stored in single bytes. In dictobject.c,
/// SHARED_KEYS_MAX_SIZE is 30.
const MAX_VALUES: u64 = 254;
const MAX_DIMENSIONS: u32 = 64;
const LONGEST_TEXT: usize = 1 << 20;
const WINDOW: usize = 64 << 10;
const TAGS: u64 = 7;

/// The layouts from which the sizes of objects and tables are computed. `plain`: flags of types whose objects contain
/// no references, such as str.
pub struct Measures {
    pub sizing: SizeFields,
    pub keys: Option<TableHead>,
    pub plain: u64,
    pub flag_heap_type: u64,
}

/// A possible buffer, before it is checked for overlaps with others. `follow`: whether its words may point to objects.
/// `chain`: its position in a chain of blocks, such as a deque's; None if it belongs to no chain.
#[derive(Clone, Copy)]
struct Buffer {
    start: u64,
    end: u64,
    follow: bool,
    chain: Option<Chain>,
}

/// A chain of blocks, and a position in it: the block at `at`. All blocks of the chain have `size` bytes and a link to
/// the next block at the offset `link`. The last block is at `last`.
#[derive(Clone, Copy)]
struct Chain {
    at: u64,
    size: u64,
    link: u64,
    last: u64,
}

/// The constant data that all workers need: the memory, the layouts, and the ranges that no walk covers.
struct WalkInput<'a> {
    space: &'a Space,
    layout: &'a TypeLayout,
    measures: &'a Measures,
    ranges: &'a [(u64, u64)],
}

impl WalkInput<'_> {
    #[inline(always)]
    fn holds(&self, address: u64) -> Option<(u64, u64)> {
        range_at(self.ranges, address).map(|index| self.ranges[index])
    }

    fn word(&self, object: u64, at: i64) -> Option<u64> {
        self.space.word(object.wrapping_add_signed(at)).ok()
    }

    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.space.exact(address, &mut bytes).ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    fn is_plain(&self, kind: &Kind) -> bool {
        kind.flags & self.measures.plain != 0 && kind.flags & self.measures.flag_heap_type == 0
    }

    /// Append the buffers in unwalked memory that belong to the object in a block. `head` has the first bytes of the
    /// block. If the buffers form a chain, only the first block of the chain is appended.
    fn buffers(&self, kind: &Kind, address: u64, size: u64, head: &[u8], found: &mut Vec<Buffer>) {
        for claim in &kind.claims {
            let Some(at) = claimed_pointer(self.space, claim, address, size, head) else { continue };
            let Some((low, high)) = self.holds(at) else { continue };
            let Some(length) = self.length((kind, address + kind.pre), claim, at, high) else { continue };
            let before = if claim.extent.rule == PREFIXED { self.prefix(at) } else { 0 };
            let start = at.saturating_sub(before).saturating_sub(self.layout.hook).max(low);
            let Some(end) = at.checked_add(length).filter(|end| length > 0 && *end <= high) else { continue };
            let holds_objects = || array_kind(self.space, self.layout, address + kind.pre) == Some(b'O');
            let follow = claim.contents > LEAF && (claim.extent.rule != STRIDES || holds_objects());
            let last = if claim.last_at == usize::MAX { 0 } else { u64_at(head, claim.last_at) };
            let chain = u64::try_from(claim.follow).ok().map(|link| Chain { at, size: length, link, last });
            found.push(Buffer { start, end, follow, chain });
        }
    }

    /// Return the block that follows this buffer in its chain; None if there is none.
    fn after(&self, buffer: &Buffer) -> Option<Buffer> {
        let chain = buffer.chain.filter(|chain| chain.at != chain.last)?;
        let at = self.space.word(chain.at.wrapping_add(chain.link)).ok()?;
        let (low, high) = self.holds(at)?;
        let end = at.checked_add(chain.size).filter(|end| *end <= high)?;
        let start = at.saturating_sub(self.layout.hook).max(low);
        Some(Buffer { start, end, chain: Some(Chain { at, ..chain }), ..*buffer })
    }

    /// Return the size in bytes of the buffer at `pointer`, computed from fields of its owner `object`; None if they
    /// give no possible size. `high` is the end of the mapping that contains the buffer.
    fn length(&self, (kind, object): (&Kind, u64), claim: &PlacedClaim, pointer: u64, high: u64) -> Option<u64> {
        let Extent { rule, at, unit, more } = claim.extent;
        let own = |size: usize| {
            let mut bytes = vec![0; size.min(high.saturating_sub(pointer) as usize)];
            let got = self.space.fill(pointer, &mut bytes);
            bytes.truncate(got);
            bytes
        };
        match rule {
            COUNT => (if at < 0 { 0 } else { self.word(object, at)? }).checked_mul(unit)?.checked_add(more),
            KEYS => self.measures.keys.as_ref()?.size(&own(64)),
            TEXT => Some(self.space.string(pointer, LONGEST_TEXT).ok()?.len() as u64 + 1),
            ITEMS => {
                let size = self.half(self.word(object, unit as i64)?.wrapping_add(more))?;
                self.word(object, at)?.checked_mul(size.into())
            }
            STRIDES => {
                let count = self.half(object.wrapping_add_signed(at)).filter(|count| *count <= MAX_DIMENSIONS)?;
                let (sizes, strides) = (self.word(object, unit as i64)?, self.word(object, more as i64)?);
                let span = |place: u32| {
                    let of = |base: u64| self.space.word(base.wrapping_add(8 * u64::from(place))).ok();
                    (of(strides)? as i64).unsigned_abs().checked_mul(of(sizes)?)
                };
                (0..count).map(span).collect::<Option<Vec<u64>>>()?.into_iter().max()
            }
            VARIABLE => self.space.word(pointer.wrapping_add(unit)).ok()?.checked_add(more),
            SPLIT => {
                let keys = self.word(object, at)?;
                let mut bytes = [0; 64];
                let got = self.space.fill(keys, &mut bytes);
                self.measures.keys.as_ref()?.room(&bytes[..got])?.checked_mul(8)
            }
            HEADED => {
                let (capacity, embedded) = own(8).first_chunk::<4>().map(|head| (u64::from(head[0]), head[2]))?;
                (embedded == 0).then(|| 8 + capacity * 8 + capacity.next_multiple_of(8))
            }
            STATE => self.layout.state_bytes(self.space, object),
            CHARACTERS => {
                let state = self.half(object.wrapping_add(unit))? >> (more & 31);
                self.word(object, at)?.checked_add(1)?.checked_mul(u64::from(state & 7))
            }
            PREFIXED => {
                let keys = self.word(kind.address, unit as i64)?;
                let (entries, room) = (self.word(keys, more as i64)?, self.word(keys, more as i64 - 8)?);
                entries.checked_add(room).filter(|count| *count <= MAX_VALUES).map(|count| count * 8)
            }
            _ => None,
        }
    }

    fn prefix(&self, pointer: u64) -> u64 {
        let mut byte = [0];
        self.space.fill(pointer.wrapping_sub(1), &mut byte);
        byte[0].into()
    }
}

const LEAF: u32 = 1;

/// A visitor that collects words and buffers from the walked blocks. Each worker has one.
struct Gatherer<'a> {
    look: &'a WalkInput<'a>,
    types: Types<'a>,
    bounds: (u64, u64),
    words: Addresses,
    buffers: Vec<Buffer>,
}

impl Visitor for Gatherer<'_> {
    const HEAD: usize = HEAD;

    fn block(&mut self, Block { address, size, .. }: Block, head: &[u8]) -> bool {
        let found = self.types.object_in(head, size);
        if let Some((number, alive)) = found {
            let kind = &self.types.kinds[number as usize];
            if !alive || kind.claims.is_empty() && self.look.is_plain(kind) {
                return true;
            }
            self.look.buffers(kind, address, size, head, &mut self.buffers);
        }
        let (low, high) = self.bounds;
        let words = head.chunks_exact(8).map(|word| u64_at(word, 0) & !TAGS);
        self.words.extend(words.filter(|word| (low..high).contains(word) && self.look.holds(*word).is_some()));
        found.is_some()
    }
}

/// An address range [start, end) that still has to be scanned. `object`: for the range of an object, the number of the
/// object's type.
struct PointerRange {
    start: u64,
    end: u64,
    object: Option<u32>,
}

struct Finder<'a> {
    look: &'a WalkInput<'a>,
    types: Types<'a>,
    measures: HashMap<u32, Option<Measure>>,
    seen: Addresses,
    places: BTreeMap<u64, u64>,
    next: Vec<PointerRange>,
    bytes: Vec<u8>,
}

impl Finder<'_> {
    /// Add the range [start, end) and return true, unless a part of it was added before.
    fn take(&mut self, start: u64, end: u64) -> bool {
        let last = self.places.range(..end).next_back();
        if start >= end || last.is_some_and(|(_, before)| *before > start) {
            return false;
        }
        self.places.insert(start, end);
        true
    }

    /// Add buffers. Add all blocks of a chain up to the first block that overlaps an earlier range. So a chain ends if
    /// it runs into itself or into another chain, and all chains together cannot have more blocks than fit into memory.
    fn take_buffers(&mut self, buffers: &[Buffer], control: &Control) -> Result<(), Cancellation> {
        for buffer in buffers {
            let mut next = Some(*buffer);
            while let Some(buffer) = next.filter(|buffer| self.take(buffer.start, buffer.end)) {
                if buffer.follow {
                    self.next.push(PointerRange { start: buffer.start, end: buffer.end, object: None });
                }
                control.advance(0)?;
                next = self.look.after(&buffer);
            }
        }
        Ok(())
    }

    /// Follow a word that may point to an object, or to the links that the collector puts before an object.
    fn point(&mut self, word: u64) {
        let word = word & !TAGS;
        if self.look.holds(word).is_some() && self.seen.insert(word) {
            self.try_object(word);
            if self.look.layout.gc_head > 0 {
                self.try_object(word.wrapping_add(self.look.layout.gc_head));
            }
        }
    }

    fn try_object(&mut self, address: u64) -> Option<()> {
        let (low, high) = self.look.holds(address)?;
        let number = self.types.object_starting_at(address)?;
        let kind = &self.types.kinds[number as usize];
        let start = address.checked_sub(kind.pre).filter(|start| *start >= low && !kind.in_slabs)?;
        let measured = || Measure::of(self.look.space, self.look.layout, kind.address);
        let measure = *self.measures.entry(number).or_insert_with(measured);
        let mut head = [0; HEAD];
        let got = self.look.space.fill(start, &mut head[..HEAD.min((high - start) as usize)]);
        let asked = measure.and_then(|own| asked_bytes(kind, own, &self.look.measures.sizing, &head[..got]));
        // Some types have the number of items elsewhere. For objects of such types, only the least size is known.
        let fits = |size: &u64| start.checked_add(*size).is_some_and(|end| end <= high);
        let size = asked.filter(fits).unwrap_or(kind.least).max(kind.least);
        if fits(&size) && self.take(start, start + size) {
            self.next.push(PointerRange { start, end: start + size, object: Some(number) });
        }
        Some(())
    }

    fn follow(&mut self, lead: PointerRange, control: &Control) -> Result<(), Cancellation> {
        let PointerRange { start, end, object } = lead;
        if let Some(number) = object {
            let kind = self.types.kinds[number as usize].clone();
            let mut head = [0; HEAD];
            let wanted = HEAD.min((end - start) as usize);
            let got = self.look.space.fill(start, &mut head[..wanted]);
            let mut buffers = Vec::new();
            self.look.buffers(&kind, start, end - start, &head[..got], &mut buffers);
            self.take_buffers(&buffers, control)?;
            if self.look.is_plain(&kind) {
                return Ok(());
            }
        }
        self.scan(start, end);
        Ok(())
    }

    fn scan(&mut self, start: u64, end: u64) {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.look.space.show(start, end, &mut bytes, |_, piece| {
            piece.chunks_exact(8).for_each(|word| self.point(u64_at(word, 0)));
        });
        self.bytes = bytes;
    }

    fn run(&mut self, control: &Control) -> Result<(), Cancellation> {
        while let Some(lead) = self.next.pop() {
            self.follow(lead, control)?;
            control.advance(0)?;
        }
        Ok(())
    }
}

/// Find the ranges in `layout.unwalked` that belong to Python's objects. `roots`: memory ranges outside the heaps whose
/// words may point to such objects, in groups, the most reliable group first.
pub fn find_claimed(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    measures: &Measures,
    roots: &[Vec<(u64, u64)>],
) -> Result<ClaimedBlocks> {
    let Heaps { space, .. } = heaps;
    let look = WalkInput { space, layout, measures, ranges: &layout.unwalked };
    let bounds = look.ranges.first().zip(look.ranges.last()).map_or((0, 0), |(first, last)| (first.0, last.1));
    let Jobs { jobs, total } = heaps.jobs();
    let init = || {
        let types = Types::new(heaps, layout);
        (Walk::new(heaps), Gatherer { look: &look, types, bounds, words: Addresses::default(), buffers: Vec::new() })
    };
    let work =
        |(walk, gatherer): &mut (Walk<'_>, Gatherer<'_>), job: &_, control: &Control| walk.run(job, control, gatherer);
    let gathered = space.task(watcher, Some(total)).run(&jobs, init, work)?;
    let (mut words, mut buffers) = (Vec::new(), Vec::new());
    for (_, gatherer) in gathered {
        words.extend(gatherer.words);
        buffers.extend(gatherer.buffers);
    }
    // The words are sorted, so that their order does not depend on the workers.
    words.sort_unstable();
    words.dedup();
    buffers.sort_unstable_by_key(|buffer| (buffer.start, buffer.end));
    space.task(watcher, None).alone(|control| {
        let mut finder = Finder {
            look: &look,
            types: Types::new(heaps, layout),
            measures: HashMap::new(),
            seen: Addresses::default(),
            places: BTreeMap::new(),
            next: Vec::new(),
            bytes: vec![0; WINDOW],
        };
        finder.take_buffers(&buffers, control)?;
        words.iter().for_each(|word| finder.point(*word));
        finder.run(control)?;
        for group in roots {
            group.iter().for_each(|(start, end)| finder.scan(*start, *end));
            finder.run(control)?;
        }
        Ok(ClaimedBlocks { places: finder.places.into_iter().collect(), closed: false })
    })
}
