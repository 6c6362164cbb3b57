//! The whole reference graph of a target: numbers for blocks, edges in compressed rows, shortest chains, dominators,
//! and garbage.
#![forbid(unsafe_code)]

pub(crate) mod branching;
pub(crate) mod components;
pub(crate) mod counted;
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
pub(crate) mod queries;
pub(crate) mod retained_set;
pub(crate) mod rounds;
pub(crate) mod shapes;
pub(crate) mod shares;
pub(crate) mod sharing;
pub(crate) mod tree;
pub(crate) mod unreachable;

pub use branching::{Branch, SubtreeBytes};
pub use drawing::{draw_graph, static_types, Root};
pub use groups::{BlockGroup, RetainedByGroup};
pub use keeping::{find_kept, Bounds, KeptNode, KeptNodes, KeptPart};
pub use listing::{EdgeColumns, NodeColumns};
pub use lost::LostHead;
pub use plain::{draw_blocks, Tables};
pub use queries::{Graph, NodeRow, RetainedByType};
pub use shapes::{Form, FrameLayout, GraphLayout, KeysLayout};
pub use shares::{LabelledGroup, SharedBlocks, SharedType};
pub use sharing::{AlsoHeld, OtherHolder};
pub use unreachable::{Cause, CollectorFacts, LostGroup, Unreachable};
