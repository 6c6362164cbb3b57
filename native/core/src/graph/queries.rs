//! The finished graph, and the queries on it.

use super::csr::{split, Edges};
use super::dominators::{self, Dominators};
use super::edges::{is_object, BUFFER, IDLE, KIND};
use super::ids::{Blocks, Ids, Node};
use super::proof::Proof;
use super::retained_set::{self, RetainedSet};
use super::tree::{self, Rules, Tree, NOT_REACHED, PHASES};
use crate::allocators::heaps::SharedHeaps;
use crate::allocators::tally::Tally;
use crate::python::layout::TypeLayout;
use crate::top_rows::TopRows;
use gdbheap_access::error::{Cancellation, Error, Result};
use gdbheap_access::work::{Control, Watcher};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

/// The largest number of dominators of a node, nearest first, that are searched for an object.
const MAX_BETWEEN: usize = 16;

/// Return whether an object retains at least 99 % of the bytes that the object which dominates it retains.
pub(super) fn is_equal(retained: u64, of_above: u64) -> bool {
    u128::from(retained) * 100 >= u128::from(of_above) * 99
}

/// The reference graph: the references between all blocks of one target.
pub struct Graph {
    pub(super) heaps: SharedHeaps,
    /// The layout of types; None if the target has no objects.
    pub(super) layout: Option<TypeLayout>,
    pub(super) ids: Ids,
    pub(super) edges: Edges,
    pub(super) kinds: Vec<u32>,
    pub(super) types: Vec<u64>,
    phases: [Vec<u32>; PHASES],
    pub(super) proof: Proof,
    /// The numbers of blocks that contain syntax trees, ascending.
    pub(super) syntax: Vec<u32>,
    /// Objects that only pass on an address (`Form::is_handle`).
    handles: Vec<u32>,
    /// The address of each node, computed at the first request.
    pub(super) places: OnceLock<Vec<u64>>,
    tree: OnceLock<Tree>,
    dominators: OnceLock<Dominators>,
    pub(super) owners: OnceLock<Vec<u32>>,
    /// The kinds of blocks of C code, if they were set: pairs of a block's number and the number of its kind, by
    /// ascending block number.
    named: OnceLock<Vec<(u32, u32)>>,
}

/// A node of the graph: a block, a static type or a root.
#[derive(Clone, Copy, Debug)]
pub struct NodeRow {
    /// The sort of node: block, static or root.
    pub place: &'static str,
    /// The first byte of a block, the address of a static type, or the index of a root in the list of roots that was
    /// given.
    pub address: u64,
    pub size: u64,
    /// The address of the type; 0 if there is no object.
    pub type_address: u64,
    /// The kind of the node: object, idle (on a free list), buffer or unknown.
    pub kind: &'static str,
}

/// The objects of one type, and the bytes that would be freed if all these objects were removed.
#[derive(Clone, Copy, Debug)]
pub struct RetainedByType {
    pub type_address: u64,
    pub count: u64,
    pub bytes: u64,
    pub retained: u64,
}

