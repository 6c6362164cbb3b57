//! A sample of the used blocks that may be objects, spread over all of each size, and what it says of all of them.

use crate::chunks::{Chunks, State, CHUNK_HEADER};
use crate::mimalloc::Mimalloc;
use crate::pools::Pools;
use crate::space::Space;
use crate::types::{TypeLayout, Types};
use pyo3::prelude::*;
use std::collections::HashMap;

/// Blocks of malloc of this size and below, as pymalloc's are.
const LARGEST: u64 = 512 + 2 * CHUNK_HEADER;
const CHUNKS_OF_A_SIZE: usize = 512;

/// Where blocks are taken from: mimalloc if it is in use, else pools, without them chunks of malloc.
pub struct Sampled<'a> {
    pub space: &'a Space,
    pub chunks: Option<&'a Chunks>,
    pub pools: Option<&'a Pools>,
    pub mimalloc: Option<&'a Mimalloc>,
}

/// A used block: its bytes, its size with what its allocator needs, and for how many blocks it stands.
pub struct Block<'a> {
    pub bytes: &'a [u8],
    pub size: u64,
    pub weight: f64,
}

/// Shows the used blocks of up to `most` pools or pages of each size, or of chunks of each size.
pub fn visit_sample(py: Python<'_>, from: &Sampled<'_>, most: usize, mut visit: impl FnMut(Block<'_>)) -> PyResult<()> {
    let mut bytes = Vec::new();
    match (from.mimalloc, from.pools, from.chunks) {
        (Some(mimalloc), ..) => {
            for (page, weight) in mimalloc.sample(LARGEST, most) {
                py.check_signals()?;
                mimalloc.show_used(from.space, page, &mut bytes, |_, bytes| {
                    visit(Block { bytes, size: page.size, weight });
                });
            }
            Ok(())
        }
        (_, Some(pools), _) => {
            for (pool, weight) in pools.sample(most) {
                py.check_signals()?;
                let size = pool.block_size(pools.alignment);
                pools.show_used(from.space, pool, &mut bytes, |_, bytes| visit(Block { bytes, size, weight }));
            }
            Ok(())
        }
        (.., Some(chunks)) => visit_chunks(py, from.space, chunks, visit),
        _ => Ok(()),
    }
}

fn visit_chunks(py: Python<'_>, space: &Space, chunks: &Chunks, mut visit: impl FnMut(Block<'_>)) -> PyResult<()> {
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
        let (size, weight) = (units as u64 * CHUNK_HEADER, sample.weight());
        // A chunk's last eight bytes are the next one's prev_size.
        let block = &mut bytes[..size as usize - 8];
        for chunk in &sample.kept {
            let got = space.fill(chunk + CHUNK_HEADER, block);
            visit(Block { bytes: &block[..got], size, weight });
        }
    }
    Ok(())
}

/// Up to `most` of `all`, evenly spread, each with how many it stands for.
pub fn spread<'a, T>(all: &[&'a T], most: usize) -> Vec<(&'a T, f64)> {
    let taken = all.iter().copied().step_by(all.len().div_ceil(most.max(1)).max(1)).collect::<Vec<_>>();
    let weight = all.len() as f64 / taken.len().max(1) as f64;
    taken.into_iter().map(|one| (one, weight)).collect()
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

    fn weight(&self) -> f64 {
        self.offered as f64 / self.kept.len().max(1) as f64
    }
}

/// A type's address, live objects, their bytes, objects on free lists, their bytes.
type Estimate = (u64, u64, u64, u64, u64);

/// What a sample of up to `most` pools of each size says of all objects in blocks of up to 512 bytes.
#[pyfunction]
pub fn estimate_types(
    py: Python<'_>,
    space: &Space,
    chunks: Option<&Chunks>,
    pools: Option<&Pools>,
    layout: TypeLayout,
    most: usize,
) -> PyResult<Vec<Estimate>> {
    let mut types = Types::new(space, chunks, &layout);
    let mut found: HashMap<u32, [f64; 4]> = HashMap::new();
    let sampled = Sampled { space, chunks, pools, mimalloc: layout.mimalloc() };
    visit_sample(py, &sampled, most, |block| {
        let Some((number, alive)) = types.object_in(block.bytes, block.size) else { return };
        let row = &mut found.entry(number).or_default()[if alive { 0 } else { 2 }..];
        row[0] += block.weight;
        row[1] += block.weight * block.size as f64;
    })?;
    let flat = |(number, row): (u32, [f64; 4])| {
        let [live, bytes, idle, idle_bytes] = row.map(|value| value as u64);
        (types.kinds[number as usize].address, live, bytes, idle, idle_bytes)
    };
    Ok(found.into_iter().map(flat).collect())
}
