//! The blocks of a CPython process: the objects, their types, and the blocks that objects own.
#![forbid(unsafe_code)]

pub(crate) mod census;
pub(crate) mod chunk_objects;
pub(crate) mod claims;
pub mod containers;
pub(crate) mod counts;
pub(crate) mod dict_keys;
pub(crate) mod estimate;
pub(crate) mod instances;
pub(crate) mod layout;
pub(crate) mod marks;
pub(crate) mod owner;
pub(crate) mod reach;
pub(crate) mod sizing;
pub(crate) mod slabs;
pub(crate) mod strays;
pub(crate) mod traces;
pub(crate) mod types;
pub(crate) mod unwalked;
pub(crate) mod values;
pub(crate) mod votes;

pub use census::{objects_in, take_census, Census, CensusRequest, OwnedBuffers, StoreRow, TypeRow};
pub use chunk_objects::list_objects;
pub use dict_keys::TableHead;
pub use estimate::{estimate_types, Estimate};
pub use instances::{asked_sizes, list_instances, Instance, Instances, ObjectOrder, WantedInstances};
pub use layout::{Claim, Extent, Family, Slab, TypeLayout};
pub use owner::{Owner, Owners};
pub use sizing::SizeFields;
pub use traces::{count_traces, TraceTable, TracebackSum, Traces};
pub use unwalked::{find_claimed, Measures};
pub use values::{
    equal_objects, equal_values, tally_objects, value_hashes, EqualGroup, EqualObject, KindSum, Values, WantedValues,
};
pub use votes::{sample_types, vote_distances};
