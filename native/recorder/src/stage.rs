//! Write into the current stage: events, and between them the information about time, threads and blocks that the
//! events need.

use crate::file;
use crate::lock::HeldLock;
use crate::order::is_by_time;
use crate::real::{self, typed};
use crate::state::{self, LockedState, Process, State, Thread, OFF};
use crate::system;
use core::ffi::c_void;
use core::sync::atomic::{compiler_fence, AtomicI32, Ordering};
use gdbheap_calls::header::word;
use gdbheap_calls::{encode, usual_size, Event, MAX_EVENT, STAGE};

/// The number of events between two events that record the time.
const TIME_EVERY: u32 = 256;
/// The largest number of bytes that a call takes in a stage: its thread, the time, its block, the call itself, and the
/// end of the stage.
const ROOM: usize = 6 * MAX_EVENT + 1;

/// The key of thread-specific data whose destructor records the end of a thread (pthread_key_create); negative if there
/// is no key.
static KEY: AtomicI32 = AtomicI32::new(-1);

/// Return the next `size` bytes of the current stage, for an event with content. Enough bytes for a call remain after
/// them. None if nothing more can be written.
#[allow(clippy::mut_from_ref)]
pub(crate) fn room(own: &HeldLock, size: usize) -> Option<&mut [u8]> {
    if !has_room(own, size) {
        return None;
    }
    // SAFETY: `own` has the lock; the stage is mapped and has room.
    Some(unsafe {
        let owned = own.state.own();
        core::slice::from_raw_parts_mut(owned.stage.add(owned.used), size)
    })
}

/// Complete an event whose content is already in the bytes that `room()` returned: write the terminating 0 after its
/// `used` bytes, then its `first` byte.
pub(crate) fn written(own: &HeldLock, (first, used): (u8, usize)) {
    // SAFETY: within the room, and after that there is room for a call.
    unsafe {
        let owned = own.state.own();
        owned.stage.add(owned.used + used).write(0);
        compiler_fence(Ordering::SeqCst);
        owned.stage.add(owned.used).write_volatile(first);
        owned.used += used;
    }
}

/// Record the usable size in bytes of the block that was returned last, if it is not the usual one.
#[inline(always)]
pub(crate) fn settle(own: &HeldLock) {
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    if owned.given != 0 {
        let found = unusual(owned.given, owned.given_size);
        if found.is_some() || owned.settled != 0 {
            write_unusual(own, found);
        }
        owned.given = 0;
    }
}

/// Record the usable size in bytes of the block that was returned last, if it is not the usual one. `found`: this size.
///
/// A signal handler may already have read the size before its own call. Then its value is used, because the handler may
/// have freed the block since.
#[cold]
fn write_unusual(own: &HeldLock, found: Option<u64>) {
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    compiler_fence(Ordering::SeqCst);
    let found = match owned.settled {
        0 => found,
        settled => (settled != usual_size(owned.given_size)).then_some(settled),
    };
    (owned.given, owned.settled) = (0, 0);
    if let Some(size) = found {
        append(own, Event::Usable { size });
    }
}

/// Return the usable size in bytes of a block of `size` requested bytes, if it is not the usual one; else None.
#[inline(always)]
pub(crate) fn unusual(block: u64, size: u64) -> Option<u64> {
    if block == 0 {
        return None;
    }
    Some(usable(block)).filter(|found| *found != 0 && *found != usual_size(size))
}

#[inline(always)]
pub(crate) fn usable(block: u64) -> u64 {
    match real::USABLE.get() {
        // SAFETY: the block is in use.
        Some(function) => unsafe { typed::<real::malloc_usable_size>(function)(block as real::Address) as u64 },
        None => 0,
    }
}

#[inline(always)]
pub(crate) fn append(own: &HeldLock, event: Event) {
    if has_room(own, 0) {
        // SAFETY: `own` has the lock, and nothing else has a reference.
        let owned = unsafe { own.state.own() };
        owned.events += 1;
        put(owned, event);
    }
}

