//! Follow chains of buffers, such as the blocks of a deque or the nodes of an OrderedDict. Each block of a chain has a
//! link to the next block, at an offset that the layout of the owner gives. Blocks that no layout describes are
//! assigned by the graph (graph/owning.rs).

use crate::allocators::block::Block;
use crate::allocators::heaps::Heaps;
use crate::python::marks::Marks;
use gdbheap_access::error::Cancellation;
use gdbheap_access::work::{Steps, Watcher};

/// A link from an object, or from one of its buffers, to another block of the object. `at`: the address of the word
/// that is the link.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) at: u64,
    /// The number of the type of the object that owns the block.
    pub(crate) owner: u32,
    /// The address of the object that owns the block.
    pub(crate) holder: u64,
    /// The offset, in each block of the chain, of the link to the next block. If it is negative, the chain ends with
    /// the first block.
    pub(crate) follow: i32,
    /// The role of the blocks of the chain for their owner.
    pub(crate) role: u8,
    /// The address of the last block of the chain; 0 if it is unknown.
    pub(crate) last: u64,
}

/// A block that was reached, with the link that points to it.
#[derive(Clone, Copy)]
pub(crate) struct ReachedBlock {
    pub(crate) block: Block,
    pub(crate) link: Link,
}

/// Return the blocks of all chains. Each block belongs to the first chain that reaches it.
pub(crate) fn follow_links(
    watcher: &dyn Watcher,
    heaps: &Heaps<'_>,
    marks: &Marks<'_>,
    links: &[Link],
) -> Result<Vec<ReachedBlock>, Cancellation> {
    let (mut found, mut steps) = (Vec::new(), Steps::new(watcher, 0));
    for link in links {
        let mut next = Some(*link);
        while let Some(link) = next {
            steps.look()?;
            next = step(heaps, marks, link, &mut found);
        }
    }
    Ok(found)
}

/// Claim the block to which a link points. Return the link in this block if the chain goes on.
fn step(heaps: &Heaps<'_>, marks: &Marks<'_>, link: Link, found: &mut Vec<ReachedBlock>) -> Option<Link> {
    let pointer = heaps.space.word(link.at).ok()?;
    // A valid link points to the start of a block. Any other link points nowhere.
    let block = heaps.block_at(pointer).filter(|block| block.address == pointer && marks.is_unknown(block.place))?;
    if !marks.claim(block.place) {
        return None;
    }
    found.push(ReachedBlock { block, link });
    let offset = u64::try_from(link.follow).ok()?;
    let at = block.address + offset;
    (link.last != block.address && at + 8 <= block.end).then_some(Link { at, ..link })
}

#[cfg(test)]
mod tests {
    use super::{follow_links, Link};
    use crate::allocators::heaps::Heaps;
    use crate::allocators::testing::{linked, START};
    use crate::python::marks::Marks;
    use gdbheap_access::error::Cancellation;
    use gdbheap_access::testing::{CheckLimit, NoWatcher};
    use gdbheap_access::work::Watcher;

    /// Return the number of blocks that `owners` owners reach together, if all of them link to the first block.
    fn reached(watcher: &dyn Watcher, blocks: u64, owners: u32) -> Result<usize, Cancellation> {
        let (space, stores) = linked(64, 0, blocks, 1);
        let heaps = Heaps { space: &space, stores: &stores };
        let marks = Marks::new(heaps).expect("memory");
        let link = |owner| Link { at: START, owner, holder: START, follow: 0, role: 0, last: 0 };
        let links: Vec<Link> = (0..owners).map(link).collect();
        follow_links(watcher, &heaps, &marks, &links).map(|found| found.len())
    }

    #[test]
    fn a_chain_of_many_owners_is_followed_once() {
        assert_eq!(reached(&NoWatcher, 1000, 1).expect("not cancelled"), 999);
        assert_eq!(reached(&NoWatcher, 1000, 500).expect("not cancelled"), 999);
    }

    #[test]
    fn a_long_chain_listens() {
        assert!(reached(&CheckLimit::after(2), 20_000, 1).is_err());
    }
}
