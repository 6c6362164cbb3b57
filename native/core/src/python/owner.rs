//! The owners of blocks of C code, as a graph gives them to a census.

use crate::allocators::block::Block;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;

/// The owner of a block of C code. `address`: the first byte of the object's block, or a static type's address.
pub enum Owner {
    Object {
        address: u64,
        type_address: u64,
    },
    /// The root's index among the roots with which the graph was drawn.
    Root(u32),
}

/// A graph that knows the owners of blocks.
pub trait Owners: Sync {
    /// Show each block that is not an object and has an owner, with the owner.
    fn each_owner(&self, watcher: &dyn Watcher, show: &mut dyn FnMut(Block, Owner)) -> Result<()>;
}
