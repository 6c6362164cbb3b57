//! Where free blocks wait beside their spans: in the central lists' transfer caches, and in threads' caches.
//!
//! A central list (`CentralFreeList`, central_freelist.h) is `i32 lock@0, u64 class@8, two headers of lists of spans, u64
//! num_spans, counter, {void *head, *tail} tc_slots[64]@128, i32 used_slots@1152`, and they lie one behind the other by class.
//! A thread's cache (`ThreadCache`, thread_cache.h) begins with a list for each class, `{void *list@0, u32 length@8, lowater,
//! max_length, length_overages, i32 size@24}`; behind these are its links `next, prev` to those of other threads. So no
//! thread-local storage has to be found.

use crate::allocators::tcmalloc::chains::{Chain, Listed};
use crate::allocators::tcmalloc::layout::{ALIGNMENT, MAX_CLASSES};
use crate::bytes::{range_at, u32_at, u64_at};
use crate::memory::space::Space;
use std::collections::{BTreeMap, BTreeSet};

const CLASS_AT: usize = 8;
const SLOTS_AT: usize = 128;
const SLOTS: usize = 64;
const USED_SLOTS_AT: usize = SLOTS_AT + 16 * SLOTS;
const CENTRAL_BYTES: usize = USED_SLOTS_AT + 12;
/// How far apart central lists may lie, and what that is a multiple of.
const STRIDES: std::ops::Range<usize> = CENTRAL_BYTES..2048;
const LINE: usize = 64;
const LIST: usize = 32;
/// So far behind the lists the links are at most, where there are as many lists as can be.
const LINKS: usize = 512;
const CACHE_BYTES: usize = LIST * MAX_CLASSES + LINKS;
const MAX_CACHES: usize = 1 << 16;

/// What waits outside of spans: how many caches of threads there are and where, the chains of all, and how many locks of
/// central lists are held.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) has_central: bool,
    pub(crate) caches: BTreeSet<u64>,
    pub(crate) chains: Vec<Chain>,
    pub(crate) locked: u64,
}

/// All that waits, by the static data of a module (`data`, each range with where it begins), for classes of these `sizes`.
pub(crate) fn waiting(space: &Space, data: &[(u64, Vec<u8>)], anonymous: &[(u64, u64)], sizes: &[u64]) -> Waiting {
    let mut found = Waiting::default();
    let central = data.iter().find_map(|(start, bytes)| Some((start, bytes, central_lists(bytes, sizes.len())?)));
    if let Some((start, bytes, (first, stride))) = central {
        found.has_central = true;
        add_central((start + first as u64, &bytes[first..]), stride, sizes.len(), &mut found);
    }
    let finder = Caches { space, anonymous, sizes };
    let caches = finder.all(data);
    caches.iter().for_each(|(at, bytes)| finder.add(*at, bytes, &mut found));
    found.caches = caches.into_keys().collect();
    found
}

/// Where the list of class 0 lies, and how far the lists lie apart.
fn central_lists(bytes: &[u8], classes: usize) -> Option<(usize, usize)> {
    let class = |at: usize| u64_at(bytes, at + CLASS_AT);
    for at in (0..bytes.len().saturating_sub(CENTRAL_BYTES * classes)).step_by(ALIGNMENT as usize) {
        if class(at) != 1 {
            continue;
        }
        let strides = STRIDES.filter(|stride| stride % LINE == 0 && at >= *stride);
        for stride in strides.filter(|stride| at + (classes - 1) * stride <= bytes.len()) {
            let of = |number: usize| at - stride + number * stride;
            let fits = |number: usize| {
                let list = &bytes[of(number)..];
                let (used, size, most) =
                    (u32_at(list, USED_SLOTS_AT), u32_at(list, USED_SLOTS_AT + 4), u32_at(list, USED_SLOTS_AT + 8));
                u64_at(list, CLASS_AT) == number as u64 && used <= size && size <= most && most <= SLOTS as u32
            };
            if (1..classes).all(fits) {
                return Some((at - stride, stride));
            }
        }
    }
    None
}

