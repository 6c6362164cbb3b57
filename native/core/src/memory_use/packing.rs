//! Compute how many bytes would be freed if the blocks of slabs were moved into as few slabs as possible.

use crate::allocators::BlockSlab;
use gdbheap_access::memory::pages::Pages;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The blocks of one size that belong to the allocator with the number `root`.
///
/// - `slabs`: the number of their slabs.
/// - `live`, `free`: the numbers of used and free blocks in these slabs.
/// - `resident`: the resident bytes of the slabs.
/// - `moved`: the number of blocks that would be moved if the blocks were packed.
/// - `spare`: the number of slabs that would then be freed.
/// - `freed`: the bytes by which RSS would shrink. These are the resident bytes of the freed slabs, minus the bytes
///   that would become resident in the filled slabs.
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

/// How many slabs would stay. They come first in a list of slabs.
///
/// - `filled`: how many of them would be filled with moved blocks.
/// - `all`: how many would stay in total.
struct SlabCounts {
    filled: usize,
    all: usize,
}

/// A rule that says which slabs would stay. It sorts these slabs to the front, and returns their number.
type Rule = fn(&mut [BlockSlab]) -> SlabCounts;

/// Return a row for each block size of each allocator, ascending. Also return the address ranges of the slabs that
/// would be freed, ascending.
///
/// Slabs without a live block are left out, because they are freed anyway. `pages`: the resident pages. If it is None,
/// residency is unknown, and all pages count as resident.
pub fn packing(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&Pages>) -> (Vec<PackedSize>, Vec<(u64, u64)>) {
    packed(slabs, pages, fullest)
}

/// Return the same as `packing`, for an allocator that takes a free block from any slab. The program is assumed to copy
/// every block, and then to free the old blocks.
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

/// Let the fullest slabs stay, as many as are needed for all blocks.
fn fullest(slabs: &mut [BlockSlab]) -> SlabCounts {
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
    SlabCounts { filled, all: filled }
}

/// Compute which slabs stay if the program copies each block and then frees the old one.
///
/// The copies first take the free blocks in caches, then free blocks of any slab. Then as many blocks as before
/// remain in the caches, and keep their slabs. They are assumed to lie as close together as the blocks there now.
fn copied(slabs: &mut [BlockSlab]) -> SlabCounts {
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
        return SlabCounts { filled: slabs.len(), all: slabs.len() };
    }
    let needed = if copies == 0 { 0 } else { (copies * count).div_ceil(free) };
    let pinned = if old == 0 { 0 } else { (old * count * near).div_ceil(used * waiting).min(old) };
    let filled = slabs.len().min(with_waiting + needed as usize);
    SlabCounts { filled, all: slabs.len().min(filled + pinned as usize) }
}

/// Add to `row` what moving the blocks would change, and to `going` the slabs that would be freed. `slabs`: all slabs,
/// those that stay first.
fn pack(
    slabs: &[BlockSlab],
    staying: &SlabCounts,
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
