//! Find the free chunks that would serve a request.

use crate::allocators::glibc::chunks::{ChunkState, Chunks, Region};
use std::collections::BTreeMap;

/// A free chunk, or several adjacent free chunks that malloc would merge, as `(address of the header, size)`.
pub type Piece = (u64, u64);
/// The smallest free chunk of one arena that could serve a request, and the largest free chunks that are too small for
/// it. Adjacent free chunks that malloc would merge count as one chunk.
#[derive(Clone, Debug)]
pub struct Fit {
    pub arena: u32,
    /// The smallest free chunk that is large enough for the request.
    pub best: Option<Piece>,
    /// The largest free chunks that are too small, in descending order of size.
    pub short: Vec<Piece>,
    /// The size of the top chunk in bytes.
    pub top: u64,
}

#[derive(Default)]
struct Pieces {
    best: Option<Piece>,
    short: Vec<Piece>,
    top: u64,
}

impl Pieces {
    fn put(&mut self, piece: Piece, need: u64, most: usize) {
        if piece.1 >= need {
            self.best = Some(self.best.map_or(piece, |best| if piece.1 < best.1 { piece } else { best }));
            return;
        }
        let place = self.short.partition_point(|(_, size)| *size >= piece.1);
        if place < most {
            self.short.insert(place, piece);
            self.short.truncate(most);
        }
    }

    fn take_region(&mut self, region: &Region, need: u64, with_fast: bool, most: usize) {
        let mut open: Option<Piece> = None;
        for (start, end, state) in region.all() {
            if state == ChunkState::Free || (with_fast && state == ChunkState::Fast) {
                open = Some(open.map_or((start, end - start), |(first, _)| (first, end - first)));
            } else if state == ChunkState::Top {
                self.top = open.take().map_or(0, |(_, size)| size) + (end - start);
            } else if let Some(piece) = open.take() {
                self.put(piece, need, most);
            }
        }
        if let Some(piece) = open {
            self.put(piece, need, most);
        }
    }
}

/// Return a `Fit` for each arena. `need`: the chunk size that the request needs. `most`: the largest number of chunks
/// in `short`. `with_fast`: whether to assume that malloc_consolidate() has merged fast-bin chunks with their free
/// neighbours.
pub fn find_fits(chunks: &Chunks, need: u64, with_fast: bool, most: usize) -> Vec<Fit> {
    let mut arenas: BTreeMap<u32, Pieces> = BTreeMap::new();
    for region in &chunks.regions {
        arenas.entry(region.stretch.arena).or_default().take_region(region, need, with_fast, most);
    }
    let fit = |(arena, Pieces { best, short, top })| Fit { arena, best, short, top };
    arenas.into_iter().map(fit).collect()
}
