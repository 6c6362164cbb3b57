//! The graph of a target without objects of known layout. Its nodes are blocks, and its edges are the words in blocks
//! that are addresses of other blocks.
//!
//! An edge is EXACT if the word points to a place where something begins. It is LIKELY if such a word is the last word
//! of a block, which may lie after the requested bytes and be older than the block (padding.rs). It is DOUBTFUL if the
//! word points to the middle of a block. The exception is a proven structure to whose middle its holder points, such as
//! a Rust table. Something begins at the first byte of a block, at the places that Valgrind knows (memcheck's
//! `--leak-check-heuristics`), and at places that the C library itself uses. A word that points to the last bytes of a
//! block also points to the header of the chunk after the block. It counts like any other word into a block if many
//! blocks have such a word at the same offset, or if one block has many such words. Otherwise it is STRAY, because it
//! may be a leftover link of a free chunk. Every word after the last item of a container is STRAY too.

use super::csr::{NodeTables, WrittenRows};
use super::drawing::{in_pieces, root_phases, walked_bits, Root};
use super::edges::{left_in, previous, unread_of, DOUBTFUL, EXACT, LIKELY, STRAY};
use super::ids::{Blocks, FoundNode, Ids};
use super::padding::{self, Padding};
use super::proof::Proof;
use super::queries::Graph;
use super::tree::PHASES;
use crate::allocators::block::Block;
use crate::allocators::heaps::SharedHeaps;
use crate::allocators::walk::{Visitor, Walk};
use crate::bits::Bits;
use crate::python::strays;
use gdbheap_access::bytes::{range_at, u64_at, word_at};
use gdbheap_access::error::{Cancellation, Error, Result};
use gdbheap_access::memory::prefetch::SOON;
use gdbheap_access::memory::reader::Reader;
use gdbheap_access::work::{Control, Watcher};
use std::collections::{HashMap, HashSet};

const WORD: u64 = 8;
/// The number of bytes that are read at a time: a multiple of the size of a word.
const WINDOW: u64 = 256 << 10;
/// The number of bytes before the first entry of a thread's dynamic thread vector. These bytes are two words, the first
/// of which is the number of entries (glibc, elf/dl-tls.c).
const VECTOR_HEADER: u64 = 16;
/// Up to this offset in a block, a base class may begin at any aligned address. At larger offsets, only addresses that
/// are multiples of this number are examined. A program's own allocator may have millions of pointers into its large
/// blocks.
const MAX_INSIDE: u64 = 64 << 10;
/// The number of words at the start of aligned memory that are searched for the address of its block.
const KEPT_WORDS: u64 = 4;
/// The largest number of bytes by which a chunk is larger than the request.
const MAX_SLACK: u64 = 24;
/// The size in bytes of the links at the start of a free chunk (glibc, malloc.c: fd, bk, fd_nextsize, bk_nextsize).
const LINKS: u64 = 32;
/// A word may point to the header of a chunk, which overlaps the end of the previous block. Such words count as fields
/// if they are frequent. At least this many must be in one block, or at one offset of blocks of one size.
const MANY_LAST: u32 = 16;

/// The memory in which virtual function tables are recognized, as ascending ranges [start, end). `data`: memory that
/// may contain such tables. `code`: memory that contains their functions.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub data: Vec<(u64, u64)>,
    pub code: Vec<(u64, u64)>,
}

/// Ranges of addresses, ascending.
type Ranges<'a> = &'a [(u64, u64)];

impl Tables {
    /// Return whether an object with virtual functions begins at `address`: its first word points to a table, and the
    /// first word of the table points to code.
    fn is_object(&self, reader: &mut Reader<'_>, address: u64) -> bool {
        let mut word = |at: u64| reader.any_word(at).unwrap_or(0);
        let table = word(address);
        holds(&self.data, table) && holds(&self.code, word(table))
    }
}

fn holds(ranges: &[(u64, u64)], address: u64) -> bool {
    let after = ranges.partition_point(|(start, _)| *start <= address);
    after > 0 && address < ranges[after - 1].1
}

