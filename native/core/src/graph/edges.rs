//! Find the references in each used block.
//!
//! An edge is EXACT if the layout says that a reference is there. It is LIKELY if a word of an unknown block, or of an
//! object whose type is written in C, is the address of an object or of a block. It is DOUBTFUL if the word may be
//! older than its block (padding.rs). It is STRAY if the word points to the middle of a block or lies on a stack: such
//! a word may be a number, or stale.

use super::csr::{WrittenRows, MANY};
use super::ids::{Blocks, FoundNode};
use super::padding::{self, Padding};
use super::shapes::{self, shape_of, Form, FrameLayout, GraphLayout, KeysLayout, ObjectShape};
use crate::allocators::block::{Block, BlockId};
use crate::allocators::walk::Visitor;
use crate::python::claims::{claimed_pointer, PlacedClaim, STRIDES};
use crate::python::counts::references;
use crate::python::dict_keys::{index_width, usable, MIN_SLOTS};
use crate::python::layout::{TypeLayout, CLAIM};
use crate::python::strays::{self, Sign, LOW};
use crate::python::types::Types;
use gdbheap_access::bytes::{range_at, u64_at, word_at};
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::space::Space;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

pub(crate) const EXACT: u32 = 0;
pub(crate) const LIKELY: u32 = 1;
pub(crate) const DOUBTFUL: u32 = 2;
pub(crate) const STRAY: u32 = 3;

/// A bit in a node's kind: the node is a buffer. The bit IDLE says that the interpreter keeps the block for reuse. The
/// other bits are the number of the node's type plus one, or 0 if it has no type.
pub(crate) const BUFFER: u32 = 1 << 31;
pub(crate) const IDLE: u32 = 1 << 30;
pub(crate) const KIND: u32 = IDLE - 1;
/// A bit in the key of a group of blocks of C code. If it is set, the rest of the key is the number of a kind of
/// structure, not of a type.
pub(crate) const NAMED: u32 = 1 << 29;

/// Return whether a node of this kind is a living object.
#[inline(always)]
pub(crate) fn is_object(kind: u32) -> bool {
    kind & KIND != 0 && kind & (BUFFER | IDLE) == 0
}

/// The number of bytes that are read at once. It is a multiple of the size of every table's entries, so that no entry
/// is divided.
const WINDOW: u64 = 48 << 12;
const WORD: u64 = 8;
const MAX_INLINE: u64 = 256;
/// The smallest number of adjacent words that are taken for a free list of the interpreter. All of them point to blocks
/// of one size. Fewer such words may be fields.
const LEAST_LIST: usize = 8;
/// The number of adjacent words that are a free list even if all of them point to living lists and dicts.
const SURE_LIST: usize = 24;
const SPARE_HEAD: usize = 128;
/// The distance in bytes from the field `data` to the field `base` in PyArrayObject_fields.
const BASE: u64 = 32;
/// The offset, in a block of a PyArena, of the pointer to the next block.
const NEXT_OF_ARENA: u64 = 16;
/// Bits of `tp_flags`. LIST: the type is a subclass of list. DICT: it is a subclass of dict.
const LIST: u64 = 1 << 25;
const DICT: u64 = 1 << 29;

/// The numbers of the types. All workers share them, so that a type has the same number in the results of each.
#[derive(Default)]
pub(crate) struct Registry {
    numbers: HashMap<u64, u32>,
    pub(crate) addresses: Vec<u64>,
}

impl Registry {
    pub(crate) fn number(&mut self, address: u64) -> u32 {
        *self.numbers.entry(address).or_insert_with(|| {
            self.addresses.push(address);
            self.addresses.len() as u32 - 1
        })
    }
}

/// The most words between the start of a block and a table of the dynamic linker in it. The linker aligns its tables to
/// cache lines, so a table may begin after the start of its block.
const LINE_WORDS: usize = 16;

/// The data from which all workers find references. No worker changes it, except that `registry` numbers new types.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) space: &'a Space,
    pub(crate) blocks: Blocks<'a>,
    pub(crate) types: &'a TypeLayout,
    pub(crate) layout: &'a GraphLayout,
    pub(crate) marks: &'a [u32],
    pub(crate) registry: &'a Mutex<Registry>,
    /// The addresses of the dynamic linker's tables, ascending. Each table refers only to the previous one.
    pub(crate) linked: &'a [u64],
    /// The parts of containers' blocks that contain no items, ascending. Words in these parts may be stale.
    pub(crate) left_over: &'a [(u64, u64)],
    /// The parts in `left_over` in which no word is a reference, ascending.
    pub(crate) vacant: &'a [(u64, u64)],
    /// The addresses of words that are certainly references, ascending.
    pub(crate) holders: &'a [u64],
}

/// A receiver of the references that a `Drawer` finds.
pub(crate) trait Sink: Default {
    /// Return the block that contains an address; None if there is none. Each sink defines the number of a block in its
    /// own way.
    fn find(&self, blocks: &Blocks<'_>, pointer: u64) -> Option<FoundNode>;
    /// Add a reference from the current block or object to `found`. `strength`: EXACT, LIKELY, DOUBTFUL or STRAY.
    fn lead(&mut self, found: FoundNode, strength: u32);
    /// Count bytes that were needed but could not be read.
    fn miss(&mut self, bytes: u64);
    /// Set the reference count of the object whose references are being added. Counts above MANY are passed as MANY.
    fn counted(&mut self, count: u8);
}

impl Sink for WrittenRows {
    #[inline(always)]
    fn find(&self, blocks: &Blocks<'_>, pointer: u64) -> Option<FoundNode> {
        blocks.find(pointer)
    }

    #[inline(always)]
    fn lead(&mut self, found: FoundNode, strength: u32) {
        self.edge(found.id, strength);
    }

    fn miss(&mut self, bytes: u64) {
        self.unread += bytes;
    }

