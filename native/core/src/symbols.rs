//! The symbols of an ELF file, by name and by address (elf(5), Elf64_Sym). The symbols stay in the bytes of their
//! tables. Each symbol costs only one entry in each of two indexes, which are made at their first use. The tables are
//! not trusted.
#![forbid(unsafe_code)]

use std::collections::hash_map::RandomState;
use std::ffi::CStr;
use std::hash::BuildHasher;
use std::ops::Deref;
use std::sync::OnceLock;

const ENTRY: usize = 24;
const UNDEFINED: u16 = 0;
const ABSOLUTE: u16 = 0xfff1;
const GLOBAL_BINDINGS: [u8; 3] = [1, 2, 10];
const ADDRESS_KINDS: [u8; 5] = [0, 1, 2, 5, 10];
const FUNCTION_KINDS: [u8; 2] = [2, 10];
const THREAD_LOCAL: u8 = 6;
const LONGEST_NAME: usize = 4 << 10;
/// The limit for the total length of a table's names: NAMES_RATIO times the size of the string table, plus SOME_NAMES.
/// Linkers let names share their ends, but no linker exceeds this limit.
const NAMES_RATIO: usize = 2;
const SOME_NAMES: usize = 1 << 20;
const MOST_THREAD_LOCAL: usize = 1 << 14;
/// The number of symbols before and after an address that are examined. It is large because a linker that folds equal
/// functions leaves many names for one address.
const MOST_AROUND: usize = 256;
/// The number of symbols before an address that are examined for a function that contains the address. Several are
/// needed because in assembler a function may contain other functions.
const MOST_FUNCTIONS_AROUND: usize = 8;
const FREE: u32 = u32::MAX;

/// The symbols of a file that are put into the index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SymbolFilter {
    /// Symbols of data and code that the file defines.
    Addresses,
    /// Symbols of functions that the file defines.
    Functions,
}

/// A symbol: its address as linked (for a thread-local variable, its offset in the file's TLS segment), its size in
/// bytes, and its name.
pub type Symbol<'a> = (u64, u64, &'a [u8]);

/// The symbols of several tables of one file. If a name occurs more than once, the symbol in the first of these tables
/// is used. In one table, a global symbol is preferred to a local one; otherwise the first symbol is used.
pub struct Symbols<B> {
    tables: Vec<SymbolEntries<B>>,
    wanted: SymbolFilter,
    by_name: OnceLock<ByName>,
    /// The numbers of the wanted symbols, ascending by address, then by size.
    by_address: OnceLock<Vec<u32>>,
}

struct SymbolEntries<B> {
    entries: B,
    names: B,
    /// The number of the table's first symbol.
    first: u32,
    /// The number of the table's symbols.
    count: u32,
}

/// A hash table from names to symbols, at most two thirds full. A slot has the upper half of the hash of the name, and
/// the number of the symbol.
struct ByName {
    hasher: RandomState,
    slots: Vec<(u32, u32)>,
}

struct Entry {
    name: u32,
    info: u8,
    section: u16,
    value: u64,
    size: u64,
}

impl Entry {
    fn read(bytes: &[u8]) -> Entry {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let (name, value, size) = (word(0) as u32, word(8), word(16));
        Entry { name, info: bytes[4], section: u16::from_le_bytes([bytes[6], bytes[7]]), value, size }
    }

    fn kind(&self) -> u8 {
        self.info & 15
    }

    fn is_local(&self) -> bool {
        !GLOBAL_BINDINGS.contains(&(self.info >> 4))
    }

    fn is_wanted(&self, wanted: SymbolFilter) -> bool {
        match wanted {
            SymbolFilter::Functions => {
                self.section != UNDEFINED && self.value != 0 && FUNCTION_KINDS.contains(&self.kind())
            }
            SymbolFilter::Addresses => self.is_in_file() && self.value != 0 && ADDRESS_KINDS.contains(&self.kind()),
        }
    }

    fn is_in_file(&self) -> bool {
        self.section != UNDEFINED && self.section != ABSOLUTE
    }

