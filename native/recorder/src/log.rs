//! The file: a header, then stages, of which one is mapped.

use crate::real::{self, typed};
use crate::stacks;
use crate::state::{self, Own as Owned, Process, State, Thread, OFF, RECORDING};
use crate::system;
use crate::turn::Own;
use core::ffi::{c_int, c_void};
use core::ptr::{copy_nonoverlapping, null_mut};
use core::sync::atomic::{compiler_fence, AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use gdbheap_calls::header::{self, word};
use gdbheap_calls::waiting::{self, Waiting};
use gdbheap_calls::{encode, usual_size, Event, MAX_EVENT, STAGE};

/// How many events come between two of time.
const TIME_EVERY: u32 = 256;
/// What a call may take: what is said of its thread, of the time, of its block, and itself, and the end of the stage.
const ROOM: usize = 6 * MAX_EVENT + 1;
/// Programs that close "all" descriptors mostly begin with the low ones.
const DESCRIPTOR: c_int = 900;
pub(crate) const MAX_PATH: usize = 4096;
const FOLDER: &core::ffi::CStr = c"GDBHEAP_CALLS";
const ORDER: &core::ffi::CStr = c"GDBHEAP_CALLS_ORDER";
const MAX_ENDS: usize = 4;

/// Of the program, whatever becomes of its environment: the folder. A forked child needs it.
struct Folder(core::cell::UnsafeCell<[u8; MAX_PATH]>);
// SAFETY: written once, by the first call of the program.
unsafe impl Sync for Folder {}
static PATH: Folder = Folder(core::cell::UnsafeCell::new([0; MAX_PATH]));
static PATH_LENGTH: AtomicUsize = AtomicUsize::new(0);
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
    if owned.used + ROOM + more > STAGE && !next_stage(owned) {
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
    if thread.pointer == me && !thread.has_ended {
        let number = thread.number;
        return put(owned, Event::Switch { thread: number });
    }
    // A new thread may have the memory of one that has ended.
    let tid = system::thread_id();
    if thread.pointer == me && thread.tid == tid {
        let number = thread.number;
        return put(owned, Event::Switch { thread: number });
    }
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
    let Some(process) = state::process().filter(|_| PATH_LENGTH.load(Ordering::Relaxed) != 0) else { return false };
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
        owned.descriptor = open(owned, libc::O_CREAT | libc::O_EXCL);
        // SAFETY: each thread has one.
        if owned.descriptor >= 0 || unsafe { *libc::__errno_location() } != libc::EEXIST {
            break;
        }
        owned.began += 1;
    }
    if owned.descriptor < 0 {
        return false;
    }
    let Some(found) = map(owned.descriptor, 0, header::SIZE) else { return false };
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
    // SAFETY: the environment is there before any constructor; results are copied at once.
    unsafe {
        let order = libc::getenv(ORDER.as_ptr());
        BY_TIME.store(!order.is_null() && libc::strcmp(order, c"time".as_ptr()) == 0, Ordering::Relaxed);
        let found = libc::getenv(FOLDER.as_ptr());
        if found.is_null() {
            return;
        }
        let length = libc::strlen(found);
        if length + 64 < MAX_PATH {
            copy_nonoverlapping(found as *const u8, PATH.0.get() as *mut u8, length);
            PATH_LENGTH.store(length, Ordering::Relaxed);
        }
    }
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

/// The file of this process: `FOLDER/PID-BEGAN.calls`, in hexadecimal digits.
fn open(owned: &mut Owned, flags: c_int) -> c_int {
    let (pid, began) = (owned.pid, owned.began);
    // Not on the program's stack, which may be small.
    let path = &mut owned.path;
    let mut length = PATH_LENGTH.load(Ordering::Relaxed);
    // SAFETY: it was written once, before its length.
    path[..length].copy_from_slice(unsafe { &(&*PATH.0.get())[..length] });
    let mut push = |bytes: &[u8]| {
        path[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    };
    push(b"/");
    push(&hexadecimal(pid.into()));
    push(b"-");
    push(&hexadecimal(began));
    push(b".calls\0");
    // SAFETY: the path ends with a zero byte. Descriptors that are given back are our own.
    unsafe {
        let made =
            libc::open(path.as_ptr() as *const _, libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW | flags, 0o600);
        if made < 0 {
            return made;
        }
        let moved = libc::fcntl(made, libc::F_DUPFD_CLOEXEC, DESCRIPTOR);
        if moved < 0 {
            return made;
        }
        libc::close(made);
        moved
    }
}

fn hexadecimal(number: u64) -> [u8; 16] {
    core::array::from_fn(|place| b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15])
}

/// Begins the next stage once the last one is in the file; false where there is no room.
///
/// Two slots are used in turn: which of them is current, and which stages are in the file already, changes with one word.
fn next_stage(owned: &mut Owned) -> bool {
    // A program may have closed our descriptor, and another file may have its number now.
    if !is_ours(owned) {
        owned.descriptor = open(owned, 0);
    }
    let is_kept = match owned.slots.is_null() {
        true => map(owned.descriptor, header::SIZE as u64, 2 * STAGE).map(|found| owned.slots = found).is_some(),
        false => keep_stage(owned),
    };
    if is_by_time() {
        // A program may have more threads than it may have descriptors.
        // SAFETY: our own.
        unsafe { libc::close(owned.descriptor) };
        owned.descriptor = -1;
    }
    if !is_kept {
        return false;
    }
    owned.stage = owned.slots.wrapping_add(owned.stages as usize % 2 * STAGE);
    // SAFETY: the slots are mapped.
    unsafe { owned.stage.write_volatile(0) };
    compiler_fence(Ordering::SeqCst);
    (owned.used, owned.thread) = (0, 0);
    owned.last = Default::default();
    owned.stages += 1;
    // SAFETY: within the header.
    unsafe { owned.header.add(word::STAGES).write_volatile(owned.stages) };
    true
}

/// Writes the current stage to its place in the file.
fn keep_stage(owned: &mut Owned) -> bool {
    let offset = header::offset_of(owned.stages - 1);
    if !is_wanted(owned) || !is_allowed(offset + STAGE as u64) {
        return false;
    }
    let mut written = 0;
    while written < owned.used {
        // SAFETY: from our own stage.
        let count = unsafe {
            let rest = owned.stage.add(written) as *const c_void;
            libc::pwrite(owned.descriptor, rest, owned.used - written, (offset + written as u64) as libc::off_t)
        };
        match count {
            1.. => written += count as usize,
            // SAFETY: each thread has one.
            _ if count < 0 && unsafe { *libc::__errno_location() } == libc::EINTR => {}
            _ => return false,
        }
    }
    true
}

/// Whether a file may become so large: a signal would tell the program otherwise.
fn is_allowed(size: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills in what it is given.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) == 0 && limit.rlim_cur >= size }
}

