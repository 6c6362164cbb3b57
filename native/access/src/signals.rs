//! Protection from signals. gdbheap's threads must not run signal handlers of the program in which gdbheap runs, and
//! must not wait without end.

use crate::stat::{fields, said, SLEEPING, STATE, SYSTEM_TIME, UNINTERRUPTIBLE, USER_TIME};
use std::io::Error;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The number of checks after which a thread counts as stuck.
///
/// All of these checks must find the thread waiting in the kernel, and it must do no work between them.
const LOOKS: u32 = 4;
const LOOK: Duration = Duration::from_millis(500);
/// The number of checks after which a read of another process's memory counts as stuck, in a program that was not asked
/// to end: ten seconds.
const LOOKS_AT_READS: u32 = 20;
/// A program whose threads took more processor time than this since the last check does not wait.
const BUSY: Duration = Duration::from_millis(10);
const STACK: usize = 128 << 10;
/// The name of threads that read for another thread, which continues without them if they are blocked.
pub(crate) const LEFT_BEHIND: &str = "gdbheap reads";
/// The signals by which a user or a system asks a program to end.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
const FAILED: libc::c_int = 1;

/// The messages that are written when a stuck process is ended. Not set if the process is not gdbheap's own.
static LINES: OnceLock<Lines> = OnceLock::new();

struct Lines {
    deaf: Vec<u8>,
    blocked: Vec<u8>,
}

/// Start a thread that ends this process in two cases: the process cannot react to a request to end; or it waits
/// without end for the lock of another process's memory map.
///
/// A process cannot react if its signal handler waits for a thread that the kernel blocks, because of an NFS server
/// that is down, or because of such a lock. The message `deaf` (first case) or `blocked` (second case) is then written
/// to standard error. The kernel releases everything that the process holds, as at any other end. A second call does
/// nothing.
pub fn end_where_deaf(deaf: Vec<u8>, blocked: Vec<u8>) {
    if LINES.set(Lines { deaf, blocked }).is_ok() {
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

/// End this process if the first thread stays in the kernel while a signal of ENDING is pending. Also end it if any
/// thread stays in a read of another process's memory.
extern "C" fn listen(_nothing: *mut libc::c_void) -> *mut libc::c_void {
    let first = std::process::id() as i32;
    let (mut stuck, mut blocked, mut before) = (StuckThreads::default(), BlockedReads::default(), processor_time());
    loop {
        std::thread::sleep(LOOK);
        if is_told() {
            stuck.look(&[first], &[UNINTERRUPTIBLE]);
        } else {
            stuck = StuckThreads::default();
        }
        // While other threads work, no check is made, because a check calls malloc in this thread, which reserves 64
        // MiB of addresses.
        let now = processor_time();
        if now.saturating_sub(before) > BUSY {
            blocked = BlockedReads::default();
        } else if blocked.look() >= LOOKS_AT_READS {
            end(|lines| &lines.blocked);
        }
        before = processor_time();
    }
}

/// Return the processor time that all threads of this process have taken.
fn processor_time() -> Duration {
    // SAFETY: the time is plain data that the call fills in.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Notices when threads of this process wait in a read of another process's memory. For each thread, it stores the
/// values that the last check found, and the number of checks in a row that found the same values. A map with a hasher
/// would call malloc even if it stays empty.
#[derive(Default)]
struct BlockedReads(Vec<(i32, [String; 3], u32)>);

impl BlockedReads {
    /// Return the largest number of checks in a row, including this one, that have found the same thread waiting.
    /// Threads that others do not wait for without end (LEFT_BEHIND) are left out.
    fn look(&mut self) -> u32 {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
        let now = threads.filter(|thread| reads_memory(*thread) && !is_left_behind(*thread)).filter_map(|thread| {
            let found = waited(thread, &[UNINTERRUPTIBLE, SLEEPING])?;
            let before = self.0.iter().find(|(other, last, _)| *other == thread && *last == found);
            Some((thread, found, before.map_or(0, |(_, _, same)| same + 1)))
        });
        self.0 = now.collect();
        self.0.iter().map(|(_, _, same)| *same).max().unwrap_or(0)
    }
}

fn is_left_behind(thread: i32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
    name.is_ok_and(|name| name.trim_end() == LEFT_BEHIND)
}

/// Return whether a thread of this process is in a system call that reads another process's memory.
fn reads_memory(thread: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap_or_default();
    let mut words = call.split_whitespace();
    match words.next().and_then(|number| number.parse().ok()) {
        Some(libc::SYS_process_vm_readv) => true,
        Some(libc::SYS_pread64) => {
            let file = words.next().and_then(|word| i32::from_str_radix(word.trim_start_matches("0x"), 16).ok());
            let path = file.and_then(|file| std::fs::read_link(format!("/proc/self/fd/{file}")).ok());
            path.is_some_and(|path| path.starts_with("/proc") && path.ends_with("mem"))
        }
        _ => false,
    }
}

/// Return whether a signal of ENDING is pending. The signal stays pending, because this thread blocks all signals.
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
pub(crate) struct StuckThreads {
    last: Vec<[String; 3]>,
    same: u32,
    looked: Option<Instant>,
}

impl StuckThreads {
    /// End this process, if it is gdbheap's own, once several checks in a row have found each of `threads` in one of
    /// `states`. The threads must have done no work since the first check. Do nothing if the last check was a moment
    /// ago.
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
            end_deaf();
        }
    }
}

/// End this process, which cannot react to a request to end, if it is gdbheap's own.
pub(crate) fn end_deaf() {
    end(|lines| &lines.deaf);
}

/// End this process and write one of its messages, if the process is gdbheap's own.
fn end(message: impl FnOnce(&Lines) -> &[u8]) {
    if let Some(line) = LINES.get().map(message) {
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

/// Return the kernel's id of the calling thread (gettid(2)).
pub(crate) fn thread_id() -> i32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// While this value exists, all signals are blocked on this thread. Threads that are started meanwhile never run a
/// handler of gdb or Python.
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
