//! The owner of each block, the same for all answers. An object owns itself, and the buffers that its fields name. A block of
//! C code belongs to the nearest object, or the root, on the shortest chain to it; chains over better edges come first.

use super::csr::split;
use super::edges::{is_object, BUFFER, EXACT, IDLE, KIND, STRAY};
use super::ids::Node;
use super::tree::{Tree, NOBODY, NOT_REACHED};
use super::whole::Graph;
use crate::allocators::block::{Block, Place};
use crate::error::{Cancelled, Result};
use crate::python::owner::{Owner, Owners};
use crate::python::types::Types;
use crate::work::{Control, Watcher};

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
                show(blocks.heaps.block_of(Place { store, number }), owner);
            }
        }
        Ok(())
    }
}

impl Graph {
    /// The owner of each node by number: an object or a root, itself where it is one; `u32::MAX`: nobody's.
    pub(crate) fn owners(&self, watcher: &dyn Watcher) -> Result<&[u32]> {
        let tree = self.tree(watcher)?;
        if self.owners.get().is_none() {
            let found = self.alone(watcher, |control| self.find_owners(tree, control))?;
            let _ = self.owners.set(found);
        }
        Ok(self.owners.get().map_or(&[], Vec::as_slice))
    }

    /// The owner of each of `ids`, as `owners` has it.
    pub fn owners_of(&self, watcher: &dyn Watcher, ids: &[u32]) -> Result<Vec<u32>> {
        let owners = self.owners(watcher)?;
        ids.iter().map(|id| Ok(owners[self.check(*id)? as usize])).collect()
    }

    fn find_owners(&self, tree: &Tree, control: &Control) -> Result<Vec<u32>, Cancelled> {
        let mut owners = vec![NOBODY; self.ids.count()];
        self.claim_buffers(&mut owners, control)?;
        self.give_syntax(tree, &mut owners);
        let mut way = Vec::new();
        for node in 0..self.ids.count() as u32 {
            let mut at = node;
            while at != NOBODY && owners[at as usize] == NOBODY && tree.phases[at as usize] != NOT_REACHED {
                way.push(at);
                at = tree.before[at as usize];
            }
            // The way begins at a root, or below something whose owner is known.
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

    /// Whether a node is its own owner.
    fn owns(&self, id: u32) -> bool {
        id >= self.ids.first_static || is_object(self.kinds[id as usize]) || self.kinds[id as usize] & IDLE != 0
    }

    /// Gives the blocks of syntax trees to the roots that lead to them: they are the compiler's, whoever has their address.
    fn give_syntax(&self, tree: &Tree, owners: &mut [u32]) {
        for id in &self.syntax {
            owners[*id as usize] = self.root_above(tree, owners, *id);
        }
    }

    /// The root that a block is reached from; the block before it in a chain may know.
    fn root_above(&self, tree: &Tree, owners: &[u32], id: u32) -> u32 {
        let root_of = |id: u32| if id >= self.ids.first_root { id } else { owners[id as usize] };
        let before = |id: &u32| Some(tree.before[*id as usize]).filter(|before| *before != NOBODY);
        let mut above = std::iter::successors(Some(id), before).map(root_of);
        above.find(|root| *root >= self.ids.first_root && *root != NOBODY).unwrap_or(NOBODY)
    }

    /// For each type, by its number, whether its objects own buffers by their fields.
    fn claiming_types(&self) -> Vec<bool> {
        let Some(layout) = &self.layout else { return Vec::new() };
        let mut types = Types::new(self.heaps.lend(), layout);
        let mut claims =
            |address: u64| types.lookup(address).is_some_and(|at| !types.kinds[at as usize].claims.is_empty());
        self.types.iter().map(|address| claims(*address)).collect()
    }

    /// Gives all objects to themselves, and each buffer to the first object whose field says that it is its own. Others only
    /// refer to it, as text files do to the state of their module.
    fn claim_buffers(&self, owners: &mut [u32], control: &Control) -> Result<(), Cancelled> {
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

    /// Follows the objects that no root reaches, over the best edges first.
    fn follow_unreached(&self, tree: &Tree, owners: &mut [u32], control: &Control) -> Result<(), Cancelled> {
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
