//! The file: a header, then stages, of which one is mapped.

use crate::real::{self, typed};
use crate::stacks;
use crate::state::{self, Own as Owned, Thread, OFF, RECORDING};
use crate::system;
use crate::turn::Own;
use core::ffi::{c_int, c_void};
use core::ptr::{copy_nonoverlapping, null_mut};
use core::sync::atomic::{compiler_fence, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use gdbheap_calls::header::{self, word};
use gdbheap_calls::waiting::{self, Waiting};
use gdbheap_calls::{encode, Event, MAX_EVENT, STAGE};

/// How many events come between two of time.
const TIME_EVERY: u32 = 256;
/// What a call may take: what is said of its thread, of the time, of its block, and itself.
const ROOM: usize = 6 * MAX_EVENT;
/// Programs that close "all" descriptors mostly begin with the low ones.
const DESCRIPTOR: c_int = 900;
pub(crate) const MAX_PATH: usize = 4096;
const FOLDER: &core::ffi::CStr = c"GDBHEAP_CALLS";
const MAX_ENDS: usize = 4;

/// Of the program, whatever becomes of its environment: the folder. A forked child needs it.
struct Folder(core::cell::UnsafeCell<[u8; MAX_PATH]>);
// SAFETY: written once, by the first call of the program.
unsafe impl Sync for Folder {}
static PATH: Folder = Folder(core::cell::UnsafeCell::new([0; MAX_PATH]));
static PATH_LENGTH: AtomicUsize = AtomicUsize::new(0);
/// Who this process is to a child that it forks, and the number of the fork.
static PID: AtomicU64 = AtomicU64::new(0);
static BEGAN: AtomicU64 = AtomicU64::new(0);
static FORKS: AtomicU64 = AtomicU64::new(0);
/// The key whose destructor tells of a thread's end; below 0 without one.
static KEY: AtomicI32 = AtomicI32::new(-1);

/// Writes down a call that was made, in the order in which it was: what handlers did until it had been made comes before it,
/// and what they do meanwhile after it.
#[inline(always)]
pub(crate) fn write(own: &Own, event: Event, usable: Option<u64>) {
    compiler_fence(Ordering::SeqCst);
    let before = waiting_count(own);
    write_waiting_until(own, before);
    if let Some(size) = allocated(event) {
        stacks::count(own, size);
    }
    append_sized(own, event, usable);
    write_waiting(own);
}

/// Bytes of the block that a call gave; None where it gave none.
#[inline(always)]
fn allocated(event: Event) -> Option<u64> {
    match event {
        Event::Malloc { size, result }
        | Event::Calloc { size, result }
        | Event::Realloc { size, result, .. }
        | Event::Memalign { size, result, .. } => (result != 0).then_some(size),
        _ => None,
    }
}

/// Room for an event of `part`'s, with room behind it for a call. None where nothing can be written any more.
#[allow(clippy::mut_from_ref)]
pub(crate) fn room(own: &Own, size: usize) -> Option<&mut [u8]> {
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    if owned.used + size + ROOM > STAGE {
        owned.used = STAGE;
    }
    if (owned.used + ROOM > STAGE || owned.thread != own.me || owned.events >= TIME_EVERY) && !prepare(own, owned) {
        return None;
    }
    // SAFETY: the stage is mapped, and has room: at its beginning it has more than any event takes.
    Some(unsafe { core::slice::from_raw_parts_mut(owned.stage.add(owned.used), size) })
}

/// What was put into `room` counts from now on: its first byte comes last.
pub(crate) fn written(own: &Own, (first, used): (u8, usize)) {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: within the room.
    unsafe {
        let owned = own.state.own();
        owned.stage.add(owned.used).write_volatile(first);
        owned.used += used;
    }
}

#[inline(always)]
fn append_sized(own: &Own, event: Event, usable: Option<u64>) {
    if let Some(size) = usable {
        append(own, Event::Usable { size });
    }
    append(own, event);
}

#[inline(always)]
fn append(own: &Own, event: Event) {
    // SAFETY: `own` has the lock, and nobody holds another reference.
    let owned = unsafe { own.state.own() };
    if (owned.used + ROOM > STAGE || owned.thread != own.me || owned.events >= TIME_EVERY) && !prepare(own, owned) {
        return;
    }
    owned.events += 1;
    put(owned, event);
}

#[inline(always)]
fn put(owned: &mut Owned, event: Event) {
    // SAFETY: the stage is mapped, and has room (`append`).
    let room = unsafe { &mut *(owned.stage.add(owned.used) as *mut [u8; MAX_EVENT]) };
    let (first, used) = encode(event, &mut owned.last, room);
    // The rest before the first byte: what is killed here leaves whole events.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { owned.stage.add(owned.used).write_volatile(first) };
    owned.used += used;
}

/// Room, the time, and whose calls follow. False where nothing can be written any more.
#[cold]
fn prepare(own: &Own, owned: &mut Owned) -> bool {
    let _kept = system::KeptErrno::new();
    if owned.used + ROOM > STAGE && !next_stage(owned) {
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
    let next = owned.next_thread + 1;
    if owned.thread_of(me).is_none() {
        owned.forget_ended();
    }
    let tid = system::thread_id();
    let mut is_new = false;
    let mut number = next;
    if let Some(thread) = owned.thread_of(me) {
        // A new thread may have the memory of one that has ended.
        is_new = thread.pointer == 0 || (thread.has_ended && thread.tid != tid);
        if is_new {
            *thread = Thread { pointer: me, number: next, tid, has_ended: false };
        }
        number = thread.number;
    }
    match is_new {
        true => {
            owned.next_thread = next;
            put(owned, Event::Thread { thread: number, tid });
            arm(1);
        }
        false => put(owned, Event::Switch { thread: number }),
    }
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
    write(&own, Event::End, None);
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
                append_sized(own, event, usable);
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
    let Some(state) = state::state() else { return };
    // SAFETY: only the header's address is read, which is written once; it stays mapped.
    unsafe {
        let owned = state.own();
        if !owned.header.is_null() {
            (*owned.word_at(word::LOST)).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Begins this process's file.
#[cold]
pub(crate) fn begin(own: &Own) -> bool {
    let _kept = system::KeptErrno::new();
    if PATH_LENGTH.load(Ordering::Relaxed) == 0 && !keep_folder() {
        return false;
    }
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    let pid = system::process_id();
    let parent = (PID.load(Ordering::Relaxed), BEGAN.load(Ordering::Relaxed));
    owned.began = system::nanoseconds(libc::CLOCK_REALTIME);
    owned.pid = pid;
    owned.descriptor = open(owned, libc::O_CREAT | libc::O_EXCL);
    if owned.descriptor < 0 {
        return false;
    }
    let Some(found) = map(owned.descriptor, 0, header::SIZE, 0) else { return false };
    owned.header = found as *mut u64;
    owned.used = STAGE;
    let fork = if parent.0 == 0 { 0 } else { FORKS.load(Ordering::Relaxed) };
    let words = [
        (word::VERSION, header::VERSION),
        (word::STAGE, STAGE as u64),
        (word::PID, pid.into()),
        (word::BEGAN, owned.began),
        (word::PARENT_PID, parent.0),
        (word::PARENT_BEGAN, parent.1),
        (word::FORK, fork),
        (word::STACKS, stacks::begin(owned)),
        (word::MAGIC, header::MAGIC),
    ];
    for (place, value) in words {
        // SAFETY: within the header.
        unsafe { owned.header.add(place).write_volatile(value) };
    }
    crate::hooks::describe(owned.header as *mut u8);
    PID.store(pid.into(), Ordering::Relaxed);
    BEGAN.store(owned.began, Ordering::Relaxed);
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

fn keep_folder() -> bool {
    // SAFETY: the environment is there before any constructor; the result is copied at once.
    unsafe {
        let found = libc::getenv(FOLDER.as_ptr());
        if found.is_null() {
            return false;
        }
        let length = libc::strlen(found);
        if length == 0 || length + 64 > MAX_PATH {
            return false;
        }
        copy_nonoverlapping(found as *const u8, PATH.0.get() as *mut u8, length);
        PATH_LENGTH.store(length, Ordering::Relaxed);
    }
    true
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

/// Maps the next stage in place of the last; false where there is no room.
fn next_stage(owned: &mut Owned) -> bool {
    let offset = header::SIZE as u64 + owned.stages * STAGE as u64;
    // A program may have closed our descriptor, and another file may have its number now.
    if !is_ours(owned) {
        owned.descriptor = open(owned, 0);
    }
    if !is_wanted(owned) {
        return false;
    }
    let populate = if owned.stages == 0 { 0 } else { libc::MAP_POPULATE };
    let Some(found) = map(owned.descriptor, offset, STAGE, populate) else { return false };
    if !owned.stage.is_null() {
        // SAFETY: our own mapping.
        unsafe { libc::syscall(libc::SYS_munmap, owned.stage, STAGE) };
    }
    (owned.stage, owned.used, owned.thread) = (found, 0, 0);
    owned.last = Default::default();
    owned.stages += 1;
    // SAFETY: within the header.
    unsafe { owned.header.add(word::STAGES).write_volatile(owned.stages) };
    true
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
fn map(descriptor: c_int, offset: u64, size: usize, flags: c_int) -> Option<*mut u8> {
    if descriptor < 0 {
        return None;
    }
    // SAFETY: a new mapping of our own file.
    unsafe {
        if libc::fallocate(descriptor, 0, offset as i64, size as i64) != 0 {
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let found = libc::syscall(
            libc::SYS_mmap,
            null_mut::<u8>(),
            size,
            protection,
            libc::MAP_SHARED | flags,
            descriptor,
            offset,
        );
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
        write(&own, Event::Fork { number }, None);
    }
    // SAFETY: it is libc's fork.
    Some(unsafe { typed::<real::fork>(function)() })
}
