//! The walk over glibc's chunks: each stretch of an arena from its first chunk to its end.
//!
//! A chunk, as it lies in memory (glibc 2.36, `p = malloc(24)` after a used chunk, header at p - 16):
//!
//! ```text
//! 0x..290: 00 00 00 00 00 00 00 00  21 00 00 00 00 00 00 00   prev_size | size, bits: 1 PREV_INUSE 2 IS_MMAPPED 4 NON_MAIN_ARENA
//! 0x..2a0: the 24 bytes of p, of which the last 8 lie in the next header's prev_size
//! ```
//!
//! In use is what the next chunk's PREV_INUSE says, minus the members of fast bins and thread caches: both look used.
//!
//! A walk can only begin where a chunk is known to begin. Long stretches are nevertheless walked by all cores: each part
//! of one begins at the first address that looks like a chunk, and holds plain chunks only. Then one walk goes through
//! the stretch and, where it meets a chunk that a part has too, takes over what the part found: from the same chunk two
//! walks go the same way. Whatever a part began with too early, in the middle of somebody's data, is dropped.

use crate::bits::{self, Bits};
use crate::chunks::{Chunks, Damage, Head, Link, Region, State, Stretch, GRAIN, HEAD_BYTES, SMALLEST};
use crate::space::Space;
use crate::window::Window;
use crate::work::{self, Cancelled, Control};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

const PREV_INUSE: u64 = 1;
const SIZE_BITS: u64 = 7;
/// So many sound chunks in a row make an address a chunk.
const SOUND_STEPS: u32 = 64;
const MOST_DAMAGE: usize = 1000;
/// Beyond so many the heads are read again when they are asked for.
const MOST_HEADS: usize = 1 << 17;
/// So many chunks before the one where a walk ends may have the wrong size.
const MOST_ASTRAY: u32 = 8;
/// What one part covers; a multiple of what a word of bits does.
const PART: u64 = 16 << 20;
const WORDS_IN_PART: usize = (PART / GRAIN / 64) as usize;
/// What is walked between two looks at whether the work goes on.
const STRIDE: u64 = 1 << 20;
const MOST_FAST_BINS: usize = 16;
/// A part that meets no chunk for so long is in the middle of a large one.
const MOST_SEARCHED: u64 = 256 << 10;

/// One header as read: where, its two words, and the first word behind it.
#[derive(Clone, Copy)]
struct Header {
    address: u64,
    prev_size: u64,
    size_word: u64,
    link: u64,
}

impl Header {
    fn parse(address: u64, bytes: &[u8]) -> Header {
        let word = |at| crate::u64_at(bytes, at);
        Header { address, prev_size: word(0), size_word: word(8), link: word(16) }
    }

    fn size(&self) -> u64 {
        self.size_word & !SIZE_BITS
    }

    fn prev_in_use(&self) -> bool {
        self.size_word & PREV_INUSE != 0
    }
}

/// What a walk knows of the stretch it goes through, and how many heads all walks of it keep.
struct Course<'a> {
    stretch: &'a Stretch,
    /// Bit n: the fast bin for chunks of 16 * n bytes is not empty.
    fast_sizes: u64,
    heads: &'a AtomicUsize,
}

impl<'a> Course<'a> {
    fn new(stretch: &'a Stretch, heads: &'a AtomicUsize) -> Course<'a> {
        let filled = stretch.fast.iter().enumerate().filter(|(_, head)| **head != 0);
        let fast_sizes = filled.fold(0, |mask, (bin, _)| mask | 4u64 << bin);
        Course { stretch, fast_sizes, heads }
    }

    fn is_plain(&self, header: &Header) -> bool {
        let size = header.size();
        header.address != self.stretch.top
            && size >= SMALLEST
            && size % GRAIN == 0
            && size <= self.stretch.end - header.address
    }
}

/// Plain chunks as they are walked: their bits, and what is kept of them.
struct Track<'a> {
    course: &'a Course<'a>,
    window: Window<'a>,
    /// The address of the first bit.
    base: u64,
    starts: &'a mut [u64],
    low: &'a mut [u64],
    links: Vec<Link>,
    /// None once there were too many.
    heads: Option<Vec<Head>>,
    /// The last chunk, of which the next header will tell whether it is in use, and its first bytes.
    previous: Option<Header>,
    head: Head,
}

