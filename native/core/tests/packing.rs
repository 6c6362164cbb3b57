//! Test the bytes that packing slabs would free, against plain sums over the slabs that packing would return.

mod support;

use gdbheap_access::memory::Pages;
use gdbheap_core::allocators::BlockSlab;
use gdbheap_core::memory_use::{copying, packing};
use support::{machine, Chance};

const SLAB: u64 = 16 << 10;
const PAGE: u64 = 4 << 10;
const KEEPERS: u64 = 3;

fn draw(chance: &mut Chance) -> Vec<BlockSlab> {
    let (room, count) = (chance.between(1, 300), chance.between(1, 200));
    let slab = |number: u64, chance: &mut Chance| {
        let (keeper, live) = (chance.below(KEEPERS), chance.below(room + 1));
        BlockSlab { root: 0, keeper, size: 64, start: number * SLAB, end: (number + 1) * SLAB, room, live, waiting: 0 }
    };
    (0..count).map(|number| slab(number, chance)).collect()
}

/// Check that packing leaves in each arena as few slabs as its blocks need. The freed bytes are the resident bytes of
/// the other slabs, minus the absent bytes of those that stay: these bytes become resident.
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
            let needed = live.div_ceil(room);
            assert_eq!(left.len() as u64, needed, "slabs that stay");
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

/// Check the prediction for blocks that are copied into free places of slabs in any order. The old blocks are freed
/// afterwards. The number of slabs that stay may differ from a plain simulation by at most a twentieth of all slabs.
#[test]
fn copied_blocks() {
    let mut chance = Chance::new("copied_blocks");
    for _ in 0..30 {
        let (room, count, one_in) = (chance.between(8, 256), 1000, chance.between(3, 9));
        let used: Vec<u64> = (0..count).map(|_| (0..room).filter(|_| chance.one_in(one_in)).count() as u64).collect();
        let slab = |(number, live): (u64, &u64)| {
            let (start, end) = (number * SLAB, (number + 1) * SLAB);
            BlockSlab { root: 0, keeper: 0, size: 64, start, end, room, live: *live, waiting: 0 }
        };
        let slabs: Vec<BlockSlab> = (0..).zip(&used).map(slab).collect();
        let (rows, _) = copying(slabs.into_iter(), None);
        let (mut left, mut filled) = (used.iter().sum::<u64>(), 0);
        for live in &used {
            filled += u64::from(left > 0);
            left = left.saturating_sub(room - live);
        }
        let held = used.iter().filter(|live| **live > 0).count() as u64;
        let stay = held - rows.iter().map(|row| row.spare).sum::<u64>();
        assert!(stay.abs_diff(filled.min(held)) <= count / 20, "{stay} of {held} stay, {filled} were filled");
    }
}

/// Check the prediction if blocks wait in caches. Copies take their places, but then equally many old blocks wait, and
/// each pins a slab. If there are too few free places, no slab is freed.
#[test]
fn copied_into_caches() {
    let slab = |number: u64, live: u64, waiting: u64| BlockSlab {
        root: 0,
        keeper: 0,
        size: 64,
        start: number * SLAB,
        end: (number + 1) * SLAB,
        room: 100,
        live: live + waiting,
        waiting,
    };
    let spare = |slabs: Vec<BlockSlab>| copying(slabs.into_iter(), None).0[0].spare;
    // There are 1,000 used blocks. The copies of 100 of them take the places of the waiting blocks, in 100 slabs. The
    // copies of the other 900 need 10 more slabs. The old blocks that wait afterwards pin 100 further slabs.
    assert_eq!(
        spare((0..1000).map(|number| slab(number, 1, u64::from(number < 100))).collect()),
        1000 - 100 - 10 - 100
    );
    assert_eq!(spare((0..1000).map(|number| slab(number, 60, 0)).collect()), 0);
}
