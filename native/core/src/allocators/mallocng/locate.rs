//! Find mallocng's context by the secret that is stored in it and in each page of metadata.

use crate::allocators::mallocng::layout::{metas, Meta, AREA, AREA_CHAIN, AREA_TAIL, CONTEXT};
use gdbheap_access::bytes::{u32_at, u64_at};
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;

/// A `__malloc_context` that was found. `groups`: the number of groups in its first page of metadata; `fit`: the number
/// of these groups that point back to their `struct meta`.
#[derive(Clone, Copy, Debug)]
pub struct FoundContext {
    pub address: u64,
    pub groups: u64,
    pub fit: u64,
}

/// Find the contexts in `ranges` of static data. Adjacent ranges must be joined, because a context may cross from one
/// mapping into the next.
pub fn find_contexts(watcher: &dyn Watcher, space: &Space, ranges: &[(u64, u64)]) -> Result<Vec<FoundContext>> {
    let mut found = Vec::new();
    for range in ranges {
        space.show_places(watcher, *range, CONTEXT, |at, bytes| {
            found.extend(Some(bytes).filter(|bytes| is_likely(bytes)).and_then(|bytes| proven(space, at, bytes)));
        })?;
    }
    Ok(found)
}

/// Return whether a used context may begin with these bytes. A context is used after the first allocation.
fn is_likely(bytes: &[u8]) -> bool {
    let word = |offset: usize| u64_at(bytes, offset);
    u32_at(bytes, 8) == 1
        && word(0) != 0
        && [AREA_CHAIN, AREA_TAIL].iter().all(|offset| word(*offset) != 0 && word(*offset) % AREA == 0)
}

fn proven(space: &Space, address: u64, bytes: &[u8]) -> Option<FoundContext> {
    let secret = u64_at(bytes, 0);
    let mut area = vec![0; AREA as usize];
    for offset in [AREA_TAIL, AREA_CHAIN] {
        space.exact(u64_at(bytes, offset), &mut area).ok().filter(|()| u64_at(&area, 0) == secret)?;
    }
    let groups: Vec<Meta> = metas(u64_at(bytes, AREA_CHAIN), &area).collect();
    let fit = groups.iter().filter(|meta| space.word(meta.mem) == Ok(meta.address)).count() as u64;
    Some(FoundContext { address, groups: groups.len() as u64, fit })
}
