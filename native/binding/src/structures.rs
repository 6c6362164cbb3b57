//! The kinds of the blocks of C++ and Rust programs.

use crate::glibc::{listed, ListedChunk};
use crate::heaps::Heaps;
use crate::memory::{Pages, Space};
use crate::records::{records, Argument};
use crate::rows::{all, answers, exports, Place, Range, Tally};
use crate::watch::{watched, Report};
use gdbheap_core::allocators::glibc::ChunkFilter;
use gdbheap_core::structures::{self, Libraries};
use pyo3::prelude::*;
use std::collections::HashSet;

records! {
    Libraries { libstdcxx, libcxx, rust }
}

answers! {
    /// The number of blocks of one kind, and their bytes including headers. `class_name`: empty if unknown.
    struct KindRow { family: &'static str, class_name: String, count: u64, bytes: u64 }

    /// The containers of one kind.
    ///
    /// - `capacity`: the bytes that their blocks can hold.
    /// - `used`: the bytes that contain items.
    /// - `small`: the unused bytes of the containers that each have less than a page of unused bytes.
    /// - `pages`: the resident unused bytes of the other containers.
    /// - `most`: the largest number of such bytes in one container.
    /// - `address`: the address of that container's block; 0 if there is none.
    struct Capacity of structures::Capacity {
        kind: u32,
        count: u64,
        capacity: u64,
        used: u64,
        small: u64,
        pages: u64,
        most: u64,
        address: u64,
    }
}

exports! {
    classes: Structures;
    functions: find_structures, classes_at, find_mapped, blocks_with;
}

impl From<structures::KindRow> for KindRow {
    fn from(row: structures::KindRow) -> KindRow {
        KindRow { family: row.family, class_name: row.class, count: row.count, bytes: row.bytes }
    }
}

/// The kinds of all used blocks. The blocks are numbered as in a graph of the same heaps.
#[pyclass(frozen)]
pub struct Structures(pub(crate) structures::Structures);

/// Find the kinds of the used blocks, except the blocks of pools.
///
/// `objects`: the memory of loaded objects, ascending. `code`: the executable part of this memory. `statics`, `stacks`:
/// other memory where containers may lie. `named`: the addresses of blocks whose kind is known already. Raises
/// OverflowError if there are more than 2^30 blocks. Also raises MemoryError, KeyboardInterrupt, and any error of
/// `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, objects, code, statics, stacks, libraries, named, progress=None))]
pub fn find_structures(
    py: Python<'_>,
    heaps: &Heaps,
    objects: Vec<Range>,
    code: Vec<Range>,
    statics: Vec<Range>,
    stacks: Vec<Range>,
    libraries: Argument<Libraries>,
    named: Vec<(u64, String)>,
    progress: Option<Report>,
) -> PyResult<Structures> {
    let heaps = heaps.0.clone();
    let find = |watcher: &dyn gdbheap_core::Watcher| {
        structures::find_structures(watcher, heaps, &objects, &code, &statics, &stacks, libraries.0, &named)
    };
    watched(py, progress, find).map(Structures)
}

/// Return the class of the C++ object at each address; None if there is no object with a vtable. `objects`: the memory
/// of loaded objects, ascending.
#[pyfunction]
pub fn classes_at(space: &Space, objects: Vec<Range>, addresses: Vec<u64>) -> Vec<Option<String>> {
    structures::class_at(&space.0, &objects, &addresses)
}

/// Return the used blocks that have one of `words` among their first eight words, as `(address, size, offset of the
/// word)`; at most 524,288 blocks, those with the lowest addresses.
#[pyfunction]
#[pyo3(signature = (heaps, words, progress=None))]
pub fn blocks_with(
    py: Python<'_>,
    heaps: &Heaps,
    words: Vec<u64>,
    progress: Option<Report>,
) -> PyResult<Vec<(u64, u64, u64)>> {
    let heaps = heaps.0.lend();
    watched(py, progress, |watcher| structures::blocks_with(watcher, heaps, &words))
}

/// Return the used blocks that contain the address of a page in `ranges` and, next to it, a size, as `(block, offset of
/// the word, address, size)`. The memory of this address and size must be in one range. `ranges`: ascending and
/// disjoint.
#[pyfunction]
#[pyo3(signature = (heaps, ranges, page, progress=None))]
pub fn find_mapped(
    py: Python<'_>,
    heaps: &Heaps,
    ranges: Vec<Range>,
    page: u64,
    progress: Option<Report>,
) -> PyResult<Vec<structures::MappedBy>> {
    let heaps = heaps.0.lend();
    watched(py, progress, |watcher| structures::find_mapped(watcher, heaps, &ranges, page))
}

#[pymethods]
impl Structures {
    /// Return the known kinds. The first one has the number 1.
    fn rows(&self) -> Vec<KindRow> {
        all(self.0.rows().iter().cloned())
    }

    /// Whether possible containers were left out because they would have taken too much memory.
    #[getter]
    fn left_out(&self) -> bool {
        self.0.left_out()
    }

    /// Return the number and the bytes of all blocks that were examined.
    fn all(&self) -> Tally {
        self.0.all().into()
    }

    /// Return the number of the kind of the block at each address; 0 if the kind is unknown, or if there is no used
    /// block.
    fn kinds_at(&self, addresses: Vec<u64>) -> Vec<u32> {
        addresses.into_iter().map(|address| self.0.kind_at(address)).collect()
    }

    /// Return at most `most` blocks of these kinds, as `(address, size)`.
    fn blocks_of(&self, kinds: HashSet<u32>, most: usize) -> Vec<Place> {
        self.0.blocks_of(&kinds, most)
    }

    /// Return the capacity and the used bytes of containers, one row for each kind. If `pages` is None, all unused
    /// bytes count as resident.
    #[pyo3(signature = (pages=None))]
    fn capacities(&self, pages: Option<&Pages>) -> Vec<Capacity> {
        all(self.0.capacities(pages.map(|pages| &*pages.0)))
    }

    /// Return the used chunks of these kinds that match `wanted`.
    fn chunks_of(&self, kinds: HashSet<u32>, wanted: Argument<ChunkFilter>) -> Vec<ListedChunk> {
        self.0.chunks_of(&kinds, &wanted.0).into_iter().map(listed).collect()
    }
}
