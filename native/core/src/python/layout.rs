//! What is known of one interpreter's objects: where a type says what, what precedes an object, which fields own blocks.

use gdbheap_access::bytes::{u64_at, word_at};
use gdbheap_access::memory::space::Space;

/// CPython Python/pyarena.c: DEFAULT_BLOCK_SIZE.
const MIN_SYNTAX: u64 = 8192;

/// What says how large a buffer is: `rule`, and what that needs.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub rule: u8,
    /// An offset from the object; -1: nowhere.
    pub at: i64,
    pub unit: u64,
    pub more: u64,
}

/// A pointer field that owns a block, at `offset` from the object; only where the 32 bits at `test` from the object,
/// masked, are `low` to `high` (a mask of zero: always).
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub offset: i64,
    pub test: i64,
    pub mask: u32,
    pub low: u32,
    pub high: u32,
    /// What the block is to its owner, an index into the caller's names.
    pub role: u8,
    /// What in the block leads to further ones: NOTHING, ALL its words, or the word at this offset, a link to the next.
    pub follow: i32,
    /// Where the owner names the last block of such a chain, as an offset from the object; 0: a link is 0 there.
    pub last: i64,
    /// What references the block holds (graph/shapes.rs), and where the owner says how many, as an offset from the
    /// object; -1: nowhere.
    pub contents: u32,
    pub count_at: i64,
    /// What says how large the block is.
    pub extent: Extent,
}

pub(crate) const NOTHING: i32 = -1;
/// Not the block but the claim itself: it holds only if the block begins there and does not look like an object.
pub(crate) const CLAIM: i32 = -3;

/// Types that own blocks by the same fields: by a bit of `tp_flags`, or by the name of a static base type.
#[derive(Clone, Debug)]
pub struct Family {
    pub flags: u64,
    pub names: Vec<String>,
    pub claims: Vec<Claim>,
}

/// What the caller knows of `PyTypeObject` and of what precedes an object in its block.
#[derive(Clone, Debug, Default)]
pub struct TypeLayout {
    /// 0; 16 where two links stand before it (Py_TRACE_REFS).
    pub ob_refcnt: u64,
    pub ob_type: u64,
    pub tp_name: u64,
    pub tp_basicsize: u64,
    pub tp_itemsize: u64,
    pub tp_flags: u64,
    pub tp_base: u64,
    /// The least size of a heap type's chunk.
    pub smallest_heap_type: u64,
    pub flag_gc: u64,
    pub flag_type_subclass: u64,
    /// Bytes that debug hooks put before whatever is allocated.
    pub hook: u64,
    /// Bytes of PyGC_Head.
    pub gc_head: u64,
    /// Flags any of which puts `pre_header` more bytes before the object.
    pub flags_pre_header: u64,
    pub pre_header: u64,
    /// A bit of flags whose types may be smaller than tp_basicsize (compact str).
    pub flag_no_minimum: u64,
    /// Flags of types whose objects begin with plain numbers: ints, strings, bytes.
    pub flags_plain: u64,
    /// Static types whose objects may lack their last fields: (tp_name, least bytes).
    pub shortened: Vec<(String, u64)>,
    /// Where a module says how large its state is: offsets to follow from the module, the last one that of the size.
    pub state_size: Vec<u64>,
    pub slab: Option<Slab>,
    pub families: Vec<Family>,
    pub tp_dealloc: u64,
    /// The deallocator of classes that a class statement made: such a class adds nothing that is written in C.
    pub class_dealloc: u64,
    /// Names of types whose fields hold nothing but objects, plain values and what `families` says.
    pub closed: Vec<String>,
    /// The role of a block that was reached by following pointers.
    pub reached_role: u8,
    /// Names of types whose own cannot be read.
    pub names: Vec<(u64, String)>,
    /// [start, end) of the writable data of loaded objects.
    pub data: Vec<(u64, u64)>,
    /// While those are looked for: where they may lie, ascending.
    pub unwalked: Vec<(u64, u64)>,
}

/// How blocks with many objects look: `block` bytes requested, `header` of them before the first object, `item` bytes an object.
#[derive(Clone, Debug)]
pub struct Slab {
    pub block: u64,
    pub header: u64,
    pub item: u64,
    /// The types, by tp_name.
    pub names: Vec<String>,
}

const PLAIN_TYPE: u64 = 8;

impl TypeLayout {
    /// Bytes of an object that hold its count and its type, and in some builds more.
    pub(crate) fn head(&self) -> u64 {
        self.ob_type + 8
    }

    /// How large a module's state is: the block is larger, and what its last user left there leads anywhere. None where
    /// the release has no such field, or it cannot be read.
    pub(crate) fn state_bytes(&self, space: &Space, module: u64) -> Option<u64> {
        let step = |at: u64, offset: &u64| space.word(at.wrapping_add(*offset)).ok();
        (!self.state_size.is_empty()).then(|| self.state_size.iter().try_fold(module, step)).flatten()
    }

    /// Whether objects begin with their count and their type, and nothing else.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.ob_type == PLAIN_TYPE
    }

    /// Whether objects have the head of free-threaded builds: `ob_tid@0, ob_mutex@10, ob_ref_local@12, ob_ref_shared@16,
    /// ob_type@24`.
    #[inline(always)]
    pub(crate) fn is_free_threaded(&self) -> bool {
        self.ob_type != self.ob_refcnt + 8
    }

    /// Whether what was asked for when the block was handed out begins at `pointer`: after its hook, or after malloc's too.
    pub(crate) fn begins_at(&self, block: u64, pointer: u64) -> bool {
        let inside = pointer.wrapping_sub(block);
        inside == self.hook || inside == 2 * self.hook
    }

    /// Bytes before the debug hook of an object: a request beyond 512 bytes goes on to malloc, which has a hook too. A
    /// hook is the size, a letter for the domain (r is malloc's), and the same byte seven times.
    #[inline(always)]
    pub(crate) fn outer_hook(&self, head: &[u8]) -> usize {
        if self.hook == 0 || head.len() < 2 * self.hook as usize {
            return 0;
        }
        let (outer, inner) = (u64_at(head, 8), u64_at(head, self.hook as usize + 8));
        if outer as u8 == b'r' && outer >> 8 == inner >> 8 && outer >> 16 == (outer << 8) >> 16 {
            return self.hook as usize;
        }
        0
    }

    /// Whether it is a block of a PyArena, where a syntax tree lies, as of a main script while it runs: what is asked for
    /// and used, the next block, and where its memory begins, right after (CPython Python/pyarena.c).
    #[inline(always)]
    pub(crate) fn is_syntax(&self, address: u64, size: u64, head: &[u8]) -> bool {
        size > MIN_SYNTAX && self.has_arena_head(address, size, head)
    }

    #[cold]
    fn has_arena_head(&self, address: u64, size: u64, head: &[u8]) -> bool {
        let outer = self.outer_hook(head);
        let word = |at: usize| word_at(head, outer + at);
        let (Some(room), Some(taken), Some(memory)) = (word(0), word(8), word(24)) else { return false };
        memory == address + outer as u64 + 32 && (MIN_SYNTAX..size).contains(&room) && taken <= room
    }
}
