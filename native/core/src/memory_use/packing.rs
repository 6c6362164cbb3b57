//! What would go if the blocks of slabs were moved into as few of them as they need.

use crate::allocators::BlockSlab;
use crate::memory::pages::Pages;
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

/// A row for each size of each allocator, ascending, and where the slabs are that would go, ascending. Those without a block go
/// without this, and are left out. `pages`: None where it is not known what is resident: then all is.
pub fn packing(slabs: impl Iterator<Item = BlockSlab>, pages: Option<&Pages>) -> (Vec<PackedSize>, Vec<(u64, u64)>) {
    let mut keepers: BTreeMap<(u32, u64, u64), Vec<BlockSlab>> = BTreeMap::new();
    for slab in slabs.filter(|slab| slab.live > 0 && slab.end > slab.start) {
        keepers.entry((slab.root, slab.size, slab.keeper)).or_default().push(slab);
    }
    let (mut rows, mut going): (BTreeMap<(u32, u64), PackedSize>, _) = (BTreeMap::new(), Vec::new());
    for ((root, size, _), slabs) in keepers {
        let row = rows.entry((root, size)).or_insert(PackedSize { root, size, ..PackedSize::default() });
        pack(slabs, pages, row, &mut going);
    }
    going.sort_unstable();
    (rows.into_values().collect(), going)
}

/// Slabs between which blocks may move: the fullest stay, and of the others one for each block that waits in a cache.
fn pack(mut slabs: Vec<BlockSlab>, pages: Option<&Pages>, row: &mut PackedSize, going: &mut Vec<(u64, u64)>) {
    slabs.sort_unstable_by_key(|slab| (Reverse(slab.live), slab.start));
    let live: u64 = slabs.iter().map(|slab| slab.live).sum();
    let mut waiting: u64 = slabs.iter().map(|slab| slab.waiting).sum();
    let (mut room, mut grown, mut freed) = (0, 0, 0);
    for slab in &slabs {
        let size = slab.end - slab.start;
        let resident = pages.map_or(size, |pages| pages.count(slab.start, slab.end).0);
        row.slabs += 1;
        row.live += slab.live;
        row.free += slab.room.saturating_sub(slab.live);
        row.resident += resident;
        if room < live {
            room += slab.room.max(slab.live);
            grown += size - resident;
        } else if waiting > 0 {
            waiting -= 1;
        } else {
            row.spare += 1;
            row.moved += slab.live;
            freed += resident;
            going.push((slab.start, slab.end));
        }
    }
    row.freed += freed.saturating_sub(grown);
}