    #[inline(always)]
    fn counted(&mut self, count: u8) {
        self.count = count;
    }
}

/// The divisor of all round numbers: sizes, limits, and the floats 0.5, 0.75, 1.0 and 1.5 are multiples of it.
const ROUND: u64 = 1 << 20;
/// The largest number of words that a worker records as possible round numbers. All further words count as references.
const MOST_ROUNDS: usize = 4_000;

/// A word that may be a reference to the node `target`, or a round number (rounds.rs). It lies `offset` bytes after the
/// start of the block `source`.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) source: u32,
    pub(crate) target: u32,
    pub(crate) offset: u64,
}

/// A worker's finder of references. A walk shows it one block after the other.
pub(crate) struct Drawer<'a, S = WrittenRows> {
    source: Source<'a>,
    types: Types<'a>,
    shapes: Vec<Option<Arc<ObjectShape>>>,
    bounds: (u64, u64),
    spans: Vec<(u64, u64)>,
    /// A bitmap of the offsets in a block at which an object may begin, with one bit for each multiple of eight.
    starts: u128,
    scratch: Vec<u8>,
    pub(crate) rows: S,
    pub(crate) padding: Padding,
    /// The blocks of C code whose last word is a reference, as (number of the block, group). Later, padding.rs decides
    /// for each group whether this word is a field.
    pub(crate) lasts: Vec<(u32, u32)>,
    /// Blocks that contain syntax trees.
    pub(crate) syntax: Vec<u32>,
    pub(crate) rounds: Vec<Round>,
    /// Objects such as PyCapsules, which only contain the address of memory that other objects own (`Form::is_handle`).
    pub(crate) handles: Vec<u32>,
    /// The number and the address of the block whose row is being written.
    drawn: (u32, u64),
}

/// The bytes of a block, or of an object inside a block. `head`: the first of these bytes, which are already read.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    address: u64,
    end: u64,
    head: &'a [u8],
}

impl Bytes<'_> {
    fn size(&self) -> u64 {
        self.end.saturating_sub(self.address)
    }
}

/// The object, or the keys of a dict, to which a word of a possible free list points. `size`: the size of the block
/// there; `is_head`: whether the word points to the head by which the collector links the object.
#[derive(Clone, Copy)]
struct FreeListTarget {
    size: u64,
    is_keys: bool,
    is_container: bool,
    is_alive: bool,
    is_head: bool,
}

