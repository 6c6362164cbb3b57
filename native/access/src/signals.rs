//! Protection from signals: gdbheap's threads must not run signal handlers of the program that gdbheap runs in, and
//! must not wait for ever.

use crate::stat::{fields, said, STATE, SYSTEM_TIME, UNINTERRUPTIBLE, USER_TIME};
use std::io::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A thread counts as stuck if so many checks find it waiting in the kernel, and it has not worked between them.
const LOOKS: u32 = 4;
const LOOK: Duration = Duration::from_millis(500);
const STACK: usize = 128 << 10;
/// The signals by which a user or a system asks a program to end.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
const FAILED: libc::c_int = 1;

/// The message that is written when a stuck process is ended. Not set if the process is not gdbheap's own.
static LINE: OnceLock<Vec<u8>> = OnceLock::new();

/// From now on, end this process if it cannot react to a request to end.
///
/// A process cannot react if one of its threads waits in the kernel for a server that is gone (NFS), or for the lock of
/// another process's memory map, and if the handler of the signal waits for that thread. `line` is then written to
/// standard error. The kernel releases everything that the process holds, as at any other end. A second call does
/// nothing.
pub fn end_where_deaf(line: Vec<u8>) {
    if LINE.set(line).is_ok() {
        let _held = SignalsHeld::hold();
        // This is not one of Rust's threads, which call malloc when they begin: that reserves 64 MiB of addresses for
        // each thread.
        unsafe {
            let (mut thread, mut kind) = (std::mem::zeroed(), std::mem::zeroed());
            libc::pthread_attr_init(&mut kind);
            libc::pthread_attr_setstacksize(&mut kind, STACK);
            libc::pthread_attr_setdetachstate(&mut kind, libc::PTHREAD_CREATE_DETACHED);
            libc::pthread_create(&mut thread, &kind, listen, std::ptr::null_mut());
            libc::pthread_attr_destroy(&mut kind);
        }
    }
}

/// End this process if the first thread stays in the kernel while a signal of ENDING is pending.
extern "C" fn listen(_nothing: *mut libc::c_void) -> *mut libc::c_void {
    let (first, mut stuck) = (std::process::id() as i32, Stuck::default());
    loop {
        std::thread::sleep(LOOK);
        if is_told() {
            stuck.look(&[first], &[UNINTERRUPTIBLE]);
        } else {
            stuck = Stuck::default();
        }
    }
}

/// Return whether a signal of ENDING is pending. It stays pending, because this thread blocks all signals.
fn is_told() -> bool {
    // SAFETY: the set is plain data that the call fills in.
    unsafe {
        let mut waiting = std::mem::zeroed();
        libc::sigpending(&mut waiting);
        ENDING.iter().any(|signal| libc::sigismember(&waiting, *signal) == 1)
    }
}

/// Notices when threads of this process no longer work although the process should end.
#[derive(Default)]
pub(crate) struct Stuck {
    last: Vec<[String; 3]>,
    same: u32,
    looked: Option<Instant>,
}

impl Stuck {
    /// End this process, if it is gdbheap's own, once several checks in a row found each of `threads` in one of
    /// `states`, and without any work since the first of these checks. Do nothing if the last check was a moment ago.
    pub(crate) fn look(&mut self, threads: &[i32], states: &[&str]) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK * 9 / 10) {
            return;
        }
        self.looked = Some(Instant::now());
        let found: Option<Vec<_>> = threads.iter().map(|thread| waited(*thread, states)).collect();
        let now = found.unwrap_or_default();
        self.same = if now == self.last && !now.is_empty() { self.same + 1 } else { 0 };
        self.last = now;
        if self.same >= LOOKS {
            end();
        }
    }
}

/// End this process and write its message, if the process is gdbheap's own.
pub(crate) fn end() {
    if let Some(line) = LINE.get() {
        // SAFETY: reads bytes that are never freed, and ends the process.
        unsafe {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
            libc::_exit(FAILED)
        }
    }
}

/// Return the CPU times of a thread of this process, and how often the thread went to sleep; None if the thread is in
/// none of `states`.
fn waited(thread: i32, states: &[&str]) -> Option<[String; 3]> {
    let folder = format!("/proc/self/task/{thread}");
    let [state, user, system] = fields(&format!("{folder}/stat"), [STATE, USER_TIME, SYSTEM_TIME])?;
    let slept = said(&format!("{folder}/status"), "voluntary_ctxt_switches")?;
    states.contains(&state.as_str()).then_some([user, system, slept])
}

/// Return the id of the calling thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// While this value exists, all signals are blocked on this thread. Threads that it starts meanwhile never run a
/// handler of gdb's or Python's.
pub struct SignalsHeld(libc::sigset_t);

impl SignalsHeld {
    pub fn hold() -> SignalsHeld {
        // SAFETY: both sets are plain data that the calls fill in.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            SignalsHeld(before)
        }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: restores the mask that `hold` got from the same call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// A timer that repeatedly interrupts (EINTR) the system call in which this thread waits. It begins after a given time,
/// and continues as long as this value exists.
pub(crate) struct Alarm(libc::timer_t);

extern "C" fn nothing(_signal: libc::c_int) {}

impl Alarm {
    pub(crate) fn after(wait: Duration) -> Result<Alarm, Error> {
        const AGAIN: Duration = Duration::from_millis(50);
        let signal = libc::SIGRTMAX() - 3;
        let time = |time: Duration| libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(time.subsec_nanos()),
        };
        // A time of zero would not set a timer.
        let times = libc::itimerspec { it_interval: time(AGAIN), it_value: time(wait.max(AGAIN)) };
        // SAFETY: all of these are plain data of this function; the handler does nothing; thread and mask are those of
        // this thread.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            let mut heard = std::mem::zeroed();
            libc::sigemptyset(&mut heard);
            libc::sigaddset(&mut heard, signal);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::syscall(libc::SYS_gettid) as libc::c_int;
            let mut timer = std::mem::zeroed();
            let is_set = libc::sigaction(signal, &action, std::ptr::null_mut()) == 0
                && libc::pthread_sigmask(libc::SIG_UNBLOCK, &heard, std::ptr::null_mut()) == 0
                && libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0;
            if !is_set {
                return Err(Error::last_os_error());
            }
            let alarm = Alarm(timer);
            match libc::timer_settime(timer, 0, &times, std::ptr::null_mut()) {
                0 => Ok(alarm),
                _ => Err(Error::last_os_error()),
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: `after` created the timer, and nothing else has it.
        unsafe { libc::timer_delete(self.0) };
    }
}
