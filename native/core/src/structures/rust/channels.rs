//! Prove channels of std::sync::mpsc, and of crossbeam, from which std took its channels. A channel is a list of
//! blocks, each for 31 messages.
//!
//! Both ends of a channel are positions on cache lines of their own. A position consists of an index and a pointer to a
//! block (std's mpmc/list.rs). In an index, each block counts as 32 messages, and the lowest bit is a flag. The proof
//! is: the links from the first block reach the last block after as many blocks as the indices say, and each message in
//! the first and in the last block has a valid state.

use crate::by_address::Addresses;
use crate::structures::kinds::UNKNOWN;
use crate::structures::search_input::SearchInput;
use gdbheap_access::memory::reader::Reader;

/// The alignment of CachePadded in bytes, on the known machines.
pub(crate) const LINE: u64 = 128;
const LAP: u64 = 32;
const MESSAGES: u64 = LAP - 1;
const LARGEST_INDEX: u64 = 1 << 48;
/// All states of a message are below this limit. The states "written", "read" and "being dropped" are one bit each.
const STATES: u64 = 8;

/// A proven channel: its own block, the blocks with its messages, and the address of each message.
pub(crate) struct Channel {
    pub(crate) own: u32,
    pub(crate) blocks: Vec<u32>,
    pub(crate) messages: Vec<u64>,
    /// The size in bytes of a message, including its state.
    pub(crate) slot: u64,
}

/// Return whether a word may be the index of an end of a channel. The index is zero before the first message was
/// received.
pub(crate) fn may_be_index(word: u64) -> bool {
    word < LARGEST_INDEX
}

/// Prove the channel whose receiving end is at `at`; None if it is not proven. `spend` is called with the number of
/// words that are read.
pub(crate) fn prove(
    look: &SearchInput<'_>,
    reader: &mut Reader<'_>,
    at: u64,
    mut spend: impl FnMut(u64) -> Option<()>,
) -> Option<Channel> {
    let (own, _) = look.block_with(at)?;
    let [head, first] = reader.words::<2>(at)?;
    let [tail, last] = reader.words::<2>(at.checked_add(LINE)?)?;
    let (head, tail) = (head >> 1, tail >> 1);
    let between = (tail / LAP).checked_sub(head / LAP).filter(|blocks| *blocks > 0)?;
    if tail >= LARGEST_INDEX || look.kind(own) != UNKNOWN {
        return None;
    }
    let (_, block) = look.block_from(first)?;
    let usable = block.end - block.address;
    for (next, slots) in places(usable) {
        let slot = usable.saturating_sub(8) / MESSAGES / 8 * 8;
        if slot == 0 {
            return None;
        }
        let Some(found) = follow(look, reader, (first, last), next, between, &mut spend) else { continue };
        let place = |index: u64| {
            (index % LAP < MESSAGES).then(|| found[(index / LAP - head / LAP) as usize].1 + slots + index % LAP * slot)
        };
        let messages: Vec<u64> = (head..tail).filter_map(place).collect();
        if !have_states(reader, &messages, slot) {
            continue;
        }
        return Some(Channel { own, blocks: found.into_iter().map(|(id, _)| id).collect(), messages, slot });
    }
    None
}

/// Return whether the messages of the first and the last block have valid states. The state of a message lies before or
/// after the value that was sent, in the same place for all messages.
fn have_states(reader: &mut Reader<'_>, messages: &[u64], slot: u64) -> bool {
    let few = MESSAGES as usize;
    let (first, rest) = messages.split_at(few.min(messages.len()));
    let looked_at = [first, &rest[rest.len().saturating_sub(few)..]].concat();
    let mut all_have = |behind: u64| {
        looked_at
            .iter()
            .all(|at| at.checked_add(behind).and_then(|at| reader.word(at)).is_some_and(|word| word < STATES))
    };
    all_have(slot - 8) || all_have(0)
}

/// Return possible offsets of the pointer to the next block. Each is returned with the offset at which the messages
/// then begin.
fn places(usable: u64) -> impl Iterator<Item = (u64, u64)> {
    let behind = [usable.wrapping_sub(8), usable.wrapping_sub(16)];
    let is_behind = |at: &u64| *at >= 8 * MESSAGES && *at % (8 * MESSAGES) == 0;
    [(0, 8)].into_iter().chain(behind.into_iter().filter(is_behind).map(|at| (at, 0)))
}

/// Follow the links from the first block to the last one. Return all blocks if there are `between` links, and if the
/// blocks have the same size and their kinds are unknown; else None.
fn follow(
    look: &SearchInput<'_>,
    reader: &mut Reader<'_>,
    (first, last): (u64, u64),
    next: u64,
    between: u64,
    mut spend: impl FnMut(u64) -> Option<()>,
) -> Option<Vec<(u32, u64)>> {
    let (mut found, mut seen, mut at, mut size) = (Vec::new(), Addresses::default(), first, 0);
    for _ in 0..=between {
        spend(1)?;
        let (id, block) = look.block_from(at)?;
        let usable = block.end - block.address;
        size = if size == 0 { usable } else { size };
        // A chunk may contain a remainder that was too small for a chunk of its own.
        if look.kind(id) != UNKNOWN || usable.abs_diff(size) > 16 || !seen.insert(at) {
            return None;
        }
        found.push((id, at));
        if at == last {
            break;
        }
        at = reader.word(at.checked_add(next)?)?;
    }
    (found.len() as u64 == between + 1).then_some(found)
}
