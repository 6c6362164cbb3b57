//! A limit for the memory of the tables that are made from a log. It is needed because forty bytes of a log can claim
//! megabytes.
//!
//! A table asks for more bytes only before it grows. That is rare, so the hot loops stay as fast as without a limit. A
//! table that reached the limit lacks entries. `Room::check` then fails after the stage, and no answer is given.

use crate::by_address::ByAddress;
use gdbheap_access::error::{Error, Result};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A limit for the memory of all tables made from a log: the number of bytes that they may still take together.
pub struct Room {
    left: AtomicU64,
    is_exceeded: AtomicBool,
}

impl Room {
    pub fn new(bytes: u64) -> Room {
        Room { left: AtomicU64::new(bytes), is_exceeded: AtomicBool::new(false) }
    }

    /// Fail if a table could not grow because the memory limit was reached.
    pub(super) fn check(&self) -> Result<()> {
        match self.is_exceeded.load(Ordering::Relaxed) {
            true => Err(Error::Memory("there is no memory for what the log claims")),
            false => Ok(()),
        }
    }

    /// Make the next `check` fail, as if the memory limit were reached. A plan that cannot be written ends in this way.
    pub(super) fn exceed(&self) {
        self.is_exceeded.store(true, Ordering::Relaxed);
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        if taken.is_err() {
            self.exceed();
        }
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Bytes of the memory limit (`Room`) that one table takes. They are given back to the limit when the claim is dropped.
pub(super) struct Claim<'a> {
    room: &'a Room,
    bytes: u64,
}

impl<'a> Claim<'a> {
    pub(super) fn new(room: &'a Room) -> Claim<'a> {
        Claim { room, bytes: 0 }
    }

    /// Take `bytes` more of the memory limit. Return false, and take nothing, if fewer are left.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let taken = self.room.take(bytes);
        self.bytes += if taken { bytes } else { 0 };
        taken
    }

    pub(super) fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.room.give_back(bytes);
        self.bytes -= bytes;
    }

    /// Replace the claimed memory by memory that `make` allocates. `wanted`: the largest size in bytes that `make` may
    /// allocate; it returns the real size. Return false if the limit or the machine's memory does not suffice.
    fn renew(&mut self, wanted: u64, make: impl FnOnce() -> Option<u64>) -> bool {
        let before = self.bytes;
        // For a moment, the old and the new memory exist at the same time.
        if !self.take(wanted) {
            return false;
        }
        let made = make();
        if made.is_none() {
            self.room.exceed();
        }
        self.give_back((before + wanted).saturating_sub(made.unwrap_or(before)));
        made.is_some()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.room.give_back(self.bytes);
    }
}

/// A list that grows only within the memory limit.
pub(super) struct List<'a, T> {
    list: Vec<T>,
    claim: Claim<'a>,
}

impl<'a, T> List<'a, T> {
    pub(super) fn new(room: &'a Room) -> List<'a, T> {
        List { list: Vec::new(), claim: Claim::new(room) }
    }

    /// Append an element. Return false, and append nothing, if the memory limit is reached.
    #[inline(always)]
    pub(super) fn push(&mut self, element: T) -> bool {
        let fits = self.list.len() < self.list.capacity() || self.grow();
        if fits {
            self.list.push(element);
        }
        fits
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.list.pop()
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let List { list, claim } = self;
        let more = list.capacity().max(4);
        let bytes = |capacity: usize| (capacity * size_of::<T>()) as u64;
        claim.renew(bytes(list.capacity() + more), || {
            list.try_reserve_exact(more).ok()?;
            Some(bytes(list.capacity()))
        })
    }
}

impl<T> Deref for List<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.list
    }
}

impl<T> DerefMut for List<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.list
    }
}

/// A table that grows only within the memory limit. `M`: the type of its map.
pub(super) struct LimitedTable<'a, M> {
    map: M,
    claim: Claim<'a>,
}

/// A table whose keys are addresses or other numbers.
pub(super) type AddressTable<'a, V> = LimitedTable<'a, ByAddress<V>>;

