//! The functions that the program calls instead of the functions of libc.

use crate::log;
use crate::order::ticks;
use crate::real::{self, typed, Address};
use crate::stacks;
use crate::stage::{lose, unusual};
use crate::system;
use crate::turn::{self, Turn};
use core::ffi::c_int;
use core::ptr::null_mut;
use gdbheap_calls::Event;

/// Look up the next definition of a function (RTLD_NEXT). If there is none, the function that uses this macro returns
/// the fallback `$otherwise`.
macro_rules! behind {
    ($function:ident, $otherwise:expr) => {
        match real::$function.get() {
            Some(found) => found,
            None if real::look_up() => match real::$function.get() {
                Some(found) => found,
                None => return $otherwise,
            },
            None => return $otherwise,
        }
    };
}

/// The smallest size in bytes for which the usable size is read at once. The next call may unmap the pages of such a
/// block.
const LARGE: u64 = 32 << 10;

/// Make a call and record it. `size`: the requested bytes; None if the call does not return a block.
#[inline(always)]
fn recorded<T: Copy>(call: impl FnOnce() -> T, size: Option<u64>, event: impl FnOnce(T) -> Event) -> T {
    match turn::take() {
        Turn::Own(own) => {
            let begun = ticks();
            let result = call();
            let event = event(result);
            match size {
                Some(size) => log::write_block(&own, event, begun, size, size >= LARGE),
                None => log::write(&own, event, begun),
            }
            result
        }
        Turn::Nested(state) => {
            log::settle_for_owner(state);
            let result = call();
            let event = event(result);
            log::keep_waiting(state, event, size.and_then(|size| unusual(event.block(), size)));
            result
        }
        Turn::Off => {
            lose();
            call()
        }
    }
}

/// # Safety
///
/// The rules of malloc(3) apply.
#[no_mangle]
pub unsafe extern "C" fn malloc(size: usize) -> Address {
    let function = behind!(MALLOC, real::early(size));
    // SAFETY: the caller guarantees the arguments, here and below.
    let call = || unsafe { typed::<real::malloc>(function)(size) };
    recorded(call, Some(size as u64), |result| Event::Malloc { size: size as u64, result: result as u64 })
}

/// # Safety
///
/// The rules of calloc(3) apply.
#[no_mangle]
pub unsafe extern "C" fn calloc(count: usize, each: usize) -> Address {
    let size = count.saturating_mul(each);
    let function = behind!(CALLOC, real::early(size));
    let call = || unsafe { typed::<real::calloc>(function)(count, each) };
    recorded(call, Some(size as u64), |result| Event::Calloc { size: size as u64, result: result as u64 })
}

/// # Safety
///
/// The rules of free(3) apply.
#[no_mangle]
pub unsafe extern "C" fn free(address: Address) {
    if real::early_size(address).is_some() {
        return;
    }
    let function = behind!(FREE, Default::default());
    let call = || unsafe { typed::<real::free>(function)(address) };
    recorded(call, None, |()| Event::Free { address: address as u64 })
}

/// # Safety
///
/// The rules of free(3) apply.
#[no_mangle]
pub unsafe extern "C" fn cfree(address: Address) {
    // SAFETY: the caller guarantees the argument.
    unsafe { free(address) }
}

/// # Safety
///
/// The rules of realloc(3) apply.
#[no_mangle]
pub unsafe extern "C" fn realloc(address: Address, size: usize) -> Address {
    if let Some(before) = real::early_size(address) {
        // SAFETY: the first block is new, and the second one comes from `early`.
        return unsafe {
            let found = malloc(size);
            if !found.is_null() {
                core::ptr::copy_nonoverlapping(address as *const u8, found as *mut u8, before.min(size));
            }
            found
        };
    }
    let function = behind!(REALLOC, real::early(size));
    let call = || unsafe { typed::<real::realloc>(function)(address, size) };
    let event = |result| Event::Realloc { size: size as u64, old: address as u64, result: result as u64 };
    recorded(call, Some(size as u64), event)
}

/// # Safety
///
/// The rules of reallocarray(3) apply.
#[no_mangle]
pub unsafe extern "C" fn reallocarray(address: Address, count: usize, each: usize) -> Address {
    match count.checked_mul(each) {
        // SAFETY: the caller guarantees the arguments.
        Some(size) => unsafe { realloc(address, size) },
        None => {
            // SAFETY: each thread has an errno.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            null_mut()
        }
    }
}

/// # Safety
///
/// The rules of memalign(3) apply.
#[no_mangle]
pub unsafe extern "C" fn memalign(alignment: usize, size: usize) -> Address {
    let function = behind!(MEMALIGN, null_mut());
    let call = || unsafe { typed::<real::memalign>(function)(alignment, size) };
    recorded(call, Some(size as u64), |result| aligned(size, alignment, result))
}

/// # Safety
///
/// The rules of aligned_alloc(3) apply.
#[no_mangle]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, size: usize) -> Address {
    let function = behind!(ALIGNED_ALLOC, null_mut());
    let call = || unsafe { typed::<real::aligned_alloc>(function)(alignment, size) };
    recorded(call, Some(size as u64), |result| aligned(size, alignment, result))
}

