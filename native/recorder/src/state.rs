//! All data that changes while calls are recorded. The data is in memory that is empty in a forked child, so that the
//! child begins its own file.

use crate::system;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use gdbheap_calls::LastValues;

pub(crate) const NEW: u64 = 0;
pub(crate) const RECORDING: u64 = 1;
/// Nothing more is recorded in this process: there is no folder, or its disk is full.
pub(crate) const OFF: u64 = 2;

const MAX_THREADS: usize = 4096;
const MAX_LANES: usize = 4096;

#[derive(Clone, Copy)]
pub(crate) struct Thread {
    pub(crate) pointer: u64,
    pub(crate) number: u32,
    pub(crate) tid: u32,
    pub(crate) has_ended: bool,
}

/// The state of a process or a lane. A value whose bytes are all 0 is valid: nothing has begun yet.
#[repr(C)]
pub(crate) struct State {
    /// The thread pointer of the thread that is making a call and has the lock; 0 if no thread has it.
    pub(crate) lock: AtomicU64,
    pub(crate) mode: AtomicU64,
    /// How often the lock was released while there were several threads.
    pub(crate) turns: AtomicU64,
    /// The number of threads that sleep until they get the lock.
    pub(crate) sleepers: AtomicU64,
    /// How often the lock may be released before one of the sleepers is woken.
    pub(crate) wake_in: AtomicU64,
    own: UnsafeCell<LockedState>,
}

/// The part of a state that only the owner of the lock uses.
pub(crate) struct LockedState {
    pub(crate) header: *mut u64,
    pub(crate) slots: *mut u8,
    pub(crate) stage: *mut u8,
    pub(crate) used: usize,
    pub(crate) stages: u64,
    pub(crate) last: LastValues,
    /// The block that was returned last; 0 if there is none.
    pub(crate) given: u64,
    /// The requested size in bytes of the block that was returned last.
    pub(crate) given_size: u64,
    /// The usable size in bytes of the block that was returned last, if a call of a signal handler has read it;
    /// otherwise 0.
    pub(crate) settled: u64,
    /// The thread pointer of the thread whose call was written last.
    pub(crate) thread: u64,
    pub(crate) events: u32,
    pub(crate) descriptor: i32,
    pub(crate) pid: u32,
    pub(crate) began: u64,
    /// The average number of bytes between two recorded stacks; 0 if none are recorded.
    pub(crate) mean: u64,
    /// The number of bytes until the next stack is recorded.
    pub(crate) countdown: u64,
    /// The state of the random number generator.
    pub(crate) random: u64,
    /// The data that `stacks` keeps between two stacks (`Stacks`); null until the first stack.
    pub(crate) stacks: *mut c_void,
    /// The table of the threads whose calls are written here.
    threads: *mut Thread,
    /// The number of entries of the table of threads.
    count: usize,
}

// SAFETY: only the owner of the lock uses `own`.
unsafe impl Sync for State {}
// SAFETY: only the owner of the lock of `all` uses `threads`.
unsafe impl Sync for Process {}

impl State {
    /// Return the part that belongs to the owner of the lock.
    ///
    /// # Safety
    /// The caller must have the lock, and no other reference to this part.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn own(&self) -> &mut LockedState {
        // SAFETY: the caller guarantees it.
        unsafe { &mut *self.own.get() }
    }
}

impl LockedState {
    /// Return the address of a word of the header.
    pub(crate) fn word_at(&self, place: usize) -> *const AtomicU64 {
        self.header.wrapping_add(place) as *const AtomicU64
    }

    fn threads(&mut self) -> &mut [Thread] {
        // SAFETY: the table has that length, and is created before the first thread is looked up.
        unsafe { core::slice::from_raw_parts_mut(self.threads, self.count) }
    }

    /// Return the entry of a thread, or a new entry without a number if the thread is unknown; None if the table is
    /// full.
    pub(crate) fn thread_of(&mut self, pointer: u64) -> Option<&mut Thread> {
        let (start, count) = ((pointer >> 6) as usize, self.count);
        let threads = self.threads();
        let place = (0..count)
            .map(|step| (start + step) % count)
            .find(|place| [0, pointer].contains(&threads[*place].pointer))?;
        Some(&mut threads[place])
    }

