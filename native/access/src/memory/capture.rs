//! A copy of the private memory of a process. It is taken while the process is stopped, so that the process can run
//! while gdbheap computes.

use crate::bytes::{append, range_at, u64_at};
use crate::error::{Cancellation, Result};
use crate::memory::own::thread_time;
use crate::patient::RunningMemory;
use crate::work::{Control, Task};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

const PIECE: u64 = 1 << 20;
const SMALL: u64 = 4 << 10;
const WORD: u64 = 8;
/// The size in bytes of the units that a copy may leave out. A unit of this size without a pointer is probably pure
/// data.
const UNIT: usize = 64 << 10;
/// A word below this number may be a size.
///
/// Even if a unit is left out, its words that may be sizes are stored, with the words next to them.
const SMALL_NUMBER: u64 = 1 << 40;
/// A unit is left out only if at most one word for every `KEPT_PART` bytes must be stored.
const KEPT_PART: usize = 64;
/// The number of words after a possible size that are stored with it.
const BEHIND: usize = 2;
const MADV_POPULATE_WRITE: libc::c_int = 23;
/// The number of bytes of a buffer that are populated at once.
const POPULATED: usize = 16 << 20;
/// The CPU time for POPULATED bytes above which huge pages are not faster than small pages. It corresponds to 2 GiB/s.
/// Small pages were populated at 2.2 to 2.9 GiB/s. Huge pages were populated at 8 to 10 GiB/s, or at 0.3 to 0.6 GiB/s
/// if the host had taken them back.
const POPULATION_TIME: Duration = Duration::from_micros(7_800);

/// A buffer in this process whose pages are already resident, because the first access to a page takes longer than
/// filling the page.
pub struct Room {
    start: usize,
    size: usize,
}

// SAFETY: only `Capture::take` writes to the mapping, in disjoint pieces, and afterwards it is only read.
unsafe impl Send for Room {}
// SAFETY: as above.
unsafe impl Sync for Room {}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and nothing has a reference into it any more.
        unsafe { libc::munmap(self.start as *mut _, self.size) };
    }
}

impl Room {
    /// Allocate a buffer of `size` bytes. Fails if there is not enough memory.
    pub fn new(size: usize) -> Result<Room> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let size = size.max(SMALL as usize);
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        let room = Room { start: start as usize, size };
        room.populate();
        Ok(room)
    }

    /// Have the kernel provide the buffer's pages: huge ones as long as they do not take longer than small ones would.
    ///
    /// In a virtual machine, the host may take back free memory, in large pieces. A huge page may then cost 16 times as
    /// much as its small pages.
    fn populate(&self) {
        let (mut at, mut advice) = (self.start, libc::MADV_HUGEPAGE);
        while at < self.start + self.size {
            let (began, piece) = (thread_time(), POPULATED.min(self.start + self.size - at));
            // SAFETY: advice about a part of this mapping. A kernel that does not know it provides the pages when they
            // are written.
            unsafe {
                libc::madvise(at as *mut _, piece, advice);
                libc::madvise(at as *mut _, piece, MADV_POPULATE_WRITE);
            }
            if thread_time() - began > POPULATION_TIME {
                advice = libc::MADV_NOHUGEPAGE;
            }
            at += piece;
        }
    }

    /// Return to the kernel the memory of the buffer after its first `used` bytes.
    fn give_back(&self, used: usize) {
        let used = used.next_multiple_of(SMALL as usize);
        if used < self.size {
            // SAFETY: nothing of the buffer after `used` is read or written any more.
            unsafe { libc::madvise((self.start + used) as *mut _, self.size - used, libc::MADV_DONTNEED) };
        }
    }
}

/// A range of addresses that is to be copied. `place`: the offset in the buffer to which its bytes are copied.
struct Piece {
    start: u64,
    end: u64,
    place: usize,
}

/// A range of copied addresses. `place`: the offset of its bytes in the buffer; None if all its bytes are zeros.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    place: Option<usize>,
}

