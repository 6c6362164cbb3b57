//! Files of a process that the kernel reads under the lock of its memory map, and its memory while it runs. A thread of the
//! process may hold that lock for ever, and whoever reads waits so long, deaf to signals: so a thread of ours reads, and is
//! left alone where it waits.
#![forbid(unsafe_code)]

use crate::bytes::read_file;
use crate::signals::SignalsHeld;
use crate::stat::{fields, STATE, SYSTEM_TIME, UNINTERRUPTIBLE, USER_TIME};
use crate::tables::{is_table, read_table};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Error, Read, Result};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A reader waits in vain if it waited in the kernel, without a moment of work, at so many looks in a row. Once several
/// do, one process more is not worth a second.
const PATIENT: (Duration, u32) = (Duration::from_millis(250), 4);
const HASTY: (Duration, u32) = (Duration::from_millis(20), 2);
const SEVERAL: usize = 4;

enum Request {
    File(PathBuf, u64),
    /// A file's bytes from an address on, at most so many.
    Bytes(Arc<File>, u64, usize),
}

impl Request {
    fn answer(self) -> Result<Vec<u8>> {
        match self {
            Request::File(path, limit) => read(&path, limit),
            Request::Bytes(file, address, size) => {
                let mut bytes = vec![0; size];
                let got = read_file(&file, address, &mut bytes);
                bytes.truncate(got);
                Ok(bytes)
            }
        }
    }
}

/// A thread of ours that reads, one request after the other.
struct Reader {
    /// The process that has the thread: it is not in a child of ours.
    process: u32,
    /// What /proc says of it.
    stat: String,
    requests: Sender<Request>,
    answers: Receiver<Result<Vec<u8>>>,
}

/// A file of a process, whatever path led there.
type Key = (u64, u64, OsString);

static IDLE: Mutex<Vec<Reader>> = Mutex::new(Vec::new());
static WAITING: Mutex<Option<HashMap<Key, Reader>>> = Mutex::new(None);

impl Reader {
    fn start() -> Result<Reader> {
        let (requests, asked) = channel::<Request>();
        let (given, answers) = channel();
        let (place, places) = channel();
        // A signal to stop (Ctrl-Z) that this thread has held back is not for others to take.
        let _held = SignalsHeld::new();
        std::thread::Builder::new().name("gdbheap reads".into()).spawn(move || {
            let _ = place.send(std::fs::read_link("/proc/thread-self"));
            while let Ok(request) = asked.recv() {
                if given.send(request.answer()).is_err() {
                    return;
                }
            }
        })?;
        let place = places.recv().map_err(|_| ended())??;
        Ok(Reader { process: std::process::id(), stat: format!("/proc/{}/stat", place.display()), requests, answers })
    }

    /// How much it had worked when it was seen to wait in the kernel; None where it does not.
    fn worked(&self) -> Option<[String; 2]> {
        let [state, user, system] = fields(&self.stat, [STATE, USER_TIME, SYSTEM_TIME])?;
        (state == UNINTERRUPTIBLE).then_some([user, system])
    }

    /// The answer; None where it waits in vain.
    fn answer(&self, (look, looks): (Duration, u32)) -> Option<Result<Vec<u8>>> {
        let (mut last, mut same) = (None, 0);
        loop {
            match self.answers.recv_timeout(look) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Disconnected) => return Some(Err(ended())),
                Err(RecvTimeoutError::Timeout) => {
                    let now = self.worked();
                    same = if now.is_some() && (now == last || last.is_none()) { same + 1 } else { 0 };
                    if same >= looks {
                        return None;
                    }
                    last = now;
                }
            }
        }
    }
}

/// The first `limit` bytes of a file, however long that takes.
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

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key_of(path: &Path) -> Result<Key> {
    let folder = path.parent().unwrap_or(path).metadata()?;
    Ok((folder.dev(), folder.ino(), path.file_name().unwrap_or_default().to_owned()))
}

/// A reader that is free: the one that waited for the same file, if it has what it waited for. None where it still waits.
fn reader_for(key: &Key) -> Result<Option<Reader>> {
    let mut waiting = held(&WAITING);
    let waiting = waiting.get_or_insert_with(HashMap::new);
    if let Some(reader) = waiting.remove(key).filter(|reader| reader.process == std::process::id()) {
        if matches!(reader.answers.try_recv(), Err(TryRecvError::Empty)) {
            waiting.insert(key.clone(), reader);
            return Ok(None);
        }
        return Ok(Some(reader));
    }
    let idle = held(&IDLE).pop().filter(|reader| reader.process == std::process::id());
    idle.map_or_else(Reader::start, Ok).map(Some)
}

/// The answer to a request for what `key` names. ETIMEDOUT where the kernel waits for the lock of the memory map, at once
/// where it did so before and still does.
fn ask(key: &Key, request: Request) -> Result<Vec<u8>> {
    let late = || Error::from_raw_os_error(libc::ETIMEDOUT);
    let reader = reader_for(key)?.ok_or_else(late)?;
    reader.requests.send(request).map_err(|_| ended())?;
    let is_late = held(&WAITING).as_ref().is_some_and(|waiting| waiting.len() >= SEVERAL);
    match reader.answer(if is_late { HASTY } else { PATIENT }) {
        Some(answer) => {
            held(&IDLE).push(reader);
            answer
        }
        None => {
            held(&WAITING).get_or_insert_with(HashMap::new).insert(key.clone(), reader);
            Err(late())
        }
    }
}

/// The first `limit` bytes of a file in the folder of a process. ETIMEDOUT where the kernel waits for the lock of its
/// memory map.
pub fn read_patiently(path: &Path, limit: u64) -> Result<Vec<u8>> {
    ask(&key_of(path)?, Request::File(path.to_owned(), limit))
}

/// The memory of a process that runs (`/proc/PID/mem`).
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

    /// Fills a prefix of `buffer`; none of it where the kernel waits for the lock of the memory map.
    pub(crate) fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Ok(bytes) = ask(&self.key, Request::Bytes(Arc::clone(&self.file), address, buffer.len())) else { return 0 };
        buffer[..bytes.len()].copy_from_slice(&bytes);
        bytes.len()
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
}
