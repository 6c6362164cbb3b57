//! The description of damage in an allocator's memory. Damage is a result of a walk, not an error.

/// A place in an allocator's memory whose content is wrong: `address`, the name of the structure there (`what`), and
/// its expected and found values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub address: u64,
    pub what: &'static str,
    pub expected: String,
    pub found: String,
}

impl Damage {
    pub(crate) fn new(
        address: u64,
        what: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Damage {
        Damage { address, what, expected: expected.into(), found: found.into() }
    }
}

/// The texts of `expected` (READABLE) and of `found` (ABSENT) for bytes that are absent. There is then no number to
/// report, not even zero.
pub(crate) const READABLE: &str = "bytes that can be read";
pub(crate) const ABSENT: &str = "absent bytes";

pub(crate) fn hex(value: u64) -> String {
    format!("{value:#x}")
}
