//! jemalloc 5.1 to 5.3: its extents, the use of each extent, and the blocks that are handed out. No symbols are needed.

pub(crate) mod base;
pub(crate) mod caches;
pub(crate) mod huge;
pub(crate) mod layout;
pub(crate) mod samples;
pub(crate) mod tree;
pub(crate) mod walk;

pub use layout::{form_named, JemallocForm, FORMS};
pub use samples::SampledStack;
pub use tree::{find_trees, FoundTree, TreeShape};
pub use walk::{fit_of, read_jemalloc, ArenaUse, ClassUse, InMotion, Jemalloc, JemallocFit, JemallocRoot};
