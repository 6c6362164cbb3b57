//! The threads that made the recorded calls. Each of them exists and waits, because an allocator keeps data in the
//! thread's memory. One thread makes all calls, and takes on the identity of the other threads in turn.

use crate::system;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};

const STACK: usize = 256 << 10;
/// The size in bytes of a stack if libraries need much memory for each thread.
const LARGER_STACK: usize = 8 << 20;

const NEW: u32 = 0;
const WAITING: u32 = 1;
const ENDING: u32 = 2;

/// A thread. A value whose bytes are all 0 is a thread that was not started.
pub(crate) struct Thread {
    pointer: u64,
    /// The thread's handle: a number in glibc, a pointer in musl.
    handle: libc::pthread_t,
    stack: *mut u8,
    stack_size: usize,
    state: AtomicU32,
}

pub(crate) struct Threads {
    all: &'static mut [Thread],
    /// A list of the stacks of threads that have ended. The first word of each stack is the address of the next one.
    stacks: *mut u8,
    main: u64,
    /// The thread pointer of the thread whose calls are being made.
    current: u64,
    can_set: bool,
    /// The number of threads that exist, not counting the first thread.
    alive: u64,
    /// The largest number of threads that may exist at once, not counting the first thread.
    most: u64,
    /// The number of threads that have ended. The first thread cannot end, because it is this program's own.
    pub(crate) ended: u64,
}

/// The reason why no thread was started.
pub(crate) enum NoThread {
    /// The kernel refused to start the thread. The number is the errno.
    Refused(i32),
    /// No more threads may exist at once. The value is the largest number that may exist.
    TooMany(u64),
}

extern "C" fn wait(thread: *mut c_void) -> *mut c_void {
    // SAFETY: the table lives as long as the program. Other threads only look at the entry once its state says that it
    // is complete.
    let thread = unsafe { &mut *(thread as *mut Thread) };
    thread.pointer = system::thread_pointer();
    system::set(&thread.state, WAITING);
    system::wait_while(&thread.state, WAITING);
    null_mut()
}

impl Threads {
    /// Create a table of `count` threads, of which at most `most` may exist at once; None if there is too little
    /// memory.
    pub(crate) fn new(count: usize, most: u64) -> Option<Threads> {
        let size = count.max(1).checked_mul(size_of::<Thread>())?;
        let found = system::shared(size, 0)? as *mut Thread;
        // SAFETY: zero bytes are threads that were not started, and nothing else refers to this memory.
        let all = unsafe { core::slice::from_raw_parts_mut(found, count.max(1)) };
        let main = system::thread_pointer();
        all[0].pointer = main;
        Some(Threads {
            all,
            stacks: null_mut(),
            main,
            current: main,
            can_set: system::can_set_thread_pointer(),
            alive: 0,
            most,
            ended: 0,
        })
    }

    /// Take on the identity of the thread with this number, so that the allocator serves calls as for that thread. If
    /// the thread does not exist yet, it is started. None if the plan has no such thread.
    pub(crate) fn become_thread(&mut self, number: u64) -> Option<Result<(), NoThread>> {
        let number = usize::try_from(number).ok().filter(|number| *number < self.all.len())?;
        if self.all[number].pointer == 0 {
            self.become_main();
            if let Err(failure) = self.start(number) {
                return Some(Err(failure));
            }
        }
        self.current = self.all[number].pointer;
        self.resume();
        Some(Ok(()))
    }

    /// Switch back to the identity of the thread whose calls are being made.
    pub(crate) fn resume(&mut self) {
        // SAFETY: the current thread waits, or is this thread.
        unsafe { system::set_thread_pointer(self.current, self.can_set) };
    }

    /// Switch to this thread's own identity, that of the first thread.
    pub(crate) fn become_main(&mut self) {
        // SAFETY: the pointer is that of this thread.
        unsafe { system::set_thread_pointer(self.main, self.can_set) };
    }

    fn start(&mut self, number: usize) -> Result<(), NoThread> {
        if self.alive >= self.most {
            return Err(NoThread::TooMany(self.most));
        }
        let failure = match self.start_with(number, STACK) {
            // The libraries of this program need more memory for each thread.
            Err(NoThread::Refused(libc::EINVAL)) => self.start_with(number, LARGER_STACK),
            other => other,
        };
        failure?;
        self.alive += 1;
        system::wait_while(&self.all[number].state, NEW);
        Ok(())
    }

    fn start_with(&mut self, number: usize, size: usize) -> Result<(), NoThread> {
        let stack = self.take_stack(size).ok_or(NoThread::Refused(libc::ENOMEM))?;
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut handle = MaybeUninit::<libc::pthread_t>::uninit();
        let thread: *mut Thread = &mut self.all[number];
        // SAFETY: the attributes are initialized before they are used; the thread owns the stack until it is joined.
        let status = unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            match libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack as *mut _, size) {
                0 => libc::pthread_create(handle.as_mut_ptr(), attributes.as_ptr(), wait, thread as *mut c_void),
                status => status,
            }
        };
        if status != 0 {
            return Err(NoThread::Refused(status));
        }
        // SAFETY: as in `wait`; the thread itself writes other fields; pthread_create succeeded, so it wrote the
        // handle.
        unsafe {
            (*thread).handle = handle.assume_init();
            (*thread).stack = stack;
            (*thread).stack_size = size;
        }
        Ok(())
    }

    /// Return memory for the stack of a thread; None if there is too little memory. Stacks are in shared memory, so
    /// that their pages do not count as the allocator's.
    fn take_stack(&mut self, size: usize) -> Option<*mut u8> {
        if self.stacks.is_null() || size != STACK {
            return system::shared(size, libc::MAP_NORESERVE);
        }
        let found = self.stacks;
        // SAFETY: a stack that no thread uses.
        self.stacks = unsafe { *(found as *const *mut u8) };
        Some(found)
    }

    /// Let a thread end, which lets the allocator clean up. The first thread cannot end, because it is this program's
    /// own.
    pub(crate) fn end(&mut self, number: u64) {
        self.become_main();
        self.current = self.main;
        let Some(number) = usize::try_from(number).ok().filter(|number| (1..self.all.len()).contains(number)) else {
            return;
        };
        let thread = &mut self.all[number];
        if thread.pointer == 0 || thread.state.load(Ordering::Acquire) != WAITING {
            return;
        }
        system::set(&thread.state, ENDING);
        // SAFETY: the thread is joined only once.
        unsafe { libc::pthread_join(thread.handle, null_mut()) };
        thread.pointer = self.main;
        (self.ended, self.alive) = (self.ended + 1, self.alive - 1);
        if thread.stack_size == STACK {
            // SAFETY: no thread uses the stack any more.
            unsafe { *(thread.stack as *mut *mut u8) = self.stacks };
            self.stacks = thread.stack;
        }
    }
}
