//! Which addresses are Python types, decided once for each and remembered.
//!
//! A type is found by its shape: its `ob_type` is a type whose `tp_flags` say that it subclasses `type`, and so on up
//! to the one that is its own type. Only addresses where a type can lie are read at all: the writable data of loaded
//! objects, and used chunks that are large enough for one.

use crate::chunks::Chunks;
use crate::claimed::{Claimed, Extent};
use crate::mimalloc::Mimalloc;
use crate::slabs::Slab;
use crate::space::Space;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Addresses spread well by one multiplication; the target cannot choose ours.
#[derive(Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (value ^ (value >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

pub type ByAddress<V> = HashMap<u64, V, BuildHasherDefault<AddressHasher>>;

/// A pointer field that owns a block, at `offset` from the object; only where the 32 bits at `test` from the object,
/// masked, are `value` or, if not `equal`, are anything else (a mask of zero: always).
#[derive(Clone, Copy, FromPyObject)]
pub struct Claim {
    pub offset: i64,
    pub test: i64,
    pub mask: u32,
    pub value: u32,
    pub equal: bool,
    /// What the block is to its owner, an index into the caller's names.
    pub role: u8,
    /// What in the block leads to further ones: NOTHING, ALL its words, or the word at this offset, a link to the next.
    pub follow: i32,
    /// Where the owner names the last block of such a chain, as an offset from the object; 0: a link is 0 there.
    pub last: i64,
    /// What references the block holds (graph/shapes.rs), and where the owner says how many, as an offset from the
    /// object; -1: nowhere.
    pub contents: u32,
    pub count_at: i64,
    /// What says how large the block is.
    pub extent: Extent,
}

pub const NOTHING: i32 = -1;
pub const ALL: i32 = -2;
/// Not the block but the claim itself: it holds only if the block begins there and does not look like an object.
pub const CLAIM: i32 = -3;

/// Types that own blocks by the same fields: by a bit of `tp_flags`, or by the name of a static base type.
#[derive(Clone, FromPyObject)]
pub struct Family {
    pub flags: u64,
    pub names: Vec<String>,
    pub claims: Vec<Claim>,
}

/// What the Python side knows of `PyTypeObject` and of what precedes an object in its block.
#[derive(FromPyObject)]
pub struct TypeLayout {
    /// 0; 16 where two links stand before it (Py_TRACE_REFS).
    pub ob_refcnt: u64,
    pub ob_type: u64,
    pub tp_name: u64,
    pub tp_basicsize: u64,
    pub tp_itemsize: u64,
    pub tp_flags: u64,
    pub tp_base: u64,
    /// The least size of a heap type's chunk.
    pub smallest_heap_type: u64,
    pub flag_gc: u64,
    pub flag_type_subclass: u64,
    /// Bytes that debug hooks put before whatever is allocated.
    pub hook: u64,
    /// Bytes of PyGC_Head.
    pub gc_head: u64,
    /// Flags of which any puts `pre_header` more bytes before the object.
    pub flags_pre_header: u64,
    pub pre_header: u64,
    /// A bit of flags whose types may be smaller than tp_basicsize (compact str).
    pub flag_no_minimum: u64,
    /// Flags of types whose objects begin with plain numbers: ints, strings, bytes.
    pub flags_plain: u64,
    /// Static types whose objects may lack their last fields: (tp_name, least bytes).
    pub shortened: Vec<(String, u64)>,
    /// Where a module says how large its state is: offsets to follow from the module, the last one that of the size.
    pub state_size: Vec<u64>,
    pub slab: Option<Slab>,
    pub families: Vec<Family>,
    pub tp_dealloc: u64,
    /// The deallocator of classes that a class statement made: such a class adds nothing that is written in C.
    pub class_dealloc: u64,
    /// Names of types whose fields hold nothing but objects, plain values and what `families` says.
    pub closed: Vec<String>,
    /// The role of a block that was reached by following pointers.
    pub reached_role: u8,
    /// Names of types whose own cannot be read.
    pub names: Vec<(u64, String)>,
    /// [start, end) of the writable data of loaded objects.
    pub data: Vec<(u64, u64)>,
    /// The interpreter's mimalloc, if it is in use: blocks and types lie in it.
    pub mimalloc: Option<Py<Mimalloc>>,
    /// Memory that nobody walks: blocks, types among them, of which objects' own fields say where they are and how large.
    pub claimed: Option<Py<Claimed>>,
    /// While those are looked for: where they may lie, ascending.
    pub unwalked: Vec<(u64, u64)>,
}

