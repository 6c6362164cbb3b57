//! Makes a copy of the target that never runs. The target is stopped only while the kernel copies its page tables.
//!
//! A guardian does all of this: a separate process that holds the target and the copy, and has no other task. The
//! guardian has its own session and receives no signals. Even if gdbheap's own process is killed, the guardian restores
//! the registers of the target's thread, ends the copy, makes the target collect the copy, and ends. If the guardian
//! dies as well, the kernel ends the copy (PTRACE_O_EXITKILL).

use crate::arch::registers::GENERAL;
use crate::arch::system_call;
use crate::bytes::u64_at;
use crate::child::descriptor::close_others;
use crate::child::pipe::pipe;
use crate::error::{Error, Result};
use crate::folder::ProcessFolder;
use crate::process::injection::{self, CallOutcome};
use crate::process::ptrace::{self, ThreadEvent};
use crate::process::stop::StoppedThread;
use crate::process::tracer::{raise_priority, Failure, Registers, Tracer};
use crate::signals::SignalsHeld;
use crate::stat;
use crate::work::Watcher;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The arguments of clone(2): the copy has its own memory, and its end sends no SIGCHLD. wait4(2) only finds it with
/// __WALL. The copy shares the target's table of descriptors. A copied table would keep files open that the target
/// closes.
const CLONE_ARGUMENTS: [u64; 6] = [libc::CLONE_FILES as u64, 0, 0, 0, 0, 0];
/// The arguments of close_range(2) (Linux 5.9): give the copy its own table of descriptors, and close all descriptors
/// in it.
///
/// Without this call, the copy would keep the target's files open if the target runs another program: exec(2) leaves
/// the old table to the processes that share it. The kernel still copies the first 64 descriptors into the new table
/// and closes them one by one. A FUSE file system may delay this; the copy then keeps the descriptors that are not
/// closed yet.
const CLOSE_ARGUMENTS: [u64; 6] = [0, u32::MAX as u64, libc::CLOSE_RANGE_UNSHARE as u64, 0, 0, 0];
const WORDS: usize = 5 + GENERAL;
const OK: u64 = 0;
/// The first code with which the guardian reports that it refuses to copy a process. It is larger than every errno. The
/// code REASON + N stands for the text REASONS[N].
const REASON: u64 = 10_000;
const REASONS: [&str; 5] = [
    "its threads do not stop in time",
    "none of its threads can make a system call for gdbheap now",
    "it has no vDSO that could make the call",
    "another event interrupted the call",
    "its children get a namespace of their own (unshare(2)), of which the copy would be the first process",
];
const TOO_SLOW: u64 = REASON;
const NO_CALLER: u64 = REASON + 1;
const NO_VDSO: u64 = REASON + 2;
const CUT_SHORT: u64 = REASON + 3;
const OTHER_NAMESPACE: u64 = REASON + 4;
/// The names of a thread's own namespaces, and of the namespaces of its future children (namespaces(7)).
const NAMESPACES: [(&str, &str); 2] = [("pid", "pid_for_children"), ("time", "time_for_children")];
const MAX_THREADS: u64 = 1 << 20;
const WAKE: i32 = 50;
/// The interval, in milliseconds, between checks of the threads that had not stopped when the target was released.
const LEFTOVERS: i32 = 5;
/// How long this process waits until a copy exits. A FUSE file system of another user may delay the exit; the guardian
/// then stays with the copy.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long this process sleeps before the second check whether a copy has ended. The sleeps become longer, up to
/// MAX_NAP.
const NAP: Duration = Duration::from_micros(200);
const MAX_NAP: Duration = Duration::from_millis(5);
/// The score with which the kernel ends the copy before all other processes if memory runs out
/// (proc_pid_oom_score_adj(5)).
const FIRST_TO_GO: &str = "1000";
const LET_GO: u8 = b'r';
const REAP_PATIENCE: Duration = Duration::from_secs(3);

