//! Classify the blocks of C++ and Rust programs. The proofs use the bytes of several blocks.
#![forbid(unsafe_code)]

pub(crate) mod capacity;
pub(crate) mod chunk_kinds;
pub(crate) mod finding;
pub(crate) mod kinds;
pub(crate) mod look;
pub(crate) mod mapped;
pub(crate) mod matching;
pub(crate) mod proving;
pub(crate) mod rust;
pub(crate) mod settling;
pub(crate) mod vtables;
pub(crate) mod whole;

pub use capacity::Capacity;
pub use kinds::{Family, KindRow};
pub use look::Libraries;
pub use mapped::{find_mapped, MappedBy};
pub use matching::{blocks_with, Matched};
pub use whole::{class_at, find_structures, Structures};