impl<'a> Track<'a> {
    fn new(
        space: &'a Space,
        course: &'a Course<'a>,
        base: u64,
        starts: &'a mut [u64],
        low: &'a mut [u64],
    ) -> Track<'a> {
        Track {
            course,
            window: Window::new(space, course.stretch.end),
            base,
            starts,
            low,
            links: Vec::new(),
            heads: Some(Vec::new()),
            previous: None,
            head: Head { chunk: 0, size: 0, bytes: [0; HEAD_BYTES] },
        }
    }

    fn header(&mut self, address: u64) -> Option<Header> {
        let rest = self.course.stretch.end.saturating_sub(address);
        let bytes = self.window.bytes(address, if rest >= 24 { 24 } else { 16 }).ok()?;
        Some(Header::parse(address, bytes))
    }

    fn index(&self, address: u64) -> u64 {
        (address - self.base) / GRAIN
    }

    /// Walks plain chunks from `at` until one starts at or behind `to`; returns where it stopped.
    fn plain_chunks(&mut self, mut at: u64, to: u64) -> u64 {
        while at < to {
            at = self.stride(at, to);
            let Some(header) = (at < to).then(|| self.header(at)).flatten() else { break };
            if !self.course.is_plain(&header) || self.contradicts(&header) {
                break;
            }
            self.settle(&header);
            self.put(header);
            at += header.size();
        }
        at
    }

    /// The same as far as the window reaches, without a look at anything but the bytes in it.
    fn stride(&mut self, mut at: u64, to: u64) -> u64 {
        let Track { course, window, base, starts, low, links, heads, previous, head } = self;
        let buffer = window.rest(at);
        let mut last = None;
        let mut offset: usize = 0;
        while let Some(bytes) = buffer.get(offset..offset.saturating_add(24)).filter(|_| at < to) {
            let header = Header::parse(at, bytes);
            if !course.is_plain(&header) {
                break;
            }
            if let Some(before) = previous {
                if !header.prev_in_use() {
                    if header.prev_size != before.size() {
                        break;
                    }
                    bits::set(low, (before.address - *base) / GRAIN);
                } else {
                    keep_link(course, links, before);
                    match last {
                        Some(start) if heads.is_some() => {
                            let end = (before.size() as usize - 8).min(HEAD_BYTES) + start + 16;
                            keep_head(course, heads, before.address, &buffer[start + 16..end]);
                        }
                        _ => keep_head(course, heads, head.chunk, head.known()),
                    }
                }
            }
            bits::set(starts, (at - *base) / GRAIN);
            *previous = Some(header);
            last = Some(offset);
            at += header.size();
            offset += header.size() as usize;
        }
        if let (Some(_), Some(chunk)) = (last, self.previous) {
            self.look_at_head(&chunk);
        }
        at
    }

    /// Takes a plain chunk.
    fn put(&mut self, header: Header) {
        bits::set(self.starts, self.index(header.address));
        self.previous = Some(header);
        self.look_at_head(&header);
    }

    /// Remembers the first bytes of a chunk until it is known whether it is in use.
    fn look_at_head(&mut self, chunk: &Header) {
        if self.heads.is_none() {
            return;
        }
        let bytes = self.window.available(chunk.address + 16, HEAD_BYTES.min(chunk.size() as usize - 8));
        self.head = Head::new(chunk.address, bytes);
    }

    /// Whether the next header says that the chunk before it is free, and has another size for it.
    fn contradicts(&self, next: &Header) -> bool {
        let before = self.previous.as_ref();
        !next.prev_in_use() && before.is_some_and(|before| next.prev_size != before.size())
    }

    /// What the next header says of the chunk before it.
    fn settle(&mut self, next: &Header) {
        let Some(before) = self.previous.take() else { return };
        if next.prev_in_use() {
            keep_link(self.course, &mut self.links, &before);
            keep_head(self.course, &mut self.heads, self.head.chunk, self.head.known());
        } else {
            bits::set(self.low, self.index(before.address));
        }
    }

    /// Whether a walk from `start` reaches an end, or takes `SOUND_STEPS` sound chunks in a row.
    fn is_sound(&mut self, start: u64) -> bool {
        let (end, top) = (self.course.stretch.end, self.course.stretch.top);
        let mut at = start;
        let mut before = 0;
        for _ in 0..SOUND_STEPS {
            let Some(header) = self.header(at) else { return false };
            let size = header.size();
            if before != 0 && !header.prev_in_use() && header.prev_size != before {
                return false;
            }
            if at == top {
                return size == end - at;
            }
            if before != 0 && self.ends_in_fences(&header) {
                return true;
            }
            if !self.course.is_plain(&header) {
                return false;
            }
            before = size;
            at += size;
            if at == end {
                return true;
            }
        }
        true
    }

    /// Whether a stretch may end here: with a double fence in the main arena, at the end of a thread's heap with one of
    /// sizes 0x10 and 0, or 0 alone where its top had been too small for two.
    fn ends_in_fences(&mut self, header: &Header) -> bool {
        let rest = self.course.stretch.end - header.address;
        match (header.size(), rest) {
            (0, GRAIN) => header.prev_in_use(),
            (GRAIN, _) => {
                let second = self.header(header.address + GRAIN).map(|second| second.size());
                second == Some(GRAIN) || (second == Some(0) && rest == 2 * GRAIN)
            }
            _ => false,
        }
    }

    /// Whether a walk from `start` takes sound chunks, goes beyond `at` and never stands there.
    fn passes(&mut self, start: u64, at: u64) -> bool {
        let mut stand = start;
        while stand < at {
            let Some(header) = self.header(stand).filter(|header| self.course.is_plain(header)) else { return false };
            let next = stand + header.size();
            if self.header(next).is_some_and(|next| !next.prev_in_use() && next.prev_size != header.size()) {
                return false;
            }
            stand = next;
        }
        stand > at && (stand == self.course.stretch.end || self.is_sound(stand))
    }

    /// The first sound address in [from, to).
    fn next_sound(&mut self, from: u64, to: u64, control: &Control) -> Result<Option<u64>, Cancelled> {
        for at in (from..to).step_by(GRAIN as usize) {
            if self.is_sound(at) {
                return Ok(Some(at));
            }
            if at % (64 << 10) == 0 {
                control.advance(0)?;
            }
        }
        Ok(None)
    }
}

