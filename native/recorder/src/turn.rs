//! Let the threads take turns: only one call at a time is made and recorded, so that the log has the calls in their
//! order. This file also handles the first call of a process, a forked child, and the end of a thread.

use crate::identity::describe;
use crate::lock::{take_alone, wait, HeldLock};
use crate::order::{self, is_by_time, ticks};
use crate::real::{self, typed};
use crate::stage::{arm, settle, state_of_thread, watch_ends};
use crate::state::{self, Process, State, NEW, OFF, RECORDING};
use crate::{file, log, stacks, system};
use core::ffi::c_void;
use core::sync::atomic::{compiler_fence, AtomicU64, Ordering};
use gdbheap_calls::header::{self, word};
use gdbheap_calls::{Event, STAGE};

const MAX_ENDS: usize = 4;

/// The process id. In a forked child it is still that of the parent, until the child begins its own file.
static PID: AtomicU64 = AtomicU64::new(0);
/// The time when the process's file began. In a forked child it is still that of the parent's file, until the child
/// begins its own.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// The number of forks so far. The parent increases it before it forks, so in the child it is the number of the child's
/// own fork.
static FORKS: AtomicU64 = AtomicU64::new(0);
/// In a forked child that has not begun its file yet: the number of the fork that made the child. 0 if the child was
/// made in another way.
static FORKED: AtomicU64 = AtomicU64::new(0);

