//! Allocators: the memory that each of them has, and the blocks in it that are in use.
#![forbid(unsafe_code)]

pub(crate) mod block;
pub(crate) mod block_list;
pub(crate) mod claimed_blocks;
pub(crate) mod damage;
pub(crate) mod evidence;
pub(crate) mod extents;
pub mod glibc;
pub(crate) mod groups;
pub(crate) mod heaps;
pub(crate) mod holders;
pub(crate) mod holes;
pub mod jemalloc;
pub(crate) mod list_heads;
pub(crate) mod listing;
pub mod mallocng;
pub mod mimalloc;
pub mod oldmalloc;
pub(crate) mod part;
pub mod pymalloc;
pub(crate) mod roots;
pub(crate) mod runs;
pub(crate) mod sample;
pub(crate) mod slab;
pub(crate) mod spread;
pub(crate) mod store;
pub(crate) mod tally;
pub mod tcmalloc;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod walk;

pub use block_list::{BlockList, BlockOrder, BlockQuery, BlockRow};
pub use claimed_blocks::ClaimedBlocks;
pub use damage::Damage;
pub use extents::{Area, ExtentPart, Extents, Use};
pub use heaps::{Heaps, SharedHeaps};
pub use holes::Hole;
pub use list_heads::find_list_heads;
pub use listing::BlockLister;
pub use part::{Part, PARTS};
pub use runs::{Run, Runs};
pub use slab::BlockSlab;
pub use store::Store;
pub use tally::Tally;
