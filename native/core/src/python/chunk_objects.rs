//! Chunks of malloc that hold objects of some types.

use crate::allocators::glibc::chunks::{Chunks, State, CHUNK_HEADER, STATES};
use crate::allocators::glibc::listing::{Listed, Wanted};
use crate::allocators::heaps::{Heaps, Job, Place, Visitor, Walk};
use crate::error::Result;
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use crate::work::{Control, Watcher};
use std::collections::HashSet;

/// Looks into chunks for live objects of some types.
struct Looker<'a> {
    chunks: &'a Chunks,
    wanted: &'a Wanted,
    kinds: &'a HashSet<u64>,
    types: Types<'a>,
    found: Vec<Listed>,
}

impl Visitor for Looker<'_> {
    fn wants(&self, size: u64) -> bool {
        self.wanted.takes(size, State::Used)
    }

    fn block(&mut self, place: Place, address: u64, size: u64, head: &[u8]) -> bool {
        let (Some((number, true)), Place::Chunk(region, _)) = (self.types.object_in(head, size), place) else {
            return false;
        };
        if self.kinds.contains(&self.types.kinds[number as usize].address) {
            let arena = self.chunks.regions[region].stretch.arena;
            self.found.push((address - CHUNK_HEADER, size, STATES[State::Used as usize], arena));
        }
        true
    }
}

/// The wanted used chunks that look like live objects of one of the types at `kinds`, in no order.
pub fn list_objects(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    kinds: &HashSet<u64>,
    wanted: &Wanted,
) -> Result<Vec<Listed>> {
    let Some(chunks) = heaps.chunks else { return Ok(Vec::new()) };
    let wanted = Wanted { states: wanted.states & 1 << State::Used as u32, ..*wanted };
    let regions: HashSet<usize> = wanted.regions(chunks).map(|(index, _)| index).collect();
    let (mut jobs, _) = heaps.jobs();
    jobs.retain(|job| matches!(job, Job::Chunks(region, ..) if regions.contains(region)));
    let total = jobs.iter().map(|job| if let Job::Chunks(_, from, to) = job { to - from } else { 0 }).sum();
    let init = || {
        let types = Types::new(heaps, layout);
        (Walk::new(heaps), Looker { chunks, wanted: &wanted, kinds, types, found: Vec::new() })
    };
    let work = |(walk, looker): &mut (Walk<'_>, Looker<'_>), job: &_, control: &Control| walk.run(job, control, looker);
    let lookers = heaps.space.task(watcher, Some(total)).run(&jobs, init, work)?;
    Ok(lookers.into_iter().flat_map(|(_, looker)| looker.found).collect())
}
