//! All allocators under one interface: the numbers of blocks, the place of each block, and which blocks are used.
//!
//! Code outside this folder sees places and numbers of blocks, never the kind of allocator. The kind is matched once
//! for a job, a group or a query, never for each block of a walk.

use crate::allocators::block::Cell;
use crate::allocators::claimed_blocks::ClaimedBlocks;
use crate::allocators::extents::Extents;
use crate::allocators::glibc::chunks::Chunks;
use crate::allocators::glibc::mapped_chunks::MappedChunks;
use crate::allocators::mallocng::groups::Mallocng;
use crate::allocators::mimalloc::segments::Mimalloc;
use crate::allocators::oldmalloc::chunks::Oldmalloc;
use crate::allocators::part::Part;
use crate::allocators::pymalloc::pools::Pools;
use crate::allocators::tally::Tally;
use gdbheap_access::memory::space::Space;
use std::sync::Arc;

/// The smallest assumed distance in bytes between two neighbouring block sizes. A block may be larger than its request
/// by up to this distance.
const LEAST_STEP: u64 = 32;

/// The memory of an allocator, as a store of numbered blocks.
#[derive(Clone)]
pub enum Store {
    Pools(Arc<Pools>),
    Mimalloc(Arc<Mimalloc>),
    Mallocng(Arc<Mallocng>),
    Oldmalloc(Arc<Oldmalloc>),
    Chunks(Arc<Chunks>),
    Mapped(Arc<MappedChunks>),
    Extents(Arc<Extents>),
    /// Memory in which blocks are not walked. The blocks are known because fields of objects point to them.
    Claimed(Arc<ClaimedBlocks>),
}

