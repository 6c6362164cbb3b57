//! The file of a process, or of the lane of a thread: a header, two slots, and the finished stages. One of the slots
//! has the current stage.

use crate::order::is_by_time;
use crate::state::LockedState;
use core::ffi::{c_int, c_void};
use core::ptr::{copy_nonoverlapping, null_mut};
use core::sync::atomic::{compiler_fence, AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use gdbheap_calls::header::{self, word};
use gdbheap_calls::STAGE;

/// The lowest descriptor number for the recorder's file. Programs that close "all" descriptors mostly close only the
/// low numbers.
const DESCRIPTOR: c_int = 900;
const MAX_PATH: usize = 4096;
const SUFFIX: &[u8] = b".calls";
/// The size of a file name in bytes: two numbers, a dash, the suffix, and a zero byte.
const NAME: usize = 33 + SUFFIX.len() + 1;
const FOLDER: &core::ffi::CStr = c"GDBHEAP_CALLS";

/// The folder for recordings. It is copied from the environment at the start, because a forked child needs it after the
/// program may have changed the environment.
struct Folder(core::cell::UnsafeCell<[u8; MAX_PATH]>);
// SAFETY: written once, by the first call of the program.
unsafe impl Sync for Folder {}
static PATH: Folder = Folder(core::cell::UnsafeCell::new([0; MAX_PATH]));
static PATH_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Remember the folder that the environment names, because the program may change its environment later.
pub(crate) fn learn_folder() {
    // SAFETY: the environment exists before any constructor; the result is copied at once.
    unsafe {
        let found = libc::getenv(FOLDER.as_ptr());
        if found.is_null() {
            return;
        }
        let length = libc::strlen(found);
        if length < MAX_PATH {
            copy_nonoverlapping(found as *const u8, PATH.0.get() as *mut u8, length);
            PATH_LENGTH.store(length, Ordering::Relaxed);
        }
    }
}

/// Return whether calls are recorded: whether the environment names a folder.
pub(crate) fn has_folder() -> bool {
    PATH_LENGTH.load(Ordering::Relaxed) != 0
}

/// Open the file of this process: `FOLDER/PID-BEGAN.calls`, in hexadecimal digits. If `flags` has O_EXCL, only a new
/// file is created.
///
/// An existing file must be a regular file of this user without other hard links. Another user may have put a different
/// folder at the path of FOLDER.
pub(crate) fn open(owned: &LockedState, flags: c_int) -> c_int {
    let Some(folder) = open_folder() else { return -1 };
    let name = name_of(owned);
    let flags = flags | libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    // SAFETY: the name ends with a zero byte. Only our own descriptors are closed.
    unsafe {
        let made = libc::openat(folder, name.as_ptr() as *const _, flags, 0o600);
        close_quietly(folder);
        if made < 0 {
            return made;
        }
        if flags & libc::O_EXCL == 0 && !is_own_file(made) {
            libc::close(made);
            return -1;
        }
        let moved = libc::fcntl(made, libc::F_DUPFD_CLOEXEC, DESCRIPTOR);
        if moved < 0 {
            return made;
        }
        libc::close(made);
        moved
    }
}

/// Open the folder for recordings. Return None, and set errno, if it is a symbolic link, belongs to another user, or
/// others can write to it.
fn open_folder() -> Option<c_int> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the path was written once, into zeros.
    let folder = unsafe { libc::open(PATH.0.get() as *const _, flags) };
    if folder < 0 {
        return None;
    }
    let is_ours =
        status(folder).is_some_and(|found| is_own(&found) && found.st_mode & (libc::S_IWGRP | libc::S_IWOTH) == 0);
    if is_ours {
        return Some(folder);
    }
    // SAFETY: the descriptor is our own.
    unsafe {
        libc::close(folder);
        *libc::__errno_location() = libc::EPERM;
    }
    None
}

