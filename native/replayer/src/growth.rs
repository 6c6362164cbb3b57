//! Which calls make an arena of glibc's larger: the main one by the break, others where one of their heaps says that it is
//! larger than it ever was.

use crate::real::Address;

/// Heaps of threads begin at multiples of this (malloc/arena.c, HEAP_MAX_SIZE), and `size` is their third word.
const SPAN: usize = 64 << 20;
const ARENA_WORD: usize = 0;
const SIZE_WORD: usize = 2;
/// Of the word before a block (malloc/malloc.c): it has a mapping of its own, it is in a heap of a thread's.
const MMAPPED: usize = 2;
const NON_MAIN_ARENA: usize = 4;
/// Entries of the table of heaps, each an address and a size.
pub(crate) const HEAPS: usize = 1 << 14;

pub(crate) struct Growth {
    last_break: usize,
    /// Addresses of heaps, then the largest sizes that were seen.
    heaps: &'static mut [u64],
}

/// An arena has become larger. `arena`: its address, 0 for the main one.
pub(crate) struct Grown {
    pub(crate) arena: u64,
    pub(crate) bytes: u64,
}

fn current_break() -> usize {
    // SAFETY: asks libc for what it has noted.
    unsafe { libc::sbrk(0) as usize }
}

impl Growth {
    /// `heaps`: 2 * HEAPS words of 0.
    pub(crate) fn new(heaps: &'static mut [u64]) -> Growth {
        Growth { last_break: current_break(), heaps }
    }

    /// A call is about to be made: what others have given back is no business of its.
    #[inline(always)]
    pub(crate) fn before(&mut self) {
        self.last_break = current_break();
    }

    /// Looks at the arena of a block that a call has just given.
    ///
    /// # Safety
    /// It is one of glibc's.
    #[inline(always)]
    pub(crate) unsafe fn after(&mut self, block: Address) -> Option<Grown> {
        // SAFETY: the word before a block is its chunk's size and three bits.
        let head = unsafe { *(block as *const usize).sub(1) };
        if head & MMAPPED != 0 {
            return None;
        }
        if head & NON_MAIN_ARENA == 0 {
            let bytes = current_break().checked_sub(self.last_break)? as u64;
            return (bytes > 0).then_some(Grown { arena: 0, bytes });
        }
        let heap = (block as usize & !(SPAN - 1)) as *const u64;
        // SAFETY: the heap of a block in a thread's arena begins there.
        let (arena, size) = unsafe { (*heap.add(ARENA_WORD), *heap.add(SIZE_WORD)) };
        let known = self.size_of(heap as u64)?;
        let bytes = size.checked_sub(*known)?;
        *known = size;
        (bytes > 0).then_some(Grown { arena, bytes })
    }

    /// The largest size of a heap so far, 0 of a new one; None where the table is full.
    fn size_of(&mut self, heap: u64) -> Option<&mut u64> {
        let (heaps, sizes) = self.heaps.split_at_mut(HEAPS);
        let first = heap as usize / SPAN;
        let place =
            (first..first + HEAPS).map(|place| place % HEAPS).find(|place| [0, heap].contains(&heaps[*place]))?;
        heaps[place] = heap;
        Some(&mut sizes[place])
    }
}
