//! Find how many bytes an object keeps alive, as far as reference counts prove it, without building the whole graph.
//!
//! A breadth-first search from the roots turns the objects that an answer may name into nodes. It opens namespaces,
//! instances and small containers: the objects to which they refer become nodes too. Then each node that was not opened
//! is examined as if it were deleted. An object below the node would be freed with it if the search finds, below the
//! node, as many references to the object as its reference count states. Then nothing else can hold the object, even in
//! memory that was not read. If a node dominates a node below it, and all references to that lower node were found, it
//! also keeps everything that the lower node keeps.

use super::csr::{joint, Edges};
use super::dominators::Dominators;
use super::drawing::{root_phases, Root};
use super::edges::{Drawer, ExaminedObject, ReferenceTable, Registry, Sink, Source, EXACT};
use super::ids::{Blocks, FoundNode, Ids};
use super::marks::{most_deque_blocks, Marker};
use super::shapes::{self, GraphLayout};
use super::tree::{Rules, Tree, BY_FRAMES, BY_MODULES, NOBODY};
use crate::allocators::block::Block;
use crate::allocators::heaps::{Heaps, SharedHeaps};
use crate::bits::Bits;
use crate::by_address::ByAddress;
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::{Cancellation, Error, Result};
use gdbheap_access::memory::own::thread_time;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::Mutex;
use std::time::Duration;

/// The largest number of nodes that are reached from modules.
const MOST_OF_MODULES: usize = 96 << 10;
/// The largest number of all nodes.
const MOST_NODES: usize = 128 << 10;
/// The largest number of items of a container that is opened.
const WIDEST: u64 = 100;
/// The largest number of items of a namespace that is opened.
const WIDEST_NAMESPACE: u64 = 64 << 10;
/// The number of references on the way from a root to the dict of a module.
const DEPTH_OF_MODULES: u32 = 3;
/// Objects whose chain from a root has this many references, or more, are not opened.
const DEEPEST: u32 = 12;
/// The smallest size in bytes of an object that refers to nothing, if it is to become a node.
const LEAF_BYTES: u64 = 64 << 10;
/// The largest number of objects, for all nodes together, to which the search has found some, but not all, references.
const MOST_WAITING: usize = 4 << 20;
/// The largest number of objects in a group that is examined for references from outside the group.
const MOST_TOGETHER: usize = 1 << 20;
/// The largest reference count of an object that can be freed. Objects with larger counts are immortal.
const MOST_REFERENCES: u64 = 1 << 30;
/// The largest number of blocks that are examined for one node in its first turn. Each further turn allows twice as
/// many.
const TURN: u64 = 64 << 10;
/// The first turn of a node costs at most the search's limit divided by TURNS.
const TURNS: u64 = 64;
const ENTRIES: u64 = 1 << 10;
const HEAD: u64 = 4 << 10;
const SHORT_HEAD: u64 = 128;
/// If two objects are closer to each other than this number of bytes, the search expects more objects to follow. It
/// then reads AHEAD bytes at once.
const SOON: u64 = 1 << 10;
const AHEAD: usize = 8 << 10;
/// The cost of examining a block that was not read ahead. Examining a block that was read ahead costs 1.
const ELSEWHERE: u64 = 3;
/// The cost of opening an object.
const OPENED: u64 = 8;
/// The number of words of a table whose total cost is 1.
const WORDS: u64 = 8;
/// The cost of the search from one reading of the clock to the next.
const UNTIMED: u64 = 16 << 10;
/// The smallest size in bytes of the blocks that are returned one by one.
const LARGE: u64 = 1 << 20;
/// A bit of tp_flags: the type is a subclass of type.
const TYPE: u64 = 1 << 31;

/// The objects of one type, together with their buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptPart {
    pub type_address: u64,
    pub count: u64,
    pub bytes: u64,
}

/// A node that keeps at least the requested minimum of bytes, or that is above such a node.
#[derive(Clone, Debug)]
pub struct KeptNode {
    /// The index of the node among all nodes. The roots have the first indices.
    pub id: u32,
    /// The index of the node or root from which this node was reached first. For a root, its own index.
    pub above: u32,
    /// The address of the object; 0 for a root.
    pub address: u64,
    pub type_address: u64,
    /// The bytes that are proven to be freed with the node, and the number of the blocks that contain them.
    pub bytes: u64,
    pub count: u64,
    /// The index of the node with which this node would be freed; None for a root, or if there is no proof.
    pub holder: Option<u32>,
    /// The reference count of the object, without one reference from the node above it, and without the references from
    /// objects that it keeps itself.
    pub others: u64,
    /// The objects that the node keeps, by type. The type with the most bytes comes first.
    pub parts: Vec<KeptPart>,
    /// The blocks of at least 1 MiB that the node keeps, as [start, end).
    pub large: Vec<(u64, u64)>,
}

