//! Reads memory and files of a process that is running.
//!
//! The kernel does such a read under the lock of the process's memory map, or under the lock of execve(2). A thread of
//! the process may hold this lock without end; the reader then blocks and does not react to signals. So a separate
//! thread reads, and gdbheap continues without this thread if it blocks. Files whose paths come from other users are
//! opened in the same way.
#![forbid(unsafe_code)]

use crate::bytes::read_file;
use crate::signals::{SignalsHeld, LEFT_BEHIND};
use crate::stat::{fields, MAJOR_FAULTS, SLEEPING, STATE, SYSTEM_TIME, UNINTERRUPTIBLE, USER_TIME};
use crate::tables::{is_table, read_table};
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Error, Read, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// The rule for when a reader counts as stuck: the time between two checks, and the number of checks. A check fails if
/// the reader waits in the kernel and has done no work since the previous check. A reader is stuck if this number of
/// checks fail in a row. PATIENT takes one second in all. Once SEVERAL readers are stuck, HASTY applies instead, to
/// avoid a wait of one second for each further process.
pub(crate) const PATIENT: (Duration, u32) = (Duration::from_millis(250), 4);
pub(crate) const HASTY: (Duration, u32) = (Duration::from_millis(20), 2);
const SEVERAL: usize = 4;
/// Once this many paths of other users are stuck, gdbheap opens no further one.
const MOST_NAMED: usize = 16;
/// The device number of a key that is a path named by another user. No device has this number.
const NAMED: u64 = u64::MAX;

type Work = Box<dyn FnOnce() + Send>;

/// A thread that does work for other threads, one task after the other.
struct Worker {
    /// The id of the process that has the thread. A child that this process forks does not have the thread.
    process: u32,
    /// The path of the thread's `stat` file in /proc.
    stat: String,
    works: Sender<Work>,
    busy: Arc<AtomicBool>,
}

/// The key of a file of a process: the device and the inode of the file's folder, and the file's name. The key is the
/// same whatever path was used.
type Key = (u64, u64, OsString);

thread_local! {
    /// Whether this thread is a worker that reads memory directly, because another thread waits for it.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

static IDLE: Mutex<Vec<Worker>> = Mutex::new(Vec::new());
static WAITING: Mutex<Option<HashMap<Key, Worker>>> = Mutex::new(None);

impl Worker {
    fn start() -> Result<Worker> {
        let (works, given) = channel::<Work>();
        let (place, places) = channel();
        let busy = Arc::new(AtomicBool::new(false));
        let is_busy = busy.clone();
        // This thread must not take a signal such as Ctrl-Z that is meant for others.
        let _held = SignalsHeld::hold();
        std::thread::Builder::new().name(LEFT_BEHIND.into()).spawn(move || {
            let _ = place.send(std::fs::read_link("/proc/thread-self"));
            while let Ok(work) = given.recv() {
                work();
                is_busy.store(false, Ordering::SeqCst);
            }
        })?;
        let place = places.recv().map_err(|_| ended())??;
        Ok(Worker { process: std::process::id(), stat: format!("/proc/{}/stat", place.display()), works, busy })
    }

    /// Return the worker; None if it belongs to another process. Such a worker is not dropped: its channel has a lock,
    /// which its thread may have held when this process was forked.
    fn if_own(self) -> Option<Worker> {
        if self.process == std::process::id() {
            return Some(self);
        }
        std::mem::forget(self);
        None
    }

    /// Return the worker's answer; None if the worker is stuck. `looks`: the time between two checks, and their number.
    fn answer<T>(&self, answers: &Receiver<Result<T>>, looks: (Duration, u32)) -> Option<Result<T>> {
        await_answer(&self.stat, looks, |look| match answers.recv_timeout(look) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Disconnected) => Some(Err(ended())),
            Err(RecvTimeoutError::Timeout) => None,
        })
    }
}

/// Return how much work a thread has done so far, if it is waiting in the kernel; None if it is not waiting.
///
/// Its work is the number of its page faults that read from disk, and its CPU times. A wait that a signal would end
/// counts as a wait, too, because nobody sends a signal. A thread that waits for the server of a FUSE file waits in
/// this way. `stat`: the path of the thread's `stat` file.
fn worked(stat: &str) -> Option<[String; 3]> {
    let [state, faults, user, system] = fields(stat, [STATE, MAJOR_FAULTS, USER_TIME, SYSTEM_TIME])?;
    (state == UNINTERRUPTIBLE || state == SLEEPING).then_some([faults, user, system])
}

