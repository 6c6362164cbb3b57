//! The whole reference graph of a target: numbers for blocks, edges in compressed rows, shortest chains, dominators,
//! and garbage.
#![forbid(unsafe_code)]

pub(crate) mod branching;
pub(crate) mod components;
pub(crate) mod csr;
pub(crate) mod dominators;
pub(crate) mod drawing;
pub(crate) mod edges;
pub(crate) mod garbage;
pub(crate) mod groups;
pub(crate) mod hidden;
pub(crate) mod ids;
pub(crate) mod keeping;
pub(crate) mod listing;
pub(crate) mod lost;
pub(crate) mod marks;
pub(crate) mod missing;
pub(crate) mod owning;
pub(crate) mod padding;
pub(crate) mod passes;
pub(crate) mod plain;
pub(crate) mod proof;
pub(crate) mod rounds;
pub(crate) mod shapes;
pub(crate) mod shares;
pub(crate) mod sharing;
pub(crate) mod together;
pub(crate) mod tree;
pub(crate) mod unreachable;
pub(crate) mod whole;

pub use branching::{Branch, Hanging};
pub use drawing::{draw_graph, static_types, Root};
pub use groups::{Grouped, RetainedByGroup};
pub use keeping::{find_kept, Bounds, Kept, KeptNode, KeptPart};
pub use listing::{EdgeColumns, NodeColumns};
pub use lost::Head;
pub use plain::{draw_blocks, Tables};
pub use shapes::{Form, FrameLayout, GraphLayout, KeysLayout};
pub use shares::{Labelled, Several, SharedBlocks};
pub use sharing::{AlsoHeld, Other};
pub use unreachable::{Cause, CollectorFacts, Lost, Unreachable};
pub use whole::{Graph, NodeRow, RetainedByType};
