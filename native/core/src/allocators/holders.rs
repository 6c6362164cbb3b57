//! The blocks that pin free memory. In malloc's heaps a used block pins only its own pages, in some other stores it
//! pins a whole slab.

use crate::allocators::block::UsedRange;
use crate::allocators::glibc::chunks::Region;
use crate::allocators::glibc::trim::CHUNK_HEAD;
use crate::allocators::store::Store;
use crate::allocators::tally::Tally;

/// A heap whose free pages can be returned one by one.
#[derive(Clone, Copy)]
pub(crate) struct Heap<'a>(&'a Region);

impl Heap<'_> {
    /// The number of bytes at the start of a free block that cannot be returned: the header and the list links.
    pub(crate) const HEAD: u64 = CHUNK_HEAD;

    pub(crate) fn start(&self) -> u64 {
        self.0.stretch.start
    }

    /// Show the blocks that are not free, in order. `trimmed`: whether to assume that the free end of the heap is
    /// returned too.
    pub(crate) fn show_held(&self, trimmed: bool, show: impl FnMut(UsedRange)) {
        self.0.show_held(trimmed, show);
    }
}

impl Store {
    /// Show each range [start, end) that is returned only when its last block is freed. Also show the number and the
    /// total size of the blocks in use there.
    pub(crate) fn show_wholes(&self, mut show: impl FnMut(u64, u64, Tally)) {
        match self {
            Store::Pools(pools) => {
                pools.arenas.iter().for_each(|arena| show(arena.address, arena.end, pools.used_of(arena)));
            }
            Store::Mimalloc(mimalloc) => mimalloc.pages.iter().for_each(|page| {
                let ((start, end), count) = (page.span(), mimalloc.count_of(page));
                show(start, end, Tally { count, bytes: count * page.size });
            }),
            Store::Mallocng(mallocng) => mallocng.wholes().for_each(|(start, end, used)| show(start, end, used)),
            Store::Oldmalloc(old) => old.wholes().for_each(|(start, end, used)| show(start, end, used)),
            Store::Extents(extents) => extents.runs.runs.iter().enumerate().for_each(|(place, run)| {
                let count = extents.runs.count_of(place);
                show(run.start, run.end(), Tally { count, bytes: count * run.stride });
            }),
            Store::Chunks(_) => (),
            Store::Mapped(_) | Store::Claimed(_) => self.show_blocks(|block| {
                show(block.address, block.end, Tally { count: 1, bytes: block.size });
            }),
        }
    }

    /// Return the heaps whose free pages can be returned one by one.
    pub(crate) fn heaps(&self) -> Vec<Heap<'_>> {
        match self {
            Store::Chunks(chunks) => chunks.regions.iter().map(Heap).collect(),
            _ => Vec::new(),
        }
    }
}
