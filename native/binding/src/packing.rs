//! Computes the effect of packing the blocks of slabs into fewer slabs.

use crate::rows::{all, answers, exports, Range};
use gdbheap_access::memory;
use gdbheap_core::allocators::BlockSlab;
use gdbheap_core::memory_use;

answers! {
    /// The blocks of one size of one allocator, and what packing them would free.
    ///
    /// - `root`: the index of the allocator, if there are several.
    /// - `slabs`, `resident`: the number of slabs that contain the blocks, and the resident bytes of these slabs.
    /// - `live`, `free`: the numbers of blocks that cannot, and that can, be handed out.
    /// - `moved`, `spare`, `freed`: packing would move this many blocks, free this many slabs, and make RSS smaller by
    ///   this many bytes.
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

    /// The effect of packing, by block size. `going`: the ranges [start, end) of the slabs that packing would free,
    /// ascending.
    struct Packing { sizes: Vec<PackedSize>, going: Vec<Range> }
}

exports! {}

/// Return the memory that would be freed if the blocks of slabs were packed into fewer slabs.
pub fn packed(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&memory::Pages>) -> Packing {
    let (sizes, going) = memory_use::packing(slabs, pages);
    Packing { sizes: all(sizes), going }
}

/// Return the memory that would be freed if all blocks of the slabs were first copied and then all old blocks freed.
pub fn copied(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&memory::Pages>) -> Packing {
    let (sizes, going) = memory_use::copying(slabs, pages);
    Packing { sizes: all(sizes), going }
}
