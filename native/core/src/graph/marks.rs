//! Find the used blocks. Mark those that are buffers of objects, with the kind of their contents. The marks are needed
//! before the edges are read, because a buffer may lie before its owner in memory.

use super::ids::{Blocks, FoundNode};
use super::shapes::{self, KeysLayout};
use crate::allocators::block::{Block, BlockId, GroupBits};
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::Visitor;
use crate::bits::SharedBits;
use crate::by_address::ByAddress;
use crate::python::claims::{array_kind, claimed_pointer, is_of_numbers, PlacedClaim, STRIDES};
use crate::python::layout::{TypeLayout, CLAIM};
use crate::python::types::Types;
use gdbheap_access::bytes::word_at;
use gdbheap_access::error::Cancellation;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Control;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// The smallest size in bytes of a deque's block.
const DEQUE_BLOCK: u64 = 512;
/// The number of links of deques that are followed between two checks for cancellation.
const LINKS_UNHEARD: u64 = 4 << 10;

/// An object's claim to a buffer: a pointer to the buffer, and the mark for its contents (shapes.rs).
#[derive(Clone, Copy)]
pub(crate) struct BufferClaim {
    pub(super) pointer: u64,
    pub(super) mark: u32,
    /// Whether the claim holds only if the pointer points to the first requested byte of a block.
    pub(super) whole: bool,
    /// The address of the block of the object that claims the buffer.
    owner: u64,
}

/// Return the largest number of blocks that all deques of a target can have together. Each block can belong to only one
/// deque.
pub(crate) fn most_deque_blocks(heaps: Heaps<'_>) -> u64 {
    let (mut bytes, mut numbers) = (0u64, 0u64);
    for store in heaps.stores {
        numbers = numbers.saturating_add(store.block_numbers());
        store.show_stretches(|start, end| bytes = bytes.saturating_add(end.saturating_sub(start)));
    }
    numbers.min(bytes / DEQUE_BLOCK)
}

/// A deque whose middle blocks still have to be recorded: the blocks between its first block (`left`) and its last
/// block (`right`).
struct Chain {
    owner: u64,
    contents: u32,
    left: u64,
    right: u64,
}

/// A worker's finder of used blocks, and of the buffers that objects claim. A walk shows it one block after the other.
pub(crate) struct Marker<'a> {
    space: &'a Space,
    types: Types<'a>,
    keys: Option<&'a KeysLayout>,
    /// For each store, a bit for each block that was found to be used.
    used: &'a [SharedBits],
    /// For the shared keys at each address, the number of values that an object with these keys can have.
    capacities: ByAddress<u64>,
    /// The address of the block that is being examined.
    owner: u64,
    chains: Vec<Chain>,
    /// The number of blocks of deques that all workers together may still record.
    deque_blocks: &'a AtomicU64,
    pub(crate) claimed: Vec<BufferClaim>,
}

