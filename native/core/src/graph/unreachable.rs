//! Find unreachable blocks, and the reason why each of them is not free: cycles, lost references, lost blocks, and
//! blocks to which only weak words point.

use super::components::components;
use super::csr::{split, Edges};
use super::edges::{is_object, BUFFER, DOUBTFUL, EXACT, IDLE, KIND, LIKELY};
use super::garbage::{self, Garbage};
use super::ids::Node;
use super::lost::among;
use super::queries::Graph;
use super::tree::{Tree, BY_LAST_WORDS, BY_PADDING, NOBODY, NOT_REACHED};
use crate::allocators::walk::HEAD_BYTES;
use crate::python::counts::references;
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::bytes::word_at;
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::work::{Control, Watcher};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

pub(crate) const CYCLES: &str = "cycles";
pub(crate) const LOST_REFERENCES: &str = "lost_references";
pub(crate) const LOST_BLOCKS: &str = "lost_blocks";
pub(crate) const DOUBTFUL_BLOCKS: &str = "doubtful";

/// An object with this reference count or a larger one is immortal, or its counting is deferred.
const IMMORTAL: u64 = 1 << 31;
/// The largest number of kinds of cycles. All further kinds are combined.
const MAX_CAUSES: usize = 500;
/// The largest number of nodes of one cycle that are stored.
const MAX_LENGTH: usize = 16;
/// The values of `gc_refs` of an object that the collector does not track: -2 in Python 2; -4 up to 3.7, where the
/// field is shifted past a flag.
const UNTRACKED: [i64; 2] = [-2, -4];
const OLD_GC_HEAD: u64 = 32;
const FREE_THREADED_BITS: usize = 11;
const TRACKED: u8 = 1;
const FROZEN: u8 = 1 << 3;

/// Facts that decide which cycles the collector frees, and which object of a cycle comes first in its name.
#[derive(Clone, Debug, Default)]
pub struct CollectorFacts {
    /// The types of frames and of other objects that run code.
    pub frames: Vec<u64>,
    /// The type of code objects; 0 if there is none.
    pub code: u64,
    /// The types that have a finalizer of their own. The collector does not free cycles of their objects.
    pub finalized: Vec<u64>,
    /// The addresses of the heads that the collector puts before objects, for those objects that gc.freeze() has
    /// excluded from collection.
    pub frozen: Vec<u64>,
}

/// The reason why some blocks are not free.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The group of causes: cycles, lost_references, lost_blocks or doubtful.
    pub group: &'static str,
    /// The kind of cause in its group.
    /// - cycles: `collectable`; `likely` (words of unknown meaning close the cycle); or the reason why the collector
    ///   does not free the cycle: `hidden` (memory that the collector does not examine refers to it), `frozen`,
    ///   `untracked` or `finalizer`.
    /// - lost_blocks: `nothing` (no word points to the blocks) or `circle` (they point to one another).
    /// - lost_references: `reference`.
    /// - doubtful: `weak`.
    pub kind: &'static str,
    /// The number of cycles or, in the other groups, of heads (`LostGroup::is_head`).
    pub count: u64,
    /// For lost references, the type of the objects. For a cycle that the collector does not free, the type of the
    /// object that prevents it. Else 0.
    pub type_address: u64,
    /// Some objects of one cycle, in the order of the cycle.
    pub nodes: Vec<u32>,
    /// The number of all objects of the cycle.
    pub length: u64,
}

/// The blocks of one type and size that have the same cause.
#[derive(Clone, Debug)]
pub struct LostGroup {
    pub cause: u32,
    /// Whether the cause applies to these blocks directly. If not, they are unreachable only because such blocks refer
    /// to them.
    pub is_head: bool,
    /// The type of the blocks; 0 for blocks without an object.
    pub type_address: u64,
    pub size: u64,
    pub count: u64,
    /// The bytes of the blocks themselves, without their buffers.
    pub bytes: u64,
    /// The bytes of the buffers that belong to the blocks.
    pub buffers: u64,
    /// The addresses of some of the blocks.
    pub addresses: Vec<u64>,
}

