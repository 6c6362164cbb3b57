//! The layout of the objects of one interpreter: the fields of types, the bytes that precede an object, and the pointer
//! fields by which objects own blocks.

use gdbheap_access::bytes::{u64_at, word_at};
use gdbheap_access::memory::space::Space;

/// The smallest size in bytes of a block with a syntax tree (CPython Python/pyarena.c: DEFAULT_BLOCK_SIZE).
const MIN_SYNTAX: u64 = 8192;

/// How to compute the size of a buffer from fields of its owner. `rule`: the rule, such as COUNT in unwalked.rs. `at`,
/// `unit`, `more`: its parameters, whose meaning depends on the rule.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub rule: u8,
    /// An offset in the object; -1: no offset.
    pub at: i64,
    pub unit: u64,
    pub more: u64,
}

/// A pointer field that owns a block, at `offset` in the object. The pointer counts only if the 32 bits at the offset
/// `test` in the object, masked, are in the range from `low` to `high`. If the mask is zero, the pointer always counts.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub offset: i64,
    pub test: i64,
    pub mask: u32,
    pub low: u32,
    pub high: u32,
    /// The role of the block for its owner: an index into the caller's list of names.
    pub role: u8,
    /// The offset in the block of the link to the next block of a chain. If it is negative (NOTHING or CLAIM, for
    /// example), the block belongs to no chain.
    pub follow: i32,
    /// The offset, in the owner, of the pointer to the last block of its chain of blocks. 0 if there is no such
    /// pointer: the chain then ends with a link of 0.
    pub last: i64,
    /// The kind of references that the block contains: a constant of graph/shapes.rs, such as ITEMS.
    pub contents: u32,
    /// The offset, in the owner, of the number of references; -1 if the owner does not have the number.
    pub count_at: i64,
    /// The rule for computing the size of the block.
    pub extent: Extent,
}

pub(crate) const NOTHING: i32 = -1;
/// A value of `follow` for a claim with a condition: a block must begin at the pointer and must not look like an
/// object.
pub(crate) const CLAIM: i32 = -3;

/// Types that own blocks through the same fields. They are selected by a bit of `tp_flags`, or by the name of a static
/// base type.
#[derive(Clone, Debug)]
pub struct Family {
    pub flags: u64,
    pub names: Vec<String>,
    pub claims: Vec<Claim>,
}

/// The layout of `PyTypeObject` and of the bytes that precede an object in its block, as the caller knows it.
#[derive(Clone, Debug, Default)]
pub struct TypeLayout {
    /// The offset in bytes of the reference count: 0, or 16 if two links precede it (Py_TRACE_REFS).
    pub ob_refcnt: u64,
    pub ob_type: u64,
    pub tp_name: u64,
    pub tp_basicsize: u64,
    pub tp_itemsize: u64,
    pub tp_flags: u64,
    pub tp_base: u64,
    /// The smallest size in bytes of a chunk that contains a heap type.
    pub smallest_heap_type: u64,
    pub flag_gc: u64,
    pub flag_type_subclass: u64,
    /// The number of bytes that debug hooks put before every allocation.
    pub hook: u64,
    /// The size of PyGC_Head in bytes.
    pub gc_head: u64,
    /// Flags of types. If a type has one of them, more bytes precede its objects (see `pre_header`).
    pub flags_pre_header: u64,
    /// How many bytes precede an object whose type has one of `flags_pre_header`, in addition to the collector's head.
    pub pre_header: u64,
    /// The flag of types whose objects may be smaller than tp_basicsize (compact str).
    pub flag_no_minimum: u64,
    /// The flags of types whose objects begin with plain numbers: ints, strings, bytes.
    pub flags_plain: u64,
    /// Static types whose objects may lack their last fields: (tp_name, least size in bytes).
    pub shortened: Vec<(String, u64)>,
    /// How to read the size of a module's state. Each offset but the last leads from one structure to a pointer to the
    /// next. The last one is the offset of the size.
    pub state_size: Vec<u64>,
    pub slab: Option<Slab>,
    pub families: Vec<Family>,
    pub tp_dealloc: u64,
    /// The address of the `tp_dealloc` that all classes have which a class statement made. A heap type with another
    /// `tp_dealloc` was made in C.
    pub class_dealloc: u64,
    /// The names of types whose fields contain only references to objects, plain values, and the pointers that
    /// `families` describes.
    pub closed: Vec<String>,
    /// The role of a block of C code that the graph assigns to an object: no layout describes the block.
    pub reached_role: u8,
    /// The names of types whose own name cannot be read, by the address of the type.
    pub names: Vec<(u64, String)>,
    /// The ranges [start, end) of the writable data of loaded objects.
    pub data: Vec<(u64, u64)>,
    /// Ranges that are not walked, ascending, in which objects may lie. The list has entries only while objects in such
    /// ranges are searched.
    pub unwalked: Vec<(u64, u64)>,
}

/// The layout of slabs: blocks of malloc that contain many objects each (int and float of Python 2).
/// - `block`: the requested size of a slab in bytes.
/// - `header`: how many bytes precede the first object.
/// - `item`: the size of each object in bytes.
#[derive(Clone, Debug)]
pub struct Slab {
    pub block: u64,
    pub header: u64,
    pub item: u64,
    /// The names (`tp_name`) of the types whose objects lie in slabs.
    pub names: Vec<String>,
}

const PLAIN_TYPE: u64 = 8;

impl TypeLayout {
    /// Return the size in bytes of an object's head: the reference count, the type, and in some builds more fields.
    pub(crate) fn head(&self) -> u64 {
        self.ob_type + 8
    }

    /// Return the size of a module's state. The block is larger, and may contain stale words of its last user after the
    /// state. None if the release has no field for the size, or if the field cannot be read.
    pub(crate) fn state_bytes(&self, space: &Space, module: u64) -> Option<u64> {
        let step = |at: u64, offset: &u64| space.word(at.wrapping_add(*offset)).ok();
        (!self.state_size.is_empty()).then(|| self.state_size.iter().try_fold(module, step)).flatten()
    }

    /// Return whether the head of an object consists only of the reference count and the type.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.ob_type == PLAIN_TYPE
    }

    /// Return whether objects have the head of free-threaded builds: `ob_tid@0, ob_mutex@10, ob_ref_local@12,
    /// ob_ref_shared@16, ob_type@24`.
    #[inline(always)]
    pub(crate) fn is_free_threaded(&self) -> bool {
        self.ob_type != self.ob_refcnt + 8
    }

    /// Return whether `pointer` is the start of the requested bytes of a block. They follow the header of a debug hook,
    /// or two headers if malloc's domain adds one. Without debug hooks, they begin at the start of the block.
    pub(crate) fn begins_at(&self, block: u64, pointer: u64) -> bool {
        let inside = pointer.wrapping_sub(block);
        inside == self.hook || inside == 2 * self.hook
    }

    /// Return how many bytes precede the inner one of two debug headers; 0 if there is only one. Python passes requests
    /// above 512 bytes on to malloc, whose domain adds a header too. A header consists of the size, a letter for the
    /// domain (`r` for malloc's), and the same byte seven times.
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

    /// Return whether this is a block of a PyArena, which contains a syntax tree, such as that of a running main
    /// script. The block begins with its usable size, its used size, a pointer to the next block, and the address of
    /// its memory, which follows right after these words (CPython Python/pyarena.c).
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