impl<'a, S: Sink> Drawer<'a, S> {
    pub(crate) fn new(source: Source<'a>) -> Drawer<'a, S> {
        let types = Types::new(source.blocks.heaps, source.types);
        let hook = source.types.hook as usize;
        let inner = types.distances.iter().copied().chain([0, hook]);
        let all = inner.flat_map(|distance| [distance, if hook == 0 { distance } else { distance + hook }]);
        let starts = all.filter(|distance| *distance < 1024).fold(0, |bits, distance| bits | 1u128 << (distance / 8));
        let (bounds, spans) = (source.blocks.bounds(), source.blocks.heaps.spans());
        let (shapes, scratch, rows, padding, lasts, syntax, rounds, handles, drawn) = Default::default();
        Drawer {
            source,
            types,
            shapes,
            bounds,
            spans,
            starts,
            scratch,
            rows,
            padding,
            lasts,
            syntax,
            rounds,
            handles,
            drawn,
        }
    }

    /// Add a reference to the block that contains `pointer`. If no block does, nothing is added.
    #[inline(always)]
    pub(crate) fn reference(&mut self, pointer: u64, strength: u32) {
        if pointer < self.bounds.0 || pointer >= self.bounds.1 {
            return;
        }
        if let Some(found) = self.rows.find(&self.source.blocks, pointer) {
            self.rows.lead(found, strength);
        }
    }

    /// Add a reference if the word `pointer` may be one. If a block, an object or a C structure begins where the word
    /// points, the edge has the strength `strength`. If the word points elsewhere into a block, the edge is STRAY, or
    /// there is no edge if `strength` is EXACT. Return whether a block, an object or a C structure begins there.
    #[inline(always)]
    fn word(&mut self, pointer: u64, strength: u32) -> bool {
        if strength != EXACT && strays::has_tag(pointer) {
            self.tagged(pointer);
            return false;
        }
        if pointer < self.bounds.0 || pointer >= self.bounds.1 {
            return false;
        }
        let Some(found) = self.rows.find(&self.source.blocks, pointer) else { return false };
        let inside = pointer.wrapping_sub(found.address);
        // A pointer to a chunk's header may be a leftover link of a free chunk. The header contains the last word of
        // the block before it.
        if inside > 0 && strength != EXACT && self.source.blocks.heaps.is_header(pointer) {
            if pointer > found.address {
                self.rows.lead(found, STRAY);
            }
            return false;
        }
        let begins = inside % 8 == 0 && inside < 1024 && self.starts >> (inside / 8) & 1 == 1;
        let begins = begins || strength != EXACT && self.begins_inside(pointer) || self.is_in_slab(pointer);
        match (begins, strength) {
            (true, _) => self.rows.lead(found, strength),
            (false, EXACT) => (),
            (false, _) => self.rows.lead(found, STRAY),
        }
        begins
    }

    /// Add a reference, as `word` does, if the word `pointer` at `address` in the current block may be one. Record the
    /// word if it may be a round number.
    #[inline(always)]
    fn word_at(&mut self, address: u64, pointer: u64, strength: u32) {
        if self.word(pointer, strength) && strength == LIKELY && pointer % ROUND == 0 && pointer < LOW {
            self.note_round(address, pointer);
        }
    }

    #[cold]
    fn note_round(&mut self, address: u64, pointer: u64) {
        let (source, start) = self.drawn;
        let found = self.rows.find(&self.source.blocks, pointer);
        if let Some(found) = found.filter(|_| self.rounds.len() < MOST_ROUNDS && address >= start) {
            self.rounds.push(Round { source, target: found.id, offset: address - start });
        }
    }

    /// Add a stray reference if the word without its tag bits is the address of a block.
    #[inline(always)]
    fn tagged(&mut self, word: u64) {
        if let Some(pointer) = strays::untagged(word, &self.spans) {
            if let Some(found) = self.rows.find(&self.source.blocks, pointer).filter(|found| found.address == pointer) {
                self.rows.lead(found, STRAY);
            }
        }
    }

    /// Return whether a C structure begins at `pointer`, in the middle of a block.
    fn begins_inside(&self, pointer: u64) -> bool {
        let heaps = self.source.blocks.heaps;
        heaps
            .block_at(pointer)
            .is_some_and(|block| strays::begins_inside(|at| heaps.space.word(at).ok(), &block, pointer))
    }

    /// Return whether `pointer` is in a slab (`TypeLayout::slab`), a block of many small objects.
    fn is_in_slab(&self, pointer: u64) -> bool {
        let slot = || self.source.blocks.heaps.slot_at(pointer);
        self.types.layout.slab.is_some() && slot().is_some_and(|(_, size)| self.types.is_slab_size(size))
    }

    /// Call `show` with the bytes at the offsets [from, to). Large ranges are divided. Each part but the last has a
    /// multiple of 48 bytes, so that no entry of a table is divided.
    fn pieces(&mut self, bytes: Bytes<'_>, from: u64, to: u64, show: &mut dyn FnMut(&mut Self, u64, &[u8])) {
        let to = to.min(bytes.size());
        if from >= to {
            return;
        }
        if let Some(known) = bytes.head.get(from as usize..to as usize) {
            return show(self, from, known);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(WINDOW as usize, 0);
        let (space, mut at) = (self.source.space, from);
        while at < to {
            // A range of memory that is zero by definition has no references, however large it is.
            let backed = space.next_backed(bytes.address + at).map_or(to, |next| (next - bytes.address).min(to));
            let passed = (backed - at) / WINDOW * WINDOW;
            self.rows.miss(passed - space.covered_bytes(bytes.address + at, bytes.address + at + passed));
            at += passed;
            let size = (to - at).min(WINDOW) as usize;
            let got = space.fill_words(bytes.address + at, &mut scratch[..size]);
            self.rows.miss((size - got) as u64);
            show(self, at, &scratch[..got]);
            at += WINDOW;
        }
        self.scratch = scratch;
    }

    /// Return the word at an offset; None if it cannot be read.
    #[inline(always)]
    fn field(&self, bytes: Bytes<'_>, offset: u64) -> Option<u64> {
        let known = word_at(bytes.head, offset as usize);
        known.or_else(|| self.source.space.word(bytes.address.wrapping_add(offset)).ok())
    }

    /// Return the byte at an offset; None if it cannot be read.
    fn byte(&self, bytes: Bytes<'_>, offset: i64) -> Option<u8> {
        let mut read = [0];
        match bytes.head.get(usize::try_from(offset).ok()?) {
            Some(byte) => Some(*byte),
            None => {
                self.source.space.exact(bytes.address.wrapping_add_signed(offset), &mut read).ok().map(|()| read[0])
            }
        }
    }

    /// Add the reference in the field at an offset, if the field can be read.
    fn reference_at(&mut self, bytes: Bytes<'_>, offset: u64, strength: u32) {
        if let Some(pointer) = self.field(bytes, offset) {
            self.reference(pointer, strength);
        }
    }

    /// Add `count` adjacent references, the first of them at the offset `from`.
    fn references(&mut self, bytes: Bytes<'_>, from: u64, count: u64) {
        let to = from.saturating_add(count.saturating_mul(8));
        self.pieces(bytes, from, to, &mut |drawer, _, piece| {
            piece.chunks_exact(8).for_each(|word| drawer.reference(u64_at(word, 0), EXACT));
        });
    }

    /// Add the references of a table that begins at the offset `from`: `words` words in each of its `count` entries. An
    /// entry has `step` bytes, and its references begin at the offset `first` in the entry.
    fn table(&mut self, bytes: Bytes<'_>, from: u64, count: u64, step: u64, first: u64, words: u64) {
        let to = from.saturating_add(count.saturating_mul(step));
        self.pieces(bytes, from, to, &mut |drawer, _, piece| {
            for entry in piece.chunks_exact(step as usize) {
                for word in 0..words {
                    drawer.reference(u64_at(entry, (first + word * 8) as usize), EXACT);
                }
            }
        });
    }

    /// Add an edge for each word that may be a reference, in a block of unknown contents. The last word is DOUBTFUL,
    /// and all others are LIKELY.
    fn anything(&mut self, bytes: Bytes<'_>) {
        self.words(bytes, u64::MAX, (bytes.size().saturating_sub(WORD), DOUBTFUL));
    }

    /// Add the references of a block of C code, and record its last word. This word may lie after the requested bytes
    /// and be stale.
    fn structure(&mut self, id: u32, size: u64, bytes: Bytes<'_>) {
        if self.types.layout.is_syntax(bytes.address, size, bytes.head) {
            self.syntax.push(id);
            // Only the link to the next block is a reference: a PyArena has a list of the objects that its nodes name.
            // The unused parts of its blocks have stale words of former owners.
            let start = self.types.layout.outer_hook(bytes.head) as u64;
            return self.reference_at(bytes, start + NEXT_OF_ARENA, LIKELY);
        }
        if self.source.linked.binary_search(&bytes.address).is_ok() {
            return previous(bytes.head, bytes.address).into_iter().for_each(|word| _ = self.word(word, LIKELY));
        }
        if self.is_of_freed_keys(bytes).unwrap_or(false) {
            return;
        }
        let last = bytes.size().saturating_sub(WORD);
        let left = left_in(self.source.left_over, bytes.address, bytes.end);
        match self.source.layout.interpreters.iter().any(|state| (bytes.address..bytes.end).contains(state)) {
            true => self.interpreter_state(bytes, last),
            false if !left.is_empty() => self.container(bytes, last, left),
            false => self.words(bytes, last, (u64::MAX, DOUBTFUL)),
        }
        let Some(word) = self.field(bytes, last).filter(|_| bytes.size() >= WORD) else { return };
        let (low, high) = self.bounds;
        let may_lead = |word: u64| (low..high).contains(&word);
        if left.iter().any(|(start, end)| *start <= bytes.address + last && bytes.address + last < *end) {
            if range_at(self.source.vacant, bytes.address + last).is_none() {
                self.word(word, STRAY);
            }
            return;
        }
        let group = padding::group(0, size, padding::look(bytes.head, may_lead));
        let is_reference = self.word(word, DOUBTFUL);
        let is_plain = || word == 0 || !may_lead(word) && self.source.space.covers(word, 1);
        self.padding.add(group, is_reference, is_plain);
        if is_reference {
            self.lasts.push((id, group));
        }
    }

    /// Add an edge for each word before the offset `to` that may be a reference. Words before the offset `from` are
    /// LIKELY. Later words have the strength `strength`.
    fn words(&mut self, bytes: Bytes<'_>, to: u64, (from, strength): (u64, u32)) {
        self.pieces(bytes, 0, to, &mut |drawer, at, piece| {
            for (index, word) in piece.chunks_exact(8).enumerate() {
                let offset = at + index as u64 * 8;
                let strength = if offset >= from { strength } else { LIKELY };
                drawer.word_at(bytes.address + offset, u64_at(word, 0), strength);
            }
        });
    }

    /// Add edges for the words before the offset `to` in a block of a container. Words in its unused parts `left` are
    /// STRAY, all others LIKELY. Words in vacant parts get no edges, because they are certainly no references.
    fn container(&mut self, bytes: Bytes<'_>, to: u64, mut left: &[(u64, u64)]) {
        self.pieces(bytes, 0, to, &mut |drawer, at, piece| {
            for (word, address) in piece.chunks_exact(8).zip((bytes.address + at..).step_by(8)) {
                while let Some((_, rest)) = left.split_first().filter(|(part, _)| part.1 < address + WORD) {
                    left = rest;
                }
                let is_left = left.first().is_some_and(|(start, _)| *start <= address);
                if !is_left || range_at(drawer.source.vacant, address).is_none() {
                    drawer.word(u64_at(word, 0), if is_left { STRAY } else { LIKELY });
                }
            }
        });
    }

    /// Add LIKELY edges for the words before the offset `to` in a block with an interpreter's state. Words of free
    /// lists are skipped, because they are stale. Up to 3.9, the state is in static data instead.
    fn interpreter_state(&mut self, bytes: Bytes<'_>, to: u64) {
        self.pieces(bytes, 0, to, &mut |drawer, _, piece| {
            let left = drawer.left_over(piece);
            let words = piece.chunks_exact(8).zip((0..).step_by(8)).filter(|(_, at)| !left.contains(at));
            words.for_each(|(word, _)| _ = drawer.word(u64_at(word, 0), LIKELY));
        });
    }

    /// Return the offsets of words that point to something but keep nothing alive. There are two sorts.
    /// - Words of free lists. A free list is a run of many words that point to blocks of one size. The blocks contain
    ///   objects, some of them lists or dicts; or all are keys of dicts (3.10 to 3.12).
    /// - Words that point to the head by which the collector links an object.
    fn left_over(&mut self, piece: &[u8]) -> HashSet<u64> {
        let found: Vec<_> = piece.chunks_exact(8).map(|word| self.spare(u64_at(word, 0))).collect();
        // A word next to a free list of keys may point to another block of the same size, so `is_keys` is compared too.
        let size = |place: usize| found.get(place).copied().flatten().map(|spare| (spare.size, spare.is_keys));
        let heads = (0..found.len()).filter(|place| found[*place].is_some_and(|spare| spare.is_head));
        let (mut left, mut first): (HashSet<u64>, usize) = (heads.map(|place| 8 * place as u64).collect(), 0);
        for place in 0..found.len() {
            if size(place).is_some() && size(place) == size(place + 1) {
                continue;
            }
            let run = || found[first..=place].iter().flatten();
            // The adjacent fields of the interpreter that are no free list all point to living lists and dicts, and
            // there are fewer of them than SURE_LIST.
            let is_long = || run().count() >= SURE_LIST;
            let is_reused = || run().any(|spare| !spare.is_alive || !spare.is_container);
            let is_of_objects = || run().any(|spare| spare.is_container) && (is_long() || is_reused());
            // Apart from free lists, the interpreter refers to keys only through their dict.
            let is_of_keys = || run().all(|spare| spare.is_keys);
            let is_list = run().count() >= LEAST_LIST && (is_of_keys() || is_of_objects());
            if size(place).is_some() && is_list {
                let living = (first..=place).filter(|at| found[*at].is_some_and(|spare| spare.is_alive));
                left.extend(living.map(|at| 8 * at as u64));
            }
            first = place + 1;
        }
        left
    }

    /// Return the object, or the keys of a dict, to which a word of a possible free list points; None if it points to
    /// neither.
    fn spare(&mut self, pointer: u64) -> Option<FreeListTarget> {
        if pointer < self.bounds.0 || pointer >= self.bounds.1 {
            return None;
        }
        let block = self.source.blocks.heaps.block_at(pointer)?;
        let mark = self.source.blocks.ids.id_of(block.place).and_then(|id| self.source.marks.get(id as usize)).copied();
        if pointer == block.address && mark.is_some_and(|mark| mark >> 28 == shapes::KEYS) {
            let (size, is_alive) = (block.size, true);
            return Some(FreeListTarget { size, is_keys: true, is_container: false, is_alive, is_head: false });
        }
        let mut head = [0; SPARE_HEAD];
        let wanted = head.len().min(block.size as usize);
        let got = self.source.space.fill(block.address, &mut head[..wanted]);
        let (number, is_alive) = self.types.object_in(&head[..got], block.size)?;
        let kind = &self.types.kinds[number as usize];
        let is_head = self.types.layout.hook == 0 && kind.pre > 0 && pointer == block.address;
        let is_container = kind.flags & (LIST | DICT) != 0;
        Some(FreeListTarget { size: block.size, is_keys: false, is_container, is_alive, is_head })
    }

    /// Return the block without the bytes that Python's debug hooks put before its contents, and the number of these
    /// bytes.
    fn unhooked<'b>(&self, bytes: Bytes<'b>) -> (Bytes<'b>, u64) {
        let layout = self.types.layout;
        let hook = layout.hook + layout.outer_hook(bytes.head) as u64;
        let head = bytes.head.get(hook as usize..).unwrap_or(&[]);
        (Bytes { address: bytes.address + hook, head, ..bytes }, hook)
    }

    fn buffer(&mut self, mark: u32, bytes: Bytes<'_>) {
        let (bytes, hook) = self.unhooked(bytes);
        let number = u64::from(mark) & shapes::MOST;
        match mark >> 28 {
            shapes::LEAF => (),
            shapes::ITEMS | shapes::SPLIT => self.references(bytes, 0, number),
            shapes::COUNTED => self.references(bytes, 8, number),
            shapes::KEYS => self.keys(bytes),
            shapes::PREFIXED => self.prefixed(bytes, number.saturating_sub(hook)),
            shapes::HEADED => {
                let capacity = self.field(bytes, 0).map_or(0, |word| word & 0xFF);
                self.references(bytes, 8, capacity);
            }
            shapes::SET => self.table(bytes, 0, number, 16, self.source.layout.set_key, 1),
            shapes::TABLE => self.table(bytes, 0, number, 24, 8, 2),
            contents @ (shapes::DEQUE | shapes::OLD_DEQUE) => {
                let block = shapes::deque_block(contents);
                let (low, high) = (number & 0xFF, number >> 8 & 0xFF);
                self.references(bytes, block.items + low * 8, (high + 1).saturating_sub(low));
                if number & shapes::LAST_OF_DEQUE == 0 {
                    self.reference_at(bytes, block.right, EXACT);
                }
            }
            shapes::STATE => self.words(bytes, number, (u64::MAX, DOUBTFUL)),
            shapes::NUMBERS => self.words(bytes, u64::MAX, (0, STRAY)),
            _ => self.anything(bytes),
        }
    }

    /// Add the keys and values of a dict (PyDictKeysObject).
    fn keys(&mut self, bytes: Bytes<'_>) {
        if let Some((from, count, step, first, words)) = self.entries(bytes) {
            self.table(bytes, from, count, step, first, words);
        }
    }

    /// Return whether a block contains the keys of a small dict that the interpreter freed and keeps for reuse
    /// (dictobject.c, keys_free_list). Nothing refers to such a block, and its words are those of the last dict. None
    /// if the head of the block is cut off.
    fn is_of_freed_keys(&self, bytes: Bytes<'_>) -> Option<bool> {
        let KeysLayout { kind, log2_index_bytes, size, entries, .. } = *self.source.layout.keys.as_ref()?;
        let (bytes, _) = self.unhooked(bytes);
        if self.field(bytes, 0)? != 0 {
            return Some(false);
        }
        let slots = match kind >= 0 {
            true => 1u64.checked_shl(self.byte(bytes, log2_index_bytes - 1)?.into())?,
            false => self.field(bytes, size as u64)?,
        };
        let (free, used) = (self.field(bytes, entries - WORD)?, self.field(bytes, entries)?);
        Some(slots == MIN_SLOTS && free.checked_add(used)? == usable(MIN_SLOTS))
    }

    /// Return the position of the keys and values of a dict, as the arguments (from, count, step, first, words) of
    /// `table`; None if the head of the block is cut off.
    fn entries(&self, bytes: Bytes<'_>) -> Option<(u64, u64, u64, u64, u64)> {
        let KeysLayout { kind, log2_index_bytes, size, entries, indices } = *self.source.layout.keys.as_ref()?;
        let count = self.field(bytes, entries)?;
        let (index_bytes, general) = match kind >= 0 {
            true => (1u64 << self.byte(bytes, log2_index_bytes)?.min(40), self.byte(bytes, kind)? == 0),
            false => {
                let slots = self.field(bytes, size as u64)?;
                (slots.saturating_mul(index_width(slots)), true)
            }
        };
        let (step, first) = if general { (24, 8) } else { (16, 0) };
        Some((indices.saturating_add(index_bytes), count, step, first, 2))
    }

    /// Add the attribute values of an object, which begin at the offset `prefix` (3.11, 3.12). The bytes before the
    /// values are read backwards: the size of these bytes, the number of values, then the index of each value in the
    /// order of insertion.
    fn prefixed(&mut self, bytes: Bytes<'_>, prefix: u64) {
        let known = bytes.head;
        let Some(used) = (prefix as usize).checked_sub(2).and_then(|at| known.get(at).copied()) else { return };
        for place in 0..usize::from(used) {
            let Some(at) = (prefix as usize).checked_sub(3 + place) else { break };
            let Some(index) = known.get(at).copied() else { break };
            self.reference_at(bytes, prefix + 8 * u64::from(index), EXACT);
        }
    }

    fn shape(&mut self, number: u32) -> Arc<ObjectShape> {
        let place = number as usize;
        if self.shapes.len() <= place {
            self.shapes.resize(place + 1, None);
        }
        if let Some(shape) = &self.shapes[place] {
            return Arc::clone(shape);
        }
        let kind = &self.types.kinds[place];
        let shared = self.source.registry.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).number(kind.address);
        let shape = Arc::new(shape_of(&self.types, self.source.layout, kind, shared));
        self.shapes[place] = Some(Arc::clone(&shape));
        shape
    }