impl Graph {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        heaps: SharedHeaps,
        layout: Option<TypeLayout>,
        ids: Ids,
        edges: Edges,
        kinds: Vec<u32>,
        types: Vec<u64>,
        phases: [Vec<u32>; PHASES],
        proof: Proof,
        mut syntax: Vec<u32>,
        handles: Vec<u32>,
    ) -> Graph {
        syntax.sort_unstable();
        let (places, tree, dominators, owners, named) = Default::default();
        Graph {
            heaps,
            layout,
            ids,
            edges,
            kinds,
            types,
            phases,
            proof,
            syntax,
            handles,
            places,
            tree,
            dominators,
            owners,
            named,
        }
    }

    /// Set the kinds of blocks of C code, by which these blocks are grouped. `kind_at` returns the kind of the block at
    /// an address, or 0 if the kind is unknown. Only the first call has an effect.
    pub fn name_blocks(&self, kind_at: impl Fn(u64) -> u32) {
        let blocks = self.blocks();
        let kind_of = |id: u32| match blocks.node(id) {
            Node::Block { address, .. } => kind_at(address),
            _ => 0,
        };
        let unknown = (0..self.ids.first_static).filter(|id| self.kinds[*id as usize] == 0);
        let named = unknown.map(|id| (id, kind_of(id))).filter(|(_, kind)| *kind != 0).collect();
        let _ = self.named.set(named);
    }

    /// Return the kind of a block that C code allocated; 0 if no kind was set for the block.
    pub(super) fn named(&self, id: u32) -> u32 {
        let named = self.named.get().map_or(&[][..], Vec::as_slice);
        named.binary_search_by_key(&id, |(node, _)| *node).map_or(0, |place| named[place].1)
    }

    pub(super) fn blocks(&self) -> Blocks<'_> {
        Blocks { heaps: self.heaps.lend(), ids: &self.ids }
    }

    pub(super) fn check(&self, id: u32) -> Result<u32> {
        match (id as usize) < self.ids.count() {
            true => Ok(id),
            false => Err(Error::invalid("no such node")),
        }
    }

    pub(super) fn type_of(&self, id: u32) -> u64 {
        match self.kinds[id as usize] & KIND {
            0 => 0,
            number => self.types[number as usize - 1],
        }
    }

    pub(super) fn alone<T: Send>(
        &self,
        watcher: &dyn Watcher,
        work: impl Fn(&Control<'_>) -> Result<T, Cancellation> + Sync,
    ) -> Result<T> {
        self.heaps.space.task(watcher, None).alone(work)
    }

    fn grow(&self, control: &Control) -> Result<Tree, Cancellation> {
        let tree = Tree::grow(&self.edges, &self.phases, self.rules(), &self.handles, control)?;
        Ok(match self.rules() {
            Rules::Objects => tree.with_raw((0..self.ids.first_static).filter(|id| self.kinds[*id as usize] == 0)),
            Rules::Blocks => tree,
        })
    }

    pub(super) fn tree(&self, watcher: &dyn Watcher) -> Result<&Tree> {
        if self.tree.get().is_none() {
            let tree = self.alone(watcher, |control| self.grow(control))?;
            let _ = self.tree.set(tree);
        }
        self.tree.get().ok_or(Error::Memory("no tree"))
    }

    pub(super) fn dominators(&self, watcher: &dyn Watcher) -> Result<&Dominators> {
        let tree = self.tree(watcher)?;
        if self.dominators.get().is_none() {
            let mut roots = self.phases.concat();
            if self.proof.is_cut {
                let bounds = (self.ids.first_static, self.ids.first_root);
                // A word that was not read may point to these nodes, so they are treated as roots.
                roots.extend(self.proof.doubtful(&self.edges, tree, &self.kinds, bounds));
            }
            let find = |control: &Control| Dominators::find(&self.edges, tree, &roots, || self.sizes(), control);
            let found = self.alone(watcher, find)?;
            let _ = self.dominators.set(found);
        }
        self.dominators.get().ok_or(Error::Memory("no dominators"))
    }

    /// Return the retained size of each node, by the node's number. New dominators are dropped after use, because a
    /// table of all nodes is large.
    pub fn retained_of_all(&self, watcher: &dyn Watcher) -> Result<Vec<u64>> {
        if let Some(known) = self.dominators.get() {
            return Ok(known.retained.clone());
        }
        if self.proof.is_cut {
            return Ok(self.dominators(watcher)?.retained.clone());
        }
        let roots = self.phases.concat();
        self.alone(watcher, |control| match self.tree.get() {
            Some(tree) => dominators::retained(&self.edges, tree, &roots, || self.sizes(), control),
            None => {
                let tree = self.grow(control)?;
                dominators::retained(&self.edges, tree, &roots, || self.sizes(), control)
            }
        })
    }

    fn rules(&self) -> Rules {
        if self.layout.is_some() {
            Rules::Objects
        } else {
            Rules::Blocks
        }
    }

    /// Return the size of each node in bytes, by the node's number.
    pub(super) fn sizes(&self) -> Vec<u64> {
        let mut sizes = Vec::with_capacity(self.ids.count());
        self.show_groups(|_first, size, count| sizes.extend(std::iter::repeat_n(size, count as usize)));
        sizes.resize(self.ids.count(), 0);
        sizes
    }

    /// Call `show(first, size, count)` for each run of used blocks of the same size, in the order of their numbers.
    /// `first`: the number of the first block of the run.
    fn show_groups(&self, mut show: impl FnMut(u32, u64, u32)) {
        let mut first = 0;
        for (store, ranked) in self.heaps.stores.iter().zip(&self.ids.stores) {
            let count = |from, to| u64::from(ranked.id_from(to) - ranked.id_from(from));
            store.show_sizes(count, |size, count| {
                show(first, size, count as u32);
                first += count as u32;
            });
        }
    }

    /// Return how many nodes the graph has: blocks, static types and roots.
    pub fn nodes(&self) -> usize {
        self.ids.count()
    }

    /// Return how many edges the graph has, including uncertain ones of all strengths.
    pub fn edge_count(&self) -> usize {
        self.edges.count()
    }

    /// Return the number of the block that contains `address`, or of the static type at `address`; None elsewhere.
    pub fn find(&self, address: u64) -> Option<u32> {
        self.blocks().find(address).map(|found| found.id)
    }

    /// Return the node with this number. Fails if there is no such node.
    pub fn node(&self, id: u32) -> Result<NodeRow> {
        let id = self.check(id)?;
        let kind = match self.kinds[id as usize] {
            kind if kind & BUFFER != 0 => "buffer",
            kind if kind & IDLE != 0 => "idle",
            0 => "unknown",
            _ => "object",
        };
        let row = |place, address, size, type_address, kind| NodeRow { place, address, size, type_address, kind };
        Ok(match self.blocks().node(id) {
            Node::Block { address, size, .. } => row("block", address, size, self.type_of(id), kind),
            Node::Static(address) => row("static", address, 0, self.type_of(id), "object"),
            Node::Root(place) => row("root", u64::from(place), 0, 0, "unknown"),
        })
    }

    /// Return the edges of a node as `(target, strength)`. Strengths: 0 exact, 1 likely, 2 doubtful, 3 stray.
    pub fn edges(&self, id: u32) -> Result<Vec<(u32, u32)>> {
        Ok(self.edges.of(self.check(id)?).iter().map(|edge| split(*edge)).collect())
    }

    /// Return the references to any of the nodes `ids`, as `(source, target, strength)`, by source. All edges of the
    /// graph are read.
    pub fn referrers(&self, watcher: &dyn Watcher, ids: &HashSet<u32>) -> Result<Vec<(u32, u32, u32)>> {
        let (low, high) = (ids.iter().min().copied().unwrap_or(1), ids.iter().max().copied().unwrap_or(0));
        self.alone(watcher, |control| {
            let mut found = Vec::new();
            for source in 0..self.ids.count() as u32 {
                for edge in self.edges.of(source) {
                    let (target, strength) = split(*edge);
                    if target >= low && target <= high && ids.contains(&target) {
                        found.push((source, target, strength));
                    }
                }
                if source % (1 << 20) == 0 {
                    control.advance(0)?;
                }
            }
            Ok(found)
        })
    }

    /// Return a shortest chain from a root to the node, which comes last; empty if the node is unreachable. If `last`
    /// is given, return only this many nodes at the end of the chain.
    pub fn chain(&self, watcher: &dyn Watcher, id: u32, last: Option<usize>) -> Result<Vec<u32>> {
        let id = self.check(id)?;
        Ok(self.tree(watcher)?.chain(id, last.unwrap_or(usize::MAX)))
    }

    /// Return the phase in which each of `ids` was reached (tree.rs); 7 for an unreachable node.
    pub fn phases(&self, watcher: &dyn Watcher, ids: &[u32]) -> Result<Vec<u8>> {
        let tree = self.tree(watcher)?;
        ids.iter().map(|id| Ok(tree.phases[self.check(*id)? as usize])).collect()
    }

    /// Return the nodes that dominate the node, outermost first, and then the node itself. If `ends` is given, return
    /// at most the first `ends` and the last `ends` of them.
    pub fn dominator_chain(&self, watcher: &dyn Watcher, id: u32, ends: Option<usize>) -> Result<Vec<u32>> {
        let id = self.check(id)?;
        let mut chain = self.dominators(watcher)?.chain(id);
        if let Some(ends) = ends.filter(|ends| chain.len() / 2 > *ends) {
            chain.drain(ends..chain.len() - ends);
        }
        Ok(chain)
    }

    /// Return the retained size of each of `ids`: the bytes of the node itself and of everything that it dominates.
    pub fn retained(&self, watcher: &dyn Watcher, ids: &[u32]) -> Result<Vec<u64>> {
        let found = self.dominators(watcher)?;
        ids.iter().map(|id| Ok(found.retained[self.check(*id)? as usize])).collect()
    }

    /// Return, for each node, the innermost of the other nodes in `among` that dominate it. The result for a node is
    /// the index in `among` plus one, 0 if no node in `among` dominates it, or `u16::MAX` if it is unreachable. Fails
    /// if `among` has 65,535 nodes or more.
    pub fn innermost(&self, watcher: &dyn Watcher, among: &[u32]) -> Result<Vec<u16>> {
        if among.len() >= usize::from(u16::MAX) {
            return Err(Error::invalid("too many nodes"));
        }
        let found = self.dominators(watcher)?;
        let mut own = HashMap::new();
        for (id, place) in among.iter().zip(1u16..) {
            own.insert(self.check(*id)?, place);
        }
        let mut holders = vec![u16::MAX; self.ids.count()];
        // The first entry of the order is not a node: it stands above all roots.
        for node in found.order.iter().skip(1) {
            let above = found.above[*node as usize];
            holders[*node as usize] = match own.get(&above) {
                Some(place) => *place,
                None if above == tree::NOBODY => 0,
                None => holders[above as usize],
            };
        }
        Ok(holders)
    }

    /// Return the objects that retain the most, as `(id, bytes)`, largest first. An object has no row if it is folded
    /// into the nearest object that dominates it. An object is folded in three cases: both objects have the same type
    /// (unless the outer one is in `open`); both retain nearly the same bytes (`is_equal`); the inner one retains only
    /// its own block. Objects in `without` have no rows, and nothing is folded into them. An object that is not folded
    /// but retains only its own block has a row only if it has at least `least` bytes.
    pub fn top_retained(
        &self,
        watcher: &dyn Watcher,
        top: Option<usize>,
        without: &HashSet<u32>,
        open: &HashSet<u32>,
        least: u64,
    ) -> Result<Vec<(u32, u64)>> {
        let (tree, found) = (self.tree(watcher)?, self.dominators(watcher)?);
        let blocks = self.blocks();
        let above_of = |id: u32| self.object_above(found, id).filter(|above| !without.contains(above));
        let equal_above = |id: u32| {
            let above = above_of(id)?;
            is_equal(found.retained[id as usize], found.retained[above as usize]).then_some(above)
        };
        // Compare with the object into whose row the outer object is folded: a dict in an instance's dict is no nested
        // dict.
        let head_of =
            |id: u32| std::iter::successors(Some(id), |id| equal_above(*id)).take(MAX_BETWEEN).last().unwrap_or(id);
        let is_nested = |id: u32, above: u32| {
            let head = head_of(above);
            self.kinds[head as usize] == self.kinds[id as usize] && !open.contains(&head)
        };
        let has_row = |id: u32| {
            let is_leaf = || found.retained[id as usize] <= blocks.node(id).size();
            match above_of(id) {
                None if is_leaf() => found.retained[id as usize] >= least && tree.phases[id as usize] != NOT_REACHED,
                None => true,
                Some(above) => equal_above(id).is_none() && !is_nested(id, above) && !is_leaf(),
            }
        };
        let wanted = |id: &u32| is_object(self.kinds[*id as usize]) && !without.contains(id) && has_row(*id);
        let ids = (0..self.ids.first_static).filter(wanted);
        let mut rows: Vec<(u32, u64)> = ids.map(|id| (id, found.retained[id as usize])).collect();
        let order = |row: &(u32, u64)| (std::cmp::Reverse(row.1), row.0);
        if let Some(top) = top.filter(|top| *top < rows.len()) {
            rows.select_nth_unstable_by_key(top, order);
            rows.truncate(top);
        }
        rows.sort_unstable_by_key(order);
        Ok(rows)
    }

    /// Return the nearest object that dominates a node; None if a root or a static type, or MAX_BETWEEN other blocks,
    /// come before such an object.
    fn object_above(&self, found: &Dominators, id: u32) -> Option<u32> {
        let up = std::iter::successors(Some(id), |id| {
            let above = found.above[*id as usize];
            (above < self.ids.first_static).then_some(above)
        });
        up.skip(1).take(MAX_BETWEEN).find(|above| is_object(self.kinds[*above as usize]))
    }

    /// Return, for each of `ids`, the innermost object that the node dominates and that retains nearly the same bytes
    /// (`is_equal`). The objects between the two must also retain nearly as much. If there is no such object, return
    /// the node itself.
    pub fn innermost_equal(&self, watcher: &dyn Watcher, ids: &[u32]) -> Result<Vec<u32>> {
        let found = self.dominators(watcher)?;
        let sizes = ids.iter().map(|id| Ok(found.retained[self.check(*id)? as usize])).collect::<Result<Vec<_>>>()?;
        let least = sizes.into_iter().min().unwrap_or(u64::MAX) / 2;
        let mut below = HashMap::new();
        for id in (0..self.ids.first_static).filter(|id| found.retained[*id as usize] >= least.max(1)) {
            let above = is_object(self.kinds[id as usize]).then(|| self.object_above(found, id)).flatten();
            if let Some(above) =
                above.filter(|above| is_equal(found.retained[id as usize], found.retained[*above as usize]))
            {
                below.insert(above, id);
            }
        }
        let last = |id: &u32| std::iter::successors(Some(*id), |id| below.get(id).copied()).last().unwrap_or(*id);
        Ok(ids.iter().map(last).collect())
    }

    /// Return, for each type, the bytes that would be freed if all objects of the type were removed. If `top` is given,
    /// types that cannot be among the `top` largest types are left out.
    pub fn retained_by_type(&self, watcher: &dyn Watcher, top: Option<usize>) -> Result<Vec<RetainedByType>> {
        let (tree, found) = (self.tree(watcher)?, self.dominators(watcher)?);
        let kind_of = |node: u32| match self.kinds[node as usize] {
            kind if is_object(kind) => (kind & KIND) as usize,
            _ => 0,
        };
        let rows = self.alone(watcher, |control| {
            let sizes = self.sizes();
            let mut together = RetainedSet::new(&self.edges, tree, found, &sizes, self.proof.is_cut, control)?;
            retained_set::by_kind(&mut together, found, self.types.len(), kind_of, top, control)
        })?;
        let named = |(kind, count, bytes, retained): (usize, u64, u64, u64)| RetainedByType {
            type_address: self.types[kind],
            count,
            bytes,
            retained,
        };
        Ok(rows.into_iter().map(named).collect())
    }

    /// Return, for each set of nodes, the bytes that removing the whole set would free.
    pub fn retained_together(&self, watcher: &dyn Watcher, sets: &[Vec<u32>]) -> Result<Vec<u64>> {
        for id in sets.iter().flatten() {
            self.check(*id)?;
        }
        let (tree, found) = (self.tree(watcher)?, self.dominators(watcher)?);
        self.alone(watcher, |control| {
            let sizes = self.sizes();
            let mut together = RetainedSet::new(&self.edges, tree, found, &sizes, self.proof.is_cut, control)?;
            let one = |set: &Vec<u32>| {
                let members: HashSet<u32> =
                    set.iter().copied().filter(|id| tree.phases[*id as usize] != NOT_REACHED).collect();
                let is_inner = |id: u32| found.chain(id).iter().any(|above| *above != id && members.contains(above));
                let certain = members.iter().filter(|id| !is_inner(**id)).map(|id| found.retained[*id as usize]).sum();
                let all: Vec<u32> = members.iter().copied().collect();
                together.retained(&all, |node| members.contains(&node), certain, control)
            };
            sets.iter().map(one).collect()
        })
    }

    /// Return the number and the bytes of all blocks of at least `minimum` bytes, and the `top` largest of these blocks
    /// as `(id, bytes)`, largest first.
    pub fn largest(&self, minimum: u64, top: Option<usize>) -> (Tally, Vec<(u32, u64)>) {
        // Neighbours of the same size are one group here. That is faster, because most blocks lie in pools, and it
        // matters because this function is called several times.
        let order = |(id, size, _count): &(u32, u64, u32)| (Reverse(*size), *id);
        let (mut all, mut groups) = (Tally::default(), TopRows::new(top.unwrap_or(usize::MAX)));
        self.show_groups(|id, size, count| {
            if size >= minimum && count > 0 {
                all.add_many(count.into(), size);
                if top != Some(0) {
                    groups.put((id, size, count), order);
                }
            }
        });
        let groups = groups.finish(order).into_iter();
        let rows = groups.flat_map(|(first, size, count)| (first..first + count).map(move |id| (id, size)));
        (all, rows.take(top.unwrap_or(usize::MAX)).collect())
    }

    /// Return the numbers of all objects of a type, ascending; empty if the type has no objects. Objects on free lists
    /// are left out.
    pub fn objects_of(&self, type_address: u64) -> Vec<u32> {
        let Some(place) = self.types.iter().position(|address| *address == type_address) else { return Vec::new() };
        let wanted = |id: &u32| self.kinds[*id as usize] == place as u32 + 1;
        (0..self.ids.first_static).filter(wanted).collect()
    }

    /// Return the addresses of all types that have objects.
    pub fn type_addresses(&self) -> &[u64] {
        &self.types
    }
}
