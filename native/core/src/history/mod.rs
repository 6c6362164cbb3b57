//! Snapshots: all blocks of a target as columns, as rows of a table, and summed up by address range; and the comparison
//! of two snapshots.
#![forbid(unsafe_code)]

mod batches;
mod columns;
mod comparison;
mod places;

pub use batches::{BatchForm, BlockBatch, BlockBatches, RetainedBytes};
pub use columns::{list_blocks, BlockColumns};
pub use comparison::{compare_blocks, BlockSums, ComparedBlocks};
pub use places::{LabelledRange, PlaceShare};