#[inline]
fn keep_link(course: &Course<'_>, links: &mut Vec<Link>, chunk: &Header) {
    let bin = chunk.size() / GRAIN;
    if bin < 2 + MOST_FAST_BINS as u64 && course.fast_sizes >> bin & 1 == 1 {
        links.push(Link { tagged: chunk.address | (bin - 2), word: chunk.link });
    }
}

#[inline]
fn keep_head(course: &Course<'_>, heads: &mut Option<Vec<Head>>, chunk: u64, bytes: &[u8]) {
    let Some(kept) = heads else { return };
    if !Head::may_be_object(bytes) {
        return;
    }
    match course.heads.fetch_add(1, Ordering::Relaxed) < MOST_HEADS {
        true => kept.push(Head::new(chunk, bytes)),
        false => *heads = None,
    }
}

/// What the walk of one part found; its bits are in the stretch's.
struct Part {
    index: usize,
    from: u64,
    /// Up to where it walked; `from` when it found no chunk to begin with.
    to: u64,
    previous: Option<Header>,
    head: Head,
    links: Vec<Link>,
    heads: Option<Vec<Head>>,
}

/// A part to be walked; whoever takes it takes its bits.
struct PartJob<'a> {
    index: usize,
    course: Course<'a>,
    from: u64,
    to: u64,
    words: Mutex<Option<Words<'a>>>,
}