/// An order to copy memory. All lists of ranges are ascending and disjoint.
///
/// - `ranges`: the mappings of the process.
/// - `stretches`: the parts of the mappings that have bytes to copy.
/// - `known`: the ranges into which pointers may point.
/// - `read`: a function that fills a prefix of a buffer with the bytes at an address.
/// - `is_over`: a function that returns whether the process was released. After that, nothing more may be read.
pub(crate) struct CopyOrder<'a, R, O> {
    pub(crate) ranges: &'a [(u64, u64)],
    pub(crate) stretches: &'a [(u64, u64)],
    pub(crate) known: &'a [(u64, u64)],
    pub(crate) read: R,
    pub(crate) is_over: O,
}

/// A unit that was left out because it has no pointers. Its words that may be sizes are stored. `place`: the offset of
/// these words in the buffer; `count`: their number.
#[derive(Clone, Copy)]
struct SkippedUnit {
    start: u64,
    end: u64,
    place: usize,
    count: usize,
}

/// A stored word of a unit that was left out: the word's address, and its value.
type KeptWord = [u64; 2];

/// One worker's part of a copy. Its entries are not in the order of addresses.
#[derive(Default)]
struct CopiedPart {
    buffer: Vec<u8>,
    runs: Vec<Run>,
    blank: Vec<SkippedUnit>,
}

/// The copied bytes, as runs of addresses. Bytes that could not be read or were left out belong to no run.
pub(crate) struct Capture {
    covered: Vec<(u64, u64)>,
    runs: Vec<Run>,
    /// The units that were left out because they contain no pointers, ascending.
    blank: Vec<SkippedUnit>,
    /// Whether the process was released before everything was copied.
    pub(crate) is_cut: bool,
    room: Arc<Room>,
}

impl Capture {
    /// Make the copy that `order` describes, in the buffer `room`.
    ///
    /// If the buffer is too small for all memory, memory without pointers is left out. If the process is released
    /// meanwhile, the bytes that were copied before are kept. Return None if the buffer is still too small, or if the
    /// ends of some mappings were not copied before the release.
    pub(crate) fn take<R, O>(task: &Task<'_>, order: &CopyOrder<'_, R, O>, room: Arc<Room>) -> Result<Option<Capture>>
    where
        R: Fn(u64, &mut [u8]) -> usize + Sync,
        O: Fn() -> bool + Sync,
    {
        let (pieces, size) = pieces(order);
        let (used, is_whole) = (AtomicUsize::new(0), size <= room.size);
        let (is_cut, is_bare) = (AtomicBool::new(false), AtomicBool::new(false));
        let copy =
            |part: &mut CopiedPart, (from_end, piece): &(u64, Piece), control: &Control| -> Result<(), Cancellation> {
                let (runs, blank) = (part.runs.len(), part.blank.len());
                match is_whole {
                    _ if (order.is_over)() || used.load(Ordering::Relaxed) > room.size => {}
                    true => part.copy(&room, piece, order),
                    false => part.pick(&room, piece, order, &used),
                }
                // Bytes that were read while the process was being released are not trusted.
                if (order.is_over)() {
                    part.runs.truncate(runs);
                    part.blank.truncate(blank);
                    is_cut.store(true, Ordering::Relaxed);
                    is_bare.fetch_or(*from_end < PIECE, Ordering::Relaxed);
                }
                control.advance(piece.end - piece.start)
            };
        let parts = task.run(&pieces, CopiedPart::default, copy)?;
        let used = if is_whole { size } else { used.into_inner() };
        let beside = if is_whole { 0 } else { parts.iter().map(CopiedPart::bytes).sum() };
        if used + beside > room.size || is_bare.into_inner() {
            room.give_back(0);
            return Ok(None);
        }
        room.give_back(used);
        let (covered, is_cut) = (order.stretches.to_vec(), is_cut.into_inner());
        let (runs, blank) = Default::default();
        Ok(Some(joined(parts, Capture { covered, runs, blank, is_cut, room })))
    }

