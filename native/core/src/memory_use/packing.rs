//! What would go if the blocks of slabs were moved into as few of them as they need.

use crate::allocators::BlockSlab;
use gdbheap_access::memory::pages::Pages;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Blocks of one size of the allocator with the number `root`: in how many `slabs` they lie, how many are `live`, how many free
/// ones the slabs have, and the resident bytes of these slabs. Packed, `spare` of the slabs would go, after `moved` blocks were
/// moved, and RSS would be smaller by `freed` bytes: their resident pages, less what is not resident in those that stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedSize {
    pub root: u32,
    pub size: u64,
    pub slabs: u64,
    pub live: u64,
    pub free: u64,
    pub resident: u64,
    pub spare: u64,
    pub moved: u64,
    pub freed: u64,
}

/// How many slabs, from the first of them on, are filled with blocks that moved, and how many stay in all.
struct Staying {
    filled: usize,
    all: usize,
}

/// Orders slabs so that those which stay come first.
type Rule = fn(&mut [BlockSlab]) -> Staying;

/// A row for each size of each allocator, ascending, and where the slabs are that would go, ascending. Those without a block go
/// without this, and are left out. `pages`: None where it is not known what is resident: then all is.
pub fn packing(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&Pages>) -> (Vec<PackedSize>, Vec<(u64, u64)>) {
    packed(slabs, pages, fullest)
}

/// The same of an allocator that fills any slab with a free block: a program copies every block, and frees the old ones then.
pub fn copying(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&Pages>) -> (Vec<PackedSize>, Vec<(u64, u64)>) {
    packed(slabs, pages, copied)
}

fn packed(
    slabs: impl Iterator<Item = BlockSlab>,
    pages: Option<&Pages>,
    rule: Rule,
) -> (Vec<PackedSize>, Vec<(u64, u64)>) {
    let mut keepers: BTreeMap<(u32, u64, u64), Vec<BlockSlab>> = BTreeMap::new();
    for slab in slabs.filter(|slab| slab.live > 0 && slab.end > slab.start) {
        keepers.entry((slab.root, slab.size, slab.keeper)).or_default().push(slab);
    }
    let (mut rows, mut going): (BTreeMap<(u32, u64), PackedSize>, _) = (BTreeMap::new(), Vec::new());
    for ((root, size, _), mut slabs) in keepers {
        let row = rows.entry((root, size)).or_insert(PackedSize { root, size, ..PackedSize::default() });
        let staying = rule(&mut slabs);
        pack(&slabs, &staying, pages, row, &mut going);
    }
    going.sort_unstable();
    (rows.into_values().collect(), going)
}

/// The fullest slabs stay, as many as the blocks need.
fn fullest(slabs: &mut [BlockSlab]) -> Staying {
    slabs.sort_unstable_by_key(|slab| (Reverse(slab.live), slab.start));
    let live: u64 = slabs.iter().map(|slab| slab.live).sum();
    let (mut room, mut filled) = (0, 0);
    for slab in slabs.iter() {
        if room >= live {
            break;
        }
        room += slab.room.max(slab.live);
        filled += 1;
    }
    Staying { filled, all: filled }
}

/// Copies take the free blocks that wait in caches, then those of slabs in any order. As many old blocks wait in the caches
/// afterwards; they lie as close together as those that wait now.
fn copied(slabs: &mut [BlockSlab]) -> Staying {
    slabs.sort_unstable_by_key(|slab| (slab.waiting == 0, Reverse(slab.live), slab.start));
    let sum = |of: fn(&BlockSlab) -> u64| slabs.iter().map(|slab| u128::from(of(slab))).sum::<u128>();
    let (count, waiting) = (slabs.len() as u128, sum(|slab| slab.waiting));
    let used = sum(|slab| slab.live.saturating_sub(slab.waiting));
    let free = sum(|slab| slab.room.saturating_sub(slab.live));
    let near = slabs.iter().take_while(|slab| slab.waiting > 0);
    let near: u128 = near.map(|slab| u128::from(slab.room.saturating_sub(slab.live) + slab.waiting)).sum();
    let with_waiting = slabs.iter().filter(|slab| slab.waiting > 0).count();
    let (copies, old) = (used.saturating_sub(waiting), used.min(waiting));
    if copies > 0 && free <= copies {
        return Staying { filled: slabs.len(), all: slabs.len() };
    }
    let needed = if copies == 0 { 0 } else { (copies * count).div_ceil(free) };
    let pinned = if old == 0 { 0 } else { (old * count * near).div_ceil(used * waiting).min(old) };
    let filled = slabs.len().min(with_waiting + needed as usize);
    Staying { filled, all: slabs.len().min(filled + pinned as usize) }
}

/// Adds what moving the blocks of slabs would do; `slabs`: those that stay first.
fn pack(
    slabs: &[BlockSlab],
    staying: &Staying,
    pages: Option<&Pages>,
    row: &mut PackedSize,
    going: &mut Vec<(u64, u64)>,
) {
    let (mut grown, mut freed) = (0, 0);
    for (place, slab) in slabs.iter().enumerate() {
        let size = slab.end - slab.start;
        let resident = pages.map_or(size, |pages| pages.count(slab.start, slab.end).0);
        row.slabs += 1;
        row.live += slab.live;
        row.free += slab.room.saturating_sub(slab.live);
        row.resident += resident;
        if place < staying.filled {
            grown += size - resident;
        } else if place >= staying.all {
            row.spare += 1;
            row.moved += slab.live - slab.waiting.min(slab.live);
            freed += resident;
            going.push((slab.start, slab.end));
        }
    }
    row.freed += freed.saturating_sub(grown);
}