impl PartJob<'_> {
    fn walk(&self, space: &Space, control: &Control) -> Result<Option<Part>, Cancelled> {
        let Some((starts, low)) = take(&self.words) else { return Ok(None) };
        let mut track = Track::new(space, &self.course, self.from, starts, low);
        let begin = match self.from == self.course.stretch.start {
            true => Some(self.from),
            false => track.next_sound(self.from, self.to.min(self.from + MOST_SEARCHED), control)?,
        };
        let mut to = self.from;
        if let Some(begin) = begin {
            to = begin;
            loop {
                let before = to;
                to = track.plain_chunks(before, self.to.min(before + STRIDE));
                control.advance(to.min(self.to) - before)?;
                if to >= self.to || to < before + STRIDE {
                    break;
                }
            }
        }
        let Track { previous, head, links, heads, .. } = track;
        Ok(Some(Part { index: self.index, from: self.from, to, previous, head, links, heads }))
    }
}

/// The one walk of a stretch that knows everything: fences, the top chunk, damage.
struct Walk<'a> {
    control: &'a Control,
    track: Track<'a>,
    special: Vec<(u64, State)>,
    damage: Vec<Damage>,
    /// How many fences lie directly before.
    fences: u32,
}

impl Walk<'_> {
    fn whole(&mut self, parts: Vec<Part>) -> Result<(), Cancelled> {
        let end = self.track.course.stretch.end;
        let mut at = self.track.course.stretch.start;
        for part in parts {
            let to = end.min(part.from + PART);
            at = self.join(part, at, to)?;
            while at < to {
                let next = self.track.plain_chunks(at, to.min(at + STRIDE));
                self.control.advance(0)?;
                if next > at {
                    self.fences = 0;
                }
                at = if next < to.min(at + STRIDE) { self.step(next)? } else { next };
            }
        }
        Ok(())
    }

    /// Goes from `at` on to where the part's walk ended, if both walk on the same chunks.
    fn join(&mut self, part: Part, at: u64, to: u64) -> Result<u64, Cancelled> {
        if part.to <= at || to <= at {
            self.forget(part.from, to);
            return Ok(at);
        }
        if self.fences == 0 && bits::get(self.track.starts, self.track.index(at)) {
            self.forget(part.from, at);
            return Ok(self.take_over(part, at));
        }
        let words = (self.track.index(part.from) / 64) as usize..self.track.index(to).div_ceil(64) as usize;
        let doubted = (self.track.starts[words.clone()].to_vec(), self.track.low[words].to_vec());
        self.forget(part.from, to);
        self.catch_up(part, doubted, at, to)
    }

    /// Walks from `at` until it meets a chunk of the part, whose bits are the `doubted`; from there it takes them over.
    fn catch_up(
        &mut self,
        part: Part,
        (starts, low): (Vec<u64>, Vec<u64>),
        mut at: u64,
        to: u64,
    ) -> Result<u64, Cancelled> {
        let inside = |address: u64| (address - part.from) / GRAIN;
        while at < to.min(part.to) {
            if self.fences == 0 && bits::get(&starts, inside(at)) {
                let first = self.track.index(part.from);
                for index in inside(at)..inside(to) {
                    for (old, new) in [(&starts, &mut *self.track.starts), (&low, &mut *self.track.low)] {
                        if bits::get(old, index) {
                            bits::set(new, first + index);
                        }
                    }
                }
                return Ok(self.take_over(part, at));
            }
            at = self.step(at)?;
        }
        Ok(at)
    }

    /// Makes the part's chunks from `at` on the walk's own.
    fn take_over(&mut self, part: Part, at: u64) -> u64 {
        if let Some(header) = self.track.header(at) {
            self.settle(&header);
        }
        self.track.links.extend(part.links.into_iter().filter(|link| link.tagged >= at));
        match (&mut self.track.heads, part.heads) {
            (Some(heads), Some(found)) => heads.extend(found.into_iter().filter(|head| head.chunk >= at)),
            (heads, _) => *heads = None,
        }
        self.track.previous = part.previous;
        self.track.head = part.head;
        part.to
    }

    /// Takes back what a part found in [from, to).
    fn forget(&mut self, from: u64, to: u64) {
        let (first, end) = (self.track.index(from), self.track.index(to));
        for words in [&mut *self.track.starts, &mut *self.track.low] {
            bits::clear_range(words, first, end);
        }
    }

    fn report(&mut self, address: u64, what: &'static str, expected: impl Into<String>, found: impl Into<String>) {
        if self.damage.len() < MOST_DAMAGE {
            self.damage.push(Damage { address, what, expected: expected.into(), found: found.into() });
        }
    }

    fn put_special(&mut self, address: u64, state: State) {
        let index = self.track.index(address);
        bits::set(self.track.starts, index);
        self.special.push((address, state));
        self.track.previous = None;
        self.fences = if state == State::Fence { self.fences + 1 } else { 0 };
    }

    fn settle(&mut self, next: &Header) {
        if let Some(before) = self.track.previous.filter(|_| self.track.contradicts(next)) {
            let (expected, found) = (format!("{:#x}", before.size()), format!("{:#x}", next.prev_size));
            self.report(next.address, "prev_size behind a free chunk", expected, found);
        }
        self.track.settle(next);
    }

    /// Takes the block at `at`, whatever it is; returns where the next one starts.
    fn step(&mut self, at: u64) -> Result<u64, Cancelled> {
        let rest = self.track.course.stretch.end - at;
        let Some(header) = self.track.header(at).filter(|_| rest >= GRAIN) else {
            return self.cut(at, "a chunk header", "bytes that can be read", "absent bytes");
        };
        if at == self.track.course.stretch.top {
            return Ok(self.take_top(&header));
        }
        if self.is_fence(&header) {
            self.settle(&header);
            self.put_special(at, State::Fence);
            return self.after_fence(at + GRAIN);
        }
        if !self.track.course.is_plain(&header) {
            let expected = format!("16-aligned, 32 to {rest}");
            return self.cut(at, "size of a chunk", &expected, &format!("{:#x}", header.size_word));
        }
        self.settle(&header);
        self.track.put(header);
        self.fences = 0;
        Ok(at + header.size())
    }

    fn take_top(&mut self, header: &Header) -> u64 {
        let end = self.track.course.stretch.end;
        self.settle(header);
        self.put_special(header.address, State::Top);
        let rest = end - header.address;
        if header.size() != rest {
            let found = format!("{:#x}", header.size());
            self.report(header.address, "size of the top chunk", format!("{rest:#x}"), found);
        }
        end
    }

    /// A fencepost: size 0x10, or 0 at the end of a thread's heap, where it may be the only one.
    fn is_fence(&self, header: &Header) -> bool {
        let at_end = header.address + GRAIN == self.track.course.stretch.end;
        header.size() == GRAIN || (header.size() == 0 && header.prev_in_use() && (at_end || self.fences > 0))
    }

    /// Behind a double fence in the middle of the main arena lie the bytes of a foreign `sbrk`.
    fn after_fence(&mut self, at: u64) -> Result<u64, Cancelled> {
        let end = self.track.course.stretch.end;
        let goes_on = |walk: &mut Self| walk.track.header(at).is_some_and(|next| next.size() == GRAIN);
        if self.fences < 2 || at >= end || goes_on(self) {
            return Ok(at);
        }
        let next = self.track.next_sound(at, end, self.control)?.unwrap_or(end);
        if next > at {
            self.put_special(at, State::Foreign);
        }
        Ok(next)
    }

    /// The walk cannot go on at `at`: reports why, and goes on at the next address that is a chunk again.
    fn cut(&mut self, at: u64, what: &'static str, expected: &str, found: &str) -> Result<u64, Cancelled> {
        if let Some(next) = self.led_astray(at)? {
            return Ok(self.shorten(at, next));
        }
        self.report(at, what, expected, found);
        self.put_special(at, State::Unexplained);
        let end = self.track.course.stretch.end;
        Ok(self.track.next_sound(at + GRAIN, end, self.control)?.unwrap_or(end))
    }

    /// Whether `at` is no chunk at all, because one of the last few sizes before it is wrong: then there is a chunk, not
    /// far before, from which a walk passes `at` by. (What used to be chunks inside a sound one leads to its end.)
    fn led_astray(&mut self, at: u64) -> Result<Option<u64>, Cancelled> {
        let begin = self.special.last().map_or(self.track.base, |(address, _)| address + GRAIN);
        let mut end = at;
        for _ in 0..MOST_ASTRAY {
            let before = self.track.index(end).checked_sub(1);
            let Some(index) = before.and_then(|index| bits::last_at(self.track.starts, index)) else { break };
            let start = self.track.base + index * GRAIN;
            if start < begin || at - start > PART {
                break;
            }
            for address in (start + SMALLEST..end).step_by(GRAIN as usize) {
                if address % (64 << 10) == 0 {
                    self.control.advance(0)?;
                }
                if self.track.passes(address, at) {
                    return Ok(Some(address));
                }
            }
            end = start;
        }
        Ok(None)
    }

    /// Makes the chunk before `next` end there, and forgets what was taken for chunks from there to `at`.
    fn shorten(&mut self, at: u64, next: u64) -> u64 {
        let index = bits::last_at(self.track.starts, self.track.index(next)).unwrap_or(0);
        let start = self.track.base + index * GRAIN;
        self.forget(start, at);
        self.track.links.truncate(self.track.links.partition_point(|link| link.tagged < start));
        if let Some(heads) = &mut self.track.heads {
            heads.truncate(heads.partition_point(|head| head.chunk < start));
        }
        if let Some(header) = self.track.header(start) {
            self.report(start, "size of a chunk", hex(next - start), hex(header.size_word));
            let flags = header.size_word & SIZE_BITS;
            self.track.put(Header { size_word: (next - start) | flags, ..header });
        }
        next
    }
}

