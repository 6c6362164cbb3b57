//! Decide which addresses are Python types, once for each address.
//!
//! A type is recognized by its shape: its `ob_type` is a type whose `tp_flags` say that it is a subclass of `type`, and
//! so on up to the type that is its own type. Only addresses where a type can lie are read: in the writable data of
//! loaded objects, and in used chunks that are not smaller than a type object.

use crate::allocators::heaps::Heaps;
use crate::by_address::ByAddress;
use crate::python::claims::PlacedClaim;
use crate::python::counts::{is_immortal, shared_count, LARGEST_COUNT, SMALL_COUNT};
use crate::python::layout::{Claim, TypeLayout};
use gdbheap_access::bytes::{range_at, u64_at};
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::space::Space;
use std::cell::Cell;

/// A Python type, with the data that is needed to recognize its objects.
#[derive(Clone)]
pub(crate) struct Kind {
    pub(crate) address: u64,
    /// The number of bytes between the start of a block and the object in it.
    pub(crate) pre: u64,
    pub(crate) flags: u64,
    /// The smallest size of a block that contains an object of the type.
    pub(crate) least: u64,
    /// Whether many objects of the type share one block (a slab).
    pub(crate) in_slabs: bool,
    pub(crate) claims: Vec<PlacedClaim>,
    /// The number of bytes of an object that may contain pointers to C structures; 0 if there are none.
    pub(crate) extent: u64,
}

/// The types of one target that were found so far.
pub(crate) struct Types<'a> {
    pub(crate) space: &'a Space,
    /// The heaps in which type objects may lie.
    pub(crate) heaps: Heaps<'a>,
    pub(crate) layout: &'a TypeLayout,
    known: ByAddress<Option<u32>>,
    metatypes: ByAddress<bool>,
    /// For each address in a chain of bases: the next base, and the families to which the name of the type at the
    /// address belongs.
    named: ByAddress<(u64, Vec<usize>)>,
    pub(crate) kinds: Vec<Kind>,
    memo: Box<[Memo; MEMO]>,
    /// A bit for each MiB of memory in which types may lie. The index of the bit is given by the low bits of the MiB's
    /// number. This quickly rejects nearly all other pointers.
    type_pages: Vec<u64>,
    /// The number of bases that may still be read in chains of up to MAX_BASES. When it is 0, chains end after
    /// FEW_BASES.
    bases_left: Cell<usize>,
    /// The distances in bytes that the layout allows between a block's start and the object in it.
    pub(crate) distances: Vec<usize>,
}

/// The cached result for an address: the number of the type at the address, or NO_TYPE. For the objects of the type:
/// their distance from the start of their block, and the smallest size of this block.
#[derive(Clone, Copy)]
struct Memo {
    address: u64,
    number: u32,
    pre: usize,
    least: u64,
}

const NO_TYPE: u32 = u32::MAX;
const MEMO: usize = 1024;
const TYPE_PAGE_BITS: u64 = 1 << 14;
const MAX_BASES: usize = 64;
/// The largest number of bases, of all types together, that are read in chains of up to MAX_BASES. The limit is needed
/// because a hostile target may have as many types as blocks. Programs have about ten thousand types, with five bases
/// each.
const MANY_BASES: usize = 1 << 20;
/// The largest number of bases in a chain that is read after MANY_BASES bases were read.
const FEW_BASES: usize = 8;
/// The largest number of bases that are remembered at the same time. Programs have about ten thousand types.
const MAX_NAMED: usize = 1 << 18;
const LARGEST_BASIC_SIZE: u64 = 1 << 20;

