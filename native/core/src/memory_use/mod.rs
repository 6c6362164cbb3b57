//! Analyses of a target's memory: its resident pages, its free memory and the contents of blocks.
#![forbid(unsafe_code)]

pub(crate) mod content_kind;
pub(crate) mod contents;
pub(crate) mod copies;
pub(crate) mod packing;
pub(crate) mod pins;
pub(crate) mod sweep;
pub(crate) mod written_pages;

pub use content_kind::look_at;
pub use contents::{read_once, zero_pages, WINDOW};
pub use copies::{find_copies, CopyRemains};
pub use packing::{copying, packing, PackedSize};
pub use pins::{pins, PinRules, Pins, Totals};
pub use sweep::{OwnerRow, Owners, Sum, Sweep};
pub use written_pages::{
    compare, page_marks, pages_of_types, written, ComparedPages, CountsOf, WordOwners, WrittenPages,
};
