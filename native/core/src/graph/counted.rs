//! Find words that only look like references to an object. The EXACT edges to the object already explain its whole
//! reference count.
//!
//! Such a word is stale, because every reference that keeps an object alive is counted. For example, an extension may
//! keep freed blocks on a list. These blocks still contain the words of their last use.
//!
//! Words in Python objects are not judged. For example, a context variable caches a pointer to its value without
//! counting it. Without this edge, the value would lose the name of its variable.

use super::csr::{Edges, MANY};
use super::edges::{is_object, EXACT, LIKELY};
use crate::bits::Bits;

/// The objects whose reference counts are not higher than the number of EXACT edges to them. Only objects with a LIKELY
/// edge to them are examined.
pub(super) struct CountedObjects(Bits);

impl CountedObjects {
    /// Find the objects whose reference counts are explained by EXACT edges; None if there are none. `kinds` and
    /// `counts`: the kind and the reference count of each node (`NodeTables`).
    pub(super) fn find(edges: &Edges, kinds: &[u32], counts: &[u8]) -> Option<CountedObjects> {
        let is_known = |node: u32| {
            let place = node as usize;
            counts.get(place).is_some_and(|count| (1..MANY).contains(count)) && is_object(kinds[place])
        };
        let mut asked = Bits::new(kinds.len() as u64);
        let mut any = false;
        edges.each(|target, strength| {
            if strength == LIKELY && is_known(target) {
                asked.set(target.into());
                any = true;
            }
        });
        if !any {
            return None;
        }
        let mut missing = counts.to_vec();
        edges.each(|target, strength| {
            if strength == EXACT && asked.get(target.into()) {
                missing[target as usize] = missing[target as usize].saturating_sub(1);
            }
        });
        for (node, missing) in (0u64..).zip(missing) {
            if missing > 0 && asked.get(node) {
                asked.clear(node);
            }
        }
        Some(CountedObjects(asked))
    }

    /// Return whether a word for the node `target` is stale, if the word lies in a node of the kind `kind`.
    pub(super) fn is_stale(&self, kind: u32, target: u32) -> bool {
        !is_object(kind) && self.0.get(target.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::csr::joint;
    use super::*;

    const OBJECT: u32 = 1;

    fn edges(rows: &[&[(u32, u32)]]) -> Edges {
        Edges::of_rows(rows.iter().map(|row| row.iter().map(|edge| joint(edge.0, edge.1))))
    }

    /// Return the nodes that `CountedObjects` recognizes in a graph with these edges, kinds and reference counts.
    fn found(rows: &[&[(u32, u32)]], kinds: &[u32], counts: &[u8]) -> Vec<u32> {
        let found = CountedObjects::find(&edges(rows), kinds, counts);
        (0..kinds.len() as u32).filter(|node| found.as_ref().is_some_and(|found| found.is_stale(0, *node))).collect()
    }

    #[test]
    fn a_word_is_no_reference_if_the_count_has_no_room_for_it() {
        // Node 0 refers to nodes 2 and 3, and node 1, a block of C code, has a word for each. Node 3 counts one more.
        let rows: &[&[(u32, u32)]] =
            &[&[(2, EXACT), (3, EXACT), (4, EXACT)], &[(2, LIKELY), (3, LIKELY)], &[], &[], &[]];
        assert_eq!(found(rows, &[OBJECT, 0, OBJECT, OBJECT, OBJECT], &[1, 0, 1, 2, 1]), [2]);
    }

    #[test]
    fn a_word_in_an_object_is_not_stale() {
        let rows: &[&[(u32, u32)]] = &[&[(2, EXACT)], &[(2, LIKELY)], &[]];
        let found = CountedObjects::find(&edges(rows), &[OBJECT, 0, OBJECT], &[1, 0, 1]).unwrap();
        assert!(found.is_stale(0, 2) && !found.is_stale(OBJECT, 2));
    }

    #[test]
    fn unknown_counts_and_blocks_prove_nothing() {
        let rows: &[&[(u32, u32)]] = &[&[(2, EXACT), (3, EXACT)], &[(2, LIKELY), (3, LIKELY)], &[], &[]];
        assert_eq!(found(rows, &[OBJECT, 0, OBJECT, 0], &[1, 0, MANY, 1]), [0u32; 0]);
        assert_eq!(found(&[&[(1, EXACT)], &[]], &[OBJECT, OBJECT], &[1, 1]), [0u32; 0]);
    }
}
