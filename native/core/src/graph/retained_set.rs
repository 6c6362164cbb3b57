//! Compute the memory that several nodes, the members, retain as a set: everything that would be unreachable if all of
//! them were removed.
//!
//! All of this memory lies below the members in the tree of shortest chains, so only a small part of a large graph is
//! examined. Nodes that a member dominates would be freed. Any other node below the members would be freed too, unless
//! a node that is not freed refers to it.

use super::csr::{in_rows, split, Edges};
use super::dominators::Dominators;
use super::tree::{Tree, NOBODY, NOT_REACHED};
use gdbheap_access::error::Cancellation;
use gdbheap_access::work::Control;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const OFTEN: usize = 1 << 20;

/// A forest of nodes. `tops`: the roots of its trees; `starts`, `below`: the children of each node, as compressed rows.
pub(crate) struct Forest {
    tops: Vec<u32>,
    starts: Vec<u32>,
    below: Vec<u32>,
}

impl Forest {
    pub(crate) fn of(above: &[u32], nodes: impl Iterator<Item = u32> + Clone) -> Forest {
        let pairs = nodes.clone().map(|node| (above[node as usize], node)).filter(|(above, _)| *above != NOBODY);
        let (starts, below) = in_rows(above.len(), pairs);
        Forest { tops: nodes.filter(|node| above[*node as usize] == NOBODY).collect(), starts, below }
    }

    fn below(&self, node: u32) -> &[u32] {
        &self.below[self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize]
    }

    /// Walk through the trees depth first. Call `visit(node, true)` before all nodes below the node, and `visit(node,
    /// false)` after them.
    fn walk(&self, mut visit: impl FnMut(u32, bool)) {
        let mut path: Vec<(u32, u32)> = Vec::new();
        for top in &self.tops {
            visit(*top, true);
            path.push((*top, 0));
            while let Some((node, place)) = path.last_mut() {
                let (node, at) = (*node, *place as usize);
                *place += 1;
                match self.below(node).get(at) {
                    Some(next) => {
                        visit(*next, true);
                        path.push((*next, 0));
                    }
                    None => {
                        visit(node, false);
                        path.pop();
                    }
                }
            }
        }
    }

    /// Return for each kind the number of its nodes, the bytes of these nodes, and the bytes of their subtrees with
    /// each node counted once. `kind_of` returns the index of a node's kind plus one, or 0 for a node without a kind.
    pub(crate) fn sums(&self, kinds: usize, kind_of: impl Fn(u32) -> usize, sizes: &[u64]) -> Vec<(u64, u64, u64)> {
        let mut rows = vec![(0, 0, 0); kinds];
        // For each kind: how many nodes of the kind are on the path to the current node, and how many bytes were seen
        // before the first of these nodes.
        let mut open = vec![(0u32, 0u64); kinds];
        let mut seen = 0;
        self.walk(|node, entered| {
            let (kind, size) = (kind_of(node).checked_sub(1), sizes[node as usize]);
            seen += if entered { size } else { 0 };
            let Some(kind) = kind else { return };
            let (depth, before) = &mut open[kind];
            let row = &mut rows[kind];
            if entered {
                if *depth == 0 {
                    *before = seen - size;
                }
                *depth += 1;
                *row = (row.0 + 1, row.1 + size, row.2);
            } else {
                *depth -= 1;
                row.2 += if *depth == 0 { seen - *before } else { 0 };
            }
        });
        rows
    }
}

/// The state of a node while one set of members is examined.
#[derive(Clone, Copy, PartialEq)]
#[repr(u32)]
enum NodeState {
    /// The node is a member, or a member dominates it: it would be freed.
    Goes = 0,
    /// No member dominates the node, and the search below the members has not met the node.
    Elsewhere = 1,
    /// The node is below a member in the tree of chains, but no member dominates it: it may be freed.
    Open = 2,
    Stays = 3,
}

const SEEN: u32 = 4;
const BITS: u32 = 3;
const MAX_RUNS: u32 = u32::MAX >> BITS;

pub(crate) struct RetainedSet<'a> {
    edges: &'a Edges,
    tree: &'a Tree,
    /// The immediate dominator of each node.
    above: &'a [u32],
    sizes: &'a [u64],
    pub(crate) chains: Forest,
    /// For each node, whether it dominates everything below it in the tree of chains.
    closed: Vec<bool>,
    /// For each node, the nodes that have an edge to it, except the previous node on its chain, as compressed rows
    /// `(starts, sources)`.
    others: (Vec<u32>, Vec<u32>),
    marks: Vec<u32>,
    run: u32,
    /// Whether the graph is incomplete. If so, something that was not read may hold the nodes without a dominator.
    is_cut: bool,
}