/// The result of a search. `looked`: the cost of the search, in examined blocks. `is_done`: false if the search stopped
/// at a limit, so that it may have found too little.
#[derive(Clone, Debug, Default)]
pub struct KeptNodes {
    pub nodes: Vec<KeptNode>,
    pub looked: u64,
    pub is_done: bool,
}

/// The references that one object contains, as the addresses of the blocks to which they point.
#[derive(Default)]
struct ObjectReferences {
    blocks: Vec<u64>,
}

impl Sink for ObjectReferences {
    fn find(&self, blocks: &Blocks<'_>, pointer: u64) -> Option<FoundNode> {
        blocks.heaps.block_at(pointer).map(|block| FoundNode { id: 0, address: block.address })
    }

    fn lead(&mut self, found: FoundNode, strength: u32) {
        if strength == EXACT {
            self.blocks.push(found.address);
        }
    }

    fn miss(&mut self, _bytes: u64) {}

    fn counted(&mut self, _count: u8) {}
}

/// An object or a reference that still has to be examined for a node.
enum Work {
    /// The block of an object that would be freed with the node.
    Object(u64),
    /// A reference in an object that would be freed with the node.
    Led(u64),
    Table(ReferenceTable),
}

/// The memory that would be freed if a node were deleted, as far as it was examined.
#[derive(Default)]
struct Deletion {
    work: Vec<Work>,
    /// For each object to which the search has found some references: how many more references there are, according to
    /// its reference count.
    waiting: ByAddress<u64>,
    /// For each other node to which the search has found references, by the node's index: the number of these
    /// references.
    tops: ByAddress<u64>,
    /// For each type: the number of the type, and the count and the bytes of its objects.
    sums: Vec<(u32, u64, u64)>,
    bytes: u64,
    count: u64,
}

impl Deletion {
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

/// Objects that refer to one another and may be freed together.
#[derive(Default)]
struct Group {
    members: Vec<Member>,
    by_block: ByAddress<u32>,
}

struct Member {
    block: u64,
    /// The number of references to the member that the search has not found.
    left: u64,
    number: u32,
    buffers: Vec<u64>,
    buffer_bytes: u64,
    /// The members of the group to which this member refers.
    led: Vec<u32>,
    /// The nodes to which this member refers.
    tops: Vec<u32>,
}

impl Group {
    fn add(&mut self, block: u64, left: u64) -> u32 {
        let place = self.members.len() as u32;
        self.by_block.insert(block, place);
        let (number, buffers, buffer_bytes, led, tops) = Default::default();
        self.members.push(Member { block, left, number, buffers, buffer_bytes, led, tops });
        place
    }

