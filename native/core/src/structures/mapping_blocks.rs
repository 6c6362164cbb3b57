//! Find blocks that record a mapping. The block contains the address of the mapping and, near this address, the size of
//! the mapping.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::{Job, Visitor, Walk};
use gdbheap_access::bytes::{range_at, u64_at};
use gdbheap_access::error::Result;
use gdbheap_access::work::{Control, Watcher};

/// The number of words before the address of a mapping that may be its size.
const BEFORE: usize = 4;
/// The number of words after the address of a mapping that may be its size.
const BEHIND: usize = 8;
const MOST: usize = 1 << 16;

/// The address of a block, the address of a word in it, the word itself (the address of a mapping), and the largest
/// fitting size near the word.
pub type MappedBy = (u64, u64, u64, u64);

struct MappedFinder<'a> {
    ranges: &'a [(u64, u64)],
    page: u64,
    found: Vec<MappedBy>,
}

impl MappedFinder<'_> {
    /// Return the end of the range that contains `pointer`; None if no page begins at `pointer`, or if no range
    /// contains it.
    #[inline(always)]
    fn end_from(&self, pointer: u64) -> Option<u64> {
        let is_page = pointer != 0 && pointer % self.page == 0;
        let place = is_page.then(|| range_at(self.ranges, pointer)).flatten()?;
        Some(self.ranges[place].1)
    }
}

impl Visitor for MappedFinder<'_> {
    const ALL: bool = true;
    const HEAD: usize = 4 << 10;

    fn block(&mut self, Block { address, .. }: Block, head: &[u8]) -> bool {
        for (place, word) in head.chunks_exact(8).enumerate() {
            let pointer = u64_at(word, 0);
            let Some(end) = self.end_from(pointer) else { continue };
            let near = head.chunks_exact(8).enumerate().skip(place.saturating_sub(BEFORE)).take(BEFORE + BEHIND + 1);
            let sizes = near.filter(|(other, _)| *other != place).map(|(_, word)| u64_at(word, 0));
            let size = sizes.filter(|size| *size > 0 && *size <= end - pointer).max();
            if let Some(size) = size.filter(|_| self.found.len() < MOST) {
                self.found.push((address, address + 8 * place as u64, pointer, size));
            }
        }
        false
    }
}

/// Find the used blocks that contain the address of a page in `ranges` (ascending), with a size near this address. The
/// size must not exceed the rest of the range.
pub fn find_mapped(watcher: &dyn Watcher, heaps: Heaps<'_>, ranges: &[(u64, u64)], page: u64) -> Result<Vec<MappedBy>> {
    let jobs = heaps.jobs();
    let init = || (Walk::new(heaps), MappedFinder { ranges, page: page.max(1), found: Vec::new() });
    let work = |(walk, finding): &mut (Walk<'_>, MappedFinder<'_>), job: &Job, control: &Control| {
        walk.run(job, control, finding)
    };
    let states = heaps.space.task(watcher, Some(jobs.total)).run(&jobs.jobs, init, work)?;
    let mut found: Vec<MappedBy> = states.into_iter().flat_map(|(_, finding)| finding.found).collect();
    found.sort_unstable();
    Ok(found)
}