/// Build the graph of a target without objects of known layout. Lists of addresses and of ranges must be ascending.
/// - `roots`: the phase of a root is 0 for static data and data of threads, 1 for stacks and registers.
/// - `kinds`: the kind of each block, by the block's number. 0 is an unknown kind. The list is empty if all are
///   unknown.
/// - `held_inside`: the kinds of blocks whose holder points to the middle of the block.
/// - `linked`: the addresses of the dynamic linker's tables.
/// - `left_over`: the parts of containers' blocks that contain no items.
/// - `vacant`: the parts of `left_over` in which no word is a reference.
/// - `texts`: the blocks that contain only text.
/// - `is_partial`: whether memory that may contain references is missing.
/// - `hidden`: unaligned words, as (address, value).
///
/// Fails if a root has an invalid phase, if the blocks contain objects, if there are more than 2^30 blocks, or if
/// memory runs out.
#[allow(clippy::too_many_arguments)]
pub fn draw_blocks(
    watcher: &dyn Watcher,
    shared: SharedHeaps,
    tables: &Tables,
    roots: &[Root],
    mut kinds: Vec<u32>,
    held_inside: &HashSet<u32>,
    linked: &[u64],
    left_over: &[(u64, u64)],
    vacant: &[(u64, u64)],
    texts: &[(u64, u64)],
    is_partial: bool,
    hidden: &[(u64, u64)],
) -> Result<Graph> {
    if roots.iter().any(|root| root.phase >= PHASES) {
        return Err(Error::invalid("there is no such phase"));
    }
    let heaps = shared.lend();
    if heaps.stores.iter().any(|store| store.is_told_by_walk()) {
        return Err(Error::invalid("these blocks hold objects"));
    }
    let used = walked_bits(heaps).ok_or(Error::Memory("not enough memory for a bit for each block"))?;
    let ids = Ids::new(heaps, &used, Vec::new(), roots.len()).ok_or(Error::Overflow("more than 2^30 blocks"))?;
    let blocks = Blocks { heaps, ids: &ids };
    let jobs = heaps.jobs();
    let init = || (Walk::new(heaps), Drawer::new(blocks, tables, &kinds, (linked, left_over, vacant, texts), hidden));
    let work = |(walk, drawer): &mut (Walk<'_>, Drawer<'_>), job: &_, control: &Control| {
        drawer.begin(job);
        walk.run(job, control, drawer)
    };
    let states = heaps.space.task(watcher, Some(jobs.total)).run(&jobs.jobs, init, work)?;
    let (mut written, mut padding, mut ends): (Vec<WrittenRows>, Padding, Ends) = Default::default();
    for (_, drawer) in states {
        padding.absorb(drawer.padding);
        ends.absorb(drawer.ends);
        written.push(drawer.rows);
    }
    let draw = |control: &Control| {
        outside(control, Drawer::new(blocks, tables, &kinds, (linked, left_over, vacant, texts), hidden), roots)
    };
    written.push(heaps.space.task(watcher, None).alone(draw)?);
    let NodeTables { mut edges, kinds: groups, unread, .. } = WrittenRows::join(written, ids.count())?;
    let (fields, holders) = (padding.fields(), ends.holders(ids.count()));
    let kind = |target: u32| kinds.get(target as usize).copied().unwrap_or(0);
    edges.judge(|source, target, strength| match strength {
        LIKELY if fields.contains(&groups[source as usize]) => EXACT,
        DOUBTFUL if !held_inside.is_empty() && held_inside.contains(&kind(target)) => EXACT,
        STRAY if holders.get(source.into()) => DOUBTFUL,
        _ => strength,
    });
    drop(groups);
    let phases = root_phases(roots, ids.first_root);
    kinds.resize(ids.count(), 0);
    let types = (1..=kinds.iter().copied().max().unwrap_or(0)).map(u64::from).collect();
    let proof = Proof::of(unread, is_partial, Vec::new());
    Ok(Graph::new(shared, None, ids, edges, kinds, types, phases, proof, Vec::new(), Vec::new()))
}

