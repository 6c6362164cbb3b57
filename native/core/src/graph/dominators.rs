//! Compute the dominator and the retained size of each node. The algorithm is semi-NCA (Georgiadis 2005), without
//! recursion and in 32-bit arrays.
//!
//! The immediate dominator of a node is the last node before it that lies on every path from the roots to the node. A
//! node retains itself and everything that it dominates.

use super::csr::{in_rows, split, Edges};
use super::tree::{Tree, NOBODY, NOT_REACHED};
use crate::bits::Bits;
use gdbheap_access::error::Cancellation;
use gdbheap_access::memory::prefetch::{self, fetch};
use gdbheap_access::work::Control;
use std::borrow::Borrow;

const OFTEN: usize = 1 << 20;

pub(crate) struct Dominators {
    /// The immediate dominator of each node; NOBODY if there is none, or if the node is not reached.
    pub(crate) above: Vec<u32>,
    /// The retained size of each node in bytes.
    pub(crate) retained: Vec<u64>,
    /// The reachable nodes, each after its dominator. The first element is NOBODY: it stands for a virtual node above
    /// all roots.
    pub(crate) order: Vec<u32>,
}

/// A depth-first search, which numbers the nodes in the order in which it meets them. Number 0 is a virtual node above
/// all roots.
struct Search {
    order: Vec<u32>,
    numbers: Vec<u32>,
    parents: Vec<u32>,
    /// A bit for each edge that the search followed.
    taken: Bits,
}

/// A node on the current path of the search.
/// - `next`, `end`: the range of its edges that the search has not followed yet.
/// - `all`: whether all its edges, except STRAY ones, keep their targets alive. If not, this depends on the target.
struct PathNode {
    node: u32,
    number: u32,
    next: u32,
    end: u32,
    all: bool,
}

impl Search {
    /// Number the nodes that the roots reach, in the order of a depth-first search.
    fn run(edges: &Edges, tree: &Tree, roots: &[u32], control: &Control) -> Result<Search, Cancellation> {
        let reached = tree.phases.iter().filter(|phase| **phase != NOT_REACHED).count();
        let mut search = Search {
            order: Vec::with_capacity(reached + 1),
            numbers: vec![NOBODY; edges.nodes()],
            parents: Vec::with_capacity(reached + 1),
            taken: Bits::new(edges.count() as u64),
        };
        search.order.push(NOBODY);
        search.parents.push(0);
        let mut open: Vec<PathNode> = Vec::new();
        for root in roots {
            if search.numbers[*root as usize] == NOBODY {
                open.push(search.enter(*root, 0, edges, tree));
            }
            while let Some(above) = open.last_mut() {
                if above.next == above.end {
                    open.pop();
                    continue;
                }
                let (place, parent) = (above.next, above.number);
                above.next += 1;
                search.look_ahead(place, above.end, edges, tree);
                let (target, strength) = split(edges.at(place));
                if search.numbers[target as usize] != NOBODY {
                    continue;
                }
                if tree.counts_among(above.all, above.node, target, strength) {
                    search.taken.set(place.into());
                    open.push(search.enter(target, parent, edges, tree));
                    if search.order.len() % OFTEN == 0 {
                        control.advance(0)?;
                    }
                }
            }
        }
        Ok(search)
    }

    /// Prefetch the target of the edge that lies SOON edges after `place` in a node's row. The search will need it
    /// soon.
    #[inline(always)]
    fn look_ahead(&self, place: u32, end: u32, edges: &Edges, tree: &Tree) {
        const SOON: u32 = prefetch::SOON as u32;
        if end - place > SOON {
            let target = split(edges.at(place + SOON)).0;
            fetch(&self.numbers, target as usize);
            edges.fetch_row(target);
            tree.fetch(target);
            edges.fetch_edges(split(edges.at(place + SOON * 2 / 3)).0);
            if let Some(edge) = edges.of(split(edges.at(place + SOON / 3)).0).first() {
                let next = split(*edge).0;
                fetch(&self.numbers, next as usize);
                edges.fetch_row(next);
                tree.fetch(next);
            }
        }
    }

    /// Prefetch the edges of the nodes that the loop in `incoming` reaches a few steps after `number`.
    #[inline(always)]
    fn fetch_sources(&self, number: usize, edges: &Edges, tree: &Tree) {
        const SOON: usize = 3 * prefetch::SOON;
        if let Some(nodes) = self.order.get(number..=number + SOON) {
            tree.fetch(nodes[SOON]);
            edges.fetch_row(nodes[SOON]);
            edges.fetch_edges(nodes[2 * SOON / 3]);
            if let Some(edge) = edges.of(nodes[SOON / 3]).first() {
                fetch(&self.numbers, split(*edge).0 as usize);
            }
        }
    }

    fn enter(&mut self, node: u32, parent: u32, edges: &Edges, tree: &Tree) -> PathNode {
        let number = self.order.len() as u32;
        self.numbers[node as usize] = number;
        self.order.push(node);
        self.parents.push(parent);
        let (next, end) = edges.row(node);
        PathNode { node, number, next, end, all: tree.counts_all(node) }
    }