/// The copy while the guardian holds it. `inner`: the id of the copy as the target sees it.
struct GuardedCopy {
    pid: i32,
    inner: i64,
}

// ---- the guardian's side

fn guard(process: &ProcessFolder, limit: Option<Duration>, from: File, mut to: File) {
    // SAFETY: no argument. Signals to the process group and hang-ups of the terminal must not reach the guardian.
    unsafe { libc::setsid() };
    raise_priority();
    let program = program_of(process);
    let mut tracer = Tracer::new(process, limit);
    let made = copy(&mut tracer);
    let message = match &made {
        Ok(made) => hello(&tracer, made.pid),
        Err(code) => vec![*code],
    };
    // SAFETY: numbers only.
    unsafe { libc::fcntl(to.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let mut ears = GuardianInputs { from, target: open_process(process) };
    let (mut letter, mut heard) = (ParentMessage::new(&message), ParentInput::End);
    if made.is_ok() {
        // Even if the parent is suspended or ends, the target is released.
        let deadline = limit.zip(tracer.since()).map(|(limit, since)| since + limit);
        heard = ears.send(&mut to, &mut letter, deadline, None);
        if heard == ParentInput::Word {
            heard = ears.listen(deadline, None);
        }
    }
    let (first, expired) = (tracer.release(), heard == ParentInput::Nothing);
    let is_heard = ears.send(&mut to, &mut letter, None, Some(&mut tracer)) == ParentInput::Word;
    let Ok(made) = made else { return };
    let mut stood = ParentMessage::new(&[first.as_nanos() as u64, u64::from(expired)]);
    if is_heard && ears.send(&mut to, &mut stood, None, Some(&mut tracer)) == ParentInput::Word {
        // When the target ends, its open files must be closed, so the copy ends with it.
        ears.listen(None, Some(&mut tracer));
    }
    end(&mut tracer, made.pid);
    let reaped = reap(&mut tracer, made.inner, program);
    let answer = [u64::from(reaped.is_some()), reaped.unwrap_or_default().as_nanos() as u64];
    if is_heard {
        ears.send(&mut to, &mut ParentMessage::new(&answer), None, Some(&mut tracer));
    }
}

fn copy(tracer: &mut Tracer) -> Result<GuardedCopy, u64> {
    tracer.stop(&AtomicBool::new(false)).map_err(|failure| match failure {
        Failure::Os(error) => error.raw_os_error().unwrap_or(libc::EIO) as u64,
        Failure::Timeout(_) | Failure::Cancelled => TOO_SLOW,
    })?;
    let caller = injection::find_caller(tracer).ok_or(NO_CALLER)?;
    let instruction = injection::find_instruction(tracer.pid).ok_or(NO_VDSO)?;
    if !NAMESPACES.iter().all(|(own, children)| is_one(&tracer.process, caller, own, children)) {
        return Err(OTHER_NAMESPACE);
    }
    match injection::make_call(caller, instruction, libc::SYS_clone as u64, CLONE_ARGUMENTS) {
        Some(CallOutcome { answer, child: Some(child) }) if answer > 0 => {
            injection::make_call_of_ours(child, instruction, libc::SYS_close_range as u64, CLOSE_ARGUMENTS);
            let _ = std::fs::write(format!("/proc/{child}/oom_score_adj"), FIRST_TO_GO);
            Ok(GuardedCopy { pid: child, inner: answer })
        }
        Some(CallOutcome { child: Some(child), .. }) => {
            // The target is stopped, so do not wait for the copy's end.
            kill(child);
            Err(CUT_SHORT)
        }
        Some(CallOutcome { answer, .. }) if answer < 0 => Err(answer.unsigned_abs().min(REASON - 1)),
        _ => Err(CUT_SHORT),
    }
}

/// Return whether a thread's future children are in the same namespace as the thread.
///
/// True if the kernel does not have this kind of namespace.
fn is_one(process: &ProcessFolder, tid: i32, own: &str, children: &str) -> bool {
    let of = |name: &str| std::fs::read_link(process.path(&format!("task/{tid}/ns/{name}"))).ok();
    let own = of(own);
    own.is_none() || own == of(children)
}

fn kill(child: i32) {
    // SAFETY: two numbers; the copy is a tracee of this process, so its id cannot have been reused.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

/// End the copy and wait for its end, however long that takes. Meanwhile, release threads that stopped after the target
/// was released.
fn end(tracer: &mut Tracer, child: i32) {
    kill(child);
    while ptrace::wait(child, tracer.threads.is_empty()) != ThreadEvent::Gone {
        tracer.let_rest_go();
        std::thread::sleep(NAP);
    }
}

/// Make the target collect the copy, in a second short stop. Return the duration of that stop; None if the copy was not
/// collected. If the target runs another program now, it is left alone; the copy is then collected when the target
/// ends.
fn reap(tracer: &mut Tracer, inner: i64, program: Program) -> Option<Duration> {
    let deadline = Instant::now() + REAP_PATIENCE;
    while Instant::now() < deadline {
        if !tracer.process.is_there() {
            // The target has ended: the collector of orphans has collected the copy.
            return Some(Duration::ZERO);
        }
        if program_of(&tracer.process) != program {
            return None;
        }
        // Another program may hold the target for a moment, such as another guardian.
        let stopped = tracer.stop(&AtomicBool::new(false));
        let made = stopped.ok().and_then(|()| collect(tracer, inner));
        let stood = tracer.release();
        if made.is_some_and(|made| made.answer == inner || made.answer == -i64::from(libc::ECHILD)) {
            return Some(stood);
        }
        std::thread::sleep(Duration::from_millis(2));
        tracer.let_rest_go();
    }
    None
}

fn collect(tracer: &Tracer, inner: i64) -> Option<CallOutcome> {
    let arguments = [inner as u64, 0, (libc::WNOHANG | libc::__WALL) as u32 as u64, 0, 0, 0];
    let caller = injection::find_caller(tracer)?;
    injection::make_call(caller, injection::find_instruction(tracer.pid)?, libc::SYS_wait4 as u64, arguments)
}

/// The device and inode of the program that a process runs. exec(2) changes them.
type Program = Option<(u64, u64)>;

fn program_of(process: &ProcessFolder) -> Program {
    std::fs::metadata(process.path("exe")).ok().map(|file| (file.dev(), file.ino()))
}

/// Return a descriptor that becomes readable when the process ends; None if the process is gone, or before Linux 5.3.
fn open_process(process: &ProcessFolder) -> Option<OwnedFd> {
    // SAFETY: numbers only.
    let found = unsafe { libc::syscall(libc::SYS_pidfd_open, process.pid(), 0) };
    // SAFETY: the kernel has just created it, and nothing else owns it.
    let opened = (found >= 0).then(|| unsafe { OwnedFd::from_raw_fd(found as i32) });
    opened.filter(|_| process.is_there())
}

fn hello(tracer: &Tracer, copy: i32) -> Vec<u64> {
    let rows = tracer.rows();
    let mut words = vec![OK, copy as u64, tracer.mended, rows.len() as u64];
    for (tid, stopped, registers) in rows {
        let Registers { thread_pointer, stack_pointer, program_counter, general } = registers;
        words.extend([tid as u64, u64::from(stopped), thread_pointer, stack_pointer, program_counter]);
        words.extend(general);
    }
    words
}

/// A message from the guardian to its parent. `rest`: the index of the first byte that was not sent yet.
struct ParentMessage {
    bytes: Vec<u8>,
    rest: usize,
}

impl ParentMessage {
    fn new(words: &[u64]) -> ParentMessage {
        ParentMessage { bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(), rest: 0 }
    }
}

#[derive(PartialEq)]
enum ParentInput {
    Word,
    Nothing,
    End,
}

/// The descriptors at which the guardian waits: the pipe from its parent, and the end of the target.
struct GuardianInputs {
    from: File,
    target: Option<OwnedFd>,
}

impl GuardianInputs {
    /// Send a message to the parent. Return `Word` if the whole message was sent, `Nothing` if the time is up, and
    /// `End` if its reader or the target is gone.
    fn send(
        &self,
        to: &mut File,
        letter: &mut ParentMessage,
        deadline: Option<Instant>,
        mut tracer: Option<&mut Tracer>,
    ) -> ParentInput {
        while letter.rest < letter.bytes.len() {
            match to.write(&letter.bytes[letter.rest..]) {
                Ok(sent) => letter.rest += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let (_, has_ended) = self.wait(entry(to.as_raw_fd(), libc::POLLOUT), deadline, &mut tracer);
                    if has_ended {
                        return ParentInput::End;
                    }
                    if is_past(deadline) {
                        return ParentInput::Nothing;
                    }
                }
                Err(_) => return ParentInput::End,
            }
        }
        ParentInput::Word
    }

    /// Wait for a message from the parent.
    fn listen(&mut self, deadline: Option<Instant>, mut tracer: Option<&mut Tracer>) -> ParentInput {
        loop {
            let (is_word, has_ended) = self.wait(entry(self.from.as_raw_fd(), libc::POLLIN), deadline, &mut tracer);
            if is_word {
                let mut byte = [0];
                return if self.from.read_exact(&mut byte).is_ok() && byte[0] == LET_GO {
                    ParentInput::Word
                } else {
                    ParentInput::End
                };
            }
            if has_ended {
                return ParentInput::End;
            }
            if is_past(deadline) {
                return ParentInput::Nothing;
            }
        }
    }

    /// Wait until the descriptor of `one` is ready, the target ends, or the deadline passes. Return whether the
    /// descriptor is ready, and whether the target has ended. Meanwhile, release threads that stopped after the target
    /// was released.
    fn wait(&self, one: libc::pollfd, deadline: Option<Instant>, tracer: &mut Option<&mut Tracer>) -> (bool, bool) {
        let mut wait = milliseconds(deadline);
        if let Some(tracer) = tracer.as_deref_mut().filter(|tracer| !tracer.threads.is_empty()) {
            tracer.let_rest_go();
            wait = LEFTOVERS;
        }
        let target = self.target.as_ref().map_or(-1, |target| target.as_raw_fd());
        let mut entries = [one, entry(target, libc::POLLIN)];
        // SAFETY: two entries of this function; poll ignores an entry with descriptor -1.
        unsafe { libc::poll(entries.as_mut_ptr(), 2, wait) };
        (entries[0].revents != 0, entries[1].revents != 0)
    }
}

fn entry(fd: i32, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| Instant::now() >= at)
}

/// Return the timeout for poll(2), rounded up to whole milliseconds, because 0 would not wait at all.
fn milliseconds(deadline: Option<Instant>) -> i32 {
    let left = |at: Instant| at.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
    deadline.map_or(-1, |at| left(at).min(i32::MAX as u128) as i32)
}

fn is_readable(file: &File) -> bool {
    // SAFETY: one entry of this function.
    unsafe { libc::poll(&mut entry(file.as_raw_fd(), libc::POLLIN), 1, WAKE) > 0 }
}

// ---- this process's side

/// The connection to the guardian. `guardian`: its process id; None once it has ended. `deadline`: the time limit for
/// its messages and its end; None if there is no limit yet.
struct GuardianConnection {
    from: Option<File>,
    to: Option<File>,
    guardian: Option<i32>,
    deadline: Option<Instant>,
}

impl Drop for GuardianConnection {
    fn drop(&mut self) {
        self.close();
    }
}

impl GuardianConnection {
    /// Close the pipes, which makes the guardian stop writing and end, and wait for the guardian's end. Return its
    /// process id if it has not ended in time; else None.
    fn close(&mut self) -> Option<i32> {
        (self.from, self.to) = (None, None);
        let guardian = self.guardian?;
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + END_PATIENCE);
        let mut nap = NAP;
        // The guardian is a child of this process.
        while ptrace::wait(guardian, false) != ThreadEvent::Gone {
            if is_past(Some(deadline)) {
                return Some(guardian);
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(MAX_NAP);
        }
        self.guardian = None;
        None
    }

    /// Read `count` words from the guardian. The watcher may cancel the wait.
    fn words(&mut self, watcher: &dyn Watcher, count: usize) -> Result<Vec<u64>> {
        let mut bytes = vec![0u8; 8 * count];
        let mut done = 0;
        let Some(from) = self.from.as_mut() else { return Err(Error::Failed("the guardian of the copy was killed")) };
        while done < bytes.len() {
            if !is_readable(from) {
                watcher.check()?;
                if is_past(self.deadline) {
                    return Err(Error::Failed("the copy does not end in time"));
                }
                continue;
            }
            match from.read(&mut bytes[done..]) {
                Ok(0) => return Err(Error::Failed("the guardian of the copy was killed")),
                Ok(got) => done += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => watcher.check()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok((0..count).map(|index| u64_at(&bytes, 8 * index)).collect())
    }
}

fn start_guardian(process: &ProcessFolder, limit: Option<Duration>) -> Result<GuardianConnection, io::Error> {
    let (their_from, our_to) = pipe()?;
    let (our_from, their_to) = pipe()?;
    let held = SignalsHeld::hold();
    // SAFETY: the child calls nothing of the program that gdbheap runs in; glibc makes malloc usable in it.
    let guardian = unsafe { libc::fork() };
    if guardian == 0 {
        close_others(vec![their_from.as_raw_fd(), their_to.as_raw_fd(), process.descriptor()]);
        guard(process, limit, their_from.into(), their_to.into());
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(0) };
    }
    drop(held);
    if guardian < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(GuardianConnection {
        from: Some(our_from.into()),
        to: Some(our_to.into()),
        guardian: Some(guardian),
        deadline: None,
    })
}

/// A copy of a process, and the guardian that holds the copy. The copy never runs.
pub struct ProcessCopy {
    line: Mutex<Option<GuardianConnection>>,
    copy: ProcessFolder,
    mended: u64,
    rows: Vec<Vec<u64>>,
    state: Mutex<CopyState>,
}

/// The state that changes during the life of a copy.
///
/// - `held`: for how long the target was stopped; None until it is released.
/// - `expired`: whether the target was released because the time limit was reached.
/// - `killed`: whether the copy was already gone when `end` was called; None before that call.
/// - `left`: the process id of the guardian, if gdbheap has stopped waiting for it.
#[derive(Clone, Copy, Default)]
struct CopyState {
    held: Option<Duration>,
    expired: bool,
    killed: Option<bool>,
    left: Option<i32>,
}

fn refusal(code: u64) -> Error {
    let Some(reason) = code.checked_sub(REASON) else { return io::Error::from_raw_os_error(code as i32).into() };
    let words = REASONS[(reason as usize).min(REASONS.len() - 1)];
    match code {
        TOO_SLOW => Error::Timeout(words.into()),
        _ => Error::Failed(words),
    }
}

impl ProcessCopy {
    /// Stop a process and copy it. The process stays stopped until `let_go`, for at most `limit`. After an error the
    /// process runs as before.
    pub fn new(watcher: &dyn Watcher, process: &ProcessFolder, limit: Option<Duration>) -> Result<ProcessCopy> {
        if !system_call::IS_SUPPORTED {
            return Err(Error::Failed("no copy of a process can be made on this machine"));
        }
        let mut line = start_guardian(process, limit)?;
        let code = line.words(watcher, 1)?[0];
        if code != OK {
            return Err(refusal(code));
        }
        let [copy, mended, count] = line.words(watcher, 3)?[..] else { unreachable!("three words were asked for") };
        // The guardian holds the copy, so the copy's id cannot be reused.
        let copy = ProcessFolder::open(copy as i32)?;
        let words = line.words(watcher, WORDS * count.min(MAX_THREADS) as usize)?;
        let rows = words.chunks(WORDS).map(<[u64]>::to_vec).collect();
        let (line, state) = (Mutex::new(Some(line)), Mutex::new(CopyState::default()));
        Ok(ProcessCopy { line, copy, mended, rows, state })
    }

    /// Return the process id of the copy.
    pub fn pid(&self) -> i32 {
        self.copy.pid()
    }

    /// Return the descriptor of the copy's folder in /proc. It is open as long as this value lives.
    pub fn descriptor(&self) -> i32 {
        self.copy.descriptor()
    }

    /// Return how many system calls were interrupted by the stop and restarted.
    pub fn mended(&self) -> u64 {
        self.mended
    }

    /// Return the threads of the target, in ascending order of their ids.
    pub fn threads(&self) -> impl Iterator<Item = StoppedThread> + '_ {
        self.rows.iter().map(|row| StoppedThread {
            tid: row[0] as i32,
            thread_pointer: row[2],
            stack_pointer: row[3],
            program_counter: row[4],
            general: row[5..].to_vec(),
        })
    }

    /// Return the threads that were not stopped, because they are in uninterruptible sleep.
    pub fn unstopped(&self) -> impl Iterator<Item = i32> + '_ {
        self.rows.iter().filter(|row| row[1] == 0).map(|row| row[0] as i32)
    }

    /// Return for how long the target was stopped; None while it still is.
    pub fn held(&self) -> Option<Duration> {
        self.state().held
    }

    /// Return whether the target was released because the time limit was reached, before `let_go`.
    pub fn expired(&self) -> bool {
        self.state().expired
    }

    /// Return 1 if the copy was killed, else 0. No read of a copy comes too late, because the copy never runs.
    pub fn missed(&self) -> u64 {
        let killed = self.state().killed;
        u64::from(killed.unwrap_or_else(|| self.is_gone()))
    }

    /// Let the target continue. The copy remains readable until `end`.
    pub fn let_go(&self, watcher: &dyn Watcher) -> Result<()> {
        let mut guard = self.line();
        let Some(line) = guard.as_mut() else { return Ok(()) };
        if let Some(to) = line.to.as_mut() {
            let _ = to.write_all(&[LET_GO]);
        }
        let words = line.words(watcher, 2)?;
        let mut state = self.state();
        (state.held, state.expired) = (Some(Duration::from_nanos(words[0])), words[1] != 0);
        Ok(())
    }

    /// End the copy and make the target collect it. Return whether both succeeded within END_PATIENCE. Afterwards
    /// `held` includes the stop for collecting the copy. A second call returns true.
    pub fn end(&self, watcher: &dyn Watcher) -> bool {
        let Some(mut line) = self.line().take() else { return true };
        let CopyState { held: first, killed, .. } = *self.state();
        self.state().killed = killed.or(Some(self.is_gone()));
        line.to = None;
        line.deadline = Some(Instant::now() + END_PATIENCE);
        let words = line.words(watcher, if first.is_none() { 4 } else { 2 });
        self.state().left = line.close();
        let Ok(words) = words else { return false };
        self.state().held = first.map(|first| first + Duration::from_nanos(words[words.len() - 1]));
        words[words.len() - 2] == 1
    }

    /// Return the id of the guardian if it still waits for the end of the copy; otherwise None. The target collects the
    /// copy afterwards.
    pub fn left(&self) -> Option<i32> {
        self.state().left
    }

    fn is_gone(&self) -> bool {
        stat::has_ended(&self.copy.path("status"))
    }

    fn line(&self) -> MutexGuard<'_, Option<GuardianConnection>> {
        self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn state(&self) -> MutexGuard<'_, CopyState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