/// Write the edges of the roots: stacks, registers, static data and data of threads.
fn outside(control: &Control, mut drawer: Drawer<'_>, roots: &[Root]) -> Result<WrittenRows, Cancellation> {
    let space = drawer.blocks.heaps.space;
    drawer.rows.begin(drawer.blocks.ids.first_root);
    for root in roots {
        root.pointers.iter().for_each(|pointer| _ = drawer.word(|| 0, *pointer, EXACT, NO_BLOCK));
        for range in &root.ranges {
            in_pieces(control, space, *range, |start, end| drawer.words(start, end, NO_BLOCK))?;
            drawer.hidden_words(*range, NO_BLOCK);
        }
        drawer.rows.end_row(0);
    }
    Ok(drawer.rows)
}

/// The block number that is used for a word outside all blocks.
const NO_BLOCK: u32 = u32::MAX;

/// A finder of blocks with fields that point to the last bytes of other blocks. All other words that point there, the
/// candidates, may be leftover links of free chunks.
#[derive(Default)]
struct Ends {
    /// The number of candidate words, by the size of their block and their offset in it.
    places: HashMap<u64, u32>,
    /// The number of the block of each candidate word, and the key of the word in `places`.
    found: Vec<(u32, u64)>,
    /// The numbers of blocks with at least MANY_LAST candidate words.
    many: Vec<u32>,
    /// The number of candidate words (words that point to the last bytes of another block) in the block that is being
    /// read.
    own: u32,
}

impl Ends {
    /// Count a candidate word, which lies `inside` bytes after the beginning of the block `own`. The block has `size`
    /// bytes.
    fn add(&mut self, own: u32, size: u64, inside: u64) {
        self.own += 1;
        if inside >= LINKS {
            let place = size.rotate_left(32) ^ inside;
            *self.places.entry(place).or_default() += 1;
            self.found.push((own, place));
        }
    }

    /// Finish the block `own`, all of whose words were read: record it if it has many candidate words.
    #[inline(always)]
    fn end(&mut self, own: u32) {
        if std::mem::take(&mut self.own) >= MANY_LAST {
            self.many.push(own);
        }
    }

    fn absorb(&mut self, other: Ends) {
        other.places.into_iter().for_each(|(place, count)| *self.places.entry(place).or_default() += count);
        self.found.extend(other.found);
        self.many.extend(other.many);
    }

    /// Return a bit for each of `count` nodes. A bit is set if the candidate words of the node are fields.
    fn holders(&self, count: usize) -> Bits {
        let mut bits = Bits::new(count as u64);
        let found = self.found.iter().filter(|(_, place)| self.places[place] >= MANY_LAST).map(|(own, _)| own);
        found.chain(&self.many).for_each(|own| bits.set((*own).into()));
        bits
    }
}

/// A worker's finder of the edges between blocks. A walk shows it one block after the other.
struct Drawer<'a> {
    blocks: Blocks<'a>,
    tables: &'a Tables,
    bounds: (u64, u64),
    spans: Vec<(u64, u64)>,
    reader: Reader<'a>,
    scratch: Vec<u8>,
    rows: WrittenRows,
    /// The kind of each block, by the block's number; empty if all kinds are unknown.
    kinds: &'a [u32],
    hidden: &'a [(u64, u64)],
    /// The addresses of the dynamic linker's tables, ascending. Each table refers only to the previous one.
    linked: &'a [u64],
    /// The parts of all blocks that contain no items.
    left_over: Ranges<'a>,
    /// The parts in `left_over` in which no word is a reference.
    vacant: Ranges<'a>,
    texts: Ranges<'a>,
    /// The parts without items in the block that is being read, as [start, end).
    left_here: &'a [(u64, u64)],
    padding: Padding,
    ends: Ends,
    /// The address and the size of the block that is being read.
    block: (u64, u64),
}

