//! CPython's own mimalloc: its segments, their pages, and which blocks are used.

pub(crate) mod layout;
pub(crate) mod locate;
pub(crate) mod page;
pub(crate) mod parts;
pub(crate) mod segments;

pub use layout::{MimallocLayout, Release};
pub use locate::{find_segments, FoundSegment};
pub use page::Miscounted;
pub use parts::MimallocHole;
pub use segments::{read_mimalloc, Mimalloc, Segment};
