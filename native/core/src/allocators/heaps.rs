//! All stores of blocks of one target.

use crate::allocators::block::{Block, BlockId};
use crate::allocators::store::Store;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::memory::space::Space;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

/// The number of bytes that are read at a time.
const PIECE: u64 = 256 << 10;
/// The smallest gap in bytes at which two ranges of blocks count as separate. It is wider than the gaps between heaps
/// of one kind, and small compared with the address space.
const FAR: u64 = 1 << 32;

/// All stores of one target, borrowed. If several stores contain an address, the first of these stores is used.
#[derive(Clone, Copy)]
pub struct Heaps<'a> {
    pub space: &'a Space,
    pub stores: &'a [Store],
}

/// All stores of one target, in shared ownership.
#[derive(Clone)]
pub struct SharedHeaps {
    pub space: Arc<Space>,
    pub stores: Vec<Store>,
}

impl SharedHeaps {
    pub fn lend(&self) -> Heaps<'_> {
        Heaps { space: &self.space, stores: &self.stores }
    }
}

impl<'a> Heaps<'a> {
    /// Return the used block that contains `address`; None if there is none. No other function is called as often, so
    /// its code is not divided, and the look-up of pools is inlined.
    #[inline(never)]
    pub(crate) fn block_at(&self, address: u64) -> Option<Block> {
        for (index, store) in self.stores.iter().enumerate() {
            if let Some(cell) = store.block_at(address) {
                return Some(cell.of(index as u32));
            }
        }
        None
    }

    /// Return the blocks outside [start, end) to which words in [start, end) point, as `(address, size)`. Each block is
    /// listed once, the largest first.
    pub fn led_to(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let (low, high) = self.bounds();
        let mut found = HashSet::new();
        let mut scratch = vec![0; end.saturating_sub(start).min(PIECE) as usize];
        self.space.show(start, end, &mut scratch, |_, piece| {
            let pointers = piece.chunks_exact(8).map(|word| u64_at(word, 0)).filter(|word| (low..high).contains(word));
            found.extend(pointers.filter_map(|pointer| {
                let block = self.block_at(pointer).filter(|block| !block.shares_header_at(pointer))?;
                Some((block.address, block.size))
            }));
        });
        let mut rows: Vec<(u64, u64)> =
            found.into_iter().filter(|(address, _)| !(start..end).contains(address)).collect();
        rows.sort_unstable_by_key(|(address, size)| (Reverse(*size), *address));
        rows
    }

    pub(crate) fn store_of(&self, place: BlockId) -> &'a Store {
        &self.stores[place.store as usize]
    }

    /// Return the block with this identity.
    pub(crate) fn block_of(&self, place: BlockId) -> Block {
        self.store_of(place).block_of(place.number).of(place.store)
    }

    /// Return the lowest start and the highest end of all address ranges in which blocks lie.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        let (mut low, mut high) = (u64::MAX, 0);
        let widen = |start: u64, end: u64| (low, high) = (low.min(start), high.max(end));
        self.show_stretches(self.stores.iter(), widen);
        (low, high)
    }

    /// Return the address ranges [start, end) in which blocks lie, ascending. There are few of them, because ranges
    /// less than FAR apart are joined.
    pub(crate) fn spans(&self) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        self.show_stretches(self.stores.iter(), |start, end| all.push((start, end)));
        all.sort_unstable();
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (start, end) in all {
            match spans.last_mut().filter(|last| start < last.1.saturating_add(FAR)) {
                Some(last) => last.1 = last.1.max(end),
                None => spans.push((start, end)),
            }
        }
        spans
    }

    /// Show the address ranges [start, end) in which a type object may lie.
    pub(crate) fn show_type_ranges(&self, show: impl FnMut(u64, u64)) {
        self.show_stretches(self.stores.iter().filter(|store| store.may_hold_types()), show);
    }

    fn show_stretches(&self, stores: impl Iterator<Item = &'a Store>, mut show: impl FnMut(u64, u64)) {
        stores.for_each(|store| store.show_stretches(&mut show));
    }

    /// Return whether an object may begin at `address`, in a used block of at least `least` bytes.
    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        self.stores.iter().any(|store| store.holds_object(address, least))
    }

    /// Return the user address and the size of the block that contains `address`. The block may be used or free. None
    /// if there is none. Only stores whose blocks lie between headers are searched.
    pub(crate) fn slot_at(&self, address: u64) -> Option<(u64, u64)> {
        self.stores.iter().find_map(|store| store.slot_at(address))
    }

    /// Return whether the block with this identity lies between headers.
    pub(crate) fn has_slots(&self, place: BlockId) -> bool {
        self.store_of(place).has_slots()
    }

    /// Return whether gdbheap must never read the bytes of the block with this identity.
    pub(crate) fn is_closed(&self, place: BlockId) -> bool {
        self.store_of(place).is_closed()
    }

    /// Return whether the header of a block begins at `address`.
    pub(crate) fn is_header(&self, address: u64) -> bool {
        self.stores.iter().any(|store| store.header_at(address) == Some(address))
    }

    /// Return the address range [start, end) that is freed when this block is freed.
    pub(crate) fn own_bytes(&self, block: &Block) -> (u64, u64) {
        let store = self.store_of(block.place);
        store.own_bytes(block.place.number, (block.address, block.end))
    }
}
