//! The kernel's figures for the memory of many processes, read on all cores. Most of the time is spent in the kernel,
//! which visits all pages of each process (proc_pid_smaps(5)).
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::patient::{read, read_link_patiently, read_patiently};
use crate::process::living::living_thread;
use crate::stat::said_in;
use crate::work::{Task, Watcher};
use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest number of bytes that are read from one file. The longest file is `smaps` of a process with many
/// mappings.
const LONGEST: u64 = 64 << 20;
const LONGEST_COMMAND: u64 = 64 << 10;
const KIB: u64 = 1024;

/// A process, and its memory in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    pub pid: i32,
    pub parent: i32,
    /// The name as in `status`: at most 15 bytes, with control characters escaped.
    pub name: Vec<u8>,
    /// The path of the program; empty if the kernel does not show it.
    pub exe: Vec<u8>,
    /// The arguments of the program, each ended by a NUL.
    pub command: Vec<u8>,
    /// The memory; None if it could not be read, and `error` is then the errno.
    pub memory: Option<Memory>,
    pub error: i32,
}

/// The memory of a process, in bytes: the sums over `smaps_rollup` (Linux 4.14), or over `smaps`.
///
/// - `proportional`: how many lines `Pss` were added up in `pss`. The kernel rounds each line down to whole KiB.
/// - `swap_share`: the sum of `SwapPss`; None before Linux 4.3.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    pub rss: u64,
    pub pss: u64,
    pub proportional: u64,
    pub private: u64,
    pub shared: u64,
    pub private_huge: u64,
    pub shared_huge: u64,
    pub anonymous: u64,
    pub lazy: u64,
    pub swap: u64,
    pub swap_share: Option<u64>,
    /// A hash of some of these sums. Processes that share one address space have equal sums. Other lines of the text
    /// are left out, because they may change between two readings: the kernel clears `Referenced` at any moment.
    pub fingerprint: u64,
}

impl Memory {
    fn of(text: &[u8]) -> Memory {
        let mut found = Memory::default();
        text.split(|byte| *byte == b'\n').for_each(|line| found.add(line));
        let mut hasher = DefaultHasher::new();
        (found.rss, found.pss, found.private, found.shared, found.anonymous, found.swap).hash(&mut hasher);
        found.fingerprint = hasher.finish();
        found
    }

    fn add(&mut self, line: &[u8]) {
        let Some((name, bytes)) = size_of(line) else { return };
        let place = match name {
            b"Rss" => &mut self.rss,
            b"Pss" => {
                self.proportional += 1;
                &mut self.pss
            }
            b"Private_Hugetlb" => &mut self.private_huge,
            b"Shared_Hugetlb" => &mut self.shared_huge,
            b"Anonymous" => &mut self.anonymous,
            b"LazyFree" => &mut self.lazy,
            b"Swap" => &mut self.swap,
            b"SwapPss" => self.swap_share.get_or_insert(0),
            name if name.starts_with(b"Private_") => &mut self.private,
            name if name.starts_with(b"Shared_") => &mut self.shared,
            _ => return,
        };
        *place = place.saturating_add(bytes);
    }
}

/// Parse a line such as `Name:  1234 kB`. Return the name, and the size in bytes; None for other lines.
fn size_of(line: &[u8]) -> Option<(&[u8], u64)> {
    let (name, rest) = line.split_at(line.iter().position(|byte| *byte == b':')?);
    let number = std::str::from_utf8(rest[1..].strip_suffix(b" kB")?).ok()?;
    Some((name, number.trim().parse::<u64>().ok()?.checked_mul(KIB)?))
}

/// Return the folder of /proc that shows a process's memory: the folder of the process, or that of a living thread if
/// the first thread has ended. None if the process has no memory.
fn shown(folder: PathBuf, status: &[u8]) -> Option<PathBuf> {
    if said_in(status, "VmRSS").is_some() {
        return Some(folder);
    }
    said_in(status, "State").filter(|state| state.starts_with(b"Z"))?;
    living_thread(&folder).map(|(_, task)| task)
}

