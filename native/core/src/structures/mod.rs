//! Classify the blocks of C++ and Rust programs. No symbols or debug information are needed: a container is proven by
//! the links and counts in its own blocks.
#![forbid(unsafe_code)]

pub(crate) mod capacity;
pub(crate) mod chunk_kinds;
pub(crate) mod classification;
pub(crate) mod finding;
pub(crate) mod kinds;
pub(crate) mod mapping_blocks;
pub(crate) mod matching;
pub(crate) mod proving;
pub(crate) mod rust;
pub(crate) mod search_input;
pub(crate) mod settling;
pub(crate) mod vtables;

pub use capacity::Capacity;
pub use classification::{class_at, find_structures, Structures};
pub use kinds::{Family, KindRow};
pub use mapping_blocks::{find_mapped, MappedBy};
pub use matching::{blocks_with, WordMatch};
pub use search_input::Libraries;
