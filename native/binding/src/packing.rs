//! What packing the blocks of slabs would do.

use crate::rows::{all, answers, Range};
use gdbheap_access::memory;
use gdbheap_core::allocators::BlockSlab;
use gdbheap_core::memory_use;

answers! {
    /// Blocks of one size of the allocator at the place `root` among several: in how many slabs they lie, how many cannot be given
    /// out (`live`), how many can, and the resident bytes of the slabs. Packed, `spare` slabs would go, after `moved` blocks were
    /// moved, and RSS would be smaller by `freed`.
    struct PackedSize of memory_use::PackedSize {
        root: u32,
        size: u64,
        slabs: u64,
        live: u64,
        free: u64,
        resident: u64,
        spare: u64,
        moved: u64,
        freed: u64,
    }

    /// What packing would do, by size, and [start, end) of the slabs that would go, ascending.
    struct Packing { sizes: Vec<PackedSize>, going: Vec<Range> }
}

/// What packing slabs would do.
pub fn packed(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&memory::Pages>) -> Packing {
    let (sizes, going) = memory_use::packing(slabs, pages);
    Packing { sizes: all(sizes), going }
}

/// What copying all blocks before the first old one is freed would do.
pub fn copied(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&memory::Pages>) -> Packing {
    let (sizes, going) = memory_use::copying(slabs, pages);
    Packing { sizes: all(sizes), going }
}
