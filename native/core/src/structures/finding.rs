//! Scan all words of blocks, static data and stacks in one pass. The pass counts the pointers to each block, finds
//! classes by their vtables, and collects words that may belong to a container.
//!
//! The layouts are those of libstdc++'s basic_string.h, stl_vector.h, stl_list.h, stl_tree.h, stl_deque.h, hashtable.h
//! and shared_ptr_base.h (GCC 5 and later, with its ABI of C++11), and of libc++'s string, vector, list, __tree,
//! __hash_table and __memory/shared_ptr.h.

use super::kinds::UNKNOWN;
use super::rust::candidates::{Candidates as OfRust, PointerWords};
use super::search_input::{keep, SearchInput, WordPlace};
use super::vtables::Vtables;
use crate::allocators::block::Block;
use crate::allocators::walk::Visitor;
use crate::by_address::ByAddress;
use gdbheap_access::bytes::word_at;
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::reader::Reader;

/// The largest number of words of a container that are read.
const HOLDER: usize = 10;
/// The largest number of words of a container that may precede its pointer to a block.
const BEFORE: usize = 3;
const PIECE: u64 = 64 << 10;
/// The length in bytes of the longest string that a std::string stores in itself and not in a block.
const LOCAL_STRING: u64 = 15;
/// The size in bytes of the smallest chunk of glibc's malloc.
const SMALLEST_CHUNK: u64 = 32;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum HolderShape {
    /// The words may be a string, which has this number of bytes before the NUL.
    String(u64),
    /// The words may be a vector, whose items end at this address.
    Vector(u64),
}

/// Words at the address `holder` that may be a std::string or a std::vector whose buffer is the block `id`.
pub(crate) struct BufferHolder {
    pub(crate) holder: u64,
    pub(crate) id: u32,
    pub(crate) block: u64,
    pub(crate) shape: HolderShape,
    /// The capacity in bytes that the words state.
    pub(crate) capacity: u64,
    /// How many words of this holder point to the beginning of the block.
    pub(crate) pointers: u32,
    /// How many words of this holder point into the block, after its beginning.
    pub(crate) inside: u32,
    pub(crate) on_stack: bool,
}

/// The offsets in bytes of the links in a node of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct TreeForm {
    pub(crate) parent: u64,
    pub(crate) left: u64,
    pub(crate) right: u64,
}

pub(crate) const LIBSTDCXX_TREE: TreeForm = TreeForm { parent: 8, left: 16, right: 24 };
pub(crate) const LIBCXX_TREE: TreeForm = TreeForm { parent: 16, left: 0, right: 8 };

/// The candidates may take TAKEN_FOR_EACH bytes of memory for each byte that is searched, and TAKEN_ALWAYS bytes more.
/// A program that has only short Vecs in a Vec needs less than four bytes for each searched byte: for each short Vec,
/// 56 bytes are searched (24 of the Vec itself and 32 of its chunk), and its candidates take 192 bytes. Forged words,
/// each of which may belong to many candidates, would need about fifty bytes for each searched byte.
const TAKEN_FOR_EACH: u64 = 6;
const TAKEN_ALWAYS: u64 = 16 << 20;

/// The possible containers that one worker has found. Each is the address of its holder or of its block.
#[derive(Default)]
pub(crate) struct Candidates {
    /// The number of bytes of memory that were searched.
    looked: u64,
    /// The number of bytes that the candidates found so far take.
    taken: u64,
    pub(crate) held: Vec<BufferHolder>,
    pub(crate) tables: Vec<u64>,
    pub(crate) deques: Vec<u64>,
    pub(crate) split_deques: Vec<u64>,
    pub(crate) trees: Vec<(u64, TreeForm)>,
    pub(crate) rings: Vec<(u32, u64)>,
    pub(crate) controls: Vec<(u32, u64)>,
    pub(crate) of_rust: OfRust,
    /// For each block, how many words on stacks point to its beginning.
    pub(crate) from_stacks: ByAddress<u32>,
}

impl Candidates {
    /// Return whether the candidates take at most as much memory as is allowed for the memory that was searched.
    fn have_room(&self) -> bool {
        self.taken + self.of_rust.taken <= TAKEN_ALWAYS.saturating_add(self.looked.saturating_mul(TAKEN_FOR_EACH))
    }
}