/// Return the answer that `hear` returns; None if the thread that should answer is stuck. `hear` waits for the answer
/// for the given time. `stat`: the path of the thread's `stat` file.
pub(crate) fn await_answer<T>(
    stat: &str,
    (look, looks): (Duration, u32),
    mut hear: impl FnMut(Duration) -> Option<T>,
) -> Option<T> {
    let (mut last, mut same) = (None, 0);
    loop {
        if let Some(answer) = hear(look) {
            return Some(answer);
        }
        let now = worked(stat);
        same = if now.is_some() && (now == last || last.is_none()) { same + 1 } else { 0 };
        if same >= looks {
            return None;
        }
        last = now;
    }
}

/// Return the first `limit` bytes of a file, however long the read takes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    if is_table(path) {
        return read_table(path, limit);
    }
    let mut found = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut found)?;
    Ok(found)
}

fn ended() -> Error {
    Error::from_raw_os_error(libc::EIO)
}

/// Lock `lock`, even if a thread has panicked while it held the lock.
pub fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lock `lock`; None if a thread of another process holds it. A child has copies of its parent's locks, and nobody will
/// release a copy that was locked when the child was forked.
pub(crate) fn held_here<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    static FIRST: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id();
    let first = FIRST.compare_exchange(0, own, Ordering::SeqCst, Ordering::SeqCst).map_or_else(|first| first, |_| own);
    if first == own {
        return Some(held(lock));
    }
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn key_of(path: &Path) -> Result<Key> {
    let folder = path.parent().unwrap_or(path).metadata()?;
    Ok((folder.dev(), folder.ino(), path.file_name().unwrap_or_default().to_owned()))
}

/// Return a free worker. If an earlier worker was stuck at the same key, return that worker if it is free now, and None
/// if it is still stuck.
fn worker_for(key: &Key) -> Result<Option<Worker>> {
    let Some(mut waiting) = held_here(&WAITING) else { return Worker::start().map(Some) };
    let waiting = waiting.get_or_insert_with(HashMap::new);
    if let Some(worker) = waiting.remove(key).and_then(Worker::if_own) {
        if worker.busy.load(Ordering::SeqCst) {
            waiting.insert(key.clone(), worker);
            return Ok(None);
        }
        return Ok(Some(worker));
    }
    let idle = held_here(&IDLE).and_then(|mut idle| idle.pop()).and_then(Worker::if_own);
    idle.map_or_else(Worker::start, Ok).map(Some)
}

/// Have another thread do `work`, and return the result. ETIMEDOUT if the work is stuck in the kernel, and at once if
/// earlier work with this `key` is still stuck. `hasty`: give up early, because a process is stopped meanwhile.
fn patiently<T: Send + 'static>(
    key: &Key,
    hasty: bool,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let late = || Error::from_raw_os_error(libc::ETIMEDOUT);
    let worker = worker_for(key)?.ok_or_else(late)?;
    let (give, answers) = channel();
    worker.busy.store(true, Ordering::SeqCst);
    worker.works.send(Box::new(move || _ = give.send(work()))).map_err(|_| ended())?;
    let is_late = hasty
        || held_here(&WAITING).is_some_and(|waiting| waiting.as_ref().is_some_and(|waiting| waiting.len() >= SEVERAL));
    match worker.answer(&answers, if is_late { HASTY } else { PATIENT }) {
        Some(answer) => {
            if let Some(mut idle) = held_here(&IDLE) {
                idle.push(worker);
            }
            answer
        }
        None => {
            if let Some(mut waiting) = held_here(&WAITING) {
                waiting.get_or_insert_with(HashMap::new).insert(key.clone(), worker);
            }
            Err(late())
        }
    }
}

/// Have another thread do `work` with a file in the folder of a process. ETIMEDOUT if the kernel blocks the work.
pub(crate) fn at_path<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T> + Send + 'static,
) -> Result<T> {
    let file = path.to_owned();
    patiently(&key_of(path)?, false, move || work(&file))
}

/// Have another thread do `work` with a file whose path comes from another user. ETIMEDOUT if the kernel blocks the
/// work, or if it already blocks the work on MOST_NAMED such files.
pub(crate) fn at_name<T: Send + 'static>(
    name: OsString,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let waits = |(key, worker): &(&Key, &Worker)| {
        key.0 == NAMED && worker.process == std::process::id() && worker.busy.load(Ordering::SeqCst)
    };
    if held_here(&WAITING).is_some_and(|waiting| waiting.iter().flatten().filter(waits).count() >= MOST_NAMED) {
        return Err(Error::from_raw_os_error(libc::ETIMEDOUT));
    }
    patiently(&(NAMED, 0, name), false, work)
}

