//! Starts a program, and reports certain system calls of this program and of all its child processes.
//!
//! A filter (seccomp(2), SECCOMP_RET_TRACE) stops threads at exactly these calls. The filter stays as long as a process
//! lives, and without a tracer the calls would fail. So a separate process of gdbheap, the keeper, traces in its own
//! session. It reports the calls to this process. If this process no longer listens, the keeper lets all calls pass. So
//! the program keeps running however gdbheap ends. A thread of gdbheap forks the keeper, and glibc keeps malloc usable
//! in a child.

use crate::arch::registers;
use crate::arch::system_call::{self, AUDIT_ARCHITECTURE, NUMBERS_OF_OTHERS};
use crate::child::descriptor::close_others;
use crate::child::pipe::pipe;
use crate::child::waiting::{wait, wait_aside};
use crate::error::Result;
use crate::process::ptrace::{self, ThreadEvent};
use crate::process::telling::{Finish, Teller, Trace, TraceState};
use crate::process::tracer::Failure;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
const OPTIONS: i32 = libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_EXITKILL;
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const NOT_STARTED: i32 = 127;

/// The words of the command to start, and the numbers of the system calls to report.
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    pub words: Vec<CString>,
    pub numbers: Vec<u32>,
}

pub(crate) struct Launch {
    start: LaunchRequest,
}

/// A message of the keeper. All messages have the same size, which is less than a pipe accepts at once.
enum KeeperMessage {
    /// The process with this id runs the program.
    Begun(i32),
    /// The program cannot be started. The number is the errno.
    Failed(i32),
    /// The exit status of the program, as wait(2) returns it.
    Status(i32),
    Seen {
        pid: i32,
        tid: i32,
        place: Option<usize>,
        registers: Vec<u64>,
    },
}

const WORDS: usize = 4 + registers::COUNT;
const WORD: usize = size_of::<u64>();

impl KeeperMessage {
    fn bytes(&self) -> [u8; WORDS * WORD] {
        let mut words = [0u64; WORDS];
        match self {
            KeeperMessage::Begun(pid) => words[..2].copy_from_slice(&[0, *pid as u64]),
            KeeperMessage::Failed(number) => words[..2].copy_from_slice(&[1, *number as u64]),
            KeeperMessage::Status(status) => words[..2].copy_from_slice(&[2, *status as u64]),
            KeeperMessage::Seen { pid, tid, place, registers } => {
                let place = place.map_or(0, |place| place as u64 + 1);
                words[..4].copy_from_slice(&[3 + u64::from(!registers.is_empty()), *pid as u64, *tid as u64, place]);
                words[4..].iter_mut().zip(registers).for_each(|(word, register)| *word = *register);
            }
        }
        let mut bytes = [0; WORDS * WORD];
        bytes.chunks_exact_mut(WORD).zip(words).for_each(|(part, word)| part.copy_from_slice(&word.to_ne_bytes()));
        bytes
    }

    /// Read the next message; None if the keeper has ended.
    fn read(pipe: &mut File) -> Option<KeeperMessage> {
        let mut bytes = [0; WORDS * WORD];
        pipe.read_exact(&mut bytes).ok()?;
        let mut words = bytes.chunks_exact(WORD).map(|part| u64::from_ne_bytes(part.try_into().unwrap_or_default()));
        let mut next = || words.next().unwrap_or_default();
        let (kind, first, second, third) = (next(), next() as i32, next() as i32, next());
        Some(match kind {
            0 => KeeperMessage::Begun(first),
            1 => KeeperMessage::Failed(first),
            2 => KeeperMessage::Status(first),
            _ => {
                let registers = if kind == 3 { Vec::new() } else { words.collect() };
                KeeperMessage::Seen { pid: first, tid: second, place: (third as usize).checked_sub(1), registers }
            }
        })
    }
}

impl Launch {
    pub(crate) fn new(start: LaunchRequest) -> Launch {
        Launch { start }
    }

    /// Start the keeper, which starts the program. Return the keeper's id, the pipe with its messages, and the pipe for
    /// the answers.
    fn start(self, waits: bool, limit: Duration) -> Result<(i32, File, File), Error> {
        let ((told, telling), (answers, answering)) = (pipe()?, pipe()?);
        // SAFETY: the child only makes system calls, allocates by glibc's malloc, and ends by _exit.
        let child = unsafe { libc::fork() };
        match child {
            ..0 => Err(Error::last_os_error()),
            0 => {
                drop((told, answering));
                let waits = waits.then_some(limit);
                let (told, threads) = (File::from(telling), HashMap::new());
                let keeper =
                    Keeper { start: self.start, child: 0, threads, told, answers, waits, owed: 0, heard: true };
                keeper.keep();
                // SAFETY: ends this process and runs nothing of the parent's.
                unsafe { libc::_exit(0) }
            }
            keeper => Ok((keeper, File::from(told), File::from(answering))),
        }
    }
}

