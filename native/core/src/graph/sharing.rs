//! Find the other holders of the blocks that a holder reaches: how much memory would remain if the holder were removed,
//! and from which other nodes it is reached.

use super::csr::split;
use super::edges::{is_object, BUFFER, EXACT};
use super::passes::{add_up, below};
use super::queries::Graph;
use super::tree::{Tree, NOBODY, NOT_REACHED};
use crate::bits::Bits;
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::work::{Control, Watcher};
use std::collections::{HashMap, HashSet};

const OFTEN: usize = 1 << 20;
/// The search for other nodes ends when the remaining bytes are at most the holder's bytes divided by LEAST_PART.
const LEAST_PART: u64 = 10;
/// The path down from a root continues to a child that has at least the remaining bytes divided by BRANCH_PART.
const BRANCH_PART: u64 = 4;
const MAX_ALIASES: usize = 4;

/// Another node from which blocks of a holder are reached. `target`: the first of these blocks. `bytes`: the bytes of
/// the blocks that are reached from this node but not from earlier nodes in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherHolder {
    pub id: u32,
    pub target: u32,
    pub bytes: u64,
}

/// The memory that some nodes, the members, hold, and the other holders of this memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlsoHeld {
    /// The bytes of the members and of everything that the shortest chains reach through them.
    pub bytes: u64,
    /// The part of these bytes that would be freed if the members were removed.
    pub retained: u64,
    /// The part of these bytes that would be freed if no uncertain word were a reference. A word is uncertain if it may
    /// be stale or may not be a reference.
    pub most: u64,
    /// Other nodes from which the remaining blocks are also reached. The nodes with the most bytes come first.
    pub others: Vec<OtherHolder>,
    /// Further references to the members, as (referrer, member), besides the reference on each member's shortest chain.
    pub aliases: Vec<(u32, u32)>,
}

/// The result of one search over the region, which consists of the members and of all nodes below them.
/// - `sums`: for each node outside the region: the bytes of the blocks that were reached from it first, and the first
///   of these blocks.
/// - `total`: the bytes of all blocks that were reached.
struct Round {
    sums: HashMap<u32, (u64, u32)>,
    total: u64,
}

struct SharingSearch<'a> {
    graph: &'a Graph,
    tree: &'a Tree,
    sizes: Vec<u64>,
    members: Bits,
    inside: Bits,
    /// References from nodes outside the region to nodes in it, as (source, target, whether it is certain). The region
    /// consists of the members and all nodes below them.
    crossing: Vec<(u32, u32, bool)>,
    aliases: Vec<(u32, u32)>,
}

impl Graph {
    /// Return the memory that `members` hold, and how much of it would be freed if all members were removed. Also
    /// return at most `most` other nodes from which the remaining blocks are reached.
    pub fn also_held(&self, watcher: &dyn Watcher, members: &HashSet<u32>, most: usize) -> Result<AlsoHeld> {
        for id in members {
            self.check(*id)?;
        }
        let tree = self.tree(watcher)?;
        self.alone(watcher, |control| SharingSearch::of(self, tree, members, control)?.find(most, control))
    }
}