    /// Fill `buffer` with the copied bytes at `address`, up to the first byte that was not copied. Return the number of
    /// bytes, or None if the order did not include `address`.
    pub(crate) fn fill(&self, address: u64, buffer: &mut [u8]) -> Option<usize> {
        range_at(&self.covered, address)?;
        let mut done = 0;
        while done < buffer.len() {
            match self.part(address + done as u64, &mut buffer[done..]) {
                0 => break,
                got => done += got,
            }
        }
        Some(done)
    }

    /// Return the number of bytes that the copy left out because they contain no pointers.
    pub(crate) fn left_out(&self) -> u64 {
        self.blank.iter().map(|blank| blank.end - blank.start).sum()
    }

    /// Return how many bytes were left out from `address` to the end of the unit; 0 if the byte at `address` was not
    /// left out.
    pub(crate) fn left_out_at(&self, address: u64) -> u64 {
        self.blank_at(address).map_or(0, |blank| blank.end - address)
    }

    fn part(&self, address: u64, buffer: &mut [u8]) -> usize {
        let index = self.runs.partition_point(|run| run.end <= address);
        let Some(run) = self.runs.get(index).filter(|run| run.start <= address) else {
            return self.kept_bytes(address, buffer);
        };
        let size = ((run.end - address) as usize).min(buffer.len());
        match run.place {
            Some(place) => {
                let from = self.room.start + place + (address - run.start) as usize;
                // SAFETY: the run lies in the buffer, which lives as long as this value.
                buffer[..size].copy_from_slice(unsafe { std::slice::from_raw_parts(from as *const u8, size) });
            }
            None => buffer[..size].fill(0),
        }
        size
    }

    fn blank_at(&self, address: u64) -> Option<&SkippedUnit> {
        let index = self.blank.partition_point(|blank| blank.end <= address);
        self.blank.get(index).filter(|blank| blank.start <= address)
    }

    fn kept_bytes(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some(SkippedUnit { place, count, .. }) = self.blank_at(address).copied() else { return 0 };
        // SAFETY: that many aligned words were stored there in the buffer, which lives as long as this value.
        let kept = unsafe { std::slice::from_raw_parts((self.room.start + place) as *const KeptWord, count) };
        let index = kept.partition_point(|[start, _]| start + WORD <= address);
        let Some([start, word]) = kept.get(index).filter(|[start, _]| *start <= address) else { return 0 };
        let bytes = &word.to_le_bytes()[(address - start) as usize..];
        let size = bytes.len().min(buffer.len());
        buffer[..size].copy_from_slice(&bytes[..size]);
        size
    }
}

/// Return the pieces of all stretches, and the sum of their sizes in bytes. Each piece comes with its distance from the
/// nearer end of its mapping; the pieces with the smallest distances come first. The oldest memory contains the types
/// and names of a program. It lies at one of the ends, because heaps grow upwards and mappings are added downwards.
fn pieces<R, O>(order: &CopyOrder<'_, R, O>) -> (Vec<(u64, Piece)>, usize) {
    let (mut pieces, mut place) = (Vec::new(), 0);
    for (start, end) in order.stretches {
        let mut at = *start;
        while at < *end {
            let next = end.min(&(at + PIECE)).to_owned();
            let mapping = range_at(order.ranges, at).map_or((at, next), |index| order.ranges[index]);
            let from_end = (at - mapping.0).min(mapping.1.saturating_sub(next));
            pieces.push((from_end, Piece { start: at, end: next, place }));
            place += (next - at) as usize;
            at = next;
        }
    }
    pieces.sort_by_key(|(from_end, _)| *from_end);
    (pieces, place)
}

