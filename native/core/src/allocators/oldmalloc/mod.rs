//! musl's malloc before 1.2.1: chunks between headers, in heaps and in mappings of their own.

pub(crate) mod bins;
pub(crate) mod chunks;
pub(crate) mod layout;
pub(crate) mod locate;
pub(crate) mod parts;
pub(crate) mod read;

pub use chunks::Oldmalloc;
pub use locate::find_bins;
pub use read::{read_oldmalloc, ChunkRanges};
