//! Walk plain chunks one after the other, as fast as memory can be read.

use crate::allocators::glibc::chunks::{ChunkHead, Link, Stretch, GRAIN, HEAD_BYTES, SMALLEST};
use crate::allocators::glibc::free_links::{FreeLinks, NON_MAIN_ARENA};
use crate::bits;
use gdbheap_access::bytes::{u64_at, word_at};
use gdbheap_access::error::Cancellation;
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::Control;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

const PREV_INUSE: u64 = 1;
pub(super) const SIZE_BITS: u64 = 7;
/// The number of plausible chunks in a row that suffice to accept the first one's address as the start of a chunk.
const SOUND_STEPS: u32 = 64;
/// The largest number of chunks whose first bytes (`ChunkHead`) are kept. If there are more such chunks, no first bytes
/// are kept, and they are read again when they are needed.
const MAX_HEADS: usize = 1 << 17;
pub(super) const MAX_FAST_BINS: usize = 16;
/// The number of bytes after a free chunk's header that are read: `fd`, `bk`, `fd_nextsize`, `bk_nextsize`.
const LINK_BYTES: usize = 32;

/// Two bitmaps: the starts of blocks, and the free chunks.
pub(super) type ChunkBits<'a> = (&'a mut [u64], &'a mut [u64]);

/// The header of a chunk as it was read: its address, its two words, and the first word after the header. That word is
/// 0 if the stretch ends before it.
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) address: u64,
    pub(super) prev_size: u64,
    pub(super) size_word: u64,
    pub(super) link: u64,
}

impl Header {
    pub(super) fn parse(address: u64, bytes: &[u8]) -> Header {
        let link = word_at(bytes, 16).unwrap_or(0);
        Header { address, prev_size: u64_at(bytes, 0), size_word: u64_at(bytes, 8), link }
    }

    pub(super) fn size(&self) -> u64 {
        self.size_word & !SIZE_BITS
    }

    pub(super) fn prev_in_use(&self) -> bool {
        self.size_word & PREV_INUSE != 0
    }
}

/// The data about a stretch that all walks of it share. `heads`: the number of chunks whose first bytes (`ChunkHead`)
/// they have kept so far.
pub(super) struct RegionInfo<'a> {
    pub(super) stretch: &'a Stretch,
    /// A bitmap: bit n is set if the fast bin for chunks of 16 * n bytes is not empty.
    pub(super) fast_sizes: u64,
    pub(super) heads: &'a AtomicUsize,
    /// Whether to collect the links of free chunks.
    pub(super) collects: bool,
    user_end: u64,
}

impl<'a> RegionInfo<'a> {
    pub(super) fn new(space: &Space, stretch: &'a Stretch, heads: &'a AtomicUsize, collects: bool) -> RegionInfo<'a> {
        let filled = stretch.fast.iter().enumerate().filter(|(_, head)| **head != 0);
        let fast_sizes = filled.fold(0, |mask, (bin, _)| mask | 4u64 << bin);
        RegionInfo { stretch, fast_sizes, heads, collects, user_end: space.machine.user_end }
    }

    pub(super) fn is_plain(&self, header: &Header) -> bool {
        let size = header.size();
        header.address != self.stretch.top
            && size >= SMALLEST
            && size % GRAIN == 0
            && size <= self.stretch.end - header.address
    }
}

/// A walk over plain chunks, with the bits and lists that it fills.
pub(super) struct ChunkWalker<'a> {
    pub(super) info: &'a RegionInfo<'a>,
    space: &'a Space,
    pub(super) window: Window<'a>,
    /// The address for which bit 0 of the bitmaps stands.
    pub(super) base: u64,
    pub(super) starts: &'a mut [u64],
    pub(super) low: &'a mut [u64],
    pub(super) links: Vec<Link>,
    /// The first bytes of chunks that may contain a Python object; None after there were too many such chunks.
    pub(super) heads: Option<Vec<ChunkHead>>,
    /// The links of free chunks; None if links are not collected.
    pub(super) free: Option<FreeLinks>,
    /// The header of the last chunk. Only the next header says whether this chunk is in use.
    pub(super) previous: Option<Header>,
    /// The first bytes of the last chunk.
    pub(super) head: ChunkHead,
}