impl<'a> RetainedSet<'a> {
    pub(crate) fn new(
        edges: &'a Edges,
        tree: &'a Tree,
        found: &'a Dominators,
        sizes: &'a [u64],
        is_cut: bool,
        control: &Control,
    ) -> Result<RetainedSet<'a>, Cancellation> {
        let nodes = edges.nodes() as u32;
        let chains = Forest::of(&tree.before, (0..nodes).filter(|node| tree.phases[*node as usize] != NOT_REACHED));
        control.advance(0)?;
        let closed = closed(&chains, found);
        control.advance(0)?;
        let others = others(edges, tree);
        control.advance(0)?;
        let marks = vec![0; nodes as usize];
        Ok(RetainedSet { edges, tree, above: &found.above, sizes, chains, closed, others, marks, run: 0, is_cut })
    }

    /// Return the bytes that would be freed if all `members` were removed. `is_member` is true for these nodes only.
    /// `certain`: the bytes of the members themselves and of all nodes that a single member dominates.
    pub(crate) fn retained(
        &mut self,
        members: &[u32],
        is_member: impl Fn(u32) -> bool,
        certain: u64,
        control: &Control,
    ) -> Result<u64, Cancellation> {
        if self.run + 1 == MAX_RUNS {
            self.marks.fill(0);
            self.run = 0;
        }
        self.run += 1;
        let open = self.open(members, &is_member, control)?;
        let mut stay: Vec<u32> = Vec::new();
        for (count, node) in open.iter().enumerate() {
            if self.is_cut && self.above[*node as usize] == NOBODY || self.is_led_to(*node, &is_member) {
                self.mark(*node, NodeState::Stays);
                stay.push(*node);
            }
            if count % OFTEN == 0 {
                control.advance(0)?;
            }
        }
        while let Some(node) = stay.pop() {
            for edge in self.edges.of(node) {
                let (target, strength) = split(*edge);
                if self.state(target) == Some(NodeState::Open) && self.tree.counts(node, target, strength) {
                    self.mark(target, NodeState::Stays);
                    stay.push(target);
                }
            }
        }
        let goes = open.iter().filter(|node| self.state(**node) == Some(NodeState::Open));
        Ok(certain + goes.map(|node| self.sizes[*node as usize]).sum::<u64>())
    }

    /// Return the nodes below the members that no single member dominates.
    fn open(
        &mut self,
        members: &[u32],
        is_member: &impl Fn(u32) -> bool,
        control: &Control,
    ) -> Result<Vec<u32>, Cancellation> {
        let (mut found, mut left, mut count) = (Vec::new(), Vec::new(), 0);
        for member in members {
            left.push(*member);
            while let Some(node) = left.pop() {
                count += 1;
                if count % OFTEN == 0 {
                    control.advance(0)?;
                }
                if self.is_seen(node) {
                    continue;
                }
                let goes = self.goes(node, is_member);
                self.mark(node, if goes { NodeState::Goes } else { NodeState::Open });
                self.marks[node as usize] |= SEEN;
                if !goes {
                    found.push(node);
                }
                if !goes || !self.closed[node as usize] {
                    left.extend_from_slice(self.chains.below(node));
                }
            }
        }
        Ok(found)
    }

    /// Return whether a node that would certainly not be freed has an edge to `node`, whose state is `Open`.
    fn is_led_to(&mut self, node: u32, is_member: &impl Fn(u32) -> bool) -> bool {
        let rows = self.others.0[node as usize] as usize..self.others.0[node as usize + 1] as usize;
        rows.into_iter().any(|place| {
            let source = self.others.1[place];
            !matches!(self.state(source), Some(NodeState::Open | NodeState::Stays)) && !self.goes(source, is_member)
        })
    }

    /// Return whether the node is a member, or whether a member dominates it. Record the state of each node on the path
    /// from the node up its dominators.
    fn goes(&mut self, node: u32, is_member: &impl Fn(u32) -> bool) -> bool {
        let mut at = node;
        let state = loop {
            match self.state(at) {
                Some(NodeState::Goes) => break NodeState::Goes,
                Some(_) => break NodeState::Elsewhere,
                None if is_member(at) => break NodeState::Goes,
                None if self.above[at as usize] == NOBODY => break NodeState::Elsewhere,
                None => at = self.above[at as usize],
            }
        };
        let end = at;
        at = node;
        while at != NOBODY && self.state(at).is_none() {
            self.mark(at, state);
            at = if at == end { NOBODY } else { self.above[at as usize] };
        }
        state == NodeState::Goes
    }

    fn state(&self, node: u32) -> Option<NodeState> {
        let mark = self.marks[node as usize];
        let states = [NodeState::Goes, NodeState::Elsewhere, NodeState::Open, NodeState::Stays];
        (mark >> BITS == self.run).then(|| states[(mark & 3) as usize])
    }

    fn mark(&mut self, node: u32, state: NodeState) {
        self.marks[node as usize] = self.run << BITS | state as u32;
    }

    fn is_seen(&self, node: u32) -> bool {
        let mark = self.marks[node as usize];
        mark >> BITS == self.run && mark & SEEN != 0
    }
}

