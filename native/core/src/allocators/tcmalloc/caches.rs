//! Find free blocks that are not in the free lists of their spans. They are in the transfer caches of the central
//! lists, or in threads' caches.
//!
//! A central list (`CentralFreeList`, central_freelist.h) is `i32 lock@0, u64 class@8, two headers of lists of spans,
//! u64 num_spans, counter, {void *head, *tail} tc_slots[64]@128, i32 used_slots@1152`. The central lists are
//! consecutive, ordered by class. A thread's cache (`ThreadCache`, thread_cache.h) begins with a list for each class,
//! `{void *list@0, u32 length@8, lowater, max_length, length_overages, i32 size@24}`. After these lists come the
//! cache's links `next, prev` to the caches of other threads. So thread-local storage does not have to be found.

use crate::allocators::tcmalloc::chains::{Chain, ListKind};
use crate::allocators::tcmalloc::layout::{ALIGNMENT, MAX_CLASSES};
use gdbheap_access::bytes::{range_at, u32_at, u64_at};
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;
use std::collections::{BTreeSet, HashMap};

const CLASS_AT: usize = 8;
const SLOTS_AT: usize = 128;
const SLOTS: usize = 64;
const USED_SLOTS_AT: usize = SLOTS_AT + 16 * SLOTS;
const CENTRAL_BYTES: usize = USED_SLOTS_AT + 12;
/// Possible distances in bytes from one central list to the next. The real distance is a multiple of a cache line
/// (LINE).
const STRIDES: std::ops::Range<usize> = CENTRAL_BYTES..2048;
const LINE: usize = 64;
const LIST: usize = 32;
/// The largest distance in bytes from the end of a cache's lists to the end of the cache's links to other caches.
const LINKS: usize = 512;
const CACHE_BYTES: usize = LIST * MAX_CLASSES + LINKS;
const MAX_CACHES: usize = 1 << 16;

/// The free blocks outside the free lists of spans. `caches`: the addresses of threads' caches; `chains`: the chains of
/// all caches; `locked`: how many locks of central lists are held.
#[derive(Default)]
pub(crate) struct CacheContent {
    pub(crate) has_central: bool,
    pub(crate) caches: BTreeSet<u64>,
    pub(crate) chains: Vec<Chain>,
    pub(crate) locked: u64,
}

/// Find all caches of a tcmalloc from the static data of its module. `data`: the start and the bytes of each range of
/// this data; `sizes`: the sizes of the classes.
pub(crate) fn waiting(
    watcher: &dyn Watcher,
    space: &Space,
    data: &[(u64, Vec<u8>)],
    anonymous: &[(u64, u64)],
    sizes: &[u64],
) -> Result<CacheContent> {
    let mut found = CacheContent::default();
    let central = data.iter().find_map(|(start, bytes)| Some((start, bytes, central_lists(bytes, sizes.len())?)));
    if let Some((start, bytes, (first, stride))) = central {
        found.has_central = true;
        add_central((start + first as u64, &bytes[first..]), stride, sizes.len(), &mut found);
    }
    let mut finder = Caches { watcher, space, anonymous, sizes, known: HashMap::new() };
    found.caches = finder.all(data)?;
    for cache in &found.caches {
        add_cache(*cache, &finder.known[cache], sizes.len(), &mut found.chains);
    }
    Ok(found)
}

/// Return the offset in bytes of the central list of class 0, and the distance from one central list to the next. None
/// if there are no such lists.
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

/// Add the chains of the central lists to `found`. `bytes` begin with the list of class 0, at the address `start`.
fn add_central((start, bytes): (u64, &[u8]), stride: usize, classes: usize, found: &mut CacheContent) {
    for class in 1..classes {
        let list = &bytes[class * stride..];
        found.locked += u64::from(u32_at(list, 0) != 0);
        for slot in 0..u32_at(list, USED_SLOTS_AT).min(SLOTS as u32) as usize {
            let place = SLOTS_AT + 16 * slot;
            let (head, last) = (u64_at(list, place), Some(u64_at(list, place + 8)));
            let at = start + (class * stride + place) as u64;
            found.chains.push(Chain { at, head, last, length: None, class, listed: ListKind::Transfer });
        }
    }
}

