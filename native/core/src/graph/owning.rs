//! Find the owner of each block, the same for all answers. An object owns itself and the buffers that its fields claim.
//! A block of C code belongs to the nearest object or root on the shortest chain to it; chains over stronger edges come
//! first.

use super::csr::split;
use super::edges::{is_object, BUFFER, EXACT, IDLE, KIND, STRAY};
use super::ids::Node;
use super::queries::Graph;
use super::tree::{Tree, NOBODY, NOT_REACHED};
use crate::allocators::block::{Block, BlockId};
use crate::python::owner::{Owner, Owners};
use crate::python::types::Types;
use gdbheap_access::error::{Cancellation, Result};
use gdbheap_access::work::{Control, Watcher};

const OFTEN: usize = 1 << 20;

impl Owners for Graph {
    fn each_owner(&self, watcher: &dyn Watcher, show: &mut dyn FnMut(Block, Owner)) -> Result<()> {
        let (owners, blocks) = (self.owners(watcher)?, self.blocks());
        for (store, ranked) in (0u32..).zip(&self.ids.stores) {
            for (id, number) in (ranked.first..).zip(ranked.members()) {
                let owner = owners[id as usize];
                if owner == NOBODY || owner == id {
                    continue;
                }
                let owner = match blocks.node(owner) {
                    Node::Root(place) => Owner::Root(place),
                    Node::Block { address, .. } | Node::Static(address) => {
                        Owner::Object { address, type_address: self.type_of(owner) }
                    }
                };
                show(blocks.heaps.block_of(BlockId { store, number }), owner);
            }
        }
        Ok(())
    }
}

impl Graph {
    /// Return the owner of each node, by the node's number. The owner is the number of an object or a root, or
    /// `u32::MAX` if the node has no owner. Objects and roots own themselves.
    pub(crate) fn owners(&self, watcher: &dyn Watcher) -> Result<&[u32]> {
        let tree = self.tree(watcher)?;
        if self.owners.get().is_none() {
            let found = self.alone(watcher, |control| self.find_owners(tree, control))?;
            let _ = self.owners.set(found);
        }
        Ok(self.owners.get().map_or(&[], Vec::as_slice))
    }

    /// Return the owner of each of `ids`, or `u32::MAX` for a node without an owner; see `owners`.
    pub fn owners_of(&self, watcher: &dyn Watcher, ids: &[u32]) -> Result<Vec<u32>> {
        let owners = self.owners(watcher)?;
        ids.iter().map(|id| Ok(owners[self.check(*id)? as usize])).collect()
    }

    fn find_owners(&self, tree: &Tree, control: &Control) -> Result<Vec<u32>, Cancellation> {
        let mut owners = vec![NOBODY; self.ids.count()];
        self.claim_buffers(&mut owners, control)?;
        self.give_syntax(tree, &mut owners, control)?;
        let mut way = Vec::new();
        for node in 0..self.ids.count() as u32 {
            let mut at = node;
            while at != NOBODY && owners[at as usize] == NOBODY && tree.phases[at as usize] != NOT_REACHED {
                way.push(at);
                at = tree.before[at as usize];
            }
            // The way up ends at a root, or at a node whose owner is already known.
            let mut owner = match at {
                NOBODY => way.last().copied().unwrap_or(NOBODY),
                known => owners[known as usize],
            };
            for passed in way.drain(..).rev() {
                owner = if self.owns(passed) { passed } else { owner };
                owners[passed as usize] = owner;
            }
            if node as usize % OFTEN == 0 {
                control.advance(0)?;
            }
        }
        self.follow_unreached(tree, &mut owners, control)?;
        Ok(owners)
    }

    /// Return whether a node is its own owner.
    fn owns(&self, id: u32) -> bool {
        id >= self.ids.first_static || is_object(self.kinds[id as usize]) || self.kinds[id as usize] & IDLE != 0
    }

    /// Assign each block that contains a syntax tree to the root of its shortest chain: such blocks belong to the
    /// compiler, even if objects point to them.
    fn give_syntax(&self, tree: &Tree, owners: &mut [u32], control: &Control) -> Result<(), Cancellation> {
        let roots = roots_above(&tree.before, self.ids.first_root, &self.syntax, control)?;
        self.syntax.iter().zip(roots).for_each(|(id, root)| owners[*id as usize] = root);
        Ok(())
    }

    /// Return for each type, by the type's number, whether fields of its objects claim buffers.
    fn claiming_types(&self) -> Vec<bool> {
        let Some(layout) = &self.layout else { return Vec::new() };
        let mut types = Types::new(self.heaps.lend(), layout);
        let mut claims =
            |address: u64| types.lookup(address).is_some_and(|at| !types.kinds[at as usize].claims.is_empty());
        self.types.iter().map(|address| claims(*address)).collect()
    }

