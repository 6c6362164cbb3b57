//! The use of address space, by page, by block and by hole.
#![forbid(unsafe_code)]

pub(crate) mod content_kind;
pub(crate) mod contents;
pub(crate) mod copies;
pub(crate) mod packing;
pub(crate) mod pins;
pub(crate) mod sweep;
pub(crate) mod written;

pub use content_kind::look_at;
pub use contents::{read_once, zero_pages, WINDOW};
pub use copies::{find_copies, Copied};
pub use packing::{copying, packing, PackedSize};
pub use pins::{pins, Kept, Pins, Totals};
pub use sweep::{Owners, Row, Sum, Sweep};
pub use written::{compare, page_marks, pages_of_types, written, Compared, CountsOf, Explained, Written};