    /// Add the references of an object if it is alive. Return the object's kind.
    #[inline(always)]
    fn object(&mut self, number: u32, alive: bool, address: u64, size: u64, end: u64, head: &[u8]) -> u32 {
        let outer = self.types.layout.outer_hook(head) as u64;
        let block = Bytes { address: address + outer, end, head: &head[outer as usize..] };
        let pre = self.types.kinds[number as usize].pre as usize;
        let count = block.head.get(pre..).and_then(|head| references(self.types.layout, head));
        self.rows.counted(count.map_or(MANY, |count| count.min(MANY.into()) as u8));
        let shape = match self.shapes.get(number as usize) {
            Some(Some(shape)) if shape.is_leaf => return (shape.number + 1) | if alive { 0 } else { IDLE },
            _ => self.shape(number),
        };
        if !alive {
            return (shape.number + 1) | IDLE;
        }
        if !shape.is_known {
            self.anything(block);
            return shape.number + 1;
        }
        let (pre, kind) = (self.types.kinds[number as usize].pre, self.types.kinds[number as usize].address);
        for place in 0..self.types.kinds[number as usize].claims.len() {
            let claim = self.types.kinds[number as usize].claims[place];
            self.claimed(&claim, block, size.saturating_sub(outer));
        }
        if shape.holds_type {
            self.reference(kind, EXACT);
        }
        if shape.is_handle {
            self.handles.push(self.drawn.0);
        }
        if shape.managed {
            let at = (pre as i64 + self.source.layout.managed_dict) as u64;
            if let Some(dict) = self.field(block, at).filter(|dict| dict & 1 == 0) {
                self.reference(dict, EXACT);
            }
        }
        let head = block.head.get(pre as usize..).unwrap_or(&[]);
        self.fields(&shape, Bytes { address: block.address + pre, end, head });
        shape.number + 1
    }