impl<'a> Drawer<'a> {
    fn new(
        blocks: Blocks<'a>,
        tables: &'a Tables,
        kinds: &'a [u32],
        (linked, left_over, vacant, texts): (&'a [u64], Ranges<'a>, Ranges<'a>, Ranges<'a>),
        hidden: &'a [(u64, u64)],
    ) -> Drawer<'a> {
        let (reader, bounds, spans) = (Reader::new(blocks.heaps.space), blocks.bounds(), blocks.heaps.spans());
        let (scratch, rows, padding, ends, block) = Default::default();
        let left_here = &[];
        Drawer {
            blocks,
            tables,
            bounds,
            spans,
            reader,
            scratch,
            rows,
            kinds,
            hidden,
            linked,
            left_over,
            vacant,
            texts,
            left_here,
            padding,
            ends,
            block,
        }
    }

    fn begin(&mut self, job: &crate::allocators::walk::Job) {
        self.rows.begin(self.blocks.ids.id_from(job.first));
    }

    #[inline(always)]
    fn may_lead(&self, pointer: u64) -> bool {
        pointer >= self.bounds.0 && pointer < self.bounds.1
    }

    /// Add an edge of the node `own` if the word `pointer`, which lies at the address `at`, points into another block.
    /// Return whether something begins where the word points.
    #[inline(always)]
    fn word(&mut self, at: impl FnOnce() -> u64, pointer: u64, strength: u32, own: u32) -> bool {
        if strays::has_tag(pointer) {
            self.tagged(pointer, own);
            return false;
        }
        if !self.may_lead(pointer) {
            return false;
        }
        match self.blocks.find_start(pointer) {
            Some(found) if found.id != own => self.edge(at, pointer, found, strength, own),
            found => found.is_some_and(|found| pointer == found.address),
        }
    }

    /// Add a stray edge if the word without its tag bits is the address of another block.
    #[inline(always)]
    fn tagged(&mut self, word: u64, own: u32) {
        if let Some(pointer) = strays::untagged(word, &self.spans) {
            match self.blocks.find_start(pointer) {
                Some(found) if found.id != own && found.address == pointer => self.rows.edge(found.id, STRAY),
                _ => (),
            }
        }
    }

    fn edge(&mut self, at: impl FnOnce() -> u64, pointer: u64, found: FoundNode, strength: u32, own: u32) -> bool {
        if pointer == found.address {
            self.rows.edge(found.id, strength);
            return true;
        }
        let heaps = self.blocks.heaps;
        let is_header = heaps.is_header(pointer);
        // The first block has no block before it to which its header could belong.
        if is_header && pointer < found.address {
            return false;
        }
        let begins = heaps.block_at(pointer).is_some_and(|block| self.begins_inside(&block, pointer));
        let is_end = !begins && is_header && own != NO_BLOCK;
        if is_end && strength != STRAY {
            self.ends.add(own, self.block.1, at() - self.block.0);
        }
        let known = if is_end { STRAY } else { strength.max(DOUBTFUL) };
        self.rows.edge(found.id, if begins { strength } else { known });
        begins
    }

    /// Return whether something begins at `pointer`, in the middle of a block. If `pointer` is more than MAX_INSIDE
    /// bytes after the block's beginning, only multiples of MAX_INSIDE are examined: a program's own allocator may have
    /// millions of pointers into its large blocks, and each of them would cost reads.
    fn begins_inside(&mut self, block: &Block, pointer: u64) -> bool {
        let (tables, reader, inside) = (self.tables, &mut self.reader, pointer - block.address);
        if pointer % WORD != 0 || inside > MAX_INSIDE && pointer % MAX_INSIDE != 0 {
            return false;
        }
        let room = block.end - pointer;
        // At the end of a block, the word may be an interface after plain members. Elsewhere any two words may look
        // like an object.
        let is_last = room == WORD;
        match inside {
            // An array whose elements have destructors begins after a word with the number of its elements (Itanium C++
            // ABI, 2.7).
            WORD if reader.any_word(block.address).is_some_and(|count| is_multiple(count, room)) => true,
            VECTOR_HEADER if reader.any_word(block.address).is_some_and(|last| is_vector(last, room)) => true,
            _ => {
                keeps_start(reader, block, pointer)
                    || strays::begins_inside(|at| reader.any_word(at), block, pointer)
                    || tables.is_object(reader, pointer) && (is_last || tables.is_object(reader, block.address))
            }
        }
    }

    /// Add edges for the words of [start, end). The range lies in the block `own` or, if `own` is NO_BLOCK, outside the
    /// heaps.
    fn words(&mut self, start: u64, end: u64, own: u32) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(WINDOW as usize, 0);
        let space = self.blocks.heaps.space;
        space.show(start, end, &mut scratch, |at, piece| {
            self.rows.unread += space.unread_after(at, piece.len() as u64, end.min(at + WINDOW));
            self.piece(at, piece, own);
        });
        self.scratch = scratch;
    }

    /// Add edges for the words of `piece`, which lies at the address `at`. `own`: its block, or NO_BLOCK. In parts of
    /// the block without items, words are STRAY. Words in vacant parts get no edges, because they are certainly no
    /// references.
    #[inline(always)]
    fn piece(&mut self, at: u64, piece: &[u8], own: u32) {
        if self.left_here.is_empty() {
            return self.living(at, piece, own);
        }
        let (mut done, all) = (0, piece.len() / WORD as usize * WORD as usize);
        for (start, end) in self.left_here {
            let place = |address: u64| (address.saturating_sub(at) as usize).min(all);
            let (from, to) = (place(start.next_multiple_of(WORD)).max(done), place(end / WORD * WORD));
            if from < to {
                self.living(at + done as u64, &piece[done..from], own);
                done = to;
                if range_at(self.vacant, *start).is_some() {
                    continue;
                }
                for (word, address) in piece[from..to].chunks_exact(WORD as usize).zip((at + from as u64..).step_by(8))
                {
                    self.word(|| address, u64_at(word, 0), STRAY, own);
                }
            }
        }
        self.living(at + done as u64, &piece[done..], own);
    }

    #[inline(always)]
    fn living(&mut self, at: u64, piece: &[u8], own: u32) {
        let (words, start) = (piece.chunks_exact(WORD as usize), piece.as_ptr() as usize);
        let mut later = words.clone().skip(SOON).map(|word| u64_at(word, 0));
        for word in words {
            if let Some(pointer) = later.next().filter(|pointer| self.may_lead(*pointer)) {
                self.blocks.fetch(pointer);
            }
            let behind = || (word.as_ptr() as usize - start) as u64;
            self.word(|| at + behind(), u64_at(word, 0), EXACT, own);
        }
    }

    /// Add those unaligned words in [start, end) that are known to be references, as in packed structs.
    #[inline(always)]
    fn hidden_words(&mut self, (start, end): (u64, u64), own: u32) {
        let all = self.hidden;
        if !all.is_empty() {
            let first = all.partition_point(|(at, _)| *at < start);
            let words = all[first..].iter().take_while(|(at, _)| *at < end);
            words.for_each(|(at, word)| _ = self.word(|| *at, *word, EXACT, own));
        }
    }

    /// Return the parts of a block that contain no items: the unused parts of a block of a container, whose kind is
    /// known, or a whole block of text.
    #[inline(always)]
    fn left_in(&self, id: u32, (address, end): (u64, u64)) -> &'a [(u64, u64)] {
        if self.kinds.get(id as usize).is_none_or(|kind| *kind == 0) {
            return left_in(self.texts, address, end);
        }
        left_in(self.left_over, address, end)
    }

    /// Add the last word of a block, which may lie after the requested bytes. Return the block's group.
    #[inline(always)]
    fn last_word(&mut self, Block { address, size, end, .. }: Block, last: u64, head: &[u8], own: u32) -> u32 {
        let known = word_at(head, (last - address) as usize);
        let word = known.or_else(|| if last + WORD <= end { self.reader.any_word(last) } else { None });
        let is_left_over = self.left_here.iter().any(|(start, end)| *start <= last && last < *end);
        let strength = if is_left_over { STRAY } else { LIKELY };
        let kind = self.kinds.get(own as usize).copied().unwrap_or(0);
        let group = padding::group(kind, size, padding::look(head, |word| self.may_lead(word)));
        let Some(word) = word else { return group };
        let is_vacant = is_left_over && range_at(self.vacant, last).is_some();
        let (is_reference, tables) = (!is_vacant && self.word(|| last, word, strength, own), self.tables);
        let is_plain = || word == 0 || holds(&tables.data, word) || holds(&tables.code, word);
        if !is_left_over {
            self.padding.add(group, is_reference, is_plain);
        }
        group
    }
}