fn hex(value: u64) -> String {
    format!("{value:#x}")
}

/// The bits of one stretch, and what is wrong with its size.
struct Canvas {
    stretch: Stretch,
    starts: Bits,
    low: Bits,
    heads: AtomicUsize,
    damage: Vec<Damage>,
}

impl Canvas {
    fn new(mut stretch: Stretch) -> Canvas {
        let size = stretch.end - stretch.start;
        let mut damage = Vec::new();
        if !Bits::fits(3 * (size / GRAIN + 1)) {
            stretch.end = stretch.start;
            let (expected, found) = ("one that memory suffices for".into(), format!("{size:#x}"));
            damage.push(Damage { address: stretch.start, what: "size of a heap", expected, found });
        }
        let bits = || Bits::new((stretch.end - stretch.start) / GRAIN + 1);
        Canvas { starts: bits(), low: bits(), heads: AtomicUsize::new(0), damage, stretch }
    }

    fn part_jobs(&mut self, index: usize) -> Vec<PartJob<'_>> {
        let Canvas { stretch, starts, low, heads, .. } = self;
        let words = starts.words_mut().chunks_mut(WORDS_IN_PART).zip(low.words_mut().chunks_mut(WORDS_IN_PART));
        let starts = (stretch.start..stretch.end).step_by(PART as usize);
        let job = |(from, words)| {
            let to = stretch.end.min(from + PART);
            PartJob { index, course: Course::new(stretch, heads), from, to, words: Mutex::new(Some(words)) }
        };
        starts.zip(words).map(job).collect()
    }

    fn whole_job(&mut self, index: usize, parts: Vec<Part>) -> WholeJob<'_> {
        let course = Course::new(&self.stretch, &self.heads);
        let task = ((self.starts.words_mut(), self.low.words_mut()), parts);
        WholeJob { index, course, task: Mutex::new(Some(task)) }
    }

    fn region(self, walked: Walked) -> Region {
        let Walked { special, links, heads, mut damage, .. } = walked;
        damage.extend(self.damage);
        let mut region = Region::new(self.stretch, self.starts, self.low, special, damage);
        region.links = links;
        region.heads = heads;
        region
    }
}