    fn claimed(&mut self, claim: &PlacedClaim, block: Bytes<'_>, size: u64) {
        let Some(pointer) = claimed_pointer(self.source.space, claim, block.address, size, block.head) else {
            return self.shown(claim, block);
        };
        if pointer.wrapping_sub(block.address) < size {
            return;
        }
        if claim.follow == CLAIM {
            let found = self.rows.find(&self.source.blocks, pointer);
            if !found.is_some_and(|found| self.types.layout.begins_at(found.address, pointer)) {
                return;
            }
        }
        self.reference(pointer, EXACT);
    }

    /// Add a reference to memory that a numpy array views but does not own. This is needed if the array's base is only
    /// a handle for the memory, such as a PyCapsule (`Form::is_handle`).
    fn shown(&mut self, claim: &PlacedClaim, block: Bytes<'_>) {
        if claim.extent.rule != STRIDES {
            return;
        }
        let Some(pointer) = self.field(block, claim.at as u64) else { return };
        let base = self.field(block, claim.at as u64 + BASE).filter(|base| *base >= LOWEST);
        let kind = base.and_then(|base| self.source.space.word(base.wrapping_add(self.types.layout.ob_type)).ok());
        if let Some(number) = kind.and_then(|kind| self.types.lookup(kind)) {
            if self.shape(number).is_handle {
                self.reference(pointer, EXACT);
            }
        }
    }