    fn holds(&self, address: u64) -> bool {
        self.value <= address && address - self.value < self.size
    }
}

impl<B: Deref<Target = [u8]>> SymbolEntries<B> {
    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.chunks_exact(ENTRY).take(self.count as usize).map(Entry::read)
    }

    fn name(&self, offset: u32) -> &[u8] {
        let rest = self.names.get(offset as usize..).unwrap_or_default();
        let most = &rest[..rest.len().min(LONGEST_NAME)];
        CStr::from_bytes_until_nul(most).map_or(most, CStr::to_bytes)
    }

    /// Return the largest total length that the names of the table may have.
    fn most_names(&self) -> usize {
        NAMES_RATIO * self.names.len() + SOME_NAMES
    }
}

impl<B: Deref<Target = [u8]>> Symbols<B> {
    /// Take over symbol tables, each given as (entries, names). The index is made at the first search.
    pub fn new(tables: Vec<(B, B)>, wanted: SymbolFilter) -> Symbols<B> {
        let mut first = 0;
        let table = |(entries, names): (B, B)| {
            // The number of a symbol has 31 bits.
            let count = (entries.len() / ENTRY).min((FREE / 2 - first) as usize) as u32;
            first += count;
            SymbolEntries { entries, names, first: first - count, count }
        };
        let tables = tables.into_iter().map(table).collect();
        Symbols { tables, wanted, by_name: OnceLock::new(), by_address: OnceLock::new() }
    }

    /// Return the address (as linked) and the size of the symbol with the name `name`; None if there is no such symbol.
    pub fn find(&self, name: &[u8]) -> Option<(u64, u64)> {
        let index = self.by_name.get_or_init(|| self.index_names());
        let (_, number) = index.slots[self.slot_of(index, name)];
        let (_, entry) = self.entry((number != FREE).then_some(number)?);
        Some((entry.value, entry.size))
    }

