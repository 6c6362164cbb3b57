//! The doubly linked lists of free chunks: which bin each free chunk is in, and whether every link is as it must be.
//!
//! A free chunk's first words are `fd` and `bk`; one in a large bin that is the first of its size has `fd_nextsize` and
//! `bk_nextsize` behind them. Bin n is the ring through a head that overlays `malloc_state.bins`, as if a chunk began 16
//! bytes before its pair of words: 1 is the unsorted bin, 2 to 63 are small ones of one size each, 64 to 126 large ones.

use crate::allocators::damage::{hex, Damage};
use crate::allocators::glibc::chunks::{Chunks, Region, State, GRAIN, NON_MAIN_ARENA};
use crate::allocators::glibc::lists::PageIndex;
use crate::allocators::tally::Tally;
use crate::bytes::u64_at;
use crate::error::{Cancelled, Result};
use crate::memory::space::Space;
use crate::memory::window::Window;
use crate::work::{Control, Watcher};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};

const BINS: u64 = 127;
const CHECK_STEPS: u64 = 4 << 10;
const UNSORTED: u64 = 1;
const SMALL_BINS: u64 = 64;
const SLICE: u64 = 32 << 20;
const MOST_DAMAGE: usize = 1000;
const IS_MMAPPED: u64 = 2;
const NO_BIN: u8 = 0;
/// Marks the number of a bin among numbers of chunks.
const HEAD: u32 = 1 << 31;
const LINKS_AT_ONCE: usize = 1 << 14;

/// The bin of free chunks of a size, once they are sorted (glibc's `largebin_index_64`, the same since 2.17).
fn bin_of(size: u64) -> u64 {
    match size {
        0..0x400 => size / GRAIN,
        _ if size >> 6 <= 48 => 48 + (size >> 6),
        _ if size >> 9 <= 20 => 91 + (size >> 9),
        _ if size >> 12 <= 10 => 110 + (size >> 12),
        _ if size >> 15 <= 4 => 119 + (size >> 15),
        _ if size >> 18 <= 2 => 124 + (size >> 18),
        _ => 126,
    }
}

/// The size of the smallest chunk that is sorted into each bin; 0 for 0, which is no bin, and for the unsorted one.
pub fn least_sizes() -> Vec<u64> {
    let mut least = vec![0; BINS as usize];
    let mut size = UNSORTED.wrapping_add(1).wrapping_mul(GRAIN);
    while least.last() == Some(&0) {
        if let Some(first @ 0) = least.get_mut(bin_of(size) as usize) {
            *first = size;
        }
        size = size.wrapping_add(GRAIN);
    }
    least
}

/// A free chunk with its links.
struct Free {
    address: u64,
    size: u64,
    fd: u64,
    bk: u64,
}

/// A chunk that is the first of its size in a large bin.
struct Skip {
    address: u64,
    fd: u64,
    bk: u64,
}

/// What is collected from one slice of a region, or from a whole one.
#[derive(Default)]
struct Found {
    region: usize,
    from: u64,
    free: Vec<Free>,
    skips: Vec<Skip>,
    damage: Vec<Damage>,
}

/// The free chunks of one region; they are numbered over all regions, from `first` on here.
struct Shelf {
    arena: u32,
    first: usize,
    free: Vec<Free>,
    /// The bin of each.
    bins: Vec<AtomicU8>,
    skips: Vec<Skip>,
    index: PageIndex,
}

impl Shelf {
    fn place(&self, address: u64) -> Option<usize> {
        let from = self.index.place(address)?;
        let place = from + self.free[from..].iter().position(|free| free.address >= address)?;
        (self.free[place].address == address).then_some(place)
    }

    fn bin(&self, place: usize) -> u8 {
        self.bins[place].load(Ordering::Relaxed)
    }

    /// The bin of the chunk at `address`; None for what is no free chunk.
    fn bin_at(&self, address: u64) -> Option<u8> {
        self.place(address).map(|place| self.bin(place))
    }

    fn skip(&self, address: u64) -> Option<&Skip> {
        self.skips.binary_search_by_key(&address, |skip| skip.address).ok().map(|place| &self.skips[place])
    }
}

struct Slice {
    region: usize,
    from: u64,
    to: u64,
}

