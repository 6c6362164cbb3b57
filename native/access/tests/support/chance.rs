//! Random numbers that can be repeated.
#![allow(dead_code)]

use std::time::{SystemTime, UNIX_EPOCH};

/// The generator splitmix64, which has only a few lines and is good enough to make random heaps.
pub struct Chance(u64);

impl Chance {
    /// Create a generator. It takes its seed from GDBHEAP_SEED, or else makes a new one. The seed is printed, so that a
    /// failed test can be repeated.
    pub fn new(test: &str) -> Chance {
        let fresh = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
        let seed = std::env::var("GDBHEAP_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(fresh);
        println!("{test}: GDBHEAP_SEED={seed}");
        Chance(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end.max(1)
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Return a word as hostile memory may contain it: a pointer, a size, a small number, or one of the largest or
    /// smallest words.
    pub fn hostile(&mut self, near: u64) -> u64 {
        match self.below(8) {
            0 => self.word(),
            1 => self.below(64),
            2 => u64::MAX - self.below(64),
            3 => near.wrapping_add(self.below(1 << 16)),
            4 => near.wrapping_add(self.below(1 << 16)) & !15,
            5 => self.below(1 << 12) & !15 | self.below(8),
            6 => 1 << self.below(64),
            _ => 0,
        }
    }
}
