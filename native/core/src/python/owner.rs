//! The owners of blocks of C code, as a graph reports them to a census.

use crate::allocators::block::Block;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;

/// The owner of a block of C code. `address`: the first byte of the owner's block, or the address of a static type.
pub enum Owner {
    Object {
        address: u64,
        type_address: u64,
    },
    /// The owner is the root with this index among the roots with which the graph was built.
    Root(u32),
}

/// A graph that can report the owners of blocks.
pub trait Owners: Sync {
    /// Call `show` with each block that is not an object and has an owner, and with this owner.
    fn each_owner(&self, watcher: &dyn Watcher, show: &mut dyn FnMut(Block, Owner)) -> Result<()>;
}