/// The descriptor of this process's file; -1 if it is closed. A forked child closes this descriptor (see `let_go`),
/// because the file belongs to the parent.
static HELD: AtomicI32 = AtomicI32::new(-1);
/// The time when the file of HELD began.
static HELD_BEGAN: AtomicU64 = AtomicU64::new(0);

/// Note the descriptor of this process's file, so that forked children close it: a child that drops its rights must not
/// be able to write to the file of its parent. Close the descriptor of a lane, because a program may have more threads
/// than it may have descriptors.
pub(crate) fn hold_or_close(owned: &mut LockedState) {
    if is_by_time() {
        // SAFETY: our own descriptor.
        unsafe { close_quietly(owned.descriptor) };
        owned.descriptor = -1;
        return;
    }
    HELD_BEGAN.store(owned.began, Ordering::Relaxed);
    HELD.store(owned.descriptor, Ordering::Relaxed);
}

/// The number of threads that are opening a file. Such threads and threads that fork wait for each other. Therefore no
/// child inherits a descriptor that is not noted in `HELD`.
static OPENING: AtomicU32 = AtomicU32::new(0);
/// The number of threads that are forking.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// The largest number of times that a thread waits for a thread of the other kind (opening or forking) before it
/// continues. Without the limit, a signal or fork handler that calls malloc could wait for its own thread forever. The
/// first waits only yield the processor. Each later wait sleeps for a millisecond, because on a busy machine the other
/// thread may not run for a while.
const MOST_TURNS: u32 = 600;
const YIELDS: u32 = 100;

/// Wait before the next check of the other counter (`FORKING` or `OPENING`). `turn`: the number of checks so far.
fn pause(turn: u32) {
    // SAFETY: the calls get a time of our own, and nothing else. A signal that ends the sleep changes errno.
    unsafe {
        if turn < YIELDS {
            libc::sched_yield();
        } else {
            let kept = *libc::__errno_location();
            libc::nanosleep(&libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 }, core::ptr::null_mut());
            *libc::__errno_location() = kept;
        }
    }
}

/// A mark that exists while a thread opens a file. Before the mark is dropped, the thread notes the file's descriptor
/// in `HELD` or closes it.
pub(crate) struct FileOpening;

impl FileOpening {
    pub(crate) fn begin() -> FileOpening {
        static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
        if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
            // SAFETY: this library is never unloaded.
            unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(let_go)) };
        }
        for turn in 0..MOST_TURNS {
            OPENING.fetch_add(1, Ordering::SeqCst);
            if FORKING.load(Ordering::SeqCst) == 0 {
                return FileOpening;
            }
            OPENING.fetch_sub(1, Ordering::SeqCst);
            pause(turn);
        }
        OPENING.fetch_add(1, Ordering::SeqCst);
        FileOpening
    }
}

