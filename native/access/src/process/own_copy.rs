//! A frozen copy of the process in which gdbheap runs, and a program that reads the copy.
//!
//! The program needs no right that the process does not have: it traces nothing, and reads only its own files in /proc.
//!
//! The copy is made by clone(2), in the same way as by fork(2). Other threads may have held any lock at that moment.
//! The copy therefore runs no handlers of fork (pthread_atfork), no malloc, no Python code, and no code of libraries
//! that are loaded before libc. The copy only makes system calls: it closes all descriptors, opens its own memory,
//! starts the program, which inherits that descriptor, and waits for the program's end.
//!
//! The end of the copy sends no SIGCHLD (the exit signal is 0). A wait(2) for any child does not collect the copy; only
//! a wait with __WALL does. The copy ends with the thread that created it (PR_SET_PDEATHSIG). The program ends with the
//! copy if it requested that (`end_with_parent`); execve(2) clears that request if root gains capabilities.

use crate::child::pipe::pipe;
use crate::signals::SignalsHeld;
use crate::work::Watcher;
use libc::{c_char, c_int, c_long, c_void};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::ptr::null;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The descriptor through which the program reads the copy's memory. The program writes to the standard descriptors.
pub const OWN_MEMORY: i32 = 3;
const OUT: c_int = 1;
/// Exit statuses of the copy if it cannot start the program. They are higher than those of gdbheap's programs.
pub const NO_OWN_MEMORY: i32 = 121;
pub const NOT_STARTED: i32 = 122;
/// The base of exit statuses for signals: if a signal ended the program, the exit status is this number plus the number
/// of the signal.
pub const BY_SIGNAL: i32 = 128;
/// The size, in bytes, of the child's stack until the child calls execve(2). The stack is in the copy's memory, and the
/// copy waits until then.
const STACK: usize = 64 << 10;
/// Descriptors are closed one by one up to this number if the kernel cannot close a range (before Linux 5.9).
const MOST_DESCRIPTORS: c_int = 1 << 16;
const SIGNALS: c_int = 64;
/// The number of digits for a process id. No process id has more.
const DIGITS: usize = 10;
/// The niceness that the program gets, so that its priority is lower than that of the process that it reads.
const NICE: c_int = 10;
const CAPABILITIES_VERSION: u32 = 0x2008_0522;
const WAKE: i32 = 20;
const LARGEST_ANSWER: usize = 1 << 20;
/// How long to wait at most for the end of a copy that was killed.
const END_PATIENCE: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_millis(1);

/// The data that the copy needs. It is prepared in advance, because the copy cannot call malloc.
struct Plan {
    path: *const c_char,
    words: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// The last word of the command, into which the copy writes its id.
    own_number: *mut [u8; DIGITS],
    parent: i32,
    out: c_int,
    stack: *mut c_void,
}

/// Make a system call by its number. The wrappers in libc are not used: they may have been replaced (LD_PRELOAD), and
/// may take a lock.
fn call(number: c_long, arguments: [c_long; 4]) -> c_long {
    let [a, b, c, d] = arguments;
    // SAFETY: only this file calls it, with pointers that stay valid for the duration of the call.
    unsafe { libc::syscall(number, a, b, c, d) }
}

fn open(path: &'static [u8], flags: c_int) -> c_int {
    debug_assert_eq!(path.last(), Some(&0));
    call(libc::SYS_openat, [libc::AT_FDCWD as c_long, path.as_ptr() as c_long, c_long::from(flags), 0]) as c_int
}

fn close(number: c_int) {
    call(libc::SYS_close, [c_long::from(number), 0, 0, 0]);
}

/// Move a descriptor to the number `to`. A descriptor that has that number is closed.
fn moved(number: c_int, to: c_int) {
    if number == to {
        // Unlike a duplicate, this descriptor would be closed by execve(2).
        call(libc::SYS_fcntl, [c_long::from(to), c_long::from(libc::F_SETFD), 0, 0]);
    } else {
        call(libc::SYS_dup3, [c_long::from(number), c_long::from(to), 0, 0]);
        close(number);
    }
}

