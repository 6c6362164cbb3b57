//! An allocator for libc's own allocations in this program. They never come from the tested heap.
//!
//! Its blocks are in shared memory, so that they do not count as private pages of the tested allocator.

use crate::system;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

type Address = *mut c_void;

/// The size in bytes of the header before each block. Its first word is the block's class, the power of two of its
/// size. Its second word is the address of the next free block while the block is free.
const HEAD: usize = 16;
const CLASSES: usize = 48;
const SMALLEST: u32 = 5;
const PIECE: usize = 1 << 20;

struct OwnMemory {
    is_taken: AtomicBool,
    kept: core::cell::UnsafeCell<FreeBlocks>,
}

struct FreeBlocks {
    next: usize,
    end: usize,
    free: [usize; CLASSES],
}

// SAFETY: `kept` is only used while `is_taken` is held.
unsafe impl Sync for OwnMemory {}
static OWN: OwnMemory = OwnMemory {
    is_taken: AtomicBool::new(false),
    kept: core::cell::UnsafeCell::new(FreeBlocks { next: 0, end: 0, free: [0; CLASSES] }),
};

fn with<T>(work: impl FnOnce(&mut FreeBlocks) -> T) -> T {
    while OWN.is_taken.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    // SAFETY: no other thread uses the allocator now.
    let answer = work(unsafe { &mut *OWN.kept.get() });
    OWN.is_taken.store(false, Ordering::Release);
    answer
}

impl FreeBlocks {
    /// Return the address of a block of 2^class bytes, including its header; 0 if there is no memory.
    fn take(&mut self, class: usize) -> usize {
        let found = self.free[class];
        if found != 0 {
            // SAFETY: the second word of a free block is the address of the next free block.
            self.free[class] = unsafe { *(found as *const usize).add(1) };
            return found;
        }
        let whole = 1usize << class;
        if self.end - self.next < whole {
            let size = whole.max(PIECE);
            let Some(start) = system::shared(size, 0) else { return 0 };
            (self.next, self.end) = (start as usize, start as usize + size);
        }
        self.next += whole;
        self.next - whole
    }
}

fn allocate(size: usize) -> Address {
    let Some(whole) = size.checked_add(HEAD).and_then(usize::checked_next_power_of_two) else { return null_mut() };
    let class = whole.trailing_zeros().max(SMALLEST) as usize;
    if class >= CLASSES {
        return null_mut();
    }
    let start = with(|kept| kept.take(class));
    if start == 0 {
        return null_mut();
    }
    // SAFETY: the block belongs to this allocator.
    unsafe { *(start as *mut usize) = class };
    (start + HEAD) as Address
}

/// # Safety
///
/// The rules of malloc(3) apply.
#[no_mangle]
pub unsafe extern "C" fn malloc(size: usize) -> Address {
    allocate(size)
}

/// # Safety
///
/// The rules of calloc(3) apply.
#[no_mangle]
pub unsafe extern "C" fn calloc(count: usize, each: usize) -> Address {
    let Some(size) = count.checked_mul(each) else { return null_mut() };
    let found = allocate(size);
    if !found.is_null() {
        // SAFETY: the block has that size.
        unsafe { zero(found as *mut u8, size) };
    }
    found
}

/// Fill memory with zeros, byte by byte. The writes are volatile, because the compiler may otherwise replace the loop
/// by a call of memset or calloc, and calloc calls this function.
unsafe fn zero(start: *mut u8, size: usize) {
    for at in 0..size {
        // SAFETY: the caller guarantees the size.
        unsafe { start.add(at).write_volatile(0) };
    }
}

/// # Safety
///
/// The rules of realloc(3) apply.
#[no_mangle]
pub unsafe extern "C" fn realloc(old: Address, size: usize) -> Address {
    let found = allocate(size);
    if !old.is_null() && !found.is_null() {
        // SAFETY: both blocks belong to this allocator; the class of the old block is before it.
        unsafe {
            let class = *((old as usize - HEAD) as *const usize);
            core::ptr::copy_nonoverlapping(old as *const u8, found as *mut u8, size.min((1 << class) - HEAD));
            free(old);
        }
    }
    found
}

/// # Safety
///
/// The rules of free(3) apply.
#[no_mangle]
pub unsafe extern "C" fn free(address: Address) {
    if address.is_null() {
        return;
    }
    let start = address as usize - HEAD;
    // SAFETY: the block belongs to this allocator, and its head still exists.
    with(|kept| unsafe {
        let class = *(start as *const usize) % CLASSES;
        *(start as *mut usize).add(1) = kept.free[class];
        kept.free[class] = start;
    });
}
