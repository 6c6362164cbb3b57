//! Find the calls that make an arena of glibc larger. The main arena has grown if the program break has moved up.
//! Another arena has grown if one of its heaps is larger than ever before.

use crate::real::Address;

/// The alignment and largest size of a thread's heap in bytes (malloc/arena.c, HEAP_MAX_SIZE). The heap of a block is
/// found by rounding down the block's address.
const SPAN: usize = 64 << 20;
const ARENA_WORD: usize = 0;
const SIZE_WORD: usize = 2;
/// Flags in the word before a block (malloc/malloc.c). MMAPPED: the block has its own mapping. NON_MAIN_ARENA: the
/// block is in a thread's heap.
const MMAPPED: usize = 2;
const NON_MAIN_ARENA: usize = 4;
/// The number of entries in the table of heaps, each an address and a size.
pub(crate) const HEAPS: usize = 1 << 14;

pub(crate) struct Growth {
    last_break: usize,
    /// A hash table of heaps in two halves: the addresses, and the largest size in bytes that was seen of each heap.
    heaps: &'static mut [u64],
}

/// How much an arena has grown. `arena`: the arena's address; 0 for the main arena. `bytes`: the number of new bytes.
pub(crate) struct ArenaGrowth {
    pub(crate) arena: u64,
    pub(crate) bytes: u64,
}

fn current_break() -> usize {
    // SAFETY: asks libc for the program break, which it stores.
    unsafe { libc::sbrk(0) as usize }
}

impl Growth {
    /// Begin with the current program break. `heaps`: 2 * HEAPS words, all 0.
    pub(crate) fn new(heaps: &'static mut [u64]) -> Growth {
        Growth { last_break: current_break(), heaps }
    }

    /// Note the program break before a call, so that memory that earlier calls released does not count.
    #[inline(always)]
    pub(crate) fn before(&mut self) {
        self.last_break = current_break();
    }

    /// Check the arena of a block that a call has just returned. Return the growth of the arena; None if it has not
    /// grown.
    ///
    /// # Safety
    /// The block must be one of glibc's.
    #[inline(always)]
    pub(crate) unsafe fn after(&mut self, block: Address) -> Option<ArenaGrowth> {
        // SAFETY: the word before a block is the size of its chunk and three bits.
        let head = unsafe { *(block as *const usize).sub(1) };
        if head & MMAPPED != 0 {
            return None;
        }
        if head & NON_MAIN_ARENA == 0 {
            let bytes = current_break().checked_sub(self.last_break)? as u64;
            return (bytes > 0).then_some(ArenaGrowth { arena: 0, bytes });
        }
        let heap = (block as usize & !(SPAN - 1)) as *const u64;
        // SAFETY: the heap of a block in a thread's arena begins there.
        let (arena, size) = unsafe { (*heap.add(ARENA_WORD), *heap.add(SIZE_WORD)) };
        let known = self.size_of(heap as u64)?;
        let bytes = size.checked_sub(*known)?;
        *known = size;
        (bytes > 0).then_some(ArenaGrowth { arena, bytes })
    }

    /// Return the largest size in bytes that was seen of a heap, for the caller to update. It is 0 for a new heap. None
    /// if the table is full.
    fn size_of(&mut self, heap: u64) -> Option<&mut u64> {
        let (heaps, sizes) = self.heaps.split_at_mut(HEAPS);
        let first = heap as usize / SPAN;
        let place =
            (first..first + HEAPS).map(|place| place % HEAPS).find(|place| [0, heap].contains(&heaps[*place]))?;
        heaps[place] = heap;
        Some(&mut sizes[place])
    }
}