pub(crate) struct Finder<'a, const SHAPES: bool> {
    look: &'a SearchInput<'a>,
    vtables: Vtables<'a>,
    /// The kinds of objects with a vtable, by the address of the class name: (kind, kind after destruction, whether it
    /// points to a counted object). The second one counts if no std::shared_ptr is left. The third one is true only for
    /// the control block of a std::shared_ptr.
    kinds: ByAddress<(u32, u32, bool)>,
    reader: Reader<'a>,
    scratch: Vec<u8>,
    pub(crate) found: Candidates,
}

impl<'a, const SHAPES: bool> Finder<'a, SHAPES> {
    pub(crate) fn new(look: &'a SearchInput<'a>) -> Finder<'a, SHAPES> {
        let space = look.heaps.space;
        Finder {
            look,
            vtables: Vtables::new(space, look.objects, &look.names),
            kinds: ByAddress::default(),
            reader: Reader::new(space),
            scratch: Vec::new(),
            found: Candidates::default(),
        }
    }

    /// Return what an object is that begins with `word`, as in `kinds`: (kind, kind after destruction, whether it
    /// points to a counted object). Without a vtable, its kind is UNKNOWN.
    fn kind_by(&mut self, word: u64) -> (u32, u32, bool) {
        match self.vtables.at(word).filter(|vtable| vtable.to_top == 0) {
            Some(vtable) => {
                let look = self.look;
                *self.kinds.entry(vtable.class.as_ptr() as u64).or_insert_with(|| {
                    let kind = look.kind_of(vtable);
                    (kind, look.destroyed(kind), points_to_object(&vtable.class))
                })
            }
            None => (UNKNOWN, UNKNOWN, false),
        }
    }

    /// Return whether a block begins with a std::shared_ptr control block whose counts say that no std::shared_ptr is
    /// left.
    fn has_no_owner(&self, head: &[u8]) -> bool {
        let (libraries, counts) = (self.look.libraries, word_at(head, 8));
        // libstdc++ counts owners from one, in 32 bits. libc++ counts them from zero, in 64 bits.
        libraries.libcxx && counts == Some(u64::MAX)
            || libraries.libstdcxx && !libraries.libcxx && counts.is_some_and(|counts| counts as u32 == 0)
    }

    /// Scan all words of the block [address, end) for pointers and candidates. `head`: its first bytes, already read.
    fn words(&mut self, address: u64, end: u64, head: &[u8]) {
        match (end - address) as usize <= head.len() {
            true => self.scan(head, address, 0..head.len() & !7, WordPlace::Block(address)),
            false => self.pieces(address, end, WordPlace::Block(address)),
        }
    }

    /// Scan the words of static data or of a stack for pointers and candidates.
    pub(crate) fn range(&mut self, start: u64, end: u64, place: WordPlace) {
        self.pieces(start.next_multiple_of(8), end, place);
    }

    fn pieces(&mut self, start: u64, end: u64, place: WordPlace) {
        let mut bytes = std::mem::take(&mut self.scratch);
        let (before, after) = (BEFORE as u64 * 8, HOLDER as u64 * 8);
        bytes.resize((before + PIECE + after) as usize, 0);
        let mut at = start;
        while let Some(next) = self.look.heaps.space.next_backed(at).filter(|next| *next < end) {
            // Words before a gap in memory belong to no container after the gap.
            let first = if next > at { next } else { at.saturating_sub(before).max(start) };
            at = next.next_multiple_of(8);
            let wanted = (end.min(at + PIECE + after) - first) as usize;
            let got = self.look.heaps.space.fill(first, &mut bytes[..wanted]);
            let known = &bytes[..got];
            let core = ((at - first) as usize).min(got)..((end.min(at + PIECE) - first) as usize).min(got);
            self.scan(known, first, core, place);
            at += PIECE;
        }
        self.scratch = bytes;
    }

    /// Scan those words of `bytes` that begin at the offsets `core`. `base`: the address of `bytes` in the target.
    fn scan(&mut self, bytes: &[u8], base: u64, core: std::ops::Range<usize>, place: WordPlace) {
        let (low, high) = self.look.bounds;
        let libraries = self.look.libraries;
        let cxx = SHAPES && libraries.has_cxx();
        self.found.looked += core.len() as u64;
        for offset in core.step_by(8) {
            let Some(word) = word_at(bytes, offset) else { break };
            if word < low || word > high {
                let own = base + offset as u64 + 48;
                if cxx && word == own && word_at(bytes, offset + 8) == Some(1) {
                    keep(&mut self.found.tables, base + offset as u64, &mut self.found.taken);
                }
                continue;
            }
            if cxx && word == base + offset as u64 + 48 && word_at(bytes, offset + 8) == Some(1) {
                keep(&mut self.found.tables, base + offset as u64, &mut self.found.taken);
            }
            let Some((id, block)) = self.look.block_with(word) else { continue };
            if place == WordPlace::Block(block.address) {
                continue;
            }
            let has_room = self.found.have_room() || self.look.leave_out();
            if libraries.rust && has_room {
                let words = PointerWords { bytes, offset, at: base + offset as u64, word };
                self.found.of_rust.take(self.look, &mut self.reader, &words, (id, &block), place);
            }
            if word != block.address {
                // A word may also point to the header before a block, which is the end of the previous block.
                if place != WordPlace::Stack && word > block.address {
                    self.look.refer(id, false);
                }
                continue;
            }
            match place {
                WordPlace::Stack => *self.found.from_stacks.entry(u64::from(id)).or_default() += 1,
                _ => self.look.refer(id, true),
            }
            if cxx && has_room {
                self.shapes(bytes, offset, base + offset as u64, (id, &block), place);
            }
        }
    }

    /// Record the containers that may hold the block to which the word at `offset` points.
    fn shapes(&mut self, bytes: &[u8], offset: usize, at: u64, (id, block): (u32, &Block), place: WordPlace) {
        let [one, two, three] = [8, 16, 24].map(|more| word_at(bytes, offset + more).unwrap_or(u64::MAX));
        let libraries = self.look.libraries;
        let on_stack = place == WordPlace::Stack;
        let look = self.look;
        let held = |shape, capacity, pointers| BufferHolder {
            holder: at,
            id,
            block: block.address,
            shape,
            capacity,
            pointers,
            inside: 0,
            on_stack,
        };
        let before = offset.checked_sub(8).and_then(|offset| word_at(bytes, offset)).unwrap_or(0);
        let has_room = one <= two && two > LOCAL_STRING && two < u64::MAX && look.fits(block, two + 1);
        if libraries.libstdcxx && has_room && !is_left_over(before, one, two) {
            keep(&mut self.found.held, held(HolderShape::String(one), two + 1, 1), &mut self.found.taken);
        }
        if libraries.libcxx && offset >= 16 {
            let (capacity, size) = (word_at(bytes, offset - 16).unwrap_or(0), word_at(bytes, offset - 8).unwrap_or(0));
            if capacity & 1 == 1 && size < capacity && look.fits(block, capacity & !1) {
                keep(&mut self.found.held, held(HolderShape::String(size), capacity & !1, 1), &mut self.found.taken);
            }
        }
        // Four pointers into one block belong to no vector, but for example to a file or a split buffer.
        let is_inside = |word: u64| (block.address..=block.end).contains(&word);
        let has_three = is_inside(one) && one <= two && two > block.address && look.fits(block, two - block.address);
        if has_three && !is_inside(three) && !is_inside(before) {
            let is_counted =
                |word: &u64| *word > block.address && look.block_with(*word).is_some_and(|found| found.0 == id);
            let inside = [one, two].iter().filter(|word| is_counted(word)).count() as u32;
            let pointers = 1 + u32::from(one == block.address);
            keep(
                &mut self.found.held,
                BufferHolder { inside, ..held(HolderShape::Vector(one), two - block.address, pointers) },
                &mut self.found.taken,
            );
        }
        if libraries.libcxx && is_inside(one) && one <= two && two <= three && is_inside(three) && two > one {
            keep(&mut self.found.split_deques, at, &mut self.found.taken);
        }
        if one >= 2 && one.checked_mul(8).is_some_and(|bytes| look.fits(block, bytes)) {
            if three < look.ids.count() as u64 + 1 {
                keep(&mut self.found.tables, at, &mut self.found.taken);
            }
            if libraries.libstdcxx && one >= 3 && three <= two {
                keep(&mut self.found.deques, at, &mut self.found.taken);
            }
        }
    }

    /// Record the block as a candidate if the links of its neighbours suggest that it is a node of a ring or the root
    /// of a tree.
    fn node(&mut self, address: u64, id: u32, head: &[u8]) {
        let Some([one, two, three]) = words_of(head) else { return };
        if one < LOWEST && two < LOWEST && three < LOWEST {
            return;
        }
        if one % 8 == 0 && two % 8 == 0 && one > LOWEST && two > LOWEST && one != address {
            let back = one.checked_add(8).and_then(|at| self.reader.word(at));
            if back == Some(address) && self.reader.word(two) == Some(address) {
                keep(&mut self.found.rings, (id, address), &mut self.found.taken);
            }
        }
        let count = self.look.ids.count() as u64;
        // The header of a tree comes after the comparison object, and so never begins a block.
        let may_be_root = |parent: u64| parent > LOWEST && self.look.block_from(parent).is_none();
        if self.look.libraries.libstdcxx && one as u32 <= 1 && may_be_root(two) {
            if let Some([color, root, _, _, nodes]) = self.reader.words::<5>(two) {
                if color as u32 == 0 && root == address && (1..=count).contains(&nodes) {
                    keep(&mut self.found.trees, (two, LIBSTDCXX_TREE), &mut self.found.taken);
                }
            }
        }
        if self.look.libraries.libcxx && head.len() > 24 && head[24] <= 1 && may_be_root(three) {
            if let Some([root, nodes]) = self.reader.words::<2>(three) {
                if root == address && (1..=count).contains(&nodes) {
                    keep(&mut self.found.trees, (three, LIBCXX_TREE), &mut self.found.taken);
                }
            }
        }
    }
}

