//! Read an arena of a running process. gdbheap trusts the free lists only if two readings of them agree.
//!
//! By malloc's own count, all bytes of an arena except its top, its bins and its fast bins are in use. Blocks in thread
//! caches count as in use (malloc/malloc.c, `int_mallinfo`). So gdbheap computes the bytes in use from the free lists
//! alone. It reads no block in use. If a thread changes a list during the reading, at least one of three things
//! happens: the list cannot be followed, the second reading differs, or `malloc_state` has changed.

use super::bins::BINS;
use super::trim::whole_pages;
use gdbheap_access::bytes::{u32_at, u64_at};
use gdbheap_access::error::MissingByte;
use gdbheap_access::memory::space::Space;

const GRAIN: u64 = 16;
const SMALLEST: u64 = 32;
const FLAGS: u64 = 7;
const FAST_BINS: u64 = 10;

/// Offsets of fields in `struct malloc_state`. `fastbins` is the offset of `fastbinsY`, or None for releases without
/// fast bins (2.43 and later).
#[derive(Clone, Copy, Debug)]
pub struct StateLayout {
    pub top: u64,
    pub bins: u64,
    pub next: u64,
    pub system_mem: u64,
    pub max_system_mem: u64,
    pub fastbins: Option<u64>,
    pub size: u64,
}

/// The content of an arena's bins and fast bins. `chunks`: the number of chunks. `bytes`: their total size, headers
/// included. `whole`: the total size of the whole pages inside those chunks that are in bins.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FreeLists {
    pub chunks: u64,
    pub bytes: u64,
    pub whole: u64,
    /// A hash of all chunks and of their order. It differs if a list has changed between two readings.
    seal: u64,
}

/// An arena at one moment. `top` is the size of its top chunk, None if it has none. `listed` is the content of the free
/// lists. It is None if it was not requested, if two readings differed, or if the lists are longer than allowed.
#[derive(Clone, Copy, Debug)]
pub struct RunningArena {
    pub next: u64,
    pub system: u64,
    pub peak: u64,
    pub top: Option<u64>,
    pub locked: bool,
    pub noncontiguous: bool,
    pub listed: Option<FreeLists>,
}

impl FreeLists {
    fn add(&mut self, chunk: u64, size: u64) {
        self.chunks += 1;
        self.bytes += size;
        // This is the FNV-1a hash, applied to words instead of bytes.
        self.seal = (self.seal ^ chunk ^ size.rotate_left(48)).wrapping_mul(0x0100_0000_01b3);
    }
}

/// Read the arena at `address`. The content of its free lists is included if they have at most `most` chunks in all. If
/// `most` is 0, the lists are not followed.
pub fn look_at_arena(
    space: &Space,
    address: u64,
    layout: &StateLayout,
    most: u64,
) -> Result<RunningArena, MissingByte> {
    let (before, top) = state(space, address, layout)?;
    let lists =
        || (most > 0 && u32_at(&before, 0) == 0).then(|| follow(space, address, layout, &before, most)).flatten();
    let first = lists();
    let listed = first.filter(|_| lists() == first);
    let (after, top_after) = state(space, address, layout)?;
    let word = |offset: u64| u64_at(&after, offset as usize);
    let is_same = before == after && top == top_after;
    Ok(RunningArena {
        next: word(layout.next),
        system: word(layout.system_mem),
        peak: word(layout.max_system_mem),
        top: top_after,
        locked: u32_at(&before, 0) != 0 || u32_at(&after, 0) != 0,
        noncontiguous: u32_at(&after, 4) & 2 != 0,
        listed: listed.filter(|_| is_same),
    })
}

/// Return the content of `malloc_state`, and the size in bytes of the top chunk. The size is None if the arena has no
/// top chunk.
fn state(space: &Space, address: u64, layout: &StateLayout) -> Result<(Vec<u8>, Option<u64>), MissingByte> {
    let mut bytes = vec![0; layout.size as usize];
    space.exact(address, &mut bytes)?;
    let top = u64_at(&bytes, layout.top as usize);
    // In an arena that was never used, top points to the head of the bins.
    let is_head = top == address + layout.bins - GRAIN;
    let size = if is_head || top == 0 { None } else { space.word(top.wrapping_add(8)).ok() };
    Ok((bytes, size.map(|size| size & !FLAGS)))
}

