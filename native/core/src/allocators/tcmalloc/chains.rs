//! Free blocks in chains: the first word of each block points to the next block.

use crate::allocators::damage::{hex, Damage};
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::Cancellation;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Control;

const LINK: usize = 8;
/// The value that stands for a link that cannot be read.
const ABSENT: u64 = u64::MAX;
/// The name that damage reports give to a block in lists of free blocks, such as a block that was freed twice.
pub(crate) const FREED: &str = "block in lists of free blocks";
/// The name that damage reports give to the link in a free block.
pub(crate) const FREE_LINK: &str = "link of a free block";

/// The kind of list that contains a free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Transfer,
    ThreadCache,
}

/// The kind of address to which a link of a chain points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The link points to a block of the class that was in no chain so far.
    New,
    /// The link points to a block that is already free, in a chain or in its span.
    Again,
    /// The link does not point to a block of the class.
    Astray,
}

/// A chain of blocks of one class, from `head` to a link that is 0. `at` is the address where the head is stored.
/// `last` and `length` are the last block and the number of blocks, if the list records them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) at: u64,
    pub(crate) head: u64,
    pub(crate) last: Option<u64>,
    pub(crate) length: Option<u64>,
    pub(crate) class: usize,
    pub(crate) listed: ListKind,
}

/// The progress of following one chain: the chain, and the block that comes next.
struct ChainCursor {
    chain: Chain,
    at: u64,
    before: u64,
    count: u64,
}

/// Follow all chains at once, one step of each in turn, because each step waits for a read. `show` is called for each
/// block to which a link points, and returns the kind of the link. Return the damage of each broken chain, at the place
/// where the chain breaks.
pub(crate) fn follow(
    space: &Space,
    control: &Control<'_>,
    chains: &[Chain],
    mut show: impl FnMut(u64, &Chain) -> Link,
) -> Result<Vec<Damage>, Cancellation> {
    let start = |chain: &Chain| ChainCursor { chain: *chain, at: chain.head, before: 0, count: 0 };
    let mut open: Vec<ChainCursor> = chains.iter().map(start).collect();
    let (mut off, mut bytes) = (Vec::new(), Vec::new());
    while !open.is_empty() {
        control.advance(0)?;
        open.retain_mut(|one| {
            let link = if one.at == 0 { None } else { Some(show(one.at, &one.chain)) };
            if link != Some(Link::New) {
                off.extend(one.damage(link));
            }
            link == Some(Link::New)
        });
        let places: Vec<u64> = open.iter().map(|one| one.at).collect();
        bytes.resize(places.len() * LINK, 0);
        let good = space.many(&places, LINK, &mut bytes);
        for ((one, is_there), link) in open.iter_mut().zip(good).zip(bytes.chunks_exact(LINK)) {
            let next = if is_there { u64_at(link, 0) } else { ABSENT };
            (one.before, one.at, one.count) = (one.at, next, one.count + 1);
        }
    }
    Ok(off)
}

impl ChainCursor {
    /// Return the damage at the end of the chain, if there is any. `link` is None if the chain ends with a 0.
    fn damage(&self, link: Option<Link>) -> Option<Damage> {
        let Chain { at, last, length, .. } = self.chain;
        match link {
            Some(Link::Astray) => {
                let from = if self.before == 0 { at } else { self.before };
                match self.at {
                    ABSENT => Some(Damage::absent(from, FREE_LINK)),
                    at => Some(Damage::new(from, FREE_LINK, "a block of its size", hex(at))),
                }
            }
            Some(_) => Some(Damage::new(self.at, FREED, "free once", "free twice")),
            None if length.is_some_and(|length| length != self.count) => {
                let expected = format!("{} blocks", length.unwrap_or_default());
                Some(Damage::new(at, "list of free blocks", expected, self.count.to_string()))
            }
            None => last.filter(|last| *last != self.before).map(|last| {
                Damage::new(at, "list of free blocks", format!("its last block at {last:#x}"), hex(self.before))
            }),
        }
    }
}