    fn fields(&mut self, shape: &ObjectShape, object: Bytes<'_>) {
        let mut to = shape.to;
        if let Some(form) = shape.form.map(|form| &self.source.layout.forms[form]) {
            self.form(form, object);
            if form.frame >= 0 {
                to = to.min(form.frame as u64);
            }
        } else if shape.item > 0 {
            if let Some(count) = self.count_of(object) {
                to = to.saturating_add(count.saturating_mul(shape.item));
            }
        }
        if shape.from < to {
            self.pieces(object, shape.from, to, &mut |drawer, at, piece| {
                for (index, word) in piece.chunks_exact(8).enumerate() {
                    let offset = at + index as u64 * 8;
                    if !shape.skipped.contains(&offset) {
                        let strength = if offset < shape.certain { LIKELY } else { EXACT };
                        drawer.word_at(object.address.wrapping_add(offset), u64_at(word, 0), strength);
                    }
                }
            });
        }
        if let Some(header) = (shape.inline_at > 0).then(|| self.field(object, shape.inline_at)).flatten() {
            // The bytes of the header are uint8_t capacity, size, embedded, valid.
            if header >> 24 & 0xFF != 0 {
                self.references(object, shape.inline_at + 8, (header & 0xFF).min(MAX_INLINE));
            }
        }
        if shape.dict_before_end > 0 {
            if let (Some(count), Ok(item)) = (self.count_of(object), self.source.space.word(shape.item_at)) {
                let size = shape.basic.saturating_add(count.saturating_mul(item)).saturating_add(7) & !7;
                self.references(object, size.saturating_sub(shape.dict_before_end), 1);
            }
        }
    }

    /// Return the number of items of an object: its `ob_size` without the sign, which in an int is the sign of the
    /// number. Return None if the bytes end before this field.
    fn count_of(&self, object: Bytes<'_>) -> Option<u64> {
        self.field(object, self.source.layout.ob_size).map(|count| (count as i64).unsigned_abs())
    }

    fn form(&mut self, form: &Form, object: Bytes<'_>) {
        for field in &form.fields {
            self.references(object, *field, 1);
        }
        if form.items >= 0 {
            if let Some(count) = self.field(object, self.source.layout.ob_size) {
                self.references(object, form.items as u64, count);
            }
        }
        if form.table >= 0 && self.field(object, form.table_pointer) == Some(object.address + form.table as u64) {
            let count = self.field(object, form.table_mask).map_or(0, |mask| mask.saturating_add(1));
            self.table(object, form.table as u64, count.min(8), form.table_step, form.table_first, form.table_words);
        }
        if form.frame >= 0 && self.has_frame(form, object) {
            if let Some(layout) = self.source.layout.frame.as_ref() {
                self.frame(layout, form.frame as u64, object);
            }
        }
    }

    fn has_frame(&self, form: &Form, object: Bytes<'_>) -> bool {
        let points = form.frame_pointer == 0
            || self.field(object, form.frame_pointer) == Some(object.address.wrapping_add(form.frame as u64));
        let state = || self.byte(object, form.frame_state as i64);
        points && (form.frame_state == 0 || state().is_some_and(|state| (state as i8) < form.frame_gone))
    }