/// The bits of starts and of free chunks.
type Words<'a> = (&'a mut [u64], &'a mut [u64]);

struct WholeJob<'a> {
    index: usize,
    course: Course<'a>,
    task: Mutex<Option<(Words<'a>, Vec<Part>)>>,
}

struct Walked {
    index: usize,
    special: Vec<(u64, State)>,
    links: Vec<Link>,
    heads: Option<Vec<Head>>,
    damage: Vec<Damage>,
}

impl WholeJob<'_> {
    fn walk(&self, space: &Space, control: &Control) -> Result<Option<Walked>, Cancelled> {
        let Some(((starts, low), parts)) = take(&self.task) else { return Ok(None) };
        let track = Track::new(space, &self.course, self.course.stretch.start, starts, low);
        let mut walk = Walk { control, track, special: Vec::new(), damage: Vec::new(), fences: 0 };
        walk.whole(parts)?;
        let Track { links, heads, .. } = walk.track;
        Ok(Some(Walked { index: self.index, special: walk.special, links, heads, damage: walk.damage }))
    }
}

fn take<T>(task: &Mutex<Option<T>>) -> Option<T> {
    task.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
}

/// Walks every stretch. `caches`: the lists of all thread caches as `(first entry, entries, chunks' size)`, size 0: any.
/// Returns how many entries of each list were taken, and where the last link of it leads.
/// Raises KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (space, stretches, caches, safe_linking, progress=None))]
pub fn walk_chunks(
    py: Python<'_>,
    space: &Space,
    stretches: Vec<Stretch>,
    caches: Vec<(u64, u64, u64)>,
    safe_linking: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Chunks, Vec<(u64, u64)>)> {
    let sound = |s: &Stretch| s.start < s.end && s.start % GRAIN == 0 && s.fast.len() <= MOST_FAST_BINS;
    let mut canvases: Vec<Canvas> = stretches.into_iter().filter(sound).map(Canvas::new).collect();
    canvases.sort_by_key(|canvas| canvas.stretch.start);
    let total = canvases.iter().map(|canvas| canvas.stretch.end - canvas.stretch.start).sum();
    let mut parts = walk_parts(py, space, progress, total, &mut canvases)?;
    parts.sort_by_key(|part| part.from);
    let walked = walk_whole(py, space, &mut canvases, parts)?;
    let regions = canvases.into_iter().zip(walked).map(|(canvas, walked)| canvas.region(walked));
    let mut chunks = Chunks::new(regions.collect());
    py.detach(|| chunks.follow_fast_bins(safe_linking));
    let taken = caches.iter().map(|list| chunks.follow_tcache(space, *list, safe_linking)).collect();
    Ok((chunks, taken))
}

