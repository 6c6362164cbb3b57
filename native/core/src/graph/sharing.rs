//! Who else leads to what a holder has: what would stay without the holder, and from where that is reached.

use super::csr::split;
use super::edges::{is_object, BUFFER};
use super::passes::{add_up, below};
use super::tree::{Tree, NOBODY, NOT_REACHED};
use super::whole::Graph;
use crate::bits::Bits;
use gdbheap_access::error::{Cancelled, Result};
use gdbheap_access::work::{Control, Watcher};
use std::collections::{HashMap, HashSet};

const OFTEN: usize = 1 << 20;
/// Who leads to less than this part of what the holder has is left out.
const LEAST_PART: u64 = 10;
/// A way down to who leads there goes on as long as one branch has so much of the whole.
const BRANCH_PART: u64 = 4;
const MAX_ALIASES: usize = 4;

/// A node that leads to what a holder has: the first node there, and the bytes that are reached from it and not from
/// those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    pub id: u32,
    pub target: u32,
    pub bytes: u64,
}

/// What some nodes hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlsoHeld {
    /// Bytes of the nodes and of all that the shortest chains reach through them.
    pub bytes: u64,
    /// Of these, those that would be free without the nodes.
    pub retained: u64,
    /// Who else leads to the rest, the most first.
    pub others: Vec<Other>,
    /// Who refers to one of the nodes, beside the one reference that is on its chain: (referrer, node).
    pub aliases: Vec<(u32, u32)>,
}

/// One round: who was the first to reach each node that stays, and the bytes and the first target of each of these.
struct Round {
    sums: HashMap<u32, (u64, u32)>,
    total: u64,
}

struct Sharing<'a> {
    graph: &'a Graph,
    tree: &'a Tree,
    sizes: Vec<u64>,
    members: Bits,
    inside: Bits,
    /// References into what is inside, from elsewhere.
    crossing: Vec<(u32, u32)>,
    aliases: Vec<(u32, u32)>,
}

impl Graph {
    /// What would be free without all of `members`, and at most `most` others who lead to the rest of what they hold.
    pub fn also_held(&self, watcher: &dyn Watcher, members: &HashSet<u32>, most: usize) -> Result<AlsoHeld> {
        for id in members {
            self.check(*id)?;
        }
        let tree = self.tree(watcher)?;
        self.alone(watcher, |control| Sharing::of(self, tree, members, control)?.find(most, control))
    }
}

impl<'a> Sharing<'a> {
    fn of(
        graph: &'a Graph,
        tree: &'a Tree,
        members: &HashSet<u32>,
        control: &Control,
    ) -> std::result::Result<Sharing<'a>, Cancelled> {
        let mut marked = Bits::new(graph.nodes() as u64);
        members.iter().for_each(|id| marked.set((*id).into()));
        let inside = below(&tree.order, &tree.before, &marked);
        let (crossing, aliases, sizes) = (Vec::new(), Vec::new(), graph.sizes());
        let mut found = Sharing { graph, tree, sizes, members: marked, inside, crossing, aliases };
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

    /// Keeps the references from a node outside into what is inside. Of several to one member the first is that on the chain.
    fn cross(&mut self, source: u32) {
        let mut on_chain = NOBODY;
        for edge in self.graph.edges.of(source) {
            let (target, strength) = split(*edge);
            if !self.inside.get(target.into()) || !self.counts(source, target, strength) {
                continue;
            }
            if !self.members.get(target.into()) {
                self.crossing.push((source, target));
            } else if self.tree.before[target as usize] == source && on_chain != target {
                on_chain = target;
            } else if self.aliases.len() < MAX_ALIASES {
                self.aliases.push((source, target));
            }
        }
    }

    /// Whether an edge keeps its target alive. A buffer belongs to its object alone: a word of C's memory that leads there too
    /// may be left over, or lies in what a program wrote, such as the buffer of a file.
    fn counts(&self, source: u32, target: u32, strength: u32) -> bool {
        let kind = |id: u32| self.graph.kinds.get(id as usize).copied().unwrap_or(0);
        let is_owned = kind(target) & BUFFER != 0 && is_object(kind(self.tree.before[target as usize]));
        self.tree.counts(source, target, strength) && (!is_owned || kind(source) != 0)
    }

    fn find(self, most: usize, control: &Control) -> std::result::Result<AlsoHeld, Cancelled> {
        let nodes = 0..self.sizes.len() as u64;
        let bytes = nodes.filter(|id| self.inside.get(*id)).map(|id| self.sizes[id as usize]).sum();
        let mut gone = Bits::new(self.graph.nodes() as u64);
        let mut round = self.round(&gone, control)?;
        let (retained, mut others) = (bytes - round.total, Vec::new());
        while others.len() < most && round.total > bytes / LEAST_PART {
            let Some(other) = self.largest(&round) else { break };
            gone.set(other.id.into());
            others.push(other);
            round = self.round(&below(&self.tree.order, &self.tree.before, &gone), control)?;
        }
        Ok(AlsoHeld { bytes, retained, others, aliases: self.aliases })
    }

    /// Reaches what stays from all references that cross but those of `gone` nodes.
    fn round(&self, gone: &Bits, control: &Control) -> std::result::Result<Round, Cancelled> {
        let mut firsts = vec![NOBODY; self.graph.nodes()];
        let mut queue = Vec::new();
        let mut found = Round { sums: HashMap::new(), total: 0 };
        for (source, target) in self.crossing.iter().filter(|(source, _)| !gone.get((*source).into())) {
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
                if is_inside && self.counts(node, target, strength) {
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

    /// Who leads to most of what stays: the object where the way down from the root that has most parts, or the root where
    /// there are no objects.
    fn largest(&self, round: &Round) -> Option<Other> {
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
        Some(Other { id, target: round.sums[source].1, bytes: bytes[id as usize] })
    }

    /// Whether a node is the next one of a linked list.
    fn is_next(&self, above: u32, node: u32) -> bool {
        let kind = self.graph.kinds[node as usize];
        is_object(kind) && self.graph.kinds[above as usize] == kind
    }

    /// The object that owns a buffer, by its chain; the node itself where it is none.
    fn owner(&self, node: u32) -> u32 {
        let is_buffer = |id: &u32| self.graph.kinds.get(*id as usize).is_some_and(|kind| kind & BUFFER != 0);
        let above = |id: &u32| Some(self.tree.before[*id as usize]).filter(|above| is_buffer(id) && *above != NOBODY);
        std::iter::successors(Some(node), above).last().unwrap_or(node)
    }
}