impl<'a> Types<'a> {
    pub(crate) fn new(heaps: Heaps<'a>, layout: &'a TypeLayout) -> Types<'a> {
        let (gc, extra) = (layout.gc_head as usize, layout.pre_header as usize);
        let extras: &[usize] = if layout.flags_pre_header == 0 { &[0] } else { &[0, extra] };
        let distance = |extra: &usize| [layout.hook as usize + extra, layout.hook as usize + gc + extra];
        let mut types = Types {
            space: heaps.space,
            heaps,
            layout,
            known: ByAddress::default(),
            metatypes: ByAddress::default(),
            named: ByAddress::default(),
            kinds: Vec::new(),
            memo: Box::new([Memo { address: 0, number: NO_TYPE, pre: usize::MAX, least: u64::MAX }; MEMO]),
            type_pages: vec![0; (TYPE_PAGE_BITS / 64) as usize],
            bases_left: Cell::new(MANY_BASES),
            distances: extras.iter().flat_map(distance).collect(),
        };
        types.distances.sort_unstable();
        types.distances.dedup();
        layout.data.iter().for_each(|(start, end)| types.add_type_pages(*start, *end));
        heaps.show_type_ranges(|start, end| types.add_type_pages(start, end));
        layout.unwalked.iter().for_each(|(start, end)| types.add_type_pages(*start, *end));
        types
    }

    fn add_type_pages(&mut self, start: u64, end: u64) {
        for mib in (start >> 20..=end >> 20).take(TYPE_PAGE_BITS as usize) {
            self.type_pages[(mib % TYPE_PAGE_BITS / 64) as usize] |= 1 << (mib % 64);
        }
    }

    #[inline]
    pub(crate) fn may_hold_types(&self, address: u64) -> bool {
        let mib = address >> 20;
        self.type_pages[(mib % TYPE_PAGE_BITS / 64) as usize] >> (mib % 64) & 1 == 1
    }

    /// Return the number of the type at `address`, if there is one.
    pub(crate) fn lookup(&mut self, address: u64) -> Option<u32> {
        let memo = &self.memo[slot_of(address)];
        if memo.address == address {
            return Some(memo.number).filter(|number| *number != NO_TYPE);
        }
        if address < LOWEST || address % 8 != 0 || !self.may_hold_types(address) {
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
        range_at(&self.layout.data, address).is_some()
    }

    fn may_lie_at(&self, address: u64) -> bool {
        if self.is_data(address) {
            return true;
        }
        let least = self.layout.smallest_heap_type;
        self.heaps.holds_object(address, least) || range_at(&self.layout.unwalked, address).is_some()
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

    /// Return `tp_basicsize` of the type's nearest base that is written in C, which may be the type itself; 0 if all
    /// fields of that base are known. LARGEST_BASIC_SIZE if the bases cannot be read.
    fn extent(&self, address: u64) -> u64 {
        let layout = self.layout;
        let mut at = address;
        for _ in 0..self.reach() {
            self.met_base();
            match self.field(at, layout.tp_dealloc) {
                Some(dealloc) if dealloc == layout.class_dealloc => match self.field(at, layout.tp_base) {
                    Some(base) => at = base,
                    None => break,
                },
                Some(_) => {
                    let name = self.name_of(at);
                    let known = layout.closed.iter().any(|closed| closed.as_bytes() == name);
                    let size = if known { Some(0) } else { self.field(at, layout.tp_basicsize) };
                    return size.map_or(LARGEST_BASIC_SIZE, |size| size.min(LARGEST_BASIC_SIZE));
                }
                None => break,
            }
        }
        LARGEST_BASIC_SIZE
    }

    /// Return whether the type object at `address` is a metatype.
    pub(crate) fn is_metatype_at(&mut self, address: u64) -> bool {
        self.may_hold_types(address) && self.is_metatype(address, 0)
    }

    /// Return whether a metatype lies at `address`: a type that is a subclass of `type`, whose own type is one too, and
    /// so on up to `type` itself.
    fn is_metatype(&mut self, address: u64, depth: usize) -> bool {
        if let Some(known) = self.metatypes.get(&address) {
            return *known;
        }
        let answer = depth < 8 && address % 8 == 0 && self.may_lie_at(address) && {
            let flags = self.field(address, self.layout.tp_flags);
            let own = self.field(address, self.layout.ob_type);
            // The head of an empty list of the collector also points to itself, as `type` does.
            let basic = self.field(address, self.layout.tp_basicsize);
            flags.is_some_and(|flags| flags & self.layout.flag_type_subclass != 0)
                && basic.is_some_and(|size| size > self.layout.tp_flags)
                && own.is_some_and(|own| own == address || self.is_metatype(own, depth + 1))
        };
        self.metatypes.insert(address, answer);
        answer
    }

    fn claims(&mut self, address: u64, flags: u64) -> Vec<Claim> {
        let layout = self.layout;
        let mut is_one: Vec<bool> = layout.families.iter().map(|family| flags & family.flags != 0).collect();
        let mut at = address;
        for _ in 0..self.reach() {
            if at == 0 {
                break;
            }
            self.met_base();
            let (base, families) = self.named_at(at);
            families.iter().for_each(|family| is_one[*family] = true);
            at = *base;
        }
        let chosen = layout.families.iter().zip(is_one).filter(|(_, is_one)| *is_one);
        chosen.flat_map(|(family, _)| family.claims.iter().copied()).collect()
    }

    /// Return the base of the type at an address (0 if it has none), and the families to which the type's name belongs.
    /// The result is read only once for each address, because many types may share a chain of bases.
    fn named_at(&mut self, address: u64) -> &(u64, Vec<usize>) {
        if !self.named.contains_key(&address) {
            if self.named.len() >= MAX_NAMED {
                self.named.clear();
            }
            let name = self.name_of(address);
            let is_named = |index: &usize| self.layout.families[*index].names.iter().any(|own| own.as_bytes() == name);
            let families = (0..self.layout.families.len()).filter(is_named).collect();
            let base = self.field(address, self.layout.tp_base).unwrap_or(0);
            self.named.insert(address, (base, families));
        }
        &self.named[&address]
    }

    /// Return the `tp_name` of a type. If it cannot be read, return the name that the caller knows, or else an empty
    /// name.
    fn name_of(&self, address: u64) -> Vec<u8> {
        let name = self.field(address, self.layout.tp_name).and_then(|name| self.space.string(name, 64).ok());
        let known = || self.layout.names.iter().find(|(own, _)| *own == address).map(|(_, name)| name.clone().into());
        name.or_else(known).unwrap_or_default()
    }

    /// Return the largest length that a chain of bases may have at present.
    fn reach(&self) -> usize {
        match self.bases_left.get() {
            0 => FEW_BASES,
            _ => MAX_BASES,
        }
    }

    fn met_base(&self) {
        self.bases_left.set(self.bases_left.get().saturating_sub(1));
    }

    /// Return the type at an address and its bases (as `tp_base` links them), each with its name.
    pub(crate) fn bases(&self, address: u64) -> Vec<(u64, Vec<u8>)> {
        let (mut found, reach) = (Vec::new(), self.reach());
        let mut at = address;
        while at != 0 && found.len() < reach {
            self.met_base();
            found.push((at, self.name_of(at)));
            let Some(base) = self.field(at, self.layout.tp_base) else { break };
            at = base;
        }
        found
    }

    /// Return the type of the object in the block whose first bytes are `head`: the number of the type, and whether the
    /// object is alive; None if there is no object. An object on a free list keeps its type, but has a reference count
    /// of zero.
    #[inline(always)]
    pub(crate) fn object_in(&mut self, head: &[u8], size: u64) -> Option<(u32, bool)> {
        if self.layout.hook != 0 || !self.layout.is_plain() {
            let outer = self.layout.outer_hook(head);
            return self.search_object(&head[outer..], size.saturating_sub(outer as u64));
        }
        // Nearly every block is decided here, by the cache. The object nearest to the start of the block is the right
        // one: a tuple whose first item is a class also looks like an instance of this class that begins further
        // inside.
        for distance in [0, 16, 32] {
            let words = head.get(distance..distance + 16)?;
            let (count, address) = (u64_at(words, 0), u64_at(words, 8));
            let memo = &self.memo[slot_of(address)];
            if memo.address == address {
                if memo.pre == distance && memo.least <= size && count.wrapping_sub(1) < SMALL_COUNT {
                    return Some((memo.number, true));
                }
                if memo.pre == distance {
                    break;
                }
            } else if self.may_hold_types(address) {
                break;
            }
        }
        self.search_object(head, size)
    }

    /// Return the number of the type of the living object whose reference count is at `address`; None if there is no
    /// such object.
    pub(crate) fn object_starting_at(&mut self, address: u64) -> Option<u32> {
        let mut words = [0; 32];
        let size = self.layout.head() as usize;
        self.space.exact(address, words.get_mut(..size)?).ok()?;
        let number = self.lookup(u64_at(&words, self.layout.ob_type as usize))?;
        let alive = match self.layout.is_free_threaded() {
            true => shared_count(&words, self.space.machine.user_end)?,
            false => {
                self.is_alive(u64_at(&words, self.layout.ob_refcnt as usize), self.kinds[number as usize].address)?
            }
        };
        alive.then_some(number)
    }

    #[inline(never)]
    fn search_object(&mut self, head: &[u8], size: u64) -> Option<(u32, bool)> {
        let mut dead = None;
        for place in 0..self.distances.len() {
            match self.object_at(head, self.distances[place], size) {
                Some((number, true)) => return Some((number, true)),
                // Up to 3.7, the PyGC_Head of an untracked object contains stale words of the block's last user, such
                // as the type of a dead object.
                found => dead = found.or(dead),
            }
        }
        dead
    }

    fn object_at(&mut self, head: &[u8], distance: usize, size: u64) -> Option<(u32, bool)> {
        let (type_at, count_at) = (self.layout.ob_type as usize, self.layout.ob_refcnt as usize);
        let words = head.get(distance..distance + type_at + 8)?;
        let number = self.lookup(u64_at(words, type_at))?;
        let kind = &self.kinds[number as usize];
        if kind.pre != distance as u64 || kind.least > size {
            return None;
        }
        let alive = match self.layout.is_free_threaded() {
            true => shared_count(words, self.space.machine.user_end)?,
            false => self.is_alive(u64_at(words, count_at), kind.address)?,
        };
        Some((number, alive))
    }

    /// Return whether an object of a type is alive, if its first word is `word`; None if the word cannot be the first
    /// word of an object. On a free list, the reference count is replaced by zero, or since 3.14 by a link to the next
    /// object of the type.
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

#[inline(always)]
fn slot_of(address: u64) -> usize {
    ((address >> 4) ^ (address >> 14)) as usize % MEMO
}

#[cfg(test)]
mod tests {
    use super::{Types, FEW_BASES, MANY_BASES, MAX_BASES};
    use crate::allocators::heaps::Heaps;
    use crate::allocators::testing::{linked, START};
    use crate::python::layout::{Claim, Extent, Family, TypeLayout, NOTHING};

    const SIZE: u64 = 64;

    #[test]
    fn bases_of_many_types_are_read_once() {
        const MANY: u64 = 1000;
        let (space, stores) = linked(SIZE, 8, MANY, 0);
        let claim = Claim {
            offset: 0,
            test: 0,
            mask: 0,
            low: 0,
            high: 0,
            role: 0,
            follow: NOTHING,
            last: 0,
            contents: 0,
            count_at: -1,
            extent: Extent { rule: 0, at: -1, unit: 0, more: 0 },
        };
        let families = vec![Family { flags: 0, names: vec!["named".to_string()], claims: vec![claim] }];
        let names = vec![(START + 500 * SIZE, "named".to_string())];
        let layout = TypeLayout { tp_base: 8, families, names, ..TypeLayout::default() };
        let mut types = Types::new(Heaps { space: &space, stores: &stores }, &layout);
        let found: Vec<u64> = (0..MANY).filter(|place| !types.claims(START + place * SIZE, 0).is_empty()).collect();
        assert_eq!(found, (501 - MAX_BASES as u64..=500).collect::<Vec<u64>>());
        // One more base is remembered, because the last block points to an address after it.
        assert_eq!(types.named.len() as u64, MANY + 1);
    }

    #[test]
    fn bases_of_all_types_have_a_budget() {
        let (space, stores) = linked(SIZE, 8, 1000, 0);
        let layout = TypeLayout { tp_base: 8, ..TypeLayout::default() };
        let types = Types::new(Heaps { space: &space, stores: &stores }, &layout);
        let lengths: Vec<usize> = (0..2 * MANY_BASES / MAX_BASES).map(|_| types.bases(START).len()).collect();
        assert_eq!(lengths.iter().sum::<usize>(), MANY_BASES + MANY_BASES / MAX_BASES * FEW_BASES);
        assert_eq!((lengths.first(), lengths.last()), (Some(&MAX_BASES), Some(&FEW_BASES)));
    }
}
