//! Find the largest branches below given nodes, the seeds. A branch is a child of a seed with everything below this
//! child, in the tree of shortest chains (in an incomplete graph: in the tree of dominators).

use super::edges::{BUFFER, KIND};
use super::passes::add_up;
use super::queries::Graph;
use super::tree::{NOBODY, NOT_REACHED};
use crate::bits::Bits;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::cmp::Reverse;
use std::collections::HashSet;

/// A path is extended from a node to a child that has at least this fraction of the node's bytes: (numerator,
/// denominator).
const MOST: (u64, u64) = (4, 5);
const MAX_WAY: usize = 32;
/// The number of bits by which a node's bytes can fall, at most, along a path. The limit follows from MOST and MAX_WAY.
/// Nodes with fewer bytes are not examined.
const LEFT: u32 = 11;

/// A large subtree right below a seed. `id`: the top node of the subtree. `bytes`: the bytes of the subtree, without
/// the subtrees of other seeds in it.
#[derive(Clone, Debug)]
pub struct Branch {
    pub id: u32,
    pub bytes: u64,
    /// The path from this node down to the node whose bytes are divided among several children.
    pub way: Vec<u32>,
}

/// For each node, the bytes of its subtree, without the subtrees of the seeds below the node.
pub struct SubtreeBytes {
    bytes: Vec<u64>,
    seeds: Bits,
    /// The objects whose children may be skipped. A child is skipped if its type is in `through`, such as the dict of a
    /// class. Its own children are then branches instead. A buffer is always skipped.
    open: HashSet<u32>,
    through: HashSet<u64>,
}

impl Graph {
    /// Add up the bytes of each node's subtree. The subtree of a seed does not count for the nodes above the seed.
    /// `open` and `through` are the fields of `SubtreeBytes`.
    pub fn hanging(
        &self,
        watcher: &dyn Watcher,
        seeds: &HashSet<u32>,
        open: HashSet<u32>,
        through: HashSet<u64>,
    ) -> Result<SubtreeBytes> {
        let (tree, before) = (self.tree(watcher)?, self.above(watcher)?);
        let mut marked = Bits::new(before.len() as u64);
        for seed in seeds {
            marked.set(self.check(*seed)?.into());
        }
        let mut bytes = self.sizes();
        bytes.resize(before.len(), 0);
        bytes[self.ids.first_static as usize..].fill(0);
        // An unreached node has a node above it only in an incomplete graph.
        let is_lost = |node: u32| self.proof.is_cut && tree.phases[node as usize] == NOT_REACHED;
        let is_apart = |node: u32| marked.get(node.into()) || is_lost(node);
        add_up(&self.downwards(watcher)?, before, &mut bytes, is_apart);
        Ok(SubtreeBytes { bytes, seeds: marked, open, through })
    }

    /// Turn more nodes into seeds, and subtract the bytes of their subtrees from all nodes above them. Unreached nodes
    /// are skipped.
    pub fn divide(&self, watcher: &dyn Watcher, hanging: &mut SubtreeBytes, seeds: &HashSet<u32>) -> Result<()> {
        let (tree, before) = (self.tree(watcher)?, self.above(watcher)?);
        for seed in seeds {
            let own = hanging.bytes[self.check(*seed)? as usize];
            if hanging.seeds.get((*seed).into()) || tree.phases[*seed as usize] == NOT_REACHED {
                continue;
            }
            hanging.seeds.set((*seed).into());
            let mut at = before[*seed as usize];
            while at != NOBODY {
                hanging.bytes[at as usize] -= own;
                at = if hanging.seeds.get(at.into()) { NOBODY } else { before[at as usize] };
            }
        }
        Ok(())
    }

    /// Return the branches of at least `minimum` bytes right below the seeds, largest first.
    pub fn branches(&self, watcher: &dyn Watcher, hanging: &SubtreeBytes, minimum: u64) -> Result<Vec<Branch>> {
        let (tree, before) = (self.tree(watcher)?, self.above(watcher)?);
        let is_seed = |id: u32| hanging.seeds.get(id.into());
        let is_passed = |id: u32| {
            let is_open = || hanging.open.contains(&before[id as usize]) && hanging.through.contains(&self.type_of(id));
            self.kinds[id as usize] & BUFFER != 0 || is_open()
        };
        let most = self.most(before, &tree.phases, hanging, minimum);
        let mut rows = Vec::new();
        for node in (0..self.ids.first_static).filter(|node| hanging.bytes[*node as usize] >= minimum.max(1)) {
            if is_seed(node) || is_passed(node) || tree.phases[node as usize] == NOT_REACHED {
                continue;
            }
            let mut above = before[node as usize];
            while above != NOBODY && !is_seed(above) && is_passed(above) {
                above = before[above as usize];
            }
            if above != NOBODY && is_seed(above) {
                rows.push(Branch { id: node, bytes: hanging.bytes[node as usize], way: self.way(node, &most) });
            }
        }
        rows.sort_unstable_by_key(|row| (Reverse(row.bytes), row.id));
        Ok(rows)
    }

    /// Return, for each node, the child that has at least the fraction MOST of the node's bytes; NOBODY if there is no
    /// such child. Nodes that are too small for a path down from a branch of `minimum` bytes are skipped.
    fn most(&self, before: &[u32], phases: &[u8], hanging: &SubtreeBytes, minimum: u64) -> Vec<u32> {
        let bytes = &hanging.bytes;
        let mut most = vec![NOBODY; before.len()];
        let is_below = |node: &u32| phases[*node as usize] != NOT_REACHED && !hanging.seeds.get((*node).into());
        let least = (minimum >> LEFT).max(1);
        for node in (0..before.len() as u32).filter(|node| bytes[*node as usize] >= least).filter(is_below) {
            let above = before[node as usize];
            if above != NOBODY && is_most(bytes[node as usize], bytes[above as usize]) {
                most[above as usize] = node;
            }
        }
        most
    }

    /// Return the path from a node down to its largest child, to the largest child of this child, and so on. The path
    /// ends before a child of the same type as its parent, as in a linked list.
    fn way(&self, node: u32, most: &[u32]) -> Vec<u32> {
        let mut way = vec![node];
        let mut at = node;
        while way.len() < MAX_WAY && most[at as usize] != NOBODY {
            let next = most[at as usize];
            let kind = self.kinds[next as usize];
            if kind & BUFFER == 0 && kind & KIND != 0 && self.kinds[at as usize] == kind {
                break;
            }
            way.push(next);
            at = next;
        }
        way
    }
}

fn is_most(part: u64, whole: u64) -> bool {
    u128::from(part) * u128::from(MOST.1) >= u128::from(whole) * u128::from(MOST.0)
}

#[cfg(test)]
mod tests {
    use super::{is_most, LEFT, MAX_WAY, MOST};

    #[test]
    fn four_fifths_are_most() {
        assert!(is_most(80, 100) && !is_most(79, 100) && is_most(0, 0) && is_most(u64::MAX, u64::MAX));
    }

    #[test]
    fn no_way_is_longer_than_what_is_kept_for_it() {
        let left = (1..MAX_WAY).fold(1 << 40, |left, _| left * MOST.0 / MOST.1);
        assert!(left > 1 << (40 - LEFT));
    }
}
