//! Classify the blocks of Rust programs.
//!
//! rustc chooses the layout of a struct and may reorder its words. Both orders that 1.63 to 1.95 make are known here;
//! the text in Strings decides which order the Vecs of a program have. The sources are alloc's raw_vec, vec_deque,
//! btree/node.rs and rc.rs, hashbrown's raw.rs, and rustc's vtables (drop_in_place, size, align, methods).

pub(crate) mod buffers;
pub(crate) mod candidates;
pub(crate) mod channels;
pub(crate) mod classification;
pub(crate) mod counts;
pub(crate) mod objects;
pub(crate) mod rows;
pub(crate) mod tables;
pub(crate) mod trees;
pub(crate) mod triples;
