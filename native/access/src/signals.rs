//! Threads of ours must not run the signal handlers of the program that we run in, and wait for nobody for ever.

use crate::stat::{fields, said, STATE, SYSTEM_TIME, UNINTERRUPTIBLE, USER_TIME};
use std::io::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A thread waits for ever if it waits in the kernel at so many looks, without a moment of work.
const LOOKS: u32 = 4;
const LOOK: Duration = Duration::from_millis(500);
const STACK: usize = 128 << 10;
/// Those by which a user or a system asks a program to end.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
const FAILED: libc::c_int = 1;

/// What is said where we end deaf; not set where this process is not ours.
static LINE: OnceLock<Vec<u8>> = OnceLock::new();

/// Ends this process from now on where it cannot hear that it is to: a thread waits in the kernel, for a server that is gone
/// (NFS) or for the lock of another process's memory map, and what asks for the end waits for that thread. `line` is
/// written to standard error then. The kernel lets go what we hold, as it does at any other end. A second call does nothing.
pub fn end_where_deaf(line: Vec<u8>) {
    if LINE.set(line).is_ok() {
        let _held = SignalsHeld::hold();
        // Not one of Rust's: those ask malloc for memory when they begin, which reserves 64 MiB of addresses for each thread.
        // SAFETY: both are plain data that the calls fill in; the thread is nobody's and has no argument.
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

/// Looks whether a signal waits for the first thread, which waits in the kernel.
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

/// Whether such a signal waits. This thread holds all of them back.
fn is_told() -> bool {
    // SAFETY: the set is plain data that the call fills in.
    unsafe {
        let mut waiting = std::mem::zeroed();
        libc::sigpending(&mut waiting);
        ENDING.iter().any(|signal| libc::sigismember(&waiting, *signal) == 1)
    }
}

/// Threads of ours that work no more, of a process that is to end.
#[derive(Default)]
pub(crate) struct Stuck {
    last: Vec<[String; 3]>,
    same: u32,
    looked: Option<Instant>,
}

impl Stuck {
    /// Ends this process, where it is ours, if these threads were in one of these states at several looks, and did nothing
    /// between them. Does nothing where the last look was a moment ago.
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

/// Ends this process with its line, where it is ours.
pub(crate) fn end() {
    if let Some(line) = LINE.get() {
        // SAFETY: reads bytes that stay, and ends the process.
        unsafe {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
            libc::_exit(FAILED)
        }
    }
}

/// How much a thread of ours had worked, and how often it had gone to sleep; None where it is in none of these states.
fn waited(thread: i32, states: &[&str]) -> Option<[String; 3]> {
    let folder = format!("/proc/self/task/{thread}");
    let [state, user, system] = fields(&format!("{folder}/stat"), [STATE, USER_TIME, SYSTEM_TIME])?;
    let slept = said(&format!("{folder}/status"), "voluntary_ctxt_switches")?;
    states.contains(&state.as_str()).then_some([user, system, slept])
}

/// The number of this thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: takes nothing.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Holds back all signals on this thread, so that the threads it starts never run a handler of gdb's or Python's.
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
        // SAFETY: restores the mask that `new` got from the same call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Has what this thread waits for in the kernel end by EINTR, from some moment on again and again: as long as this is held.
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
        // A time of zero would set no timer.
        let times = libc::itimerspec { it_interval: time(AGAIN), it_value: time(wait.max(AGAIN)) };
        // SAFETY: all are plain data of this function; the handler does nothing; the thread is this one, and so is the mask.
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
        // SAFETY: it was made by `after`, and nobody else has it.
        unsafe { libc::timer_delete(self.0) };
    }
}
