//! What is written down of each call, in the stage that is current, and what is said of a process and its threads.

use crate::file;
use crate::real::{self, typed};
use crate::stacks;
use crate::state::{self, Own as Owned, Process, State, Thread, OFF, RECORDING};
use crate::system;
use crate::turn::Own;
use core::ffi::c_void;
use core::ptr::copy_nonoverlapping;
use core::sync::atomic::{compiler_fence, AtomicBool, AtomicI32, AtomicU64, Ordering};
use gdbheap_calls::header::{self, word};
use gdbheap_calls::waiting::{self, Waiting};
use gdbheap_calls::{encode, usual_size, Event, MAX_EVENT, STAGE};

/// How many events come between two of time.
const TIME_EVERY: u32 = 256;
/// What a call may take: what is said of its thread, of the time, of its block, and itself, and the end of the stage.
const ROOM: usize = 6 * MAX_EVENT + 1;
const ORDER: &core::ffi::CStr = c"GDBHEAP_CALLS_ORDER";
const MAX_ENDS: usize = 4;

static BY_TIME: AtomicBool = AtomicBool::new(false);
/// Who this process is to a child that it forks, and the number of the fork.
static PID: AtomicU64 = AtomicU64::new(0);
static BEGAN: AtomicU64 = AtomicU64::new(0);
static FORKS: AtomicU64 = AtomicU64::new(0);
/// In a forked child, until it has begun its file: the number of the fork that made it. 0 for one that was made otherwise.
static FORKED: AtomicU64 = AtomicU64::new(0);
/// The key whose destructor tells of a thread's end; below 0 without one.
static KEY: AtomicI32 = AtomicI32::new(-1);

/// Writes down a call that was made, in the order in which it was: what handlers did until it had been made comes before it,
/// and what they do meanwhile after it.
#[inline(always)]
pub(crate) fn write(own: &Own, event: Event, begun: u64) {
    write_block(own, event, begun, 0, false);
}

/// The same for a call that gives a block of `size` bytes. What can be used of it stands in front of the block, where malloc
/// has only just written: to read that now would be to wait for it, so it is read when the next call comes, or `at_once`.
#[inline(always)]
pub(crate) fn write_block(own: &Own, event: Event, begun: u64, size: u64, at_once: bool) {
    compiler_fence(Ordering::SeqCst);
    let before = waiting_count(own);
    write_waiting_until(own, before);
    let block = event.block();
    if block != 0 {
        stacks::count(own, size);
    }
    append_timed(own, event, begun);
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    (owned.given, owned.given_size) = (block, size);
    if at_once {
        settle(own);
    }
    write_waiting(own);
}

/// Room for an event of `part`'s, with room behind it for a call. None where nothing can be written any more.
#[allow(clippy::mut_from_ref)]
pub(crate) fn room(own: &Own, size: usize) -> Option<&mut [u8]> {
    if !has_room(own, size) {
        return None;
    }
    // SAFETY: `own` has the lock; the stage is mapped, and has room.
    Some(unsafe {
        let owned = own.state.own();
        core::slice::from_raw_parts_mut(owned.stage.add(owned.used), size)
    })
}

/// What was put into `room` counts from now on: its first byte comes last.
pub(crate) fn written(own: &Own, (first, used): (u8, usize)) {
    // SAFETY: within the room, and behind it is room for a call.
    unsafe {
        let owned = own.state.own();
        owned.stage.add(owned.used + used).write(0);
        compiler_fence(Ordering::SeqCst);
        owned.stage.add(owned.used).write_volatile(first);
        owned.used += used;
    }
}

/// With its time, in the same stage, where calls are ordered by it. A block is there from the end of a call on, and gone from
/// its beginning on; both matter where realloc moves one.
#[inline(always)]
fn append_timed(own: &Own, event: Event, begun: u64) {
    if !is_by_time() {
        return append(own, event);
    }
    if !has_room(own, 0) {
        return;
    }
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    let is_moved = matches!(event, Event::Realloc { old, result, .. } if old != 0 && old != result);
    if event.block() == 0 || is_moved {
        put(owned, Event::Tick { ticks: begun });
    }
    if event.block() != 0 {
        put(owned, Event::Tick { ticks: ticks() });
    }
    owned.events += 1;
    put(owned, event);
}