/// Reads the header and the links of every chunk in a slice.
fn collect(space: &Space, chunks: &Chunks, slice: &Slice, control: &Control) -> Result<Found, Cancelled> {
    let region = &chunks.regions[slice.region];
    let mut window = Window::new(space, region.stretch.end);
    let mut found = Found { region: slice.region, from: slice.from, ..Found::default() };
    let mut reported = slice.from;
    for (start, end, state) in region.blocks(slice.from, slice.to) {
        if start - reported >= 1 << 20 {
            control.advance(start - reported)?;
            reported = start;
        }
        match state {
            State::Free => {
                let words = window.available(start + 16, 32.min((end - start - 16) as usize));
                let (fd, bk) = (u64_at(words, 0), u64_at(words, 8));
                let (next, last) = (u64_at(words, 16), u64_at(words, 24));
                if end - start >= 0x400 && next != 0 {
                    found.skips.push(Skip { address: start, fd: next, bk: last });
                }
                found.free.push(Free { address: start, size: end - start, fd, bk });
            }
            State::Used | State::Tcache | State::Fast => {
                let flags = window.word(start + 8).unwrap_or(0) & (IS_MMAPPED | NON_MAIN_ARENA);
                let expected = if region.stretch.arena == 0 { 0 } else { NON_MAIN_ARENA };
                if flags != expected && found.damage.len() < MOST_DAMAGE {
                    found.damage.push(Damage::new(start, "flags of a chunk in use", hex(expected), hex(flags)));
                }
            }
            _ => {}
        }
    }
    control.advance(slice.to.saturating_sub(reported))?;
    Ok(found)
}

/// One way round a bin.
#[derive(Clone, Copy)]
struct Direction {
    on: fn(&Free) -> u64,
    back: fn(&Free) -> u64,
    /// Of the link in a chunk, or in the bin's head as if that were one.
    offset: u64,
    leads_astray: &'static str,
    not_back: &'static str,
    is_second: bool,
}

const FORWARD: Direction = Direction {
    on: |chunk| chunk.fd,
    back: |chunk| chunk.bk,
    offset: 16,
    leads_astray: "fd in a bin",
    not_back: "bk of a free chunk",
    is_second: false,
};
const BACKWARD: Direction = Direction {
    on: |chunk| chunk.bk,
    back: |chunk| chunk.fd,
    offset: 24,
    leads_astray: "bk in a bin",
    not_back: "fd of a free chunk",
    is_second: true,
};

/// Which arena has its bins where: the address of `malloc_state.bins`.
#[derive(Clone, Copy)]
struct Ring {
    arena: u32,
    bin: u64,
    head: u64,
}

struct Rings<'a> {
    space: &'a Space,
    chunks: &'a Chunks,
    shelves: &'a [Shelf],
}

impl Ring {
    /// The head overlays the pair of words of the bin, as if a chunk began 16 bytes before it.
    fn new(arena: u32, bins: u64, bin: u64) -> Ring {
        Ring { arena, bin, head: bins.wrapping_add((bin - 1) * 16).wrapping_sub(16) }
    }
}

impl Shelf {
    /// Whether each chunk is in the bin of its size, or in the unsorted one.
    fn is_sorted(&self) -> bool {
        let is_right = |(place, free): (usize, &Free)| {
            let bin = u64::from(self.bin(place));
            bin == UNSORTED || bin == u64::from(NO_BIN) || bin == bin_of(free.size)
        };
        self.free.iter().enumerate().all(is_right)
    }
}

