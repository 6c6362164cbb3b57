//! The memory of jemalloc as areas: address ranges without gaps.

/// The use of a piece of jemalloc's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The piece is an active extent. The value is the start of its run of blocks.
    Run(u64),
    Dirty,
    Muzzy,
    Retained,
    Metadata,
    /// The piece is an extent that a thread is changing at this moment.
    Moving,
    Unexplained,
}

/// A piece of jemalloc's memory: an extent or a base block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) span: Span,
    pub(crate) root: u32,
    pub(crate) arena: u32,
}

impl Piece {
    pub(crate) fn new(start: u64, end: u64, span: Span, root: u32) -> Piece {
        Piece { start, end, span, root, arena: 0 }
    }

    pub(crate) fn is_run(&self) -> bool {
        matches!(self.span, Span::Run(_))
    }
}

/// An address range [start, end) of jemalloc's memory without gaps. `root`: the number of the jemalloc that owns it.
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
    /// Join adjacent pieces into areas. Also return the starts of pieces that overlap others, which are cut or dropped:
    /// two pieces may claim the same pages while an extent is split or merged, and then the piece with blocks wins.
    pub(crate) fn of(mut all: Vec<Piece>) -> (Areas, Vec<u64>) {
        all.sort_unstable_by_key(|piece| (piece.start, !piece.is_run()));
        let (mut pieces, mut overlaps) = (Vec::<Piece>::with_capacity(all.len()), Vec::new());
        for mut piece in all {
            if let Some(last) = pieces.last_mut().filter(|last| last.end > piece.start) {
                overlaps.push(piece.start);
                if piece.is_run() && !last.is_run() {
                    last.end = piece.start;
                    if last.start == last.end {
                        pieces.pop();
                    }
                } else if piece.is_run() || piece.end <= last.end {
                    continue;
                } else {
                    piece.start = last.end;
                }
            }
            pieces.push(piece);
        }
        let mut areas: Vec<Area> = Vec::new();
        for (place, piece) in pieces.iter().enumerate() {
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
        }
        (Areas { pieces, areas }, overlaps)
    }

    /// Return the piece that contains `address`.
    pub(crate) fn piece_at(&self, address: u64) -> Option<&Piece> {
        let place = self.pieces.partition_point(|piece| piece.end <= address);
        self.pieces.get(place).filter(|piece| piece.start <= address)
    }

    /// Return whether the piece at `start` is the run of blocks that begins at `start`.
    pub(crate) fn is_run(&self, start: u64) -> bool {
        self.piece_at(start).is_some_and(|piece| piece.span == Span::Run(start))
    }

    pub(crate) fn pieces_of(&self, area: &Area) -> &[Piece] {
        &self.pieces[area.first..area.last]
    }
}