impl<'a> ChunkWalker<'a> {
    pub(super) fn new(
        space: &'a Space,
        info: &'a RegionInfo<'a>,
        base: u64,
        starts: &'a mut [u64],
        low: &'a mut [u64],
    ) -> ChunkWalker<'a> {
        ChunkWalker {
            info,
            space,
            window: Window::new(space, info.stretch.end),
            base,
            starts,
            low,
            links: Vec::new(),
            heads: Some(Vec::new()),
            free: info.collects.then(FreeLinks::default),
            previous: None,
            head: ChunkHead { chunk: 0, size: 0, bytes: [0; HEAD_BYTES] },
        }
    }

    pub(super) fn header(&mut self, address: u64) -> Option<Header> {
        let rest = self.info.stretch.end.saturating_sub(address);
        let bytes = self.window.bytes(address, if rest >= 24 { 24 } else { 16 }).ok()?;
        Some(Header::parse(address, bytes))
    }

    pub(super) fn index(&self, address: u64) -> u64 {
        (address - self.base) / GRAIN
    }

    /// Walk plain chunks from `at` until a chunk starts at or after `to`. Return the address where the walk stopped.
    pub(super) fn plain_chunks(&mut self, mut at: u64, to: u64) -> u64 {
        while at < to {
            at = self.scan_window(at, to);
            let Some(header) = (at < to).then(|| self.header(at)).flatten() else { break };
            if !self.info.is_plain(&header) || self.contradicts(&header) {
                break;
            }
            self.settle(&header);
            self.put(header);
            at += header.size();
        }
        at
    }

    /// Walk plain chunks like `plain_chunks`, but only through the bytes that are already in the window.
    pub(super) fn scan_window(&mut self, mut at: u64, to: u64) -> u64 {
        let ChunkWalker { info, window, base, starts, low, links, heads, free, previous, head, .. } = self;
        let buffer = window.rest(at);
        let mut last = None;
        let mut offset: usize = 0;
        while let Some(bytes) = buffer.get(offset..offset.saturating_add(24)).filter(|_| at < to) {
            let header = Header::parse(at, bytes);
            if !info.is_plain(&header) {
                break;
            }
            if let Some(before) = previous {
                if !header.prev_in_use() {
                    if header.prev_size != before.size() {
                        break;
                    }
                    bits::set(low, (before.address - *base) / GRAIN);
                    if let Some(free) = free {
                        let bytes = match last {
                            Some(start) => &buffer[start + 16..offset.min(start + 16 + LINK_BYTES)],
                            None => head.known(),
                        };
                        free.add(before.address, before.size(), bytes);
                    }
                } else {
                    keep_link(info, links, before);
                    check_flags(info, free, before);
                    match last {
                        Some(start) if heads.is_some() => {
                            let end = (before.size() as usize - 8).min(HEAD_BYTES) + start + 16;
                            keep_head(info, heads, before.address, &buffer[start + 16..end]);
                        }
                        _ => keep_head(info, heads, head.chunk, head.known()),
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

    /// Add the plain chunk that has this header.
    pub(super) fn put(&mut self, header: Header) {
        bits::set(self.starts, self.index(header.address));
        self.previous = Some(header);
        self.look_at_head(&header);
    }

    /// Keep the first bytes of a chunk until the next header says whether the chunk is in use.
    pub(super) fn look_at_head(&mut self, chunk: &Header) {
        if self.heads.is_none() && self.free.is_none() {
            return;
        }
        let bytes = self.window.available(chunk.address + 16, HEAD_BYTES.min(chunk.size() as usize - 8));
        self.head = ChunkHead::new(chunk.address, bytes);
    }

    /// Return whether the next header says that the chunk before it is free but states another size for that chunk.
    pub(super) fn contradicts(&self, next: &Header) -> bool {
        let before = self.previous.as_ref();
        !next.prev_in_use() && before.is_some_and(|before| next.prev_size != before.size())
    }

    /// Record the chunk before `next` as used or free, according to the header `next`.
    pub(super) fn settle(&mut self, next: &Header) {
        let Some(before) = self.previous.take() else { return };
        if next.prev_in_use() {
            keep_link(self.info, &mut self.links, &before);
            keep_head(self.info, &mut self.heads, self.head.chunk, self.head.known());
            check_flags(self.info, &mut self.free, &before);
        } else {
            bits::set(self.low, self.index(before.address));
            if let Some(free) = &mut self.free {
                free.add(before.address, before.size(), self.head.known());
            }
        }
    }

    /// Record the last chunk as used, because no header follows that says whether it is used.
    pub(super) fn leave(&mut self) {
        if let Some(last) = self.previous.take() {
            check_flags(self.info, &mut self.free, &last);
        }
    }

    /// Return whether a chunk seems to begin at `start`: a walk from there reaches an end, or takes `SOUND_STEPS` sound
    /// chunks in a row.
    pub(super) fn is_sound(&mut self, start: u64) -> bool {
        let (end, top) = (self.info.stretch.end, self.info.stretch.top);
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
            if !self.info.is_plain(&header) {
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

    /// Return whether the fenceposts at the end of a stretch begin at this header. The main arena ends with two
    /// fenceposts of size 0x10. A thread's heap ends with one fencepost of size 0x10 and one of size 0. If the heap's
    /// top was too small for both, it ends with only the one of size 0.
    pub(super) fn ends_in_fences(&mut self, header: &Header) -> bool {
        let rest = self.info.stretch.end - header.address;
        match (header.size(), rest) {
            (0, GRAIN) => header.prev_in_use(),
            (GRAIN, _) => {
                let second = self.header(header.address + GRAIN).map(|second| second.size());
                second == Some(GRAIN) || (second == Some(0) && rest == 2 * GRAIN)
            }
            _ => false,
        }
    }

    /// Return whether a skipped chunk begins at `start`. The walk from `start` must have only sound chunks, and must
    /// pass over `at`. Before `at` there must be a free chunk to which its neighbours in the list link back. Stale
    /// chunks have no such neighbours. `failed` has the start addresses of walks that are known to fail, so that no
    /// address is walked from twice.
    pub(super) fn passes(&mut self, start: u64, at: u64, failed: &mut HashSet<u64>) -> bool {
        let (mut stand, mut linked) = (start, false);
        while stand < at {
            let Some(header) = self.header(stand).filter(|header| self.info.is_plain(header)) else { return false };
            let next = stand + header.size();
            if let Some(next) = self.header(next).filter(|next| !next.prev_in_use()) {
                if next.prev_size != header.size() {
                    return false;
                }
                linked = linked || self.links_back(stand);
            }
            if !failed.insert(stand) {
                return false;
            }
            stand = next;
        }
        linked && stand > at && (stand == self.info.stretch.end || self.is_sound(stand))
    }

    /// Return whether the two chunks (or bin heads) to which a free chunk's `fd` and `bk` point link back to it.
    fn links_back(&mut self, chunk: u64) -> bool {
        let word = |address: u64| self.space.word(address).ok();
        let ahead = word(chunk + 16).and_then(|fd| word(fd.wrapping_add(24)));
        let behind = word(chunk + 24).and_then(|bk| word(bk.wrapping_add(16)));
        ahead == Some(chunk) && behind == Some(chunk)
    }

    /// Return the first address in [from, to) for which `is_sound` is true; None if there is none.
    pub(super) fn next_sound(&mut self, from: u64, to: u64, control: &Control) -> Result<Option<u64>, Cancellation> {
        let mut at = from;
        while at < to {
            if self.is_sound(at) {
                return Ok(Some(at));
            }
            if at % (64 << 10) == 0 {
                control.advance(0)?;
            }
            at += GRAIN;
            if self.header(at).is_none() {
                let Some(backed) = self.space.next_backed(at) else { break };
                // Skip whole pages of memory that is mapped but cannot be read.
                let page = self.space.machine.page.bytes();
                at = if backed == at { (at / page + 1) * page } else { at + (backed - at).next_multiple_of(GRAIN) };
            }
        }
        Ok(None)
    }
}

#[inline]
pub(super) fn keep_link(info: &RegionInfo<'_>, links: &mut Vec<Link>, chunk: &Header) {
    let bin = chunk.size() / GRAIN;
    if bin < 2 + MAX_FAST_BINS as u64 && info.fast_sizes >> bin & 1 == 1 {
        links.push(Link { tagged: chunk.address | (bin - 2), word: chunk.link });
    }
}

#[inline]
fn check_flags(info: &RegionInfo<'_>, free: &mut Option<FreeLinks>, chunk: &Header) {
    if let Some(found) = free {
        let expected = if info.stretch.arena == 0 { 0 } else { NON_MAIN_ARENA };
        found.check_flags(chunk.address, chunk.size_word, expected);
    }
}

#[inline]
pub(super) fn keep_head(info: &RegionInfo<'_>, heads: &mut Option<Vec<ChunkHead>>, chunk: u64, bytes: &[u8]) {
    let Some(kept) = heads else { return };
    if !ChunkHead::may_be_object(bytes, info.user_end) {
        return;
    }
    match info.heads.fetch_add(1, Ordering::Relaxed) < MAX_HEADS {
        true => kept.push(ChunkHead::new(chunk, bytes)),
        false => *heads = None,
    }
}
