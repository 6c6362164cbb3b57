//! mimalloc, as CPython's own copy and as a library: its segments, their pages, and the used blocks in the pages.

pub(crate) mod areas;
pub(crate) mod layout;
pub(crate) mod locate;
pub(crate) mod maps;
pub(crate) mod page;
pub(crate) mod parts;
pub(crate) mod segments;
pub(crate) mod spans;

pub use layout::{form_named, MimallocForm, FORMS};
pub use locate::{find_segments, FoundSegment};
pub use maps::{find_page_maps, map_tables, FoundMap};
pub use page::CountMismatch;
pub use segments::{fit_of, owners_of, read_mimalloc, Fit, HeapUse, Mimalloc, MimallocRoot};
pub use spans::Segment;
