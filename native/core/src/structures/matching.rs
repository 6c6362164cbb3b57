//! Find blocks by the words at their beginning.

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::{Job, Visitor, Walk};
use crate::by_address::Addresses;
use gdbheap_access::bytes::word_at;
use gdbheap_access::error::Result;
use gdbheap_access::work::{Control, Watcher};

/// A block that contains one of the requested words: (its address, its size including the header, the offset of the
/// word in it).
pub type WordMatch = (u64, u64, u64);

/// The largest number of blocks that are found. The limit is needed because a target can put one of the words into each
/// of its blocks.
const MAX_MATCHED: usize = 1 << 19;

struct WordFinder<'a> {
    words: &'a Addresses,
    found: Vec<WordMatch>,
}

impl Visitor for WordFinder<'_> {
    const ALL: bool = true;
    const HEAD: usize = 64;

    fn block(&mut self, Block { address, size, .. }: Block, head: &[u8]) -> bool {
        let is_one = |offset: &usize| word_at(head, *offset).is_some_and(|word| self.words.contains(&word));
        if let Some(offset) = (0..Self::HEAD).step_by(8).find(is_one) {
            self.found.push((address, size, offset as u64));
            if self.found.len() >= 2 * MAX_MATCHED {
                keep_first(&mut self.found);
            }
        }
        false
    }
}

/// Remove all but the first MAX_MATCHED blocks in address order.
fn keep_first(found: &mut Vec<WordMatch>) {
    if found.len() > MAX_MATCHED {
        found.select_nth_unstable(MAX_MATCHED);
        found.truncate(MAX_MATCHED);
    }
}

/// Find the used blocks that have one of `words` among their first eight words. A block with several of these words is
/// found once, with the offset of the first one. At most MAX_MATCHED blocks are found, those with the lowest addresses.
pub fn blocks_with(watcher: &dyn Watcher, heaps: Heaps<'_>, words: &[u64]) -> Result<Vec<WordMatch>> {
    let words: Addresses = words.iter().copied().collect();
    let jobs = heaps.jobs_of(|store| !store.is_told_by_walk());
    let init = || (Walk::new(heaps), WordFinder { words: &words, found: Vec::new() });
    let work = |(walk, matching): &mut (Walk<'_>, WordFinder<'_>), job: &Job, control: &Control| {
        walk.run(job, control, matching)
    };
    let states = heaps.space.task(watcher, Some(jobs.total)).run(&jobs.jobs, init, work)?;
    let mut found: Vec<WordMatch> = states.into_iter().flat_map(|(_, matching)| matching.found).collect();
    keep_first(&mut found);
    found.sort_unstable();
    Ok(found)
}
