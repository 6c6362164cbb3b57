//! Groups of equal blocks that may contain objects, for all allocators: pools, pages, runs.

use crate::allocators::heaps::Heaps;
use crate::allocators::spread::spread;
use crate::allocators::store::Store;
use std::collections::BTreeMap;

/// A group of blocks of one size that lie together. `store`: the index of the group's store; `place`: the index of the
/// group in that store; `size`: the size of a block.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    store: u32,
    place: usize,
    pub(crate) size: u64,
}

impl Store {
    /// Return whether the store keeps its blocks in groups of equal size.
    pub(crate) fn has_groups(&self) -> bool {
        matches!(self, Store::Pools(_) | Store::Mimalloc(_) | Store::Mallocng(_) | Store::Extents(_))
    }

    /// Return the groups of this store. `store` is the store's index.
    fn groups(&self, store: u32) -> Vec<Group> {
        let group = |(place, size)| Group { store, place, size };
        match self {
            Store::Pools(pools) => pools.groups().map(|(place, group)| (place, group.size)).map(group).collect(),
            Store::Mimalloc(mimalloc) => {
                mimalloc.object_pages().map(|(place, page)| (place, page.size)).map(group).collect()
            }
            Store::Mallocng(mallocng) => mallocng.groups.iter().map(|one| one.stride).enumerate().map(group).collect(),
            Store::Extents(extents) => extents.runs.runs.iter().map(|run| run.stride).enumerate().map(group).collect(),
            _ => Vec::new(),
        }
    }
}

impl Heaps<'_> {
    /// Return the groups of all stores that have groups.
    pub(crate) fn groups(&self) -> Vec<Group> {
        self.stores.iter().zip(0..).flat_map(|(store, index)| store.groups(index)).collect()
    }

    /// Show each used block of a group as its address and its bytes. `bytes` is a scratch buffer. Bytes that cannot be
    /// read are zeros, or are cut off (mallocng).
    pub(crate) fn show_group(&self, group: &Group, bytes: &mut Vec<u8>, show: impl FnMut(u64, &[u8])) {
        match &self.stores[group.store as usize] {
            Store::Pools(pools) => pools.show_used(self.space, &pools.pools[group.place], bytes, show),
            Store::Mimalloc(mimalloc) => mimalloc.show_used(self.space, &mimalloc.pages[group.place], bytes, show),
            Store::Mallocng(mallocng) => mallocng.show_used(self.space, &mallocng.groups[group.place], show),
            Store::Extents(extents) => extents.runs.show_used(self.space, group.place, bytes, show),
            _ => (),
        }
    }
}

/// Choose at most `most` groups of each block size. Return the chosen groups, ordered by block size, each with the
/// number of groups that it represents.
pub(crate) fn spread_by_size(groups: &[Group], most: usize) -> Vec<(&Group, f64)> {
    let mut sizes: BTreeMap<u64, Vec<&Group>> = BTreeMap::new();
    groups.iter().for_each(|group| sizes.entry(group.size).or_default().push(group));
    sizes.values().flat_map(|groups| spread(groups, most)).collect()
}
