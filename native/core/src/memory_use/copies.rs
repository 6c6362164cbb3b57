//! Find old copies of buffers in free memory. When realloc moves a buffer, the old place keeps the content that the
//! buffer had then.

use crate::bits::Bits;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::Result;
use gdbheap_access::memory::pages::Pages;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The distance in bytes between two keys of a buffer. A key is KEY bytes of content by which copies are found. Any
/// STEP bytes of a copy contain one key.
const STEP: u64 = 16 << 10;
const KEY: usize = 32;
const MIN_WORDS: usize = 3;
/// The alignment of addresses that malloc returns. The distance between a copy and its original is a multiple of it.
const ALIGNMENT: usize = 16;
/// The largest number of keys of all buffers together.
const MAX_KEYS: usize = 1 << 16;
/// The largest number of windows in all holes together. A window is a part of a hole in which keys are searched.
const MAX_WINDOWS: u64 = 1 << 12;
/// The largest number of possible copies that are compared with their buffers. Those with the most equal keys come
/// first.
const MAX_CANDIDATES: usize = 1 << 10;
const FILTER_BITS: u32 = 20;
/// The number of offsets at which a possible copy is compared with its buffer.
const PLACES: u64 = 64;
/// The number of offsets at which a copy must equal its buffer. Offsets with zeros or patterns do not count.
const MIN_PLACES: usize = 4;

type Key = [u64; KEY / 8];

/// Return the key at the beginning of `bytes`; None if fewer than three different words are in it, as in zeros and
/// patterns.
fn key_of(bytes: &[u8]) -> Option<Key> {
    let key: Key = std::array::from_fn(|index| u64_at(bytes, index * 8));
    let different = (0..key.len()).filter(|index| !key[..*index].contains(&key[*index])).count();
    (different >= MIN_WORDS).then_some(key)
}

fn filter_place(key: &Key) -> u64 {
    (key[0] ^ key[1].rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - FILTER_BITS)
}

/// The memory in which gdbheap looks for copies. Only resident pages are read.
#[derive(Clone, Copy)]
struct Source<'a> {
    space: &'a Space,
    pages: &'a Pages,
}

impl Source<'_> {
    fn is_present(&self, address: u64) -> bool {
        let start = self.pages.page.down(address);
        self.pages.count(start, start.saturating_add(self.pages.page.bytes())).0 > 0
    }

    /// Return the bytes of the keys at these addresses; None for a key that cannot be read.
    fn keys(&self, addresses: &[u64]) -> Vec<Option<[u8; KEY]>> {
        let last = KEY as u64 - 1;
        let is_there = |address: &u64| self.is_present(*address) && self.is_present(address.saturating_add(last));
        let there: Vec<u64> = addresses.iter().copied().filter(is_there).collect();
        let mut bytes = vec![0; there.len() * KEY];
        let good = self.space.many(&there, KEY, &mut bytes);
        let mut read = there.iter().zip(bytes.chunks_exact(KEY).zip(good)).peekable();
        let one = |address: &u64| match read.next_if(|(next, _)| *next == address) {
            Some((_, (key, true))) => key.try_into().ok(),
            _ => None,
        };
        addresses.iter().map(one).collect()
    }

    /// Compare KEY bytes at pairs of addresses (in a hole, in a buffer). Return for each pair whether the bytes are
    /// equal. None if the bytes in the buffer are zeros or a pattern, or if one of the two cannot be read.
    fn agree(&self, pairs: &[(u64, u64)]) -> Vec<Option<bool>> {
        let (own, others): (Vec<u64>, Vec<u64>) = pairs.iter().copied().unzip();
        let compare = |(own, other): (Option<[u8; KEY]>, Option<[u8; KEY]>)| {
            let (own, other) = (own?, other?);
            key_of(&other).map(|_| own == other)
        };
        self.keys(&own).into_iter().zip(self.keys(&others)).map(compare).collect()
    }

    /// Return the part [start, end) of `hole` that contains a copy of `buffer`, assuming that the copy began at `base`.
    /// The part begins where the copy begins, or at the start of the hole if that is later. It ends at the first
    /// difference, accurate to a page. None if the two are equal at fewer than MIN_PLACES offsets.
    fn extent(&self, hole: (u64, u64), buffer: (u64, u64), base: u64) -> Option<(u64, u64)> {
        // The first bytes of a free chunk contain malloc's links.
        let start = hole.0.max(base).checked_next_multiple_of(ALIGNMENT as u64)?.checked_add(2 * KEY as u64)?;
        let limit = hole.1.min(base.checked_add(buffer.1 - buffer.0)?);
        let page = self.pages.page.bytes();
        let step = (limit.checked_sub(start)? / PLACES).max(page).next_multiple_of(ALIGNMENT as u64);
        let pair = |at: u64| (at, buffer.0 + (at - base));
        let places: Vec<u64> = (start..limit.saturating_sub(KEY as u64)).step_by(step as usize).collect();
        let found = self.agree(&places.iter().map(|at| pair(*at)).collect::<Vec<_>>());
        // A single place that differs may have been overwritten since. Two such places in a row end the copy.
        let (mut agreed, mut last, mut differs) = (0, 0, Vec::new());
        for (place, found) in found.iter().enumerate() {
            match found {
                Some(true) => (agreed, last) = (agreed + 1, place),
                Some(false) => differs.push(place),
                None => (),
            }
            differs.retain(|differs| *differs > last);
            if differs.len() > 1 {
                break;
            }
        }
        if agreed < MIN_PLACES {
            return None;
        }
        let Some(bad) = differs.first() else { return Some((hole.0.max(base), limit)) };
        let (mut good, mut bad) = (places[last], places[*bad]);
        while bad - good > page {
            let middle = (good + (bad - good) / 2) / ALIGNMENT as u64 * ALIGNMENT as u64;
            match self.agree(&[pair(middle)])[0] {
                Some(true) => good = middle,
                _ => bad = middle,
            }
        }
        Some((hole.0.max(base), bad))
    }
}

