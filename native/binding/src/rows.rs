//! Records of the core as the rows that Python takes apart.

use gdbheap_core::allocators::{Damage, Tally};

/// `(address, what, expected, found)`.
pub type DamageRow = (u64, &'static str, String, String);

pub fn damage_row(damage: &Damage) -> DamageRow {
    (damage.address, damage.what, damage.expected.clone(), damage.found.clone())
}

pub fn damage_rows<'a>(damage: impl IntoIterator<Item = &'a Damage>) -> Vec<DamageRow> {
    damage.into_iter().map(damage_row).collect()
}

/// `(count, bytes)`.
pub fn tally_pair(tally: &Tally) -> (u64, u64) {
    (tally.count, tally.bytes)
}
