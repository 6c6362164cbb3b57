//! Find the distances from a block's start to an object, and the types of objects, that occur in a sample of used
//! blocks. No distance needs to be known in advance.

use crate::allocators::heaps::Heaps;
use crate::allocators::sample::visit_sample;
use crate::python::counts::{shared_count, SMALL_COUNT};
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::collections::HashMap;

/// The largest distance in bytes from a block's start to an object that is tried.
const FURTHEST: usize = 80;

/// Count how often each distance from a block's start to an object occurs, by the flags of the object's type: `{(flags
/// & mask, distance): number of blocks}`. The blocks are those that `visit_sample` shows. The distances that the layout
/// gives are not used.
pub fn vote_distances(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    mask: u64,
    most: usize,
) -> Result<HashMap<(u64, u64), u64>> {
    let mut types = Types::new(heaps, layout);
    let mut votes = HashMap::new();
    visit_sample(watcher, heaps, most, |block| {
        vote_in_block(&mut types, &block.bytes[..block.bytes.len().min(FURTHEST)], mask, &mut votes);
    })?;
    Ok(votes)
}

fn vote_in_block(types: &mut Types<'_>, head: &[u8], mask: u64, votes: &mut HashMap<(u64, u64), u64>) {
    let (type_at, count_at) = (types.layout.ob_type as usize, types.layout.ob_refcnt as usize);
    for distance in (0..head.len().saturating_sub(type_at + 7)).step_by(8) {
        let Some(kind) = types.lookup(u64_at(head, distance + type_at)) else { continue };
        // In a program at low addresses, a pointer is a small number too: in a block with a weakref before a class, the
        // weakref's address looks like a reference count.
        let is_counted = match types.layout.is_free_threaded() {
            true => shared_count(&head[distance..], types.space.machine.user_end) == Some(true),
            false => (1..SMALL_COUNT).contains(&u64_at(head, distance + count_at)),
        };
        if is_counted {
            *votes.entry((types.kinds[kind as usize].flags & mask, distance as u64)).or_insert(0) += 1;
        }
    }
}

/// Return the types to which the blocks of a sample (see `visit_sample`) point: `{address: tp_flags}`.
pub fn sample_types(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    most: usize,
) -> Result<HashMap<u64, u64>> {
    let mut types = Types::new(heaps, layout);
    visit_sample(watcher, heaps, most, |block| {
        for word in block.bytes.chunks_exact(8) {
            types.lookup(u64_at(word, 0));
        }
    })?;
    Ok(types.kinds.iter().map(|kind| (kind.address, kind.flags)).collect())
}