impl TypeLayout {
    pub fn mimalloc(&self) -> Option<&Mimalloc> {
        self.mimalloc.as_ref().map(|mimalloc| mimalloc.get())
    }

    pub fn claimed(&self) -> Option<&Claimed> {
        self.claimed.as_ref().map(|claimed| claimed.get())
    }

    /// Bytes of an object that hold its count and its type, and in some builds more.
    pub fn head(&self) -> u64 {
        self.ob_type + 8
    }

    /// Whether objects begin with their count and their type, and nothing else.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.ob_type == PLAIN_TYPE
    }

    /// Whether objects have the head of free-threaded builds: `ob_tid@0, ob_mutex@10, ob_ref_local@12, ob_ref_shared@16,
    /// ob_type@24`.
    #[inline(always)]
    pub fn is_free_threaded(&self) -> bool {
        self.ob_type != self.ob_refcnt + 8
    }

    /// Whether what was asked for when the block was handed out begins at `pointer`: behind its hook, or behind malloc's too.
    pub fn begins_at(&self, block: u64, pointer: u64) -> bool {
        let inside = pointer.wrapping_sub(block);
        inside == self.hook || inside == 2 * self.hook
    }

    /// Bytes before the debug hook of an object: a request beyond 512 bytes goes on to malloc, which has a hook too. A
    /// hook is the size, a letter for the domain (r is malloc's), and the same byte seven times.
    #[inline(always)]
    pub fn outer_hook(&self, head: &[u8]) -> usize {
        if self.hook == 0 || head.len() < 2 * self.hook as usize {
            return 0;
        }
        let (outer, inner) = (crate::u64_at(head, 8), crate::u64_at(head, self.hook as usize + 8));
        if outer as u8 == b'r' && outer >> 8 == inner >> 8 && outer >> 16 == (outer << 8) >> 16 {
            return self.hook as usize;
        }
        0
    }
}

#[derive(Clone)]
pub struct Kind {
    pub address: u64,
    /// Bytes between the start of the block and the object.
    pub pre: u64,
    pub flags: u64,
    /// The least size of a block that holds an object of it.
    pub least: u64,
    /// Whether its objects lie many to a block.
    pub in_slabs: bool,
    pub claims: Vec<PlacedClaim>,
    /// Bytes of the object that may hold pointers to structures of C; 0 if none.
    pub extent: u64,
}

/// A claim with its offsets counted from the start of the block.
#[derive(Clone, Copy)]
pub struct PlacedClaim {
    pub at: usize,
    pub test_at: usize,
    pub mask: u32,
    pub value: u32,
    pub equal: bool,
    pub role: u8,
    pub follow: i32,
    /// usize::MAX: nowhere.
    pub last_at: usize,
    pub contents: u32,
    pub count_at: i64,
    pub extent: Extent,
}

impl PlacedClaim {
    fn new(claim: &Claim, pre: u64) -> Option<PlacedClaim> {
        let place = |offset: i64| usize::try_from(pre as i64 + offset).ok();
        let (at, test_at) = (place(claim.offset)?, place(claim.test)?);
        let Claim { mask, value, equal, role, follow, last, contents, count_at, extent, .. } = *claim;
        let last_at = if last == 0 { usize::MAX } else { place(last)? };
        Some(PlacedClaim { at, test_at, mask, value, equal, role, follow, last_at, contents, count_at, extent })
    }
}