/// The keys of buffers. `places`: for each key, the index of its buffer and its offset in the buffer; None if the key
/// occurs at several places.
struct Keys {
    filter: Bits,
    places: HashMap<Key, Option<(usize, u64)>>,
}

impl Keys {
    /// Collect the keys of the first `length` bytes of each buffer.
    fn of(source: Source<'_>, buffers: &[(u64, u64)], length: u64) -> Keys {
        let most = MAX_KEYS / buffers.len().max(1);
        let own = |(number, (start, end)): (usize, &(u64, u64))| {
            let (start, size) = (*start, end.saturating_sub(*start).min(length));
            (STEP / 2..size).step_by(STEP as usize).take(most).map(move |offset| (number, offset, start + offset))
        };
        let wanted: Vec<(usize, u64, u64)> = buffers.iter().enumerate().flat_map(own).collect();
        let bytes = source.keys(&wanted.iter().map(|(.., address)| *address).collect::<Vec<_>>());
        let mut keys = Keys { filter: Bits::new(1 << FILTER_BITS), places: HashMap::new() };
        for ((number, offset, _), bytes) in wanted.into_iter().zip(bytes) {
            if let Some(key) = bytes.and_then(|bytes| key_of(&bytes)) {
                keys.filter.set(filter_place(&key));
                keys.places.entry(key).and_modify(|place| *place = None).or_insert(Some((number, offset)));
            }
        }
        keys
    }

    fn find(&self, bytes: &[u8]) -> Option<(usize, u64)> {
        let key = key_of(bytes)?;
        if !self.filter.get(filter_place(&key)) {
            return None;
        }
        *self.places.get(&key)?
    }
}

/// A possible copy, as (index of the hole, index of the buffer, address). The address is where the buffer began when it
/// lay where the hole is now.
type Candidate = (usize, usize, u64);

/// The range [start, end) of a hole that still contains an old copy of the beginning of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct CopyRemains {
    /// The index of the buffer of which this is a copy.
    pub buffer: usize,
    /// The address at which the buffer began when it lay here.
    pub base: u64,
    pub start: u64,
    pub end: u64,
}

/// Return the copies of the beginnings of `buffers` (start, end) that lie in `holes` (start, end). Copies may overlap.
///
/// gdbheap searches parts of the holes for samples (keys) of each buffer. Copies with the most equal keys come first.
/// Only resident pages are read.
pub fn find_copies(
    watcher: &dyn Watcher,
    space: &Space,
    pages: &Pages,
    buffers: &[(u64, u64)],
    holes: &[(u64, u64)],
) -> Result<Vec<CopyRemains>> {
    let source = Source { space, pages };
    let sizes = || holes.iter().map(|(start, end)| end.saturating_sub(*start));
    // The beginning of a copy may have been handed out again. The search assumes that this is at most half of the copy.
    let keys = Keys::of(source, buffers, sizes().max().unwrap_or(0).saturating_mul(2));
    let stride = sizes().sum::<u64>().div_ceil(MAX_WINDOWS).next_multiple_of(STEP).max(STEP);
    let window = STEP + (KEY - ALIGNMENT) as u64;
    let own = |(number, (start, end)): (usize, &(u64, u64))| {
        let (start, end) = (*start, *end);
        (start..end).step_by(stride as usize).map(move |from| (number, from, from.saturating_add(window).min(end)))
    };
    let jobs: Vec<(usize, u64, u64)> = holes.iter().enumerate().flat_map(own).collect();
    let work =
        |(bytes, hits): &mut (Vec<u8>, HashMap<Candidate, usize>), job: &(usize, u64, u64), control: &Control| {
            let (hole, from, end) = *job;
            bytes.resize((end - from) as usize, 0);
            let last = pages.page.up(end).unwrap_or(u64::MAX);
            let there = if pages.count(pages.page.down(from), last).0 > 0 { space.fill(from, bytes) } else { 0 };
            for at in (0..there.saturating_sub(KEY - 1)).step_by(ALIGNMENT) {
                let Some((buffer, offset)) = keys.find(&bytes[at..]) else { continue };
                if let Some(base) = (from + at as u64).checked_sub(offset) {
                    *hits.entry((hole, buffer, base)).or_default() += 1;
                }
            }
            control.advance(1)
        };
    let init = || (Vec::new(), HashMap::new());
    let workers = space.task(watcher, None).run(&jobs, init, work)?;
    let mut seen: HashMap<Candidate, usize> = HashMap::new();
    for (candidate, count) in workers.into_iter().flat_map(|(_, hits)| hits) {
        *seen.entry(candidate).or_default() += count;
    }
    let mut candidates: Vec<(Reverse<usize>, Candidate)> =
        seen.into_iter().map(|(candidate, count)| (Reverse(count), candidate)).collect();
    candidates.sort_unstable();
    candidates.truncate(MAX_CANDIDATES);
    let extent = |(_, (hole, buffer, base)): (_, Candidate)| {
        let (start, end) = source.extent(holes[hole], buffers[buffer], base)?;
        Some(CopyRemains { buffer, base, start, end })
    };
    Ok(candidates.into_iter().filter_map(extent).collect())
}