/// Return the account of one process. The whole account belongs to this process, even if the id is reused meanwhile.
/// None if there is no such process, or if the process has no memory (a kernel thread, a zombie).
fn account(root: &Path, pid: i32) -> Option<Account> {
    let folder = |held: &File| PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let opened = File::open(root.join(pid.to_string()));
    let begun = opened.and_then(|held| Ok((read(&folder(&held).join("status"), LONGEST_COMMAND)?, held)));
    let (status, held) = match begun {
        Ok(begun) => begun,
        // These errors do not mean that the process is gone.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
            return Some(Account { pid, error: error.raw_os_error().unwrap_or(libc::EIO), ..Account::default() });
        }
        Err(_) => return None,
    };
    let folder = shown(folder(&held), &status)?;
    let parent = said_in(&status, "PPid").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
    let name = status.strip_prefix(b"Name:\t").and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    let mut found = Account { pid, parent, name: name.unwrap_or_default().to_vec(), ..Account::default() };
    let sums = read_patiently(&folder.join("smaps_rollup"), LONGEST).or_else(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => read_patiently(&folder.join("smaps"), LONGEST),
        _ => Err(error),
    });
    if !matches!(&sums, Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT)) {
        found.command = read_patiently(&folder.join("cmdline"), LONGEST_COMMAND).unwrap_or_default();
    }
    match (read_link_patiently(&folder.join("exe")), sums) {
        (Ok(exe), Ok(sums)) => {
            found.exe = exe.as_os_str().as_bytes().to_vec();
            found.memory = Some(Memory::of(&sums));
        }
        (Err(error), _) | (_, Err(error)) => found.error = error.raw_os_error().unwrap_or(libc::EIO),
    }
    // A process that ended meanwhile is left out.
    (!matches!(found.error, libc::ENOENT | libc::ESRCH)).then_some(found)
}

/// Return the accounts of processes, in ascending order of their ids, without those that are gone or have no memory.
/// `root`: where proc is mounted.
pub fn accounts(watcher: &dyn Watcher, root: &str, pids: &[i32]) -> Result<Vec<Account>> {
    let root = Path::new(root);
    let task = Task { watcher, total: None, inline: false };
    let found = task.run(pids, Vec::new, |rows: &mut Vec<Account>, pid, control| {
        rows.extend(account(root, *pid));
        control.advance(1)
    })?;
    let mut rows: Vec<Account> = found.into_iter().flatten().collect();
    rows.sort_unstable_by_key(|row| row.pid);
    Ok(rows)
}

/// Return the ids of all processes in the folder `root`, ascending. `root`: where proc is mounted.
pub fn every_process(root: &str) -> io::Result<Vec<i32>> {
    let names = std::fs::read_dir(root)?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<i32> = names.filter(|pid| *pid > 0).collect();
    pids.sort_unstable();
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_several_mappings() {
        let text = b"Rss: 8 kB\nPss: 3 kB\nPrivate_Dirty: 4 kB\nPrivate_Clean: 1 kB\nPrivate_Hugetlb: 2048 kB\n\
            Shared_Dirty: 2 kB\nPss: 2 kB\nRss: 4 kB\nSwap: 7 kB\nLazyFree: 6 kB\nName: x\nPss_Anon: 9 kB\n";
        let found = Memory::of(text);
        assert_eq!((found.rss, found.pss, found.proportional), (12 << 10, 5 << 10, 2));
        assert_eq!((found.private, found.shared, found.private_huge), (5 << 10, 2 << 10, 2 << 20));
        assert_eq!((found.swap, found.swap_share, found.lazy), (7 << 10, None, 6 << 10));
    }

    #[test]
    fn fingerprints_of_sums() {
        let of = |text: &str| Memory::of(text.as_bytes()).fingerprint;
        let known = "Rss: 8 kB\nPss: 3 kB\nPrivate_Dirty: 4 kB\n";
        assert_eq!(of(&format!("{known}Referenced: 8 kB\n")), of(&format!("{known}Referenced: 4 kB\n")));
        for other in
            ["Rss: 12 kB", "Pss: 1 kB", "Private_Clean: 4 kB", "Shared_Clean: 4 kB", "Swap: 4 kB", "Anonymous: 4 kB"]
        {
            assert_ne!(of(known), of(&format!("{known}{other}\n")), "{other}");
        }
    }

    #[test]
    fn what_is_no_size() {
        for line in ["Rss", "Rss: kB", "Rss: 99999999999999999999 kB", "Rss: 18446744073709551615 kB", "Rss: 1 MB"] {
            assert_eq!(size_of(line.as_bytes()), None, "{line}");
        }
    }
}
