//! The owners of blocks of C code, as a census asks a graph for them.

use crate::allocators::block::Block;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;

/// The owner of a block of C code. `address`: the first byte of the object's block, or a static type's.
pub enum Owner {
    Object {
        address: u64,
        type_address: u64,
    },
    /// The place among the roots that the graph was drawn with.
    Root(u32),
}

/// A graph that knows the owners of blocks.
pub trait Owners: Sync {
    /// Shows each block that is no object and has an owner, with that.
    fn each_owner(&self, watcher: &dyn Watcher, show: &mut dyn FnMut(Block, Owner)) -> Result<()>;
}