/// Return the first `limit` bytes of a file in the folder of a process. ETIMEDOUT if the kernel blocks the read.
pub fn read_patiently(path: &Path, limit: u64) -> Result<Vec<u8>> {
    at_path(path, move |file| read(file, limit))
}

/// Return `size` bytes at `offset` of a file in the folder of a process, or fewer if the file ends before. ETIMEDOUT if
/// the kernel blocks the read.
pub fn read_at_patiently(path: &Path, offset: u64, size: usize) -> Result<Vec<u8>> {
    at_path(path, move |file| Ok(bytes_of(&File::open(file)?, offset, size)))
}

/// Return the target of a symbolic link in the folder of a process. ETIMEDOUT if the kernel blocks the call.
pub fn read_link_patiently(path: &Path) -> Result<PathBuf> {
    at_path(path, |link| std::fs::read_link(link))
}

/// Open a file in the folder of a process for reading, and for writing too if `writable`. ETIMEDOUT if the kernel
/// blocks the call.
pub fn open_patiently(path: &Path, writable: bool) -> Result<File> {
    at_path(path, move |file| File::options().read(true).write(writable).open(file))
}

/// Ask the kernel about a process while another process is stopped. ETIMEDOUT if the kernel blocks the question for
/// more than a moment.
pub(crate) fn ask_hastily<T: Send + 'static>(
    pid: i32,
    question: &str,
    ask: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    patiently(&(0, pid as u64, question.into()), true, ask)
}

fn bytes_of(file: &File, offset: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let got = read_file(file, offset, &mut bytes);
    bytes.truncate(got);
    bytes
}

/// Return whether this thread does work of `RunningMemory::apart`.
pub(crate) fn is_apart() -> bool {
    IS_APART.get()
}

/// The memory of a running process (`/proc/PID/mem`).
pub(crate) struct RunningMemory {
    file: Arc<File>,
    key: Key,
}

impl RunningMemory {
    pub(crate) fn new(file: File) -> Result<RunningMemory> {
        let found = file.metadata()?;
        let key = (found.dev(), found.ino(), OsString::from("mem"));
        Ok(RunningMemory { file: Arc::new(file), key })
    }

    /// Fill a prefix of `buffer` with the bytes at `address`. Return the length of the prefix; 0 if the kernel waits
    /// for the lock of the memory map.
    pub(crate) fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        if is_apart() {
            return read_file(&self.file, address, buffer);
        }
        let (file, size) = (Arc::clone(&self.file), buffer.len());
        let Ok(bytes) = patiently(&self.key, false, move || Ok(bytes_of(&file, address, size))) else { return 0 };
        buffer[..bytes.len()].copy_from_slice(&bytes);
        bytes.len()
    }

    /// Have another thread do `work`, which reads this memory many times. Asking another thread for each read would be
    /// slow: one answer takes several times as long as a small read. ETIMEDOUT if the kernel waits for the lock of the
    /// memory map.
    pub(crate) fn apart<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        patiently(&self.key, false, move || {
            IS_APART.set(true);
            let answer = work();
            IS_APART.set(false);
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_are() {
        let own = std::fs::read("/proc/self/comm").expect("our own name");
        for _ in 0..3 {
            assert_eq!(read_patiently(Path::new("/proc/self/comm"), 100).expect("our own name"), own);
        }
        assert_eq!(read_patiently(Path::new("/proc/self/comm"), 2).expect("our own name"), own[..2]);
        let absent = read_patiently(Path::new("/proc/self/nothing"), 100).expect_err("no such file");
        assert_eq!(absent.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn a_worker_of_another_process_is_left_alone() {
        // Dropping it would disconnect its channel under a lock that no thread of this process may release.
        for process in [std::process::id(), 0] {
            let (works, given) = channel();
            let worker = Worker { process, stat: String::new(), works, busy: Arc::default() };
            let is_own = worker.if_own().is_some();
            assert_eq!(is_own, process != 0);
            let left = given.recv_timeout(Duration::ZERO).err();
            assert_eq!(left, Some(if is_own { RecvTimeoutError::Disconnected } else { RecvTimeoutError::Timeout }));
        }
    }
}