    /// Make all objects their own owners, and assign each buffer to the first object whose field claims it. Objects of
    /// types that claim nothing are skipped, because they only refer to buffers. For example, a text file refers to the
    /// state of its module.
    fn claim_buffers(&self, owners: &mut [u32], control: &Control) -> Result<(), Cancellation> {
        let claiming = self.claiming_types();
        let claims = |id: u32| {
            let number = (self.kinds[id as usize] & KIND) as usize;
            number > 0 && claiming.get(number - 1).copied().unwrap_or(false)
        };
        for id in (0..self.ids.first_root).filter(|id| self.owns(*id)) {
            owners[id as usize] = id;
            let edges = if claims(id) { self.edges.of(id) } else { &[] };
            for edge in edges {
                let (target, strength) = split(*edge);
                let is_buffer = self.kinds[target as usize] & BUFFER != 0;
                if strength == EXACT && is_buffer && owners[target as usize] == NOBODY {
                    owners[target as usize] = id;
                }
            }
            if id as usize % OFTEN == 0 {
                control.advance(0)?;
            }
        }
        Ok(())
    }

    /// Assign the blocks that only unreached objects reach to those objects. The strongest edges are followed first.
    fn follow_unreached(&self, tree: &Tree, owners: &mut [u32], control: &Control) -> Result<(), Cancellation> {
        let is_syntax = |id: &u32| self.syntax.binary_search(id).is_ok();
        let is_open = |id: &u32| tree.phases[*id as usize] == NOT_REACHED && !is_syntax(id);
        let mut queue: Vec<u32> = (0..self.ids.first_static).filter(is_open).collect();
        queue.retain(|id| owners[*id as usize] != NOBODY);
        for limit in EXACT..=STRAY {
            let mut next = 0;
            while let Some(node) = queue.get(next).copied() {
                next += 1;
                for edge in self.edges.of(node) {
                    let (target, strength) = split(*edge);
                    if strength <= limit && owners[target as usize] == NOBODY && is_open(&target) {
                        owners[target as usize] = owners[node as usize];
                        queue.push(target);
                    }
                }
                if next % OFTEN == 0 {
                    control.advance(0)?;
                }
            }
        }
        Ok(())
    }
}

/// Return, for each of `ids`, the root of its chain, or NOBODY. `before`: for each node, the previous node on its
/// chain. Each node is passed only once.
fn roots_above(before: &[u32], first_root: u32, ids: &[u32], control: &Control) -> Result<Vec<u32>, Cancellation> {
    const OPEN: u32 = NOBODY - 1;
    let mut above = vec![OPEN; if ids.is_empty() { 0 } else { before.len() }];
    let (mut found, mut way) = (Vec::new(), Vec::new());
    for (number, id) in ids.iter().enumerate() {
        let mut at = *id;
        // A chain ends at a root, or at NOBODY, which is larger than every number of a node.
        while at < first_root && above[at as usize] == OPEN {
            way.push(at);
            at = before[at as usize];
        }
        let root = if at < first_root { above[at as usize] } else { at };
        way.drain(..).for_each(|passed| above[passed as usize] = root);
        found.push(root);
        if number % OFTEN == 0 {
            control.advance(0)?;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{roots_above, NOBODY};
    use gdbheap_access::error::Error;
    use gdbheap_access::testing::{CancellingWatcher, NoWatcher};
    use gdbheap_access::work::{Task, Watcher};

    /// Build a chain of `count` nodes from the root 2 * count, with `count` further nodes below its end. Return the
    /// roots that `roots_above` finds for these further nodes.
    fn roots_of(watcher: &dyn Watcher, count: u32) -> Result<Vec<u32>, Error> {
        let chain = (0..count).map(|node| if node == 0 { 2 * count } else { node - 1 });
        let before: Vec<u32> = chain.chain((0..count).map(|_| count - 1)).chain([NOBODY]).collect();
        let ids: Vec<u32> = (count..2 * count).collect();
        Task { watcher, total: None, inline: true }.alone(|control| roots_above(&before, 2 * count, &ids, control))
    }

    #[test]
    fn long_chains_are_passed_once() {
        const MANY: u32 = 300_000;
        assert_eq!(roots_of(&NoWatcher, MANY).unwrap(), vec![2 * MANY; MANY as usize]);
        assert!(matches!(roots_of(&CancellingWatcher, MANY), Err(Error::Cancelled)));
        let watched = Task { watcher: &NoWatcher, total: None, inline: true };
        let alone = watched.alone(|control| roots_above(&[1, NOBODY, NOBODY], 2, &[0, 1], control));
        assert_eq!(alone.unwrap(), [NOBODY, NOBODY]);
    }
}
