//! Wrap the functions of Python's own allocator. The wrappers record every call and pass it on. pymalloc stays in use,
//! unlike with PYTHONMALLOC=malloc.
//!
//! The wrappers are installed before the program's main(), when nothing was allocated yet. An interpreter that chooses
//! its allocator itself (PYTHONMALLOC, -X dev) removes them again, and is not recorded. An interpreter that is loaded
//! later is not recorded either.

use crate::log;
use crate::order::ticks;
use crate::real::{typed, Address};
use crate::stage::lose;
use crate::turn::{self, Turn};
use core::cell::UnsafeCell;
use core::ffi::{c_int, CStr};
use core::ptr::null_mut;
use gdbheap_calls::Event;

/// The environment variable that is set if Python's calls are to be recorded.
const WANTED: &CStr = c"GDBHEAP_CALLS_OF_PYTHON";
/// A symbol that only an interpreter without a GIL exports (Include/refcount.h, 3.13 and later). The threads of such an
/// interpreter allocate at the same time, so the order of its calls is unknown.
const WITHOUT_GIL: &CStr = c"_Py_MergeZeroLocalRefcount";

/// The structure PyMemAllocatorEx, unchanged since 3.5 (Include/cpython/pymem.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct Allocator {
    context: Address,
    malloc: unsafe extern "C" fn(Address, usize) -> Address,
    calloc: unsafe extern "C" fn(Address, usize, usize) -> Address,
    realloc: unsafe extern "C" fn(Address, Address, usize) -> Address,
    free: unsafe extern "C" fn(Address, Address),
}

/// The type of PyMem_GetAllocator and PyMem_SetAllocator.
type Exchange = unsafe extern "C" fn(c_int, *mut Allocator);

/// PYMEM_DOMAIN_MEM and PYMEM_DOMAIN_OBJ. The third domain is malloc itself.
const DOMAINS: [c_int; 2] = [1, 2];

struct Behind(UnsafeCell<Option<Allocator>>);
// SAFETY: written before main(), when there is only one thread.
unsafe impl Sync for Behind {}
static BEHIND: [Behind; 2] = [const { Behind(UnsafeCell::new(None)) }; 2];

#[used]
#[link_section = ".init_array"]
static AT_START: extern "C" fn() = at_start;

/// Install the wrappers. The dynamic linker calls this function after it has relocated the libraries that the program
/// needs, and before main().
extern "C" fn at_start() {
    // SAFETY: names end with a zero byte.
    let function = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if unsafe { libc::getenv(WANTED.as_ptr()) }.is_null() || !function(WITHOUT_GIL).is_null() {
        return;
    }
    let (get, set) = (function(c"PyMem_GetAllocator"), function(c"PyMem_SetAllocator"));
    if get.is_null() || set.is_null() {
        return;
    }
    for (domain, behind) in DOMAINS.into_iter().zip(&BEHIND) {
        // SAFETY: both functions have the types of their names; the interpreter copies what it is passed.
        unsafe {
            let mut found = core::mem::MaybeUninit::<Allocator>::zeroed();
            typed::<Exchange>(get)(domain, found.as_mut_ptr());
            behind.0.get().write(Some(found.assume_init()));
            let context = behind.0.get() as Address;
            typed::<Exchange>(set)(domain, &mut Allocator { context, malloc, calloc, realloc, free });
        }
    }
}

/// # Safety
/// `context` must be the pointer that `at_start` has set.
#[inline(always)]
unsafe fn behind(context: Address) -> Option<&'static Allocator> {
    // SAFETY: the caller guarantees it.
    unsafe { (*(context as *const Option<Allocator>)).as_ref() }
}

/// Record a call of Python's allocator after it was made, so that its calls of malloc come first in the log. The thread
/// holds the GIL, so no other thread's call of Python's allocator comes in between.
#[inline(always)]
fn write(event: Event) {
    match turn::take() {
        Turn::Own(own) => log::write(&own, event, ticks()),
        _ => lose(),
    }
}

unsafe extern "C" fn malloc(context: Address, size: usize) -> Address {
    // SAFETY: Python guarantees the arguments, here and below.
    let Some(behind) = (unsafe { behind(context) }) else { return null_mut() };
    let result = unsafe { (behind.malloc)(behind.context, size) };
    write(Event::PythonMalloc { size: size as u64, result: result as u64 });
    result
}

unsafe extern "C" fn calloc(context: Address, count: usize, each: usize) -> Address {
    let Some(behind) = (unsafe { behind(context) }) else { return null_mut() };
    let result = unsafe { (behind.calloc)(behind.context, count, each) };
    write(Event::PythonCalloc { size: count.saturating_mul(each) as u64, result: result as u64 });
    result
}

unsafe extern "C" fn realloc(context: Address, address: Address, size: usize) -> Address {
    let Some(behind) = (unsafe { behind(context) }) else { return null_mut() };
    let old = address as u64;
    let result = unsafe { (behind.realloc)(behind.context, address, size) };
    write(Event::PythonRealloc { size: size as u64, old, result: result as u64 });
    result
}

unsafe extern "C" fn free(context: Address, address: Address) {
    let Some(behind) = (unsafe { behind(context) }) else { return };
    unsafe { (behind.free)(behind.context, address) };
    write(Event::PythonFree { address: address as u64 });
}
