//! The facts that an incomplete graph proves.
//!
//! A reference that was not read may point to any block. All holders are known only for two kinds of blocks: an object
//! to which all references were found, and a buffer, which only its owner holds. Every other block may have a holder
//! that was not read, so it is treated as if a root pointed to it.

use super::csr::{split, Edges, MANY};
use super::edges::{is_object, BUFFER, EXACT, IDLE, LIKELY};
use super::tree::{Tree, BY_REMAINS, NOT_REACHED};

/// The facts that are known about missing parts of a graph. `unread`: the number of bytes that were needed but could
/// not be read; `is_cut`: whether the graph is incomplete; `counts`: the reference count of each object, kept only if
/// the graph is incomplete.
pub(crate) struct Proof {
    pub(super) unread: u64,
    pub(super) is_cut: bool,
    counts: Vec<u8>,
}

impl Proof {
    pub(super) fn of(unread: u64, is_partial: bool, counts: Vec<u8>) -> Proof {
        let is_cut = is_partial || unread > 0;
        Proof { unread, is_cut, counts: if is_cut { counts } else { Vec::new() } }
    }

    /// Return the reached nodes that may have a holder that was not read. These are blocks, whose numbers are below
    /// `blocks`, and all reached static types, whose numbers are from `blocks` to `end`.
    pub(super) fn doubtful(&self, edges: &Edges, tree: &Tree, kinds: &[u32], (blocks, end): (u32, u32)) -> Vec<u32> {
        let known = self.known(edges, tree, kinds, blocks);
        let is_known = |id: u32| known.get(id as usize).is_some_and(|known| *known);
        (0..end).filter(|id| tree.phases[*id as usize] != NOT_REACHED && !is_known(*id)).collect()
    }

    /// Return for each block, by its number, whether all its holders are known. An edge that does not keep the block
    /// alive, such as an edge from an unreached node, raises a doubt in two cases: the edge is EXACT or LIKELY, or the
    /// block was reached only in the phase BY_REMAINS or later. The true holder may not have been read in these cases.
    pub(super) fn known(&self, edges: &Edges, tree: &Tree, kinds: &[u32], blocks: u32) -> Vec<bool> {
        let mut found = vec![0u8; blocks as usize];
        let mut is_doubted = vec![false; blocks as usize];
        for node in (0..edges.nodes() as u32).filter(|node| kinds[*node as usize] & IDLE == 0) {
            let is_reached = tree.phases[node as usize] != NOT_REACHED;
            let targets = edges.of(node).iter().map(|edge| split(*edge)).filter(|(target, _)| *target < blocks);
            for (target, strength) in targets {
                let place = target as usize;
                if is_reached && tree.counts(node, target, strength) {
                    found[place] = found[place].saturating_add(u8::from(strength == EXACT));
                } else if strength <= LIKELY || tree.phases[place] >= BY_REMAINS {
                    is_doubted[place] = true;
                }
            }
        }
        let is_known = |(place, found): (usize, u8)| match kinds[place] {
            _ if is_doubted[place] => false,
            kind if kind & BUFFER != 0 => true,
            kind if is_object(kind) => {
                let count = self.counts.get(place).copied().unwrap_or(MANY);
                count > 0 && count < MANY && count <= found
            }
            _ => false,
        };
        found.into_iter().enumerate().map(is_known).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Rules, PHASES};
    use super::*;
    use gdbheap_access::testing::NoWatcher;
    use gdbheap_access::work::Task;

    const OBJECT: u32 = 1;

    /// Return `Proof::known` for a graph with these edges (`targets`), kinds and reference counts. Its last node is the
    /// root.
    fn known(targets: &[&[u32]], kinds: &[u32], counts: &[u8]) -> Vec<bool> {
        let (edges, nodes) = (Edges::of_rows(targets.iter().map(|row| row.iter().copied())), targets.len());
        let mut phases: [Vec<u32>; PHASES] = Default::default();
        phases[0].push(nodes as u32 - 1);
        let task = Task { watcher: &NoWatcher, total: None, inline: true };
        let tree =
            task.alone(|control| Tree::grow(&edges, &phases, Rules::Objects, &[], control)).expect("not cancelled");
        Proof::of(1, false, counts.to_vec()).known(&edges, &tree, kinds, nodes as u32 - 1)
    }

    #[test]
    fn an_object_is_known_where_all_references_are_found() {
        // The root refers to node 0, and node 0 to a buffer that refers to nodes 2 and 3. The count of node 3 is larger
        // by one than the number of references found.
        let found = known(&[&[1], &[2, 3], &[], &[], &[0]], &[OBJECT, BUFFER, OBJECT, OBJECT, 0], &[1, 0, 1, 2, 0]);
        assert_eq!(found, [true, true, true, false]);
    }

    #[test]
    fn what_nothing_leads_to_proves_nothing() {
        // Node 1 refers to node 2 as well. Something that was not read may refer to node 1.
        let found = known(&[&[2], &[2], &[], &[0]], &[OBJECT, OBJECT, OBJECT, 0], &[1, 1, 2, 0]);
        assert_eq!(found, [true, false, false]);
    }

    #[test]
    fn blocks_without_counts_are_not_known() {
        assert_eq!(known(&[&[1], &[], &[0]], &[OBJECT, 0, 0], &[1, 0, 0]), [true, false]);
        assert_eq!(known(&[&[], &[0]], &[OBJECT, 0], &[MANY, 0]), [false]);
    }
}