    /// Return the symbols that begin at an address.
    pub fn at(&self, address: u64) -> Vec<Symbol<'_>> {
        let first = self.place_of(address);
        let found = self.numbers()[first..].iter().map(|number| self.symbol(*number));
        found.take(MOST_AROUND).take_while(|symbol| symbol.0 == address).collect()
    }

    /// Return the symbols whose bytes include an address.
    pub fn around(&self, address: u64) -> Vec<Symbol<'_>> {
        let end = self.place_behind(address);
        let near = &self.numbers()[end.saturating_sub(MOST_AROUND)..end];
        near.iter().filter(|number| self.entry(**number).1.holds(address)).map(|number| self.symbol(*number)).collect()
    }

    /// Return the first `most` symbols of at least `least` bytes that begin in [low, high), ascending by address.
    pub fn starting_in(&self, low: u64, high: u64, least: u64, most: usize) -> Vec<Symbol<'_>> {
        let mut left = self.tables.iter().map(SymbolEntries::most_names).sum::<usize>();
        let first = self.place_of(low);
        let found = self.numbers()[first..].iter().map(|number| self.symbol(*number));
        let large = found.take_while(|symbol| symbol.0 < high).filter(|symbol| symbol.1 >= least);
        large.take(most).take_while(|symbol| take(&mut left, symbol.2.len())).collect()
    }

    /// Return the address at which the function at an address begins. It is the function that begins there or contains
    /// the address; or else the last function before the address, if that function has no size.
    pub fn function(&self, address: u64) -> Option<u64> {
        let (numbers, end) = (self.numbers(), self.place_behind(address));
        for place in (end.saturating_sub(MOST_FUNCTIONS_AROUND)..end).rev() {
            let (_, entry) = self.entry(numbers[place]);
            if entry.holds(address) || entry.value == address || (entry.size == 0 && place + 1 == end) {
                return Some(entry.value);
            }
        }
        None
    }

    /// Return the plainest name of the symbols that begin at an address (`read`, not `__libc_read`); None if none
    /// begins there. Looking at the names takes time, because they may be many and long.
    pub fn plainest(&self, start: u64) -> Option<&[u8]> {
        let underscores = |name: &[u8]| name.iter().take_while(|byte| **byte == b'_').count();
        self.at(start).into_iter().map(|symbol| symbol.2).min_by_key(|name| (underscores(name), name.len(), *name))
    }

    /// Return the end of the last symbol that ends at or before `low`, and the start of the first symbol that begins
    /// after `high`. Each is None if there is no such symbol.
    pub fn gap(&self, low: u64, high: u64) -> (Option<u64>, Option<u64>) {
        let numbers = &self.numbers()[..self.place_behind(low)];
        let ends = numbers.iter().filter_map(|number| {
            let (_, entry) = self.entry(*number);
            entry.value.checked_add(entry.size).filter(|end| *end <= low)
        });
        let next = self.numbers().get(self.place_behind(high)).map(|number| self.entry(*number).1.value);
        (ends.max(), next)
    }

    /// Return the symbols of the thread-local variables.
    pub fn thread_local(&self) -> Vec<Symbol<'_>> {
        let mut found = Vec::new();
        for table in &self.tables {
            let mut left = table.most_names();
            let own = table.entries().filter(|entry| entry.is_in_file() && entry.kind() == THREAD_LOCAL);
            let named = own.map(|entry| (entry.value, entry.size, table.name(entry.name)));
            let most = MOST_THREAD_LOCAL - found.len();
            found.extend(named.take(most).take_while(|row: &Symbol<'_>| take(&mut left, row.2.len())));
        }
        found
    }

    fn entry(&self, number: u32) -> (&SymbolEntries<B>, Entry) {
        let table = &self.tables[self.tables.partition_point(|table| table.first <= number) - 1];
        (table, Entry::read(&table.entries[(number - table.first) as usize * ENTRY..][..ENTRY]))
    }

    fn symbol(&self, number: u32) -> Symbol<'_> {
        let (table, entry) = self.entry(number);
        (entry.value, entry.size, table.name(entry.name))
    }

    fn numbers(&self) -> &[u32] {
        self.by_address.get_or_init(|| {
            let rows = || {
                self.wanted().map(|(number, entry)| (entry.value, u32::try_from(entry.size).unwrap_or(FREE), number))
            };
            let mut sorted = Vec::with_capacity(rows().count());
            sorted.extend(rows());
            sorted.sort_unstable();
            let mut numbers = Vec::with_capacity(sorted.len());
            numbers.extend(sorted.iter().map(|row| row.2));
            numbers
        })
    }

    fn wanted(&self) -> impl Iterator<Item = (u32, Entry)> + '_ {
        let all = self.tables.iter().flat_map(|table| (table.first..).zip(table.entries()));
        all.filter(|(_, entry)| entry.is_wanted(self.wanted))
    }

    /// Return the first index in `numbers()` whose symbol begins at or after an address.
    fn place_of(&self, address: u64) -> usize {
        self.numbers().partition_point(|number| self.entry(*number).1.value < address)
    }

    /// Return the first index in `numbers()` whose symbol begins after an address.
    fn place_behind(&self, address: u64) -> usize {
        self.numbers().partition_point(|number| self.entry(*number).1.value <= address)
    }

    fn index_names(&self) -> ByName {
        let keys: Vec<_> = self.tables.iter().map(|table| self.name_keys(table)).collect();
        let count: usize = keys.iter().map(Vec::len).sum();
        let slots = vec![(0, FREE); (count + count / 2 + 1).next_power_of_two()];
        let mut index = ByName { hasher: RandomState::new(), slots };
        for (table, keys) in self.tables.iter().zip(keys) {
            let mut left = table.most_names();
            for key in keys {
                let (name, number) = (table.name((key >> 32) as u32), table.first + (key as u32 & (FREE / 2)));
                if !take(&mut left, name.len()) {
                    break;
                }
                let slot = self.slot_of(&index, name);
                let known = index.slots[slot].1;
                if known == FREE || (known >= table.first && self.rank(number) < self.rank(known)) {
                    index.slots[slot] = (upper(index.hasher.hash_one(name)), number);
                }
            }
        }
        index
    }

    /// Return one key for each distinct name offset of a table. A key contains the symbol that is used for this name:
    /// `name << 32 | is local << 31 | number`.
    fn name_keys(&self, table: &SymbolEntries<B>) -> Vec<u64> {
        let wanted = || (0u64..).zip(table.entries()).filter(|(_, entry)| entry.is_wanted(self.wanted));
        let mut keys = Vec::with_capacity(wanted().count());
        keys.extend(
            wanted().map(|(index, entry)| u64::from(entry.name) << 32 | u64::from(entry.is_local()) << 31 | index),
        );
        keys.sort_unstable();
        keys.dedup_by_key(|key| *key >> 32);
        keys
    }

    fn rank(&self, number: u32) -> (bool, u32) {
        (self.entry(number).1.is_local(), number)
    }

    /// Return the index of the slot of a name, or of the free slot to which the name belongs.
    fn slot_of(&self, index: &ByName, name: &[u8]) -> usize {
        let hash = index.hasher.hash_one(name);
        let mask = index.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let (known, number) = index.slots[slot];
            if number == FREE || (known == upper(hash) && self.symbol(number).2 == name) {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }
}

fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Subtract `size` from `left` and return true. If `left` is too small, set it to 0 and return false.
fn take(left: &mut usize, size: usize) -> bool {
    let rest = left.checked_sub(size);
    *left = rest.unwrap_or(0);
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTION: u8 = 2;
    const GLOBAL: u8 = 1 << 4;

    /// Make a symbol table from rows of (name, info, section, value, size).
    fn table(rows: &[(&[u8], u8, u16, u64, u64)]) -> (Vec<u8>, Vec<u8>) {
        let (mut entries, mut names) = (vec![0; ENTRY], vec![0]);
        for (name, info, section, value, size) in rows {
            entries.extend((names.len() as u32).to_le_bytes());
            entries.extend([*info, 0]);
            entries.extend(section.to_le_bytes());
            entries.extend(value.to_le_bytes());
            entries.extend(size.to_le_bytes());
            names.extend_from_slice(name);
            names.push(0);
        }
        (entries, names)
    }

    fn symbols(tables: Vec<(Vec<u8>, Vec<u8>)>) -> Symbols<Vec<u8>> {
        Symbols::new(tables, SymbolFilter::Addresses)
    }

    #[test]
    fn a_global_name_wins_and_then_the_first() {
        let first = table(&[
            (b"a", 1, 1, 16, 1),
            (b"a", GLOBAL | 1, 1, 32, 2),
            (b"a", GLOBAL | 1, 1, 48, 3),
            (b"b", 1, 1, 64, 4),
        ]);
        let second = table(&[(b"b", GLOBAL | 1, 1, 80, 5), (b"c", 1, 1, 96, 6), (b"", 1, 1, 97, 6)]);
        let found = symbols(vec![first, second]);
        assert_eq!(found.find(b"a"), Some((32, 2)));
        assert_eq!(found.find(b"b"), Some((64, 4)));
        assert_eq!(found.find(b"c"), Some((96, 6)));
        assert_eq!((found.find(b""), found.find(b"d")), (Some((97, 6)), None));
    }

    #[test]
    fn what_is_not_in_the_file_does_not_count() {
        let rows: [(&[u8], _, _, _, _); 5] = [
            (b"u", 1, 0, 16, 1),
            (b"a", 1, ABSOLUTE, 16, 1),
            (b"s", 3, 1, 16, 1),
            (b"t", 6, 1, 16, 1),
            (b"0", 1, 1, 0, 1),
        ];
        let found = symbols(vec![table(&rows)]);
        assert!(rows.iter().all(|row| found.find(row.0).is_none()) && found.at(16).is_empty());
        assert_eq!(found.thread_local(), [(16, 1, &b"t"[..])]);
    }

    #[test]
    fn addresses_are_found() {
        let rows: [(&[u8], _, _, _, _); 4] = [
            (b"inner", 1, 1, 40, 8),
            (b"outer", 1, 1, 16, 64),
            (b"point", 1, 1, 100, 0),
            (b"last", 1, 1, u64::MAX - 1, u64::MAX),
        ];
        let found = symbols(vec![table(&rows)]);
        assert_eq!(found.around(47), [(16, 64, &b"outer"[..]), (40, 8, b"inner")]);
        assert_eq!((found.around(48).len(), found.around(80).len(), found.around(u64::MAX).len()), (1, 0, 1));
        assert_eq!(found.at(100), [(100, 0, &b"point"[..])]);
        assert_eq!(found.starting_in(16, 100, 1, 9).len(), 2);
        assert_eq!(found.starting_in(0, u64::MAX, 0, 1), [(16, 64, &b"outer"[..])]);
        assert_eq!(found.starting_in(0, u64::MAX, 100, 9), [(u64::MAX - 1, u64::MAX, &b"last"[..])]);
        assert_eq!((found.gap(70, 90), found.gap(90, 100)), ((Some(48), Some(100)), (Some(80), Some(u64::MAX - 1))));
        assert_eq!(found.gap(8, u64::MAX), (None, None));
    }

    #[test]
    fn functions_are_found() {
        let rows: [(&[u8], _, _, _, _); 5] = [
            (b"data", 1, 1, 16, 900),
            (b"one", FUNCTION, 1, 16, 16),
            (b"__one", GLOBAL | FUNCTION, 1, 16, 16),
            (b"open", FUNCTION, 1, 64, 0),
            (b"none", FUNCTION, 0, 70, 8),
        ];
        let found = Symbols::new(vec![table(&rows)], SymbolFilter::Functions);
        assert_eq!((found.function(16), found.function(31)), (Some(16), Some(16)));
        assert_eq!((found.function(15), found.function(32)), (None, None));
        assert_eq!((found.function(64), found.function(1 << 40)), (Some(64), Some(64)));
        assert_eq!((found.plainest(16), found.plainest(64)), (Some(&b"one"[..]), Some(&b"open"[..])));
        assert_eq!((found.plainest(17), found.plainest(70)), (None, None));
    }

    /// Check tables in which each name extends to the end of the string table, or in which all symbols have the same
    /// name.
    #[test]
    fn names_without_an_end_are_bounded() {
        let count = 20_000u32;
        let entry = |name: u32| {
            [&name.to_le_bytes()[..], &[GLOBAL | 1, 0, 1, 0], &(u64::from(name) + 1).to_le_bytes(), &8u64.to_le_bytes()]
                .concat()
        };
        let entries: Vec<u8> = (0..count).flat_map(entry).collect();
        let found = symbols(vec![(entries.clone(), vec![b'x'; 1 << 20])]);
        assert!(found.find(&[b'x'; LONGEST_NAME]).is_some() && found.find(&[b'x'; LONGEST_NAME + 1]).is_none());
        let names: usize = found.starting_in(0, 1 << 40, 0, usize::MAX).iter().map(|row| row.2.len()).sum();
        assert!(names > 1 << 20 && names <= 3 << 20);
        assert_eq!(found.around(u64::from(count)).len(), 8);
        let beyond = symbols(vec![(entries, Vec::new())]);
        assert_eq!(beyond.find(b""), Some((1, 8)));
    }

    #[test]
    fn a_table_that_is_cut_off_has_what_is_whole() {
        let (entries, names) = table(&[(b"a", 1, 1, 16, 1), (b"b", 1, 1, 32, 1)]);
        let found = symbols(vec![(entries[..ENTRY * 3 - 1].to_vec(), names), (Vec::new(), Vec::new())]);
        assert_eq!((found.find(b"a"), found.find(b"b")), (Some((16, 1)), None));
        assert_eq!(symbols(Vec::new()).find(b"a"), None);
    }
}
