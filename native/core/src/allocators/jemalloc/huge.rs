//! Memory of jemalloc's huge page allocator (`opt.hpa`, since 5.3.0). jemalloc's tree contains this allocator's extents
//! only while they are in use.
//!
//! The allocator cuts slabs of 2 MiB into extents. The description of a slab (`hpdata_t`, in jemalloc's own memory)
//! begins with the slab's address. At offset 96 it has `size_t h_longest_free_range, h_nactive, active_pages[8],
//! h_ntouched, touched_pages[8]`, with a bit for each page: active pages have an extent, and the other touched pages
//! are dirty. A description is recognized by these counts and bitmaps, which must agree with each other. Static data
//! has the address and the size of the range that is not cut yet (`eden`). This range begins where a slab ends.

use gdbheap_access::bytes::u64_at;
use gdbheap_access::machine::PageSize;
use gdbheap_access::memory::space::Space;
use std::collections::BTreeMap;

pub(crate) const HUGE: u64 = 2 << 20;
pub(crate) const PAGES: usize = 512;
const WORDS: usize = PAGES / 64;
/// The alignment of slab descriptions in bytes (`CACHELINE`).
const ALIGNMENT: usize = 64;
/// The offsets in a slab's description at which its counts and bitmaps may begin.
const FIGURES_AT: std::ops::RangeInclusive<usize> = 64..=160;
/// The size in bytes of the counts and bitmaps in a slab's description.
const FIGURES: usize = 8 * (3 + 2 * WORDS);
const BYTES: usize = 160 + FIGURES;
/// The largest number of bytes that are requested from the kernel at once (`HPA_EDEN_SIZE`).
const LARGEST_EDEN: u64 = 128 * HUGE;
const WINDOW: usize = 1 << 20;

/// A slab of 2 MiB. `active` has a bit for each page that has an extent, `touched` a bit for each page that was
/// touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HugeSlab {
    pub(crate) start: u64,
    active: [u64; WORDS],
    touched: [u64; WORDS],
}

/// The state of a page without an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreePageState {
    /// An extent is being made from the page, or removed from it, at this moment.
    Moving,
    Dirty,
    GivenBack,
}

fn is_set(words: &[u64; WORDS], page: usize) -> bool {
    words[page / 64] >> (page % 64) & 1 == 1
}

fn longest_free(active: &[u64; WORDS]) -> u64 {
    let (mut longest, mut length) = (0, 0);
    for page in 0..PAGES {
        length = if is_set(active, page) { 0 } else { length + 1 };
        longest = longest.max(length);
    }
    longest
}

impl HugeSlab {
    /// Parse the slab description at the start of `bytes`. None if its counts and bitmaps contradict each other.
    fn of(bytes: &[u8]) -> Option<HugeSlab> {
        let start = u64_at(bytes, 0);
        if start == 0 || start % HUGE != 0 {
            return None;
        }
        FIGURES_AT.step_by(8).find_map(|at| {
            let words = |from: usize| std::array::from_fn(|place| u64_at(bytes, from + 8 * place));
            let (active, touched): ([u64; WORDS], [u64; WORDS]) = (words(at + 16), words(at + 24 + 8 * WORDS));
            let ones = |words: &[u64; WORDS]| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            let agrees = ones(&active) == u64_at(bytes, at + 8)
                && ones(&touched) == u64_at(bytes, at + 16 + 8 * WORDS)
                && active.iter().zip(&touched).all(|(one, other)| one & !other == 0)
                && longest_free(&active) == u64_at(bytes, at);
            agrees.then_some(HugeSlab { start, active, touched })
        })
    }