impl Trace for Launch {
    fn trace(self, teller: Teller, ready: &Sender<Result<(), Failure>>) -> Finish {
        let (keeper, mut told, answering) = match self.start(teller.waits, teller.limit) {
            Ok(found) => found,
            Err(error) => {
                let _ = ready.send(Err(error.into()));
                return Finish::Asked;
            }
        };
        let mut answering = Some(answering);
        let shared: &TraceState = &teller.shared;
        while !shared.is_left.load(Ordering::SeqCst) {
            if shared.is_ending() {
                // The keeper then stops no thread any more.
                drop(answering.take());
            }
            if !is_ready(told.as_raw_fd(), None) {
                continue;
            }
            match KeeperMessage::read(&mut told) {
                Some(KeeperMessage::Begun(pid)) => {
                    shared.started.store(pid, Ordering::SeqCst);
                    let _ = ready.send(Ok(()));
                }
                Some(KeeperMessage::Failed(number)) => {
                    let _ = ready.send(Err(Error::from_raw_os_error(number).into()));
                }
                Some(KeeperMessage::Status(status)) => shared.status.store(status, Ordering::SeqCst),
                Some(KeeperMessage::Seen { pid, tid, place, registers }) => {
                    if let Some(pipe) = &mut answering {
                        teller.tell(pid, tid, place, registers);
                        if teller.waits {
                            let _ = pipe.write_all(&[0]);
                        }
                    }
                }
                None => {
                    wait(keeper);
                    return Finish::Gone;
                }
            }
        }
        wait_aside(keeper);
        Finish::Asked
    }
}

/// Return whether the descriptor has data to read, or its other end is closed. False after a signal, and after `limit`.
fn is_ready(descriptor: RawFd, limit: Option<Duration>) -> bool {
    let mut about = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let limit = limit.map_or(-1, |limit| limit.as_millis() as libc::c_int);
    // SAFETY: one record of this function.
    unsafe { libc::poll(&mut about, 1, limit) > 0 }
}

/// The process that traces. `waits`: the longest time that a stopped thread waits for an answer; None if threads do not
/// wait. `owed`: the number of answers that have not come yet. `heard`: whether gdbheap's process still listens.
struct Keeper {
    start: LaunchRequest,
    child: i32,
    /// The process id of each thread.
    threads: HashMap<i32, i32>,
    told: File,
    answers: OwnedFd,
    waits: Option<Duration>,
    owed: usize,
    heard: bool,
}

