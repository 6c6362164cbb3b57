//! Damage in an allocator's memory: a result, not an error.

/// A place whose content is wrong: `address`, what is there (`what`), and its expected and found values.
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

/// `expected` and `found` for bytes that are absent: no number was found there, not even zero.
pub(crate) const READABLE: &str = "bytes that can be read";
pub(crate) const ABSENT: &str = "absent bytes";

pub(crate) fn hex(value: u64) -> String {
    format!("{value:#x}")
}
