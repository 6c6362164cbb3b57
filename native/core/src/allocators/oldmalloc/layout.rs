//! The structures of musl's malloc up to 1.2.0 (src/internal/malloc_impl.h, src/malloc/malloc.c).

use gdbheap_access::bytes::u64_at;

/// The unit of chunk sizes in bytes: sizes are multiples of it (`SIZE_ALIGN`). Chunks begin `HEADER` bytes before a
/// multiple of it.
pub(super) const GRAIN: u64 = 32;
/// The size of `{size_t psize, csize}`, which precedes the user address (`OVERHEAD`).
pub(super) const HEADER: u64 = 16;
/// A flag. In `csize` it says that the chunk is in use, in `psize` that the chunk before it is in use. It is not set in
/// chunks that have a mapping of their own.
pub(super) const IN_USE: u64 = 1;
pub(super) const BINS: usize = 64;
/// The size in bytes of `struct bin {int lock[2]; struct chunk *head, *tail;}`. `mal` begins with `binmap`, and the
/// bins follow.
pub(super) const BIN: usize = 24;
pub(super) const HEAD: usize = 8;
pub(super) const TAIL: usize = 16;
pub(super) const BINMAP: usize = 8;
pub(super) const MAL: usize = BINMAP + BINS * BIN;
/// The `psize` of a chunk that has a mapping of its own, if the chunk was not aligned.
pub(super) const OF_MAPPING: u64 = 16;

/// The two words at the start of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkWords {
    pub(super) psize: u64,
    pub(super) csize: u64,
}

impl ChunkWords {
    pub(super) fn of(bytes: &[u8]) -> ChunkWords {
        ChunkWords { psize: u64_at(bytes, 0), csize: u64_at(bytes, 8) }
    }

    pub(super) fn size(self) -> u64 {
        self.csize & !IN_USE
    }

    pub(super) fn is_used(self) -> bool {
        self.csize & IN_USE != 0
    }

    /// Return whether a chunk that begins with these two words may lie at `at`, below `limit`.
    pub(super) fn fits(self, at: u64, limit: u64) -> bool {
        self.size() > 0 && self.size() % GRAIN == 0 && self.size() < limit.saturating_sub(at)
    }

    /// Return whether a heap may begin with a chunk that has these two words.
    pub(super) fn begins(self) -> bool {
        self.psize == IN_USE && self.size() > 0 && self.size() % GRAIN == 0
    }
}

/// Return the address that a bin would have as a chunk of its own list: the bin's `head` and `tail` lie where a chunk
/// has its links.
pub(super) fn ring(mal: u64, bin: usize) -> u64 {
    mal + (BINMAP + bin * BIN + HEAD) as u64 - HEADER
}
