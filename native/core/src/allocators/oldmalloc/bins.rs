//! Check the bins of musl's malloc before 1.2.1: every free chunk must be in a bin, and every chunk in a bin must be
//! free. The links come from the pass over all chunks. If all links agree at both ends, the bins are right. This test
//! would miss only a ring of chunks without a bin, and a single wrong word cannot cause such a ring. If links disagree,
//! all lists are followed, one step of each in turn, so that the waits for memory overlap.

use crate::allocators::damage::Damage;
use crate::allocators::oldmalloc::chunks::Oldmalloc;
use crate::allocators::oldmalloc::layout::{ring, BIN, BINMAP, BINS, GRAIN, HEAD, HEADER, MAL, TAIL};
use crate::bits::{get, members_of, set};
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;

pub(super) const MAX_DAMAGE: usize = 1000;
/// The number of steps on each list between two checks for cancellation.
const STEPS: usize = 1 << 11;
/// The number of links that one worker looks up at a time.
const PIECE: usize = 1 << 16;
/// The flag of a link to a free chunk. The other bits of such a link are the chunk's index among the free chunks. The
/// flag is unambiguous, because no chunk has an odd address.
const PLACE: u64 = 1;

/// A checksum that compares the links `next` of chunks and bins with their links `previous`. It is the sum of the
/// hashes of the links `next`, minus the sum for the links `previous`. The checksum is zero if all links agree, and
/// None if not all links are known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Balance(Option<u64>);

/// The links `next` of all free chunks, and the checksum of all links.
#[derive(Default)]
pub(super) struct ChunkLinks {
    /// The words `next` of the free chunks, in the order of the chunks, in several vectors.
    next: Vec<Vec<u64>>,
    balance: Balance,
}

/// A map from the number of a free chunk to the chunk's index among the free chunks. Each entry has one word of bits
/// and the count of set bits before it. The two are stored together because links jump anywhere and each look-up waits
/// for memory.
struct ChunkIndex(Vec<(u64, u64)>);

/// The progress of following one list: the chunk that comes next.
struct Cursor {
    ring: u64,
    at: u64,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance(Some(0))
    }
}

impl Balance {
    /// The checksum if not all links are known.
    pub(super) const UNKNOWN: Balance = Balance(None);

    /// Add both links of a chunk to the checksum.
    #[inline]
    pub(super) fn add(&mut self, chunk: u64, next: u64, previous: u64) {
        self.0 = self.0.map(|sum| sum.wrapping_add(hash(chunk, next)).wrapping_sub(hash(previous, chunk)));
    }

    fn join(&mut self, other: Balance) {
        self.0 = self.0.zip(other.0).map(|(one, two)| one.wrapping_add(two));
    }
}

/// Return the hash of the link from one chunk to another. The reverse link has a different hash.
#[inline]
fn hash(from: u64, to: u64) -> u64 {
    let mixed = (from ^ to.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd)
}

impl ChunkLinks {
    pub(super) fn add(&mut self, next: Vec<u64>, balance: Balance) {
        self.next.push(next);
        self.balance.join(balance);
    }
}

impl ChunkIndex {
    fn new(free: impl Iterator<Item = u64>) -> ChunkIndex {
        let mut sum = 0;
        let with_sum = |word: u64| {
            sum += u64::from(word.count_ones());
            (word, sum - u64::from(word.count_ones()))
        };
        ChunkIndex(free.map(with_sum).collect())
    }

    fn place(&self, number: u64) -> Option<u64> {
        let ((word, before), bit) = (*self.0.get((number / 64) as usize)?, number % 64);
        (word >> bit & 1 == 1).then(|| before + u64::from((word & ((1 << bit) - 1)).count_ones()))
    }

    /// Return the numbers of the free chunks, ascending.
    fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        (0..).zip(&self.0).flat_map(|(index, (word, _))| members_of(*word).map(move |bit| index * 64 + bit))
    }
}