impl Rings<'_> {
    /// Where a chunk's `fd` leads: see `look_up_links`. `bins`: where its arena has its bins.
    #[inline(always)]
    fn link(&self, arena: u32, bins: u64, free: &Free) -> Option<u32> {
        let behind = free.fd.wrapping_sub(Ring::new(arena, bins, 1).head);
        if behind < (BINS - 1) * 16 && behind % 16 == 0 {
            return Some(HEAD | (behind / 16 + 1) as u32);
        }
        let (shelf, place) = self.find(arena, free.fd)?;
        (shelf.free[place].bk == free.address).then_some((shelf.first + place) as u32)
    }

    /// Goes round one ring by numbers; whether it leads back to its head, and both ends to the same chunks.
    fn follow_numbers(&self, ring: Ring, next: &[u32], control: &Control) -> Result<bool, Cancelled> {
        let (Ok(first), Ok(last)) =
            (self.space.word(ring.head.wrapping_add(16)), self.space.word(ring.head.wrapping_add(24)))
        else {
            return Ok(false);
        };
        if first == ring.head {
            return Ok(last == ring.head);
        }
        let Some((shelf, place)) = self.find(ring.arena, first) else { return Ok(false) };
        if shelf.free[place].bk != ring.head {
            return Ok(false);
        }
        let (mut at, mut steps) = ((shelf.first + place) as u32, 0u64);
        loop {
            let (shelf, place) = self.of_number(at);
            if shelf.bins[place].swap(ring.bin as u8, Ordering::Relaxed) != NO_BIN {
                return Ok(false);
            }
            let following = next[at as usize];
            if following & HEAD != 0 {
                return Ok(u64::from(following ^ HEAD) == ring.bin && shelf.free[place].address == last);
            }
            at = following;
            steps += 1;
            if steps % 65536 == 0 {
                control.advance(0)?;
            }
        }
    }

    fn of_number(&self, number: u32) -> (&Shelf, usize) {
        let index = self.shelves.partition_point(|shelf| shelf.first <= number as usize) - 1;
        (&self.shelves[index], number as usize - self.shelves[index].first)
    }

    fn find(&self, arena: u32, address: u64) -> Option<(&Shelf, usize)> {
        let shelf = &self.shelves[self.chunks.region_of(address)?];
        (shelf.arena == arena).then(|| shelf.place(address)).flatten().map(|place| (shelf, place))
    }

    /// Goes round one ring, forward by `fd` and, where that leads astray, back by `bk`.
    fn follow(&self, ring: Ring, control: &Control) -> Result<Vec<Damage>, Cancelled> {
        let mut found = Vec::new();
        let (Ok(first), Ok(last)) =
            (self.space.word(ring.head.wrapping_add(16)), self.space.word(ring.head.wrapping_add(24)))
        else {
            return Ok(vec![Damage::new(ring.head, "head of a bin", "bytes that can be read", "absent bytes")]);
        };
        let end = self.go(ring, first, FORWARD, &mut found, control)?;
        if let Some(end) = end {
            if last != end {
                found.push(Damage::new(ring.head.wrapping_add(24), "bk of a bin", hex(end), hex(last)));
            }
            return Ok(found);
        }
        self.go(ring, last, BACKWARD, &mut found, control)?;
        Ok(found)
    }

    /// Follows the links one way from the head; returns the last chunk if they lead back to the head.
    #[inline(always)]
    fn go(
        &self,
        ring: Ring,
        first: u64,
        way: Direction,
        found: &mut Vec<Damage>,
        control: &Control,
    ) -> Result<Option<u64>, Cancelled> {
        let (mut before, mut at) = (ring.head, first);
        let mut steps = 0u64;
        while at != ring.head {
            let Some((shelf, place)) = self.find(ring.arena, at) else {
                found.push(Damage::new(
                    before.wrapping_add(way.offset),
                    way.leads_astray,
                    "a free chunk of this arena",
                    hex(at),
                ));
                return Ok(None);
            };
            let chunk = &shelf.free[place];
            if shelf.bins[place].swap(ring.bin as u8, Ordering::Relaxed) != NO_BIN {
                // Going back ends where going forward did.
                if !way.is_second {
                    found.push(Damage::new(at, "free chunk", "in one bin, once", format!("again in bin {}", ring.bin)));
                }
                return Ok(None);
            }
            if (way.back)(chunk) != before {
                found.push(Damage::new(at, way.not_back, hex(before), hex((way.back)(chunk))));
            }
            if ring.bin != UNSORTED && bin_of(chunk.size) != ring.bin {
                let expected = format!("bin {}", bin_of(chunk.size));
                found.push(Damage::new(at, "bin of a free chunk", expected, format!("bin {}", ring.bin)));
            }
            (before, at) = (at, (way.on)(chunk));
            steps += 1;
            if steps % CHECK_STEPS == 0 {
                control.advance(0)?;
            }
            if found.len() >= MOST_DAMAGE {
                return Ok(None);
            }
        }
        Ok(Some(before))
    }
}

