//! The bytes that reference counts prove an object to keep alive, found without drawing the whole graph.
//!
//! From the roots on, breadth first, objects become nodes, as far as names are wanted: namespaces, instances, small
//! containers. Then each node that was not opened is followed down as if it was deleted: an object below it goes with it
//! once as many references to it were met on the way as it counts. Nothing else can hold such an object, whatever was not
//! read. A node has also what those have to which it alone leads.

use super::drawing::Root;
use super::edges::{Drawer, Looked, Registry, Sink, Source, Table, EXACT};
use super::ids::{Blocks, Found, Ids};
use super::marks::Marker;
use super::shapes::{self, GraphLayout};
use super::tree::{BY_FRAMES, BY_MODULES};
use crate::allocators::block::Block;
use crate::allocators::heaps::{Heaps, SharedHeaps};
use crate::bits::Bits;
use crate::by_address::ByAddress;
use crate::bytes::u64_at;
use crate::error::{Cancelled, Error, Result};
use crate::memory::space::Space;
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use crate::work::{Control, Watcher};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::Mutex;

/// The nodes that modules lead to at most, and all.
const MOST_OF_MODULES: usize = 96 << 10;
const MOST_NODES: usize = 128 << 10;
/// A container of more items is not opened, a namespace of more neither.
const WIDEST: u64 = 100;
const WIDEST_NAMESPACE: u64 = 64 << 10;
/// The dicts of modules are so far from the root.
const DEPTH_OF_MODULES: u32 = 3;
/// An object without references of so many bytes is a node of its own.
const LEAF_BYTES: u64 = 64 << 10;
/// Objects of which not all references were met yet, for all nodes together.
const MOST_WAITING: usize = 8 << 20;
/// Blocks that are looked at for one node before it is the next one's turn, at first.
const TURN: u64 = 64 << 10;
const ENTRIES: u64 = 1 << 10;
const HEAD: u64 = 4 << 10;
const SHORT_HEAD: u64 = 128;
/// An object so soon after the last one has others behind it, in all likelihood; so much is read ahead then.
const SOON: u64 = 1 << 10;
const AHEAD: usize = 8 << 10;
/// What looking at something costs, in blocks that are read ahead: at a block elsewhere, into an object, at so many words.
const ELSEWHERE: u64 = 3;
const OPENED: u64 = 8;
const WORDS: u64 = 8;
/// Blocks of so many bytes are returned one by one.
const LARGE: u64 = 1 << 20;
/// A bit of tp_flags: subclasses of type.
const TYPE: u64 = 1 << 31;
const NOBODY: u32 = u32::MAX;

/// Objects of one type with their buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptPart {
    pub type_address: u64,
    pub count: u64,
    pub bytes: u64,
}

/// A node that keeps at least as much as was asked for, or leads to one.
#[derive(Clone, Debug)]
pub struct KeptNode {
    /// By its place among all nodes, the roots first.
    pub id: u32,
    /// The node or the root above it; its own for a root.
    pub above: u32,
    /// The object's, of a root 0.
    pub address: u64,
    pub type_address: u64,
    /// Bytes that are proven to go with it, and in how many blocks.
    pub bytes: u64,
    pub count: u64,
    /// The references that it counts, and those of the one above it.
    pub references: u64,
    pub met: u64,
    /// The types that have most of the bytes.
    pub parts: Vec<KeptPart>,
    /// The large blocks among them, [start, end).
    pub large: Vec<(u64, u64)>,
}

/// What was found until `looked` blocks were looked at. `is_done`: nothing is left.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub nodes: Vec<KeptNode>,
    pub looked: u64,
    pub is_done: bool,
}

/// The references that lie in one object, as the blocks that they lead to.
#[derive(Default)]
struct Led {
    blocks: Vec<u64>,
}

impl Sink for Led {
    fn find(&self, blocks: &Blocks<'_>, pointer: u64) -> Option<Found> {
        blocks.heaps.block_at(pointer).map(|block| Found { id: 0, address: block.address })
    }

    fn lead(&mut self, found: Found, strength: u32) {
        if strength == EXACT {
            self.blocks.push(found.address);
        }
    }

    fn miss(&mut self, _bytes: u64) {}