impl Visitor for Drawer<'_> {
    const ALL: bool = true;
    const HEAD: usize = 4 << 10;

    #[inline(always)]
    fn block(&mut self, block: Block, head: &[u8]) -> bool {
        let Some(id) = self.blocks.ids.id_of(block.place) else { return false };
        self.rows.go_to(id);
        let Block { address, size, end, .. } = block;
        if self.linked.binary_search(&address).is_ok() {
            previous(head, address).into_iter().for_each(|word| _ = self.word(|| address, word, EXACT, id));
            self.rows.end_row(0);
            self.ends.end(id);
            return true;
        }
        self.block = (address, size);
        self.left_here = self.left_in(id, (address, end));
        self.rows.unread += unread_of(self.blocks.heaps.space, (address, end), Self::HEAD, head);
        // If a block ends at an unaligned address, its last word is incomplete.
        let last = address + end.saturating_sub(address).saturating_sub(WORD).next_multiple_of(WORD);
        self.piece(address, head.get(..(last - address) as usize).unwrap_or(head), id);
        let done = address + (head.len() as u64) / WORD * WORD;
        if done < last {
            self.words(done, last, id);
        }
        let group = self.last_word(block, last, head, id);
        self.hidden_words((address, end), id);
        self.rows.end_row(group);
        self.ends.end(id);
        true
    }

    fn unread(&mut self, bytes: u64) {
        self.rows.unread += bytes;
    }

    fn plain_block(&mut self, block: Block, head: &[u8]) {
        self.block(block, head);
    }
}

