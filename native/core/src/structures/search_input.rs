//! The data that all searches for structures share: the heaps, the kinds found so far, and how many words point to each
//! block.

use super::capacity::{ItemOrder, Rooms};
use super::kinds::{Family, Kinds};
use super::vtables::{first_argument, Vtable};
use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::graph::ids::Ids;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// The largest count of words that point to a block. Further words are not counted.
pub(crate) const MANY: u8 = 200;
/// The libraries that the program uses. The search looks only for containers of these libraries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Libraries {
    pub libstdcxx: bool,
    pub libcxx: bool,
    pub rust: bool,
}

impl Libraries {
    pub(crate) fn any(self) -> bool {
        self.has_cxx() || self.rust
    }

    pub(crate) fn has_cxx(self) -> bool {
        self.libstdcxx || self.libcxx
    }
}

/// The memory in which a word lies.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum WordPlace {
    /// The word lies in the block that begins at this address.
    Block(u64),
    Static,
    Stack,
}

/// Add a candidate to `all`, and the bytes that it takes to `taken`. These are twice its size, because it exists twice
/// while a vector grows or is copied into a map.
pub(crate) fn keep<T>(all: &mut Vec<T>, one: T, taken: &mut u64) {
    *taken += 2 * std::mem::size_of::<T>() as u64;
    all.push(one);
}

pub(crate) struct SearchInput<'a> {
    pub(crate) heaps: Heaps<'a>,
    pub(crate) ids: &'a Ids,
    /// The lowest and the highest address in any block.
    pub(crate) bounds: (u64, u64),
    /// The memory of loaded objects, as ascending ranges.
    pub(crate) objects: &'a [(u64, u64)],
    /// The executable part of the memory of loaded objects, as ascending ranges.
    pub(crate) code: &'a [(u64, u64)],
    pub(crate) libraries: Libraries,
    /// The kind of each block, by the block's number; UNKNOWN until a proof sets it.
    pub(crate) kinds: Vec<AtomicU32>,
    /// For each block, how many words in blocks and in static data point to its beginning. The count is at most MANY.
    pub(crate) references: Vec<AtomicU8>,
    /// For each block, how many words in blocks and in static data point into it, after its beginning. The count is at
    /// most MANY.
    pub(crate) inside: Vec<AtomicU8>,
    /// The number of bytes of class names that the search may still read.
    pub(crate) names: AtomicU64,
    /// For each order that the words of a Vec may have: the evidence, in bits, that words in this order point to text.
    pub(crate) votes: [AtomicU32; 2],
    /// Whether candidates were left out because they would have taken too much memory.
    pub(crate) left_out: AtomicBool,
    pub(crate) known: Mutex<Kinds>,
    /// The capacity of containers, and how much of it is used.
    pub(crate) rooms: Mutex<Rooms>,
}

impl<'a> SearchInput<'a> {
    /// Record that a candidate is left out because memory is short. Return false, so that the caller drops the
    /// candidate.
    #[cold]
    pub(crate) fn leave_out(&self) -> bool {
        self.left_out.store(true, Ordering::Relaxed);
        false
    }

    /// Return the used block that begins at `address`, and its number; None if there is none.
    #[inline]
    pub(crate) fn block_from(&self, address: u64) -> Option<(u32, Block)> {
        self.block_with(address).filter(|(_, block)| block.address == address)
    }

    /// Return the used block that contains `address`, and its number; None if there is none.
    #[inline]
    pub(crate) fn block_with(&self, address: u64) -> Option<(u32, Block)> {
        let (low, high) = self.bounds;
        if address < low || address > high {
            return None;
        }
        let block = self.heaps.block_at(address)?;
        Some((self.ids.id_of(block.place)?, block))
    }

    /// Return whether the allocator may have chosen this block for a request of `bytes` bytes.
    #[inline]
    pub(crate) fn fits(&self, block: &Block, bytes: u64) -> bool {
        let page = self.heaps.space.machine.page.bytes();
        self.heaps.store_of(block.place).may_be_given(block.end - block.address, bytes, page)
    }

    /// Return the smallest and the largest number of requested bytes for which the allocator may have chosen this
    /// block. Without `with_rest`, assume that the block contains no remainder that was too small for a chunk of its
    /// own.
    #[inline]
    pub(crate) fn requests(&self, block: &Block, with_rest: bool) -> (u64, u64) {
        let page = self.heaps.space.machine.page.bytes();
        self.heaps.store_of(block.place).requests(block.end - block.address, page, with_rest)
    }

    pub(crate) fn number(&self, family: Family, class: &str) -> u32 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).number(family, class)
    }

    /// Return the kind of a block that begins with a pointer to this vtable.
    pub(crate) fn kind_of(&self, vtable: &Vtable) -> u32 {
        let class = &*vtable.class;
        let name = class.strip_prefix("std::").unwrap_or(class);
        let name = name.strip_prefix("__1::").unwrap_or(name);
        let family = match name.split('<').next() {
            Some("_Sp_counted_ptr_inplace" | "__shared_ptr_emplace") => Family::MakeShared,
            Some("_Sp_counted_ptr" | "_Sp_counted_deleter" | "__shared_ptr_pointer") => Family::SharedPtr,
            _ => return self.number(Family::Object, class),
        };
        match first_argument(class).filter(|_| class.starts_with("std::")) {
            Some(held) => self.number(family, held),
            None => self.number(Family::Object, class),
        }
    }

    /// Return the kind that a block of std::make_shared has after its object was destroyed. Any other kind is returned
    /// unchanged.
    pub(crate) fn destroyed(&self, kind: u32) -> u32 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.row(kind).filter(|(family, _)| *family == Family::MakeShared).map(|(_, class)| class.clone()) {
            Some(class) => known.number(Family::Destroyed, &class),
            None => kind,
        }
    }

    /// Record the capacity of a container's block, and how many bytes of it are used. The kind of the block must
    /// already be set.
    pub(crate) fn fill(&self, id: u32, block: &Block, capacity: u64, used: u64, order: ItemOrder) {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.add(self.kind(id), block, (capacity, used), order, self.heaps.space.machine.page);
    }

    pub(crate) fn kind(&self, id: u32) -> u32 {
        self.kinds[id as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_kind(&self, id: u32, kind: u32) {
        self.kinds[id as usize].store(kind, Ordering::Relaxed);
    }

    pub(crate) fn is_of(&self, id: u32, family: Family) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.row(self.kind(id)).is_some_and(|(found, _)| *found == family)
    }

    /// Count one more word that points to the beginning of a block (if `begins` is true), or into its middle.
    pub(crate) fn refer(&self, id: u32, begins: bool) {
        let count = &(if begins { &self.references } else { &self.inside })[id as usize];
        if count.load(Ordering::Relaxed) < MANY {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
