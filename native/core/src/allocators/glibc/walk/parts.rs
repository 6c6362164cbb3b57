//! Parts of a stretch, each walked by any free worker from the first address in it that looks like a chunk.

use super::walker::{ChunkBits, ChunkWalker, Header, RegionInfo};
use crate::allocators::glibc::chunks::{ChunkHead, Link};
use crate::allocators::glibc::free_links::FreeLinks;
use gdbheap_access::error::Cancellation;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{take, Control};
use std::sync::Mutex;

/// The size of one part in bytes, a multiple of the bytes that one word of bits covers.
pub(super) const PART: u64 = 16 << 20;
/// The number of bytes that are walked between two checks for cancellation.
pub(super) const STRIDE: u64 = 1 << 20;
/// The number of bytes at the start of a part that are searched for its first chunk. If no chunk begins there, the part
/// lies in the middle of a large chunk.
const MAX_SEARCHED: u64 = 256 << 10;

/// The result of the walk of one part. The walk sets the bits of the chunks in the bitmaps of the whole stretch.
pub(super) struct WalkedPart {
    pub(super) index: usize,
    pub(super) from: u64,
    /// The address at which the walk stopped; `from` if the walk found no chunk to begin with.
    pub(super) to: u64,
    pub(super) previous: Option<Header>,
    pub(super) head: ChunkHead,
    pub(super) links: Vec<Link>,
    pub(super) heads: Option<Vec<ChunkHead>>,
    pub(super) free: Option<FreeLinks>,
}

/// A part that has to be walked. The worker that walks it takes `words`, the part's bits.
pub(super) struct PartJob<'a> {
    pub(super) index: usize,
    pub(super) info: RegionInfo<'a>,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) words: Mutex<Option<ChunkBits<'a>>>,
}

impl PartJob<'_> {
    pub(super) fn walk(&self, space: &Space, control: &Control) -> Result<Option<WalkedPart>, Cancellation> {
        let Some((starts, low)) = take(&self.words) else { return Ok(None) };
        let mut walker = ChunkWalker::new(space, &self.info, self.from, starts, low);
        let begin = match self.from == self.info.stretch.start {
            true => Some(self.from),
            false => walker.next_sound(self.from, self.to.min(self.from + MAX_SEARCHED), control)?,
        };
        let mut to = self.from;
        if let Some(begin) = begin {
            to = begin;
            loop {
                let before = to;
                to = walker.plain_chunks(before, self.to.min(before + STRIDE));
                control.advance(to.min(self.to) - before)?;
                if to >= self.to || to < before + STRIDE {
                    break;
                }
            }
        }
        let ChunkWalker { previous, head, links, heads, free, .. } = walker;
        Ok(Some(WalkedPart { index: self.index, from: self.from, to, previous, head, links, heads, free }))
    }
}
