//! The blocks in threads' caches. An arena has the head of a ring of all caches that belong to it, and each cache
//! points to its bins. So thread-local storage does not have to be found.
//!
//! A link of the ring is `{next, prev, bins}`, up to 5.2 `{next, prev, bins_small, bins_large}`. A bin has 24 bytes:
//! `void **stack_head; u64 nrequests; u16 low_water, full, empty` (the low halves of addresses), up to 5.2 `i32
//! low_water, ncached; u64 nrequests; void **avail`.

use crate::allocators::jemalloc::layout::JemallocForm;
use crate::allocators::jemalloc::tree::words_from;
use gdbheap_access::bytes::words;
use gdbheap_access::error::Cancellation;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::ContinueCheck;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The number of bytes at the start of an arena's structure that are searched for the head of its ring of thread
/// caches.
const ARENA_HEAD: u64 = 24 << 10;
const MAX_CACHES: usize = 1 << 16;
/// The largest size in bytes of a thread's storage for one module.
const MAX_STORAGE: u64 = 64 << 10;
/// The largest size in bytes of the lists of all bins of a cache.
const MAX_LISTS: u64 = 1 << 20;
const MAX_BINS: usize = 256;
const BIN_WORDS: u64 = 3;
const MAX_IN_BIN: u64 = 1 << 13;
/// The limits for reading words of bins and lists in hostile memory. The limit for one ring is the number of words in
/// the target's memory plus MORE_WORDS. The limit for all rings in total is TIMES_READ times as high, because several
/// rings may name the same caches.
const MORE_WORDS: u64 = 1 << 16;
const TIMES_READ: u64 = 8;

/// A bin of a thread's cache. `class`: the number of its size class. `list`: the address of its list of blocks.
/// `blocks`: the addresses of these blocks, in the order in which they are handed out.
pub(crate) struct Bin {
    pub(crate) class: usize,
    pub(crate) list: u64,
    pub(crate) blocks: Vec<u64>,
}

/// For each cache in an arena's ring, the addresses of its bins.
type BinAddresses = Vec<[u64; 2]>;

pub(crate) struct Finder<'a> {
    pub(crate) space: &'a Space,
    pub(crate) form: &'a JemallocForm,
    /// The number of small size classes.
    pub(crate) small: usize,
    pub(crate) go_on: ContinueCheck<'a>,
}

/// The lists that were accepted so far. `ends`: for the start of each list, its end. No two lists of one jemalloc share
/// a word. `left`: how many more words of bins and lists may be read.
struct Lists {
    ends: BTreeMap<u64, u64>,
    left: u64,
}

impl Lists {
    fn of(left: u64) -> Lists {
        Lists { ends: BTreeMap::new(), left }
    }

    /// Accept the list of a bin, which has `count` words. Return false if the list overlaps another one or has more
    /// words than may still be read.
    fn take(&mut self, list: u64, count: u64) -> bool {
        let end = list.saturating_add(8 * count);
        let before = self.ends.range(..end).next_back();
        if self.left < BIN_WORDS + count || count > 0 && before.is_some_and(|(_, end)| *end > list) {
            return false;
        }
        self.left -= BIN_WORDS + count;
        if count > 0 {
            self.ends.insert(list, end);
        }
        true
    }
}

/// The threads' caches of one jemalloc: their number, and the bins of all of them.
#[derive(Default)]
pub(crate) struct Caches {
    pub(crate) count: usize,
    pub(crate) bins: Vec<Bin>,
}