    /// Return the predecessors of each node, in compressed rows `(starts, numbers)`. Nodes are given by their numbers
    /// in the search. Edges that the search followed are left out, because `parents` has their sources.
    fn incoming(&self, edges: &Edges, tree: &Tree, roots: &[u32]) -> (Vec<u32>, Vec<u32>) {
        // Collect the pairs first, so that each target's number is looked up only once: each look-up is a cache miss.
        let left = roots.len() + edges.count() - edges.count().min(self.order.len() - 1);
        let mut pairs: Vec<(u32, u32)> = Vec::with_capacity(left);
        pairs.extend(roots.iter().map(|root| (self.numbers[*root as usize], 0)));
        for (number, node) in (1..).zip(&self.order[1..]) {
            self.fetch_sources(number as usize, edges, tree);
            let (all, (start, end)) = (tree.counts_all(*node), edges.row(*node));
            for place in start..end {
                if self.taken.get(place.into()) {
                    continue;
                }
                let (target, strength) = split(edges.at(place));
                let to = self.numbers[target as usize];
                if to != NOBODY && to != number && tree.counts_among(all, *node, target, strength) {
                    pairs.push((to, number));
                }
            }
        }
        in_rows(self.order.len(), pairs.iter().copied())
    }

    /// Return the immediate dominator of each node. Nodes are given by their numbers in the search.
    fn dominators(&self, starts: &[u32], sources: &[u32], control: &Control) -> Result<Vec<u32>, Cancellation> {
        let count = self.order.len();
        let mut semi = self.parents.clone();
        let mut ancestors = self.parents.clone();
        let mut labels: Vec<u32> = (0..count as u32).collect();
        let mut path = Vec::new();
        for number in (1..count as u32).rev() {
            let mut best = self.parents[number as usize];
            for source in &sources[starts[number as usize] as usize..starts[number as usize + 1] as usize] {
                let found = evaluate(*source, number + 1, &mut ancestors, &mut labels, &semi, &mut path);
                // If the source has a lower number, the source itself is the answer.
                let reach = if *source <= number { *source } else { semi[found as usize] };
                best = best.min(reach);
            }
            semi[number as usize] = best;
            if number as usize % OFTEN == 0 {
                control.advance(0)?;
            }
        }
        drop((ancestors, labels));
        let mut above = self.parents.clone();
        for number in 1..count {
            let mut candidate = above[number];
            while candidate > semi[number] {
                candidate = above[candidate as usize];
            }
            above[number] = candidate;
        }
        Ok(above)
    }
}

/// Return the node with the smallest semidominator on the path from `node` up to the root of its tree. Only nodes with
/// the number `linked` or a higher number are linked into trees. The path is shortened for later calls.
fn evaluate(
    node: u32,
    linked: u32,
    ancestors: &mut [u32],
    labels: &mut [u32],
    semi: &[u32],
    path: &mut Vec<u32>,
) -> u32 {
    if node < linked || ancestors[node as usize] < linked {
        return labels[node as usize];
    }
    path.clear();
    let mut at = node;
    while ancestors[at as usize] >= linked {
        path.push(at);
        at = ancestors[at as usize];
    }
    let (mut best, top) = (labels[at as usize], ancestors[at as usize]);
    while let Some(below) = path.pop() {
        ancestors[below as usize] = top;
        let own = labels[below as usize];
        if semi[best as usize] < semi[own as usize] {
            labels[below as usize] = best;
        } else {
            best = own;
        }
    }
    labels[node as usize]
}

/// The dominators, as numbers of the depth-first search.
/// - `order`: the node with each number.
/// - `numbers`: the number of each node.
/// - `above`: for each number, the number of the immediate dominator.
struct DominatorTree {
    order: Vec<u32>,
    numbers: Vec<u32>,
    above: Vec<u32>,
}

impl DominatorTree {
    /// Compute immediate dominators. If `tree` is passed by value, it is dropped as soon as it is no longer needed.
    fn of(
        edges: &Edges,
        tree: impl Borrow<Tree>,
        roots: &[u32],
        control: &Control,
    ) -> Result<DominatorTree, Cancellation> {
        let search = Search::run(edges, tree.borrow(), roots, control)?;
        let (starts, sources) = search.incoming(edges, tree.borrow(), roots);
        drop(tree);
        let above = search.dominators(&starts, &sources, control)?;
        let Search { order, numbers, .. } = search;
        Ok(DominatorTree { order, numbers, above })
    }

    /// Return the retained size of each node, by node. `sizes`: the own size of each node.
    fn retained(&self, sizes: Vec<u64>) -> Vec<u64> {
        let mut found = sizes;
        // Sum up by number first, because a node and its dominator have numbers that are close together.
        let own = |node: &u32| found.get(*node as usize).copied().unwrap_or(0);
        let mut retained: Vec<u64> = self.order.iter().map(own).collect();
        for number in (1..self.order.len()).rev() {
            retained[self.above[number] as usize] += retained[number];
        }
        for (bytes, number) in found.iter_mut().zip(&self.numbers).filter(|(_, number)| **number != NOBODY) {
            *bytes = retained[*number as usize];
        }
        found
    }
}