impl Drop for FileOpening {
    fn drop(&mut self) {
        OPENING.fetch_sub(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn before_fork() {
    FORKING.fetch_add(1, Ordering::SeqCst);
    for turn in 0..MOST_TURNS {
        if OPENING.load(Ordering::SeqCst) == 0 {
            break;
        }
        pause(turn);
    }
}

unsafe extern "C" fn after_fork() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Close the parent's file in a forked child.
unsafe extern "C" fn let_go() {
    FORKING.store(0, Ordering::SeqCst);
    OPENING.store(0, Ordering::SeqCst);
    let descriptor = HELD.swap(-1, Ordering::Relaxed);
    // The program may have closed the descriptor, and another file may have its number now.
    if descriptor >= 0 && is_file_of(descriptor, HELD_BEGAN.load(Ordering::Relaxed)) {
        close_quietly(descriptor);
    }
}

/// Close one of the recorder's descriptors without changing errno.
unsafe fn close_quietly(descriptor: c_int) {
    let kept = *libc::__errno_location();
    libc::close(descriptor);
    *libc::__errno_location() = kept;
}

fn is_own_file(descriptor: c_int) -> bool {
    status(descriptor)
        .is_some_and(|found| is_own(&found) && found.st_mode & libc::S_IFMT == libc::S_IFREG && found.st_nlink == 1)
}

fn is_own(found: &libc::stat) -> bool {
    // SAFETY: the call cannot fail.
    found.st_uid == unsafe { libc::geteuid() }
}

fn status(descriptor: c_int) -> Option<libc::stat> {
    // SAFETY: a record of zeros is valid, and the kernel fills it in.
    unsafe {
        let mut found: libc::stat = core::mem::zeroed();
        (libc::fstat(descriptor, &mut found) == 0).then_some(found)
    }
}

fn name_of(owned: &LockedState) -> [u8; NAME] {
    let mut name = [0; NAME];
    name[..16].copy_from_slice(&hexadecimal(owned.pid.into()));
    name[16] = b'-';
    name[17..33].copy_from_slice(&hexadecimal(owned.began));
    name[33..NAME - 1].copy_from_slice(SUFFIX);
    name
}

fn hexadecimal(number: u64) -> [u8; 16] {
    core::array::from_fn(|place| b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15])
}

/// Begin the next stage, after writing the current one to the file. Return false if the file cannot grow.
///
/// The two slots are used in turn. The word STAGES alone says which slot is current, and which stages are in the file
/// already. So both facts change at once.
pub(crate) fn next_stage(owned: &mut LockedState) -> bool {
    let _opening = FileOpening::begin();
    // The program may have closed the recorder's descriptor, and another file may have its number now.
    if !is_ours(owned) {
        owned.descriptor = open(owned, 0);
    }
    let is_kept = match owned.slots.is_null() {
        true => map(owned.descriptor, header::SIZE as u64, 2 * STAGE).map(|found| owned.slots = found).is_some(),
        false => keep_stage(owned),
    };
    hold_or_close(owned);
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

/// Write the current stage to its place among the finished stages of the file. Return false if that fails.
fn keep_stage(owned: &mut LockedState) -> bool {
    let offset = header::offset_of(owned.stages - 1);
    if !is_wanted(owned) || !is_allowed(offset + STAGE as u64) {
        return false;
    }
    let mut written = 0;
    while written < owned.used {
        // SAFETY: writes from our own stage.
        let count = unsafe {
            let rest = owned.stage.add(written) as *const c_void;
            libc::pwrite(owned.descriptor, rest, owned.used - written, (offset + written as u64) as libc::off_t)
        };
        match count {
            1.. => written += count as usize,
            // SAFETY: each thread has an errno.
            _ if count < 0 && unsafe { *libc::__errno_location() } == libc::EINTR => {}
            _ => return false,
        }
    }
    true
}

/// Return whether a file may become this large. If it became larger than allowed, the kernel would send the program a
/// signal.
fn is_allowed(size: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills in a record of this function.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) == 0 && limit.rlim_cur >= size }
}

/// Return whether the descriptor still refers to the file that the recorder opened.
fn is_ours(owned: &LockedState) -> bool {
    is_file_of(owned.descriptor, owned.began)
}

/// Return whether a descriptor refers to the recorder's file that began at this time.
fn is_file_of(descriptor: c_int, expected: u64) -> bool {
    let mut began = [0u8; 8];
    let at = word::BEGAN * 8;
    // SAFETY: reads into memory of this function.
    let got = unsafe { libc::pread(descriptor, began.as_mut_ptr() as *mut _, 8, at as i64) };
    got == 8 && u64::from_le_bytes(began) == expected
}

/// Return whether the file still exists: the collector removes it when the recording ends.
fn is_wanted(owned: &LockedState) -> bool {
    status(owned.descriptor).is_some_and(|found| found.st_nlink > 0)
}

/// Allocate `size` bytes of the file from `offset` on, and map them; a forked child does not get the mapping. Return
/// None if that fails. The bytes are allocated first, because a mapping without space in the file system would cause
/// SIGBUS.
pub(crate) fn map(descriptor: c_int, offset: u64, size: usize) -> Option<*mut u8> {
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
