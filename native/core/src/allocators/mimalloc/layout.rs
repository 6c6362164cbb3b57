//! Offsets of the fields of mimalloc's structures, for each layout that these structures have had: `FORMS`.
//!
//! Up to 2.x memory is cut into segments, aligned to 32 MiB. A segment begins with `mi_segment_t`: `used, cookie`, then
//! `segment_slices, segment_info_slices, u32 kind, slice_entries, thread_id, slices[]` one after the other. A slice is
//! 64 KiB; the entry of a span's first slice is its `mi_page_t`, which begins with `u32 slice_count@0, u32
//! slice_offset@4`. Since 3.0 a map has for each slice the address of its `mi_page_t`. Pages are cut from arenas
//! (`mi_arena_t`) or come from the kernel one by one; the `mi_memid_t` of each page says which.
//!
//! The offsets come from the debug information of builds of 2.0.9, 2.1.2, 2.1.7, 2.2.4, 2.3.2, 3.1.5, 3.2.8 and 3.3.2,
//! with and without `MI_SECURE=4`. The offsets of 3.0 are from its headers, and were checked on Debian's 3.0.1.
//! CPython's own copy has the layout 3.13t, and in late 3.14 and 3.15 the layout 2.2. In 3.4 `page_start` is a number
//! of words, which was checked on a build. The offsets of 3.6 come from the memory and the machine code of Debian's
//! 3.6.0.

use crate::allocators::mimalloc::page::Page;
use gdbheap_access::bytes::{half_at, word_at};

pub(crate) const ALIGNMENT: u64 = 32 << 20;
pub(crate) const SLICE: u64 = 64 << 10;
/// The largest number of entries of a segment's table. Each slice has an entry. If a segment has more slices than
/// entries, its last slices have none.
pub(crate) const ENTRIES: u64 = 512;
pub(crate) const LARGEST_HEAD: usize = 288;
pub(crate) const MAX_SEGMENT_SLICES: u64 = 1 << 26;
const HUGE_BLOCK: u64 = 1 << 31;

/// The offsets in bytes of the fields of `mi_segment_t`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentFields {
    pub(crate) used: usize,
    pub(crate) cookie: usize,
    /// The offset in bytes of `segment_slices`, after which `segment_info_slices`, `kind`, `slice_entries`, `thread_id`
    /// and `slices` follow.
    pub(crate) counts: usize,
    pub(crate) table: u64,
}

/// Offsets of the fields of `mi_arena_t`. `start`: the offset of the address of the first slice, or None if the
/// `mi_arena_t` itself lies there. `slices`: the offset of `slice_count`, after which `info_slices` follows. `bitmaps`:
/// the offset of `slices_free`, after which `slices_committed` and `slices_dirty` follow. `leftovers`: whether the map
/// may still point to freed pages, as it does in 3.0.1 (`_mi_page_map_unregister` registers them again).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArenaHead {
    pub(crate) start: Option<usize>,
    pub(crate) slices: usize,
    pub(crate) bitmaps: usize,
    pub(crate) leftovers: bool,
}

/// The rule for the offset at which the blocks of a page begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The blocks begin after a gap, so that the blocks of different pages fall on different cache lines. The gap has
    /// the size of three blocks for block sizes up to 64 bytes, and of one block for sizes up to 512.
    Blocks,
    /// The blocks begin at this offset, if they have 8 to 1024 bytes.
    Fixed(u64),
    /// The blocks begin at the address that the field at this offset contains.
    Stored(usize),
    /// The blocks begin after the `mi_page_t`, at a distance in words that the field at this offset contains.
    Words(usize),
    /// The blocks begin after the `mi_page_t`, at a distance in bytes that the field at this offset contains.
    Bytes(usize),
}