fn walk_parts(
    py: Python<'_>,
    space: &Space,
    progress: Option<Py<PyAny>>,
    total: u64,
    canvases: &mut [Canvas],
) -> PyResult<Vec<Part>> {
    let jobs: Vec<PartJob<'_>> =
        canvases.iter_mut().enumerate().flat_map(|(index, canvas)| canvas.part_jobs(index)).collect();
    let work = |done: &mut Vec<Part>, job: &PartJob<'_>, control: &Control| {
        done.extend(job.walk(space, control)?);
        Ok(())
    };
    Ok(work::run(py, space, progress, total, &jobs, Vec::new, work)?.into_iter().flatten().collect())
}

fn walk_whole(py: Python<'_>, space: &Space, canvases: &mut [Canvas], parts: Vec<Part>) -> PyResult<Vec<Walked>> {
    let mut by_canvas: Vec<Vec<Part>> = canvases.iter().map(|_| Vec::new()).collect();
    parts.into_iter().for_each(|part| by_canvas[part.index].push(part));
    let jobs = canvases.iter_mut().zip(by_canvas).enumerate();
    let jobs: Vec<WholeJob<'_>> = jobs.map(|(index, (canvas, parts))| canvas.whole_job(index, parts)).collect();
    let work = |done: &mut Vec<Walked>, job: &WholeJob<'_>, control: &Control| {
        done.extend(job.walk(space, control)?);
        Ok(())
    };
    let mut walked: Vec<Walked> = work::run(py, space, None, 0, &jobs, Vec::new, work)?.into_iter().flatten().collect();
    walked.sort_by_key(|walked| walked.index);
    Ok(walked)
}