/// `bytes`: those from the list of class 0 on, which is at `start`.
fn add_central((start, bytes): (u64, &[u8]), stride: usize, classes: usize, found: &mut Waiting) {
    for class in 1..classes {
        let list = &bytes[class * stride..];
        found.locked += u64::from(u32_at(list, 0) != 0);
        for slot in 0..u32_at(list, USED_SLOTS_AT).min(SLOTS as u32) as usize {
            let place = SLOTS_AT + 16 * slot;
            let (head, last) = (u64_at(list, place), Some(u64_at(list, place + 8)));
            let at = start + (class * stride + place) as u64;
            found.chains.push(Chain { at, head, last, length: None, class, listed: Listed::Transfer });
        }
    }
}

struct Caches<'a> {
    space: &'a Space,
    anonymous: &'a [(u64, u64)],
    sizes: &'a [u64],
}

impl Caches<'_> {
    /// All caches, by their addresses, with their bytes. Static data leads to one at least; links, of which both ends
    /// agree, lead from one to the next. Where they lie follows from whom they lead to.
    fn all(&self, data: &[(u64, Vec<u8>)]) -> BTreeMap<u64, Vec<u8>> {
        let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (_, bytes) in data {
            for word in bytes.chunks_exact(8).map(|word| u64_at(word, 0)) {
                if !first.contains_key(&word) && self.is_there(word) {
                    first.extend(self.read(word).map(|bytes| (word, bytes)));
                }
            }
        }
        let links = (LIST * self.sizes.len()..CACHE_BYTES - 8).step_by(ALIGNMENT as usize);
        let linked = links.map(|link| self.linked(&first, link));
        let best = linked.max_by_key(BTreeMap::len).unwrap_or_default();
        if best.len() > 1 {
            return best;
        }
        // A single one has no links; of those that are gone nothing is left.
        first.retain(|_, bytes| self.lengths(bytes) > 0);
        first
    }

    /// Those that are linked to one of the first ones, if links lie there.
    fn linked(&self, first: &BTreeMap<u64, Vec<u8>>, link: usize) -> BTreeMap<u64, Vec<u8>> {
        let mut found: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut open: Vec<u64> = first.keys().copied().collect();
        while let Some(at) = open.pop().filter(|_| found.len() < MAX_CACHES) {
            let known = found.get(&at).or_else(|| first.get(&at)).cloned();
            let Some(bytes) = known.or_else(|| self.read(at)) else { continue };
            for (to, back) in [(link, link + 8), (link + 8, link)] {
                let other = u64_at(&bytes, to);
                if !self.is_there(other) || found.contains_key(&other) {
                    continue;
                }
                let Some(next) = first.get(&other).cloned().or_else(|| self.read(other)) else { continue };
                if u64_at(&next, back) == at {
                    found.insert(at, bytes.clone());
                    found.insert(other, next);
                    open.push(other);
                }
            }
        }
        found
    }

    fn is_there(&self, address: u64) -> bool {
        address % ALIGNMENT == 0 && range_at(self.anonymous, address).is_some()
    }

    /// The bytes of the cache at an address; None where each list's blocks do not have the size of its class.
    fn read(&self, at: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; CACHE_BYTES];
        let mut head = [0; 3 * LIST];
        self.space.exact(at, &mut head).ok()?;
        self.has_sizes(&head, 3).then_some(())?;
        let got = self.space.fill(at, &mut bytes);
        (got >= LIST * self.sizes.len() && self.has_sizes(&bytes, self.sizes.len())).then_some(bytes)
    }

    fn has_sizes(&self, bytes: &[u8], classes: usize) -> bool {
        (1..classes).all(|class| u64::from(u32_at(bytes, LIST * class + 24)) == self.sizes[class])
    }

    fn lengths(&self, bytes: &[u8]) -> u64 {
        (1..self.sizes.len()).map(|class| u64::from(u32_at(bytes, LIST * class + 8))).sum()
    }

    /// The lists of the cache at an address.
    fn add(&self, cache: u64, bytes: &[u8], found: &mut Waiting) {
        for class in 1..self.sizes.len() {
            let (head, length) = (u64_at(bytes, LIST * class), u64::from(u32_at(bytes, LIST * class + 8)));
            if head != 0 || length > 0 {
                let (at, length) = (cache + (LIST * class) as u64, Some(length));
                found.chains.push(Chain { at, head, last: None, length, class, listed: Listed::ThreadCache });
            }
        }
    }
}
