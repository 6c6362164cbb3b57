//! What packing the blocks of slabs into fewer slabs would do.

use crate::rows::{all, answers, Range};
use gdbheap_access::memory;
use gdbheap_core::allocators::BlockSlab;
use gdbheap_core::memory_use;

answers! {
    /// Blocks of one size of one allocator. `root`: its index among several. `slabs`: that hold the blocks. `live`:
    /// blocks that cannot be handed out. `free`: blocks that can. `resident`: bytes of the slabs. Packing moves `moved`
    /// blocks, frees `spare` slabs, and makes RSS smaller by `freed` bytes.
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

    /// What packing would do, by size. `going`: [start, end) of the slabs that would be freed, ascending.
    struct Packing { sizes: Vec<PackedSize>, going: Vec<Range> }
}

/// Return what packing the blocks of slabs into fewer slabs would free.
pub fn packed(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&memory::Pages>) -> Packing {
    let (sizes, going) = memory_use::packing(slabs, pages);
    Packing { sizes: all(sizes), going }
}

/// Return what would be freed if all blocks of the slabs were copied first and all old blocks freed after that.
pub fn copied(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&memory::Pages>) -> Packing {
    let (sizes, going) = memory_use::copying(slabs, pages);
    Packing { sizes: all(sizes), going }
}