impl CopiedPart {
    /// Copy the memory of a piece to the piece's place in the buffer.
    fn copy<R, O>(&mut self, room: &Room, piece: &Piece, order: &CopyOrder<'_, R, O>)
    where
        R: Fn(u64, &mut [u8]) -> usize,
    {
        let (size, place) = ((piece.end - piece.start) as usize, piece.place);
        // SAFETY: pieces are disjoint and lie in the buffer, which nothing reads before all of them are filled.
        let bytes = unsafe { std::slice::from_raw_parts_mut((room.start + place) as *mut u8, size) };
        for (start, end) in read_pieces(&order.read, piece.start, bytes) {
            self.runs.push(Run { start, end, place: Some(place + (start - piece.start) as usize) });
        }
    }

    /// Read a piece, and store those of its units that may contain pointers, as long as the buffer has space.
    fn pick<R, O>(&mut self, room: &Room, piece: &Piece, order: &CopyOrder<'_, R, O>, used: &AtomicUsize)
    where
        R: Fn(u64, &mut [u8]) -> usize,
    {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(PIECE as usize, 0);
        let size = (piece.end - piece.start) as usize;
        let there = read_pieces(&order.read, piece.start, &mut buffer[..size]);
        for (start, end) in there {
            let bytes = &buffer[(start - piece.start) as usize..(end - piece.start) as usize];
            for (at, unit) in (start..).step_by(UNIT).zip(bytes.chunks(UNIT)) {
                self.pick_unit(room, at, unit, order.known, used);
            }
        }
        self.buffer = buffer;
    }

    fn pick_unit(&mut self, room: &Room, at: u64, unit: &[u8], known: &[(u64, u64)], used: &AtomicUsize) {
        let end = at + unit.len() as u64;
        if unit.chunks_exact(WORD as usize).all(|word| u64_at(word, 0) == 0) {
            return self.runs.push(Run { start: at, end, place: None });
        }
        if let Some(words) = without_pointers(at, unit, known) {
            let bytes: Vec<u8> = words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
            let stored =
                store(room, used, &bytes).map(|place| SkippedUnit { start: at, end, place, count: words.len() });
            return self.blank.extend(stored);
        }
        self.runs.extend(store(room, used, unit).map(|place| Run { start: at, end, place: Some(place) }));
    }

    /// Return the number of bytes that the lists of this part take, in addition to the buffer.
    fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.runs) + std::mem::size_of_val(&*self.blank)
    }
}

/// Store bytes in the buffer and return their offset; None if the buffer is full. `used`: the number of bytes that were
/// requested from the buffer so far. After a failure it is larger than the buffer.
fn store(room: &Room, used: &AtomicUsize, bytes: &[u8]) -> Option<usize> {
    let size = bytes.len().next_multiple_of(WORD as usize);
    let place = used.fetch_add(size, Ordering::Relaxed);
    if place + size > room.size {
        return None;
    }
    // SAFETY: the taken part of the buffer belongs to the caller alone, and nothing reads before everything is stored.
    let stored = unsafe { std::slice::from_raw_parts_mut((room.start + place) as *mut u8, bytes.len()) };
    stored.copy_from_slice(bytes);
    Some(place)
}

/// Return the words that must be stored if this unit is left out. None if the unit cannot be left out: one of its words
/// points into a `known` range, or too many words would have to be stored. A small number may be the size of a chunk.
/// It is stored with the words next to it, because they are read together. Only the address bits of a word are
/// compared, because some allocators store other bits above them.
fn without_pointers(start: u64, unit: &[u8], known: &[(u64, u64)]) -> Option<Vec<KeptWord>> {
    let (first, last) = (known.first()?.0, known.last()?.1);
    let address_bits = last.checked_next_power_of_two().map_or(u64::MAX, |end| end - 1);
    let (mut kept, mut next, count) = (Vec::new(), 0, unit.len() / WORD as usize);
    let word_at = |index: usize| u64_at(unit, index * WORD as usize);
    for index in 0..count {
        let word = word_at(index);
        let address = word & address_bits;
        if (first..last).contains(&address) && range_at(known, address).is_some() {
            return None;
        }
        // A size may be the last word of the unit before, or the first word of the next one.
        if index == 0 || index + 1 == count || (word != 0 && word < SMALL_NUMBER) {
            let end = (index + 1 + BEHIND).min(count);
            let near = next.max(index.saturating_sub(1))..end;
            kept.extend(near.map(|near| [start + near as u64 * WORD, word_at(near)]));
            next = end;
        }
    }
    (kept.len() <= unit.len() / KEPT_PART).then_some(kept)
}