/// Offsets of the fields of `mi_page_t`. A pair is an offset and a size in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    /// The size of the structure in bytes.
    pub(crate) bytes: usize,
    capacity: usize,
    reserved: usize,
    used: (usize, usize),
    size: (usize, usize),
    start: Start,
    /// The offsets of the heads of the three lists: `free`, `local_free`, and `xthread_free`, which has two flags in
    /// its low bits.
    lists: [usize; 3],
    /// The offset of the owner: the address of the heap, or the id of the thread. The owner is zero if that thread has
    /// ended.
    owner: usize,
    /// The offset of the field with the tag of the page's heap, and the position of the tag's lowest bit in this field.
    tag: Option<(usize, u8)>,
    /// The offset of the two keys with which list links, or the words after blocks, are encoded.
    keys: Option<usize>,
    /// The offset of `mi_memid_t`, for pages that are not parts of segments.
    pub(crate) memid: usize,
}

/// The way in which memory is cut into pages: from segments, or with a map of pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Family {
    Segments(SegmentFields),
    Map(ArenaHead),
}

/// One form of mimalloc's structures, which some releases share.
#[derive(Clone, Copy, Debug)]
pub struct MimallocForm {
    pub name: &'static str,
    pub(crate) family: Family,
    pub(crate) fields: Fields,
    /// The offset in bytes of `thread_delayed_free` in `mi_heap_t`.
    pub(crate) delayed: Option<u64>,
    /// Whether each heap of a thread has its own tag.
    pub tagged: bool,
    /// Whether only CPython's own copy has this form, and no library.
    pub only_pythons: bool,
    /// Whether list links are encoded.
    pub(crate) encoded: bool,
}

const EARLY: SegmentFields = SegmentFields { used: 208, cookie: 216, counts: 224, table: 264 };
const LATE: SegmentFields = SegmentFields { used: 216, cookie: 224, counts: 248, table: 288 };
const OLD_DELAYED: Option<u64> = Some(2840);
const DELAYED: Option<u64> = Some(8);
/// The offset in bytes of the heap's keys, counted from `thread_delayed_free`.
pub(crate) const HEAP_KEYS: u64 = 32;

const OLD: Fields = Fields {
    bytes: 80,
    capacity: 10,
    reserved: 12,
    used: (24, 4),
    size: (28, 4),
    start: Start::Blocks,
    lists: [16, 32, 40],
    owner: 48,
    tag: None,
    keys: None,
    memid: 0,
};
/// The fields in builds of CPython without the GIL: a list of pages to be freed later follows the other fields.
const FREE_THREADED: Fields = Fields { bytes: 96, tag: Some((8, 3)), ..OLD };
const NEW: Fields = Fields {
    bytes: 96,
    used: (32, 2),
    size: (40, 8),
    start: Start::Stored(48),
    lists: [16, 24, 56],
    owner: 64,
    tag: Some((35, 0)),
    ..OLD
};
const MAPPED: Fields = Fields {
    bytes: 120,
    capacity: 18,
    reserved: 20,
    used: (16, 2),
    size: (40, 8),
    start: Start::Stored(48),
    lists: [8, 24, 32],
    owner: 0,
    tag: None,
    keys: None,
    memid: 96,
};
const WORDS: Fields = Fields { bytes: 112, start: Start::Words(48), memid: 88, ..MAPPED };
const SEPARATE: Fields = Fields {
    bytes: 128,
    capacity: 56,
    reserved: 58,
    used: (40, 2),
    size: (32, 8),
    start: Start::Bytes(48),
    lists: [16, 24, 64],
    owner: 8,
    memid: 104,
    ..MAPPED
};
const FIRST_ARENA: ArenaHead = ArenaHead { start: None, slices: 32, bitmaps: 64, leftovers: true };
/// The arena since 3.1: the program may supply a function that commits memory, and the fields for this function precede
/// the bitmaps.
const COMMITTED_ARENA: ArenaHead = ArenaHead { start: None, slices: 32, bitmaps: 80, leftovers: false };
const SECOND_ARENA: ArenaHead = ArenaHead { start: None, slices: 40, bitmaps: 88, leftovers: false };
const ARENA: ArenaHead = ArenaHead { start: None, slices: 40, bitmaps: 104, leftovers: false };
/// The arena of 3.6: the `mi_page_t` of its first pages precede the `mi_arena_t`.
const MOVED_ARENA: ArenaHead = ArenaHead { start: Some(40), slices: 48, bitmaps: 112, leftovers: false };

