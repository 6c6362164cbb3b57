//! Decide which blocks' last words are fields. An allocator rounds sizes up, so the last word of a block may lie after
//! the requested bytes and be older than the block.
//!
//! A single block does not show how much was requested, but blocks of one group do together: if the last word is a
//! field that refers to blocks, it is one in all of them. If few of many blocks have a reference there, or some have
//! another number, these words are weak evidence.

use gdbheap_access::bytes::word_at;
use std::collections::{HashMap, HashSet};

/// Fewer blocks show nothing: a word that points to where something begins then counts as a reference.
const FEW: u64 = 16;
/// In a field at least one block in LEAST has a reference, and at most one in MOST_ODD has another number.
const LEAST: u64 = 3;
const MOST_ODD: u64 = 20;

/// The last words of a group's blocks: how many are references, and how many are not addresses.
#[derive(Clone, Copy, Default)]
struct Counts {
    blocks: u64,
    references: u64,
    odd: u64,
}

impl Counts {
    fn is_field(&self) -> bool {
        self.blocks < FEW || self.references * LEAST >= self.blocks && self.odd * MOST_ODD <= self.blocks
    }
}

/// The last words of the blocks of each group.
#[derive(Default)]
pub(crate) struct Padding(HashMap<u32, Counts>);

/// Classify the first two words of a block as a number below 16: each is zero, an address in the heap according to
/// `may_lead`, or another value.
#[inline(always)]
pub(crate) fn look(head: &[u8], may_lead: impl Fn(u64) -> bool) -> u64 {
    let class = |at: usize| match word_at(head, at).unwrap_or(0) {
        0 => 0,
        word if may_lead(word) => 1,
        _ => 2,
    };
    class(0) << 2 | class(8)
}

/// Return the group of a block, never 0: blocks of its kind or, if that is unknown, blocks of its size whose first
/// words look like its own.
pub(crate) fn group(kind: u32, size: u64, look: u64) -> u32 {
    let key = if kind == 0 { size << 5 | look << 1 } else { u64::from(kind) << 1 | 1 };
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 1
}

impl Padding {
    /// Count the last word of a block of a group. `is_reference`: it is the address of a used block, or of what begins
    /// in one. `is_plain`: it is zero or the address of static data, as a field may be too.
    #[inline(always)]
    pub(crate) fn add(&mut self, group: u32, is_reference: bool, is_plain: impl FnOnce() -> bool) {
        let counts = self.0.entry(group).or_default();
        counts.blocks += 1;
        counts.references += u64::from(is_reference);
        counts.odd += u64::from(!is_reference && !is_plain());
    }

    pub(crate) fn absorb(&mut self, other: Padding) {
        for (group, found) in other.0 {
            let counts = self.0.entry(group).or_default();
            counts.blocks += found.blocks;
            counts.references += found.references;
            counts.odd += found.odd;
        }
    }

    /// Return the groups in whose blocks the last word is a field.
    pub(crate) fn fields(&self) -> HashSet<u32> {
        self.0.iter().filter(|(_, counts)| counts.is_field()).map(|(group, _)| *group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(blocks: u64, references: u64, odd: u64) -> Counts {
        Counts { blocks, references, odd }
    }

    #[test]
    fn fields_are_the_same_in_all_blocks() {
        assert!(counts(1, 1, 0).is_field() && counts(15, 1, 14).is_field());
        assert!(counts(1000, 999, 0).is_field() && counts(1000, 400, 0).is_field());
        assert!(!counts(1000, 30, 0).is_field() && !counts(1000, 600, 200).is_field());
    }

    #[test]
    fn groups_are_kinds_or_sizes_that_look_alike() {
        assert_eq!(group(7, 48, 1), group(7, 64, 2));
        assert_ne!(group(0, 48, 1), group(0, 48, 2));
        assert_ne!(group(0, 48, 1), group(0, 64, 1));
    }
}