pub struct Types<'a> {
    pub space: &'a Space,
    pub chunks: Option<&'a Chunks>,
    pub layout: &'a TypeLayout,
    known: ByAddress<Option<u32>>,
    metatypes: ByAddress<bool>,
    pub kinds: Vec<Kind>,
    memo: Box<[Memo; MEMO]>,
    /// A set of the MiB in which types may lie, by the low bits of their number: says no quickly to nearly all pointers.
    homes: Vec<u64>,
    /// Distances from a block's start to an object that occur.
    pub distances: Vec<usize>,
}

/// What is known of an address: the number of its type, or NO_TYPE; and what the type demands of a block.
#[derive(Clone, Copy)]
struct Memo {
    address: u64,
    number: u32,
    pre: usize,
    least: u64,
}

const NO_TYPE: u32 = u32::MAX;
const MEMO: usize = 1024;
const HOME_BITS: u64 = 1 << 14;
const MOST_BASES: usize = 64;
const LARGEST_BASIC_SIZE: u64 = 1 << 20;

impl<'a> Types<'a> {
    pub fn new(space: &'a Space, chunks: Option<&'a Chunks>, layout: &'a TypeLayout) -> Types<'a> {
        let (gc, extra) = (layout.gc_head as usize, layout.pre_header as usize);
        let extras: &[usize] = if layout.flags_pre_header == 0 { &[0] } else { &[0, extra] };
        let distance = |extra: &usize| [layout.hook as usize + extra, layout.hook as usize + gc + extra];
        let mut types = Types {
            space,
            chunks,
            layout,
            known: ByAddress::default(),
            metatypes: ByAddress::default(),
            kinds: Vec::new(),
            memo: Box::new([Memo { address: 0, number: NO_TYPE, pre: usize::MAX, least: u64::MAX }; MEMO]),
            homes: vec![0; (HOME_BITS / 64) as usize],
            distances: extras.iter().flat_map(distance).collect(),
        };
        types.distances.sort_unstable();
        types.distances.dedup();
        layout.data.iter().for_each(|(start, end)| types.add_home(*start, *end));
        let regions = chunks.iter().flat_map(|chunks| &chunks.regions);
        regions.for_each(|region| types.add_home(region.stretch.start, region.stretch.end));
        let segments = layout.mimalloc().into_iter().flat_map(|mimalloc| &mimalloc.segments);
        segments.for_each(|segment| types.add_home(segment.address, segment.end));
        let claimed = layout.claimed().into_iter().flat_map(|claimed| &claimed.places);
        claimed.chain(&layout.unwalked).for_each(|(start, end)| types.add_home(*start, *end));
        types
    }

    fn add_home(&mut self, start: u64, end: u64) {
        for mib in (start >> 20..=end >> 20).take(HOME_BITS as usize) {
            self.homes[(mib % HOME_BITS / 64) as usize] |= 1 << (mib % 64);
        }
    }

    #[inline]
    pub fn is_home(&self, address: u64) -> bool {
        let mib = address >> 20;
        self.homes[(mib % HOME_BITS / 64) as usize] >> (mib % 64) & 1 == 1
    }

    /// The number of the type at `address`, if it is one.
    pub fn lookup(&mut self, address: u64) -> Option<u32> {
        let memo = &self.memo[slot_of(address)];
        if memo.address == address {
            return Some(memo.number).filter(|number| *number != NO_TYPE);
        }
        if address < 4096 || address % 8 != 0 || !self.is_home(address) {
            return None;
        }
        let answer = match self.known.get(&address) {
            Some(answer) => *answer,
            None if !self.may_lie_at(address) => return None,
            None => self.decide(address),
        };
        self.memo[slot_of(address)] = match answer {
            Some(number) => {
                let kind = &self.kinds[number as usize];
                Memo { address, number, pre: kind.pre as usize, least: kind.least }
            }
            None => Memo { address, number: NO_TYPE, pre: usize::MAX, least: u64::MAX },
        };
        answer
    }

    fn is_data(&self, address: u64) -> bool {
        crate::range_at(&self.layout.data, address).is_some()
    }

    fn may_lie_at(&self, address: u64) -> bool {
        if self.is_data(address) {
            return true;
        }
        let least = self.layout.smallest_heap_type;
        self.chunks.is_some_and(|chunks| chunks.holds_object(address, least))
            || self.layout.mimalloc().is_some_and(|mimalloc| mimalloc.holds_object(address, least))
            || self.layout.claimed().is_some_and(|claimed| claimed.holds_object(address, least))
            || crate::range_at(&self.layout.unwalked, address).is_some()
    }

    #[cold]
    fn decide(&mut self, address: u64) -> Option<u32> {
        let answer = self.examine(address).map(|kind| {
            self.kinds.push(kind);
            self.kinds.len() as u32 - 1
        });
        self.known.insert(address, answer);
        answer
    }

    fn field(&self, address: u64, offset: u64) -> Option<u64> {
        self.space.word(address.wrapping_add(offset)).ok()
    }

    fn examine(&mut self, address: u64) -> Option<Kind> {
        let layout = self.layout;
        let metatype = self.field(address, layout.ob_type)?;
        if !self.is_metatype(metatype, 0) {
            return None;
        }
        let basic = self.field(address, layout.tp_basicsize)?;
        let item = self.field(address, layout.tp_itemsize)?;
        let flags = self.field(address, layout.tp_flags)?;
        if !(16..LARGEST_BASIC_SIZE).contains(&basic) || item >= LARGEST_BASIC_SIZE {
            return None;
        }
        let gc = if flags & layout.flag_gc != 0 { layout.gc_head } else { 0 };
        let extra = if flags & layout.flags_pre_header != 0 { layout.pre_header } else { 0 };
        let pre = layout.hook + gc + extra;
        let name = self.name_of(address);
        let short = layout.shortened.iter().find(|(short, _)| short.as_bytes() == name).map(|(_, least)| *least);
        let least = match short {
            _ if flags & layout.flag_no_minimum != 0 => pre + layout.ob_type + 8,
            Some(least) => pre + least.min(basic),
            None => pre + basic,
        };
        let in_slabs = layout.slab.as_ref().is_some_and(|slab| slab.names.iter().any(|own| own.as_bytes() == name));
        let claims = self.claims(address, flags).iter().filter_map(|claim| PlacedClaim::new(claim, pre)).collect();
        Some(Kind { address, pre, flags, least, in_slabs, claims, extent: self.extent(address) })
    }

    /// `tp_basicsize` of the nearest base that is written in C, unless its fields are all known.
    fn extent(&self, address: u64) -> u64 {
        let layout = self.layout;
        let mut at = address;
        for _ in 0..MOST_BASES {
            match self.field(at, layout.tp_dealloc) {
                Some(dealloc) if dealloc == layout.class_dealloc => at = self.field(at, layout.tp_base).unwrap_or(0),
                Some(_) => {
                    let name = self.name_of(at);
                    let known = layout.closed.iter().any(|closed| closed.as_bytes() == name);
                    return if known {
                        0
                    } else {
                        self.field(at, layout.tp_basicsize).unwrap_or(0).min(LARGEST_BASIC_SIZE)
                    };
                }
                None => break,
            }
        }
        0
    }

    /// Whether a type of types lies at `address`.
    pub fn is_metatype_at(&mut self, address: u64) -> bool {
        self.is_home(address) && self.is_metatype(address, 0)
    }

    /// A type of types: it subclasses `type`, and its own type does too, up to `type` itself.
    fn is_metatype(&mut self, address: u64, depth: usize) -> bool {
        if let Some(known) = self.metatypes.get(&address) {
            return *known;
        }
        let answer = depth < 8 && address % 8 == 0 && self.may_lie_at(address) && {
            let flags = self.field(address, self.layout.tp_flags).unwrap_or(0);
            let own = self.field(address, self.layout.ob_type).unwrap_or(0);
            flags & self.layout.flag_type_subclass != 0 && (own == address || self.is_metatype(own, depth + 1))
        };
        self.metatypes.insert(address, answer);
        answer
    }

    fn claims(&self, address: u64, flags: u64) -> Vec<Claim> {
        let named = self.bases(address);
        let belongs = |family: &&Family| {
            flags & family.flags != 0
                || family.names.iter().any(|name| named.iter().any(|(_, base)| base == name.as_bytes()))
        };
        self.layout.families.iter().filter(belongs).flat_map(|family| family.claims.iter().copied()).collect()
    }

    /// tp_name, or what else is known where it cannot be read; else empty.
    fn name_of(&self, address: u64) -> Vec<u8> {
        let name = self.field(address, self.layout.tp_name).and_then(|name| self.space.string(name, 64).ok());
        let known = || self.layout.names.iter().find(|(own, _)| *own == address).map(|(_, name)| name.clone().into());
        name.or_else(known).unwrap_or_default()
    }

    /// The type and its bases along tp_base, with their names.
    pub fn bases(&self, address: u64) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        let mut at = address;
        while at != 0 && found.len() < MOST_BASES {
            found.push((at, self.name_of(at)));
            at = self.field(at, self.layout.tp_base).unwrap_or(0);
        }
        found
    }

