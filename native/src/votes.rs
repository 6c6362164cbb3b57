//! Samples of used blocks, looked at before it is known what precedes an object: which distances from a block's start
//! to an object occur, and which types.

use crate::chunks::Chunks;
use crate::pools::Pools;
use crate::sample::{visit_sample, Sampled};
use crate::space::Space;
use crate::types::{shared_count, TypeLayout, Types, SMALL_COUNT};
use pyo3::prelude::*;
use std::collections::HashMap;

/// So far into a block an object may begin.
const FURTHEST: usize = 80;

/// How often each distance from a block's start to an object occurs, by the flags of its type: `{(flags & mask,
/// distance): blocks}`, over up to `most` pools of each size class, or without pools over chunks of each size, or over as
/// many pages of mimalloc if that is in use. The
/// layout's own distances are not used.
#[pyfunction]
pub fn vote_distances(
    py: Python<'_>,
    space: &Space,
    chunks: Option<&Chunks>,
    pools: Option<&Pools>,
    layout: TypeLayout,
    mask: u64,
    most: usize,
) -> PyResult<HashMap<(u64, u64), u64>> {
    let mut types = Types::new(space, chunks, &layout);
    let mut votes = HashMap::new();
    let sampled = Sampled { space, chunks, pools, mimalloc: layout.mimalloc() };
    visit_sample(py, &sampled, most, |block| {
        vote_in_block(&mut types, &block.bytes[..block.bytes.len().min(FURTHEST)], mask, &mut votes);
    })?;
    Ok(votes)
}

fn vote_in_block(types: &mut Types<'_>, head: &[u8], mask: u64, votes: &mut HashMap<(u64, u64), u64>) {
    let (type_at, count_at) = (types.layout.ob_type as usize, types.layout.ob_refcnt as usize);
    for distance in (0..head.len().saturating_sub(type_at + 7)).step_by(8) {
        let Some(kind) = types.lookup(crate::u64_at(head, distance + type_at)) else { continue };
        // In a program that lies low a pointer is a small number too: a weakref before its class looks like a count.
        let is_counted = match types.layout.is_free_threaded() {
            true => shared_count(&head[distance..]) == Some(true),
            false => (1..SMALL_COUNT).contains(&crate::u64_at(head, distance + count_at)),
        };
        if is_counted {
            *votes.entry((types.kinds[kind as usize].flags & mask, distance as u64)).or_insert(0) += 1;
        }
    }
}

/// The types that blocks of the same sample point to: `{address: tp_flags}`.
#[pyfunction]
pub fn sample_types(
    py: Python<'_>,
    space: &Space,
    chunks: Option<&Chunks>,
    pools: Option<&Pools>,
    layout: TypeLayout,
    most: usize,
) -> PyResult<HashMap<u64, u64>> {
    let mut types = Types::new(space, chunks, &layout);
    let sampled = Sampled { space, chunks, pools, mimalloc: layout.mimalloc() };
    visit_sample(py, &sampled, most, |block| {
        for word in block.bytes.chunks_exact(8) {
            types.lookup(crate::u64_at(word, 0));
        }
    })?;
    Ok(types.kinds.iter().map(|kind| (kind.address, kind.flags)).collect())
}