/// The blocks that no root keeps alive, with the causes.
#[derive(Clone, Debug)]
pub struct Unreachable {
    pub causes: Vec<Cause>,
    pub rows: Vec<LostGroup>,
}

/// The facts from the head of an object: its reference count, whether the collector tracks it, and whether gc.freeze()
/// excluded it from collection.
#[derive(Clone, Copy)]
struct ObjectHead {
    references: u64,
    is_tracked: bool,
    is_frozen: bool,
}

/// A finder of the reasons why nodes are not free. The nodes are those that reference counts prove to be unreachable,
/// and those with only weak evidence that they are alive. They are renumbered: the place of a node is its index in
/// `nodes`.
struct Sorter<'a> {
    graph: &'a Graph,
    tree: &'a Tree,
    /// The first phase of the search that gives only weak evidence that a node is alive.
    weak: u8,
    nodes: Vec<u32>,
    edges: Edges,
    /// For each node, whether it is an object that reference counts prove to be unreachable (garbage.rs), or a buffer
    /// of such an object.
    proven: Vec<bool>,
    /// For each node, whether it is an object with more references than the collector can find.
    hidden: Vec<bool>,
    causes: Vec<Cause>,
    cause_of: Vec<u32>,
    is_head: Vec<bool>,
}

impl Graph {
    /// Return the blocks that nothing keeps alive, and the blocks to which only weak words point, by cause, type and
    /// size. Each row has the addresses of at most `most` blocks.
    pub fn unreachable(&self, watcher: &dyn Watcher, most: usize, facts: &CollectorFacts) -> Result<Unreachable> {
        let tree = self.tree(watcher)?;
        self.alone(watcher, |control| {
            let mut sorter = Sorter::new(self, tree, control)?;
            if let Some(layout) = &self.layout {
                sorter.sort_objects(layout, facts);
            }
            sorter.sort_blocks(facts);
            sorter.sort_weak();
            let rows = sorter.rows(most);
            Ok(Unreachable { causes: sorter.causes, rows })
        })
    }

    /// Read the head of an object; None if the head cannot be read.
    fn head_of(&self, types: &mut Types<'_>, id: u32) -> Option<ObjectHead> {
        let Node::Block { address, size, .. } = self.blocks().node(id) else { return None };
        let mut head = [0; HEAD_BYTES];
        let wanted = head.len().min(size as usize);
        let got = types.space.fill(address, &mut head[..wanted]);
        let head = &head[..got];
        let (number, _) = types.object_in(head, size)?;
        let (kind, layout) = (&types.kinds[number as usize], types.layout);
        let at = layout.outer_hook(head) + kind.pre as usize;
        let has_gc = kind.flags & layout.flag_gc != 0;
        let references = references(layout, head.get(at..)?)?;
        if layout.is_free_threaded() {
            let bits = *head.get(at + FREE_THREADED_BITS)?;
            return Some(ObjectHead {
                references,
                is_tracked: has_gc && bits & TRACKED != 0,
                is_frozen: bits & FROZEN != 0,
            });
        }
        let is_linked = || {
            let start = at.checked_sub(layout.gc_head as usize)?;
            let is_out = layout.gc_head == OLD_GC_HEAD && UNTRACKED.contains(&(word_at(head, start + 16)? as i64));
            Some(word_at(head, start)? != 0 && !is_out)
        };
        Some(ObjectHead { references, is_tracked: has_gc && is_linked().unwrap_or(true), is_frozen: false })
    }
}