/// Whether the descriptor still is the file that we opened.
fn is_ours(owned: &Owned) -> bool {
    let mut began = [0u8; 8];
    let at = word::BEGAN * 8;
    // SAFETY: into our own memory.
    let got = unsafe { libc::pread(owned.descriptor, began.as_mut_ptr() as *mut _, 8, at as i64) };
    got == 8 && u64::from_le_bytes(began) == owned.began
}

/// Whether somebody still wants to read the file: whoever collects it removes it at the end.
fn is_wanted(owned: &Owned) -> bool {
    // SAFETY: zero bytes are a valid one, and the kernel fills in what it is given.
    unsafe {
        let mut found: libc::stat = core::mem::zeroed();
        libc::fstat(owned.descriptor, &mut found) == 0 && found.st_nlink > 0
    }
}

/// Room in the file, and its mapping, which a forked child does not get. Without room in the file system a mapping would be
/// SIGBUS's: it is asked for before.
fn map(descriptor: c_int, offset: u64, size: usize) -> Option<*mut u8> {
    if descriptor < 0 || !is_allowed(offset + size as u64) {
        return None;
    }
    // SAFETY: a new mapping of our own file.
    unsafe {
        if libc::fallocate(descriptor, 0, offset as i64, size as i64) != 0 {
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let found =
            libc::syscall(libc::SYS_mmap, null_mut::<u8>(), size, protection, libc::MAP_SHARED, descriptor, offset);
        if found == -1 {
            return None;
        }
        libc::madvise(found as *mut _, size, libc::MADV_DONTFORK);
        Some(found as usize as *mut u8)
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
