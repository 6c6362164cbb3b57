//! CPython's own mimalloc.

use crate::memory::Space;
use crate::records::{field, Given, Read};
use crate::rows::{damage_row, damage_rows, DamageRow};
use crate::watch::watched;
use gdbheap_core::allocators::mimalloc::{
    self, FoundSegment, MimallocHole, MimallocLayout, Miscounted, Release, Segment,
};
use pyo3::prelude::*;
use std::sync::Arc;

type Neighbour = Option<(u64, u64, &'static str)>;
type HoleRow = (u64, u64, Neighbour, Neighbour);

fn release(newer: bool) -> Release {
    match newer {
        false => Release::Early,
        true => Release::Late,
    }
}

impl Read for MimallocLayout {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<MimallocLayout> {
        const NAME: &str = "MimallocLayout";
        Ok(MimallocLayout {
            entry: field(object, NAME, "entry")?,
            delayed: field(object, NAME, "delayed")?,
            tagged: field(object, NAME, "tagged")?,
            release: release(field(object, NAME, "newer")?),
        })
    }
}

/// All of one mimalloc, by address.
#[pyclass(frozen)]
pub struct Mimalloc(pub Arc<mimalloc::Mimalloc>);

#[pymethods]
impl Mimalloc {
    /// `(address, end, thread)` of every segment, by address; the thread is 0 where the one that had it is gone.
    fn segment_rows(&self) -> Vec<(u64, u64, u64)> {
        let row = |segment: &Segment| (segment.address, segment.end, segment.thread);
        self.0.segments().iter().map(row).collect()
    }

    /// `(block size, pages, used blocks, free blocks)` of each block size, ascending.
    fn classes(&self) -> Vec<(u64, u64, u64, u64)> {
        self.0.classes()
    }

    /// `(tag, pages, used blocks, their bytes, pages that no thread owns)` of each tag.
    fn heaps(&self) -> Vec<(u8, u64, u64, u64, u64)> {
        self.0.heaps()
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

    /// What holds `address`: `(start, size, state, list)`; None outside every segment. The state is used, free, `free
    /// span`, `segment header`, padding or unexplained; the list that of a free block, None for one never handed out.
    fn find(&self, space: &Space, address: u64) -> Option<(u64, u64, &'static str, Option<&'static str>)> {
        self.0.find(&space.0, address)
    }

    /// The used blocks `(address, size)` of the page whose slices hold `address`.
    fn used_in_page(&self, address: u64) -> Vec<(u64, u64)> {
        self.0.used_in_page(address)
    }

    /// Damage met in segments: `(address, what, expected, found)`.
    #[getter]
    fn damage(&self) -> Vec<DamageRow> {
        damage_rows(&self.0.damage)
    }

    /// Pages whose lists do not fit their count, as `(damage, whether it is off by one)`: a thread leaves it so that stands
    /// inside mimalloc.
    #[getter]
    fn miscounted(&self) -> Vec<(DamageRow, bool)> {
        let row = |page: &Miscounted| (damage_row(&page.damage), page.by_one);
        self.0.miscounted.iter().map(row).collect()
    }

    /// Maximal runs of bytes that nobody holds, of at least `minimum`: `(start, end, before, after)`, the neighbours as
    /// `(address, size, what)`.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<HoleRow>> {
        let row = |hole: MimallocHole| (hole.start, hole.end, hole.before, hole.after);
        let holes = watched(py, None, |watcher| self.0.holes(watcher, minimum))?;
        Ok(holes.into_iter().map(row).collect())
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
    let found = watched(py, None, |watcher| mimalloc::read_mimalloc(watcher, &space.0, segments, layout.0))?;
    Ok(Mimalloc(Arc::new(found)))
}

/// What looks like a segment's header at a multiple of 32 MiB in `ranges`: `(address, cookie ^ address, used pages, whether
/// its slices tile it by entries of `entry` bytes)`. One that was given back keeps its header for a while, and has no used
/// pages.
#[pyfunction]
pub fn find_segments(
    py: Python<'_>,
    space: &Space,
    ranges: Vec<(u64, u64)>,
    entry: u64,
    newer: bool,
) -> PyResult<Vec<(u64, u64, u64, bool)>> {
    let row = |found: FoundSegment| (found.address, found.cookie, found.used, found.tiles);
    let find = |watcher: &dyn gdbheap_core::Watcher| {
        mimalloc::find_segments(watcher, &space.0, &ranges, entry, release(newer))
    };
    Ok(watched(py, None, find)?.into_iter().map(row).collect())
}
