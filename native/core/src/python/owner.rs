//! Whose blocks of C code are, as a census asks a graph.

use crate::allocators::block::Block;
use crate::error::Result;
use crate::work::Watcher;

/// Whose a block of C code is. `address`: the first byte of the object's block, or a static type's.
pub enum Owner {
    Object {
        address: u64,
        type_address: u64,
    },
    /// By its place among the roots that the graph was drawn with.
    Root(u32),
}

/// What tells the owners of blocks.
pub trait Owners: Sync {
    /// Shows each block that is no object and has an owner, with that.
    fn each_owner(&self, watcher: &dyn Watcher, show: &mut dyn FnMut(Block, Owner)) -> Result<()>;
}
