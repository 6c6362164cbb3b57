//! Room that containers have allocated and do not use.

pub(crate) mod slack;
pub(crate) mod tables;

pub use slack::{list_slack, Growing, Slack, WantedSlack};
pub use tables::{Entries, Table};
