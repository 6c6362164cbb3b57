//! The data that a program has registered with epoll for the descriptors that it watches (proc_pid_fdinfo(5)).

use crate::child::apart::{ask, LONGEST};
use crate::stat::said;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Result};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Instant;

const KCMP_FILE: libc::c_int = 0;
/// The largest number of bytes that are read for all epolls of a process.
const MOST_BYTES: usize = 64 << 20;

/// Return the data that a process has registered with these epoll descriptors, each value once, and whether all data
/// could be read. A child process reads, because a thread of the process may hold the lock of an epoll. ETIMEDOUT if
/// the kernel blocks the child. `folder`: the process's folder in /proc.
pub fn watched(folder: &Path, numbers: &[i32]) -> Result<(Vec<u64>, bool)> {
    let pid = said(&folder.join("status").to_string_lossy(), "Pid").and_then(|pid| pid.parse().ok()).unwrap_or(0);
    let held = File::open(folder.join("fdinfo"))?;
    let mut found = ask(&[held.as_raw_fd()], false, || {
        let mut watched = EpollReader { found: HashSet::new(), left: MOST_BYTES, began: Instant::now() };
        let is_whole = watched.read_all(pid, Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd())), numbers);
        watched.found.into_iter().chain([u64::from(is_whole)]).collect()
    })?;
    let is_whole = found.pop() == Some(1);
    found.sort_unstable();
    Ok((found, is_whole))
}

struct EpollReader {
    found: HashSet<u64>,
    left: usize,
    began: Instant,
}

impl EpollReader {
    /// Read the data of each open file once, however many descriptors refer to the file. Return whether everything was
    /// read. `folder`: the folder of the descriptors' fdinfo files.
    fn read_all(&mut self, pid: i32, folder: &Path, numbers: &[i32]) -> bool {
        let mut files: Vec<i32> = Vec::new();
        for number in numbers {
            if self.began.elapsed() >= LONGEST {
                return false;
            }
            // kcmp(2) orders open files, in an unspecified order.
            if let Err(place) = files.binary_search_by(|file| order(pid, *file, *number)) {
                files.insert(place, *number);
                if self.read(&folder.join(number.to_string())).is_none() {
                    return false;
                }
            }
        }
        true
    }

    /// Read one fdinfo file. None if the file exists but could not be read to its end.
    fn read(&mut self, path: &Path) -> Option<()> {
        let Ok(file) = File::open(path) else { return Some(()) };
        let (mut lines, mut line) = (BufReader::new(file), Vec::new());
        while self.left > 0 && self.began.elapsed() < LONGEST {
            line.clear();
            let got = lines.read_until(b'\n', &mut line).ok()?;
            if got == 0 {
                return Some(());
            }
            self.left = self.left.saturating_sub(got);
            self.found.extend(data_in(&line));
        }
        None
    }
}

/// Compare the open files of two descriptors by kcmp(2). If kcmp fails, the files count as different.
fn order(pid: i32, one: i32, other: i32) -> std::cmp::Ordering {
    // SAFETY: numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, one, other) } {
        0 => std::cmp::Ordering::Equal,
        2 => std::cmp::Ordering::Greater,
        _ => std::cmp::Ordering::Less,
    }
}

fn data_in(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line.strip_prefix(b"tfd:")?).ok()?;
    let (_, data) = text.split_once(" data:")?;
    u64::from_str_radix(data.split_whitespace().next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = b"tfd:        8 events:       19 data:     7f32aa0010f0  pos:0 ino:50 sdev:e\n";
        assert_eq!(data_in(line), Some(0x7f32_aa00_10f0));
        assert_eq!((data_in(b"pos:\t0\n"), data_in(b"tfd: 8 data: x")), (None, None));
    }
}