/// # Safety
///
/// The rules of posix_memalign(3) apply.
#[no_mangle]
pub unsafe extern "C" fn posix_memalign(place: *mut Address, alignment: usize, size: usize) -> c_int {
    let function = behind!(POSIX_MEMALIGN, libc::ENOMEM);
    let mut found = null_mut();
    let call = || unsafe {
        let status = typed::<real::posix_memalign>(function)(&mut found, alignment, size);
        (status, if status == 0 { found } else { null_mut() })
    };
    let (status, found) = recorded(call, Some(size as u64), |(_, result)| aligned(size, alignment, result));
    if status == 0 {
        // SAFETY: the caller provides the place for the result.
        unsafe { place.write(found) };
    }
    status
}

/// # Safety
///
/// The rules of valloc(3) apply.
#[no_mangle]
pub unsafe extern "C" fn valloc(size: usize) -> Address {
    let function = behind!(VALLOC, null_mut());
    let call = || unsafe { typed::<real::valloc>(function)(size) };
    recorded(call, Some(size as u64), |result| aligned(size, page(), result))
}

/// # Safety
///
/// The rules of pvalloc(3) apply.
#[no_mangle]
pub unsafe extern "C" fn pvalloc(size: usize) -> Address {
    let function = behind!(PVALLOC, null_mut());
    let whole = size.checked_next_multiple_of(page()).unwrap_or(size);
    let call = || unsafe { typed::<real::pvalloc>(function)(size) };
    recorded(call, Some(whole as u64), |result| aligned(whole, page(), result))
}

fn page() -> usize {
    // SAFETY: the call has no other arguments.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

fn aligned(size: usize, alignment: usize, result: Address) -> Event {
    Event::Memalign { size: size as u64, alignment: alignment as u64, result: result as u64 }
}

/// # Safety
///
/// The rules of mallopt(3) apply.
#[no_mangle]
pub unsafe extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    let function = behind!(MALLOPT, 0);
    let call = || unsafe { typed::<real::mallopt>(function)(parameter, value) };
    recorded(call, None, |_| Event::Mallopt { parameter, value })
}

/// # Safety
///
/// The rules of malloc_trim(3) apply.
#[no_mangle]
pub unsafe extern "C" fn malloc_trim(pad: usize) -> c_int {
    let function = behind!(TRIM, 0);
    let call = || unsafe { typed::<real::malloc_trim>(function)(pad) };
    recorded(call, None, |_| Event::Trim { pad: pad as u64 })
}

/// Make a call that makes or changes a mapping, and record it. Mappings that an allocator makes in the middle of a call
/// belong to the allocator, and are not recorded.
#[inline(always)]
fn recorded_mapping(call: impl FnOnce() -> i64, event: impl FnOnce(u64) -> Event) -> i64 {
    match turn::take() {
        Turn::Own(own) => {
            let result = call();
            if result != -1 {
                let _kept = system::KeptErrno::new();
                log::write(&own, event(result as u64), ticks());
            }
            result
        }
        _ => call(),
    }
}

/// # Safety
///
/// The rules of mmap(2) apply.
#[no_mangle]
pub unsafe extern "C" fn mmap(
    address: Address,
    size: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: libc::off_t,
) -> Address {
    // SAFETY: the caller guarantees the arguments, here and in the next two functions.
    let call = || unsafe { libc::syscall(libc::SYS_mmap, address, size, protection, flags, descriptor, offset) };
    let event = |result| Event::Mmap { size: size as u64, protection: protection as u32, flags: flags as u32, result };
    recorded_mapping(call, event) as usize as Address
}

/// # Safety
///
/// The rules of mmap(2) apply.
#[no_mangle]
pub unsafe extern "C" fn mmap64(
    address: Address,
    size: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: libc::off_t,
) -> Address {
    // SAFETY: the caller guarantees the arguments.
    unsafe { mmap(address, size, protection, flags, descriptor, offset) }
}

/// # Safety
///
/// The rules of munmap(2) apply.
#[no_mangle]
pub unsafe extern "C" fn munmap(address: Address, size: usize) -> c_int {
    let call = || unsafe { libc::syscall(libc::SYS_munmap, address, size) };
    recorded_mapping(call, |_| Event::Munmap { address: address as u64, size: size as u64 }) as c_int
}

/// # Safety
///
/// The rules of mremap(2) apply. The argument `new` is used only if the flags ask for it. Otherwise the caller may not
/// have passed it.
#[no_mangle]
pub unsafe extern "C" fn mremap(old: Address, old_size: usize, size: usize, flags: c_int, new: Address) -> Address {
    let call = || unsafe { libc::syscall(libc::SYS_mremap, old, old_size, size, flags, new) };
    let event = |result| Event::Mremap { old: old as u64, old_size: old_size as u64, size: size as u64, result };
    recorded_mapping(call, event) as usize as Address
}

/// # Safety
///
/// The rules of dlclose(3) apply.
#[no_mangle]
pub unsafe extern "C" fn dlclose(object: Address) -> c_int {
    let function = behind!(CLOSE, -1);
    // SAFETY: the caller guarantees the argument.
    let status = unsafe { typed::<real::dlclose>(function)(object) };
    stacks::UNLOADED.store(true, core::sync::atomic::Ordering::Relaxed);
    status
}

/// # Safety
///
/// The rules of fork(2) apply.
#[no_mangle]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    if !real::look_up() {
        return -1;
    }
    turn::fork().unwrap_or(-1)
}
