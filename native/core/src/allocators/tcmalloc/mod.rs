//! tcmalloc of gperftools 2.7 to 2.18: its spans, the use of each span, and the blocks that are handed out. No symbols
//! are needed. The allocator of the same name from google/tcmalloc is a different one.

pub(crate) mod caches;
pub(crate) mod chains;
pub(crate) mod layout;
pub(crate) mod map;
pub(crate) mod metadata;
pub(crate) mod walk;

pub use layout::{MapShape, SHAPES};
pub use map::{find_page_maps, FoundMap};
pub use walk::{fit_of, read_tcmalloc, CacheUse, InMotion, SizeUse, Tcmalloc, TcmallocFit, TcmallocRoot, TcmallocUse};