/// Insert two keys at offset `at`. The fields after `at` move by the size of the keys.
const fn keyed(fields: Fields, at: usize) -> Fields {
    let xthread = if fields.lists[2] >= at { fields.lists[2] + 16 } else { fields.lists[2] };
    Fields {
        bytes: fields.bytes + 16,
        lists: [fields.lists[0], fields.lists[1], xthread],
        owner: if fields.owner >= at { fields.owner + 16 } else { fields.owner },
        memid: if fields.memid >= at { fields.memid + 16 } else { fields.memid },
        keys: Some(at),
        ..fields
    }
}

const fn started(start: Start) -> Fields {
    Fields { start, ..OLD }
}

const fn of_segments(name: &'static str, head: SegmentFields, fields: Fields, delayed: Option<u64>) -> MimallocForm {
    let encoded = fields.keys.is_some();
    MimallocForm { name, family: Family::Segments(head), fields, delayed, tagged: false, only_pythons: false, encoded }
}

const fn of_map(name: &'static str, arena: ArenaHead, fields: Fields) -> MimallocForm {
    let encoded = fields.keys.is_some();
    MimallocForm {
        name,
        family: Family::Map(arena),
        fields,
        delayed: None,
        tagged: false,
        only_pythons: false,
        encoded,
    }
}

const fn plain(name: &'static str, form: MimallocForm) -> MimallocForm {
    MimallocForm { name, encoded: false, ..form }
}

const SECURE_20: Fields = keyed(started(Start::Fixed(384)), 40);

/// All known layouts. Layouts that fit the same segments are distinguished by the lists of free blocks in the pages. If
/// several layouts fit everything, the first one is used.
pub const FORMS: [MimallocForm; 24] = [
    MimallocForm { tagged: true, only_pythons: true, ..of_segments("3.13t", EARLY, FREE_THREADED, OLD_DELAYED) },
    of_segments("2.1.0", EARLY, OLD, OLD_DELAYED),
    of_segments("2.0.9", EARLY, started(Start::Fixed(384)), OLD_DELAYED),
    of_segments("2.0.9 secure", EARLY, SECURE_20, OLD_DELAYED),
    of_segments("2.1.0 secure", EARLY, keyed(OLD, 40), OLD_DELAYED),
    of_segments("2.1.7", EARLY, NEW, DELAYED),
    of_segments("2.1.7 secure", EARLY, keyed(NEW, 56), DELAYED),
    plain("2.1.7 padded", of_segments("", EARLY, keyed(NEW, 56), DELAYED)),
    of_segments("2.2", LATE, NEW, DELAYED),
    of_segments("2.2 secure", LATE, keyed(NEW, 56), DELAYED),
    plain("2.2 padded", of_segments("", LATE, keyed(NEW, 56), DELAYED)),
    of_map("3.0", FIRST_ARENA, MAPPED),
    of_map("3.0 secure", FIRST_ARENA, keyed(MAPPED, 64)),
    of_map("3.1", COMMITTED_ARENA, MAPPED),
    of_map("3.1 secure", COMMITTED_ARENA, keyed(MAPPED, 64)),
    of_map("3.2", SECOND_ARENA, MAPPED),
    of_map("3.2 secure", SECOND_ARENA, keyed(MAPPED, 56)),
    plain("3.2 padded", of_map("", SECOND_ARENA, keyed(MAPPED, 56))),
    of_map("3.3", ARENA, MAPPED),
    of_map("3.3 secure", ARENA, keyed(MAPPED, 56)),
    plain("3.3 padded", of_map("", ARENA, keyed(MAPPED, 56))),
    of_map("3.4", ARENA, WORDS),
    of_map("3.4 secure", ARENA, keyed(WORDS, 56)),
    of_map("3.6", MOVED_ARENA, SEPARATE),
];