    /// Return, for each member, whether something outside the group holds it. A member is held if some references to it
    /// were not met, or if another held member refers to it.
    fn held(&self) -> Vec<bool> {
        let mut is_held: Vec<bool> = self.members.iter().map(|member| member.left > 0).collect();
        let mut open: Vec<usize> = (0..self.members.len()).filter(|place| is_held[*place]).collect();
        while let Some(place) = open.pop() {
            for target in self.members[place].led.iter().map(|target| *target as usize) {
                if !std::mem::replace(&mut is_held[target], true) {
                    open.push(target);
                }
            }
        }
        is_held
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
    /// The number of references in the object itself, if they were too many to open it.
    width: u64,
    fall: Deletion,
}

/// Limits of the search: the number of blocks to examine, and the processor time in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub blocks: u64,
    pub seconds: f64,
}

/// Find what the objects that modules and frames reach keep alive, as far as reference counts prove it. Return the
/// nodes that keep at least `minimum` bytes, and the nodes above them. Fails if there are too many blocks, or if memory
/// does not suffice for a bit for each block.
#[allow(clippy::too_many_arguments)]
pub fn find_kept(
    watcher: &dyn Watcher,
    shared: &SharedHeaps,
    layout: &TypeLayout,
    graph: &GraphLayout,
    roots: &[Root],
    bounds: Bounds,
    minimum: u64,
) -> Result<KeptNodes> {
    let heaps = shared.lend();
    if !heaps.stores.iter().all(|store| Bits::fits(store.block_numbers())) {
        return Err(Error::Memory("not enough memory for a bit for each block"));
    }
    let ids = Ids::new(heaps, &[], Vec::new(), 0).ok_or(Error::Overflow("too many blocks"))?;
    let registry = Mutex::new(Registry::default());
    let blocks = Blocks { heaps, ids: &ids };
    let source = Source {
        space: heaps.space,
        blocks,
        types: layout,
        layout: graph,
        marks: &[],
        registry: &registry,
        linked: &[],
        left_over: &[],
        vacant: &[],
        holders: &[],
    };
    heaps.space.task(watcher, None).alone(|control| {
        let deques = AtomicU64::new(most_deque_blocks(heaps));
        let mut keeper = Keeper::new(source, &deques, control, bounds);
        keeper.reach(roots)?;
        let is_done = keeper.fall()?;
        Ok(KeptNodes { nodes: keeper.rows(roots, minimum)?, looked: keeper.looked, is_done })
    })
}

/// Bytes that were read ahead because one object lies shortly after another.
#[derive(Default)]
struct ReadAhead {
    start: u64,
    bytes: Vec<u8>,
    last: u64,
}

impl ReadAhead {
    /// Return `size` bytes at an address, if they were read ahead or if it is worthwhile to read ahead from there; else
    /// None.
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
    drawer: Drawer<'a, ObjectReferences>,
    marker: Marker<'a>,
    /// For each store, the blocks that are nodes or would be freed with a node.
    taken: Vec<Bits>,
    tops: Vec<Top>,
    by_block: ByAddress<u32>,
    waiting: usize,
    looked: u64,
    /// The limit of the cost: the search ends there.
    most: u64,
    /// The cost at which the clock is read next.
    next_look: u64,
    /// The processor time at which the search ends.
    until: Duration,
    near: ReadAhead,
    /// The index of the node that is being examined.
    turn: u32,
    /// The large blocks that were taken, by address, each as (index of the node, end of the block).
    large: ByAddress<(u32, u64)>,
    head: Vec<u8>,
    tables: Vec<ReferenceTable>,
    /// The buffers of the object that was opened last.
    buffers: Vec<u64>,
    /// The immediate dominator of each node, once all dominators are found.
    holders: Vec<u32>,
}

impl<'a> Keeper<'a> {
    fn new(source: Source<'a>, deques: &'a AtomicU64, control: &'a Control<'a>, bounds: Bounds) -> Keeper<'a> {
        let heaps = source.blocks.heaps;
        let marker = Marker::new(Types::new(heaps, source.types), source.layout.keys.as_ref(), &[], deques);
        let taken = heaps.stores.iter().map(|store| Bits::new(store.block_numbers())).collect();
        let drawer = Drawer::new(source);
        let ((tops, by_block, waiting, looked, near, turn, large, head, tables, buffers, holders), layout) =
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
            most: bounds.blocks,
            next_look: 0,
            until: thread_time() + Duration::try_from_secs_f64(bounds.seconds).unwrap_or(Duration::MAX / 2),
            near,
            turn,
            large,
            head,
            tables,
            buffers,
            holders,
        }
    }

    /// Read the clock from time to time, and end the search if its time is over.
    #[inline(always)]
    fn hurry(&mut self) -> Result<(), Cancellation> {
        if self.looked >= self.next_look {
            self.next_look = self.looked + UNTIMED;
            self.control.advance(0)?;
            if thread_time() >= self.until {
                self.most = self.looked;
            }
        }
        Ok(())
    }

    /// Mark a block as a node, or as freed with a node. Return false if the block was marked already.
    #[inline(always)]
    fn take(&mut self, block: &Block) -> bool {
        let (bits, number) = (&mut self.taken[block.place.store as usize], block.place.number);
        let is_new = !bits.get(number);
        bits.set(number);
        if block.size >= LARGE && is_new {
            self.large.insert(block.address, (self.turn, block.end));
        }
        is_new
    }

    fn is_taken(&self, block: &Block) -> bool {
        self.taken[block.place.store as usize].get(block.place.number)
    }

    /// Return the living object in a block, with its type and reference count; None if the block contains no such
    /// object.
    #[inline(always)]
    fn look(&mut self, block: &Block) -> Option<ExaminedObject> {
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

    /// Make nodes of the objects that the roots reach. The nearest objects come first, and objects of modules before
    /// those of frames.
    fn reach(&mut self, roots: &[Root]) -> Result<(), Cancellation> {
        for (root, above) in roots.iter().zip(0..) {
            let (of_modules, number, fall) = (root.phase as u8 == BY_MODULES, NOBODY, Deletion::default());
            let (depth, block, address, references, width) = Default::default();
            self.tops.push(Top { above, depth, of_modules, block, address, number, references, width, fall });
        }
        for (phase, nodes, part) in [(BY_MODULES, MOST_OF_MODULES, 4), (BY_FRAMES, MOST_NODES, 2)] {
            let mut queue = VecDeque::new();
            for (root, id) in roots.iter().zip(0..).filter(|(root, _)| root.phase as u8 == phase) {
                for pointer in &root.pointers {
                    let block = self.heaps.block_at(*pointer).map(|block| block.address);
                    block.into_iter().for_each(|block| self.meet(id, block, &mut queue));
                }
            }
            while let Some(id) = queue.pop_front() {
                if self.tops.len() >= nodes
                    || self.tops[id as usize].depth >= DEEPEST
                    || self.looked >= self.most / part
                {
                    let top = &mut self.tops[id as usize];
                    top.fall.work.push(Work::Object(top.block));
                } else {
                    self.open_node(id, &mut queue)?;
                }
            }
        }
        Ok(())
    }

    /// Add a reference from the node `above` to the block at `address`. An object that was not met before becomes a
    /// node, unless it is small and refers to nothing.
    fn meet(&mut self, above: u32, address: u64, queue: &mut VecDeque<u32>) {
        if let Some(known) = self.by_block.get(&address) {
            *self.tops[above as usize].fall.tops.entry(u64::from(*known)).or_default() += 1;
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
        let (depth, block, size, width, mut fall) = (depth + 1, block.address, block.size, 0, Deletion::default());
        fall.add(looked.number, 1, size);
        self.by_block.insert(block, id);
        self.tops[above as usize].fall.tops.insert(id.into(), 1);
        let ExaminedObject { number, address, references, .. } = looked;
        self.tops.push(Top { above, depth, of_modules, block, address, number, references, width, fall });
        queue.push_back(id);
    }

    fn open_node(&mut self, id: u32, queue: &mut VecDeque<u32>) -> Result<(), Cancellation> {
        let Top { block, number, depth, above, of_modules, .. } = self.tops[id as usize];
        self.turn = id;
        self.hurry()?;
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

    /// Return the references in the first entries of a table, and a table of the remaining entries; None if no entries
    /// remain.
    fn words(&mut self, table: &ReferenceTable) -> (Vec<u64>, Option<ReferenceTable>) {
        let count = table.count.min(ENTRIES);
        let mut bytes = vec![0; (count * table.step) as usize];
        let got = self.heaps.space.fill_words(table.at, &mut bytes);
        let mut words = Vec::with_capacity((count * table.words) as usize);
        for entry in bytes[..got].chunks_exact(table.step as usize) {
            words.extend((0..table.words).map(|word| u64_at(entry, (table.first + word * 8) as usize)));
        }
        let rest = ReferenceTable { at: table.at + count * table.step, count: table.count - count, ..*table };
        (words, (rest.count > 0).then_some(rest))
    }

    /// Read the object at an address, and mark its buffers as taken. Return the size of the buffers in bytes; None if
    /// no object is there. Afterwards, `drawer.rows` has the blocks to which the object refers, and `tables` its tables
    /// of references.
    fn open(&mut self, address: u64) -> Result<Option<u64>, Cancellation> {
        self.tables.clear();
        self.buffers.clear();
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

    /// Mark the buffers that belong to an object by its fields. Return the sum of the sizes of their blocks.
    fn buffers(&mut self, owner: &Block, head: &[u8]) -> Result<u64, Cancellation> {
        self.marker.claimed.clear();
        self.marker.owned_by(owner, head);
        self.marker.follow_deques(self.control)?;
        let claimed = std::mem::take(&mut self.marker.claimed);
        let (mut bytes, mut owned) = (0, Vec::with_capacity(claimed.len()));
        for claim in claimed {
            let Some(block) = self.heaps.block_at(claim.pointer).filter(|block| block.address != owner.address) else {
                continue;
            };
            // A pointer to the middle of a block may be a reference to a block of another object.
            if claim.whole && !self.layout.begins_at(block.address, claim.pointer) {
                continue;
            }
            owned.push(block.address);
            // Some objects do not say whether the block to which they point is their own.
            let is_own = !claim.whole || claim.mark >> 28 == shapes::HEADED;
            if !is_own || !self.take(&block) {
                continue;
            }
            bytes += block.size;
            self.buffers.push(block.address);
            if !self.heaps.is_closed(block.place) {
                self.contents(&block, claim.pointer, claim.mark);
            }
        }
        owned.sort_unstable();
        self.drawer.rows.blocks.retain(|block| owned.binary_search(block).is_err());
        Ok(bytes)
    }

    /// Read the references in a buffer into `drawer.rows`, or into `tables` if the buffer is a table. `mark` says what
    /// the buffer contains (shapes.rs).
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

    /// Examine all nodes that were not opened, a part of each node in every turn. The nodes with the most references
    /// come first. Return whether nothing is left to examine.
    fn fall(&mut self) -> Result<bool, Cancellation> {
        let has_work = |id: &usize| !self.tops[*id].fall.work.is_empty();
        let mut left: Vec<usize> = (0..self.tops.len()).filter(has_work).collect();
        left.sort_by_key(|id| (Reverse(self.tops[*id].width), self.tops[*id].depth));
        let mut turn = TURN.min(self.most / TURNS);
        while !left.is_empty() && self.looked < self.most {
            for id in &left {
                let until = self.looked + turn;
                let mut fall = std::mem::take(&mut self.tops[*id].fall);
                self.turn = *id as u32;
                let found = self.run(&mut fall, until);
                self.tops[*id].fall = fall;
                found?;
            }
            left.retain(|id| !self.tops[*id].fall.work.is_empty());
            turn *= 2;
        }
        Ok(left.is_empty() && self.fall_together()?)
    }

    fn run(&mut self, fall: &mut Deletion, until: u64) -> Result<(), Cancellation> {
        while self.looked < until.min(self.most) {
            self.hurry()?;
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
        Ok(())
    }

    /// Add to each node the objects that refer to one another and to which nothing else refers: these objects would be
    /// freed with the node. Nodes for which the most objects wait for their last reference come first. Return whether
    /// nothing is left to examine.
    fn fall_together(&mut self) -> Result<bool, Cancellation> {
        let mut left: Vec<usize> = (0..self.tops.len()).filter(|id| !self.tops[*id].fall.waiting.is_empty()).collect();
        left.sort_by_key(|id| Reverse(self.tops[*id].fall.waiting.len()));
        for id in left {
            if self.looked >= self.most {
                return Ok(false);
            }
            self.turn = id as u32;
            let waiting = std::mem::take(&mut self.tops[id].fall.waiting);
            let Some(group) = self.group(waiting)? else { continue };
            let is_held = group.held();
            for (member, is_held) in group.members.iter().zip(is_held) {
                self.control.advance(0)?;
                match is_held {
                    true => member.buffers.iter().for_each(|buffer| self.leave(*buffer)),
                    false => self.take_member(id, member),
                }
            }
        }
        Ok(true)
    }

    fn take_member(&mut self, id: usize, member: &Member) {
        if let Some(block) = self.heaps.block_at(member.block) {
            self.take(&block);
            self.tops[id].fall.add(member.number, 1, block.size);
            if member.buffer_bytes > 0 {
                self.tops[id].fall.add(member.number, 0, member.buffer_bytes);
            }
            for top in &member.tops {
                *self.tops[id].fall.tops.entry(u64::from(*top)).or_default() += 1;
            }
        }
    }

    /// Return a group of the waiting objects and of all objects that they reach; None if there are too many of them.
    fn group(&mut self, waiting: ByAddress<u64>) -> Result<Option<Group>, Cancellation> {
        let mut group = Group::default();
        let mut waiting: Vec<(u64, u64)> = waiting.into_iter().collect();
        waiting.sort_unstable();
        waiting.into_iter().for_each(|(block, left)| _ = group.add(block, left));
        let mut at = 0;
        while at < group.members.len() {
            self.hurry()?;
            if group.members.len() > MOST_TOGETHER || self.looked >= self.most {
                group.members.iter().flat_map(|member| &member.buffers).for_each(|buffer| self.leave(*buffer));
                return Ok(None);
            }
            self.look_into(&mut group, at)?;
            at += 1;
        }
        Ok(Some(group))
    }

    /// Read the member with the index `at`, and add the objects to which it refers to the group.
    fn look_into(&mut self, group: &mut Group, at: usize) -> Result<(), Cancellation> {
        let address = group.members[at].block;
        let looked = self.heaps.block_at(address).and_then(|block| self.look(&block));
        let (Some(bytes), Some(looked)) = (self.open(address)?, looked) else {
            group.members[at].left += 1;
            return Ok(());
        };
        let mut led = std::mem::take(&mut self.drawer.rows.blocks);
        for table in std::mem::take(&mut self.tables) {
            let mut table = Some(table);
            while let Some(part) = table.take() {
                let (words, rest) = self.words(&part);
                table = rest;
                let blocks = words.into_iter().filter_map(|word| self.heaps.block_at(word));
                led.extend(blocks.map(|block| block.address));
                self.control.advance(0)?;
            }
        }
        let member = &mut group.members[at];
        (member.number, member.buffer_bytes) = (looked.number, bytes);
        member.buffers = std::mem::take(&mut self.buffers);
        for block in led {
            if let Some(top) = self.by_block.get(&block) {
                group.members[at].tops.push(*top);
                continue;
            }
            let target = match (group.by_block.get(&block).copied(), self.member_at(block)) {
                (Some(target), _) => {
                    let left = &mut group.members[target as usize].left;
                    *left = left.saturating_sub(1);
                    target
                }
                (None, Some(references)) => group.add(block, references - 1),
                (None, None) => continue,
            };
            group.members[at].led.push(target);
        }
        Ok(())
    }

    /// Return the reference count of an object that may join a group; None if the object may not.
    fn member_at(&mut self, address: u64) -> Option<u64> {
        let block = self.heaps.block_at(address).filter(|block| !self.is_taken(block))?;
        self.look(&block).map(|looked| looked.references).filter(|references| (1..MOST_REFERENCES).contains(references))
    }

    /// Remove the mark of a block, as if the block had not been taken.
    fn leave(&mut self, address: u64) {
        if let Some(block) = self.heaps.block_at(address) {
            self.taken[block.place.store as usize].clear(block.place.number);
            self.large.remove(&address);
        }
    }

    /// Follow a reference of an object that would be freed. If this is the last reference to its target, the target
    /// would be freed too.
    #[inline(always)]
    fn led(&mut self, fall: &mut Deletion, pointer: u64) {
        let Some(block) = self.heaps.block_at(pointer) else { return };
        if self.is_taken(&block) {
            if let Some(top) = self.by_block.get(&block.address) {
                *fall.tops.entry(u64::from(*top)).or_default() += 1;
            }
            return;
        }
        let Some(looked) = self.look(&block) else { return };
        if looked.references != 1 {
            match fall.waiting.get_mut(&block.address) {
                Some(left) if *left > 1 => {
                    *left -= 1;
                    return;
                }
                Some(_) => drop(fall.waiting.remove(&block.address)),
                None => {
                    let is_counted = (2..MOST_REFERENCES).contains(&looked.references);
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

    /// Compute which nodes dominate other nodes. If the search has not found all references to a node, anything may
    /// hold the node.
    fn dominators(&self, roots: &[Root]) -> Result<Dominators, Cancellation> {
        let targets = |top: &Top| {
            let mut found: Vec<u64> = top.fall.tops.keys().copied().collect();
            found.sort_unstable();
            found.into_iter().map(|target| joint(target as u32, EXACT))
        };
        let edges = Edges::of_rows(self.tops.iter().map(targets));
        let phases = root_phases(roots, 0);
        let tree = Tree::grow(&edges, &phases, Rules::Objects, &[], self.control)?;
        let mut met = vec![0; self.tops.len()];
        self.tops.iter().flat_map(|top| &top.fall.tops).for_each(|(target, count)| met[*target as usize] += count);
        let is_doubtful = |id: &u32| self.tops[*id as usize].references > met[*id as usize];
        let doubtful = (0..self.tops.len() as u32).filter(is_doubtful);
        let starts: Vec<u32> = phases.concat().into_iter().chain(doubtful).collect();
        let sizes = || self.tops.iter().map(|top| top.fall.bytes).collect::<Vec<u64>>();
        Dominators::find(&edges, &tree, &starts, sizes, self.control)
    }

    /// Return the nodes that keep at least `minimum` bytes, and the nodes above them.
    fn rows(&mut self, roots: &[Root], minimum: u64) -> Result<Vec<KeptNode>, Cancellation> {
        let found = self.dominators(roots)?;
        self.holders = found.above;
        let mut sums: Vec<(u64, u64)> = found.retained.into_iter().zip(self.tops.iter().map(|_| 0)).collect();
        for id in 0..self.tops.len() {
            let count = self.tops[id].fall.count;
            self.wholes(id).for_each(|whole| sums[whole].1 += count);
        }
        let mut is_wanted = vec![false; self.tops.len()];
        for id in (0..self.tops.len()).rev() {
            is_wanted[id] |= self.tops[id].depth > 0 && sums[id].0 >= minimum;
            if is_wanted[id] {
                is_wanted[self.tops[id].above as usize] = true;
            }
        }
        let (parts, mut large, inside) = (self.parts(&is_wanted), self.large_blocks(), self.inside());
        let wanted = (0..self.tops.len()).filter(|id| is_wanted[*id]);
        let mut large_of = |id: usize| large.remove(&(id as u64)).unwrap_or_default();
        let row = |(id, parts)| KeptNode { parts, large: large_of(id), ..self.row(id, sums[id], inside[id]) };
        Ok(wanted.zip(parts).map(row).collect())
    }

    /// Return, for each node, the number of references to it from objects that the node itself keeps.
    fn inside(&self) -> Vec<u64> {
        let mut found = vec![0; self.tops.len()];
        for (from, top) in self.tops.iter().enumerate() {
            for (target, count) in &top.fall.tops {
                let is_inside = self.wholes(from).any(|whole| whole as u64 == *target);
                found[*target as usize] += if is_inside { *count } else { 0 };
            }
        }
        found
    }

    /// Return a node and all nodes with which it would be freed. The node itself comes first, the outermost node last.
    fn wholes(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(id), |id| self.holder(*id))
    }

    fn holder(&self, id: usize) -> Option<usize> {
        let above = self.holders[id];
        (above != NOBODY && self.tops[above as usize].depth > 0).then_some(above as usize)
    }

    /// Return the large blocks that each node keeps, by the node's index. Nodes that keep no large blocks are left out.
    fn large_blocks(&self) -> ByAddress<Vec<(u64, u64)>> {
        let mut found: ByAddress<Vec<(u64, u64)>> = ByAddress::default();
        let mut large: Vec<_> = self.large.iter().map(|(start, (id, end))| (*start, *end, *id)).collect();
        large.sort_unstable();
        for (start, end, id) in large {
            self.wholes(id as usize).for_each(|id| found.entry(id as u64).or_default().push((start, end)));
        }
        found
    }

    fn row(&self, id: usize, (bytes, count): (u64, u64), inside: u64) -> KeptNode {
        let Top { above, address, number, references, .. } = self.tops[id];
        let holder = self.holder(id).map(|holder| holder as u32);
        let others = references.saturating_sub(1 + inside);
        let type_address = if number == NOBODY { 0 } else { self.drawer.kind(number) };
        let (id, parts, large) = (id as u32, Vec::new(), Vec::new());
        KeptNode { id, above, address, type_address, bytes, count, holder, others, parts, large }
    }

    /// Return, for each wanted node, the objects that it keeps, by type. The type with the most bytes comes first.
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

#[cfg(test)]
mod tests {
    use super::Group;

    fn held(left: &[u64], led: &[&[u32]]) -> Vec<bool> {
        let mut group = Group::default();
        for (block, left) in (0u64..).zip(left) {
            group.add(block, *left);
        }
        led.iter().zip(&mut group.members).for_each(|(led, member)| member.led = led.to_vec());
        group.held()
    }

    #[test]
    fn what_an_unmet_reference_leads_to_is_held() {
        // Members 0 and 1 refer to one another. Something else refers to member 2, and member 2 refers to member 3.
        assert_eq!(held(&[0, 0, 1, 0], &[&[1], &[0], &[3], &[]]), [false, false, true, true]);
        assert_eq!(held(&[0, 1], &[&[1], &[0]]), [true, true]);
    }
}