impl<'a, M: Default> LimitedTable<'a, M> {
    pub(super) fn new(room: &'a Room) -> LimitedTable<'a, M> {
        LimitedTable { map: M::default(), claim: Claim::new(room) }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> LimitedTable<'_, HashMap<K, V, S>> {
    /// Insert a value. Return the previous value of the key; None if there was none. If the memory limit is reached,
    /// nothing is inserted.
    #[inline(always)]
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.map.len() < self.map.capacity() || self.grow() {
            self.map.insert(key, value)
        } else {
            None
        }
    }

    /// Return the value of a key. If the key is missing, insert it with the result of `value`. None if the memory limit
    /// is reached.
    pub(super) fn get_or_insert(&mut self, key: K, value: impl FnOnce() -> V) -> Option<&mut V> {
        let fits = self.map.len() < self.map.capacity() || self.map.contains_key(&key) || self.grow();
        fits.then(|| self.map.entry(key).or_insert_with(value))
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.map.remove(key)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key)
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = (K, V)> + '_ {
        self.map.drain()
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let LimitedTable { map, claim } = self;
        let half = bytes_of::<(K, V)>(2 * (map.len() + 1));
        // A table that is full of removed entries is cleaned up in place, without new memory.
        let wanted = if half <= claim.bytes { 0 } else { half.max(2 * claim.bytes) };
        claim.renew(wanted, || {
            map.try_reserve(1).ok()?;
            Some(bytes_of::<(K, V)>(map.capacity()))
        })
    }
}

impl<M> Deref for LimitedTable<'_, M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.map
    }
}

/// Return the size in bytes of a Rust hash table for `capacity` entries. The number of its slots is a power of two. An
/// eighth of the slots stays free. Each slot has one byte more than the entry.
fn bytes_of<E>(capacity: usize) -> u64 {
    let places = (capacity as u64).saturating_mul(8).div_ceil(7).max(4).next_power_of_two();
    places.saturating_mul(size_of::<E>() as u64 + 1) + 16
}

#[cfg(test)]
mod tests {
    use super::super::testing::random;
    use super::*;

    fn left(room: &Room) -> u64 {
        room.left.load(Ordering::Relaxed)
    }

    /// Check that a table has all inserted entries unless the memory limit is reached. Check that the table gives back
    /// all bytes at the end.
    #[test]
    fn a_table_without_room_does_not_grow() {
        for bytes in [0, 100, 1000, 50_000, 1 << 20] {
            let room = Room::new(bytes);
            {
                let mut table: AddressTable<'_, u64> = LimitedTable::new(&room);
                let put = (0..10_000u64).take_while(|number| {
                    table.insert(*number, *number);
                    assert_eq!(table.contains_key(number), room.check().is_ok());
                    room.check().is_ok()
                });
                let put = put.count();
                assert_eq!(table.len(), put);
                assert!(put == 10_000 || (put as u64) <= bytes / 16, "{put} in {bytes} bytes");
                assert_eq!(table.claim.bytes + left(&room), bytes);
            }
            assert_eq!(left(&room), bytes);
        }
    }

    /// Check that a table claims only the bytes that its slots take, however often entries are inserted and removed.
    #[test]
    fn what_was_removed_is_claimed_once() {
        let room = Room::new(1 << 20);
        let mut table: AddressTable<'_, u64> = LimitedTable::new(&room);
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for number in 0..200_000u64 {
            table.insert(random(&mut state), number);
            let some = table.keys().next().copied().unwrap_or(0);
            if table.len() > 200 {
                table.remove(&some);
            }
            assert!(table.claim.bytes <= bytes_of::<(u64, u64)>(512), "{} after {number}", table.claim.bytes);
        }
        assert!(room.check().is_ok());
    }

    #[test]
    fn a_list_without_room_does_not_grow() {
        let room = Room::new(10_000);
        let mut list: List<'_, u64> = List::new(&room);
        let put = (0..10_000).take_while(|number| list.push(*number)).count();
        assert!(put == list.len() && (256..1250).contains(&put), "{put}");
        assert!(room.check().is_err());
    }
}