impl<'a> SharingSearch<'a> {
    fn of(
        graph: &'a Graph,
        tree: &'a Tree,
        members: &HashSet<u32>,
        control: &Control,
    ) -> std::result::Result<SharingSearch<'a>, Cancellation> {
        let mut marked = Bits::new(graph.nodes() as u64);
        members.iter().for_each(|id| marked.set((*id).into()));
        let inside = below(&tree.order, &tree.before, &marked);
        let (crossing, aliases, sizes) = (Vec::new(), Vec::new(), graph.sizes());
        let mut found = SharingSearch { graph, tree, sizes, members: marked, inside, crossing, aliases };
        for source in 0..graph.nodes() as u32 {
            if tree.phases[source as usize] != NOT_REACHED && !found.inside.get(source.into()) {
                found.cross(source);
            }
            if source as usize % OFTEN == 0 {
                control.advance(0)?;
            }
        }
        Ok(found)
    }

    /// Record the references from the node `source`, which is outside the region, to nodes in it. A member's reference
    /// on its own shortest chain is not recorded, because it is no further reference.
    fn cross(&mut self, source: u32) {
        let mut on_chain = NOBODY;
        for edge in self.graph.edges.of(source) {
            let (target, strength) = split(*edge);
            if !self.inside.get(target.into()) || !self.counts(source, target, strength) {
                continue;
            }
            if !self.members.get(target.into()) {
                self.crossing.push((source, target, self.is_certain(source, target, strength)));
            } else if self.tree.before[target as usize] == source && on_chain != target {
                on_chain = target;
            } else if self.aliases.len() < MAX_ALIASES {
                self.aliases.push((source, target));
            }
        }
    }

    /// Return whether an edge keeps its target alive. A buffer is kept alive only by its object. Another word of C code
    /// that points to the buffer may be stale, or may be data that the program wrote.
    fn counts(&self, source: u32, target: u32, strength: u32) -> bool {
        let kind = |id: u32| self.graph.kinds.get(id as usize).copied().unwrap_or(0);
        let is_owned = kind(target) & BUFFER != 0 && is_object(kind(self.tree.before[target as usize]));
        self.tree.counts(source, target, strength) && (!is_owned || kind(source) != 0)
    }

    /// Return whether a reference that keeps its target alive is certain. In a program with objects, a word in a block
    /// of C code that points to another such block is not certain: no reference count confirms it, and the word may be
    /// stale.
    fn is_certain(&self, source: u32, target: u32, strength: u32) -> bool {
        let is_weak = self.tree.is_weak(source);
        let is_raw = |id: u32| self.graph.kinds.get(id as usize) == Some(&0);
        !is_weak && (strength == EXACT || self.graph.layout.is_some() && !is_raw(target))
    }

    fn find(self, count: usize, control: &Control) -> std::result::Result<AlsoHeld, Cancellation> {
        let nodes = 0..self.sizes.len() as u64;
        let bytes = nodes.filter(|id| self.inside.get(*id)).map(|id| self.sizes[id as usize]).sum();
        let mut gone = Bits::new(self.graph.nodes() as u64);
        let mut round = self.round(&gone, false, control)?;
        let (retained, mut others) = (bytes - round.total, Vec::new());
        let most = match round.total > 0 && self.crossing.iter().any(|(_, _, is_certain)| !is_certain) {
            true => bytes - self.round(&gone, true, control)?.total,
            false => retained,
        };
        while others.len() < count && round.total > bytes / LEAST_PART {
            let Some(other) = self.largest(&round) else { break };
            gone.set(other.id.into());
            others.push(other);
            round = self.round(&below(&self.tree.order, &self.tree.before, &gone), false, control)?;
        }
        Ok(AlsoHeld { bytes, retained, most, others, aliases: self.aliases })
    }

    /// Search the nodes of the region, starting from every reference that crosses into it, except references whose
    /// source is in `gone`. `is_strict`: whether only references that are certain are followed.
    fn round(&self, gone: &Bits, is_strict: bool, control: &Control) -> std::result::Result<Round, Cancellation> {
        let mut firsts = vec![NOBODY; self.graph.nodes()];
        let mut queue = Vec::new();
        let mut found = Round { sums: HashMap::new(), total: 0 };
        let counted = |row: &&(u32, u32, bool)| !gone.get(row.0.into()) && (row.2 || !is_strict);
        for (source, target, _) in self.crossing.iter().filter(counted) {
            self.reach(*target, (*source, *target), &mut firsts, &mut queue, &mut found);
        }
        let mut next = 0;
        while let Some((node, way)) = queue.get(next).copied() {
            next += 1;
            if next % OFTEN == 0 {
                control.advance(0)?;
            }
            for edge in self.graph.edges.of(node) {
                let (target, strength) = split(*edge);
                let is_inside = self.inside.get(target.into()) && !self.members.get(target.into());
                let is_certain = !is_strict || self.is_certain(node, target, strength);
                if is_inside && is_certain && self.counts(node, target, strength) {
                    self.reach(target, way, &mut firsts, &mut queue, &mut found);
                }
            }
        }
        Ok(found)
    }

    fn reach(
        &self,
        node: u32,
        way: (u32, u32),
        firsts: &mut [u32],
        queue: &mut Vec<(u32, (u32, u32))>,
        found: &mut Round,
    ) {
        if firsts[node as usize] == NOBODY {
            firsts[node as usize] = way.0;
            queue.push((node, way));
            let size = self.sizes[node as usize];
            found.total += size;
            found.sums.entry(way.0).or_insert((0, way.1)).0 += size;
        }
    }

    /// Return the node from which most of the remaining bytes are reached. The result is the object at which the path
    /// down from the largest root divides; in a graph without objects it is that root.
    fn largest(&self, round: &Round) -> Option<OtherHolder> {
        let mut bytes = vec![0; self.graph.nodes()];
        round.sums.iter().for_each(|(source, sum)| bytes[*source as usize] = sum.0);
        add_up(&self.tree.order, &self.tree.before, &mut bytes, |_| false);
        let mut best: HashMap<u32, u32> = HashMap::new();
        let least = (round.total / BRANCH_PART).max(1);
        for node in (0..bytes.len() as u32).filter(|node| bytes[*node as usize] >= least) {
            let most = best.entry(self.tree.before[node as usize]).or_insert(node);
            *most = if bytes[*most as usize] < bytes[node as usize] { node } else { *most };
        }
        let root = best.get(&NOBODY).copied()?;
        let next = |above: &u32| best.get(above).copied().filter(|node| !self.is_next(*above, *node));
        let end = std::iter::successors(Some(root), next).last()?;
        let id = if self.graph.layout.is_some() { self.owner(end) } else { root };
        let mut seeds = Bits::new(bytes.len() as u64);
        seeds.set(id.into());
        let under = below(&self.tree.order, &self.tree.before, &seeds);
        let sources = round.sums.keys().filter(|source| under.get((**source).into()));
        let source = sources.max_by_key(|source| (round.sums[source].0, **source))?;
        Some(OtherHolder { id, target: round.sums[source].1, bytes: bytes[id as usize] })
    }

    /// Return whether `node` has the type of the node above it, as in a linked list.
    fn is_next(&self, above: u32, node: u32) -> bool {
        let kind = self.graph.kinds[node as usize];
        is_object(kind) && self.graph.kinds[above as usize] == kind
    }

    /// Return the object that owns a buffer, according to the buffer's chain; for a node that is not a buffer, the node
    /// itself.
    fn owner(&self, node: u32) -> u32 {
        let is_buffer = |id: &u32| self.graph.kinds.get(*id as usize).is_some_and(|kind| kind & BUFFER != 0);
        let above = |id: &u32| Some(self.tree.before[*id as usize]).filter(|above| is_buffer(id) && *above != NOBODY);
        std::iter::successors(Some(node), above).last().unwrap_or(node)
    }
}
