//! The structures of musl's malloc up to 1.2.0 (src/internal/malloc_impl.h, src/malloc/malloc.c).

use gdbheap_access::bytes::u64_at;

/// Sizes of chunks are multiples of this (`SIZE_ALIGN`). Chunks begin `HEADER` bytes before a multiple.
pub(super) const GRAIN: u64 = 32;
/// `{size_t psize, csize}`, before the user address (`OVERHEAD`).
pub(super) const HEADER: u64 = 16;
/// A bit. In `csize`: the chunk is in use. In `psize`: the chunk before it is in use. Not set in chunks with a mapping
/// of their own.
pub(super) const IN_USE: u64 = 1;
pub(super) const BINS: usize = 64;
/// `struct bin {int lock[2]; struct chunk *head, *tail;}`; `mal` begins with `binmap`.
pub(super) const BIN: usize = 24;
pub(super) const HEAD: usize = 8;
pub(super) const TAIL: usize = 16;
pub(super) const BINMAP: usize = 8;
pub(super) const MAL: usize = BINMAP + BINS * BIN;
/// The `psize` of a chunk with a mapping of its own, if it was not aligned.
pub(super) const OF_MAPPING: u64 = 16;

/// The head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) psize: u64,
    pub(super) csize: u64,
}

impl Head {
    pub(super) fn of(bytes: &[u8]) -> Head {
        Head { psize: u64_at(bytes, 0), csize: u64_at(bytes, 8) }
    }

    pub(super) fn size(self) -> u64 {
        self.csize & !IN_USE
    }

    pub(super) fn is_used(self) -> bool {
        self.csize & IN_USE != 0
    }

    /// Return whether this may be the head of a chunk at `at`, below `limit`.
    pub(super) fn fits(self, at: u64, limit: u64) -> bool {
        self.size() > 0 && self.size() % GRAIN == 0 && self.size() < limit.saturating_sub(at)
    }

    /// Return whether a heap may begin with this head.
    pub(super) fn begins(self) -> bool {
        self.psize == IN_USE && self.size() > 0 && self.size() % GRAIN == 0
    }
}

/// Return the address that a bin would have as a chunk of its own list: its `head` and `tail` lie where a chunk has its
/// links.
pub(super) fn ring(mal: u64, bin: usize) -> u64 {
    mal + (BINMAP + bin * BIN + HEAD) as u64 - HEADER
}
