//! List the chunks of malloc's arenas by the kind of structure in them.

use super::classification::Structures;
use crate::allocators::glibc::{ChunkFilter, ListedChunk};
use crate::allocators::store::Store;
use std::collections::HashSet;

impl Structures {
    /// Return the used chunks that have one of these kinds and pass the filter, as rows of a list.
    pub fn chunks_of(&self, kinds: &HashSet<u32>, wanted: &ChunkFilter) -> Vec<ListedChunk> {
        let heaps = self.shared.lend();
        let mut found = Vec::new();
        for (index, store) in (0u32..).zip(heaps.stores) {
            let (Store::Chunks(_), Some(ranked)) = (store, self.ids.stores.get(index as usize)) else { continue };
            let mut id = ranked.first as usize;
            store.show_blocks(|cell| {
                if self.kinds.get(id).is_some_and(|kind| kinds.contains(kind)) {
                    found.extend(heaps.listed(&cell.of(index)).filter(|row| wanted.takes_listed(row)));
                }
                id += 1;
            });
        }
        found
    }
}