/// Free chunks in no bin, and links between sizes that do not lead back.
fn check_shelf(shelf: &Shelf, chunks: &Chunks, shelves: &[Shelf], found: &mut Vec<Damage>) {
    let most = |found: &Vec<Damage>| found.len() < MOST_DAMAGE;
    for (_, free) in shelf.free.iter().enumerate().filter(|(place, _)| shelf.bin(*place) == NO_BIN) {
        if most(found) {
            found.push(Damage::new(free.address, "free chunk", "in a bin of its arena", "in none"));
        }
    }
    for skip in &shelf.skips {
        let bin = shelf.bin_at(skip.address).unwrap_or(NO_BIN);
        if u64::from(bin) < SMALL_BINS || !most(found) {
            continue;
        }
        let other = |address| shelves[chunks.region_of(address)?].skip(address);
        if other(skip.fd).map(|next| next.bk) != Some(skip.address) {
            found.push(Damage::new(
                skip.address,
                "fd_nextsize",
                "the first chunk of another size, linked back",
                hex(skip.fd),
            ));
        }
        if other(skip.bk).map(|last| last.fd) != Some(skip.address) {
            found.push(Damage::new(
                skip.address,
                "bk_nextsize",
                "the first chunk of another size, linked back",
                hex(skip.bk),
            ));
        }
    }
}

/// Which bin each free chunk is in.
pub struct Bins {
    shelves: Vec<Shelf>,
    starts: Vec<(u64, u64)>,
    /// What is wrong with links and flags.
    pub damage: Vec<Damage>,
}

impl Bins {
    /// `(arena, bin, chunks)` of every bin that is not empty; bin 0: free chunks that are in none.
    pub fn rows(&self) -> Vec<(u32, u64, Tally)> {
        let mut rows: BTreeMap<(u32, u64), Tally> = BTreeMap::new();
        for shelf in &self.shelves {
            for (place, free) in shelf.free.iter().enumerate() {
                rows.entry((shelf.arena, u64::from(shelf.bin(place)))).or_default().add(free.size);
            }
        }
        rows.into_iter().map(|((arena, bin), tally)| (arena, bin, tally)).collect()
    }

    /// The bin of a free chunk; None for what is no free chunk, 0 for one that is in no bin.
    pub fn find(&self, chunk: u64) -> Option<u8> {
        let place = self.starts.partition_point(|(_, end)| *end <= chunk);
        self.shelves.get(place)?.bin_at(chunk)
    }
}

/// Follows the bins of every arena. `heads`: the address of each arena's `malloc_state.bins`, by arena; 0: not looked at.
pub fn follow_bins(watcher: &dyn Watcher, space: &Space, chunks: &Chunks, heads: &[u64]) -> Result<Bins> {
    let (shelves, mut damage) = shelves_of(watcher, space, chunks)?;
    let rings = Rings { space, chunks, shelves: &shelves };
    let jobs: Vec<Ring> = heads
        .iter()
        .enumerate()
        .filter(|(_, bins)| **bins != 0)
        .flat_map(|(arena, bins)| (1..BINS).map(move |bin| Ring::new(arena as u32, *bins, bin)))
        .collect();
    if !follow_sound(watcher, &rings, heads, &jobs)? {
        shelves.iter().flat_map(|shelf| &shelf.bins).for_each(|bin| bin.store(NO_BIN, Ordering::Relaxed));
        let work = |found: &mut Vec<Damage>, ring: &Ring, control: &Control| {
            found.extend(rings.follow(*ring, control)?);
            Ok(())
        };
        damage.extend(space.task(watcher, None).run(&jobs, Vec::new, work)?.into_iter().flatten());
    }
    shelves.iter().for_each(|shelf| check_shelf(shelf, chunks, &shelves, &mut damage));
    damage.sort_by_key(|damage| damage.address);
    damage.truncate(MOST_DAMAGE);
    let starts = chunks.regions.iter().map(|region| (region.stretch.start, region.stretch.end)).collect();
    Ok(Bins { shelves, starts, damage })
}