impl<'a> Sorter<'a> {
    fn new(graph: &'a Graph, tree: &'a Tree, control: &Control) -> Result<Sorter<'a>, Cancellation> {
        let weak = if graph.layout.is_some() { BY_PADDING } else { BY_LAST_WORDS };
        let mut is_proven = vec![false; graph.ids.first_static as usize];
        if let Some(layout) = &graph.layout {
            let mut types = Types::new(graph.heaps.lend(), layout);
            // If a count cannot be read, it is assumed to be larger than the number of references found.
            let count_of = |id| graph.head_of(&mut types, id).map_or(u64::MAX, |head| head.references);
            let found = garbage::find(&graph.edges, tree, &graph.kinds, graph.ids.first_static, count_of, control)?;
            let Garbage { objects, buffers } = found;
            objects.iter().chain(&buffers).for_each(|node| is_proven[*node as usize] = true);
        }
        let in_question = |node: &u32| {
            is_proven[*node as usize] || tree.phases[*node as usize] >= weak && graph.kinds[*node as usize] & IDLE == 0
        };
        let nodes: Vec<u32> = (0..graph.ids.first_static).filter(in_question).collect();
        let edges = among(&graph.edges, &nodes, true);
        let proven = nodes.iter().map(|node| is_proven[*node as usize]).collect();
        let (cause_of, is_head) = (vec![NOBODY; nodes.len()], vec![false; nodes.len()]);
        let (hidden, causes) = (vec![false; nodes.len()], Vec::new());
        Ok(Sorter { graph, tree, weak, nodes, edges, proven, hidden, causes, cause_of, is_head })
    }

    fn kind(&self, place: u32) -> u32 {
        self.graph.kinds[self.nodes[place as usize] as usize]
    }

    /// Return whether a node is an object. In a graph of blocks no node is an object: there, a kind is that of a
    /// structure.
    fn is_object(&self, place: u32) -> bool {
        self.graph.layout.is_some() && is_object(self.kind(place))
    }

    fn places(&self) -> std::ops::Range<u32> {
        0..self.nodes.len() as u32
    }

    fn phase(&self, place: u32) -> u8 {
        self.tree.phases[self.nodes[place as usize] as usize]
    }

    fn is_free(&self, place: u32) -> bool {
        self.cause_of[place as usize] == NOBODY
    }

    fn cause(&mut self, group: &'static str, kind: &'static str, type_address: u64) -> u32 {
        self.causes.push(Cause { group, kind, count: 0, type_address, nodes: Vec::new(), length: 0 });
        self.causes.len() as u32 - 1
    }

    /// Give the nodes `heads` this cause, and mark them as heads of the cause.
    fn begin(&mut self, cause: u32, heads: &[u32]) {
        for head in heads {
            self.cause_of[*head as usize] = cause;
            self.is_head[*head as usize] = true;
        }
    }

    /// Give each node that is reachable from `starts` the cause of the previous node on the path, if the node has no
    /// cause yet and `may` allows it.
    fn spread(&mut self, starts: &[u32], may: impl Fn(&Self, u32) -> bool) {
        let mut open: VecDeque<u32> = starts.iter().copied().collect();
        while let Some(node) = open.pop_front() {
            let (start, end) = self.edges.row(node);
            for at in start..end {
                let target = split(self.edges.at(at)).0;
                if self.is_free(target) && may(self, target) {
                    self.cause_of[target as usize] = self.cause_of[node as usize];
                    open.push_back(target);
                }
            }
        }
    }

    /// Find the causes of objects: first lost references, then cycles. All nodes that such an object reaches have the
    /// same cause as the object.
    fn sort_objects(&mut self, layout: &TypeLayout, facts: &CollectorFacts) {
        let mut types = Types::new(self.graph.heaps.lend(), layout);
        let read =
            |place: u32| self.is_object(place).then(|| self.graph.head_of(&mut types, self.nodes[place as usize]));
        let heads: Vec<Option<ObjectHead>> = self.places().map(read).map(Option::flatten).collect();
        self.sort_references(&heads);
        self.sort_cycles(&heads, facts);
        self.hidden = self.hidden_from_collector(&heads);
    }

    /// Return, for each node, whether it is an object with more references than the collector finds. The collector asks
    /// the objects that it tracks for their references. These objects report the references in their own buffers, and
    /// may report those in other blocks to which they point. References in blocks farther away are unknown to the
    /// collector.
    fn hidden_from_collector(&self, heads: &[Option<ObjectHead>]) -> Vec<bool> {
        let mut seen = vec![0u64; self.nodes.len()];
        let mut is_asked: Vec<bool> = heads.iter().map(|head| head.is_some_and(|head| head.is_tracked)).collect();
        let mut open: Vec<u32> = self.places().filter(|place| is_asked[*place as usize]).collect();
        while let Some(holder) = open.pop() {
            let known = self.edges.of(holder).iter().map(|edge| split(*edge));
            for target in known.filter(|(_, strength)| *strength <= LIKELY).map(|(target, _)| target) {
                let kind = self.kind(target);
                seen[target as usize] += 1;
                let is_shown = !is_object(kind) && (is_object(self.kind(holder)) || kind & BUFFER != 0);
                if is_shown && !std::mem::replace(&mut is_asked[target as usize], true) {
                    open.push(target);
                }
            }
        }
        let references = |place: usize| heads[place].map_or(0, |head| head.references);
        (0..seen.len()).map(|place| references(place) < IMMORTAL && references(place) > seen[place]).collect()
    }

    /// Find lost references: objects whose reference count is larger than the number of references that were found,
    /// including words on stacks.
    fn sort_references(&mut self, heads: &[Option<ObjectHead>]) {
        let found = self.found();
        let is_lost = |place: &u32| {
            let count = heads[*place as usize].map_or(u64::MAX, |head| head.references);
            !self.proven[*place as usize] && count < IMMORTAL && count > u64::from(found[*place as usize])
        };
        let lost: Vec<u32> = self.places().filter(is_lost).collect();
        let mut by_type: HashMap<u64, Vec<u32>> = HashMap::new();
        let type_of = |place: u32| self.graph.type_of(self.nodes[place as usize]);
        lost.iter().for_each(|place| by_type.entry(type_of(*place)).or_default().push(*place));
        for (type_address, places) in sorted(by_type) {
            let cause = self.cause(LOST_REFERENCES, "reference", type_address);
            self.causes[cause as usize].count = places.len() as u64;
            self.begin(cause, &places);
        }
        self.spread(&lost, |sorter, place| !sorter.proven[place as usize]);
    }

    /// Return, for each node, how many words may be references to it. The words are those in the nodes of `nodes`, in
    /// static types and in roots.
    fn found(&self) -> Vec<u32> {
        let mut found = vec![0u32; self.nodes.len()];
        for place in self.places() {
            self.edges.of(place).iter().for_each(|edge| found[split(*edge).0 as usize] += 1);
        }
        let graph = self.graph;
        for root in graph.ids.first_static..graph.ids.count() as u32 {
            let known = graph.edges.of(root).iter().map(|edge| split(*edge).0);
            known.filter_map(|node| self.nodes.binary_search(&node).ok()).for_each(|place| found[place] += 1);
        }
        found
    }

    /// Find the causes of cycles of proven nodes. Cycles that the collector does not free come first.
    fn sort_cycles(&mut self, heads: &[Option<ObjectHead>], facts: &CollectorFacts) {
        let (found, count) = components(&self.edges, |place| self.proven[place as usize], |strength| strength == EXACT);
        let cycles = self.cycles(&found, count, EXACT);
        let frozen: HashSet<u32> = facts.frozen.iter().filter_map(|address| self.graph.find(*address)).collect();
        let obstacle = |place: u32| {
            let (node, head) = (self.nodes[place as usize], heads[place as usize]?);
            let is_frozen = head.is_frozen || frozen.contains(&node);
            let has_finalizer = || facts.finalized.contains(&self.graph.type_of(node));
            match (head.is_tracked, is_frozen) {
                (false, _) => Some("untracked"),
                (_, true) => Some("frozen"),
                _ => has_finalizer().then_some("finalizer"),
            }
        };
        let obstacles = cycles.iter().map(|members| {
            members.iter().filter(|place| self.is_object(**place)).find_map(|place| Some((obstacle(*place)?, *place)))
        });
        let obstacles: Vec<_> = obstacles.collect();
        let mut naming = CycleNamer { facts, found: &found, limit: EXACT, known: HashMap::new() };
        for is_free in [false, true] {
            let mut starts = Vec::new();
            for (members, obstacle) in cycles.iter().zip(&obstacles).filter(|(_, why)| why.is_none() == is_free) {
                if !members.first().is_some_and(|place| self.is_free(*place)) {
                    continue;
                }
                let (kind, culprit) = obstacle
                    .map_or(("collectable", 0), |(kind, place)| (kind, self.graph.type_of(self.nodes[place as usize])));
                self.name(&mut naming, members, kind, culprit);
                starts.extend_from_slice(members);
            }
            // In an incomplete graph, a word that was not read may point to any node that is not proven.
            let is_cut = self.graph.proof.is_cut;
            self.spread(&starts, |sorter, place| !is_cut || sorter.proven[place as usize]);
        }
    }

    /// Return the nodes of each component that is a cycle and contains an object. `found`: the component of each node.
    /// `count`: the number of components. `limit`: the weakest strength of an edge by which a single node forms a cycle
    /// with itself.
    fn cycles(&self, found: &[u32], count: usize, limit: u32) -> Vec<Vec<u32>> {
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); count];
        let known = self.places().filter(|place| found[*place as usize] != NOBODY);
        known.for_each(|place| members[found[place as usize] as usize].push(place));
        let leads_to_itself = |place: u32| {
            self.edges.of(place).iter().map(|edge| split(*edge)).any(|(to, strength)| to == place && strength <= limit)
        };
        let is_cycle = |members: &Vec<u32>| members.len() > 1 || members.iter().any(|place| leads_to_itself(*place));
        members.retain(|members| is_cycle(members) && members.iter().any(|place| self.is_object(*place)));
        members
    }

    /// Add a cycle to the cause for cycles of the same structure, or make such a cause. `members`: the nodes of its
    /// component. `culprit`: the type of the object that prevents collection, or 0.
    fn name(&mut self, naming: &mut CycleNamer<'_>, members: &[u32], kind: &'static str, culprit: u64) {
        let cycle = naming.cycle(self, members);
        let key = (kind, culprit, naming.signature(self, &cycle));
        let cause = match naming.known.get(&key) {
            Some(cause) => *cause,
            None if self.causes.len() >= MAX_CAUSES => self.others(kind, culprit),
            None => {
                let cause = self.cause(CYCLES, kind, culprit);
                let nodes = cycle.iter().take(MAX_LENGTH).map(|place| self.nodes[*place as usize]).collect();
                (self.causes[cause as usize].nodes, self.causes[cause as usize].length) = (nodes, cycle.len() as u64);
                naming.known.insert(key, cause);
                cause
            }
        };
        self.causes[cause as usize].count += 1;
        self.begin(cause, members);
    }

    /// Return the cause for all cycles of one kind that came after MAX_CAUSES causes were made. `culprit`: the type of
    /// the object that prevents collection, or 0.
    fn others(&mut self, kind: &'static str, culprit: u64) -> u32 {
        let is_it = |cause: &Cause| {
            cause.group == CYCLES && cause.kind == kind && cause.type_address == culprit && cause.nodes.is_empty()
        };
        match self.causes.iter().position(is_it) {
            Some(place) => place as u32,
            None => self.cause(CYCLES, kind, culprit),
        }
    }

    /// Give a cause to each unreached node that has none yet. These nodes are grouped into strongly connected
    /// components. The heads are the nodes of components to which no other component points. The nodes that a head
    /// reaches have the same cause as the head.
    fn sort_blocks(&mut self, facts: &CollectorFacts) {
        let is_in = |sorter: &Self, place: u32| sorter.is_free(place) && sorter.phase(place) == NOT_REACHED;
        let (found, count) = components(&self.edges, |place| is_in(self, place), |_| true);
        let mut is_led_to = vec![false; count];
        for place in self.places().filter(|place| found[*place as usize] != NOBODY) {
            for (target, _) in self.edges.of(place).iter().map(|edge| split(*edge)) {
                let (own, other) = (found[place as usize], found[target as usize]);
                if other != NOBODY && own != other {
                    is_led_to[other as usize] = true;
                }
            }
        }
        let is_first = |place: &u32| found[*place as usize] != NOBODY && !is_led_to[found[*place as usize] as usize];
        let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        self.places().filter(is_first).for_each(|place| members.entry(found[place as usize]).or_default().push(place));
        self.sort_heads(&found, members, facts);
    }

    fn sort_heads(&mut self, found: &[u32], members: BTreeMap<u32, Vec<u32>>, facts: &CollectorFacts) {
        let mut naming = CycleNamer { facts, found, limit: u32::MAX, known: HashMap::new() };
        let (mut nothing, mut circle, mut starts) = (None, None, Vec::new());
        for members in members.into_values() {
            let has_objects = members.iter().any(|place| self.is_object(*place));
            // If the component is a single object, the object's reference count is unknown, so what keeps the object is
            // unknown too.
            if members.len() == 1 && has_objects {
                continue;
            }
            if has_objects {
                let is_hidden = members.iter().any(|place| self.hidden[*place as usize]);
                self.name(&mut naming, &members, if is_hidden { "hidden" } else { "likely" }, 0);
            } else {
                let (place, kind) =
                    if members.len() == 1 { (&mut nothing, "nothing") } else { (&mut circle, "circle") };
                let cause = *place.get_or_insert_with(|| self.cause(LOST_BLOCKS, kind, 0));
                self.causes[cause as usize].count += 1;
                self.begin(cause, &members);
            }
            starts.extend(members);
        }
        self.spread(&starts, |sorter, place| sorter.phase(place) == NOT_REACHED);
    }

    /// Make one cause for all blocks to which only weak words point.
    fn sort_weak(&mut self) {
        let is_weak = |place: &u32| {
            let kind = self.kind(*place);
            self.is_free(*place) && (self.weak..NOT_REACHED).contains(&self.phase(*place)) && kind & BUFFER == 0
        };
        let places: Vec<u32> = self.places().filter(is_weak).collect();
        if !places.is_empty() {
            let cause = self.cause(DOUBTFUL_BLOCKS, "weak", 0);
            self.causes[cause as usize].count = places.len() as u64;
            self.begin(cause, &places);
            self.spread(&places, |sorter, place| sorter.kind(place) & BUFFER != 0);
        }
    }

    fn rows(&self, most: usize) -> Vec<LostGroup> {
        let mut rows: BTreeMap<(u32, bool, u64, u64), LostGroup> = BTreeMap::new();
        let buffers = self.buffers();
        for place in self.places().filter(|place| !self.is_free(*place) && buffers[*place as usize] != TAKEN) {
            let id = self.nodes[place as usize];
            let Node::Block { address, size, .. } = self.graph.blocks().node(id) else { continue };
            let (cause, is_head) = (self.cause_of[place as usize], self.is_head[place as usize]);
            let type_address = if self.kind(place) & KIND != 0 { self.graph.type_of(id) } else { 0 };
            let (count, bytes, owned, addresses) = (0, 0, 0, Vec::new());
            let empty = LostGroup { cause, is_head, type_address, size, count, bytes, buffers: owned, addresses };
            let row = rows.entry((cause, is_head, type_address, size)).or_insert(empty);
            row.count += 1;
            row.bytes += size;
            row.buffers += buffers[place as usize];
            if row.addresses.len() < most {
                row.addresses.push(address);
            }
        }
        rows.into_values().collect()
    }

    /// Return, for each node, the bytes of its buffers if it is an object, and `TAKEN` if it is a buffer of an object.
    fn buffers(&self) -> Vec<u64> {
        let mut owned = vec![0; self.nodes.len()];
        let blocks = self.graph.blocks();
        for place in self.places().filter(|place| self.is_object(*place) && !self.is_free(*place)) {
            let mut open = vec![place];
            while let Some(holder) = open.pop() {
                for target in self.edges.of(holder).iter().map(|edge| split(*edge).0) {
                    if self.kind(target) & BUFFER != 0 && !self.is_free(target) && owned[target as usize] != TAKEN {
                        owned[target as usize] = TAKEN;
                        owned[place as usize] += blocks.node(self.nodes[target as usize]).size();
                        open.push(target);
                    }
                }
            }
        }
        owned
    }
}

