//! Free blocks in chains: each one's first word leads to the next.

use crate::bytes::u64_at;
use crate::error::Cancelled;
use crate::memory::space::Space;
use crate::work::Control;

const LINK: usize = 8;

/// Where a free block waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Transfer,
    ThreadCache,
}

/// Blocks of one class from `head` on, up to a 0; what is said of them elsewhere: the last one, and how many they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
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
    is_whole: bool,
}

/// Follows chains, all of them one step after the other, as each step takes a read: shows each block, whose answer tells
/// whether that is one of the class that no chain had so far. Returns how many chains are not as they say of themselves.
pub(crate) fn follow(
    space: &Space,
    control: &Control<'_>,
    chains: &[Chain],
    mut show: impl FnMut(u64, &Chain) -> bool,
) -> Result<u64, Cancelled> {
    let start = |chain: &Chain| Followed { chain: *chain, at: chain.head, before: 0, count: 0, is_whole: false };
    let mut open: Vec<Followed> = chains.iter().map(start).collect();
    let (mut off, mut bytes) = (0, Vec::new());
    while !open.is_empty() {
        control.advance(0)?;
        let mut ended = Vec::new();
        open.retain_mut(|one| {
            let goes_on = one.at != 0 && show(one.at, &one.chain);
            if !goes_on {
                one.is_whole = one.at == 0;
                ended.push(one.agrees());
            }
            goes_on
        });
        off += ended.into_iter().filter(|agrees| !agrees).count() as u64;
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
    fn agrees(&self) -> bool {
        let Chain { last, length, .. } = self.chain;
        self.is_whole && last.is_none_or(|last| last == self.before) && length.is_none_or(|length| length == self.count)
    }
}