impl Oldmalloc {
    pub(super) fn compare_bins(
        &mut self,
        watcher: &dyn Watcher,
        space: &Space,
        mal: u64,
        linked: ChunkLinks,
    ) -> Result<()> {
        let mut bytes = [0; MAL];
        space.exact(mal, &mut bytes)?;
        let word = |bin: usize, at: usize| u64_at(&bytes, BINMAP + bin * BIN + at);
        let mut balance = linked.balance;
        // The links of a bin that was never used are both zero.
        for bin in (0..BINS).filter(|bin| word(*bin, HEAD) != 0) {
            balance.add(ring(mal, bin), word(bin, HEAD), word(bin, TAIL));
        }
        if balance == Balance::default() {
            return Ok(());
        }
        let places = ChunkIndex::new(self.starts.words().iter().zip(self.used.words()).map(|(one, two)| one & !two));
        let link = |address: u64| {
            let place = self.number_from(address).and_then(|number| places.place(number));
            place.map_or(address & !PLACE, |place| place << 1 | PLACE)
        };
        let jobs: Vec<(usize, &[u64])> = linked.next.iter().flat_map(|piece| piece.chunks(PIECE)).enumerate().collect();
        let found = space.task(watcher, None).run(&jobs, Vec::new, |found, (number, words), control| {
            found.push((*number, words.iter().map(|word| link(*word)).collect::<Vec<u64>>()));
            control.advance(0)
        })?;
        let mut pieces: Vec<(usize, Vec<u64>)> = found.into_iter().flatten().collect();
        pieces.sort_unstable_by_key(|(number, _)| *number);
        let links = pieces.into_iter().map(|(_, words)| words).collect::<Vec<_>>().concat();
        let head = |bin: usize| link(word(bin, HEAD));
        let mut cursors: Vec<Cursor> = (0..BINS).map(|bin| Cursor { ring: ring(mal, bin), at: head(bin) }).collect();
        let mut seen = vec![0; links.len().div_ceil(64)];
        let mut wrong: Vec<u64> = Vec::new();
        while !cursors.is_empty() {
            watcher.check()?;
            for _ in 0..STEPS {
                cursors.retain_mut(|cursor| cursor.goes_on(&links, &mut seen, &mut wrong));
            }
        }
        let address = |number: u64| self.block_of(number).address - HEADER;
        let lost = places.numbers().zip(0..).filter(|(_, place)| !get(&seen, *place)).map(|(number, _)| number);
        let lost = lost.take(MAX_DAMAGE).map(address);
        let lost = lost.map(|at| Damage::new(at, "free chunk", "in a bin", "in no bin"));
        let wrong = wrong.into_iter().map(|at| match at & PLACE {
            0 => at,
            _ => places.numbers().nth((at >> 1) as usize).map_or(0, address),
        });
        let wrong = wrong
            .map(|at| Damage::new(at, "list of a bin", "free chunks, each once", "another word, or a chunk twice"));
        let found: Vec<Damage> = wrong.chain(lost).collect();
        self.unbinned.extend(found);
        Ok(())
    }

    /// Return the number of the chunk that begins at `address`; None if no chunk can begin there.
    fn number_from(&self, address: u64) -> Option<u64> {
        let stretch = self.stretch_at(address).filter(|one| (address - one.start) % GRAIN == 0)?;
        Some(stretch.number(address))
    }
}

impl Cursor {
    /// Follow one link from the cursor's position. Return whether there is another link to follow.
    fn goes_on(&mut self, links: &[u64], seen: &mut [u64], wrong: &mut Vec<u64>) -> bool {
        if self.at == self.ring || self.at == 0 {
            return false;
        }
        let place = self.at >> 1;
        if self.at & PLACE == 0 || get(seen, place) {
            wrong.push(self.at);
            return false;
        }
        set(seen, place);
        self.at = links.get(place as usize).copied().unwrap_or(0);
        true
    }
}