const TAKEN: u64 = u64::MAX;

/// Return the lists of the map, the longest list first.
fn sorted(by_type: HashMap<u64, Vec<u32>>) -> Vec<(u64, Vec<u32>)> {
    let mut rows: Vec<_> = by_type.into_iter().collect();
    rows.sort_unstable_by_key(|(type_address, places)| (Reverse(places.len()), *type_address));
    rows
}

type Signature = Vec<(u8, u64, u32)>;

/// A classifier of cycles. Cycles are distinguished by the types of their objects, and by the code that these objects
/// run.
struct CycleNamer<'a> {
    facts: &'a CollectorFacts,
    /// For each node, the number of its component.
    found: &'a [u32],
    /// The weakest strength of edges that close a cycle. Weaker edges do not.
    limit: u32,
    known: HashMap<(&'static str, u64, Signature), u32>,
}

impl CycleNamer<'_> {
    /// Return a shortest cycle of a component, without buffers. It goes through the object that explains most: see
    /// `rank`.
    fn cycle(&self, sorter: &Sorter<'_>, members: &[u32]) -> Vec<u32> {
        let objects = members.iter().copied().filter(|place| sorter.is_object(*place));
        // A cycle through an object with hidden references shows why the cycle is not freed.
        let rank = |place: &u32| (!sorter.hidden[*place as usize], self.rank(sorter, *place), *place);
        let Some(start) = objects.min_by_key(rank) else { return Vec::new() };
        let (mut before, mut open) = (HashMap::from([(start, start)]), VecDeque::from([start]));
        while let Some(place) = open.pop_front() {
            for (target, strength) in sorter.edges.of(place).iter().map(|edge| split(*edge)) {
                if strength > self.limit || self.found[target as usize] != self.found[start as usize] {
                    continue;
                }
                if target == start {
                    return self.turned(sorter, way(&before, start, place));
                }
                if let std::collections::hash_map::Entry::Vacant(entry) = before.entry(target) {
                    entry.insert(place);
                    open.push_back(target);
                }
            }
        }
        vec![start]
    }

    /// Return the objects of a cycle, rotated so that equal cycles begin at equal objects.
    fn turned(&self, sorter: &Sorter<'_>, cycle: Vec<u32>) -> Vec<u32> {
        let mut objects: Vec<u32> = cycle.into_iter().filter(|place| sorter.is_object(*place)).collect();
        let items = self.signature(sorter, &objects);
        let turn = |at: usize| items.iter().cycle().skip(at).take(items.len());
        let lowest = items.iter().min();
        let begins = (0..items.len()).filter(|at| items.get(*at) == lowest).take(MAX_LENGTH);
        if let Some(first) = begins.min_by(|one, other| turn(*one).cmp(turn(*other))) {
            objects.rotate_left(first);
        }
        objects
    }

    fn signature(&self, sorter: &Sorter<'_>, cycle: &[u32]) -> Signature {
        let kind = |place: u32| sorter.graph.type_of(sorter.nodes[place as usize]);
        let item = |place: &u32| (self.rank(sorter, *place), kind(*place), self.code_of(sorter, *place));
        cycle.iter().map(item).collect()
    }

    /// Return how well an object explains a cycle, best first: 0 for frames and other running code, 1 for instances of
    /// the program's classes, 2 for others.
    fn rank(&self, sorter: &Sorter<'_>, place: u32) -> u8 {
        let kind = sorter.graph.type_of(sorter.nodes[place as usize]);
        match () {
            () if self.facts.frames.contains(&kind) => 0,
            () if sorter.graph.find(kind).is_some_and(|id| id < sorter.graph.ids.first_static) => 1,
            () => 2,
        }
    }

    /// Return the number of the code object that an object runs: it is among the objects to which this object refers.
    /// NOBODY if there is none.
    fn code_of(&self, sorter: &Sorter<'_>, place: u32) -> u32 {
        let targets = sorter.graph.edges.of(sorter.nodes[place as usize]).iter().map(|edge| split(*edge));
        let is_code = |node: &u32| self.facts.code != 0 && sorter.graph.type_of(*node) == self.facts.code;
        let known = targets.filter(|(_, strength)| *strength < DOUBTFUL).map(|(node, _)| node);
        known.filter(|node| *node < sorter.graph.ids.first_static).find(is_code).unwrap_or(NOBODY)
    }
}

/// Return the path from the node `start` to the node `last`.
fn way(before: &HashMap<u32, u32>, start: u32, last: u32) -> Vec<u32> {
    let mut nodes: Vec<u32> =
        std::iter::successors(Some(last), |node| (*node != start).then(|| before[node])).collect();
    nodes.reverse();
    nodes
}
