//! What is wrong in the memory of an allocator: a result, not an error.

/// What lies at `address` is not what it must be.
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

/// What is said of bytes that are cut off: no number, not even zero, was found there.
pub(crate) const READABLE: &str = "bytes that can be read";
pub(crate) const ABSENT: &str = "absent bytes";

pub(crate) fn hex(value: u64) -> String {
    format!("{value:#x}")
}