impl Keeper {
    fn keep(mut self) {
        let mut failed = match self.spawn() {
            Ok(failed) => failed,
            Err(error) => return self.say(&KeeperMessage::Failed(error.raw_os_error().unwrap_or(libc::EPERM))),
        };
        // SAFETY: a number and a text.
        unsafe {
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, c"gdbheap guard".as_ptr());
        }
        // A reader that waits for the end of the program's output should wait only for the program, not for the keeper.
        close_others(vec![self.told.as_raw_fd(), self.answers.as_raw_fd(), failed.as_raw_fd()]);
        let mut begun = false;
        loop {
            match ptrace::peek_any(0) {
                Ok((tid, waited)) => {
                    let is_exec = matches!(waited, ThreadEvent::Stopped { event: libc::PTRACE_EVENT_EXEC, .. });
                    if is_exec && !begun {
                        begun = true;
                        self.say(&KeeperMessage::Begun(self.child));
                    }
                    self.attend(tid, waited);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        if !begun {
            self.say(&KeeperMessage::Failed(reason(&mut failed)));
        }
    }

    fn say(&mut self, said: &KeeperMessage) {
        self.heard = self.heard && self.told.write_all(&said.bytes()).is_ok();
    }

    /// Report an event of a thread to gdbheap's process. If answers are expected, the thread stays stopped until an
    /// answer comes.
    fn tell(&mut self, said: &KeeperMessage) {
        let met = Instant::now();
        self.say(said);
        let Some(limit) = self.waits.filter(|_| self.heard) else { return };
        self.owed += 1;
        while self.heard && self.owed > 0 && met.elapsed() < limit {
            if is_ready(self.answers.as_raw_fd(), Some(limit.saturating_sub(met.elapsed()))) {
                self.hear();
            }
        }
    }

    /// Read the answers that have arrived, without waiting for more.
    fn hear(&mut self) {
        let mut bytes = [0u8; 64];
        // SAFETY: writes to an array of this function.
        let got = unsafe { libc::read(self.answers.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        self.heard = got > 0;
        self.owed = self.owed.saturating_sub(usize::try_from(got).unwrap_or(0));
    }

    /// Return whether gdbheap's process still listens.
    fn is_heard(&mut self) -> bool {
        if self.heard && is_ready(self.answers.as_raw_fd(), Some(Duration::ZERO)) {
            self.hear();
        }
        self.heard
    }

    /// Start the program's process, which is traced before it runs the program. Return a pipe that will contain an
    /// errno if the program cannot run.
    fn spawn(&mut self) -> Result<File, Error> {
        let (gate, opened) = pipe()?;
        let (failed, failure) = pipe()?;
        let filter = filter(&self.start.numbers);
        let mut words: Vec<*const libc::c_char> = self.start.words.iter().map(|word| word.as_ptr()).collect();
        words.push(std::ptr::null());
        // SAFETY: the child only makes system calls, with data that was made before.
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
            // SAFETY: takes numbers only; the process is a child of this one.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        seized?;
        self.threads.insert(child, child);
        drop(opened);
        Ok(File::from(failed))
    }

    fn attend(&mut self, tid: i32, waited: ThreadEvent) {
        let _ = match waited {
            ThreadEvent::Running => Ok(()),
            ThreadEvent::Gone => {
                self.forget(tid);
                Ok(())
            }
            ThreadEvent::Stopped { event: libc::PTRACE_EVENT_SECCOMP, .. } if self.is_heard() => {
                ptrace::go_on_to_syscall(tid, 0)
            }
            ThreadEvent::Stopped { signal: SYSCALL_STOP, event: 0 } => {
                self.tell_call(tid);
                ptrace::go_on(tid, 0)
            }
            ThreadEvent::Stopped { event: libc::PTRACE_EVENT_EXEC, .. } => {
                self.threads.insert(tid, tid);
                self.tell(&KeeperMessage::Seen { pid: tid, tid, place: None, registers: Vec::new() });
                ptrace::go_on(tid, 0)
            }
            ThreadEvent::Stopped { signal: libc::SIGTRAP, event: ptrace::EVENT_STOP } => ptrace::go_on(tid, 0),
            ThreadEvent::Stopped { event: ptrace::EVENT_STOP, .. } => {
                ptrace::wait(tid, false);
                ptrace::listen(tid)
            }
            ThreadEvent::Stopped { signal, event: 0 } => ptrace::go_on(tid, signal),
            ThreadEvent::Stopped { .. } => ptrace::go_on(tid, 0),
        };
    }

    fn tell_call(&mut self, tid: i32) {
        let Ok(found) = registers::read(tid) else { return };
        let number = system_call::number(&found);
        let place = self.start.numbers.iter().position(|known| u64::from(*known) == number);
        if place.is_some() {
            let pid = *self.threads.entry(tid).or_insert_with(|| process_of(tid));
            self.tell(&KeeperMessage::Seen { pid, tid, place, registers: found });
        }
    }

    /// Forget a thread. If the keeper's own child has ended, report its exit status. For any other process, the kernel
    /// notifies the real parent after the keeper has collected the status.
    fn forget(&mut self, tid: i32) {
        self.threads.remove(&tid);
        if let Some(status) = ptrace::wait_status(tid).filter(|_| tid == self.child) {
            self.say(&KeeperMessage::Status(status));
        }
    }
}

/// Return the errno with which the program could not be started. `pipe`: the pipe of the process that tried to start
/// it.
fn reason(pipe: &mut File) -> i32 {
    let mut number = [0u8; 4];
    pipe.read_exact(&mut number).map_or(libc::ECHILD, |()| i32::from_ne_bytes(number))
}

fn process_of(tid: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(tid)
}

/// Build a filter that stops at the system calls `numbers` of 64-bit programs, and lets everything else pass.
fn filter(numbers: &[u32]) -> Vec<libc::sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let count = numbers.len() as u8;
    let mut program = vec![
        step(LOAD, 0, 0, ARCHITECTURE_AT),
        step(EQUAL, 0, count + 2, AUDIT_ARCHITECTURE),
        step(LOAD, 0, 0, NUMBER_AT),
        step(AT_LEAST, count, 0, NUMBERS_OF_OTHERS),
    ];
    program.extend((0..count).zip(numbers).map(|(index, number)| step(EQUAL, count - index, 0, *number)));
    program.push(step(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW));
    program.push(step(ANSWER, 0, 0, libc::SECCOMP_RET_TRACE));
    program
}

/// Turn the new process into the program: wait until the process is traced, install the filter, and run the program.
/// Return the errno if that fails.
fn begin(gate: RawFd, opened: RawFd, filter: &[libc::sock_filter], words: &[*const libc::c_char]) -> i32 {
    // SAFETY: system calls with numbers and with data that the caller made before the fork; the last word is null.
    unsafe {
        libc::close(opened);
        let mut word = [0u8; 1];
        libc::read(gate, word.as_mut_ptr().cast(), 1);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        // Python ignores these signals, and its children inherit that.
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