/// Follows all rings the quick way; false as soon as anything is not as it must be, and then no bin means anything.
///
/// From chunk to chunk a ring leads anywhere in memory, and each step waits for the one before it. So all links are
/// looked up first, in the order of the chunks and on all cores, where no step waits for another; what is left to be
/// followed are numbers close together.
fn follow_sound(watcher: &dyn Watcher, rings: &Rings<'_>, heads: &[u64], jobs: &[Ring]) -> Result<bool> {
    let Some(next) = look_up_links(watcher, rings, heads)? else { return Ok(false) };
    let work = |sound: &mut bool, ring: &Ring, control: &Control| {
        *sound = *sound && rings.follow_numbers(*ring, &next, control)?;
        Ok(())
    };
    let sound = rings.space.task(watcher, None).run(jobs, || true, work)?.into_iter().all(|sound| sound);
    Ok(sound && rings.shelves.iter().all(Shelf::is_sorted))
}

/// Of each free chunk, by its number, where `fd` leads: the number of a chunk that leads back, or HEAD and a bin's number.
/// None if one leads anywhere else.
fn look_up_links(watcher: &dyn Watcher, rings: &Rings<'_>, heads: &[u64]) -> Result<Option<Vec<u32>>> {
    let count: usize = rings.shelves.iter().map(|shelf| shelf.free.len()).sum();
    if count >= HEAD as usize {
        return Ok(None);
    }
    let parts = |(number, shelf): (usize, &Shelf)| {
        let last = shelf.free.len();
        (0..last).step_by(LINKS_AT_ONCE).map(move |from| (number, from, last.min(from + LINKS_AT_ONCE)))
    };
    let jobs: Vec<_> = rings.shelves.iter().enumerate().flat_map(parts).collect();
    let work = |done: &mut Vec<(usize, Option<Vec<u32>>)>, &(number, from, to): &(usize, usize, usize), _: &Control| {
        let shelf = &rings.shelves[number];
        let head = heads.get(shelf.arena as usize).copied().unwrap_or(0);
        let links = shelf.free[from..to].iter().map(|free| rings.link(shelf.arena, head, free)).collect();
        done.push((shelf.first + from, links));
        Ok(())
    };
    let mut found: Vec<_> = rings.space.task(watcher, None).run(&jobs, Vec::new, work)?.into_iter().flatten().collect();
    found.sort_by_key(|(first, _)| *first);
    let links: Option<Vec<Vec<u32>>> = found.into_iter().map(|(_, links)| links).collect();
    Ok(links.map(|links| links.concat()))
}

fn shelves_of(watcher: &dyn Watcher, space: &Space, chunks: &Chunks) -> Result<(Vec<Shelf>, Vec<Damage>)> {
    let slices = |(region, walked): (usize, &Region)| {
        let (start, end) = (walked.stretch.start, walked.stretch.end);
        (start..end).step_by(SLICE as usize).map(move |from| Slice { region, from, to: end.min(from + SLICE) })
    };
    let jobs: Vec<Slice> = chunks.regions.iter().enumerate().flat_map(slices).collect();
    let total = jobs.iter().map(|slice| slice.to - slice.from).sum();
    let work = |done: &mut Vec<Found>, slice: &Slice, control: &Control| {
        done.push(collect(space, chunks, slice, control)?);
        Ok(())
    };
    let mut found: Vec<Found> =
        space.task(watcher, Some(total)).run(&jobs, Vec::new, work)?.into_iter().flatten().collect();
    found.sort_by_key(|found| (found.region, found.from));
    let mut shelves: Vec<Found> = chunks.regions.iter().map(|_| Found::default()).collect();
    let mut damage = Vec::new();
    for part in found {
        let shelf = &mut shelves[part.region];
        shelf.free.extend(part.free);
        shelf.skips.extend(part.skips);
        damage.extend(part.damage);
    }
    let mut first = 0;
    let shelf = |(region, found): (&Region, Found)| {
        let index = PageIndex::new(region.stretch.start, found.free.iter().map(|free| free.address));
        let bins = found.free.iter().map(|_| AtomicU8::new(NO_BIN)).collect();
        let shelf = Shelf { arena: region.stretch.arena, first, free: found.free, bins, skips: found.skips, index };
        first += shelf.free.len();
        shelf
    };
    Ok((chunks.regions.iter().zip(shelves).map(shelf).collect(), damage))
}