/// Return the layout with this name, such as `2.1.0`; None if there is none.
pub fn form_named(name: &str) -> Option<&'static MimallocForm> {
    FORMS.iter().find(|form| form.name == name)
}

impl MimallocForm {
    /// Return the offsets in bytes of the fields in a segment's header; None for layouts without segments.
    pub(crate) fn head(&self) -> Option<&SegmentFields> {
        match &self.family {
            Family::Segments(head) => Some(head),
            Family::Map(_) => None,
        }
    }

    /// Return whether this layout has a map that points to the pages (since 3.0).
    pub fn has_map(&self) -> bool {
        matches!(self.family, Family::Map(_))
    }

    /// Return whether the pages have keys, as in secure and padded builds.
    pub(crate) fn has_keys(&self) -> bool {
        self.fields.keys.is_some()
    }

    /// Return the size of `mi_page_t` in bytes.
    pub fn entry(&self) -> u64 {
        self.fields.bytes as u64
    }

    /// Return the offset in bytes of the cookie in a segment; zero for forms without segments.
    pub fn cookie(&self) -> u64 {
        self.head().map_or(0, |head| head.cookie as u64)
    }

    /// Parse the page with the slices [start, end) from `bytes`, the bytes of its `mi_page_t` at `entry`. A span
    /// without a page has the size 0. None if the bytes end too early.
    pub(crate) fn page(&self, bytes: &[u8], start: u64, end: u64, entry: u64) -> Option<Page> {
        let fields = &self.fields;
        let half = |at: usize| half_at(bytes, at).map(|half| u64::from(half & 0xffff));
        let size = match number(bytes, fields.size)? {
            size if fields.size.1 == 4 && size >= HUGE_BLOCK => end - start,
            size => size,
        };
        let blocks = match fields.start {
            Start::Stored(at) => word_at(bytes, at)?,
            Start::Words(at) => entry.wrapping_add(8 * u64::from(half_at(bytes, at)?)),
            Start::Bytes(at) => entry.wrapping_add(word_at(bytes, at)?),
            rule => start + rule.before(size),
        };
        let keys = match fields.keys {
            Some(at) => [word_at(bytes, at)?, word_at(bytes, at + 8)?],
            None => [0; 2],
        };
        let owner = word_at(bytes, fields.owner)?;
        Some(Page {
            start,
            end,
            blocks: if (start..end).contains(&blocks) { blocks } else { end },
            size,
            capacity: half(fields.capacity)?,
            reserved: half(fields.reserved)?,
            counted: number(bytes, fields.used)?,
            lists: [
                word_at(bytes, fields.lists[0])?,
                word_at(bytes, fields.lists[1])?,
                word_at(bytes, fields.lists[2])? & !3,
            ],
            tag: self.tag(bytes)?,
            // The three low bits of the thread's number are flags.
            heap: if self.has_map() { owner & !7 } else { owner },
            entry,
            keys,
            encoded: self.encoded,
            root: 0,
            first: 0,
        })
    }

    fn tag(&self, bytes: &[u8]) -> Option<u8> {
        match self.fields.tag {
            Some((at, 0)) => bytes.get(at).copied(),
            Some((at, shift)) => Some(bytes.get(at)? >> shift & 15),
            None => Some(0),
        }
    }
}

impl Start {
    /// Return the offset in a page at which its blocks of `size` bytes begin; 0 if this rule does not give the offset.
    fn before(self, size: u64) -> u64 {
        match self {
            Start::Blocks if size <= 64 => 3 * size,
            Start::Blocks if size <= 512 => size,
            Start::Fixed(before) if (8..=1024).contains(&size) => before,
            _ => 0,
        }
    }
}

fn number(bytes: &[u8], (at, size): (usize, usize)) -> Option<u64> {
    match size {
        8 => word_at(bytes, at),
        4 => half_at(bytes, at).map(u64::from),
        _ => half_at(bytes, at).map(|half| u64::from(half & 0xffff)),
    }
}