/// Return the content of all lists; None if a list is broken, or if all lists together have too many chunks.
fn follow(space: &Space, address: u64, layout: &StateLayout, state: &[u8], most: u64) -> Option<FreeLists> {
    let mut found = FreeLists::default();
    // In an arena that was never used, the bins are zeros.
    for bin in (1..BINS).filter(|_| u64_at(state, layout.system_mem as usize) != 0) {
        let pair = layout.bins + (bin - 1) * GRAIN;
        let ends = (u64_at(state, pair as usize), u64_at(state, pair as usize + 8));
        go_round(space, address + pair - GRAIN, ends, most, &mut found)?;
    }
    for index in 0..layout.fastbins.map_or(0, |_| FAST_BINS) {
        let head = u64_at(state, (layout.fastbins? + 8 * index) as usize);
        let size = SMALLEST + GRAIN * index;
        // The end of the list is reached only if the links are decoded in the right way.
        found = [true, false].iter().find_map(|is_safe| go_along(space, head, size, *is_safe, most, found))?;
    }
    Some(found)
}

/// Follow a bin from its head by `fd` back to the head, and check each `bk`. Return None if a link is wrong, or if the
/// lists have more than `most` chunks.
fn go_round(space: &Space, head: u64, ends: (u64, u64), most: u64, found: &mut FreeLists) -> Option<()> {
    let (mut before, mut at) = (head, ends.0);
    while at != head {
        let (size, fd, bk) = chunk(space, at)?;
        if bk != before || found.chunks >= most {
            return None;
        }
        found.add(at, size);
        let pages = whole_pages(space.machine.page, at, at + size);
        found.whole += pages.map_or(0, |(first, last)| last - first);
        (before, at) = (at, fd);
    }
    (before == ends.1).then_some(())
}

/// Follow a fast bin, a singly linked list of chunks of one size, and return `found` with these chunks. Return None if
/// a link is wrong, or if the lists have more than `most` chunks. `is_safe`: links are XORed with the address where
/// they are stored, shifted right (2.32 and later).
fn go_along(space: &Space, head: u64, size: u64, is_safe: bool, most: u64, mut found: FreeLists) -> Option<FreeLists> {
    let mut at = head;
    while at != 0 {
        let (own, fd, _) = chunk(space, at)?;
        if own != size || found.chunks >= most {
            return None;
        }
        found.add(at, size);
        at = if is_safe { fd ^ (at + GRAIN) >> 12 } else { fd };
    }
    Some(found)
}

