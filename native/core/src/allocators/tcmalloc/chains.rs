//! Free blocks in chains: each one's first word leads to the next.

use crate::allocators::damage::{hex, Damage};
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::Cancelled;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Control;

const LINK: usize = 8;
/// What a block is that was freed twice.
pub(crate) const FREED: &str = "block in lists of free blocks";

/// Where a free block waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Transfer,
    ThreadCache,
}

/// What a word of a chain leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// A block of the class that no chain had so far.
    New,
    /// One that is free already: in a chain, or in its span.
    Again,
    /// No block of the class.
    Astray,
}

/// Blocks of one class from `head` on, which stands at `at`, up to a 0; what is said of them elsewhere: the last one, and how
/// many they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) at: u64,
    pub(crate) head: u64,
    pub(crate) last: Option<u64>,
    pub(crate) length: Option<u64>,
    pub(crate) class: usize,
    pub(crate) listed: Listed,
}

/// A chain that is being followed.
struct Followed {
    chain: Chain,
    at: u64,
    before: u64,
    count: u64,
}

/// Follows chains, all of them one step after the other, as each step takes a read: shows each block, whose answer tells
/// what it is. Returns of each chain that is not as it says of itself where that shows.
pub(crate) fn follow(
    space: &Space,
    control: &Control<'_>,
    chains: &[Chain],
    mut show: impl FnMut(u64, &Chain) -> Link,
) -> Result<Vec<Damage>, Cancelled> {
    let start = |chain: &Chain| Followed { chain: *chain, at: chain.head, before: 0, count: 0 };
    let mut open: Vec<Followed> = chains.iter().map(start).collect();
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
            // What cannot be read leads nowhere, and to no block.
            let next = if is_there { u64_at(link, 0) } else { u64::MAX };
            (one.before, one.at, one.count) = (one.at, next, one.count + 1);
        }
    }
    Ok(off)
}

impl Followed {
    /// What is wrong with it where it ends, at a 0 if `link` is None.
    fn damage(&self, link: Option<Link>) -> Option<Damage> {
        let Chain { at, last, length, .. } = self.chain;
        match link {
            Some(Link::Astray) => {
                let from = if self.before == 0 { at } else { self.before };
                Some(Damage::new(from, "link of a free block", "a block of its size", hex(self.at)))
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
