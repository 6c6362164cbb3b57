//! Looks at different times: all blocks of one as columns, and two of those compared.
#![forbid(unsafe_code)]

mod columns;
mod comparison;

pub use columns::{list_blocks, BlockColumns};
pub use comparison::{compare_blocks, BlockSums, ComparedBlocks};