impl<'a> Marker<'a> {
    pub(crate) fn new(
        types: Types<'a>,
        keys: Option<&'a KeysLayout>,
        used: &'a [SharedBits],
        deque_blocks: &'a AtomicU64,
    ) -> Marker<'a> {
        Marker {
            space: types.space,
            types,
            keys,
            used,
            capacities: ByAddress::default(),
            owner: 0,
            chains: Vec::new(),
            deque_blocks,
            claimed: Vec::new(),
        }
    }

    /// Record the buffers that the object in a block claims. Return whether the block contains an object.
    #[inline(always)]
    pub(crate) fn owned_by(&mut self, Block { address, size, .. }: &Block, head: &[u8]) -> bool {
        let Some((number, alive)) = self.types.object_in(head, *size) else { return false };
        if !alive || self.types.kinds[number as usize].claims.is_empty() {
            return true;
        }
        self.owner = *address;
        let outer = self.types.layout.outer_hook(head);
        let pre = self.types.kinds[number as usize].pre;
        let (address, size, head) = (address + outer as u64, size.saturating_sub(outer as u64), &head[outer..]);
        for place in 0..self.types.kinds[number as usize].claims.len() {
            let claim = self.types.kinds[number as usize].claims[place];
            let Some(pointer) = claimed_pointer(self.space, &claim, address, size, head) else { continue };
            if pointer.wrapping_sub(address) >= size {
                self.claim(pre, &claim, pointer, address, head);
            }
        }
        true
    }

    fn claim(&mut self, pre: u64, claim: &PlacedClaim, pointer: u64, address: u64, head: &[u8]) {
        let field = |offset: i64| {
            let at = pre.wrapping_add_signed(offset);
            word_at(head, at as usize).or_else(|| self.space.word(address.wrapping_add(at)).ok())
        };
        let number = match claim.contents {
            shapes::DEQUE | shapes::OLD_DEQUE => {
                let ends = [0, 8, 16, 24].map(|at| field(claim.count_at + at));
                if let [Some(left), Some(right), Some(low), Some(high)] = ends {
                    return self.claim_deque(claim.contents, pointer, [left, right, low, high]);
                }
                None
            }
            shapes::SPLIT => field(claim.count_at).map(|keys| self.capacity(keys)),
            // The field contains the mask of a hash table: the number of its slots minus one.
            shapes::SET | shapes::TABLE => field(claim.count_at).map(|mask| mask.saturating_add(1)),
            shapes::STATE => self.types.layout.state_bytes(self.space, address.wrapping_add(pre)),
            _ if claim.count_at >= 0 => field(claim.count_at),
            _ => Some(0),
        };
        let kind = || array_kind(self.space, self.types.layout, address.wrapping_add(pre));
        let is_of_numbers = claim.extent.rule == STRIDES && kind().is_some_and(is_of_numbers);
        let contents = if is_of_numbers { shapes::NUMBERS } else { claim.contents };
        // If the owner does not say how large the contents are, any word of the buffer may be a reference.
        let mark = number.map_or(shapes::mark(shapes::ANYTHING, 0), |number| shapes::mark(contents, number));
        self.note(pointer, mark, claim.follow == CLAIM);
    }

    fn note(&mut self, pointer: u64, mark: u32, whole: bool) {
        self.claimed.push(BufferClaim { pointer, mark, whole, owner: self.owner });
    }

    /// Record the first and the last block of a deque. The items fill only a part of these two blocks: they lie in
    /// [low, high].
    fn claim_deque(&mut self, contents: u32, pointer: u64, [left, right, low, high]: [u64; 4]) {
        let block = shapes::deque_block(contents);
        let last = block.room - 1;
        let range = |low: u64, high: u64, ends: bool| {
            let ends = if ends { shapes::LAST_OF_DEQUE } else { 0 };
            shapes::mark(contents, low.min(block.room) | high.min(last) << 8 | ends)
        };
        if left == right || pointer != left {
            return self.note(pointer, range(low, high, true), false);
        }
        self.note(left, range(low, last, false), false);
        self.note(right, range(0, high, true), false);
        self.chains.push(Chain { owner: self.owner, contents, left, right });
    }

    /// Record the middle blocks of all deques that this worker has seen.
    pub(crate) fn follow_deques(&mut self, control: &Control<'_>) -> Result<(), Cancellation> {
        std::mem::take(&mut self.chains).iter().try_for_each(|chain| self.follow(chain, control))
    }

    /// Record the middle blocks of a deque, all of which are full. A damaged link may close a cycle of blocks.
    /// Therefore the current block is remembered each time the number of followed links is a power of two. The loop
    /// ends if it reaches the remembered block again.
    fn follow(&mut self, chain: &Chain, control: &Control<'_>) -> Result<(), Cancellation> {
        let Chain { owner, contents, left, right } = *chain;
        let block = shapes::deque_block(contents);
        let mark = shapes::mark(contents, (block.room - 1) << 8);
        let (mut at, mut met, mut next_kept) = (left, left, 2);
        for step in 1u64.. {
            let Ok(next) = self.space.word(at.wrapping_add(block.right)) else { break };
            at = next;
            if at == 0 || at == right || at == left || at == met || !self.may_note() {
                break;
            }
            self.claimed.push(BufferClaim { pointer: at, mark, whole: false, owner });
            if step == next_kept {
                (met, next_kept) = (at, 2 * next_kept);
            }
            if step % LINKS_UNHEARD == 0 {
                control.advance(0)?;
            }
        }
        control.advance(0)
    }

    /// Count one more block of a deque. Return false if all deques together would have more blocks than fit into the
    /// heaps (`most_deque_blocks`).
    fn may_note(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.deque_blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// Return the number of values that an object with these shared keys can have: two thirds of the keys' slots (up to
    /// 3.10).
    fn capacity(&mut self, keys: u64) -> u64 {
        let Some(size) = self.keys.and_then(|keys| u64::try_from(keys.size).ok()) else { return shapes::MOST };
        let space = self.space;
        let slots = || space.word(keys.wrapping_add(size)).map_or(shapes::MOST, |slots| slots.saturating_mul(2) / 3);
        *self.capacities.entry(keys).or_insert_with(slots)
    }
}

