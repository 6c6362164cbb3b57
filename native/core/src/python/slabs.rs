//! Find slabs: blocks of malloc that contain many objects each, `int` or `float` of Python 2 (`PyIntBlock`,
//! `PyFloatBlock`).
//!
//! A slab begins with a pointer to the next slab; then the objects follow without gaps. A free object has a pointer to
//! the next free object instead of a pointer to its type. So the whole slab can be checked: each place has either an
//! object of the slab's type, or such a pointer.

use crate::python::counts::LARGEST_COUNT;
use crate::python::layout::Slab;
use crate::python::types::Types;
use gdbheap_access::bytes::u64_at;

/// The content of a slab: the number of the type of its objects, a bit for each place with a living object, and the
/// number of places.
#[derive(Clone, Copy)]
pub(crate) struct SlabContent {
    first: u64,
    pub(crate) number: u32,
    pub(crate) alive: u64,
    pub(crate) places: u64,
}

/// The number of bytes that debug hooks add to a request, in the releases that have slabs.
const HOOKS: u64 = 32;
const MAX_PLACES: u64 = 64;
/// The unit of chunk sizes in bytes: sizes are multiples of it.
const UNIT: u64 = 16;

impl Types<'_> {
    /// Return whether a chunk of this size (in bytes) may be a slab.
    pub(crate) fn is_slab_size(&self, chunk_size: u64) -> bool {
        let hooks = if self.layout.hook == 0 { 0 } else { HOOKS };
        self.layout.slab.as_ref().is_some_and(|slab| {
            // A chunk may be up to 16 bytes larger than needed, if the remainder was too small for a chunk of its own.
            let least = (slab.block + hooks + 8).next_multiple_of(UNIT);
            chunk_size >= least && chunk_size <= least + UNIT
        })
    }

    /// Return the objects in the used chunk whose user address is `address`; None if the chunk is not a slab.
    pub(crate) fn slab_at(&mut self, address: u64, chunk_size: u64) -> Option<SlabContent> {
        let slab = self.layout.slab.as_ref()?;
        let hook = self.layout.hook;
        if !self.is_slab_size(chunk_size) || slab.item < 24 {
            return None;
        }
        let (header, item) = (slab.header as usize, slab.item as usize);
        let places = (slab.block.checked_sub(slab.header)? / slab.item).min(MAX_PLACES);
        let mut bytes = vec![0; slab.block as usize];
        if self.space.fill(address + hook, &mut bytes) < bytes.len() || !self.is_link(u64_at(&bytes, 0)) {
            return None;
        }
        let (mut alive, mut number) = (0, None);
        for place in 0..places {
            let at = header + place as usize * item;
            let count = u64_at(&bytes, at + self.layout.ob_refcnt as usize);
            let word = u64_at(&bytes, at + self.layout.ob_type as usize);
            match self.lookup(word) {
                Some(found) if !self.kinds[found as usize].in_slabs || *number.get_or_insert(found) != found => {
                    return None;
                }
                Some(_) if count == 0 || count >= LARGEST_COUNT => return None,
                Some(_) => alive |= 1 << place,
                None if self.is_link(word) => {}
                None => return None,
            }
        }
        number.map(|number| SlabContent { first: address + hook + slab.header, number, alive, places })
    }

    /// Return whether the used chunk is a slab in which no object is alive: each place links to another place, except
    /// the last place of the free list. Other words in such a slab are stale.
    pub(crate) fn is_idle_slab(&self, address: u64, chunk_size: u64) -> bool {
        let Some(slab) = self.layout.slab.as_ref().filter(|_| self.is_slab_size(chunk_size)) else { return false };
        let mut bytes = vec![0; slab.block as usize];
        if self.space.fill(address + self.layout.hook, &mut bytes) < bytes.len() {
            return false;
        }
        let mut ends = 0;
        let places = bytes[slab.header as usize..].chunks_exact(slab.item.max(24) as usize);
        self.is_link(u64_at(&bytes, 0))
            && places.map(|place| u64_at(place, self.layout.ob_type as usize)).all(|word| {
                ends += u32::from(word == 0);
                ends <= 1 && (word == 0 || self.is_place(slab, word))
            })
    }

    /// Return whether an object of a slab may begin at `address`.
    fn is_place(&self, slab: &Slab, address: u64) -> bool {
        let Some((block, size)) = self.heaps.slot_at(address) else { return false };
        let first = block + self.layout.hook + slab.header;
        self.is_slab_size(size) && address >= first && (address - first) % slab.item.max(24) == 0
    }

    fn is_link(&self, word: u64) -> bool {
        word == 0 || (word % 8 == 0 && self.may_hold_types(word))
    }
}

impl SlabContent {
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.alive.count_ones())
    }

    /// Return the object at `address`, or else the first living object of the slab: its address, and whether it is
    /// alive.
    pub(crate) fn object(&self, slab: &Slab, address: u64) -> (u64, bool) {
        let place =
            address.checked_sub(self.first).map(|inside| inside / slab.item).filter(|place| *place < self.places);
        let place = place.unwrap_or(u64::from(self.alive.trailing_zeros()));
        (self.first + place * slab.item, self.alive >> place & 1 == 1)
    }
}
