//! A table of the blocks in use, by address.

use super::room::{AddressTable, Room, Table};

/// The number of tables. While a table grows, its old and its new entries are both in memory. If there are many tables,
/// the extra memory of one growing table is a small part of the total.
const TABLES: usize = 32;

pub(super) struct Blocks<'a, V>([AddressTable<'a, V>; TABLES]);

/// Return the index of the table for an address. The bits that give the index are not those that give the entry's position
/// in its table.
#[inline(always)]
fn table_of(address: u64) -> usize {
    ((address >> 4) ^ (address >> 11) ^ (address >> 20)) as usize % TABLES
}

impl<'a, V> Blocks<'a, V> {
    pub(super) fn new(room: &'a Room) -> Blocks<'a, V> {
        Blocks(std::array::from_fn(|_| Table::new(room)))
    }

    /// Insert a block. Return the block that was at this address before. If the `Room` is used up, nothing is inserted.
    #[inline(always)]
    pub(super) fn insert(&mut self, address: u64, block: V) -> Option<V> {
        self.0[table_of(address)].insert(address, block)
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, address: u64) -> Option<V> {
        self.0[table_of(address)].remove(&address)
    }

    #[inline(always)]
    pub(super) fn get(&self, address: u64) -> Option<&V> {
        self.0[table_of(address)].get(&address)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, address: u64) -> Option<&mut V> {
        self.0[table_of(address)].get_mut(&address)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|table| table.len()).sum()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().flat_map(|table| table.values())
    }
}
