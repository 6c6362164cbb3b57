//! List the chunks of malloc that contain objects of given types.

use crate::allocators::block::Block;
use crate::allocators::glibc::chunks::ChunkState;
use crate::allocators::glibc::listing::{ChunkFilter, ListedChunk};
use crate::allocators::heaps::Heaps;
use crate::allocators::walk::{Jobs, Visitor, Walk};
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::error::Result;
use gdbheap_access::work::{Control, Watcher};
use std::collections::HashSet;

/// A visitor that finds live objects of given types in chunks.
struct Looker<'a> {
    heaps: Heaps<'a>,
    wanted: &'a ChunkFilter,
    kinds: &'a HashSet<u64>,
    types: Types<'a>,
    found: Vec<ListedChunk>,
}

impl Visitor for Looker<'_> {
    fn wants(&self, size: u64) -> bool {
        self.wanted.takes(size, ChunkState::Used)
    }

    fn block(&mut self, block: Block, head: &[u8]) -> bool {
        let Some((number, true)) = self.types.object_in(head, block.size) else { return false };
        if self.kinds.contains(&self.types.kinds[number as usize].address) {
            self.found.extend(self.heaps.listed(&block));
        }
        true
    }
}

/// List the used chunks that pass the filter and look like live objects of one of the types at the addresses `kinds`.
/// The chunks are in no particular order.
pub fn list_objects(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    kinds: &HashSet<u64>,
    wanted: &ChunkFilter,
) -> Result<Vec<ListedChunk>> {
    let wanted = ChunkFilter { states: wanted.states & 1 << ChunkState::Used as u32, ..*wanted };
    let Jobs { jobs, total } = heaps.chunk_jobs(&wanted);
    let init = || {
        let types = Types::new(heaps, layout);
        (Walk::new(heaps), Looker { heaps, wanted: &wanted, kinds, types, found: Vec::new() })
    };
    let work = |(walk, looker): &mut (Walk<'_>, Looker<'_>), job: &_, control: &Control| walk.run(job, control, looker);
    let lookers = heaps.space.task(watcher, Some(total)).run(&jobs, init, work)?;
    Ok(lookers.into_iter().flat_map(|(_, looker)| looker.found).collect())
}