    /// Show the slab's pages outside `taken` (ascending) as ranges [start, end). Adjacent pages in the same state form
    /// one range.
    pub(crate) fn show_unused(
        &self,
        page: PageSize,
        taken: &[(u64, u64)],
        mut show: impl FnMut(u64, u64, FreePageState),
    ) {
        let of = |number: usize| match (is_set(&self.active, number), is_set(&self.touched, number)) {
            (true, _) => FreePageState::Moving,
            (_, true) => FreePageState::Dirty,
            _ => FreePageState::GivenBack,
        };
        let address = |number: usize| self.start + number as u64 * page.bytes();
        let is_taken = |number: usize| {
            let place = taken.partition_point(|(_, end)| *end <= address(number));
            taken.get(place).is_some_and(|(start, _)| *start <= address(number))
        };
        let mut from = 0;
        while from < PAGES {
            let what = (!is_taken(from)).then(|| of(from));
            let to = (from..PAGES).find(|number| (!is_taken(*number)).then(|| of(*number)) != what).unwrap_or(PAGES);
            what.into_iter().for_each(|what| show(address(from), address(to), what));
            from = to;
        }
    }
}

/// Return all slabs of one jemalloc, by start address. `own`: the ranges [start, end) of jemalloc's own memory.
pub(crate) fn find_slabs(space: &Space, own: &[(u64, u64)]) -> BTreeMap<u64, HugeSlab> {
    let (mut found, mut bytes) = (BTreeMap::new(), vec![0; WINDOW]);
    for (start, end) in own.iter().copied() {
        let (mut left, mut next): (Vec<u8>, u64) = (Vec::new(), 0);
        space.show(start, end, &mut bytes, |at, piece| {
            if next != at {
                left.clear();
            }
            left.extend_from_slice(piece);
            next = at + piece.len() as u64;
            let first = next - left.len() as u64;
            let mut place = first.next_multiple_of(ALIGNMENT as u64) as usize - first as usize;
            while place + BYTES <= left.len() {
                let slab = HugeSlab::of(&left[place..]).filter(|slab| space.covers(slab.start, HUGE));
                found.extend(slab.map(|slab| (slab.start, slab)));
                place += ALIGNMENT;
            }
            left.drain(..place.min(left.len()));
        });
    }
    found
}

/// Return [start, end) of the ranges that are not cut into slabs yet. Static data has their addresses and sizes, and
/// each begins where a known slab ends.
pub(crate) fn find_edens(space: &Space, data: &[(u64, u64)], slabs: &BTreeMap<u64, HugeSlab>) -> Vec<(u64, u64)> {
    let (mut found, mut bytes) = (Vec::new(), vec![0; WINDOW]);
    for (start, end) in data.iter().copied() {
        let mut last = 0;
        space.show(start, end, &mut bytes, |_, piece| {
            for word in piece.chunks_exact(8).map(|word| u64_at(word, 0)) {
                let is_size = word > 0 && word % HUGE == 0 && word <= LARGEST_EDEN;
                let follows = last >= HUGE && last % HUGE == 0 && slabs.contains_key(&(last - HUGE));
                if is_size && follows && !slabs.contains_key(&last) && space.covers(last, word) {
                    found.push((last, last + word));
                }
                last = word;
            }
        });
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(slab: &HugeSlab, longest: u64) -> Vec<u8> {
        let mut words = vec![slab.start];
        words.extend([0; 11]);
        let ones = |words: &[u64; WORDS]| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        words.extend([longest, ones(&slab.active)]);
        words.extend(slab.active);
        words.push(ones(&slab.touched));
        words.extend(slab.touched);
        words.resize(BYTES / 8, 0);
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// Check that the bits of a page determine its state, and that pages in known extents are left out.
    #[test]
    fn unused() {
        let mut slab = HugeSlab { start: 5 * HUGE, active: [0; WORDS], touched: [0; WORDS] };
        (slab.active[0], slab.touched[0]) = (0b0011, 0b0111);
        let bytes = bytes_of(&slab, 510);
        assert_eq!(HugeSlab::of(&bytes), Some(slab));
        assert_eq!(HugeSlab::of(&bytes_of(&slab, 509)), None);
        let (page, mut rows) = (PageSize::new(4096).expect("a size"), Vec::new());
        slab.show_unused(page, &[(slab.start, slab.start + 4096)], |start, end, what| {
            rows.push((start - slab.start, end - slab.start, what));
        });
        let rest = (3 << 12, HUGE, FreePageState::GivenBack);
        assert_eq!(rows, [(4096, 8192, FreePageState::Moving), (8192, 3 << 12, FreePageState::Dirty), rest]);
    }
}