fn closed(chains: &Forest, found: &Dominators) -> Vec<bool> {
    let mut dominated = vec![1u32; found.above.len()];
    for node in found.order.iter().skip(1).rev() {
        let above = found.above[*node as usize];
        if above != NOBODY {
            dominated[above as usize] += dominated[*node as usize];
        }
    }
    let mut closed = vec![false; found.above.len()];
    let (mut seen, mut before) = (0u32, Vec::new());
    chains.walk(|node, entered| {
        if entered {
            before.push(seen);
            seen += 1;
        } else {
            closed[node as usize] = before.pop().is_some_and(|first| seen - first == dominated[node as usize]);
        }
    });
    closed
}

fn others(edges: &Edges, tree: &Tree) -> (Vec<u32>, Vec<u32>) {
    let reached = (0..edges.nodes() as u32).filter(|node| tree.phases[*node as usize] != NOT_REACHED);
    let pairs = reached.flat_map(|node| {
        edges.of(node).iter().filter_map(move |edge| {
            let (target, strength) = split(*edge);
            let is_other = tree.before[target as usize] != node && tree.counts(node, target, strength);
            is_other.then_some((target, node))
        })
    });
    in_rows(edges.nodes(), pairs)
}

/// Return for each kind its index, the number of its nodes, their bytes, and the bytes that these nodes retain
/// together. `kinds`: the number of kinds; `kind_of`: as in `Forest::sums`. If `top` is given, kinds that cannot be
/// among the `top` largest kinds are left out.
pub(crate) fn by_kind(
    together: &mut RetainedSet<'_>,
    found: &Dominators,
    kinds: usize,
    kind_of: impl Fn(u32) -> usize,
    top: Option<usize>,
    control: &Control,
) -> Result<Vec<(usize, u64, u64, u64)>, Cancellation> {
    let reached = found.order.iter().skip(1).copied();
    let dominated = Forest::of(&found.above, reached.clone()).sums(kinds, &kind_of, together.sizes);
    control.advance(0)?;
    // These are upper bounds: only nodes below the nodes of a kind can be freed with them.
    let most = together.chains.sums(kinds, &kind_of, together.sizes);
    let (starts, members) = members(kinds, &kind_of, reached);
    let mut order: Vec<usize> = (0..kinds).filter(|kind| most[*kind].0 > 0).collect();
    order.sort_by_key(|kind| Reverse(most[*kind].2));
    let top = top.unwrap_or(usize::MAX);
    let (mut rows, mut largest) = (Vec::new(), BinaryHeap::new());
    for kind in order {
        let (count, bytes, certain) = dominated[kind];
        if largest.len() >= top && largest.peek().is_some_and(|Reverse(least)| most[kind].2 < *least) {
            break;
        }
        let own = &members[starts[kind] as usize..starts[kind + 1] as usize];
        let retained = match certain == most[kind].2 {
            true => certain,
            false => together.retained(own, |node| kind_of(node) == kind + 1, certain, control)?,
        };
        rows.push((kind, count, bytes, retained));
        largest.push(Reverse(retained));
        if largest.len() > top {
            largest.pop();
        }
        control.advance(0)?;
    }
    Ok(rows)
}

/// Return the nodes of each kind, as compressed rows.
fn members(
    kinds: usize,
    kind_of: impl Fn(u32) -> usize,
    nodes: impl Iterator<Item = u32> + Clone,
) -> (Vec<u32>, Vec<u32>) {
    in_rows(kinds, nodes.filter_map(|node| Some((kind_of(node).checked_sub(1)? as u32, node))))
}
