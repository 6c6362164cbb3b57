//! Find the memory that containers have allocated but do not use.

pub(crate) mod fill;
pub(crate) mod slack;
pub(crate) mod tables;

pub use fill::{count_fill, Fill, WantedFill};
pub use slack::{list_slack, GrowthRule, Slack, WantedSlack};
pub use tables::{Entries, TableRule};