    /// The type of the object in the block whose first bytes are `head`: the type's number and whether it is alive.
    /// An object on a free list has its type still, and a reference count of zero.
    #[inline(always)]
    pub fn object_in(&mut self, head: &[u8], size: u64) -> Option<(u32, bool)> {
        if self.layout.hook != 0 || !self.layout.is_plain() {
            let outer = self.layout.outer_hook(head);
            return self.search_object(&head[outer..], size.saturating_sub(outer as u64));
        }
        // Nearly every block is decided here, by what is remembered. The nearest object is the right one: a tuple whose
        // first item is a class looks like an instance of it, further in.
        for distance in [0, 16, 32] {
            let words = head.get(distance..distance + 16)?;
            let (count, address) = (crate::u64_at(words, 0), crate::u64_at(words, 8));
            let memo = &self.memo[slot_of(address)];
            if memo.address == address {
                if memo.pre == distance && memo.least <= size && count.wrapping_sub(1) < SMALL_COUNT {
                    return Some((memo.number, true));
                }
                if memo.pre == distance {
                    break;
                }
            } else if self.is_home(address) {
                break;
            }
        }
        self.search_object(head, size)
    }

    /// The type's number of the living object whose count is at `address`.
    pub fn object_starting_at(&mut self, address: u64) -> Option<u32> {
        let mut words = [0; 32];
        let size = self.layout.head() as usize;
        self.space.exact(address, words.get_mut(..size)?).ok()?;
        let number = self.lookup(crate::u64_at(&words, self.layout.ob_type as usize))?;
        let alive = match self.layout.is_free_threaded() {
            true => shared_count(&words)?,
            false => self
                .is_alive(crate::u64_at(&words, self.layout.ob_refcnt as usize), self.kinds[number as usize].address)?,
        };
        alive.then_some(number)
    }

