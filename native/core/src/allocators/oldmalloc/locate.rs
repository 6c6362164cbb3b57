//! Finding `mal` by its 64 bins, whose rings lead back to themselves.

use crate::allocators::oldmalloc::layout::{ring, BIN, BINMAP, BINS, MAL};
use crate::bytes::{u32_at, u64_at};
use crate::error::Result;
use crate::memory::space::Space;
use crate::work::Watcher;

const PIECE: usize = 1 << 20;
const HEAD: usize = 8;
const TAIL: usize = 16;
/// Behind a chunk's sizes: `next` and `prev`.
const NEXT: u64 = 16;
const PREV: u64 = 24;

/// Where `mal` is in `ranges` of static data, which must be joined where they touch.
pub fn find_bins(watcher: &dyn Watcher, space: &Space, ranges: &[(u64, u64)]) -> Result<Vec<u64>> {
    let (mut found, mut bytes) = (Vec::new(), vec![0; PIECE + MAL]);
    for (start, end) in ranges {
        let mut at = start.next_multiple_of(8);
        while at < *end {
            watcher.check()?;
            let got = space.fill(at, &mut bytes[..(end - at).min((PIECE + MAL) as u64) as usize]);
            let places = (0..got.min(PIECE)).step_by(8).filter(|place| place + MAL <= got);
            found.extend(places.filter_map(|place| is_mal(space, at + place as u64, &bytes[place..got])));
            at += PIECE as u64;
        }
    }
    Ok(found)
}

/// The address, if the bins of a `mal` that was used are there: each was never used, or its list begins and ends with itself,
/// and `binmap` says which lists are not empty. A thread that stands inside of malloc may leave one that does not fit.
fn is_mal(space: &Space, address: u64, bytes: &[u8]) -> Option<u64> {
    let mut filled = 0u64;
    for bin in 0..BINS {
        let at = BINMAP + bin * BIN;
        let (head, tail) = (u64_at(bytes, at + HEAD), u64_at(bytes, at + TAIL));
        let own = ring(address, bin);
        // A lock, and how many wait for it.
        if u32_at(bytes, at) > 1 || (head == 0) != (tail == 0) || (head == own) != (tail == own) {
            return None;
        }
        filled |= u64::from(head != 0 && head != own) << bin;
        if head != 0 && head != own && (head % 16 != 0 || tail % 16 != 0) {
            return None;
        }
    }
    let leads_back = |bin: usize| {
        let at = BINMAP + bin * BIN;
        let (head, tail, own) = (u64_at(bytes, at + HEAD), u64_at(bytes, at + TAIL), ring(address, bin));
        let word = |place: u64| space.word(place).ok();
        head == 0
            || head == own
            || (word(head.wrapping_add(PREV)) == Some(own) && word(tail.wrapping_add(NEXT)) == Some(own))
    };
    let wrong = (0..BINS).filter(|bin| !leads_back(*bin)).count();
    let unlike = (u64_at(bytes, 0) ^ filled).count_ones() as usize;
    (wrong + unlike <= 1 && filled.count_ones() as usize > wrong + unlike).then_some(address)
}
