//! Store a value for each block in use, by the block's address.

use super::memory_limit::{AddressTable, LimitedTable, Room};

/// The number of tables. While a table grows, its old and its new entries are both in memory. If there are many tables,
/// the extra memory of one growing table is a small part of the total.
const TABLES: usize = 32;

pub(super) struct Blocks<'a, V>([AddressTable<'a, V>; TABLES]);

/// Return the index of the table for an address. Within a table, other bits of the address choose the slot. With the
/// same bits, all addresses of a table would share few slots.
#[inline(always)]
fn table_of(address: u64) -> usize {
    ((address >> 4) ^ (address >> 11) ^ (address >> 20)) as usize % TABLES
}

impl<'a, V> Blocks<'a, V> {
    pub(super) fn new(room: &'a Room) -> Blocks<'a, V> {
        Blocks(std::array::from_fn(|_| LimitedTable::new(room)))
    }

    /// Insert a block. Return the block that was at this address before; None if there was none. If the memory limit
    /// (`Room`) is reached, nothing is inserted.
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