/// Says what can be used of the block that was given last, where that is not what most have.
#[inline(always)]
pub(crate) fn settle(own: &Own) {
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

/// What a handler read before it made a call of its own, which may have freed the block, is as good or better.
#[cold]
fn write_unusual(own: &Own, found: Option<u64>) {
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

/// A handler that interrupts a call of its own thread is to free blocks only once it is known what could be used of them.
#[cold]
pub(crate) fn settle_for_owner(state: &state::State) {
    // SAFETY: the thread has the lock, and goes on after the handler.
    let owned = unsafe { state.own() };
    if owned.given != 0 && owned.settled == 0 {
        owned.settled = usable(owned.given);
    }
}

/// What can be used of a block of that size, where it is not what most have.
#[inline(always)]
pub(crate) fn unusual(block: u64, size: u64) -> Option<u64> {
    if block == 0 {
        return None;
    }
    Some(usable(block)).filter(|found| *found != 0 && *found != usual_size(size))
}

#[inline(always)]
fn usable(block: u64) -> u64 {
    match real::USABLE.get() {
        // SAFETY: a block that is in use.
        Some(function) => unsafe { typed::<real::malloc_usable_size>(function)(block as real::Address) as u64 },
        None => 0,
    }
}

#[inline(always)]
fn append(own: &Own, event: Event) {
    if has_room(own, 0) {
        // SAFETY: `own` has the lock, and nobody holds another reference.
        let owned = unsafe { own.state.own() };
        owned.events += 1;
        put(owned, event);
    }
}

/// Whether a call can be written down: there is room for all that belongs to it, and `more`, and it is known whose it is.
#[inline(always)]
fn has_room(own: &Own, more: usize) -> bool {
    // SAFETY: `own` has the lock, and nobody holds another reference.
    let owned = unsafe { own.state.own() };
    let is_ready = owned.used + ROOM + more <= STAGE && owned.thread == own.me && owned.events < TIME_EVERY;
    is_ready || prepare(own, owned, more)
}

#[inline(always)]
fn put(owned: &mut Owned, event: Event) {
    // SAFETY: the stage is mapped, and has room (`append`).
    let room = unsafe { &mut *(owned.stage.add(owned.used) as *mut [u8; MAX_EVENT]) };
    let (first, used) = encode(event, &mut owned.last, room);
    // The rest before the first byte: what is killed here leaves whole events.
    // SAFETY: as above. What follows is of a stage that was here before.
    unsafe { owned.stage.add(owned.used + used).write(0) };
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { owned.stage.add(owned.used).write_volatile(first) };
    owned.used += used;
}

/// Room, the time, and whose calls follow. False where nothing can be written any more.
#[cold]
fn prepare(own: &Own, owned: &mut Owned, more: usize) -> bool {
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

fn switch(me: u64, owned: &mut Owned) {
    owned.thread = me;
    if owned.thread_of(me).is_none() {
        owned.forget_ended();
    }
    let (Some(process), Some(thread)) = (state::process(), owned.thread_of(me)) else { return };
    // A new thread may have the memory of one that has ended; the kernel is asked for as little as that takes.
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

/// Has `at_end` called when this thread ends.
fn arm(round: usize) {
    let key = KEY.load(Ordering::Relaxed);
    if key >= 0 {
        // SAFETY: the key was made by `begin`. A call that this makes is a nested one.
        unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, round as *const c_void) };
    }
}

/// Called in each round of destructors; the last one is late enough: what other destructors free comes before.
extern "C" fn at_end(round: *mut c_void) {
    if (round as usize) < MAX_ENDS {
        return arm(round as usize + 1);
    }
    let crate::turn::Turn::Own(own) = crate::turn::take() else { return };
    write(&own, Event::End, ticks());
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    if let Some(thread) = owned.thread_of(own.me) {
        thread.has_ended = true;
    }
    owned.thread = 0;
}

/// Writes down what handlers did, all of it.
#[inline(always)]
pub(crate) fn write_waiting(own: &Own) {
    write_waiting_until(own, u64::MAX);
}

#[inline(always)]
fn waiting_count(own: &Own) -> u64 {
    // SAFETY: `own` has the lock; the header stays mapped.
    system::get(unsafe { &*own.state.own().word_at(word::WAITING) })
}

/// As far as there are so many.
#[inline(always)]
fn write_waiting_until(own: &Own, end: u64) {
    compiler_fence(Ordering::SeqCst);
    if end != 0 && waiting_count(own) != 0 {
        settle(own);
        write_each_waiting(own, end);
    }
}

#[cold]
fn write_each_waiting(own: &Own, end: u64) {
    // SAFETY: `own` has the lock; the header stays mapped.
    let (waiting, written, base) = unsafe {
        let owned = own.state.own();
        (&*owned.word_at(word::WAITING), &*owned.word_at(word::WRITTEN), owned.header.byte_add(header::WAITING_AT))
    };
    loop {
        let (done, count) = (system::get(written), system::get(waiting));
        if done < count.min(end) {
            // SAFETY: fewer than MAX_WAITING wait.
            let words = unsafe { &mut *(base.add(done as usize * header::WAITING_WORDS) as *mut Waiting) };
            if let Some((event, usable)) = waiting::from_words(words) {
                append_timed(own, event, ticks());
                if let Some(size) = usable {
                    append(own, Event::Usable { size });
                }
            }
            system::set(written, done + 1);
            words[0] = 0;
        } else if done < count {
            return;
        } else if waiting.compare_exchange(count, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            compiler_fence(Ordering::SeqCst);
            system::set(written, 0);
            return;
        }
    }
}

/// Keeps a call of a signal handler that interrupts another one of this thread; that may itself be one of these.
#[cold]
pub(crate) fn keep_waiting(state: &state::State, event: Event, usable: Option<u64>) {
    let Some(words) = waiting::to_words(event, usable) else { return };
    // SAFETY: the header's address does not change while a call is recorded; other threads wait for the lock.
    let (count, base) = unsafe {
        let owned = state.own();
        (&*owned.word_at(word::WAITING), owned.header.byte_add(header::WAITING_AT))
    };
    let place = count.fetch_add(1, Ordering::Relaxed);
    if place >= header::MAX_WAITING as u64 {
        count.fetch_sub(1, Ordering::Relaxed);
        return lose();
    }
    // SAFETY: below MAX_WAITING. The first word is written last: a place without it holds no call yet.
    unsafe {
        let kept = base.add(place as usize * header::WAITING_WORDS);
        copy_nonoverlapping(words[1..].as_ptr(), kept.add(1), header::WAITING_WORDS - 1);
        compiler_fence(Ordering::SeqCst);
        kept.write_volatile(words[0]);
    }
}

/// A call that cannot be written down. Nothing where there is no file to say so in.
#[cold]
pub(crate) fn lose() {
    let Some(state) = state::process().and_then(state_of_thread) else { return };
    // SAFETY: only the header's address is read, which is written once; it stays mapped.
    unsafe {
        let owned = state.own();
        if !owned.header.is_null() {
            (*owned.word_at(word::LOST)).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Where the calls of this thread are written; it is only looked at.
fn state_of_thread(process: &'static Process) -> Option<&'static State> {
    match is_by_time() {
        true => process.lane_of(system::thread_pointer()),
        false => Some(process.state()),
    }
}

/// Begins this process's file, or that of a thread's lane.
#[cold]
pub(crate) fn begin(own: &Own) -> bool {
    let _kept = system::KeptErrno::new();
    let Some(process) = state::process().filter(|_| file::has_folder()) else { return false };
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    if !is_by_time() {
        state::give_threads(process, owned);
    }
    let pid = system::process_id();
    owned.began = system::nanoseconds(libc::CLOCK_REALTIME);
    let is_first = process.began.compare_exchange(0, owned.began, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_first {
        // Of the process that this one was forked from, if there is one.
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
        // SAFETY: each thread has one.
        if owned.descriptor >= 0 || unsafe { *libc::__errno_location() } != libc::EEXIST {
            break;
        }
        owned.began += 1;
    }
    if owned.descriptor < 0 {
        return false;
    }
    let Some(found) = file::map(owned.descriptor, 0, header::SIZE) else { return false };
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
    crate::hooks::describe(owned.header as *mut u8);
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above. Whoever reads this finds the rest.
    unsafe { owned.header.add(word::MAGIC).write_volatile(header::MAGIC) };
    if KEY.load(Ordering::Relaxed) < 0 {
        let mut key: libc::pthread_key_t = 0;
        // SAFETY: the destructor outlives all threads: this library is never unloaded.
        if unsafe { libc::pthread_key_create(&mut key, Some(at_end)) } == 0 {
            KEY.store(key as i32, Ordering::Relaxed);
        }
    }
    system::set(&own.state.mode, RECORDING);
    true
}

/// Keeps what the environment says, which a program may change.
#[cold]
pub(crate) fn learn() {
    // SAFETY: the environment is there before any constructor.
    unsafe {
        let order = libc::getenv(ORDER.as_ptr());
        BY_TIME.store(!order.is_null() && libc::strcmp(order, c"time".as_ptr()) == 0, Ordering::Relaxed);
    }
    file::learn_folder();
}

/// Whether the order of calls is that of the processor's clock, and each thread has a lane of its own.
#[inline(always)]
pub(crate) fn is_by_time() -> bool {
    BY_TIME.load(Ordering::Relaxed)
}

/// The time, where calls are ordered by it.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    if is_by_time() {
        system::ticks()
    } else {
        0
    }
}

/// Forks, and lets the child know of which file it is the continuation.
pub(crate) fn fork() -> Option<libc::pid_t> {
    let function = real::FORK.get()?;
    let number = FORKS.fetch_add(1, Ordering::Relaxed) + 1;
    if let crate::turn::Turn::Own(own) = crate::turn::take() {
        write(&own, Event::Fork { number }, ticks());
    }
    // SAFETY: it is libc's fork.
    let pid = unsafe { typed::<real::fork>(function)() };
    if pid == 0 {
        forked(number);
    }
    Some(pid)
}

/// In the child. What is to be done in one (pthread_atfork) may have begun its file already.
fn forked(number: u64) {
    FORKED.store(number, Ordering::Relaxed);
    let Some(process) = state::process().filter(|process| system::get(&process.began) != 0) else { return };
    system::set(&process.parent[2], FORKED.swap(0, Ordering::Relaxed));
    let Some(state) = state_of_thread(process).filter(|state| system::get(&state.mode) == RECORDING) else { return };
    // SAFETY: the child has one thread, and the header's address does not change.
    unsafe { (*state.own().word_at(word::FORK)).store(number, Ordering::Relaxed) };
}
