//! Maps and sets whose keys are addresses.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A hasher that multiplies an address by a fixed constant. That is good enough for addresses, and fast; look-ups by
/// address are the most frequent look-ups.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (value ^ (value >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

pub(crate) type ByAddress<V> = HashMap<u64, V, BuildHasherDefault<AddressHasher>>;
pub(crate) type Addresses = HashSet<u64, BuildHasherDefault<AddressHasher>>;
