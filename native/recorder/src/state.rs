//! All that changes while calls are recorded: in memory that a forked child finds empty, so that it begins a file of its own.

use crate::log::MAX_PATH;
use crate::stacks::Stacks;
use crate::system;
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use gdbheap_calls::Last;

pub(crate) const NEW: u64 = 0;
pub(crate) const RECORDING: u64 = 1;
/// Nothing is written down in this process any more: there is no folder, or no room.
pub(crate) const OFF: u64 = 2;

const MAX_THREADS: usize = 4096;

#[derive(Clone, Copy)]
pub(crate) struct Thread {
    pub(crate) pointer: u64,
    pub(crate) number: u32,
    pub(crate) tid: u32,
    pub(crate) has_ended: bool,
}

/// Zero bytes are a valid state: a process that has not begun yet.
pub(crate) struct State {
    /// The thread pointer of who is in a call; the lowest bit: somebody waits.
    pub(crate) lock: AtomicU64,
    pub(crate) mode: AtomicU64,
    own: UnsafeCell<Own>,
}

/// What only the thread that has the lock touches.
pub(crate) struct Own {
    pub(crate) header: *mut u64,
    pub(crate) stage: *mut u8,
    pub(crate) used: usize,
    pub(crate) stages: u64,
    pub(crate) last: Last,
    /// Whose call was written last.
    pub(crate) thread: u64,
    pub(crate) events: u32,
    pub(crate) descriptor: i32,
    pub(crate) pid: u32,
    pub(crate) began: u64,
    pub(crate) next_thread: u32,
    /// Every how many bytes a stack is recorded, 0 for none; bytes to the next one, and what that follows from.
    pub(crate) mean: u64,
    pub(crate) countdown: u64,
    pub(crate) random: u64,
    pub(crate) stacks: *mut Stacks,
    /// Of the file, while it is opened.
    pub(crate) path: [u8; MAX_PATH],
    threads: [Thread; MAX_THREADS],
    /// While those that have ended are forgotten: all of them.
    before: [Thread; MAX_THREADS],
}

// SAFETY: `own` belongs to whoever has the lock.
unsafe impl Sync for State {}

impl State {
    /// What belongs to the thread that has the lock.
    ///
    /// # Safety
    /// The caller has the lock, and no other reference to it.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn own(&self) -> &mut Own {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.own.get() }
    }
}

impl Own {
    /// A word of the header.
    pub(crate) fn word_at(&self, place: usize) -> *const AtomicU64 {
        self.header.wrapping_add(place) as *const AtomicU64
    }

    /// The thread's entry; a new one without a number where it is not known.
    pub(crate) fn thread_of(&mut self, pointer: u64) -> Option<&mut Thread> {
        let start = (pointer >> 6) as usize;
        let place = (0..MAX_THREADS)
            .map(|step| (start + step) % MAX_THREADS)
            .find(|place| [0, pointer].contains(&self.threads[*place].pointer))?;
        Some(&mut self.threads[place])
    }

    /// Forgets all threads that have ended, where there are too many. Not by a copy on the program's stack, which may be small.
    #[cold]
    #[inline(never)]
    pub(crate) fn forget_ended(&mut self) {
        self.before.copy_from_slice(&self.threads);
        self.threads.fill(NOBODY);
        for place in 0..MAX_THREADS {
            let thread = self.before[place];
            if thread.pointer == 0 || thread.has_ended {
                continue;
            }
            if let Some(place) = self.thread_of(thread.pointer) {
                *place = thread;
            }
        }
    }
}

const NOBODY: Thread = Thread { pointer: 0, number: 0, tid: 0, has_ended: false };

static STATE: AtomicPtr<State> = AtomicPtr::new(null_mut());

/// The state, once there is one.
#[inline(always)]
pub(crate) fn state() -> Option<&'static State> {
    let found = STATE.load(Ordering::Acquire);
    // SAFETY: it is never unmapped, and zero bytes are valid.
    (!found.is_null()).then(|| unsafe { &*found })
}

/// Makes the state; None where the kernel has no memory, or does not know how to empty it in a child (before Linux 4.14).
#[cold]
pub(crate) fn make() -> Option<&'static State> {
    let _kept = system::KeptErrno::new();
    let size = core::mem::size_of::<State>();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, which nobody else knows of.
    let found = unsafe {
        let address = libc::syscall(libc::SYS_mmap, 0, size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) as usize
            as *mut State;
        if address as isize == -1 || libc::madvise(address as *mut _, size, libc::MADV_WIPEONFORK) != 0 {
            return None;
        }
        address
    };
    // Whoever was first: one is enough.
    let _ = STATE.compare_exchange(null_mut(), found, Ordering::AcqRel, Ordering::Acquire);
    state()
}
