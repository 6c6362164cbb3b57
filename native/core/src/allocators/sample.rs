//! A sample of the used blocks that may be objects, spread over all blocks of each size.

use crate::allocators::glibc::chunks::{ChunkState, Chunks, CHUNK_HEADER};
use crate::allocators::groups::spread_by_size;
use crate::allocators::heaps::Heaps;
use crate::allocators::spread::mixed;
use crate::allocators::store::Store;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;

/// The size in bytes of the largest blocks that are sampled: malloc's chunk for pymalloc's largest request.
const LARGEST: u64 = 512 + 2 * CHUNK_HEADER;
const CHUNKS_OF_A_SIZE: usize = 512;

/// A used block of the sample: its bytes, its size including the allocator's overhead, and the number of blocks that it
/// represents (`weight`).
pub(crate) struct SampleBlock<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) size: u64,
    pub(crate) weight: f64,
}

/// Show a sample of the used blocks of one store: the first store that has groups of equal blocks or malloc's chunks.
/// In a store with groups, at most `most` groups of each block size are shown. In a store with chunks, a sample of the
/// chunks of each size is shown.
pub(crate) fn visit_sample(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    most: usize,
    mut visit: impl FnMut(SampleBlock<'_>),
) -> Result<()> {
    let chosen = heaps.stores.iter().find(|store| store.has_groups() || matches!(store, Store::Chunks(_)));
    match chosen {
        Some(Store::Chunks(chunks)) => visit_chunks(watcher, heaps.space, chunks, visit),
        Some(_) => {
            let (mut groups, mut bytes) = (heaps.groups(), Vec::new());
            groups.retain(|group| group.size <= LARGEST);
            for (group, weight) in spread_by_size(&groups, most) {
                watcher.check()?;
                heaps.show_group(group, &mut bytes, |_, bytes| visit(SampleBlock { bytes, size: group.size, weight }));
            }
            Ok(())
        }
        None => Ok(()),
    }
}

fn visit_chunks(
    watcher: &dyn Watcher,
    space: &Space,
    chunks: &Chunks,
    mut visit: impl FnMut(SampleBlock<'_>),
) -> Result<()> {
    let mut sizes: Vec<Sample> = (0..=LARGEST / CHUNK_HEADER).map(|_| Sample::default()).collect();
    for region in &chunks.regions {
        watcher.check()?;
        for (start, end, _) in region.all().filter(|(_, _, state)| *state == ChunkState::Used) {
            if let Some(sample) = sizes.get_mut(((end - start) / CHUNK_HEADER) as usize) {
                sample.offer(start);
            }
        }
    }
    let mut bytes = vec![0; LARGEST as usize];
    for (units, sample) in sizes.iter().enumerate().skip(2) {
        watcher.check()?;
        let (size, weight) = (units as u64 * CHUNK_HEADER, sample.weight());
        // The last eight bytes that belong to a chunk are the next chunk's prev_size.
        let block = &mut bytes[..size as usize - 8];
        for (chunk, _) in &sample.kept {
            let got = space.fill(chunk + CHUNK_HEADER, block);
            visit(SampleBlock { bytes: &block[..got], size, weight });
        }
    }
    Ok(())
}

/// A sample of the offered chunks, of which one in 2 to the power of `thinned` is kept. The kept chunks are spread over
/// all offered ones, but not at even distances.
#[derive(Default)]
struct Sample {
    kept: Vec<(u64, u64)>,
    offered: usize,
    thinned: u32,
}

impl Sample {
    fn offer(&mut self, chunk: u64) {
        let lot = mixed(self.offered as u64 + 1);
        if lot % (1 << self.thinned) == 0 {
            self.kept.push((chunk, lot));
        }
        self.offered += 1;
        if self.kept.len() >= 2 * CHUNKS_OF_A_SIZE {
            self.thinned += 1;
            self.kept.retain(|(_, lot)| lot % (1 << self.thinned) == 0);
        }
    }

    fn weight(&self) -> f64 {
        self.offered as f64 / self.kept.len().max(1) as f64
    }
}