    /// Forget all threads that have ended, because the table may be full. The copy of the table is not on the program's
    /// stack, which may be small.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget_ended(&mut self) {
        let Some(table) = memory::<[Thread; MAX_THREADS]>(libc::MADV_DONTFORK) else { return };
        // SAFETY: new memory of zero bytes, which are valid. Only this function uses it.
        let all = unsafe { &mut (&mut *table)[..self.count] };
        all.copy_from_slice(self.threads());
        self.threads().fill(Thread { pointer: 0, number: 0, tid: 0, has_ended: false });
        for thread in all.iter().filter(|thread| thread.pointer != 0 && !thread.has_ended) {
            if let Some(place) = self.thread_of(thread.pointer) {
                *place = *thread;
            }
        }
        // SAFETY: nothing refers to it any more.
        unsafe { libc::syscall(libc::SYS_munmap, table, core::mem::size_of::<[Thread; MAX_THREADS]>()) };
    }
}

/// The data that exists once in each process. A value whose bytes are all 0 is valid. `lanes`: a hash table of lanes by
/// thread pointer.
#[repr(C)]
pub(crate) struct Process {
    /// The state into which all threads write, unless each has its own lane.
    all: State,
    threads: UnsafeCell<[Thread; MAX_THREADS]>,
    lanes: [Entry; MAX_LANES],
    /// How many thread numbers were assigned so far.
    pub(crate) numbers: AtomicU64,
    /// The time when the first file of the process began.
    pub(crate) began: AtomicU64,
    /// The process id of the parent, the time when its file began, and the number of the fork; all 0 for an executed
    /// program.
    pub(crate) parent: [AtomicU64; 3],
}

#[repr(C)]
struct Entry {
    pointer: AtomicU64,
    lane: AtomicPtr<Lane>,
}

/// The state into which one thread writes.
#[repr(C)]
struct Lane {
    state: State,
    thread: [Thread; 1],
}

impl Process {
    /// Return the state into which all threads write.
    pub(crate) fn state(&'static self) -> &'static State {
        &self.all
    }

    /// Return the state of the lane of the thread with this thread pointer; None if there are too many lanes, or while
    /// the lane is being created.
    #[inline(always)]
    pub(crate) fn lane_of(&'static self, pointer: u64) -> Option<&'static State> {
        let start = (pointer >> 6) as usize;
        for step in 0..MAX_LANES {
            let entry = &self.lanes[(start + step) % MAX_LANES];
            let known = entry.pointer.load(Ordering::Relaxed);
            if known == pointer {
                let lane = entry.lane.load(Ordering::Relaxed);
                // SAFETY: the lane is never unmapped, and only its thread uses it.
                return (!lane.is_null()).then(|| unsafe { &(*lane).state });
            }
            let is_ours =
                known == 0 && entry.pointer.compare_exchange(0, pointer, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if is_ours {
                return entry.make();
            }
        }
        None
    }
}

impl Entry {
    #[cold]
    fn make(&self) -> Option<&'static State> {
        let _kept = system::KeptErrno::new();
        let lane: *mut Lane = memory(libc::MADV_DONTFORK)?;
        // SAFETY: new memory of zero bytes, which nothing else refers to.
        unsafe {
            let own = (*lane).state.own();
            (own.threads, own.count) = ((*lane).thread.as_mut_ptr(), 1);
            self.lane.store(lane, Ordering::Relaxed);
            Some(&(*lane).state)
        }
    }
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(null_mut());

/// Return the data of the process; None if it was not created yet.
#[inline(always)]
pub(crate) fn process() -> Option<&'static Process> {
    let found = PROCESS.load(Ordering::Acquire);
    // SAFETY: the data is never unmapped, and a value whose bytes are all 0 is valid.
    (!found.is_null()).then(|| unsafe { &*found })
}

/// Create the data of the process. None if the kernel has no memory, or cannot clear this memory in a child (before
/// Linux 4.14).
#[cold]
pub(crate) fn make() -> Option<&'static Process> {
    let _kept = system::KeptErrno::new();
    let found: *mut Process = memory(libc::MADV_WIPEONFORK)?;
    // If several threads create the data, only the first is used.
    let _ = PROCESS.compare_exchange(null_mut(), found, Ordering::AcqRel, Ordering::Acquire);
    process()
}

/// Let the state into which all threads write use the process's table of threads. The caller has the lock of that
/// state.
pub(crate) fn give_threads(process: &'static Process, own: &mut LockedState) {
    (own.threads, own.count) = (process.threads.get() as *mut Thread, MAX_THREADS);
}

/// Map memory for a `T`, filled with zeros; None if there is too little memory. `at_fork`: the advice to madvise(2)
/// that says what a forked child gets.
fn memory<T>(at_fork: core::ffi::c_int) -> Option<*mut T> {
    let size = core::mem::size_of::<T>();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, which nothing else refers to.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let address = libc::syscall(libc::SYS_mmap, 0, size, protection, flags, -1, 0) as usize as *mut T;
        let is_there = address as isize != -1 && libc::madvise(address as *mut _, size, at_fork) == 0;
        is_there.then_some(address)
    }
}
