//! The links of free chunks, which the walk collects if the bins will be followed.

use gdbheap_access::bytes::u64_at;

const IS_MMAPPED: u64 = 2;
/// The flag in the size word of a chunk which says that the chunk lies in a thread's arena.
pub(crate) const NON_MAIN_ARENA: u64 = 4;
/// The smallest size in bytes of a chunk in a large bin.
const MIN_LARGE: u64 = 0x400;
const MAX_WRONG: usize = 1000;

/// A free chunk: its address, its size in bytes, and its list links `fd` and `bk`.
#[derive(Clone, Copy)]
pub(crate) struct FreeChunk {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) fd: u64,
    pub(crate) bk: u64,
}

/// The `fd_nextsize` and `bk_nextsize` links of the first chunk of a size in a large bin.
#[derive(Clone, Copy)]
pub(crate) struct SizeLink {
    pub(crate) address: u64,
    pub(crate) fd: u64,
    pub(crate) bk: u64,
}

/// A used chunk whose size word has flags that are wrong in its arena.
#[derive(Clone, Copy)]
pub(crate) struct WrongFlags {
    pub(crate) address: u64,
    pub(crate) expected: u64,
    pub(crate) found: u64,
}

/// The data that a walk collects for following the bins. Each list is ascending by address.
#[derive(Default)]
pub(crate) struct FreeLinks {
    /// The free chunks, one list for each part of the walk.
    pub(crate) chunks: Vec<Vec<FreeChunk>>,
    pub(crate) sizes: Vec<SizeLink>,
    pub(crate) flags: Vec<WrongFlags>,
}

impl FreeLinks {
    /// Add a free chunk. `bytes` are the bytes after the chunk's header.
    #[inline]
    pub(crate) fn add(&mut self, address: u64, size: u64, bytes: &[u8]) {
        let word = |at| u64_at(bytes, at);
        if size >= MIN_LARGE && word(16) != 0 {
            self.sizes.push(SizeLink { address, fd: word(16), bk: word(24) });
        }
        let chunk = FreeChunk { address, size, fd: word(0), bk: word(8) };
        match self.chunks.last_mut() {
            Some(last) => last.push(chunk),
            None => self.chunks.push(vec![chunk]),
        }
    }

    /// Record a used chunk whose flags differ from `expected`, the flags of its arena.
    #[inline]
    pub(crate) fn check_flags(&mut self, address: u64, size_word: u64, expected: u64) {
        let found = size_word & (IS_MMAPPED | NON_MAIN_ARENA);
        if found != expected && self.flags.len() < MAX_WRONG {
            self.flags.push(WrongFlags { address, expected, found });
        }
    }

    /// Append the entries of another walk, but only those of chunks at or after address `at`.
    pub(crate) fn take_over(&mut self, other: FreeLinks, at: u64) {
        for mut part in other.chunks {
            if part.first().is_some_and(|chunk| chunk.address < at) {
                part.retain(|chunk| chunk.address >= at);
            }
            self.chunks.push(part);
        }
        self.sizes.extend(other.sizes.into_iter().filter(|link| link.address >= at));
        self.flags.extend(other.flags.into_iter().filter(|chunk| chunk.address >= at));
    }

    /// Drop the entries of chunks at or after address `from`.
    pub(crate) fn truncate(&mut self, from: u64) {
        for part in self.chunks.iter_mut().rev().take_while(|part| part.last().is_none_or(|last| last.address >= from))
        {
            part.truncate(part.partition_point(|chunk| chunk.address < from));
        }
        self.sizes.truncate(self.sizes.partition_point(|link| link.address < from));
        self.flags.truncate(self.flags.partition_point(|chunk| chunk.address < from));
    }

    /// Return the free chunks that begin in [from, to).
    pub(crate) fn between(&self, from: u64, to: u64) -> impl Iterator<Item = &FreeChunk> {
        let first = self.chunks.partition_point(|part| part.last().is_none_or(|last| last.address < from));
        self.chunks[first..]
            .iter()
            .flat_map(move |part| &part[part.partition_point(|chunk| chunk.address < from)..])
            .take_while(move |chunk| chunk.address < to)
    }
}