    fn counted(&mut self, _count: u8) {}
}

/// What is still to be looked at for a node.
enum Work {
    /// An object that goes with it.
    Object(u64),
    /// A reference of one that goes with it.
    Led(u64),
    Table(Table),
}

/// A deleted object and what goes with it, so far.
#[derive(Default)]
struct Fall {
    work: Vec<Work>,
    /// References that are not met yet, of each object of which some were.
    waiting: ByAddress<u64>,
    /// By the number of the type, with how many objects and how many bytes.
    sums: Vec<(u32, u64, u64)>,
    bytes: u64,
    count: u64,
}

impl Fall {
    #[inline(always)]
    fn add(&mut self, number: u32, count: u64, bytes: u64) {
        self.bytes += bytes;
        self.count += 1;
        let place = match self.sums.iter().position(|sum| sum.0 == number) {
            Some(place) => place,
            None => {
                self.sums.push((number, 0, 0));
                self.sums.len() - 1
            }
        };
        self.sums[place].1 += count;
        self.sums[place].2 += bytes;
    }
}

struct Top {
    above: u32,
    depth: u32,
    of_modules: bool,
    block: u64,
    address: u64,
    number: u32,
    references: u64,
    met: u64,
    /// How many references lie in it itself, where it is not opened.
    width: u64,
    fall: Fall,
}

/// What reference counts prove, for the objects that modules and frames lead to. About `most` blocks are looked at.
/// Returned are nodes that keep at least `minimum` bytes.
#[allow(clippy::too_many_arguments)]
pub fn find_kept(
    watcher: &dyn Watcher,
    shared: &SharedHeaps,
    layout: &TypeLayout,
    graph: &GraphLayout,
    roots: &[Root],
    most: u64,
    minimum: u64,
) -> Result<Kept> {
    let heaps = shared.lend();
    if !heaps.stores.iter().all(|store| Bits::fits(store.block_numbers())) {
        return Err(Error::Memory("not enough memory for a bit for each block"));
    }
    let ids = Ids::new(heaps, &[], Vec::new(), 0).ok_or(Error::Overflow("too many blocks"))?;
    let registry = Mutex::new(Registry::default());
    let blocks = Blocks { heaps, ids: &ids };
    let source = Source { space: heaps.space, blocks, types: layout, layout: graph, marks: &[], registry: &registry };
    heaps.space.task(watcher, None).alone(|control| {
        let deques = AtomicU64::new(u64::MAX);
        let mut keeper = Keeper::new(source, &deques, control);
        keeper.reach(roots, most)?;
        let is_done = keeper.fall(most)?;
        Ok(Kept { nodes: keeper.rows(minimum), looked: keeper.looked, is_done })
    })
}

/// Bytes that are read ahead where one object lies soon after another.
#[derive(Default)]
struct Near {
    start: u64,
    bytes: Vec<u8>,
    last: u64,
}

impl Near {
    /// So many bytes at an address, where they were read ahead or that is worth while.
    #[inline(always)]
    fn head(&mut self, space: &Space, address: u64, size: usize) -> Option<&[u8]> {
        let is_soon = address.wrapping_sub(self.last) < SOON;
        self.last = address;
        let inside = address.wrapping_sub(self.start);
        if inside.saturating_add(size as u64) > self.bytes.len() as u64 {
            if !is_soon {
                return None;
            }
            self.start = address;
            self.bytes.resize(AHEAD, 0);
            let got = space.fill(address, &mut self.bytes);
            self.bytes.truncate(got);
            return self.bytes.get(..size);
        }
        self.bytes.get(inside as usize..inside as usize + size)
    }
}

struct Keeper<'a> {
    heaps: Heaps<'a>,
    layout: &'a TypeLayout,
    control: &'a Control<'a>,
    drawer: Drawer<'a, Led>,
    marker: Marker<'a>,
    /// By store: blocks that are nodes, or go with one.
    taken: Vec<Bits>,
    tops: Vec<Top>,
    by_block: ByAddress<u32>,
    waiting: usize,
    looked: u64,
    near: Near,
    /// The node whose turn it is.
    turn: u32,
    /// Large blocks that were taken, each with its node.
    large: Vec<(u32, u64, u64)>,
    head: Vec<u8>,
    tables: Vec<Table>,
}

