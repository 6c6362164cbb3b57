//! CPython's own mimalloc.

use crate::memory::Space;
use crate::records::{records, Given};
use crate::rows::{all, answers, block, damage_rows, size_class, used, Damage, Hole, Member, Range, SizeClass};
use crate::watch::watched;
use gdbheap_core::allocators::mimalloc::{self, MimallocHole, Release};
use pyo3::prelude::*;
use std::sync::Arc;

/// Bytes of `mi_page_t`, the offset of `thread_delayed_free` in `mi_heap_t`, whether each heap of a thread has its tag, and
/// whether it is the mimalloc of late releases.
pub struct MimallocLayout {
    entry: u64,
    delayed: u64,
    tagged: bool,
    newer: bool,
}

records! {
    MimallocLayout { entry, delayed, tagged, newer }
}

answers! {
    /// A segment [start, end) and the thread that has it; 0 where that one is gone.
    struct Segment { start: u64, end: u64, thread: u64 }

    /// What looks like a segment's header: the cookie xor the address, used pages, and whether its slices tile it. One that
    /// was given back keeps its header for a while, and has no used pages.
    struct FoundSegment of mimalloc::FoundSegment { address: u64, cookie: u64, used: u64, tiles: bool }

    /// The pages of the heaps with one tag, used blocks, their bytes, and pages that no thread owns.
    struct TaggedHeap { tag: u8, pages: u64, used: u64, bytes: u64, abandoned: u64 }

    /// What lies in a segment. The state is used, free, `free span`, `segment header`, padding or unexplained; the list
    /// that of a free block, None for one never handed out.
    struct PageBlock { address: u64, size: u64, state: &'static str, list: Option<&'static str> }

    /// A page whose lists do not fit its count; off `by_one`, as a thread leaves it that stands inside mimalloc.
    struct Miscounted of mimalloc::Miscounted { damage: Damage, by_one: bool }
}

fn release(newer: bool) -> Release {
    match newer {
        false => Release::Early,
        true => Release::Late,
    }
}

impl MimallocLayout {
    fn layout(&self) -> mimalloc::MimallocLayout {
        let MimallocLayout { entry, delayed, tagged, newer } = *self;
        mimalloc::MimallocLayout { entry, delayed, tagged, release: release(newer) }
    }
}

fn hole(found: MimallocHole) -> Hole {
    let MimallocHole { start, end, before, after } = found;
    Hole { start, end, address: start, arena: None, before: before.map(block), after: after.map(block) }
}

/// All of one mimalloc, by address.
#[pyclass(frozen)]
pub struct Mimalloc(pub Arc<mimalloc::Mimalloc>);

#[pymethods]
impl Mimalloc {
    /// Every segment, by address.
    fn segments(&self) -> Vec<Segment> {
        let row = |segment: &mimalloc::Segment| {
            let mimalloc::Segment { address, end, thread, .. } = *segment;
            Segment { start: address, end, thread }
        };
        self.0.segments().iter().map(row).collect()
    }

    /// By block size.
    fn classes(&self) -> Vec<SizeClass> {
        self.0.classes().into_iter().map(size_class).collect()
    }

    /// By tag.
    fn heaps(&self) -> Vec<TaggedHeap> {
        let row = |(tag, pages, used, bytes, abandoned)| TaggedHeap { tag, pages, used, bytes, abandoned };
        self.0.heaps().into_iter().map(row).collect()
    }

    /// Bytes of spans without a page, in all segments.
    #[getter]
    fn free_spans(&self) -> u64 {
        self.0.free_spans()
    }

    #[getter]
    fn page_count(&self) -> usize {
        self.0.page_count()
    }

    /// What holds `address`; None outside every segment.
    fn find(&self, space: &Space, address: u64) -> Option<PageBlock> {
        let row = |(address, size, state, list)| PageBlock { address, size, state, list };
        self.0.find(&space.0, address).map(row)
    }

    /// The used blocks of the page whose slices hold `address`.
    fn used_in_page(&self, address: u64) -> Vec<Member> {
        self.0.used_in_page(address).into_iter().map(used).collect()
    }

    /// The `most` largest used blocks of at least `least` bytes, largest first.
    fn largest_used(&self, least: u64, most: usize) -> Vec<Member> {
        self.0.largest_used(least, most).into_iter().map(used).collect()
    }

    /// Damage met in segments.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(&self.0.damage)
    }

    /// Pages whose lists do not fit their count.
    #[getter]
    fn miscounted(&self) -> Vec<Miscounted> {
        all(self.0.miscounted.iter().cloned())
    }

    /// Maximal runs of unused bytes, of at least `minimum`.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<Hole>> {
        let holes = watched(py, None, |watcher| self.0.holes(watcher, minimum))?;
        Ok(holes.into_iter().map(hole).collect())
    }
}

/// Reads every segment. `segments`: their addresses.
#[pyfunction]
pub fn read_mimalloc(
    py: Python<'_>,
    space: &Space,
    segments: Vec<u64>,
    layout: Given<MimallocLayout>,
) -> PyResult<Mimalloc> {
    let found = watched(py, None, |watcher| mimalloc::read_mimalloc(watcher, &space.0, segments, layout.0.layout()))?;
    Ok(Mimalloc(Arc::new(found)))
}

/// What looks like a segment's header at a multiple of 32 MiB in `ranges`; `entry`: bytes of an entry of its table.
#[pyfunction]
pub fn find_segments(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<Range>,
    entry: u64,
    newer: bool,
) -> PyResult<Vec<FoundSegment>> {
    let find = |watcher: &dyn gdbheap_core::Watcher| {
        mimalloc::find_segments(watcher, &space.0, &ranges, entry, release(newer))
    };
    Ok(all(watched(py, None, find)?))
}
