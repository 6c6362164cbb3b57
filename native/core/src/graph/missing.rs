//! The part of a graph that could not be read.

use super::passes::order_of;
use super::tree::{NOBODY, NOT_REACHED};
use super::whole::Graph;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::borrow::Cow;

impl Graph {
    /// Whether something is missing from the graph, so that what nodes retain is the least that is proven.
    pub fn is_cut(&self) -> bool {
        self.proof.is_cut
    }

    /// Bytes that were wanted while it was drawn, and could not be read.
    pub fn unread(&self) -> u64 {
        self.proof.unread
    }

    /// Bytes of the blocks that nothing is proven to hold and that hold nothing; 0 where the graph is whole.
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

    /// The node above each: by the tree of shortest chains, or by the dominators where the graph is cut off.
    pub(super) fn above(&self, watcher: &dyn Watcher) -> Result<&[u32]> {
        Ok(if self.proof.is_cut { &self.dominators(watcher)?.above } else { &self.tree(watcher)?.before })
    }

    /// Every node once, each behind the one above it.
    pub(super) fn downwards(&self, watcher: &dyn Watcher) -> Result<Cow<'_, [u32]>> {
        Ok(match self.proof.is_cut {
            true => Cow::Owned(order_of(self.above(watcher)?)),
            false => Cow::Borrowed(&self.tree(watcher)?.order),
        })
    }
}