impl<'a> Keeper<'a> {
    fn new(source: Source<'a>, deques: &'a AtomicU64, control: &'a Control<'a>) -> Keeper<'a> {
        let heaps = source.blocks.heaps;
        let marker = Marker::new(Types::new(heaps, source.types), source.layout.keys.as_ref(), &[], deques);
        let taken = heaps.stores.iter().map(|store| Bits::new(store.block_numbers())).collect();
        let drawer = Drawer::new(source);
        let ((tops, by_block, waiting, looked, near, turn, large, head, tables), layout) =
            (Default::default(), source.types);
        Keeper {
            heaps,
            layout,
            control,
            drawer,
            marker,
            taken,
            tops,
            by_block,
            waiting,
            looked,
            near,
            turn,
            large,
            head,
            tables,
        }
    }

    /// Takes a block that nobody has yet; whether it was free to be taken.
    #[inline(always)]
    fn take(&mut self, block: &Block) -> bool {
        let (bits, number) = (&mut self.taken[block.place.store as usize], block.place.number);
        let is_new = !bits.get(number);
        bits.set(number);
        if block.size >= LARGE && is_new {
            self.large.push((self.turn, block.address, block.end));
        }
        is_new
    }

    fn is_taken(&self, block: &Block) -> bool {
        self.taken[block.place.store as usize].get(block.place.number)
    }

    /// The object in a block.
    #[inline(always)]
    fn look(&mut self, block: &Block) -> Option<Looked> {
        if self.heaps.is_closed(block.place) {
            return None;
        }
        let wanted = block.end.saturating_sub(block.address).min(SHORT_HEAD) as usize;
        if let Some(head) = self.near.head(self.heaps.space, block.address, wanted) {
            self.looked += 1;
            return self.drawer.look(block, head);
        }
        self.looked += ELSEWHERE;
        let mut head = [0; SHORT_HEAD as usize];
        let got = self.heaps.space.fill(block.address, &mut head[..wanted]);
        self.drawer.look(block, &head[..got])
    }

    /// Makes nodes of what the roots lead to, the nearest first, those of modules before those of frames.
    fn reach(&mut self, roots: &[Root], most: u64) -> Result<(), Cancelled> {
        for (root, above) in roots.iter().zip(0..) {
            let (of_modules, number, fall) = (root.phase as u8 == BY_MODULES, NOBODY, Fall::default());
            let (depth, block, address, references, met, width) = Default::default();
            self.tops.push(Top { above, depth, of_modules, block, address, number, references, met, width, fall });
        }
        for (phase, nodes) in [(BY_MODULES, MOST_OF_MODULES), (BY_FRAMES, MOST_NODES)] {
            let mut queue = VecDeque::new();
            for (root, id) in roots.iter().zip(0..).filter(|(root, _)| root.phase as u8 == phase) {
                for pointer in &root.pointers {
                    let block = self.heaps.block_at(*pointer).map(|block| block.address);
                    block.into_iter().for_each(|block| self.meet(id, block, &mut queue));
                }
            }
            while let Some(id) = queue.pop_front() {
                if self.tops.len() >= nodes || self.looked >= most / 2 {
                    let top = &mut self.tops[id as usize];
                    top.fall.work.push(Work::Object(top.block));
                } else {
                    self.open_node(id, &mut queue)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a reference of a node to a block.
    fn meet(&mut self, above: u32, address: u64, queue: &mut VecDeque<u32>) {
        if let Some(known) = self.by_block.get(&address) {
            let top = &mut self.tops[*known as usize];
            top.met += u64::from(top.above == above);
            return;
        }
        let Some(block) = self.heaps.block_at(address).filter(|block| !self.is_taken(block)) else { return };
        let Some(looked) = self.look(&block) else { return };
        if looked.is_leaf && block.size < LEAF_BYTES {
            let mut fall = std::mem::take(&mut self.tops[above as usize].fall);
            self.led(&mut fall, address);
            self.tops[above as usize].fall = fall;
            return;
        }
        let id = self.tops.len() as u32;
        let turn = std::mem::replace(&mut self.turn, id);
        self.take(&block);
        self.turn = turn;
        let Top { depth, of_modules, .. } = self.tops[above as usize];
        let (depth, block, size, met, width, mut fall) = (depth + 1, block.address, block.size, 1, 0, Fall::default());
        fall.add(looked.number, 1, size);
        self.by_block.insert(block, id);
        let Looked { number, address, references, .. } = looked;
        self.tops.push(Top { above, depth, of_modules, block, address, number, references, met, width, fall });
        queue.push_back(id);
    }

    fn open_node(&mut self, id: u32, queue: &mut VecDeque<u32>) -> Result<(), Cancelled> {
        let Top { block, number, depth, above, of_modules, .. } = self.tops[id as usize];
        self.turn = id;
        let Some(buffers) = self.open(block)? else { return Ok(()) };
        let kind_above = self.tops[above as usize].number;
        let is_class = kind_above != NOBODY && self.drawer.flags(kind_above) & TYPE != 0;
        let is_namespace = is_class || of_modules && depth <= DEPTH_OF_MODULES;
        let (led, tables) = (std::mem::take(&mut self.drawer.rows.blocks), std::mem::take(&mut self.tables));
        let width = led.len() as u64 + tables.iter().map(|table| table.count).sum::<u64>();
        let top = &mut self.tops[id as usize];
        top.fall.add(number, 0, buffers);
        if width > if is_namespace { WIDEST_NAMESPACE } else { WIDEST } {
            top.width = width;
            top.fall.work.extend(led.into_iter().map(Work::Led));
            top.fall.work.extend(tables.into_iter().map(Work::Table));
            return Ok(());
        }
        led.into_iter().for_each(|block| self.meet(id, block, queue));
        for table in tables {
            let mut table = Some(table);
            while let Some(part) = table.take() {
                let (words, rest) = self.words(&part);
                table = rest;
                for word in words {
                    let block = self.heaps.block_at(word).map(|block| block.address);
                    block.into_iter().for_each(|block| self.meet(id, block, queue));
                }
            }
        }
        self.control.advance(0)
    }

    /// The words of the next entries of a table, and what is left of it.
    fn words(&mut self, table: &Table) -> (Vec<u64>, Option<Table>) {
        let count = table.count.min(ENTRIES);
        let mut bytes = vec![0; (count * table.step) as usize];
        let got = self.heaps.space.fill_words(table.at, &mut bytes);
        let mut words = Vec::with_capacity((count * table.words) as usize);
        for entry in bytes[..got].chunks_exact(table.step as usize) {
            words.extend((0..table.words).map(|word| u64_at(entry, (table.first + word * 8) as usize)));
        }
        let rest = Table { at: table.at + count * table.step, count: table.count - count, ..*table };
        (words, (rest.count > 0).then_some(rest))
    }

    /// Reads an object: the blocks that its references lead to are in the drawer's rows, the tables of references that it
    /// owns in `tables`. Returns the bytes of its buffers, which are taken.
    fn open(&mut self, address: u64) -> Result<Option<u64>, Cancelled> {
        self.tables.clear();
        self.drawer.rows.blocks.clear();
        let Some(block) = self.heaps.block_at(address) else { return Ok(None) };
        let mut head = std::mem::take(&mut self.head);
        head.resize(block.end.saturating_sub(block.address).min(HEAD) as usize, 0);
        let got = self.heaps.space.fill(block.address, &mut head);
        head.truncate(got);
        self.looked += OPENED;
        let Some(looked) = self.drawer.look(&block, &head) else { return Ok(None) };
        self.drawer.follow(&looked, &block, &head);
        let buffers = if looked.has_claims { self.buffers(&block, &head)? } else { 0 };
        self.head = head;
        Ok(Some(buffers))
    }

    /// Takes what an object says that it owns.
    fn buffers(&mut self, owner: &Block, head: &[u8]) -> Result<u64, Cancelled> {
        self.marker.claimed.clear();
        self.marker.owned_by(owner, head);
        self.marker.follow_deques(self.control)?;
        let claimed = std::mem::take(&mut self.marker.claimed);
        let (mut bytes, mut owned) = (0, Vec::with_capacity(claimed.len()));
        for claim in claimed {
            let Some(block) = self.heaps.block_at(claim.pointer).filter(|block| block.address != owner.address) else {
                continue;
            };
            // A pointer into the middle of a block may be meant for another's.
            if claim.whole && !self.layout.begins_at(block.address, claim.pointer) {
                continue;
            }
            owned.push(block.address);
            // Of some blocks the object does not say whether they are its own.
            let is_own = !claim.whole || claim.mark >> 28 == shapes::HEADED;
            if !is_own || !self.take(&block) {
                continue;
            }
            bytes += block.size;
            if !self.heaps.is_closed(block.place) {
                self.contents(&block, claim.pointer, claim.mark);
            }
        }
        owned.sort_unstable();
        self.drawer.rows.blocks.retain(|block| owned.binary_search(block).is_err());
        Ok(bytes)
    }

    /// The references in a buffer.
    fn contents(&mut self, block: &Block, pointer: u64, mark: u32) {
        if let Some(table) = self.drawer.table_in(mark, pointer, block.end) {
            self.tables.push(table);
            return;
        }
        let mut head = vec![0; block.end.saturating_sub(block.address).min(HEAD) as usize];
        let got = self.heaps.space.fill(block.address, &mut head);
        head.truncate(got);
        let inside = (pointer.wrapping_sub(block.address).wrapping_add(7) & !7).min(shapes::MOST) as u32;
        let mark = if mark >> 28 == shapes::PREFIXED { mark | inside } else { mark };
        self.drawer.follow_buffer(mark, block, &head);
    }

    /// Follows all nodes that were not opened, in turn, those with most references first.
    fn fall(&mut self, most: u64) -> Result<bool, Cancelled> {
        let has_work = |id: &usize| !self.tops[*id].fall.work.is_empty();
        let mut left: Vec<usize> = (0..self.tops.len()).filter(has_work).collect();
        left.sort_by_key(|id| Reverse(self.tops[*id].width));
        let mut turn = TURN;
        while !left.is_empty() && self.looked < most {
            for id in &left {
                let until = most.min(self.looked + turn);
                let mut fall = std::mem::take(&mut self.tops[*id].fall);
                self.turn = *id as u32;
                let found = self.run(&mut fall, until);
                self.tops[*id].fall = fall;
                found?;
            }
            left.retain(|id| !self.tops[*id].fall.work.is_empty());
            turn *= 2;
        }
        Ok(left.is_empty())
    }

    fn run(&mut self, fall: &mut Fall, until: u64) -> Result<(), Cancelled> {
        while self.looked < until {
            let Some(work) = fall.work.pop() else { break };
            match work {
                Work::Led(block) => self.led(fall, block),
                Work::Table(table) => {
                    let (words, rest) = self.words(&table);
                    self.looked += 1 + words.len() as u64 / WORDS;
                    fall.work.extend(rest.map(Work::Table));
                    words.into_iter().for_each(|word| self.led(fall, word));
                    self.control.advance(0)?;
                }
                Work::Object(block) => {
                    let Some(buffers) = self.open(block)? else { continue };
                    if buffers > 0 {
                        let number = self.heaps.block_at(block).and_then(|block| self.look(&block));
                        number.into_iter().for_each(|looked| fall.add(looked.number, 0, buffers));
                    }
                    fall.work.extend(self.tables.drain(..).map(Work::Table));
                    let led = std::mem::take(&mut self.drawer.rows.blocks);
                    led.iter().for_each(|block| self.led(fall, *block));
                    self.drawer.rows.blocks = led;
                }
            }
        }
        if fall.work.is_empty() {
            self.waiting -= fall.waiting.len();
            fall.waiting = ByAddress::default();
        }
        Ok(())
    }

    /// Takes a reference of what goes: the object that it leads to goes too where it is the last one.
    #[inline(always)]
    fn led(&mut self, fall: &mut Fall, pointer: u64) {
        let Some(block) = self.heaps.block_at(pointer).filter(|block| !self.is_taken(block)) else { return };
        let Some(looked) = self.look(&block) else { return };
        if looked.references != 1 {
            match fall.waiting.get_mut(&block.address) {
                Some(left) if *left > 1 => {
                    *left -= 1;
                    return;
                }
                Some(_) => drop(fall.waiting.remove(&block.address)),
                None => {
                    let is_counted = looked.references > 1 && looked.references < u64::from(u32::MAX >> 2);
                    if is_counted && self.waiting < MOST_WAITING {
                        self.waiting += 1;
                        fall.waiting.insert(block.address, looked.references - 1);
                    }
                    return;
                }
            }
            self.waiting -= 1;
        }
        self.take(&block);
        fall.add(looked.number, 1, block.size);
        if !looked.is_leaf {
            fall.work.push(Work::Object(block.address));
        }
    }

    /// Whether nothing but the node above it leads to a node.
    fn is_only(&self, id: usize) -> bool {
        let top = &self.tops[id];
        top.depth > 1 && top.references == top.met
    }

    /// The nodes with at least so many bytes, with those above them.
    fn rows(&self, minimum: u64) -> Vec<KeptNode> {
        let mut sums: Vec<(u64, u64)> = self.tops.iter().map(|top| (top.fall.bytes, top.fall.count)).collect();
        // A node comes after the one above it.
        for id in (0..self.tops.len()).rev().filter(|id| self.is_only(*id)) {
            let (bytes, count) = sums[id];
            let above = &mut sums[self.tops[id].above as usize];
            *above = (above.0 + bytes, above.1 + count);
        }
        let mut is_wanted = vec![false; self.tops.len()];
        for id in (0..self.tops.len()).rev() {
            is_wanted[id] |= self.tops[id].depth > 0 && sums[id].0 >= minimum;
            if is_wanted[id] {
                is_wanted[self.tops[id].above as usize] = true;
            }
        }
        let (parts, mut large) = (self.parts(&is_wanted), self.large_blocks());
        let wanted = (0..self.tops.len()).filter(|id| is_wanted[*id]);
        let mut large_of = |id: usize| large.remove(&(id as u64)).unwrap_or_default();
        wanted.zip(parts).map(|(id, parts)| self.row(id, sums[id], parts, large_of(id))).collect()
    }

    /// The nodes of which a node is a part, itself first.
    fn wholes(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        let above = |id: &usize| self.is_only(*id).then(|| self.tops[*id].above as usize);
        std::iter::successors(Some(id), above)
    }

    /// Of each node that has large blocks those.
    fn large_blocks(&self) -> ByAddress<Vec<(u64, u64)>> {
        let mut found: ByAddress<Vec<(u64, u64)>> = ByAddress::default();
        for (id, start, end) in &self.large {
            self.wholes(*id as usize).for_each(|id| found.entry(id as u64).or_default().push((*start, *end)));
        }
        found
    }

    fn row(&self, id: usize, (bytes, count): (u64, u64), parts: Vec<KeptPart>, large: Vec<(u64, u64)>) -> KeptNode {
        let Top { above, address, number, references, met, .. } = self.tops[id];
        let type_address = if number == NOBODY { 0 } else { self.drawer.kind(number) };
        KeptNode { id: id as u32, above, address, type_address, bytes, count, references, met, parts, large }
    }

    /// Of each wanted node the types that have its bytes, most first.
    fn parts(&self, is_wanted: &[bool]) -> Vec<Vec<KeptPart>> {
        let mut found: Vec<ByAddress<(u64, u64)>> = self.tops.iter().map(|_| ByAddress::default()).collect();
        for id in 0..self.tops.len() {
            for at in self.wholes(id).filter(|at| is_wanted[*at]) {
                for (number, count, bytes) in &self.tops[id].fall.sums {
                    let sum = found[at].entry(u64::from(*number)).or_default();
                    *sum = (sum.0 + count, sum.1 + bytes);
                }
            }
        }
        let one = |(number, (count, bytes)): (u64, (u64, u64))| KeptPart {
            type_address: self.drawer.kind(number as u32),
            count,
            bytes,
        };
        let sorted = |sums: ByAddress<(u64, u64)>| {
            let mut parts: Vec<KeptPart> = sums.into_iter().map(one).collect();
            parts.sort_unstable_by_key(|part| (Reverse(part.bytes), part.type_address));
            parts
        };
        let wanted = found.into_iter().enumerate().filter(|(id, _)| is_wanted[*id]);
        wanted.map(|(_, sums)| sorted(sums)).collect()
    }
}
