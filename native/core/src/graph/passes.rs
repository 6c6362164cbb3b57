//! Passes over a tree, from the roots down or from the leaves up. The tree is given as an array: for each node, the
//! node above it.

use super::tree::NOBODY;
use crate::bits::Bits;
use gdbheap_access::memory::prefetch::{fetch, SOON};

/// Return every node once. Each node comes after the node above it.
pub(super) fn order_of(above: &[u32]) -> Vec<u32> {
    let (mut order, mut known, mut way) = (Vec::with_capacity(above.len()), Bits::new(above.len() as u64), Vec::new());
    for node in 0..above.len() as u32 {
        let mut at = node;
        while at != NOBODY && !known.get(at.into()) {
            known.set(at.into());
            way.push(at);
            at = above[at as usize];
        }
        order.extend(way.drain(..).rev());
    }
    order
}

/// Add the sum of each node to the sum of the node above it, from the leaves up. Nodes for which `is_apart` is true add
/// nothing. `order` comes from `order_of`.
pub(super) fn add_up(order: &[u32], above: &[u32], sums: &mut [u64], is_apart: impl Fn(u32) -> bool) {
    for (index, node) in order.iter().enumerate().rev() {
        if let Some(soon) = index.checked_sub(SOON).map(|index| order[index] as usize) {
            fetch(above, soon);
            fetch(sums, soon);
        }
        let next = above[*node as usize];
        if next != NOBODY && !is_apart(*node) {
            sums[next as usize] += sums[*node as usize];
        }
    }
}

/// Return the seeds and all nodes below them, as a set. `order` comes from `order_of`.
pub(super) fn below(order: &[u32], above: &[u32], seeds: &Bits) -> Bits {
    let mut found = Bits::new(above.len() as u64);
    for (index, node) in order.iter().enumerate() {
        if let Some(soon) = order.get(index + SOON) {
            fetch(above, *soon as usize);
        }
        let next = above[*node as usize];
        if seeds.get((*node).into()) || (next != NOBODY && found.get(next.into())) {
            found.set((*node).into());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{add_up, below, order_of, Bits, NOBODY};

    // 3 is a root, 1 is below 3, and 0 and 4 are below 1. 2 and 5 are roots without nodes below them.
    const ABOVE: [u32; 6] = [1, 3, NOBODY, NOBODY, 1, NOBODY];

    #[test]
    fn what_is_above_comes_first() {
        assert_eq!(order_of(&ABOVE), [3, 1, 0, 2, 4, 5]);
        assert!(order_of(&[]).is_empty());
    }

    #[test]
    fn what_is_below_counts_for_what_is_above() {
        let mut sums = [1, 2, 4, 8, 16, 32];
        add_up(&order_of(&ABOVE), &ABOVE, &mut sums, |_| false);
        assert_eq!(sums, [1, 19, 4, 27, 16, 32]);
        let mut sums = [1, 2, 4, 8, 16, 32];
        add_up(&order_of(&ABOVE), &ABOVE, &mut sums, |node| node == 1);
        assert_eq!(sums, [1, 19, 4, 8, 16, 32]);
    }

    #[test]
    fn what_hangs_on_a_seed_is_below_it() {
        let mut seeds = Bits::new(6);
        seeds.set(1);
        let found = below(&order_of(&ABOVE), &ABOVE, &seeds);
        let members: Vec<u64> = (0..6).filter(|node| found.get(*node)).collect();
        assert_eq!(members, [0, 1, 4]);
    }
}
