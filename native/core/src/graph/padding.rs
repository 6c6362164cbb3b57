//! Decide in which blocks the last word is a field. An allocator rounds sizes up, so the last word of a block may lie
//! after the requested bytes and be older than the block.
//!
//! A single block does not show how many bytes were requested, but a group of like blocks does. If the last word is a
//! field that refers to blocks, it is such a field in all blocks of the group. If only few of many blocks have a
//! reference there, or if some blocks have a number there that is not an address, these words are weak evidence.

use gdbheap_access::bytes::word_at;
use std::collections::{HashMap, HashSet};

/// The smallest number of blocks in a group that can show that its last words are not fields. In a smaller group, the
/// last word counts as a field.
const FEW: u64 = 16;
/// The last word of a group's blocks counts as a field only if at least one block in this many has a reference there.
const LEAST: u64 = 3;
/// The last word of a group's blocks counts as a field only if at most one block in this many has another number there
/// (`Counts::odd`).
const MOST_ODD: u64 = 20;

/// The counts of the last words of a group's blocks. `references`: how many are references; `odd`: how many are neither
/// references, nor zero, nor addresses of static data.
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

/// For each group, the counts of the last words of its blocks.
#[derive(Default)]
pub(crate) struct Padding(HashMap<u32, Counts>);

/// Classify the first two words of a block, and return the two classes as a number below 16. A word is zero, an address
/// in the heap according to `may_lead`, or another value.
#[inline(always)]
pub(crate) fn look(head: &[u8], may_lead: impl Fn(u64) -> bool) -> u64 {
    let class = |at: usize| match word_at(head, at).unwrap_or(0) {
        0 => 0,
        word if may_lead(word) => 1,
        _ => 2,
    };
    class(0) << 2 | class(8)
}

/// Return the number of a block's group, which is never 0. A group consists of all blocks of one kind. If the kind is
/// unknown, it consists of the blocks of one size whose first words have the same classes (`look`).
pub(crate) fn group(kind: u32, size: u64, look: u64) -> u32 {
    let key = if kind == 0 { size << 5 | look << 1 } else { u64::from(kind) << 1 | 1 };
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 1
}

impl Padding {
    /// Count the last word of one block of a group. `is_reference`: the word is the address of a used block, or of
    /// something that begins inside a used block. `is_plain`: the word is zero or the address of static data. A field
    /// may have such values too.
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

    /// Return the numbers of the groups in which the last word of each block is a field.
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
