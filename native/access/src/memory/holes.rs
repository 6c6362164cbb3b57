//! Where a file has no data: reading that costs time, for nothing but zeros.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// A shorter hole is read as the data beside it.
const SMALLEST: u64 = 256 << 10;
/// Holes of one file at most: what lies behind them is read.
const MOST: usize = 1 << 16;
const BLOCK: u64 = 512;

/// The holes [from, to) of a file, ascending; none where the system does not know them.
pub(crate) fn holes_of(file: &File) -> Vec<(u64, u64)> {
    let Ok(status) = file.metadata() else { return Vec::new() };
    let (mut found, mut at) = (Vec::new(), 0);
    if !status.is_file() || status.blocks().saturating_mul(BLOCK).saturating_add(SMALLEST) > status.size() {
        return found;
    }
    for _ in 0..MOST {
        let Some(from) = seek(file, at, libc::SEEK_HOLE).ok().filter(|from| *from < status.size()) else { break };
        at = match seek(file, from, libc::SEEK_DATA) {
            Ok(next) => next,
            // No data behind it: the hole ends with the file.
            Err(libc::ENXIO) => status.size(),
            Err(_) => break,
        };
        found.extend(Some((from, at)).filter(|_| at.saturating_sub(from) >= SMALLEST));
    }
    found
}

/// The first hole or data at or behind an offset, or the number of the error.
fn seek(file: &File, from: u64, what: libc::c_int) -> Result<u64, i32> {
    let from = libc::off_t::try_from(from).map_err(|_| libc::EOVERFLOW)?;
    // SAFETY: this moves the position of a descriptor that is read by offsets alone.
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
        let found = holes_of(&file);
        // A file system that knows no holes has none.
        let is_data = |(from, to): &(u64, u64)| [0, 8 * mib].iter().any(|at| (from..to).contains(&at));
        assert!(found.is_empty() || found.len() == 2 && found[1].1 == 1 << 40 && !found.iter().any(is_data));
        assert!(holes_of(&File::open("/proc/self/maps").expect("our own")).is_empty());
    }
}
