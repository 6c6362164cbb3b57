//! Samples of used blocks, looked at before it is known what precedes an object: which distances from a block's start
//! to an object occur, and which types.

use crate::bits;
use crate::chunks::{Chunks, State, CHUNK_HEADER};
use crate::mimalloc::Mimalloc;
use crate::pools::{Pools, HEADER, MOST_BLOCKS};
use crate::space::Space;
use crate::types::{shared_count, TypeLayout, Types, SMALL_COUNT};
use pyo3::prelude::*;
use std::collections::HashMap;

/// So far into a block an object may begin.
const FURTHEST: usize = 80;
/// Blocks of malloc of this size and below, as pymalloc's are.
const LARGEST: u64 = 512 + 2 * CHUNK_HEADER;
const CHUNKS_OF_A_SIZE: usize = 512;

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
    visit_sample(py, space, (chunks, pools, layout.mimalloc()), most, |block| {
        vote_in_block(&mut types, &block[..block.len().min(FURTHEST)], mask, &mut votes);
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
    visit_sample(py, space, (chunks, pools, layout.mimalloc()), most, |block| {
        for word in block.chunks_exact(8) {
            types.lookup(crate::u64_at(word, 0));
        }
    })?;
    Ok(types.kinds.iter().map(|kind| (kind.address, kind.flags)).collect())
}

fn visit_sample(
    py: Python<'_>,
    space: &Space,
    heaps: (Option<&Chunks>, Option<&Pools>, Option<&Mimalloc>),
    most: usize,
    visit: impl FnMut(&[u8]),
) -> PyResult<()> {
    match heaps {
        (_, _, Some(mimalloc)) => visit_pages(py, space, mimalloc, most, visit),
        (_, Some(pools), _) => visit_pools(py, space, pools, most, visit),
        (Some(chunks), ..) => visit_chunks(py, space, chunks, visit),
        _ => Ok(()),
    }
}

fn visit_pages(
    py: Python<'_>,
    space: &Space,
    mimalloc: &Mimalloc,
    most: usize,
    mut visit: impl FnMut(&[u8]),
) -> PyResult<()> {
    let mut bytes = Vec::new();
    for page in mimalloc.sample(LARGEST, most) {
        py.check_signals()?;
        bytes.resize((page.size * page.capacity) as usize, 0);
        let got = space.fill(page.blocks, &mut bytes);
        bytes[got..].fill(0);
        for number in mimalloc.used_of(page) {
            visit(&bytes[(number * page.size) as usize..][..page.size as usize]);
        }
    }
    Ok(())
}

fn visit_pools(
    py: Python<'_>,
    space: &Space,
    pools: &Pools,
    most: usize,
    mut visit: impl FnMut(&[u8]),
) -> PyResult<()> {
    let mut bytes = vec![0; pools.pool_size as usize];
    for pool in pools.sample(most) {
        py.check_signals()?;
        let got = space.fill(pool.address, &mut bytes);
        bytes[got..].fill(0);
        let (size, used) = (pool.block_size(pools.alignment), pools.used_blocks(pool, &bytes));
        for number in (0..MOST_BLOCKS as u64).filter(|number| bits::get(&used, *number)) {
            let start = (HEADER + number * size) as usize;
            visit(&bytes[start..][..size as usize]);
        }
    }
    Ok(())
}

fn visit_chunks(py: Python<'_>, space: &Space, chunks: &Chunks, mut visit: impl FnMut(&[u8])) -> PyResult<()> {
    let mut sizes: Vec<Sample> = (0..=LARGEST / CHUNK_HEADER).map(|_| Sample::default()).collect();
    for region in &chunks.regions {
        py.check_signals()?;
        for (start, end, _) in region.all().filter(|(_, _, state)| *state == State::Used) {
            if let Some(sample) = sizes.get_mut(((end - start) / CHUNK_HEADER) as usize) {
                sample.offer(start);
            }
        }
    }
    let mut bytes = vec![0; LARGEST as usize];
    for (units, sample) in sizes.iter().enumerate().skip(2) {
        py.check_signals()?;
        // A chunk's last eight bytes are the next one's prev_size.
        let block = &mut bytes[..units * CHUNK_HEADER as usize - 8];
        for chunk in &sample.kept {
            let got = space.fill(chunk + CHUNK_HEADER, block);
            visit(&block[..got]);
        }
    }
    Ok(())
}

/// Every so many of what is offered, spread over all of it.
#[derive(Default)]
struct Sample {
    kept: Vec<u64>,
    offered: usize,
    thinned: u32,
}

impl Sample {
    fn offer(&mut self, chunk: u64) {
        if self.offered % (1 << self.thinned) == 0 {
            self.kept.push(chunk);
        }
        self.offered += 1;
        if self.kept.len() >= 2 * CHUNKS_OF_A_SIZE {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.thinned += 1;
        }
    }
}