/// Return the size in bytes, and the links, of the chunk at `at`; None if no chunk is there.
fn chunk(space: &Space, at: u64) -> Option<(u64, u64, u64)> {
    let mut bytes = [0; 32];
    if at % GRAIN != 0 || space.exact(at, &mut bytes).is_err() {
        return None;
    }
    let size = u64_at(&bytes, 8) & !FLAGS;
    let is_possible = (SMALLEST..space.machine.user_end).contains(&size) && size % GRAIN == 0;
    is_possible.then(|| (size, u64_at(&bytes, 16), u64_at(&bytes, 24)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdbheap_access::machine::{Machine, EM_X86_64};
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    const LAYOUT: StateLayout = StateLayout {
        top: 96,
        bins: 112,
        next: 2160,
        system_mem: 2184,
        max_system_mem: 2192,
        fastbins: Some(16),
        size: 2200,
    };
    const ARENA: u64 = 0x10000;
    const HEAP: u64 = 0x20000;

    /// A fake memory for tests. `change`: (n, address, value): at read n, counted from 0, the word at `address` becomes
    /// `value`.
    #[derive(Default)]
    struct Memory {
        words: Mutex<HashMap<u64, u64>>,
        reads: AtomicU64,
        change: Option<(u64, u64, u64)>,
    }

    struct Shown(Arc<Memory>);

    impl gdbheap_access::memory::space::Source for Shown {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let count = self.0.reads.fetch_add(1, Ordering::Relaxed);
            let mut words = self.0.words.lock().unwrap();
            if let Some((_, at, value)) = self.0.change.filter(|(when, ..)| *when == count) {
                words.insert(at, value);
            }
            for (place, part) in buffer.chunks_mut(8).enumerate() {
                let word = words.get(&(address + 8 * place as u64)).copied().unwrap_or(0).to_le_bytes();
                part.copy_from_slice(&word[..part.len()]);
            }
            buffer.len()
        }
    }

    fn memory(change: Option<(u64, u64, u64)>) -> Memory {
        let memory = Memory { change, ..Memory::default() };
        let mut words = memory.words.lock().unwrap();
        for bin in 1..BINS {
            let head = ARENA + LAYOUT.bins + (bin - 1) * 16 - 16;
            words.insert(head + 16, head);
            words.insert(head + 24, head);
        }
        words.insert(ARENA + LAYOUT.system_mem, 0x21000);
        words.insert(ARENA + LAYOUT.max_system_mem, 0x22000);
        words.insert(ARENA + LAYOUT.top, HEAP + 0x9000);
        words.insert(HEAP + 0x9008, 0x3001);
        drop(words);
        memory
    }

    /// Put chunks of (address, size) into bin 1, the unsorted bin.
    fn fill_bin(memory: &Memory, chunks: &[(u64, u64)]) {
        let head = ARENA + LAYOUT.bins - 16;
        let mut ring = vec![head];
        ring.extend(chunks.iter().map(|(address, _)| *address));
        let mut words = memory.words.lock().unwrap();
        for (place, at) in ring.iter().enumerate() {
            words.insert(at + 16, ring[(place + 1) % ring.len()]);
            words.insert(at + 24, ring[(place + ring.len() - 1) % ring.len()]);
        }
        words.extend(chunks.iter().map(|(address, size)| (address + 8, size | 1)));
    }

    fn look(memory: Memory, most: u64) -> RunningArena {
        let machine = Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).unwrap();
        let space = Space::for_remote(machine, &[(0x1000, 0x100000)], Box::new(Shown(Arc::new(memory)))).unwrap();
        look_at_arena(&space, ARENA, &LAYOUT, most).unwrap()
    }

    #[test]
    fn adds_up_what_lists_hold() {
        let memory = memory(None);
        fill_bin(&memory, &[(HEAP, 0x1000), (HEAP + 0x4000, 0x3000)]);
        {
            // Two chunks of 48 bytes in the second fast bin, with links encoded as since 2.32.
            let (first, second) = (HEAP + 0x100, HEAP + 0x200);
            let mut words = memory.words.lock().unwrap();
            words.insert(ARENA + 16 + 8, first);
            words.insert(first + 8, 0x31);
            words.insert(first + 16, second ^ (first + 16) >> 12);
            words.insert(second + 8, 0x31);
            words.insert(second + 16, (second + 16) >> 12);
        }
        let found = look(memory, 100);
        let listed = found.listed.unwrap();
        assert_eq!((listed.chunks, listed.bytes, listed.whole), (4, 0x4060, 0x2000));
        assert_eq!((found.system, found.peak, found.top), (0x21000, 0x22000, Some(0x3000)));
        assert!(!found.locked);
    }

    #[test]
    fn follows_no_more_than_it_may() {
        let memory = memory(None);
        fill_bin(&memory, &[(HEAP, 0x40), (HEAP + 0x100, 0x40), (HEAP + 0x200, 0x40)]);
        assert!(look(memory, 2).listed.is_none());
    }

    #[test]
    fn believes_no_list_that_changes() {
        let chunks = [(HEAP, 0x40), (HEAP + 0x100, 0x40), (HEAP + 0x200, 0x40)];
        let still = memory(None);
        fill_bin(&still, &chunks);
        let machine = Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).unwrap();
        let shown = Arc::new(still);
        let space = Space::for_remote(machine, &[(0x1000, 0x100000)], Box::new(Shown(shown.clone()))).unwrap();
        assert!(look_at_arena(&space, ARENA, &LAYOUT, 100).unwrap().listed.is_some());
        let reads = shown.reads.load(Ordering::Relaxed);
        // Between any two reads a chunk grows, or its link moves: the result is either consistent or None.
        for when in 0..reads {
            for (at, value) in
                [(HEAP + 0x108, 0x61), (HEAP + 0x110, HEAP), (ARENA, 1), (ARENA + LAYOUT.system_mem, 0x23000)]
            {
                let memory = memory(Some((when, at, value)));
                fill_bin(&memory, &chunks);
                let found = look(memory, 100);
                let is_new = found.listed.is_some_and(|listed| listed.bytes == 0xe0);
                let is_old = found.listed.is_some_and(|listed| listed.bytes == 0xc0);
                assert!(found.listed.is_none() || is_new || is_old, "{when} {at:x}");
                // A change after the last read of the arena has no effect on this reading.
                let is_late = at != ARENA || when + 1 == reads;
                assert!(is_late || found.listed.is_none() && found.locked, "{when}");
            }
        }
    }
}
