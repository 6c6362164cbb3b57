//! Find `mal`, the state of musl's malloc before 1.2.1. It has 64 bins, and the list of each bin returns to the bin.

use crate::allocators::oldmalloc::layout::{ring, BIN, BINMAP, BINS, MAL};
use gdbheap_access::bytes::{u32_at, u64_at};
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;

const HEAD: usize = 8;
const TAIL: usize = 16;
/// The offset in bytes of `next` in a chunk, after the two words of sizes. `prev` follows it.
const NEXT: u64 = 16;
const PREV: u64 = 24;

/// Find `mal` in `ranges` of static data. Adjacent ranges must be joined.
pub fn find_bins(watcher: &dyn Watcher, space: &Space, ranges: &[(u64, u64)]) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    for range in ranges {
        space.show_places(watcher, *range, MAL, |at, bytes| found.extend(is_mal(space, at, bytes)))?;
    }
    Ok(found)
}

/// Return `address` if a `mal` that has been used is there; otherwise None. Each bin was never used, or its list begins
/// and ends with the bin. `binmap` says correctly which bins are empty. One bin may be wrong because a thread is inside
/// malloc. The thread then holds the lock of this bin, unless it is the only thread.
fn is_mal(space: &Space, address: u64, bytes: &[u8]) -> Option<u64> {
    let (mut filled, mut locked, mut off) = (0, 0, 0);
    for bin in 0..BINS {
        let lock = u32_at(bytes, BINMAP + bin * BIN);
        // The two words are a lock, and the number of threads that wait for it.
        if lock > 1 {
            return None;
        }
        let said = u64_at(bytes, 0) >> bin & 1 == 1;
        match is_filled(space, address, bytes, bin) {
            Some(is_filled) if is_filled == said => filled += u32::from(is_filled),
            _ if lock == 1 => locked += 1,
            _ => off += 1,
        }
        // Reject early any data that is not a table of bins.
        if off > 1 {
            return None;
        }
    }
    (filled > locked + off).then_some(address)
}

/// Return whether a bin's list has chunks; None if the list does not return to the bin.
fn is_filled(space: &Space, address: u64, bytes: &[u8], bin: usize) -> Option<bool> {
    let at = BINMAP + bin * BIN;
    let (head, tail, own) = (u64_at(bytes, at + HEAD), u64_at(bytes, at + TAIL), ring(address, bin));
    let word = |place: u64| space.word(place).ok();
    if head == tail && (head == 0 || head == own) {
        return Some(false);
    }
    let are_chunks = [head, tail].iter().all(|place| *place != 0 && *place != own && place % 16 == 0);
    let leads_back = || word(head.wrapping_add(PREV)) == Some(own) && word(tail.wrapping_add(NEXT)) == Some(own);
    (are_chunks && leads_back()).then_some(true)
}