/// Join the parts of all workers into a capture, in the order of addresses.
fn joined(parts: Vec<CopiedPart>, mut into: Capture) -> Capture {
    let mut runs = Vec::new();
    for part in parts {
        runs.extend(part.runs);
        into.blank.extend(part.blank);
    }
    runs.sort_unstable_by_key(|run: &Run| run.start);
    for run in runs {
        let next = |last: &Run| last.place.map(|place| place + (last.end - last.start) as usize);
        match into.runs.last_mut().filter(|last| last.end == run.start && next(last) == run.place) {
            Some(last) => last.end = run.end,
            None => into.runs.push(run),
        }
    }
    into.blank.sort_unstable_by_key(|blank| blank.start);
    into
}

/// Memory that the process shares with other processes. It is not copied during the stop, because the other processes
/// could write to it meanwhile. It is read later, while the process runs.
pub(crate) struct SharedMemory {
    /// `/proc/PID/mem`. The descriptor always belongs to this process, even if the process id is reused later.
    mem: RunningMemory,
    /// The shared ranges, ascending and disjoint.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// An address that could be read while the process was stopped. If it cannot be read any more, the process has
    /// ended.
    pub(crate) witness: u64,
    lost: AtomicBool,
}

impl SharedMemory {
    pub(crate) fn new(mem: RunningMemory, ranges: Vec<(u64, u64)>, witness: u64) -> SharedMemory {
        SharedMemory { mem, ranges, witness, lost: AtomicBool::new(false) }
    }

    /// Fill `buffer` with the bytes at `address`, up to the first byte that cannot be read. Return the number of bytes,
    /// or None if `address` is not in the shared ranges.
    pub(crate) fn fill(&self, address: u64, buffer: &mut [u8]) -> Option<usize> {
        let index = self.ranges.partition_point(|(_, end)| *end <= address);
        let (_, end) = self.ranges.get(index).filter(|(start, _)| *start <= address)?;
        let size = ((end - address).min(buffer.len() as u64)) as usize;
        let done = self.mem.read(address, &mut buffer[..size]);
        if done < size && self.mem.read(self.witness, &mut [0]) == 0 {
            self.lost.store(true, Ordering::Relaxed);
        }
        Some(done)
    }

    /// Return whether the process ended before all requested memory was read.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Fill `bytes` with the memory at `start`. After an absent part, continue at the next page. Return the ranges of
/// addresses that are present.
fn read_pieces(read: impl Fn(u64, &mut [u8]) -> usize, start: u64, bytes: &mut [u8]) -> Vec<(u64, u64)> {
    let (mut there, mut done) = (Vec::new(), 0);
    while done < bytes.len() {
        let got = read(start + done as u64, &mut bytes[done..]);
        if got > 0 {
            append(&mut there, start + done as u64, start + (done + got) as u64);
        }
        done += got;
        if done < bytes.len() {
            let at = start + done as u64;
            done = ((at / SMALL + 1) * SMALL - start).min(bytes.len() as u64) as usize;
        }
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::NoWatcher;
    use std::sync::atomic::AtomicU64;

    const START: u64 = 1 << 30;

    /// Return the word at an address of a test memory. A byte of each word encodes the word's address. Every second
    /// unit has a pointer, and every third unit has a small number.
    fn word_at(address: u64) -> u64 {
        let unit = (address - START) / UNIT as u64;
        match (unit, address % UNIT as u64) {
            (unit, 64) if unit % 2 == 0 => START + 8,
            (unit, 128) if unit % 3 == 0 => 4096,
            _ => 0xAAAA_0000_0000_0000 | address << 4,
        }
    }

    fn read(word_at: fn(u64) -> u64, address: u64, buffer: &mut [u8]) -> usize {
        for (index, bytes) in buffer.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&word_at(address + index as u64 * 8).to_le_bytes());
        }
        buffer.len()
    }