struct Caches<'a> {
    watcher: &'a dyn Watcher,
    space: &'a Space,
    anonymous: &'a [(u64, u64)],
    sizes: &'a [u64],
    /// The bytes of each cache that was read, by the address of the cache.
    known: HashMap<u64, Vec<u8>>,
}

impl Caches<'_> {
    /// Return the addresses of all caches. Static data points to at least one cache, and each cache has links to two
    /// other caches. Each link is checked at both ends. The offset of the links is the offset with which the most
    /// caches are found.
    fn all(&mut self, data: &[(u64, Vec<u8>)]) -> Result<BTreeSet<u64>> {
        let mut first = BTreeSet::new();
        for word in data.iter().flat_map(|(_, bytes)| bytes.chunks_exact(8)).map(|word| u64_at(word, 0)) {
            if first.len() < MAX_CACHES && self.read(word)?.is_some() {
                first.insert(word);
            }
        }
        let mut best = BTreeSet::new();
        for link in (LIST * self.sizes.len()..CACHE_BYTES - 8).step_by(ALIGNMENT as usize) {
            let linked = self.linked(&first, link)?;
            if linked.len() >= best.len() {
                best = linked;
            }
        }
        if best.len() > 1 {
            return Ok(best);
        }
        // A single cache has no links to other caches. The caches of threads that have ended are empty.
        first.retain(|at| lengths(&self.known[at], self.sizes.len()) > 0);
        Ok(first)
    }

    /// Return the caches that are linked with one of the caches in `first`. `link` is the assumed offset of the links.
    fn linked(&mut self, first: &BTreeSet<u64>, link: usize) -> Result<BTreeSet<u64>> {
        let mut found = BTreeSet::new();
        let mut open: Vec<u64> = first.iter().copied().collect();
        while let Some(at) = open.pop().filter(|_| found.len() < MAX_CACHES) {
            let Some(bytes) = self.read(at)? else { continue };
            let ends = (u64_at(bytes, link), u64_at(bytes, link + 8));
            for (other, back) in [(ends.0, link + 8), (ends.1, link)] {
                if !found.contains(&other) && self.read(other)?.is_some_and(|next| u64_at(next, back) == at) {
                    found.extend([at, other]);
                    open.push(other);
                }
            }
        }
        Ok(found)
    }

    /// Return the bytes of the cache at an address; None unless the blocks on each list have the size of the list's
    /// class.
    fn read(&mut self, at: u64) -> Result<Option<&[u8]>> {
        if at % ALIGNMENT != 0 || range_at(self.anonymous, at).is_none() {
            return Ok(None);
        }
        if !self.known.contains_key(&at) {
            self.watcher.check()?;
            self.known.extend(read_cache(self.space, at, self.sizes).map(|bytes| (at, bytes)));
        }
        Ok(self.known.get(&at).map(Vec::as_slice))
    }
}

fn read_cache(space: &Space, at: u64, sizes: &[u64]) -> Option<Vec<u8>> {
    let mut head = [0; 3 * LIST];
    space.exact(at, &mut head).ok()?;
    has_sizes(&head, &sizes[..sizes.len().min(3)]).then_some(())?;
    let mut bytes = vec![0; CACHE_BYTES];
    let got = space.fill(at, &mut bytes);
    (got >= LIST * sizes.len() && has_sizes(&bytes, sizes)).then_some(bytes)
}

fn has_sizes(bytes: &[u8], sizes: &[u64]) -> bool {
    (1..sizes.len()).all(|class| u64::from(u32_at(bytes, LIST * class + 24)) == sizes[class])
}

/// Return the total number of blocks on all lists of a cache.
fn lengths(bytes: &[u8], classes: usize) -> u64 {
    (1..classes).map(|class| u64::from(u32_at(bytes, LIST * class + 8))).sum()
}

/// Add the lists of the cache with this address to `chains`.
fn add_cache(cache: u64, bytes: &[u8], classes: usize, chains: &mut Vec<Chain>) {
    for class in 1..classes {
        let (head, length) = (u64_at(bytes, LIST * class), u64::from(u32_at(bytes, LIST * class + 8)));
        if head != 0 || length > 0 {
            let (at, length) = (cache + (LIST * class) as u64, Some(length));
            chains.push(Chain { at, head, last: None, length, class, listed: ListKind::ThreadCache });
        }
    }
}
