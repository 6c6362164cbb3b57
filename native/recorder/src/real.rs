//! The functions that the hooks replace: the next definition of each, in another object.

use crate::system;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

pub(crate) type Address = *mut c_void;

/// A function that a hook replaces: its address, and its name. The address is null until the function was looked up,
/// and stays null if the function does not exist.
pub(crate) struct Function(AtomicPtr<c_void>, &'static [u8]);

impl Function {
    const fn new(name: &'static [u8]) -> Function {
        Function(AtomicPtr::new(null_mut()), name)
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Option<Address> {
        let found = self.0.load(Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }

    fn find(&self) {
        // SAFETY: the name ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr() as *const c_char) };
        self.0.store(found, Ordering::Relaxed);
    }
}

macro_rules! functions {
    ($($constant:ident $name:ident ($($type:ty),*) -> $result:ty;)*) => {
        $(pub(crate) static $constant: Function = Function::new(concat!(stringify!($name), "\0").as_bytes());
        pub(crate) type $name = unsafe extern "C" fn($($type),*) -> $result;)*

        fn find_all() {
            $($constant.find();)*
        }
    };
}

#[allow(non_camel_case_types)]
mod named {
    use super::*;
    functions! {
        MALLOC malloc(usize) -> Address;
        CALLOC calloc(usize, usize) -> Address;
        REALLOC realloc(Address, usize) -> Address;
        FREE free(Address) -> ();
        MEMALIGN memalign(usize, usize) -> Address;
        ALIGNED_ALLOC aligned_alloc(usize, usize) -> Address;
        POSIX_MEMALIGN posix_memalign(*mut Address, usize, usize) -> c_int;
        VALLOC valloc(usize) -> Address;
        PVALLOC pvalloc(usize) -> Address;
        USABLE malloc_usable_size(Address) -> usize;
        MALLOPT mallopt(c_int, c_int) -> c_int;
        TRIM malloc_trim(usize) -> c_int;
        FORK fork() -> libc::pid_t;
        CLOSE dlclose(Address) -> c_int;
    }

    pub(super) fn find() {
        find_all();
    }
}
pub(crate) use named::*;

/// Return the address of a function as a function pointer of the type `F`.
///
/// # Safety
/// `F` must be the type of the function at that address.
#[inline(always)]
pub(crate) unsafe fn typed<F: Copy>(function: Address) -> F {
    assert_size::<F>();
    // SAFETY: the caller guarantees the type; both have the same size.
    unsafe { core::mem::transmute_copy::<Address, F>(&function) }
}

const fn assert_size<F>() {
    assert!(core::mem::size_of::<F>() == core::mem::size_of::<Address>());
}

/// The thread pointer of the thread that looks the functions up. Calls that this thread makes meanwhile are served from
/// `EARLY`.
static LOOKING: AtomicU64 = AtomicU64::new(0);
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// Return whether the functions are known. The first call looks them up; other threads wait until it is done. Return
/// false if the look-up itself makes the call.
#[cold]
pub(crate) fn look_up() -> bool {
    let me = system::thread_pointer();
    if FOUND.load(Ordering::Acquire) != 0 {
        return true;
    }
    match LOOKING.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            find();
            // SAFETY: a static of libc's, or null.
            let flag = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
            SINGLE.store(flag as *mut u8, Ordering::Relaxed);
            FOUND.store(1, Ordering::Release);
            true
        }
        Err(owner) if owner == me => false,
        Err(_) => {
            while FOUND.load(Ordering::Acquire) == 0 {
                core::hint::spin_loop();
            }
            true
        }
    }
}

static SINGLE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Return whether glibc (2.32 and later) reports that the process has only one thread. False if unknown.
#[inline(always)]
pub(crate) fn is_single_threaded() -> bool {
    let flag = SINGLE.load(Ordering::Relaxed);
    // SAFETY: a variable of libc's, which it never unmaps.
    !flag.is_null() && unsafe { flag.read_volatile() } != 0
}

const EARLY_BYTES: usize = 64 << 10;
const ALIGNMENT: usize = 16;

#[repr(align(16))]
struct Early(core::cell::UnsafeCell<[u8; EARLY_BYTES]>);
// SAFETY: an atomic counter hands out each piece only once.
unsafe impl Sync for Early {}
static EARLY: Early = Early(core::cell::UnsafeCell::new([0; EARLY_BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Allocate zeroed memory for a call that comes before the functions are known. The size is stored before the memory.
/// The memory is never freed.
#[cold]
pub(crate) fn early(size: usize) -> Address {
    let Some(whole) = size.checked_add(2 * ALIGNMENT - 1).map(|size| size & !(ALIGNMENT - 1)) else {
        return null_mut();
    };
    let at = USED.fetch_add(whole, Ordering::Relaxed);
    if at.saturating_add(whole) > EARLY_BYTES {
        return null_mut();
    }
    // SAFETY: the memory is within the buffer, and nothing else has this piece.
    unsafe {
        let start = (EARLY.0.get() as *mut u8).add(at);
        (start as *mut usize).write(size);
        start.add(ALIGNMENT) as Address
    }
}

/// Return the size in bytes of a block from `early`; None for any other block.
#[inline(always)]
pub(crate) fn early_size(address: Address) -> Option<usize> {
    let distance = (address as usize).wrapping_sub(EARLY.0.get() as usize);
    // SAFETY: the size is stored before the block.
    (distance < EARLY_BYTES).then(|| unsafe { ((address as usize - ALIGNMENT) as *const usize).read() })
}