    #[inline(never)]
    fn search_object(&mut self, head: &[u8], size: u64) -> Option<(u32, bool)> {
        let mut dead = None;
        for place in 0..self.distances.len() {
            match self.object_at(head, self.distances[place], size) {
                Some((number, true)) => return Some((number, true)),
                // Up to 3.7 an untracked object's PyGC_Head is what the block's last user left there: a dead one's type.
                found => dead = found.or(dead),
            }
        }
        dead
    }

    fn object_at(&mut self, head: &[u8], distance: usize, size: u64) -> Option<(u32, bool)> {
        let (type_at, count_at) = (self.layout.ob_type as usize, self.layout.ob_refcnt as usize);
        let words = head.get(distance..distance + type_at + 8)?;
        let number = self.lookup(crate::u64_at(words, type_at))?;
        let kind = &self.kinds[number as usize];
        if kind.pre != distance as u64 || kind.least > size {
            return None;
        }
        let alive = match self.layout.is_free_threaded() {
            true => shared_count(words)?,
            false => self.is_alive(crate::u64_at(words, count_at), kind.address)?,
        };
        Some((number, alive))
    }

    /// Whether the object of a type that begins with this word is alive; None where it can be no object's. A free list
    /// puts zero in the place of the count, or since 3.14 a link to the next object of the type.
    fn is_alive(&self, word: u64, type_address: u64) -> Option<bool> {
        if word <= SMALL_COUNT {
            return Some(word != 0);
        }
        if is_immortal(word) {
            return Some(true);
        }
        if word % 8 == 0 && self.field(word, self.layout.ob_type) == Some(type_address) {
            return Some(false);
        }
        (word < LARGEST_COUNT && !self.is_data(word)).then_some(true)
    }
}

