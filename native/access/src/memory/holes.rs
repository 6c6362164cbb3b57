//! Finds the holes of files. Reading a hole takes time and returns only zeros.

use crate::child::apart::{ask, LONGEST};
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// The smallest size, in bytes, of a hole that is skipped. A smaller hole is read like the data around it.
const SMALLEST: u64 = 256 << 10;
/// The largest number of holes of one file. The part of the file after these holes is read completely.
const MOST: usize = 1 << 16;
const BLOCK: u64 = 512;

/// Return the holes [from, to) of each file, ascending; no holes if the file system does not report them. The kernel
/// finds holes under the lock of the file, which any process that may read the file can hold. So a child process asks
/// the kernel; if the kernel blocks the child, no file has known holes. `hasty`: give up early.
pub(crate) fn holes_of(files: &[File], hasty: bool) -> Vec<Vec<(u64, u64)>> {
    let sparse: Vec<(usize, u64)> =
        files.iter().enumerate().filter_map(|(index, file)| Some((index, sparse_size(file)?))).collect();
    let mut found = vec![Vec::new(); files.len()];
    if sparse.is_empty() {
        return found;
    }
    let kept: Vec<RawFd> = sparse.iter().map(|(index, _)| files[*index].as_raw_fd()).collect();
    let (began, of) = (Instant::now(), |(index, size): &(usize, u64)| (*index, find(&files[*index], *size)));
    let all = || sparse.iter().map(of).take_while(|_| began.elapsed() < LONGEST);
    let told = ask(&kept, hasty, || {
        all()
            .flat_map(|(index, holes)| holes.into_iter().flat_map(move |(from, to)| [index as u64, from, to]))
            .collect()
    });
    for row in told.unwrap_or_default().chunks_exact(3) {
        found[row[0] as usize].push((row[1], row[2]));
    }
    found
}

/// Return at most `most` parts [from, to) of a file that are not holes. A child process asks the kernel, as in
/// `holes_of`. ETIMEDOUT if the kernel blocks the child.
pub fn data_of(file: &File, most: usize) -> Result<Vec<(u64, u64)>, Error> {
    let size = file.metadata()?.size();
    let told = ask(&[file.as_raw_fd()], false, || {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < size && found.len() < 2 * most {
            match seek(file, at, libc::SEEK_DATA).and_then(|from| Ok((from, seek(file, from, libc::SEEK_HOLE)?))) {
                Ok((from, to)) => found.extend([from, to]),
                // There is no data at or after `at`.
                Err(libc::ENXIO) => break,
                Err(_) => return Vec::new(),
            }
            at = found[found.len() - 1];
        }
        found
    });
    Ok(told?.chunks_exact(2).map(|part| (part[0], part[1])).collect())
}

/// Return the size of a file that has fewer blocks than its size needs; None for other files.
fn sparse_size(file: &File) -> Option<u64> {
    let status = file.metadata().ok()?;
    let stored = status.blocks().saturating_mul(BLOCK).saturating_add(SMALLEST);
    (status.is_file() && stored <= status.size()).then(|| status.size())
}

fn find(file: &File, size: u64) -> Vec<(u64, u64)> {
    let (mut found, mut at) = (Vec::new(), 0);
    for _ in 0..MOST {
        let Some(from) = seek(file, at, libc::SEEK_HOLE).ok().filter(|from| *from < size) else { break };
        at = match seek(file, from, libc::SEEK_DATA) {
            Ok(next) => next,
            // There is no data after `from`: the hole ends with the file.
            Err(libc::ENXIO) => size,
            Err(_) => break,
        };
        found.extend(Some((from, at)).filter(|_| at.saturating_sub(from) >= SMALLEST));
    }
    found
}

/// Return the offset, in bytes, of the first hole or the first data at or after `from`. On failure, return the errno.
/// `what`: SEEK_HOLE or SEEK_DATA.
fn seek(file: &File, from: u64, what: libc::c_int) -> Result<u64, i32> {
    let from = libc::off_t::try_from(from).map_err(|_| libc::EOVERFLOW)?;
    // SAFETY: the call only moves the position of a descriptor that is always read at explicit offsets.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from, what) };
    u64::try_from(found).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_where_nothing_was_written() {
        let path = std::env::temp_dir().join(format!("gdbheap-holes-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a new file");
        std::fs::remove_file(&path).expect("the file");
        let (mib, piece) = (1 << 20, [1; 4096]);
        assert!(file.write_at(&piece, 0).is_ok() && file.write_at(&piece, 8 * mib).is_ok());
        assert!(file.set_len(1 << 40).is_ok());
        let found = holes_of(&[file], false).remove(0);
        // A file system without holes reports none.
        let is_data = |(from, to): &(u64, u64)| [0, 8 * mib].iter().any(|at| (from..to).contains(&at));
        assert!(found.is_empty() || found.len() == 2 && found[1].1 == 1 << 40 && !found.iter().any(is_data));
        assert!(holes_of(&[File::open("/proc/self/maps").expect("our own")], true)[0].is_empty());
    }
}
