//! Classify the objects to which trait pointers (`dyn Trait`) point. A vtable begins with the function that drops the
//! object (null if there is nothing to do), the size of the object and the alignment of the object.

use super::candidates::WidePointer;
use crate::by_address::ByAddress;
use crate::structures::kinds::{Family, UNKNOWN};
use crate::structures::search_input::SearchInput;
use gdbheap_access::bytes::range_at;
use gdbheap_access::memory::reader::Reader;
use std::sync::atomic::Ordering;

/// The size in bytes of the counts of an Arc or Rc, which precede the value.
const COUNTS: u64 = 16;
const LARGEST_ALIGN: u64 = 16;
/// In a vtable without a drop function, at least one of the first METHODS methods must lie in code.
const METHODS: u64 = 3;

#[derive(Clone, Copy)]
struct Vtable {
    size: u64,
    align: u64,
}

pub(crate) struct Objects<'a, 'b> {
    look: &'a SearchInput<'a>,
    reader: &'b mut Reader<'a>,
    vtables: ByAddress<Option<Vtable>>,
}

impl<'a, 'b> Objects<'a, 'b> {
    pub(crate) fn new(look: &'a SearchInput<'a>, reader: &'b mut Reader<'a>) -> Objects<'a, 'b> {
        Objects { look, reader, vtables: ByAddress::default() }
    }

    fn vtable(&mut self, address: u64) -> Option<Vtable> {
        if !self.vtables.contains_key(&address) {
            let read = self.read(address);
            self.vtables.insert(address, read);
        }
        self.vtables[&address]
    }

    fn read(&mut self, address: u64) -> Option<Vtable> {
        let [drop, size, align] = self.reader.words::<3>(address)?;
        let is_code = |word: u64| range_at(self.look.code, word).is_some();
        let is_sized =
            size > 0 && size < 1 << 30 && align.is_power_of_two() && align <= LARGEST_ALIGN && size % align == 0;
        if is_code(address) || !is_sized || (drop != 0 && !is_code(drop)) {
            return None;
        }
        let has_method = |place: u64| self.reader.word(address + 24 + place * 8).is_some_and(is_code);
        (drop != 0 || (0..METHODS).any(has_method)).then_some(Vtable { size, align })
    }

    /// Return the family of the block to which all these trait pointers point, and the vtable if all have the same one.
    /// The result is None in three cases. The vtables disagree about the family. Or `rows` does not contain all
    /// pointers to the block: a pointer may be stale, and the block may have a new owner. Or the pointers may be plain
    /// pointers, each with a stale pointer to a vtable after it.
    pub(crate) fn family(&mut self, rows: &[WidePointer], from_stacks: u32) -> Option<(Family, Option<u64>)> {
        let id = rows.first()?.id;
        let in_memory = rows.iter().filter(|row| !row.on_stack).count() as u32;
        let (begins, inside) = (&self.look.references[id as usize], &self.look.inside[id as usize]);
        let are_all = u32::from(begins.load(Ordering::Relaxed)) == in_memory
            && rows.len() as u32 - in_memory == from_stacks
            && inside.load(Ordering::Relaxed) == 0;
        if !are_all || rows.iter().any(|row| row.follows_alike) || self.look.kind(id) != UNKNOWN {
            return None;
        }
        let (_, block) = self.look.block_from(self.reader.word(rows[0].at)?)?;
        let mut found = None;
        for row in rows {
            let vtable = self.vtable(row.vtable)?;
            let family = self.one(id, block.address, &vtable, from_stacks)?;
            match found {
                None => found = Some((family, Some(row.vtable))),
                Some((before, _)) if before != family => return None,
                Some((_, other)) if other == Some(row.vtable) => (),
                // There are two vtables: for two traits of one type, or for two types if one of the vtables is stale.
                Some(_) => found = Some((family, None)),
            }
        }
        found
    }

    /// Return the family of a block. None if the block's size does not fit the object of the vtable, with or without
    /// counts before the object. The size of the smallest block may fit the object both with and without counts. If
    /// such a block begins with small numbers, which may be counts, the family is RustObject.
    fn one(&mut self, id: u32, address: u64, vtable: &Vtable, from_stacks: u32) -> Option<Family> {
        let (_, block) = self.look.block_from(address)?;
        let (low, high) = self.look.requests(&block, false);
        let held = vtable.size.checked_next_multiple_of(vtable.align.max(8))? + COUNTS;
        let may_be_counted = (low..=high).contains(&held);
        match (low..=high).contains(&vtable.size) {
            true if may_be_counted && self.small_counts(address).is_some() => Some(Family::RustObject),
            true => Some(Family::RustBox),
            false if may_be_counted && self.has_counts(id, address, from_stacks) => Some(Family::RustCounted),
            false => None,
        }
    }

    fn small_counts(&mut self, address: u64) -> Option<(u64, u64)> {
        let [strong, weak] = self.reader.words::<2>(address)?;
        let small = |count: u64| (1..1 << 32).contains(&count);
        (small(strong) && small(weak)).then_some((strong, weak))
    }

    /// Return whether the block begins with counts that agree with the number of pointers to it.
    fn has_counts(&mut self, id: u32, address: u64, from_stacks: u32) -> bool {
        let Some((strong, weak)) = self.small_counts(address) else { return false };
        let in_memory = u64::from(self.look.references[id as usize].load(Ordering::Relaxed));
        let most = in_memory + u64::from(from_stacks);
        (in_memory..=most).contains(&(strong + weak - 1))
    }
}