    /// Add the references of a frame that begins at the offset `start` in an object.
    fn frame(&mut self, layout: &FrameLayout, start: u64, object: Bytes<'_>) {
        let clean = !layout.tags;
        for field in &layout.fields {
            if let Some(pointer) = self.field(object, start + field) {
                self.reference(pointer & clean, EXACT);
            }
        }
        let locals = start + layout.locals;
        let behind = |address: u64| address.wrapping_sub(object.address.wrapping_add(locals)) / 8;
        let (top, room) = (self.field(object, start + layout.top), object.size().saturating_sub(locals) / 8);
        let fixed = match layout.stack {
            0 => {
                let code = self.field(object, start + layout.code).map(|code| code & clean);
                let locals = code.and_then(|code| self.source.space.word(code.wrapping_add(layout.code_locals)).ok());
                locals.map(|count| count & 0xFFFF_FFFF)
            }
            stack => self.field(object, start + stack).map(behind),
        };
        let above = if layout.stack == 0 { Some(0) } else { fixed };
        let is_done = || layout.executing > 0 && self.byte(object, (start + layout.executing) as i64) == Some(0);
        let count = top.and_then(|top| match layout.top_is_pointer {
            true if top == 0 && is_done() => fixed,
            true if top == 0 => None,
            true => Some(behind(top)),
            false => Some(u64::try_from(top as u32 as i32).ok()? + above?),
        });
        let exact = count.filter(|count| *count <= room).or(fixed).map_or(0, |count| count.min(room));
        self.pieces(object, locals, locals + exact * 8, &mut |drawer, _, piece| {
            piece.chunks_exact(8).for_each(|word| drawer.reference(u64_at(word, 0) & clean, EXACT));
        });
        if count.is_none() {
            // Either the frame runs, so that the height of its stack is in a register, or the height cannot be read.
            self.pieces(object, locals + exact * 8, u64::MAX, &mut |drawer, _, piece| {
                piece.chunks_exact(8).for_each(|word| _ = drawer.word(u64_at(word, 0) & clean, DOUBTFUL));
            });
        }
    }
}

/// An object that was examined. `number`: the drawer's number of its type.
#[derive(Clone, Copy)]
pub(crate) struct ExaminedObject {
    pub(crate) number: u32,
    /// The address of the object itself, which may lie after the start of its block.
    pub(crate) address: u64,
    /// The object's reference count.
    pub(crate) references: u64,
    /// Whether the object refers to no other block.
    pub(crate) is_leaf: bool,
    pub(crate) has_claims: bool,
}

/// A table of references at the address `at`: `words` words in each of its `count` entries. An entry has `step` bytes,
/// and its references begin at the offset `first` in the entry.
#[derive(Clone, Copy)]
pub(crate) struct ReferenceTable {
    pub(crate) at: u64,
    pub(crate) count: u64,
    pub(crate) step: u64,
    pub(crate) first: u64,
    pub(crate) words: u64,
}

/// Methods that examine single objects, in any order.
impl<S: Sink> Drawer<'_, S> {
    /// Return the living object in a block whose first bytes are `head`; None if there is none.
    #[inline(always)]
    pub(crate) fn look(&mut self, block: &Block, head: &[u8]) -> Option<ExaminedObject> {
        let (number, _) = self.types.object_in(head, block.size).filter(|(_, is_alive)| *is_alive)?;
        let outer = self.types.layout.outer_hook(head) as u64;
        let before = outer + self.types.kinds[number as usize].pre;
        let references = head.get(before as usize..).and_then(|head| references(self.types.layout, head))?;
        let is_bare = match self.shapes.get(number as usize) {
            Some(Some(shape)) => shape.is_bare,
            _ => self.shape(number).is_bare,
        };
        let claims = &self.types.kinds[number as usize].claims;
        let is_outside = |claim: &PlacedClaim| {
            let (address, size) = (block.address + outer, block.size.saturating_sub(outer));
            let pointer = claimed_pointer(self.source.space, claim, address, size, &head[outer as usize..]);
            pointer.is_some_and(|pointer| pointer.wrapping_sub(address) >= size)
        };
        let has_claims = claims.iter().any(is_outside);
        let is_leaf = is_bare && !has_claims;
        Some(ExaminedObject { number, address: block.address + before, references, is_leaf, has_claims })
    }

    /// Follow the references of an object that `look` has returned, and pass them to the sink.
    pub(crate) fn follow(&mut self, looked: &ExaminedObject, block: &Block, head: &[u8]) {
        self.object(looked.number, true, block.address, block.size, block.end, head);
    }

    /// Pass the references in a buffer to the sink. `mark` says what the buffer contains (shapes.rs).
    pub(crate) fn follow_buffer(&mut self, mark: u32, block: &Block, head: &[u8]) {
        self.buffer(mark, Bytes { address: block.address, end: block.end, head });
    }

    /// Return the table of references in the buffer at `pointer`; None if the contents of the buffer are not a table.
    pub(crate) fn table_in(&self, mark: u32, pointer: u64, end: u64) -> Option<ReferenceTable> {
        let (number, set_key) = (u64::from(mark) & shapes::MOST, self.source.layout.set_key);
        let (from, count, step, first, words) = match mark >> 28 {
            shapes::ITEMS | shapes::SPLIT | shapes::COUNTED => (0, number, 8, 0, 1),
            shapes::SET => (0, number, 16, set_key, 1),
            shapes::TABLE => (0, number, 24, 8, 2),
            shapes::KEYS => self.entries(Bytes { address: pointer, end, head: &[] })?,
            _ => return None,
        };
        let at = pointer.checked_add(from)?;
        let count = count.min(end.saturating_sub(at) / step);
        Some(ReferenceTable { at, count, step, first, words })
    }

    /// Return the tp_flags of a type, given by the drawer's number of the type.
    pub(crate) fn flags(&self, number: u32) -> u64 {
        self.types.kinds[number as usize].flags
    }

    /// Return the address of a type, given by the drawer's number of the type.
    pub(crate) fn kind(&self, number: u32) -> u64 {
        self.types.kinds[number as usize].address
    }
}

