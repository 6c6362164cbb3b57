//! Starts a program, and sees each of its system calls of some kinds, and of all processes that it starts.
//!
//! A filter (seccomp(2), SECCOMP_RET_TRACE) stops threads at exactly these calls; everything else runs untouched. The filter
//! stays for as long as a process lives, and without a tracer the calls would fail: so whoever was started is followed to
//! the end, and is killed if we are.

use crate::error::Result;
use crate::process::pipe::pipe;
use crate::process::ptrace::{self, Waited};
use crate::process::registers;
use crate::process::telling::{Finish, Teller, Trace};
use crate::process::tracer::Failure;
use std::collections::HashMap;
use std::ffi::CString;
use std::io::{Error, ErrorKind, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
const OPTIONS: i32 = libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_EXITKILL;
/// `AUDIT_ARCH_X86_64`, and the bit that x32's numbers have.
const ARCHITECTURE: u32 = 0xc000_003e;
const X32: u32 = 0x4000_0000;
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const NOT_STARTED: i32 = 127;

/// The words of a command, and the system calls that are to be seen.
#[derive(Clone, Debug)]
pub struct Start {
    pub words: Vec<CString>,
    pub numbers: Vec<u32>,
}

pub(crate) struct Launch {
    start: Start,
    child: i32,
    /// The process of each thread.
    threads: HashMap<i32, i32>,
}

impl Launch {
    pub(crate) fn new(start: Start) -> Launch {
        Launch { start, child: 0, threads: HashMap::new() }
    }
}

impl Trace for Launch {
    fn trace(mut self, teller: Teller, ready: &Sender<Result<(), Failure>>) -> Finish {
        let mut failed = match self.spawn() {
            Ok(failed) => failed,
            Err(error) => {
                let _ = ready.send(Err(error.into()));
                return Finish::Asked;
            }
        };
        let mut begun = false;
        loop {
            match ptrace::peek_any(0) {
                Ok((tid, waited)) => {
                    let is_exec = matches!(waited, Waited::Stopped { event: libc::PTRACE_EVENT_EXEC, .. });
                    if is_exec && !begun {
                        begun = true;
                        let _ = ready.send(Ok(()));
                    }
                    self.attend(tid, waited, &teller);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if !begun {
            let _ = ready.send(Err(reason(&mut failed).into()));
        }
        Finish::Gone
    }
}

/// Why the program could not be started, from the pipe of the process that tried.
fn reason(pipe: &mut std::fs::File) -> Error {
    let mut number = [0u8; 4];
    match pipe.read_exact(&mut number) {
        Ok(()) => Error::from_raw_os_error(i32::from_ne_bytes(number)),
        Err(_) => Error::from_raw_os_error(libc::ECHILD),
    }
}

impl Launch {
    /// Starts the program's process, traced, before it runs the program. The pipe has the number of an error if it cannot.
    fn spawn(&mut self) -> Result<std::fs::File, Error> {
        let (gate, opened) = pipe()?;
        let (failed, failure) = pipe()?;
        let filter = filter(&self.start.numbers);
        let mut words: Vec<*const libc::c_char> = self.start.words.iter().map(|word| word.as_ptr()).collect();
        words.push(std::ptr::null());
        // SAFETY: the child only makes system calls, with what was made before.
        let child = unsafe { libc::fork() };
        match child {
            ..0 => return Err(Error::last_os_error()),
            0 => {
                let number = begin(gate.as_raw_fd(), opened.as_raw_fd(), &filter, &words);
                // SAFETY: writes an integer of this function, and ends the process.
                unsafe {
                    libc::write(failure.as_raw_fd(), (&raw const number).cast(), 4);
                    libc::_exit(NOT_STARTED)
                }
            }
            _ => self.child = child,
        }
        let seized = ptrace::seize(child, OPTIONS);
        if seized.is_err() {
            // SAFETY: takes numbers only: the process is ours.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        seized?;
        self.threads.insert(child, child);
        drop(opened);
        Ok(std::fs::File::from(failed))
    }

    fn attend(&mut self, tid: i32, waited: Waited, teller: &Teller) {
        let _ = match waited {
            Waited::Running => Ok(()),
            Waited::Gone => {
                self.forget(tid, teller);
                Ok(())
            }
            Waited::Stopped { event: libc::PTRACE_EVENT_SECCOMP, .. } if !teller.shared.is_ending() => {
                ptrace::go_on_to_syscall(tid, 0)
            }
            Waited::Stopped { signal: SYSCALL_STOP, event: 0 } => {
                self.tell(tid, teller);
                ptrace::go_on(tid, 0)
            }
            Waited::Stopped { event: libc::PTRACE_EVENT_EXEC, .. } => {
                self.threads.insert(tid, tid);
                teller.tell(tid, tid, None, Vec::new());
                ptrace::go_on(tid, 0)
            }
            Waited::Stopped { signal: libc::SIGTRAP, event: ptrace::EVENT_STOP } => ptrace::go_on(tid, 0),
            Waited::Stopped { event: ptrace::EVENT_STOP, .. } => {
                ptrace::wait(tid, false);
                ptrace::listen(tid)
            }
            Waited::Stopped { signal, event: 0 } => ptrace::go_on(tid, signal),
            Waited::Stopped { .. } => ptrace::go_on(tid, 0),
        };
    }

    fn tell(&mut self, tid: i32, teller: &Teller) {
        let Ok(found) = registers::read(tid) else { return };
        let number = found[registers::ORIG_RAX];
        let place = self.start.numbers.iter().position(|known| u64::from(*known) == number);
        if place.is_some() {
            let pid = *self.threads.entry(tid).or_insert_with(|| process_of(tid));
            teller.tell(pid, tid, place, found);
        }
    }

    /// The end of our own child is its status; others' parents are told once we have seen it.
    fn forget(&mut self, tid: i32, teller: &Teller) {
        self.threads.remove(&tid);
        if let Some(status) = ptrace::wait_status(tid).filter(|_| tid == self.child) {
            teller.shared.status.store(status, Ordering::SeqCst);
        }
    }
}

fn process_of(tid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(tid)
}

/// Stops at the system calls `numbers` of 64-bit programs, and lets everything else pass.
fn filter(numbers: &[u32]) -> Vec<libc::sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let count = numbers.len() as u8;
    let mut program = vec![
        step(LOAD, 0, 0, ARCHITECTURE_AT),
        step(EQUAL, 0, count + 2, ARCHITECTURE),
        step(LOAD, 0, 0, NUMBER_AT),
        step(AT_LEAST, count, 0, X32),
    ];
    program.extend((0..count).zip(numbers).map(|(index, number)| step(EQUAL, count - index, 0, *number)));
    program.push(step(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW));
    program.push(step(ANSWER, 0, 0, libc::SECCOMP_RET_TRACE));
    program
}

/// In the new process: waits until it is traced, takes the filter and runs the program. The number of the error otherwise.
fn begin(gate: RawFd, opened: RawFd, filter: &[libc::sock_filter], words: &[*const libc::c_char]) -> i32 {
    // SAFETY: system calls with numbers and with what the caller made before the fork; the last word is null.
    unsafe {
        libc::close(opened);
        let mut word = [0u8; 1];
        libc::read(gate, word.as_mut_ptr().cast(), 1);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        // Python ignores these, and lets its children have them.
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        let take = || libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program);
        if take() < 0 && (libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || take() < 0) {
            return Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM);
        }
        libc::execvp(words[0], words.as_ptr());
    }
    Error::last_os_error().raw_os_error().unwrap_or(libc::ENOENT)
}