/// Return whether objects of a class are control blocks of std::shared_ptr with a pointer to the counted object. Those
/// with a deleter of their own are not.
fn points_to_object(class: &str) -> bool {
    class.starts_with("std::_Sp_counted_ptr<") || class.starts_with("std::__1::__shared_ptr_pointer<")
}

fn words_of(head: &[u8]) -> Option<[u64; 3]> {
    Some([word_at(head, 0)?, word_at(head, 8)?, word_at(head, 16)?])
}

impl<const SHAPES: bool> Visitor for Finder<'_, SHAPES> {
    const ALL: bool = true;
    const HEAD: usize = if SHAPES { 4 << 10 } else { 64 };

    #[inline(always)]
    fn block(&mut self, Block { place, address, end, .. }: Block, head: &[u8]) -> bool {
        let (Some(id), Some(first)) = (self.look.ids.id_of(place), word_at(head, 0)) else { return false };
        if self.look.kind(id) != UNKNOWN {
            if SHAPES {
                self.words(address, end, head);
            }
            return false;
        }
        let (kind, destroyed, is_control) = self.kind_by(first);
        let kind = if destroyed != kind && self.has_no_owner(head) { destroyed } else { kind };
        if kind != UNKNOWN {
            self.look.set_kind(id, kind);
        }
        if !SHAPES {
            return false;
        }
        if kind == UNKNOWN && self.look.libraries.has_cxx() {
            self.node(address, id, head);
        } else if is_control {
            keep(&mut self.found.controls, (id, address), &mut self.found.taken);
        }
        self.words(address, end, head);
        false
    }

    fn plain_block(&mut self, block: Block, head: &[u8]) {
        self.block(block, head);
    }
}

/// Return whether the words are the remains of a small free chunk: `fd`, `bk`, its size, and the size word of the next
/// chunk, which has the flag for a previous chunk in use. By now the address in `bk` may be that of a block.
fn is_left_over(before: u64, one: u64, two: u64) -> bool {
    let is_size = |word: u64| word & 8 == 0 && word >= SMALLEST_CHUNK;
    before > LOWEST && before % 16 == 0 && one % 16 == 0 && is_size(one) && is_size(two) && two & 1 == 1
}
