//! Find tables of containers that were made for many more entries than they contain. No release of Python shrinks a
//! table when entries are removed.

use crate::allocators::heaps::Heaps;
use crate::python::dict_keys::{optional, TableHead, HASHED, MAX_SLOTS};
use crate::python::types::Types;
use gdbheap_access::bytes::{u64_at, word_at};
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::pages::Pages;

/// The places of the size of containers of one type, which have a table. All offsets are those in the object; -1: the
/// type has no such field.
/// - `used_at`: the offset of the number of entries.
/// - `table_at`: the offset of the pointer to the table.
/// - `mask_at`: the offset of the number of slots, minus one.
/// - `shared_at`: the offset of a word that is 0 unless the table is shared.
#[derive(Clone, Debug)]
pub struct TableRule {
    pub name: String,
    pub used_at: usize,
    pub table_at: usize,
    pub mask_at: i64,
    pub shared_at: i64,
    /// The most bytes that one slot takes: its index, and its share of the entries.
    pub slot: u64,
    pub head: Option<TableHead>,
    pub entries: Option<Entries>,
}

/// How to recognize tables that a program cannot replace by a smaller copy: those of namespaces, and that of interned
/// strings.
/// - `text_flags`: the flags of string types.
/// - `text_at`: the offset of a string's characters.
/// - `first_names`: strings that are the first key of a namespace.
#[derive(Clone, Debug)]
pub struct Entries {
    pub text_flags: u64,
    pub text_at: u64,
    pub first_names: Vec<String>,
}

/// The table of a container's copy has SPARE slots for each entry, and one more. Their number is rounded up to a power
/// of two. A table is examined if it has at least TIMES as many slots. Fewer than an eighth of its slots are then in
/// use.
const SPARE: u64 = 2;
const FEWEST: u64 = 8;
const TIMES: u64 = 4;
/// The smallest size, in pages, of a table that is examined. A smaller table has no page of its own.
const MIN_PAGES: u64 = 2;
const HEAD_BYTES: usize = 64;
/// The number of bytes of the entries that are searched for the first entry.
const SEARCHED: usize = 1 << 16;

impl TableRule {
    /// Return the resident bytes that copying the container would save; None if the fields of the container are not
    /// plausible. The container begins with `head`. The saved bytes are those of the resident pages of its table, minus
    /// the largest possible size of the copy's table.
    pub(crate) fn spare(&self, head: &[u8], heaps: &Heaps<'_>, pages: &Pages, types: &mut Types<'_>) -> Option<u64> {
        let word = |at: usize| word_at(head, at);
        let (used, table) = (word(self.used_at)?, word(self.table_at)?);
        if optional(self.shared_at).is_some_and(|at| word(at) != Some(0)) || used > MAX_SLOTS || table < LOWEST {
            return None;
        }
        let copied = (SPARE * used + 1).next_power_of_two().max(FEWEST);
        let is_sparse = |slots: u64| slots.is_power_of_two() && slots <= MAX_SLOTS && slots >= TIMES * copied;
        let masked = match optional(self.mask_at) {
            Some(at) => Some(word(at)?.wrapping_add(1)),
            None => None,
        };
        if masked.is_some_and(|slots| !is_sparse(slots)) {
            return None;
        }
        let least = MIN_PAGES * pages.page.bytes();
        let block = heaps.block_at(table).filter(|block| block.size >= least)?;
        let mut own = [0; HEAD_BYTES];
        let got = heaps.space.fill(table, &mut own);
        let slots = masked.or_else(|| self.head.and_then(|head| head.slots(&own[..got])))?;
        if !is_sparse(slots) || slots * (self.slot / 2) > block.size || !types.layout.begins_at(block.address, table) {
            return None;
        }
        if self.is_fixed(table, &own[..got], slots, types) {
            return None;
        }
        let whole = resident(heaps.own_bytes(&block), pages);
        Some(whole.saturating_sub((copied * self.slot).next_multiple_of(pages.page.bytes())))
    }

    /// Return whether the table cannot be replaced, judging by its first entry. This is the case for the table of a
    /// namespace, and for the interpreter's table of interned strings, in which each string is its own value.
    fn is_fixed(&self, table: u64, own: &[u8], slots: u64, types: &mut Types<'_>) -> bool {
        let Some(entries) = &self.entries else { return false };
        let Some((at, step)) = self.head.map_or(Some((0, HASHED)), |head| head.entries(own, slots)) else {
            return false;
        };
        let mut bytes = vec![0; SEARCHED.min((slots * step) as usize)];
        let got = types.space.fill(table.saturating_add(at), &mut bytes);
        let pair = |entry: &[u8]| {
            let key = entry.len() - 16;
            (u64_at(entry, key), u64_at(entry, key + 8))
        };
        let mut pairs = bytes[..got].chunks_exact(step as usize).map(pair);
        let Some((key, value)) = pairs.find(|(key, value)| *key != 0 && *value != 0) else { return false };
        entries.is_text(key, types) && (key == value || entries.is_first_name(key, types))
    }
}

impl Entries {
    fn is_text(&self, key: u64, types: &mut Types<'_>) -> bool {
        let kind = types.space.word(key.wrapping_add(types.layout.ob_type)).ok();
        let number = kind.and_then(|kind| types.lookup(kind));
        number.is_some_and(|number| types.kinds[number as usize].flags & self.text_flags != 0)
    }

    fn is_first_name(&self, key: u64, types: &Types<'_>) -> bool {
        let text = types.space.string(key.wrapping_add(self.text_at), 64).unwrap_or_default();
        self.first_names.iter().any(|name| name.as_bytes() == text)
    }
}

/// Return the resident bytes of the pages that lie completely inside a block.
fn resident((start, end): (u64, u64), pages: &Pages) -> u64 {
    pages.page.inside(start, end).map_or(0, |(first, last)| pages.count(first, last).0)
}