/// The references of the object whose head is `words`, in all threads. Where counting is deferred, or the object immortal, it
/// is as if there were more than anybody can have.
pub fn shared_references(words: &[u8]) -> u64 {
    let (bits, local, shared) =
        (words.get(11).copied().unwrap_or(0), crate::u32_at(words, 12), crate::u64_at(words, 16) as i64);
    if local == LOCAL_IMMORTAL {
        return u64::MAX;
    }
    // Up to 3.13 one more reference defers it.
    let own = u64::from(bits & GC_DEFERRED != 0);
    let sum = i64::from(local) + (shared >> SHARED_FLAGS);
    u64::try_from(sum).unwrap_or(0).saturating_sub(own)
}

/// Whether the object whose head is `words` has references, of its own thread's and of others'; None where they cannot
/// be counts. One without any is on a free list, unless its thread has yet to free it.
pub fn shared_count(words: &[u8]) -> Option<bool> {
    let (thread, local, shared) = (crate::u64_at(words, 0), crate::u32_at(words, 12), crate::u64_at(words, 16) as i64);
    let others = shared >> SHARED_FLAGS;
    let is_count = |count: i64| count.unsigned_abs() < LARGEST_COUNT;
    // Deferred counting adds so much (PY_SSIZE_T_MAX / 8), since 3.14.
    let plausible = is_count(others) || is_count(others - i64::MAX / 8);
    let fits = thread < 1 << 47 && words.get(10).is_some_and(|mutex| *mutex <= MOST_MUTEX) && plausible;
    let alive = local == LOCAL_IMMORTAL || i64::from(local) + others > 0 || shared & QUEUED_FLAGS == QUEUED;
    fits.then_some(alive)
}

const PLAIN_TYPE: u64 = 8;
const SHARED_FLAGS: i64 = 2;
const QUEUED_FLAGS: i64 = 3;
const QUEUED: i64 = 2;
const MOST_MUTEX: u8 = 3;
const LOCAL_IMMORTAL: u32 = u32::MAX;
const GC_DEFERRED: u8 = 1 << 6;

#[inline(always)]
fn slot_of(address: u64) -> usize {
    ((address >> 4) ^ (address >> 14)) as usize % MEMO
}

/// So many references are surely a count; more may be an address in a program's data.
pub const SMALL_COUNT: u64 = 1 << 20;
/// More references than memory can hold. A pointer in the place of the count is larger, unless the program lies in the
/// lowest 4 GiB: then it points into the program's data.
pub const LARGEST_COUNT: u64 = 1 << 32;
/// Include/refcount.h since 3.14: ob_refcnt (u32), ob_overflow (u16), ob_flags (u16); a count from here on is immortal.
const IMMORTAL: u32 = 1 << 31;
const MOST_FLAGS: u64 = 1 << 4;

/// Whether a word is the count of an immortal object with flags.
fn is_immortal(word: u64) -> bool {
    let (overflow, flags) = (word >> 32 & 0xFFFF, word >> 48);
    word as u32 >= IMMORTAL && overflow == 0 && (1..MOST_FLAGS).contains(&flags)
}