/// Return whether memory that was aligned inside its block begins at `pointer`. Such memory comes with the address of
/// the block, which free() needs. The address is in the word right before the memory, or in one of its first words, as
/// in the dynamic linker's tables of loaded objects (elf/dl-find_object.c).
fn keeps_start(reader: &mut Reader<'_>, block: &Block, pointer: u64) -> bool {
    let mut near = (pointer - WORD..pointer + KEPT_WORDS * WORD).step_by(WORD as usize);
    near.any(|at| at > block.address && at < block.end && reader.any_word(at) == Some(block.address))
}

/// Return whether a dynamic thread vector whose last index is `last` may take `room` bytes.
fn is_vector(last: u64, room: u64) -> bool {
    is_size(last.saturating_add(1).saturating_mul(VECTOR_HEADER), room)
}

/// Return whether the allocator may have answered a request for `size` bytes with a block of `room` bytes.
fn is_size(size: u64, room: u64) -> bool {
    size <= room && size + MAX_SLACK > room
}

/// Return whether `count` elements, all of the same size, may take `room` bytes.
fn is_multiple(count: u64, room: u64) -> bool {
    count > 0 && count <= room && is_size(room / count * count, room)
}

#[cfg(test)]
mod tests {
    use super::{holds, is_multiple, is_size};

    #[test]
    fn arrays_fill_their_room() {
        // 10 elements of 24 bytes have 240 bytes, and a chunk has room for 240 to 255.
        assert!(is_multiple(10, 240) && is_multiple(10, 248));
        assert!(!is_multiple(0, 240) && !is_multiple(241, 240) && !is_multiple(100, 198));
        assert!(is_size(240, 240) && is_size(240, 255) && !is_size(241, 240) && !is_size(200, 240));
    }

    #[test]
    fn ranges_hold_what_lies_in_them() {
        let ranges = [(10, 20), (30, 40)];
        let inside: Vec<u64> = (0..50).filter(|address| holds(&ranges, *address)).collect();
        assert_eq!(inside, (10..20).chain(30..40).collect::<Vec<u64>>());
    }
}
