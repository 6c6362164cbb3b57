//! Whose page is it: adds up stretches of address space by owner, page by page.
//!
//! Virtual bytes are exact. A resident or swapped page belongs to exactly one owner: where several touch it, to the one
//! with the highest rank (a used block keeps the whole page).

use crate::chunks::{Chunks, State, STATES};
use crate::mimalloc::Mimalloc;
use crate::pages::{Pages, Run, PAGE, PRESENT, SWAPPED};
use crate::pools::Pools;
use crate::space::Space;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    resident: u64,
    swapped: u64,
}

/// A sweep over ascending stretches; each has an owner, a small number that is its rank too.
#[pyclass]
pub struct Sweep {
    pages: Option<Py<Pages>>,
    sums: Vec<Sum>,
    cursor: usize,
    page: u64,
    owner: u32,
    last: u64,
}

/// The part of a sweep that needs the pages at hand.
struct Sweeper<'a> {
    sweep: &'a mut Sweep,
    runs: &'a [Run],
}

impl Sweeper<'_> {
    fn add(&mut self, start: u64, end: u64, owner: u32) {
        if start >= end {
            return;
        }
        self.sweep.sums[owner as usize].bytes += end - start;
        let (first, last) = (start / PAGE, (end - 1) / PAGE);
        if first != self.sweep.page {
            self.settle();
            (self.sweep.page, self.sweep.owner) = (first, owner);
        } else {
            self.sweep.owner = self.sweep.owner.max(owner);
        }
        if last > first {
            self.settle();
            self.count(first + 1, last, owner);
            (self.sweep.page, self.sweep.owner) = (last, owner);
        }
        self.sweep.last = end;
    }

    /// Gives the page at hand to its owner.
    fn settle(&mut self) {
        let page = self.sweep.page;
        if page != u64::MAX {
            self.count(page, page + 1, self.sweep.owner);
            self.sweep.page = u64::MAX;
        }
    }

    fn count(&mut self, first: u64, end: u64, owner: u32) {
        let (start, end) = (first * PAGE, end.saturating_mul(PAGE));
        while self.runs.get(self.sweep.cursor).is_some_and(|run| run.end <= start) {
            self.sweep.cursor += 1;
        }
        let sum = &mut self.sweep.sums[owner as usize];
        for run in self.runs[self.sweep.cursor..].iter().take_while(|run| run.start < end) {
            let size = run.end.min(end) - run.start.max(start);
            match run.state {
                PRESENT => sum.resident += size,
                SWAPPED => sum.swapped += size,
                _ => {}
            }
        }
    }
}

impl Sweep {
    fn with<R>(&mut self, py: Python<'_>, start: u64, act: impl FnOnce(&mut Sweeper<'_>) -> R) -> PyResult<R> {
        if start < self.last {
            return Err(PyValueError::new_err(format!("stretches must ascend: {start:#x} after {:#x}", self.last)));
        }
        let pages = self.pages.as_ref().map(|pages| pages.clone_ref(py));
        let runs = pages.as_ref().map_or(&[][..], |pages| &pages.get().runs);
        Ok(act(&mut Sweeper { sweep: self, runs }))
    }

    fn check(&self, owner: u32) -> PyResult<u32> {
        if owner as usize >= self.sums.len() {
            return Err(PyValueError::new_err("no such owner"));
        }
        Ok(owner)
    }
}

#[pymethods]
impl Sweep {
    #[new]
    fn new(pages: Option<Py<Pages>>, owners: usize) -> Sweep {
        Sweep { pages, sums: vec![Sum::default(); owners], cursor: 0, page: u64::MAX, owner: 0, last: 0 }
    }

    /// One stretch [start, end) of one owner.
    fn add(&mut self, py: Python<'_>, start: u64, end: u64, owner: u32) -> PyResult<()> {
        let owner = self.check(owner)?;
        self.with(py, start, |sweeper| sweeper.add(start, end, owner))
    }

    /// The blocks of the region that starts at `start`; `owners` maps states to owners. Returns the region's end.
    fn add_chunks(
        &mut self,
        py: Python<'_>,
        chunks: &Chunks,
        start: u64,
        owners: HashMap<String, u32>,
    ) -> PyResult<u64> {
        let by_state: PyResult<Vec<u32>> =
            STATES.iter().map(|state| self.check(owners.get(*state).copied().unwrap_or(u32::MAX))).collect();
        let by_state = by_state?;
        let region = chunks.region_of(start).map(|index| &chunks.regions[index]);
        let region = region.filter(|region| region.stretch.start == start);
        let region = region.ok_or_else(|| PyValueError::new_err("no region starts there"))?;
        self.with(py, start, |sweeper| {
            let mut at = start;
            for (from, to, state) in region.all() {
                sweeper.add(at, from, by_state[State::Unexplained as usize]);
                sweeper.add(from, to, by_state[state as usize]);
                at = to;
            }
            sweeper.add(at, region.stretch.end, by_state[State::Unexplained as usize]);
            region.stretch.end
        })
    }

    /// The parts of the pymalloc arena at `start`; owners for used, free and overhead. Returns the arena's end.
    fn add_arena(
        &mut self,
        py: Python<'_>,
        space: &Space,
        pools: &Pools,
        start: u64,
        owners: (u32, u32, u32),
    ) -> PyResult<u64> {
        let (used, free, overhead) = (self.check(owners.0)?, self.check(owners.1)?, self.check(owners.2)?);
        let place = pools.arenas.binary_search_by_key(&start, |arena| arena.address);
        let arena = &pools.arenas[place.map_err(|_| PyValueError::new_err("no arena starts there"))?];
        self.with(py, start, |sweeper| {
            pools.parts_of_arena(space, arena, |from, to, kind| {
                let owner = match kind {
                    "used" => used,
                    "free" | "free pool" => free,
                    _ => overhead,
                };
                sweeper.add(from, to, owner);
            });
            arena.end
        })
    }

    /// The parts of mimalloc's segment at `start`; owners for used, free, overhead and unexplained. Returns the end.
    fn add_segment(
        &mut self,
        py: Python<'_>,
        mimalloc: &Mimalloc,
        start: u64,
        owners: (u32, u32, u32, u32),
    ) -> PyResult<u64> {
        let (used, free, overhead) = (self.check(owners.0)?, self.check(owners.1)?, self.check(owners.2)?);
        let unexplained = self.check(owners.3)?;
        let place = mimalloc.segments.binary_search_by_key(&start, |segment| segment.address);
        let segment = &mimalloc.segments[place.map_err(|_| PyValueError::new_err("no segment starts there"))?];
        self.with(py, start, |sweeper| {
            mimalloc.parts_of(segment, |from, to, kind| {
                let owner = match kind {
                    "used" => used,
                    "free" | "free span" => free,
                    "unexplained" => unexplained,
                    _ => overhead,
                };
                sweeper.add(from, to, owner);
            });
            segment.end
        })
    }

    /// `(bytes, resident, swapped)` by owner.
    fn finish(&mut self, py: Python<'_>) -> PyResult<Vec<(u64, u64, u64)>> {
        self.with(py, self.last, |sweeper| sweeper.settle())?;
        Ok(self.sums.iter().map(|sum| (sum.bytes, sum.resident, sum.swapped)).collect())
    }
}
