//! Looks at different times: all blocks of one as columns, as rows of a table, what lies where, and two of those compared.
#![forbid(unsafe_code)]

mod batches;
mod columns;
mod comparison;
mod places;

pub use batches::{BatchForm, BlockBatch, BlockBatches, Retained};
pub use columns::{list_blocks, BlockColumns};
pub use comparison::{compare_blocks, BlockSums, ComparedBlocks};
pub use places::{LabelledRange, PlaceShare};