impl Visitor for Marker<'_> {
    #[inline(always)]
    fn block(&mut self, block: Block, head: &[u8]) -> bool {
        self.owned_by(&block, head)
    }

    fn group(&mut self, first: BlockId, _size: u64, used: &GroupBits, _objects: &GroupBits) {
        self.used[first.store as usize].put(first.number, used);
    }
}

/// Return the marks of all blocks, by the blocks' numbers; 0 for a block that no object claims. If a block looks like
/// an object but is itself claimed as a buffer, its own claims are ignored.
pub(crate) fn settle(blocks: &Blocks<'_>, layout: &TypeLayout, claimed: &[Vec<BufferClaim>]) -> Vec<u32> {
    let marks = mark_all(blocks, layout, claimed, |_| true);
    let is_buffer = |owner: u64| {
        blocks.find(owner).is_some_and(|found| marks.get(found.id as usize).is_some_and(|mark| *mark != 0))
    };
    let torn: HashSet<u64> =
        claimed.iter().flatten().map(|claim| claim.owner).filter(|owner| is_buffer(*owner)).collect();
    match torn.is_empty() {
        true => marks,
        false => mark_all(blocks, layout, claimed, |owner| !torn.contains(&owner)),
    }
}

fn mark_all(
    blocks: &Blocks<'_>,
    layout: &TypeLayout,
    claimed: &[Vec<BufferClaim>],
    counts: impl Fn(u64) -> bool,
) -> Vec<u32> {
    let mut marks = vec![0; blocks.ids.count()];
    for BufferClaim { pointer, mark, whole, owner } in claimed.iter().flatten().copied() {
        let is_meant = |found: &FoundNode| !whole || layout.begins_at(found.address, pointer);
        let Some(found) = blocks.find(pointer).filter(is_meant) else { continue };
        // From 3.12 on, one is subtracted from a pointer to values, to mark it.
        let inside = (pointer.wrapping_sub(found.address).wrapping_add(7) & !7).min(shapes::MOST) as u32;
        let place = &mut marks[found.id as usize];
        // All objects that share a buffer describe it in the same way.
        if *place == 0 && counts(owner) {
            *place = if mark >> 28 == shapes::PREFIXED { mark | inside } else { mark };
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::{most_deque_blocks, shapes, Marker};
    use crate::allocators::heaps::Heaps;
    use crate::allocators::testing::{linked, START};
    use crate::python::layout::TypeLayout;
    use crate::python::types::Types;
    use gdbheap_access::error::Error;
    use gdbheap_access::testing::{CheckLimit, NoWatcher};
    use gdbheap_access::work::{Task, Watcher};
    use std::sync::atomic::AtomicU64;

    /// The size in bytes of a block of a deque.
    const SIZE: u64 = 528;
    /// The offset in bytes, in a block of a deque, of the link to the next block.
    const LINK: u64 = 8 * 65;

    fn noted(watcher: &dyn Watcher, blocks: u64, deques: u64) -> Result<usize, Error> {
        let end = START + blocks * SIZE;
        let (space, stores) = linked(SIZE, LINK, blocks, 0);
        let heaps = Heaps { space: &space, stores: &stores };
        let (layout, left) = (TypeLayout::default(), AtomicU64::new(most_deque_blocks(heaps)));
        let task = Task { watcher, total: None, inline: true };
        task.alone(|control| {
            let mut marker = Marker::new(Types::new(heaps, &layout), None, &[], &left);
            (0..deques).for_each(|_| marker.claim_deque(shapes::DEQUE, START, [START, end - SIZE, 0, 63]));
            marker.follow_deques(control)?;
            Ok(marker.claimed.len())
        })
    }

    #[test]
    fn deques_have_no_more_blocks_than_there_are() {
        assert_eq!(noted(&NoWatcher, 100, 1).expect("not cancelled"), 100);
        // Each of the deques records its first and its last block.
        assert_eq!(noted(&NoWatcher, 100, 50).expect("not cancelled"), 2 * 50 + 100);
    }

    #[test]
    fn a_long_deque_listens() {
        assert!(matches!(noted(&CheckLimit::after(2), 20_000, 1), Err(Error::Cancelled)));
    }
}
