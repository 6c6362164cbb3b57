//! Queries on a graph that may be incomplete because memory could not be read.

use super::passes::order_of;
use super::queries::Graph;
use super::tree::{NOBODY, NOT_REACHED};
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::borrow::Cow;

impl Graph {
    /// Return whether the graph is incomplete. Retained sizes are then only a proven minimum.
    pub fn is_cut(&self) -> bool {
        self.proof.is_cut
    }

    /// Return how many bytes that are needed to build the graph could not be read.
    pub fn unread(&self) -> u64 {
        self.proof.unread
    }

    /// Return the bytes of the blocks about which an incomplete graph proves nothing: blocks that no root reaches, and
    /// blocks without a proven holder that retain only themselves. 0 if the graph is complete.
    pub fn not_examined(&self, watcher: &dyn Watcher) -> Result<u64> {
        if !self.proof.is_cut {
            return Ok(0);
        }
        let (tree, found) = (self.tree(watcher)?, self.dominators(watcher)?);
        let known = self.proof.known(&self.edges, tree, &self.kinds, self.ids.first_static);
        let is_examined = |id: usize, size: u64| {
            let is_held = found.above[id] != NOBODY || known[id] || found.retained[id] > size;
            tree.phases[id] != NOT_REACHED && is_held
        };
        let blocks = self.sizes().into_iter().enumerate().take(self.ids.first_static as usize);
        Ok(blocks.filter(|(id, size)| !is_examined(*id, *size)).map(|(_, size)| size).sum())
    }

    /// Return, for each node, the node above it: the previous node on its shortest chain or, in an incomplete graph,
    /// its immediate dominator.
    pub(super) fn above(&self, watcher: &dyn Watcher) -> Result<&[u32]> {
        Ok(if self.proof.is_cut { &self.dominators(watcher)?.above } else { &self.tree(watcher)?.before })
    }

    /// Return every node once. Each node comes after the node above it (see `above`).
    pub(super) fn downwards(&self, watcher: &dyn Watcher) -> Result<Cow<'_, [u32]>> {
        Ok(match self.proof.is_cut {
            true => Cow::Owned(order_of(self.above(watcher)?)),
            false => Cow::Borrowed(&self.tree(watcher)?.order),
        })
    }
}