impl Finder<'_> {
    /// Find the thread caches of `arenas`, which may also be other structures to which static data points. The head of
    /// the ring has the same offset in every arena. The offset is chosen at which `is_right` accepts the most blocks.
    /// It must accept nine in ten of them. `is_right(block, class)` returns whether a block may be in a bin of a class.
    pub(crate) fn find(
        &self,
        arenas: &BTreeSet<u64>,
        is_right: impl Fn(u64, usize) -> bool,
    ) -> Result<Caches, Cancellation> {
        let mut rings: BTreeMap<u64, BinAddresses> = BTreeMap::new();
        let mut links = self.space.vain_steps(0, u64::MAX);
        for arena in arenas {
            (self.go_on)()?;
            let mut bytes = vec![0; ARENA_HEAD as usize];
            let got = self.space.fill(*arena, &mut bytes);
            for (place, word) in words(&bytes[..got]).into_iter().enumerate().filter(|(_, word)| *word % 8 == 0) {
                if let Some(bins) = self.ring(word, &mut links)? {
                    rings.entry(8 * place as u64).or_default().extend(bins);
                }
            }
        }
        let (mut best, mut most) = (Caches::default(), 0);
        let room = self.most_words();
        let mut left = TIMES_READ * room;
        for bins in rings.into_values() {
            let mut lists = Lists::of(room.min(left));
            let found = self.all_of(&bins, &mut lists)?;
            left -= room.min(left) - lists.left;
            let blocks = || found.bins.iter().flat_map(|bin| bin.blocks.iter().map(|block| (*block, bin.class)));
            let right = blocks().filter(|(block, class)| is_right(*block, *class)).count();
            if right * 10 >= blocks().count() * 9 && (right, found.count) > (most, best.count) {
                (best, most) = (found, right);
            }
        }
        Ok(best)
    }

    fn most_words(&self) -> u64 {
        self.space.backed_bytes(0, u64::MAX) / 8 + MORE_WORDS
    }

    /// Find caches in threads' storage. Builds without statistics need this search, because their arenas have no ring.
    /// The bins of a cache are consecutive, and their lists lie in the same order in one block. A cache is accepted if
    /// `is_right` accepts nine in ten of its blocks.
    pub(crate) fn find_in(
        &self,
        storage: &[(u64, u64)],
        is_right: impl Fn(u64, usize) -> bool,
    ) -> Result<Caches, Cancellation> {
        let (mut found, mut lists) = (Caches::default(), Lists::of(self.most_words()));
        for (start, end) in storage.iter().filter(|_| self.form.has_low_bits) {
            (self.go_on)()?;
            let mut bytes = vec![0; end.saturating_sub(*start).min(MAX_STORAGE) as usize];
            let got = self.space.fill(*start, &mut bytes);
            let words = words(&bytes[..got]);
            let Some(place) = (0..words.len()).find(|place| self.are_bins(&words[*place..])) else { continue };
            let Some(bins) = self.bins_of([start + 8 * place as u64, 0], &mut lists) else { continue };
            let (mut right, mut all) = (0, 0);
            for bin in &bins {
                right += bin.blocks.iter().filter(|block| is_right(**block, bin.class)).count();
                all += bin.blocks.len();
            }
            if right * 10 >= all * 9 {
                found.count += 1;
                found.bins.extend(bins);
            }
        }
        Ok(found)
    }

    /// Return whether these words begin with the bins of all small classes.
    fn are_bins(&self, words: &[u64]) -> bool {
        let Some(words) = words.get(..3 * self.small) else { return false };
        let lists = words.chunks_exact(3).map(|bin| self.list_of([bin[0], bin[1], bin[2]]));
        let mut last = 0;
        let all = lists.map(|list| list.map(|(at, count)| at + 8 * count)).all(|end| match end {
            Some(end) => end > std::mem::replace(&mut last, end),
            None => false,
        });
        all && last - words[0] < MAX_LISTS
    }

    fn all_of(&self, bins: &[[u64; 2]], lists: &mut Lists) -> Result<Caches, Cancellation> {
        let (mut seen, mut found) = (HashSet::new(), Caches::default());
        for bins in bins.iter().filter(|bins| seen.insert(bins[0])) {
            (self.go_on)()?;
            if let Some(own) = self.bins_of(*bins, lists) {
                found.count += 1;
                found.bins.extend(own);
            }
        }
        Ok(found)
    }

    /// Return the bins of a ring that begins at `first`; None if no ring begins there. `links`: how many more links may
    /// be followed.
    fn ring(&self, first: u64, links: &mut u64) -> Result<Option<BinAddresses>, Cancellation> {
        let (mut found, mut at) = (Vec::new(), first);
        let Some([_, mut before, ..]) = self.link(first) else { return Ok(None) };
        let last = before;
        while found.len() < MAX_CACHES && *links > 0 {
            (self.go_on)()?;
            let Some([next, _, small, large]) = self.link(at).filter(|link| link[1] == before) else { break };
            *links -= 1;
            found.push([small, large]);
            (before, at) = (at, next);
            if at == first {
                return Ok((before == last).then_some(found));
            }
        }
        Ok(None)
    }

    fn link(&self, at: u64) -> Option<[u64; 4]> {
        let is_place = |word: u64| word != 0 && word % 8 == 0;
        let read = words_from::<4>(self.space, at).filter(|_| is_place(at))?;
        let pointers = if self.form.has_low_bits { 3 } else { 4 };
        read[..pointers].iter().all(|word| is_place(*word)).then_some(read)
    }

    /// Return the bins of one cache with their blocks; None if no bins are at these addresses.
    fn bins_of(&self, [small, large]: [u64; 2], lists: &mut Lists) -> Option<Vec<Bin>> {
        let mut found = Vec::new();
        if self.form.has_low_bits {
            self.add_bins(small, 0, MAX_BINS, lists, &mut found)?;
        } else {
            self.add_bins(small, 0, self.small, lists, &mut found)?;
            self.add_bins(large, self.small, MAX_BINS, lists, &mut found)?;
        }
        Some(found)
    }

    /// Append consecutive bins with their blocks to `found`, up to the first place that is not a bin. Return None if
    /// there is no bin at all.
    fn add_bins(
        &self,
        bins: u64,
        first_class: usize,
        most: usize,
        lists: &mut Lists,
        found: &mut Vec<Bin>,
    ) -> Option<()> {
        for number in 0..most {
            let bin = words_from::<3>(self.space, bins.checked_add(24 * number as u64)?);
            let list = bin.and_then(|bin| self.list_of(bin)).filter(|(list, count)| lists.take(*list, *count));
            let Some((list, count)) = list else {
                return (number > 0).then_some(());
            };
            let mut bytes = vec![0; 8 * count as usize];
            let got = self.space.fill(list, &mut bytes);
            // An empty list has no word, and its end may be the end of the memory of all lists. Use the last word
            // before the list instead.
            let place = if count == 0 { list - 8 } else { list };
            found.push(Bin { class: first_class + number, list: place, blocks: words(&bytes[..got]) });
        }
        Some(())
    }

    /// Return the address of a bin's list of pointers, and the number of these pointers; None if the words are not a
    /// bin.
    fn list_of(&self, [first, _, last]: [u64; 3]) -> Option<(u64, u64)> {
        if self.form.has_low_bits {
            let (head, full, empty) = (first as u16, (last >> 16) as u16, (last >> 32) as u16);
            let (bytes, room) = (empty.wrapping_sub(head), empty.wrapping_sub(full));
            let ends = first.checked_add(u64::from(bytes)).is_some();
            let fits = first != 0 && first % 8 == 0 && bytes % 8 == 0 && bytes <= room && ends;
            return fits.then_some((first, u64::from(bytes / 8)));
        }
        let count = first >> 32;
        let start = last.checked_sub(8 * count)?;
        (last != 0 && last % 8 == 0 && count <= MAX_IN_BIN).then_some((start, count))
    }
}