    /// Copy [START, START + size) into a room of `room` bytes. The process is released after `most` reads.
    fn taken(size: u64, room: usize, most: u64) -> Option<Capture> {
        taken_of(word_at, size, room, most)
    }

    fn taken_of(word_at: fn(u64) -> u64, size: u64, room: usize, most: u64) -> Option<Capture> {
        let (ranges, reads) = ([(START, START + size)], AtomicU64::new(0));
        let counted = |address: u64, buffer: &mut [u8]| {
            reads.fetch_add(1, Ordering::Relaxed);
            read(word_at, address, buffer)
        };
        let is_over = || reads.load(Ordering::Relaxed) > most;
        let order = CopyOrder { ranges: &ranges, stretches: &ranges, known: &ranges, read: counted, is_over };
        let task = Task { watcher: &NoWatcher, total: None, inline: true };
        Capture::take(&task, &order, Arc::new(Room::new(room).unwrap())).unwrap()
    }

    fn word(capture: &Capture, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (capture.fill(address, &mut bytes) == Some(8)).then(|| u64::from_le_bytes(bytes))
    }

    #[test]
    fn all_is_copied_where_there_is_room() {
        let capture = taken(PIECE, 1 << 20, u64::MAX).unwrap();
        assert!((0..PIECE).step_by(8).all(|at| word(&capture, START + at) == Some(word_at(START + at))));
        assert!(capture.left_out() == 0 && !capture.is_cut && capture.fill(START - 8, &mut [0; 8]).is_none());
    }

    #[test]
    fn what_holds_no_pointers_is_left_out() {
        let capture = taken(PIECE, 3 << 18, u64::MAX).unwrap();
        assert_eq!(capture.left_out(), PIECE / 2);
        for at in (0..PIECE).step_by(8) {
            let (unit, inside) = (at / UNIT as u64, at % UNIT as u64);
            let is_kept =
                (unit % 3 == 0 && (120..=144).contains(&inside)) || inside <= 16 || inside >= UNIT as u64 - 16;
            let expected = (unit % 2 == 0 || is_kept).then(|| word_at(START + at));
            assert_eq!(word(&capture, START + at), expected, "{unit} {inside}");
        }
        assert!(taken(PIECE, 1 << 18, u64::MAX).is_none());
    }

    /// Return the word at an address of a test memory. Each unit has many words that may be a size (7): nearly as many
    /// as a unit that is left out may have.
    fn small_at(address: u64) -> u64 {
        if address / 8 % (UNIT as u64 / 8) % 33 == 5 {
            7
        } else {
            u64::MAX
        }
    }

    #[test]
    fn what_is_kept_takes_room() {
        let size = 4 * PIECE;
        let all = size as usize / KEPT_PART * std::mem::size_of::<KeptWord>();
        let capture = taken_of(small_at, size, all, u64::MAX).unwrap();
        assert_eq!(capture.left_out(), size);
        let kept = (0..size).step_by(8).filter(|at| {
            let kept = word(&capture, START + at);
            assert!(kept.is_none_or(|kept| kept == small_at(START + at)));
            kept.is_some()
        });
        let bytes = kept.count() * std::mem::size_of::<KeptWord>();
        let beside = std::mem::size_of_val(&*capture.blank);
        assert!(bytes > all * 9 / 10 && bytes + beside <= all);
        assert!(taken_of(small_at, size, bytes, u64::MAX).is_none());
        assert!(taken_of(small_at, size, bytes + beside, u64::MAX).is_some());
    }

    #[test]
    fn both_ends_come_first() {
        let capture = taken(6 * PIECE, 6 << 20, 3).unwrap();
        let there: Vec<u64> = (0..6).filter(|piece| word(&capture, START + piece * PIECE).is_some()).collect();
        assert!(capture.is_cut && there == [0, 1, 5]);
        assert!(taken(6 * PIECE, 6 << 20, 1).is_none());
    }
}