/// How a call is treated: recorded or not, and with which lock.
pub(crate) enum Turn {
    /// Record the call.
    Own(HeldLock),
    /// A signal handler makes the call in the middle of another call of this thread: store the call until it can be
    /// written.
    Nested(&'static State),
    /// Do not record the call.
    Off,
}

#[inline(always)]
pub(crate) fn take() -> Turn {
    let Some(process) = state::process() else { return first() };
    let me = system::thread_pointer();
    if is_by_time() {
        return take_lane(process, me);
    }
    let state = process.state();
    let is_alone = real::is_single_threaded();
    if is_alone {
        if !take_alone(state, me) {
            return nested(state);
        }
    } else if state.lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() && !wait(state, me) {
        return nested(state);
    }
    begun(HeldLock { state, me, is_alone })
}

/// Take the lane of this thread. No thread waits for another, because the calls of each thread are recorded separately,
/// with their times.
fn take_lane(process: &'static Process, me: u64) -> Turn {
    match process.lane_of(me) {
        Some(state) if take_alone(state, me) => begun(HeldLock { state, me, is_alone: true }),
        Some(state) => nested(state),
        None => Turn::Off,
    }
}

#[inline(always)]
fn begun(own: HeldLock) -> Turn {
    if system::get(&own.state.mode) == RECORDING {
        settle(&own);
        // These are calls that a signal handler made after the end of the last call and before this thread took the
        // lock.
        log::write_waiting(&own);
        return Turn::Own(own);
    }
    begin(own)
}

fn nested(state: &'static State) -> Turn {
    match system::get(&state.mode) {
        RECORDING => Turn::Nested(state),
        _ => Turn::Off,
    }
}

/// Prepare the recorder at the first call of a program, and take a turn for the call.
#[cold]
fn first() -> Turn {
    order::learn();
    file::learn_folder();
    match state::make() {
        Some(_) => take(),
        None => Turn::Off,
    }
}

/// Begin the file at the first call of a process, or of a thread with its own lane. Return the turn of this call. The
/// caller has the lock.
#[cold]
fn begin(own: HeldLock) -> Turn {
    if system::get(&own.state.mode) == NEW && !begin_file(&own) {
        system::set(&own.state.mode, OFF);
    }
    match system::get(&own.state.mode) {
        RECORDING => Turn::Own(own),
        _ => Turn::Off,
    }
}

/// Begin the file of this process, or of a thread's lane. Return false if that fails.
#[cold]
fn begin_file(own: &HeldLock) -> bool {
    let _kept = system::KeptErrno::new();
    let Some(process) = state::process().filter(|_| file::has_folder()) else { return false };
    let _opening = file::FileOpening::begin();
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    if !is_by_time() {
        state::give_threads(process, owned);
    }
    let pid = system::process_id();
    owned.began = system::nanoseconds(libc::CLOCK_REALTIME);
    let is_first = process.began.compare_exchange(0, owned.began, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_first {
        // The identity of the process from which this one was forked, if it was forked.
        let before = [PID.load(Ordering::Relaxed), BEGAN.load(Ordering::Relaxed), FORKED.swap(0, Ordering::Relaxed)];
        for (place, value) in process.parent.iter().zip(before) {
            system::set(place, if before[0] == 0 { 0 } else { value });
        }
        PID.store(pid.into(), Ordering::Relaxed);
        BEGAN.store(owned.began, Ordering::Relaxed);
    }
    owned.pid = pid;
    // Two lanes may begin in the same nanosecond.
    for _ in 0..100 {
        owned.descriptor = file::open(owned, libc::O_CREAT | libc::O_EXCL);
        // SAFETY: each thread has an errno.
        if owned.descriptor >= 0 || unsafe { *libc::__errno_location() } != libc::EEXIST {
            break;
        }
        owned.began += 1;
    }
    if owned.descriptor < 0 {
        return false;
    }
    let Some(found) = file::map(owned.descriptor, 0, header::SIZE) else {
        // SAFETY: our own descriptor.
        unsafe { libc::close(owned.descriptor) };
        return false;
    };
    owned.header = found as *mut u64;
    owned.used = STAGE;
    let words = [
        (word::VERSION, header::VERSION),
        (word::STAGE, STAGE as u64),
        (word::PID, pid.into()),
        (word::BEGAN, owned.began),
        (word::PARENT_PID, system::get(&process.parent[0])),
        (word::PARENT_BEGAN, system::get(&process.parent[1])),
        (word::FORK, system::get(&process.parent[2])),
        (word::LANE_OF, if is_by_time() { system::get(&process.began) } else { 0 }),
        (word::STACKS, stacks::begin(owned)),
    ];
    for (place, value) in words {
        // SAFETY: within the header.
        unsafe { owned.header.add(place).write_volatile(value) };
    }
    describe(owned.header as *mut u8);
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above. A reader that finds this word finds all other words of the header, too.
    unsafe { owned.header.add(word::MAGIC).write_volatile(header::MAGIC) };
    file::hold_or_close(owned);
    watch_ends(at_end);
    system::set(&own.state.mode, RECORDING);
    true
}

/// Record the end of a thread. The destructors of thread-specific data run in several rounds, each of which calls this
/// function. Only the last round records the end, because other destructors may call the allocator before it.
extern "C" fn at_end(round: *mut c_void) {
    if (round as usize) < MAX_ENDS {
        return arm(round as usize + 1);
    }
    let Turn::Own(own) = take() else { return };
    log::write(&own, Event::End, ticks());
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    if let Some(thread) = owned.thread_of(own.me) {
        thread.has_ended = true;
    }
    owned.thread = 0;
}

#[used]
#[link_section = ".fini_array"]
static AT_EXIT: extern "C" fn() = at_exit;

/// Record the usable size of the block that was returned last, because no further call will record it. This function is
/// called when the process exits.
extern "C" fn at_exit() {
    let Some(state) = state::process().and_then(state_of_thread) else { return };
    if system::get(&state.mode) == RECORDING {
        take();
    }
}

/// Fork, and pass the number of the fork to the child. None if libc's fork is unknown.
pub(crate) fn fork() -> Option<libc::pid_t> {
    let function = real::FORK.get()?;
    let number = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    if let Turn::Own(own) = take() {
        log::write(&own, Event::Fork { number }, ticks());
    }
    // SAFETY: the function is libc's fork.
    let pid = unsafe { typed::<real::fork>(function)() };
    if pid == 0 {
        forked(number);
    }
    Some(pid)
}

/// Note the number of the fork in the child. Handlers of pthread_atfork may already have begun the child's file.
fn forked(number: u64) {
    FORKED.store(number, Ordering::Relaxed);
    let Some(process) = state::process().filter(|process| system::get(&process.began) != 0) else { return };
    system::set(&process.parent[2], FORKED.swap(0, Ordering::Relaxed));
    let Some(state) = state_of_thread(process).filter(|state| system::get(&state.mode) == RECORDING) else { return };
    // SAFETY: the child has one thread, and the header's address does not change.
    unsafe { (*state.own().word_at(word::FORK)).store(number, Ordering::Relaxed) };
}