impl Drawer<'_> {
    /// Begin the row of edges for the block at `place`. Return its number and its mark (shapes.rs); None if it is not a
    /// used block.
    #[inline(always)]
    fn mark_at(&mut self, place: BlockId) -> Option<(u32, u32)> {
        let id = self.source.blocks.ids.id_of(place)?;
        self.rows.go_to(id);
        Some((id, self.source.marks[id as usize]))
    }

    /// Add the references of a static type.
    pub(crate) fn static_type(&mut self, address: u64) {
        let size = self.source.layout.sizeof_type;
        let skipped = [self.weak_list_of(address), Some(self.types.layout.tp_flags)];
        let bytes = Bytes { address, end: address + size, head: &[] };
        self.pieces(bytes, self.types.layout.head(), size, &mut |drawer, at, piece| {
            for (index, word) in piece.chunks_exact(8).enumerate() {
                if !skipped.contains(&Some(at + index as u64 * 8)) {
                    drawer.word(u64_at(word, 0), EXACT);
                }
            }
        });
        let own = self.source.space.word(address + self.types.layout.ob_type);
        let number =
            |own: u64| self.source.registry.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).number(own);
        let kind = own.map_or(0, |own| number(own) + 1);
        self.rows.end_row(kind);
    }

    fn weak_list_of(&self, address: u64) -> Option<u64> {
        let own = self.source.space.word(address + self.types.layout.ob_type).ok()?;
        self.source.space.word(own.wrapping_add(self.source.layout.tp_weaklistoffset)).ok()
    }

    /// Add edges for the words of [start, end), which is memory outside the heaps. `has_lists`: whether free lists of
    /// the interpreter may lie there. Their words get no edges, because they may be stale.
    pub(crate) fn range(&mut self, start: u64, end: u64, strength: u32, has_lists: bool) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(WINDOW as usize, 0);
        let space = self.source.space;
        space.show(start, end, &mut scratch, |at, piece| {
            self.rows.unread += space.unread_after(at, piece.len() as u64, end.min(at + WINDOW));
            let left = if has_lists { self.left_over(piece) } else { HashSet::new() };
            for (word, address) in piece.chunks_exact(8).zip((at..).step_by(8)) {
                if !left.contains(&(address - at)) {
                    self.outer_word(address, u64_at(word, 0), strength);
                }
            }
        });
        self.scratch = scratch;
    }

    /// Add an edge for a word of memory outside the heaps. A word below 4 GiB may be a number, which `strays::sign`
    /// decides. Words at the addresses `holders` are certainly references.
    fn outer_word(&mut self, address: u64, pointer: u64, strength: u32) {
        let is_certain = || self.source.holders.binary_search(&address).is_ok();
        if pointer >= LOW || pointer < self.bounds.0 || pointer >= self.bounds.1 || is_certain() {
            self.word(pointer, strength);
            return;
        }
        let heaps = self.source.blocks.heaps;
        let Some(block) = heaps.block_at(pointer) else { return };
        let begins = pointer == block.address
            || strays::begins_inside(|at| heaps.space.word(at).ok(), &block, pointer)
            || strays::begins_object(&mut self.types, &block, pointer);
        let strength = match strays::sign(&mut self.types, &heaps, address, pointer, begins) {
            Sign::Reference => strength,
            Sign::Late => strength.max(DOUBTFUL),
            Sign::Stray => STRAY,
            Sign::Nothing => return,
        };
        self.word(pointer, strength);
    }
}

impl Visitor for Drawer<'_> {
    const ALL: bool = true;
    const HEAD: usize = 4 << 10;

    #[inline(always)]
    fn block(&mut self, Block { place, address, size, end }: Block, head: &[u8]) -> bool {
        let Some((id, mark)) = self.mark_at(place) else { return false };
        self.drawn = (id, address);
        if !self.source.blocks.heaps.is_closed(place) {
            self.rows.unread += unread_of(self.source.space, (address, end), Self::HEAD, head);
        }
        let kind = if mark != 0 {
            self.buffer(mark, Bytes { address, end, head });
            BUFFER
        } else if self.source.blocks.heaps.is_closed(place) {
            0
        } else if let Some((number, alive)) = self.types.object_in(head, size) {
            self.object(number, alive, address, size, end, head)
        } else {
            let has_slots = self.source.blocks.heaps.has_slots(place);
            let bytes = Bytes { address, end, head };
            match () {
                () if has_slots && self.types.slab_at(address, size).is_some() => {
                    self.reference_at(bytes, self.types.layout.hook, LIKELY);
                    0
                }
                // The block has no owner, because the interpreter keeps it for the next numbers that it makes.
                () if has_slots && self.types.is_idle_slab(address, size) => IDLE,
                () => {
                    self.structure(id, size, bytes);
                    0
                }
            }
        };
        self.rows.end_row(kind);
        true
    }

    fn unread(&mut self, bytes: u64) {
        self.rows.unread += bytes;
    }

    fn plain_block(&mut self, Block { place, address, size, end }: Block, head: &[u8]) {
        let Some((id, mark)) = self.mark_at(place) else { return };
        self.drawn = (id, address);
        let bytes = Bytes { address, end, head };
        if mark != 0 {
            self.buffer(mark, bytes);
        } else {
            self.structure(id, size, bytes);
        }
        self.rows.end_row(if mark != 0 { BUFFER } else { 0 });
    }
}

/// Return the address of the previous table of the dynamic linker, if `head` is the start of such a table; otherwise
/// None. The address is in the word before the word with the block's own address (struct dlfo_mappings_segment:
/// previous, to_free).
pub(super) fn previous(head: &[u8], block: u64) -> Option<u64> {
    let words: Vec<u64> = head.chunks_exact(8).take(LINE_WORDS + 2).map(|word| u64_at(word, 0)).collect();
    words.windows(2).find(|pair| pair[1] == block).map(|pair| pair[0])
}

/// Return those of the ranges `all` (ascending) that begin inside the block [start, end).
#[inline(always)]
pub(super) fn left_in(all: &[(u64, u64)], start: u64, end: u64) -> &[(u64, u64)] {
    if all.is_empty() {
        return all;
    }
    let first = all.partition_point(|(part, _)| *part < start);
    let count = all[first..].iter().take_while(|(part, _)| *part < end).count();
    &all[first..first + count]
}

/// Return how many needed bytes of the block [start, end) could not be read. `most`: the number of bytes at its start
/// that are needed; `head`: the bytes that were read.
#[inline(always)]
pub(super) fn unread_of(space: &Space, (start, end): (u64, u64), most: usize, head: &[u8]) -> u64 {
    let (size, got) = (end.saturating_sub(start), head.len() as u64);
    if got < size.min(most as u64) && space.left_out_at(start + got) == 0 {
        size - got
    } else {
        0
    }
}