fn end(status: i32) -> ! {
    loop {
        call(libc::SYS_exit_group, [c_long::from(status), 0, 0, 0]);
    }
}

fn close_from(first: c_int) {
    if call(libc::SYS_close_range, [c_long::from(first), c_long::from(c_int::MAX), 0, 0]) != 0 {
        (first..MOST_DESCRIPTORS).for_each(close);
    }
}

/// Have the kernel send `signal` to this process when the thread that created it ends. Return whether the process
/// `parent` is still its parent.
pub fn end_with_parent(parent: i32, signal: c_int) -> bool {
    call(libc::SYS_prctl, [c_long::from(libc::PR_SET_PDEATHSIG), c_long::from(signal), 0, 0]);
    call(libc::SYS_getppid, [0; 4]) == c_long::from(parent)
}

/// Write a decimal number over the digits of a word.
fn write_number(word: *mut [u8; DIGITS], mut number: c_long) {
    // SAFETY: the word belongs to the plan, which its creator keeps.
    for digit in unsafe { &mut *word }.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

// ---- in the copy

/// Run as the copy: give up rights, close descriptors, open its own memory, start the program, and wait for it. Exit
/// with the program's status.
fn be_copy(plan: &Plan) -> ! {
    if !end_with_parent(plan.parent, libc::SIGKILL) {
        // The parent ended before the kernel could notify the copy.
        end(NOT_STARTED);
    }
    give_up_rights();
    // Give the files of the copy in /proc back to its user: a new program has fewer rights than this one may have had.
    call(libc::SYS_prctl, [c_long::from(libc::PR_SET_DUMPABLE), 1, 0, 0]);
    moved(plan.out, OUT);
    close_from(OUT + 1);
    close(0);
    // This descriptor gets the lowest free number, 0.
    let nothing = open(b"/dev/null\0", libc::O_RDWR);
    call(libc::SYS_dup3, [c_long::from(OUT), 2, 0, 0]);
    // A process may always open its own memory, and an inherited descriptor is not checked again.
    let memory = open(b"/proc/self/mem\0", libc::O_RDONLY);
    if nothing < 0 || memory < 0 {
        end(NO_OWN_MEMORY);
    }
    moved(memory, OWN_MEMORY);
    go_first_without_memory();
    let mut action: libc::sigaction = no_action();
    action.sa_sigaction = libc::SIG_DFL;
    // SAFETY: plain data. If SIGCHLD were ignored, the kernel would collect the program.
    unsafe { libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut()) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    write_number(plan.own_number, call(libc::SYS_getpid, [0; 4]));
    // SAFETY: only the program uses the stack until it runs, and this thread waits for that; the plan lives longer.
    let reader = unsafe { libc::clone(be_program, plan.stack, flags, (plan as *const Plan).cast_mut().cast()) };
    if reader < 0 {
        end(NOT_STARTED);
    }
    (0..=OWN_MEMORY).for_each(close);
    let mut status: c_int = 0;
    let arguments = [c_long::from(reader), &mut status as *mut c_int as c_long, c_long::from(libc::__WALL), 0];
    // No signal interrupts this wait.
    if call(libc::SYS_wait4, arguments) != c_long::from(reader) {
        end(NOT_STARTED);
    }
    end(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { BY_SIGNAL + libc::WTERMSIG(status) });
}

/// Give up all capabilities, and set the real user and group ids to the effective ones.
///
/// Otherwise the copy would have capabilities or ids that the program does not have, and the kernel would deny the
/// program access to the copy.
fn give_up_rights() {
    let same = c_long::from(-1);
    let group = call(libc::SYS_getegid, [0; 4]);
    let user = call(libc::SYS_geteuid, [0; 4]);
    call(libc::SYS_setresgid, [group, group, group, same]);
    call(libc::SYS_setresuid, [user, user, user, same]);
    let (head, none) = ([CAPABILITIES_VERSION, 0], [0u32; 6]);
    call(libc::SYS_capset, [head.as_ptr() as c_long, none.as_ptr() as c_long, 0, 0]);
}

/// Have the kernel end the copy and the program before all other processes if memory runs out. The program inherits
/// this setting.
fn go_first_without_memory() {
    let file = open(b"/proc/self/oom_score_adj\0", libc::O_WRONLY);
    if file >= 0 {
        const FIRST: &[u8] = b"1000";
        call(libc::SYS_write, [c_long::from(file), FIRST.as_ptr() as c_long, FIRST.len() as c_long, 0]);
        close(file);
    }
}

fn no_action() -> libc::sigaction {
    // SAFETY: plain data, for which all zeros are valid.
    unsafe { std::mem::zeroed() }
}

/// Run as the child: reset signals and priority, write the process id to the pipe, and run the program by execve(2).
/// Until then, this process uses the copy's memory.
extern "C" fn be_program(plan: *mut c_void) -> c_int {
    // SAFETY: the copy keeps the plan, and waits until the program runs.
    let plan = unsafe { &*plan.cast::<Plan>() };
    call(libc::SYS_setsid, [0; 4]);
    call(libc::SYS_setpriority, [0, 0, c_long::from(NICE), 0]);
    let mut action = no_action();
    action.sa_sigaction = libc::SIG_DFL;
    for signal in 1..=SIGNALS {
        // SAFETY: plain data; signals that cannot be set stay as they are.
        unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    }
    let none = 0u64;
    let arguments = [c_long::from(libc::SIG_SETMASK), &none as *const u64 as c_long, 0, size_of::<u64>() as c_long];
    call(libc::SYS_rt_sigprocmask, arguments);
    let number = (call(libc::SYS_getpid, [0; 4]) as i32).to_ne_bytes();
    call(libc::SYS_write, [c_long::from(OUT), number.as_ptr() as c_long, number.len() as c_long, 0]);
    let (words, environment) = (plan.words.as_ptr() as c_long, plan.environment.as_ptr() as c_long);
    call(libc::SYS_execve, [plan.path as c_long, words, environment, 0]);
    call(libc::SYS_exit_group, [c_long::from(NOT_STARTED), 0, 0, 0]);
    NOT_STARTED
}

// ---- in the process

/// A copy of this process, and the program that reads it.
pub struct OwnCopy {
    pid: i32,
    paused: Duration,
    left: Mutex<Option<File>>,
}

/// The exit status of the program, and its output.
pub struct ProgramResult {
    pub status: i32,
    pub said: Vec<u8>,
}

fn pointers(words: &[CString]) -> Vec<*const c_char> {
    words.iter().map(|word| word.as_ptr()).chain([null()]).collect()
}

impl OwnCopy {
    /// Copy this process, and let the copy start a program. `words`: the path of the program and its arguments; the id
    /// of the copy is appended. Only the calling thread waits for the copy; other threads keep running.
    pub fn start(words: &[CString], environment: &[CString]) -> io::Result<OwnCopy> {
        let Some(path) = words.first() else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
        let (from, out) = pipe()?;
        // From here until the copy exists, nothing may be moved, because the plan contains the addresses.
        let mut stack = vec![0u8; STACK];
        let top = (stack.as_mut_ptr_range().end as usize & !15) as *mut c_void;
        let mut own_number = *b"0000000000\0";
        let [own_number @ .., _] = &mut own_number;
        let mut pointers_of_words = pointers(words);
        pointers_of_words.insert(words.len(), own_number.as_ptr().cast());
        let plan = Plan {
            path: path.as_ptr(),
            words: pointers_of_words,
            environment: pointers(environment),
            own_number,
            parent: std::process::id() as i32,
            out: out.as_raw_fd(),
            stack: top,
        };
        let held = SignalsHeld::hold();
        let began = Instant::now();
        // The copy shares no memory, and its end sends no signal.
        let pid =
            unsafe { libc::syscall(libc::SYS_clone, 0 as c_long, 0 as c_long, 0 as c_long, 0 as c_long, 0 as c_long) };
        if pid == 0 {
            be_copy(&plan);
        }
        let (paused, error) = (began.elapsed(), io::Error::last_os_error());
        drop(held);
        drop(out);
        if pid < 0 {
            return Err(error);
        }
        Ok(OwnCopy { pid: pid as i32, paused, left: Mutex::new(Some(from.into())) })
    }

    /// Return the time for which the calling thread was paused.
    pub fn paused(&self) -> Duration {
        self.paused
    }

    /// Return the process id of the copy.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Wait for the end of the program and of the copy. If they have not ended after `limit`, end both and return None.
    /// Also end both if the watcher cancels. A second call returns None.
    pub fn wait(&self, watcher: &dyn Watcher, limit: Option<Duration>) -> crate::error::Result<Option<ProgramResult>> {
        let Some(from) = self.left().take() else { return Ok(None) };
        let until = limit.map(|limit| Instant::now() + limit);
        let mut copy = UncollectedCopy { pid: self.pid, from, said: Vec::new(), is_gone: false };
        loop {
            copy.hear(WAKE);
            if let Some(status) = copy.ended() {
                copy.hear(0);
                let said = copy.said.split_off(copy.said.len().min(size_of::<i32>()));
                return Ok(Some(ProgramResult { status, said }));
            }
            watcher.check()?;
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
        }
    }

    fn left(&self) -> MutexGuard<'_, Option<File>> {
        self.left.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for OwnCopy {
    fn drop(&mut self) {
        if let Some(from) = self.left().take() {
            drop(UncollectedCopy { pid: self.pid, from, said: Vec::new(), is_gone: false });
        }
    }
}

/// A copy that is not collected yet. The copy is ended when this value is dropped.
struct UncollectedCopy {
    pid: i32,
    from: File,
    said: Vec<u8>,
    is_gone: bool,
}

impl UncollectedCopy {
    /// Read the program's output; wait for it at most `wait` milliseconds.
    ///
    /// The end of the pipe does not show the program's end, because a process that was forked meanwhile may have the
    /// pipe open too.
    fn hear(&mut self, wait: i32) {
        let mut entry = libc::pollfd { fd: self.from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut bytes = [0; 4 << 10];
        loop {
            // SAFETY: one entry of this function.
            let is_ready = unsafe { libc::poll(&mut entry, 1, wait) } > 0;
            let got =
                if is_ready && entry.revents & libc::POLLIN != 0 { self.from.read(&mut bytes).unwrap_or(0) } else { 0 };
            if got == 0 {
                if is_ready && wait > 0 {
                    std::thread::sleep(NAP);
                }
                return;
            }
            let room = LARGEST_ANSWER.saturating_sub(self.said.len());
            self.said.extend_from_slice(&bytes[..got.min(room)]);
            if wait > 0 {
                return;
            }
        }
    }

    /// Return the exit status of the copy and collect it; None if it has not ended.
    fn ended(&mut self) -> Option<i32> {
        let mut status: c_int = 0;
        // SAFETY: the kernel writes one number; the copy is a child of this process, and only this collects it.
        match unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL | libc::WNOHANG) } {
            0 => return None,
            -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => return None,
            // Another part of the program has collected the copy already.
            -1 => status = 0,
            _ => {}
        }
        self.is_gone = true;
        Some(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { BY_SIGNAL + libc::WTERMSIG(status) })
    }

    /// End the copy, and with it the program. The kernel then gives the program to init or to a subreaper, which may be
    /// this process.
    fn end(&mut self) {
        if self.is_gone {
            return;
        }
        // SAFETY: two numbers; the copy is not collected yet, so its id was not reused.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        let until = Instant::now() + END_PATIENCE;
        while self.ended().is_none() && Instant::now() < until {
            std::thread::sleep(NAP);
        }
        self.hear(0);
        let Some(Ok(number)) = self.said.get(..size_of::<i32>()).map(<[u8; 4]>::try_from) else { return };
        let reader = i32::from_ne_bytes(number);
        // SAFETY: the kernel answers at once if it is not a child of this process.
        while reader > 0 && unsafe { libc::waitpid(reader, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) } == 0 {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(NAP);
        }
    }
}

impl Drop for UncollectedCopy {
    fn drop(&mut self) {
        self.end();
    }
}