/// Return only the retained size of each node, by node. `sizes` returns the own size of each node in bytes. If `tree`
/// is passed by value, it is dropped early, as in `DominatorTree::of`.
pub(crate) fn retained(
    edges: &Edges,
    tree: impl Borrow<Tree>,
    roots: &[u32],
    sizes: impl FnOnce() -> Vec<u64>,
    control: &Control,
) -> Result<Vec<u64>, Cancellation> {
    Ok(DominatorTree::of(edges, tree, roots, control)?.retained(sizes()))
}

impl Dominators {
    /// Compute dominators and retained sizes. `sizes` returns the own size of each node in bytes.
    pub(crate) fn find(
        edges: &Edges,
        tree: &Tree,
        roots: &[u32],
        sizes: impl FnOnce() -> Vec<u64>,
        control: &Control,
    ) -> Result<Dominators, Cancellation> {
        let found = DominatorTree::of(edges, tree, roots, control)?;
        let retained = found.retained(sizes());
        let dominator = |number: &u32| match *number {
            NOBODY => NOBODY,
            number => found.order[found.above[number as usize] as usize],
        };
        let above = found.numbers.iter().map(dominator).collect();
        Ok(Dominators { above, retained, order: found.order })
    }

    /// Return the nodes that dominate `node`, outermost first, and then `node` itself.
    pub(crate) fn chain(&self, node: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = node;
        while at != NOBODY {
            found.push(at);
            at = self.above[at as usize];
        }
        found.reverse();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Rules, PHASES};
    use super::*;
    use gdbheap_access::testing::NoWatcher;
    use gdbheap_access::work::Task;
    use std::collections::BTreeSet;
    use std::time::{SystemTime, UNIX_EPOCH};

    /// For each node, the set of the nodes to which it has edges.
    type Plain = Vec<BTreeSet<u32>>;

    fn rows(plain: &Plain) -> Edges {
        Edges::of_rows(plain.iter().map(|row| row.iter().copied()))
    }

    /// Return the nodes that the roots reach on paths that do not contain the node `without`.
    fn reached(plain: &Plain, roots: &[u32], without: Option<u32>) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut open: Vec<u32> = roots.to_vec();
        while let Some(node) = open.pop() {
            if Some(node) != without && found.insert(node) {
                open.extend(&plain[node as usize]);
            }
        }
        found
    }

    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    /// Check that a node dominates exactly the nodes that cannot be reached without it.
    #[test]
    fn dominators_are_those_without_which_nothing_is_reached() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
        let mut state = std::env::var("GDBHEAP_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(now);
        println!("GDBHEAP_SEED={state}");
        for _ in 0..60 {
            let nodes = 2 + next(&mut state) % 40;
            let mut plain: Plain = vec![BTreeSet::new(); nodes as usize];
            for _ in 0..next(&mut state) % (3 * nodes) {
                let (from, to) = (next(&mut state) % nodes, next(&mut state) % nodes);
                plain[from as usize].insert(to as u32);
            }
            let roots: Vec<u32> = (0..1 + next(&mut state) % 3).map(|root| root as u32 % nodes as u32).collect();
            let roots: Vec<u32> = roots.into_iter().collect::<BTreeSet<u32>>().into_iter().collect();
            let sizes: Vec<u64> = (0..nodes).map(|_| next(&mut state) % 1000).collect();
            let (edges, mut phases): (Edges, [Vec<u32>; PHASES]) = (rows(&plain), Default::default());
            phases[0] = roots.clone();
            let task = Task { watcher: &NoWatcher, total: None, inline: true };
            let found = task.alone(|control| {
                let tree = Tree::grow(&edges, &phases, Rules::Objects, &[], control)?;
                Dominators::find(&edges, &tree, &roots, || sizes.clone(), control)
            });
            let found = found.expect("not cancelled");
            let alone = task.alone(|control| {
                let tree = Tree::grow(&edges, &phases, Rules::Objects, &[], control)?;
                retained(&edges, tree, &roots, || sizes.clone(), control)
            });
            assert_eq!(alone.expect("not cancelled"), found.retained);
            let all = reached(&plain, &roots, None);
            for node in 0..nodes as u32 {
                let lost: BTreeSet<u32> = all.difference(&reached(&plain, &roots, Some(node))).copied().collect();
                let dominated: BTreeSet<u32> =
                    all.iter().copied().filter(|other| found.chain(*other).contains(&node)).collect();
                assert_eq!(dominated, lost, "{node} of {plain:?} from {roots:?}");
                if all.contains(&node) {
                    let own: u64 = lost.iter().map(|node| sizes[*node as usize]).sum();
                    assert_eq!(found.retained[node as usize], own, "{node}");
                }
            }
        }
    }
}
