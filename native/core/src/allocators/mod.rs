//! Who hands out a target's memory, and which of it is handed out.
#![forbid(unsafe_code)]

pub(crate) mod claimed;
pub(crate) mod damage;
pub mod glibc;
pub(crate) mod heaps;
pub(crate) mod list_heads;
pub mod mimalloc;
pub mod pymalloc;
pub(crate) mod sample;
pub(crate) mod spread;
pub(crate) mod tally;

pub use claimed::Claimed;
pub use damage::Damage;
pub use heaps::{Heaps, SharedHeaps};
pub use list_heads::find_list_heads;
pub use tally::Tally;
