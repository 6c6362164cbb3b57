//! Find the unreached blocks of a graph without objects, and their heads: the blocks from which all other unreached
//! blocks are reached.

use super::csr::{joint, split, Edges};
use super::dominators::Dominators;
use super::ids::Node;
use super::queries::Graph;
use super::tree::{Rules, Tree, NOBODY, NOT_REACHED, PHASES};
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::cmp::Reverse;

/// An unreached block to which no other unreached block points, or one block of a cycle to which no block outside the
/// cycle points.
#[derive(Clone, Copy, Debug)]
pub struct LostHead {
    pub address: u64,
    pub size: u64,
    /// The type of the block; 0 if the type is unknown.
    pub type_address: u64,
    /// The number of blocks that would be freed with this block, itself included.
    pub count: u64,
    /// The bytes of the blocks that would be freed with this block, itself included.
    pub retained: u64,
    /// Whether the block is in a cycle of blocks. No block outside the cycle points into it.
    pub in_circle: bool,
}

impl Graph {
    /// Return the number of heads of unreached blocks, and at most `most` of these heads. The heads that retain the
    /// most come first.
    pub fn lost_heads(&self, watcher: &dyn Watcher, most: usize) -> Result<(u64, Vec<LostHead>)> {
        let tree = self.tree(watcher)?;
        let all: Vec<u32> = (0..self.ids.first_static).filter(|id| tree.phases[*id as usize] == NOT_REACHED).collect();
        let edges = among(&self.edges, &all, false);
        let heads = heads(&edges);
        let blocks = self.blocks();
        let sizes = || all.iter().map(|id| blocks.node(*id).size()).collect();
        let found = self.alone(watcher, |control| {
            let roots: Vec<u32> = heads.iter().map(|(node, _)| *node).collect();
            let mut phases: [Vec<u32>; PHASES] = Default::default();
            phases[0] = roots.clone();
            let tree = Tree::grow(&edges, &phases, Rules::Blocks, &[], control)?;
            Dominators::find(&edges, &tree, &roots, sizes, control)
        })?;
        let counts = counts(&found);
        let count = heads.len() as u64;
        let mut rows = heads;
        rows.sort_unstable_by_key(|(node, _)| (Reverse(found.retained[*node as usize]), *node));
        rows.truncate(most);
        let head = |(node, in_circle): (u32, bool)| {
            let id = all[node as usize];
            let (address, size) = match blocks.node(id) {
                Node::Block { address, size, .. } => (address, size),
                _ => (0, 0),
            };
            let (count, retained) = (counts[node as usize], found.retained[node as usize]);
            LostHead { address, size, type_address: self.type_of(id), count, retained, in_circle }
        };
        Ok((count, rows.into_iter().map(head).collect()))
    }
}

/// Return the edges between the given nodes (ascending). The new number of a node is its index in `nodes`. `strengths`:
/// whether edges keep their strength; if not, all of them become EXACT.
pub(super) fn among(edges: &Edges, nodes: &[u32], strengths: bool) -> Edges {
    let mut places = vec![NOBODY; edges.nodes()];
    nodes.iter().zip(0..).for_each(|(node, place)| places[*node as usize] = place);
    let places = &places;
    Edges::of_rows(nodes.iter().map(|node| {
        let known = edges.of(*node).iter().map(|edge| split(*edge)).map(|(node, kept)| (places[node as usize], kept));
        let inner = known.filter(|(place, _)| *place != NOBODY);
        inner.map(move |(place, kept)| if strengths { joint(place, kept) } else { place })
    }))
}

/// Return a smallest set of nodes from which all nodes are reached. Each of these nodes has a flag: whether it is in a
/// cycle to which no node outside the cycle points.
fn heads(edges: &Edges) -> Vec<(u32, bool)> {
    let count = edges.nodes();
    let mut is_led_to = vec![false; count];
    for node in 0..count as u32 {
        edges
            .of(node)
            .iter()
            .map(|edge| split(*edge).0)
            .for_each(|target| is_led_to[target as usize] |= target != node);
    }
    let mut reached = vec![false; count];
    let mut found: Vec<(u32, bool)> =
        (0..count as u32).filter(|node| !is_led_to[*node as usize]).map(|node| (node, false)).collect();
    found.iter().for_each(|(node, _)| visit(edges, *node, &mut reached, |_| ()));
    // All nodes that are left are reached only from cycles. The node that a search leaves last is in a cycle to which
    // no node outside points.
    let (mut seen, mut order) = (reached.clone(), Vec::new());
    for node in 0..count as u32 {
        visit(edges, node, &mut seen, |left| order.push(left));
    }
    for node in order.into_iter().rev() {
        if !reached[node as usize] {
            found.push((node, true));
            visit(edges, node, &mut reached, |_| ());
        }
    }
    found
}

/// Search depth first from `start`, over nodes that are not in `reached`, and add these nodes to `reached`. `left` is
/// called for each node when the search leaves it.
fn visit(edges: &Edges, start: u32, reached: &mut [bool], mut left: impl FnMut(u32)) {
    if std::mem::replace(&mut reached[start as usize], true) {
        return;
    }
    let mut open: Vec<(u32, u32)> = vec![(start, 0)];
    while let Some((node, place)) = open.last_mut() {
        let (node, at) = (*node, *place as usize);
        *place += 1;
        match edges.of(node).get(at).map(|edge| split(*edge).0) {
            Some(target) if !std::mem::replace(&mut reached[target as usize], true) => open.push((target, 0)),
            Some(_) => (),
            None => {
                left(node);
                open.pop();
            }
        }
    }
}

/// Return, for each node, the number of nodes that it dominates, itself included.
fn counts(found: &Dominators) -> Vec<u64> {
    let mut counts = vec![1; found.above.len()];
    for node in found.order.iter().skip(1).rev() {
        let above = found.above[*node as usize];
        if above != NOBODY {
            counts[above as usize] += counts[*node as usize];
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(plain: &[&[u32]]) -> Edges {
        Edges::of_rows(plain.iter().map(|row| row.iter().copied()))
    }

    #[test]
    fn heads_are_what_nothing_leads_to_and_one_of_each_first_circle() {
        // The edges are 0 -> 1 -> 2 <-> 3; 4 <-> 5 -> 6 <-> 7 <- 4; 8 -> 8.
        let found = heads(&edges(&[&[1], &[2], &[3], &[2], &[5, 7], &[4, 6], &[7], &[6], &[8]]));
        let plain: Vec<u32> = found.iter().filter(|(_, in_circle)| !in_circle).map(|(node, _)| *node).collect();
        let circles: Vec<u32> = found.iter().filter(|(_, in_circle)| *in_circle).map(|(node, _)| *node).collect();
        assert_eq!(plain, [0, 8]);
        assert!(circles == [4] || circles == [5], "{circles:?}");
    }
}
