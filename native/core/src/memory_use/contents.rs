//! Read all bytes of address ranges in windows, on all cores. This serves to measure the best possible speed, and to
//! find pages of zeros.

use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};

const JOB: u64 = 8 << 20;
/// The number of bytes that are read at once by default.
pub const WINDOW: u64 = 256 << 10;

/// Call `look` with the bytes of each readable window of the ranges. Return the sum of all results.
fn sum_of(
    watcher: &dyn Watcher,
    space: &Space,
    ranges: &[(u64, u64)],
    window: u64,
    look: impl Fn(&[u8]) -> u64 + Sync,
) -> Result<u64> {
    let pieces = |(start, end): &(u64, u64)| {
        let (start, end) = (*start, *end);
        (start..end).step_by(JOB as usize).map(move |from| (from, (from + JOB).min(end)))
    };
    let jobs: Vec<(u64, u64)> = ranges.iter().flat_map(pieces).collect();
    let work = |state: &mut (Vec<u8>, u64), job: &(u64, u64), control: &Control| {
        for from in (job.0..job.1).step_by(window as usize) {
            let size = (job.1 - from).min(window) as usize;
            if state.0.len() < size {
                state.0.resize(size, 0);
            }
            let got = space.fill(from, &mut state.0[..size]);
            state.1 += look(&state.0[..got]);
            control.advance(size as u64)?;
        }
        Ok(())
    };
    let states = space.task(watcher, None).run(&jobs, || (Vec::new(), 0), work)?;
    Ok(states.iter().map(|state| state.1).sum())
}

/// Read every byte of the ranges once, on all cores, in windows of `window` bytes. Return the number of bytes read. The
/// time that this takes is the shortest possible time of a walk.
pub fn read_once(watcher: &dyn Watcher, space: &Space, ranges: &[(u64, u64)], window: u64) -> Result<u64> {
    sum_of(watcher, space, ranges, window.max(space.machine.page.bytes()), |bytes| bytes.len() as u64)
}

/// Return the total size in bytes of the pages that contain only zeros. The ranges must consist of whole pages.
pub fn zero_pages(watcher: &dyn Watcher, space: &Space, ranges: &[(u64, u64)]) -> Result<u64> {
    let is_zero = |page: &&[u8]| page.iter().fold(0, |sum, byte| sum | byte) == 0;
    let page = space.machine.page.bytes();
    sum_of(watcher, space, ranges, WINDOW.max(page), |bytes| {
        bytes.chunks_exact(page as usize).filter(is_zero).count() as u64 * page
    })
}
