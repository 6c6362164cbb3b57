//! The memory of tcmalloc as areas: address ranges without gaps.

/// The use of a piece of tcmalloc's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The piece is a span with several blocks, or with a single block.
    Blocks,
    Free,
    Returned,
    Metadata,
    Unexplained,
}

/// A piece of tcmalloc's memory: a span or metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) of: Use,
    pub(crate) root: u32,
}

/// An address range [start, end) of tcmalloc's memory without gaps. `root`: the number of the tcmalloc that owns it.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    pub start: u64,
    pub end: u64,
    pub root: u32,
    first: usize,
    last: usize,
}

/// All pieces of memory, ascending and disjoint, and the areas that they form.
pub(crate) struct Areas {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) areas: Vec<Area>,
}

impl Areas {
    /// Join adjacent pieces into areas. If two pieces claim the same bytes, the second piece is dropped.
    pub(crate) fn of(mut all: Vec<Piece>) -> Areas {
        all.sort_by_key(|piece| piece.start);
        let (mut pieces, mut areas): (Vec<Piece>, Vec<Area>) = (Vec::with_capacity(all.len()), Vec::new());
        for piece in all {
            if pieces.last().is_some_and(|last| last.end > piece.start) {
                continue;
            }
            let place = pieces.len();
            match areas.last_mut().filter(|area| area.end == piece.start && area.root == piece.root) {
                Some(area) => (area.end, area.last) = (piece.end, place + 1),
                None => areas.push(Area {
                    start: piece.start,
                    end: piece.end,
                    root: piece.root,
                    first: place,
                    last: place + 1,
                }),
            }
            pieces.push(piece);
        }
        Areas { pieces, areas }
    }

    /// Return the piece that contains `address`.
    pub(crate) fn piece_at(&self, address: u64) -> Option<&Piece> {
        let place = self.pieces.partition_point(|piece| piece.end <= address);
        self.pieces.get(place).filter(|piece| piece.start <= address)
    }

    /// Return the starts of the spans with blocks, ascending.
    pub(crate) fn with_blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.pieces.iter().filter(|piece| piece.of == Use::Blocks).map(|piece| piece.start)
    }

    pub(crate) fn pieces_of(&self, area: &Area) -> &[Piece] {
        &self.pieces[area.first..area.last]
    }
}
