//! musl's mallocng: groups of equal slots, the blocks in the slots, and the requested size of each block.

pub(crate) mod groups;
pub(crate) mod layout;
pub(crate) mod locate;
pub(crate) mod parts;
pub(crate) mod read;
pub(crate) mod slots;

pub use groups::{Group, Mallocng, Misfit, Usage};
pub use locate::{find_contexts, FoundContext};
pub use read::read_mallocng;