impl Store {
    /// Return the word by which answers call the store's blocks or ranges, such as `chunks` or `pools`.
    pub fn name(&self) -> &'static str {
        match self {
            Store::Pools(_) => "pools",
            Store::Mimalloc(_) => "pages",
            Store::Mallocng(_) => "slots",
            Store::Oldmalloc(_) => "heaps",
            Store::Chunks(_) => "chunks",
            Store::Mapped(_) => "mapped",
            Store::Extents(_) => "runs",
            Store::Claimed(claimed) if claimed.closed => "maps",
            Store::Claimed(_) => "claimed",
        }
    }

    /// Return the limit of block numbers: the number of every block is smaller. A bitmap with one bit for each block
    /// has this many bits.
    pub(crate) fn block_numbers(&self) -> u64 {
        match self {
            Store::Pools(pools) => pools.block_numbers(),
            Store::Mimalloc(mimalloc) => mimalloc.block_numbers(),
            Store::Mallocng(mallocng) => mallocng.block_numbers(),
            Store::Oldmalloc(old) => old.block_numbers(),
            Store::Chunks(chunks) => chunks.block_numbers(),
            Store::Mapped(mapped) => mapped.chunks.len() as u64,
            Store::Extents(extents) => extents.runs.block_numbers(),
            Store::Claimed(claimed) => claimed.places.len() as u64,
        }
    }

    /// Return the used block that contains `address`; None if there is none. If only a walk finds out which blocks of
    /// the store are used, the block may be free.
    #[inline(always)]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        match self {
            Store::Pools(pools) => pools.block_at(address),
            Store::Mimalloc(mimalloc) => mimalloc.block_at(address),
            Store::Mallocng(mallocng) => mallocng.block_at(address),
            Store::Oldmalloc(old) => old.block_at(address),
            Store::Chunks(chunks) => chunks.block_at(address),
            Store::Mapped(mapped) => mapped.block_at(address),
            Store::Extents(extents) => extents.runs.block_at(address),
            Store::Claimed(claimed) => claimed.block_at(address),
        }
    }

    /// Return the number of the block whose user address is `address`. None if there is no such block, or if the store
    /// would have to search for it to get its number.
    #[inline(always)]
    pub(crate) fn number_from(&self, address: u64) -> Option<u64> {
        match self {
            Store::Chunks(chunks) => chunks.number_from(address),
            _ => None,
        }
    }

    /// Return the block with this number. The number must come from this store.
    pub(crate) fn block_of(&self, number: u64) -> Cell {
        match self {
            Store::Pools(pools) => pools.block_of(number),
            Store::Mimalloc(mimalloc) => mimalloc.block_of(number),
            Store::Mallocng(mallocng) => mallocng.block_of(number),
            Store::Oldmalloc(old) => old.block_of(number),
            Store::Chunks(chunks) => chunks.block_of(number),
            Store::Mapped(mapped) => mapped.block_of(number),
            Store::Extents(extents) => extents.runs.block_of(number),
            Store::Claimed(claimed) => claimed.block_of(number),
        }
    }

    /// Return whether a walk is needed to find out which blocks of the store are used.
    pub(crate) fn is_told_by_walk(&self) -> bool {
        matches!(self, Store::Pools(_))
    }

    /// Return the number and the total size of the used blocks; zero if only a walk finds out which blocks are used.
    pub(crate) fn used(&self) -> Tally {
        match self {
            Store::Pools(_) => Tally::default(),
            Store::Mimalloc(mimalloc) => mimalloc.used(),
            Store::Mallocng(mallocng) => mallocng.used(),
            Store::Oldmalloc(old) => old.used(),
            Store::Chunks(chunks) => chunks.used(),
            Store::Mapped(mapped) => mapped.used(),
            Store::Extents(extents) => extents.runs.used(),
            Store::Claimed(claimed) => claimed.used(),
        }
    }

    /// Pass the bitmap of used blocks to `show`, in words of 64 bits; the index of a bit is a block's number. Does
    /// nothing if only a walk finds out which blocks are used.
    pub(crate) fn show_words(&self, mut show: impl FnMut(u64)) {
        let all = |count: usize| (0..count).step_by(64).map(move |from| u64::MAX >> (64 - (count - from).min(64)));
        match self {
            Store::Pools(_) => (),
            Store::Mimalloc(mimalloc) => mimalloc.used_words().iter().copied().for_each(show),
            Store::Mallocng(mallocng) => mallocng.used_words().iter().copied().for_each(show),
            Store::Oldmalloc(old) => old.used_words().iter().copied().for_each(show),
            Store::Chunks(chunks) => chunks.regions.iter().for_each(|region| region.used_words().for_each(&mut show)),
            Store::Mapped(mapped) => all(mapped.chunks.len()).for_each(show),
            Store::Extents(extents) => extents.runs.used_words().iter().copied().for_each(show),
            Store::Claimed(claimed) => all(claimed.places.len()).for_each(show),
        }
    }

    /// Show every used block, in ascending order. Nothing is shown if only a walk finds out which blocks are used.
    pub(crate) fn show_blocks(&self, show: impl FnMut(Cell)) {
        let all = |count: usize| (0..count as u64).map(|number| self.block_of(number));
        match self {
            Store::Pools(_) => (),
            Store::Mimalloc(mimalloc) => mimalloc.used_blocks().for_each(show),
            Store::Mallocng(mallocng) => mallocng.used_blocks().for_each(show),
            Store::Oldmalloc(old) => old.used_blocks().for_each(show),
            Store::Chunks(chunks) => chunks.show_blocks(show),
            Store::Mapped(mapped) => all(mapped.chunks.len()).for_each(show),
            Store::Extents(extents) => extents.runs.used_blocks().for_each(show),
            Store::Claimed(claimed) => all(claimed.places.len()).for_each(show),
        }
    }

    /// Show the sizes of the used blocks as `(size, count)`, in the order of the blocks' numbers. `count` returns how
    /// many used blocks have numbers in [from, to).
    pub(crate) fn show_sizes(&self, count: impl Fn(u64, u64) -> u64, mut show: impl FnMut(u64, u64)) {
        match self {
            Store::Pools(pools) => pools.groups().for_each(|(_, group)| {
                show(group.size, count(group.first, group.first + group.count.next_multiple_of(64)));
            }),
            _ => self.show_blocks(|block| show(block.size, 1)),
        }
    }

    /// Show the address ranges [start, end) that together contain all blocks.
    pub(crate) fn show_stretches(&self, mut show: impl FnMut(u64, u64)) {
        match self {
            Store::Pools(pools) => pools.arenas.iter().for_each(|arena| show(arena.address, arena.end)),
            Store::Mimalloc(mimalloc) => mimalloc.segments.iter().for_each(|one| show(one.address, one.end)),
            Store::Mallocng(mallocng) => mallocng.stretches().into_iter().for_each(|(start, end)| show(start, end)),
            Store::Oldmalloc(old) => old.regions().into_iter().for_each(|(start, end)| show(start, end)),
            Store::Chunks(chunks) => {
                chunks.regions.iter().for_each(|region| show(region.stretch.start, region.stretch.end));
            }
            Store::Mapped(mapped) => mapped.chunks.iter().for_each(|(chunk, end)| show(*chunk, *end)),
            Store::Extents(extents) => extents.runs.runs.iter().for_each(|run| show(run.start, run.end())),
            Store::Claimed(claimed) => claimed.places.iter().for_each(|(start, end)| show(*start, *end)),
        }
    }

    /// Show all parts of the region, arena, segment or run that begins at `start`, in address order. Return its end;
    /// None if none begins there.
    pub(crate) fn show_parts(&self, space: &Space, start: u64, show: impl FnMut(u64, u64, Part)) -> Option<u64> {
        match self {
            Store::Pools(pools) => {
                let place = pools.arenas.binary_search_by_key(&start, |arena| arena.address).ok()?;
                pools.parts_of_arena(space, &pools.arenas[place], show);
                Some(pools.arenas[place].end)
            }
            Store::Mimalloc(mimalloc) => {
                let place = mimalloc.segments.binary_search_by_key(&start, |segment| segment.address).ok()?;
                mimalloc.show_parts(space, &mimalloc.segments[place], show);
                Some(mimalloc.segments[place].end)
            }
            Store::Mallocng(mallocng) => mallocng.show_parts(start, show),
            Store::Oldmalloc(old) => old.show_parts(start, show),
            Store::Chunks(chunks) => {
                let region = chunks.region_from(start)?;
                region.show_parts(show);
                Some(region.stretch.end)
            }
            Store::Mapped(mapped) => show_whole(&mapped.chunks, start, show),
            Store::Extents(extents) => extents.show_parts(start, show),
            Store::Claimed(claimed) => show_whole(&claimed.places, start, show),
        }
    }

    /// Return whether type objects may lie in this store. Type objects are large, so they come from the allocator of
    /// large blocks.
    pub(crate) fn may_hold_types(&self) -> bool {
        !matches!(self, Store::Pools(_) | Store::Mapped(_))
    }

    /// Return whether an object may begin at `address`: at or shortly after the start of a used block. The block must
    /// have at least `least` bytes. False for pools and for mmapped chunks.
    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        match self {
            Store::Pools(_) | Store::Mapped(_) => false,
            Store::Mimalloc(mimalloc) => mimalloc.holds_object(address, least),
            Store::Mallocng(mallocng) => mallocng.holds_object(address, least),
            Store::Oldmalloc(old) => old.holds_object(address, least),
            Store::Chunks(chunks) => chunks.holds_object(address, least),
            Store::Extents(extents) => extents.runs.holds_object(address, least),
            Store::Claimed(claimed) => claimed.holds_object(address, least),
        }
    }

    /// Return whether the store may have chosen a block with `usable` bytes for a request of `bytes` bytes.
    pub(crate) fn may_be_given(&self, usable: u64, bytes: u64, page: u64) -> bool {
        // Allocators other than glibc's add at most the step from one block size to the next.
        let added = match self {
            Store::Chunks(_) => return crate::allocators::glibc::chunks::may_be_given(usable, bytes),
            Store::Mapped(_) => page,
            Store::Mallocng(_) => return bytes == usable,
            Store::Oldmalloc(_) => 0,
            _ => usable / 4,
        };
        bytes <= usable && usable - bytes < added + LEAST_STEP
    }

    /// Return the smallest and the largest number of requested bytes for which the store may have chosen a block with
    /// `usable` bytes. `with_rest`: the block may also contain a remainder that was too small for a block of its own.
    pub(crate) fn requests(&self, usable: u64, page: u64, with_rest: bool) -> (u64, u64) {
        use crate::allocators::glibc::chunks::{GRAIN, SMALLEST};
        let step = match self {
            Store::Chunks(_) if usable < SMALLEST => usable,
            Store::Chunks(_) if with_rest && usable < SMALLEST + GRAIN => usable,
            Store::Chunks(_) => GRAIN * (1 + u64::from(with_rest)),
            Store::Mapped(_) => page,
            Store::Mallocng(_) => return (usable, usable),
            Store::Oldmalloc(_) => LEAST_STEP * (1 + u64::from(with_rest)),
            _ => usable / 4 + LEAST_STEP,
        };
        (usable.saturating_sub(step) + 1, usable)
    }

    /// Return whether gdbheap must never read the bytes of the store's blocks.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Store::Claimed(claimed) if claimed.closed)
    }

    /// Return whether the store's blocks lie between headers, without gaps, so that each header states the size of a
    /// block.
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self, Store::Chunks(_))
    }

    /// Return the user address and the size of the block that contains `address`, according to the headers of blocks.
    /// The block may be used or free. None for allocators without headers between blocks.
    pub(crate) fn slot_at(&self, address: u64) -> Option<(u64, u64)> {
        match self {
            Store::Chunks(chunks) => chunks.slot_at(address),
            _ => None,
        }
    }

    /// Return the start of the header of the block that `slot_at` finds. None if the store has no headers, or if there
    /// is no block.
    pub(crate) fn header_at(&self, address: u64) -> Option<u64> {
        match self {
            Store::Chunks(chunks) => chunks.locate(address).map(|(start, ..)| start),
            _ => None,
        }
    }

    /// Return the range [start, end) that is freed with the block that has this number. It is the block's whole mapping
    /// or slot, or else `bytes`, the range of the block itself.
    pub(crate) fn own_bytes(&self, number: u64, bytes: (u64, u64)) -> (u64, u64) {
        match self {
            Store::Mapped(mapped) => mapped.chunks[number as usize],
            Store::Mallocng(mallocng) => mallocng.slot_of(number),
            _ => bytes,
        }
    }
}

/// Show the range of `ranges` that begins at `start` as one used block. Return its end; None if no range begins there.
fn show_whole(ranges: &[(u64, u64)], start: u64, mut show: impl FnMut(u64, u64, Part)) -> Option<u64> {
    let place = ranges.binary_search_by_key(&start, |range| range.0).ok()?;
    show(start, ranges[place].1, Part::Used);
    Some(ranges[place].1)
}
