//! The description of damage in an allocator's memory. Damage is a result of a walk, not an error.

/// A place in an allocator's memory whose content is wrong, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub address: u64,
    /// The name of the structure at `address`.
    pub what: &'static str,
    pub expected: String,
    pub found: String,
    /// Whether the memory at `address` is missing. If not, its content is wrong.
    pub is_absent: bool,
}

impl Damage {
    pub(crate) fn new(
        address: u64,
        what: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Damage {
        Damage { address, what, expected: expected.into(), found: found.into(), is_absent: false }
    }

    /// Describe bytes that cannot be read. The found value is then a phrase, because any number, even zero, would be
    /// false.
    pub(crate) fn absent(address: u64, what: &'static str) -> Damage {
        Damage { is_absent: true, ..Damage::new(address, what, "bytes that can be read", "absent bytes") }
    }
}

pub(crate) fn hex(value: u64) -> String {
    format!("{value:#x}")
}
