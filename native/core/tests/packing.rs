//! What packing slabs would free, against plain sums over the slabs that it names.

mod support;

use gdbheap_core::allocators::BlockSlab;
use gdbheap_core::memory::Pages;
use gdbheap_core::memory_use::packing;
use support::{machine, Chance};

const SLAB: u64 = 16 << 10;
const PAGE: u64 = 4 << 10;
const KEEPERS: u64 = 3;

fn draw(chance: &mut Chance) -> Vec<BlockSlab> {
    let (room, count) = (chance.between(1, 300), chance.between(1, 200));
    let caches = chance.one_in(2);
    let slab = |number: u64, chance: &mut Chance| {
        let (keeper, live) = (chance.below(KEEPERS), chance.below(room + 1));
        let waiting = if caches && chance.one_in(5) { chance.below(live.min(2) + 1) } else { 0 };
        BlockSlab { root: 0, keeper, size: 64, start: number * SLAB, end: (number + 1) * SLAB, room, live, waiting }
    };
    (0..count).map(|number| slab(number, chance)).collect()
}

/// As few slabs stay as the blocks need, and one for each that waits in a cache, for each arena; what goes is what the resident pages of the others are, less what those
/// that stay lack.
#[test]
fn random_slabs() {
    let mut chance = Chance::new("random_slabs");
    for _ in 0..200 {
        let slabs = draw(&mut chance);
        let there: Vec<bool> = (0..slabs.len() as u64 * SLAB / PAGE).map(|_| !chance.one_in(9)).collect();
        let entries = there.iter().flat_map(|there| (u64::from(*there) << 63).to_le_bytes()).collect();
        let pages = Pages::from_entries(&[(0, entries)], machine(PAGE).page).expect("they ascend");
        let resident = |slab: &BlockSlab| {
            let own = &there[(slab.start / PAGE) as usize..(slab.end / PAGE) as usize];
            own.iter().filter(|there| **there).count() as u64 * PAGE
        };
        let (rows, going) = packing(slabs.iter().copied(), Some(&pages));
        let goes = |slab: &&BlockSlab| going.contains(&(slab.start, slab.end));
        let (mut spare, mut freed) = (0, 0);
        for keeper in 0..KEEPERS {
            let own: Vec<&BlockSlab> = slabs.iter().filter(|slab| slab.keeper == keeper && slab.live > 0).collect();
            let live: u64 = own.iter().map(|slab| slab.live).sum();
            let room = own.first().map_or(1, |slab| slab.room);
            let mut left: Vec<&&BlockSlab> = own.iter().filter(|slab| !goes(slab)).collect();
            let (needed, waiting) = (live.div_ceil(room), own.iter().map(|slab| slab.waiting).sum::<u64>());
            assert_eq!(left.len() as u64, (needed + waiting).min(own.len() as u64), "slabs that stay");
            // What is needed is filled, and the fullest are; what a waiting block keeps stays as it is.
            left.sort_by_key(|slab| (std::cmp::Reverse(slab.live), slab.start));
            let lacks: u64 = left[..needed as usize].iter().map(|slab| SLAB - resident(slab)).sum();
            spare += own.iter().filter(|slab| goes(slab)).count() as u64;
            freed += own.iter().filter(|slab| goes(slab)).map(|slab| resident(slab)).sum::<u64>().saturating_sub(lacks);
        }
        let sum = |of: fn(&gdbheap_core::memory_use::PackedSize) -> u64| rows.iter().map(of).sum::<u64>();
        assert_eq!((sum(|row| row.spare), sum(|row| row.freed)), (spare, freed));
        assert_eq!(sum(|row| row.moved), slabs.iter().filter(goes).map(|slab| slab.live).sum::<u64>());
        let kept: u64 = slabs.iter().filter(|slab| slab.live > 0).map(|slab| slab.room - slab.live).sum();
        assert_eq!(sum(|row| row.free), kept);
    }
}
