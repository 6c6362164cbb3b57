//! Holes: maximal runs of unused bytes between the blocks of a region.

use crate::allocators::part::Part;

/// A part next to a hole: its address, its size, and its kind.
pub(crate) type Edge = (u64, u64, &'static str);

/// A run of unused bytes [start, end). `arena`: the number of the arena that owns the whole run. It is None if several
/// arenas own the run, or if the allocator has no arenas. `before` and `after`: the parts next to the run; None at an
/// end of the region.
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    pub start: u64,
    pub end: u64,
    pub arena: Option<u32>,
    pub before: Option<Edge>,
    pub after: Option<Edge>,
}

/// Joins the free parts of regions into holes of at least `minimum` bytes.
pub(crate) struct HoleFinder {
    minimum: u64,
    open: Option<(u64, u64)>,
    before: Option<Edge>,
    /// The number of holes in the regions before this one.
    earlier: usize,
    pub(crate) holes: Vec<Hole>,
}

impl HoleFinder {
    pub(crate) fn new(minimum: u64) -> HoleFinder {
        HoleFinder { minimum: minimum.max(1), open: None, before: None, earlier: 0, holes: Vec::new() }
    }

    /// Add the next part of the region. If the part is next to a hole, `edge` returns the hole's neighbour at an
    /// address in the part.
    pub(crate) fn add(&mut self, start: u64, end: u64, part: Part, edge: impl Fn(u64) -> Edge) {
        if part.is_free() {
            self.open = Some((self.open.map_or(start, |run| run.0), end));
            return;
        }
        if self.open.is_some() {
            self.close(Some(edge(start)));
        }
        self.before = Some(edge(end - 1));
    }

    /// End the region: finish its last hole, and set the arena of each of its holes. `arena_of` returns the number of
    /// the arena that owns all of [start, end), or None.
    pub(crate) fn end_region(&mut self, arena_of: impl Fn(u64, u64) -> Option<u32>) {
        self.close(None);
        self.before = None;
        self.holes[self.earlier..].iter_mut().for_each(|hole| hole.arena = arena_of(hole.start, hole.end));
        self.earlier = self.holes.len();
    }

    fn close(&mut self, after: Option<Edge>) {
        if let Some((start, end)) = self.open.take().filter(|(start, end)| end - start >= self.minimum) {
            self.holes.push(Hole { start, end, arena: None, before: self.before, after });
        }
    }
}