/// Return whether a call can be recorded: the stage can take all events of the call and `more` bytes, and the thread of
/// the call is recorded.
#[inline(always)]
pub(crate) fn has_room(own: &HeldLock, more: usize) -> bool {
    // SAFETY: `own` has the lock, and nothing else has a reference.
    let owned = unsafe { own.state.own() };
    let is_ready = owned.used + ROOM + more <= STAGE && owned.thread == own.me && owned.events < TIME_EVERY;
    is_ready || prepare(own, owned, more)
}

#[inline(always)]
pub(crate) fn put(owned: &mut LockedState, event: Event) {
    // SAFETY: the stage is mapped and has room (`append`).
    let room = unsafe { &mut *(owned.stage.add(owned.used) as *mut [u8; MAX_EVENT]) };
    let (first, used) = encode(event, &mut owned.last, room);
    // Everything else is written before the first byte, so that a kill here leaves whole events.
    // SAFETY: as above. The bytes after it are from an earlier stage in this slot.
    unsafe { owned.stage.add(owned.used + used).write(0) };
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { owned.stage.add(owned.used).write_volatile(first) };
    owned.used += used;
}

/// Begin a new stage if the current one is full, and record the time and the thread of the following calls. Return
/// false if nothing more can be written.
#[cold]
fn prepare(own: &HeldLock, owned: &mut LockedState, more: usize) -> bool {
    let _kept = system::KeptErrno::new();
    if owned.used + ROOM + more > STAGE && !file::next_stage(owned) {
        system::set(&own.state.mode, OFF);
        lose();
        return false;
    }
    if owned.events >= TIME_EVERY || owned.used == 0 {
        owned.events = 0;
        put(owned, Event::Time { nanoseconds: system::nanoseconds(libc::CLOCK_MONOTONIC) });
    }
    if owned.thread != own.me {
        switch(own.me, owned);
    }
    true
}

fn switch(me: u64, owned: &mut LockedState) {
    owned.thread = me;
    if owned.thread_of(me).is_none() {
        owned.forget_ended();
    }
    let (Some(process), Some(thread)) = (state::process(), owned.thread_of(me)) else { return };
    // A new thread may have the memory of a thread that has ended. The kernel is asked for the thread id only if that
    // is possible.
    if thread.pointer == me && (!thread.has_ended || thread.tid == system::thread_id()) {
        let number = thread.number;
        return put(owned, Event::Switch { thread: number });
    }
    let tid = system::thread_id();
    let number = process.numbers.fetch_add(1, Ordering::Relaxed) as u32 + 1;
    *thread = Thread { pointer: me, number, tid, has_ended: false };
    put(owned, Event::Thread { thread: number, tid });
    arm(1);
}

/// Have `at_end` called with the number `round` when this thread ends.
pub(crate) fn arm(round: usize) {
    let key = KEY.load(Ordering::Relaxed);
    if key >= 0 {
        // SAFETY: `watch_ends` created the key. If this calls the allocator, that call is a nested one.
        unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, round as *const c_void) };
    }
}

/// Count a call that could not be recorded, if the file has a header.
#[cold]
pub(crate) fn lose() {
    let Some(state) = state::process().and_then(state_of_thread) else { return };
    // SAFETY: only the address of the header is read. It is written once, and the header stays mapped.
    unsafe {
        let owned = state.own();
        if !owned.header.is_null() {
            (*owned.word_at(word::LOST)).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Return the state into which the calls of this thread are written; None if the thread has none yet. The caller must
/// not change it.
pub(crate) fn state_of_thread(process: &'static Process) -> Option<&'static State> {
    match is_by_time() {
        true => process.lane_of(system::thread_pointer()),
        false => Some(process.state()),
    }
}

/// Create the key whose destructor is `at_end`. `arm` gives the key a value in a thread. `at_end` is called with this
/// value when the thread ends.
pub(crate) fn watch_ends(at_end: extern "C" fn(*mut c_void)) {
    if KEY.load(Ordering::Relaxed) < 0 {
        let mut key: libc::pthread_key_t = 0;
        // SAFETY: the destructor outlives all threads, because this library is never unloaded.
        if unsafe { libc::pthread_key_create(&mut key, Some(at_end)) } == 0 {
            KEY.store(key as i32, Ordering::Relaxed);
        }
    }
}
