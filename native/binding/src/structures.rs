//! What the blocks of programs in C++ and Rust are.

use crate::glibc::{listed, ListedChunk};
use crate::heaps::Heaps;
use crate::memory::{Pages, Space};
use crate::records::{records, Given};
use crate::rows::{all, answers, Place, Range, Tally};
use crate::watch::{watched, Report};
use gdbheap_core::allocators::glibc::Wanted;
use gdbheap_core::structures::{self, Libraries};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashSet;

records! {
    Libraries { libstdcxx, libcxx, rust }
}

answers! {
    /// Blocks of one kind, and their bytes with headers. `class_name` is empty where none is known.
    struct KindRow { family: &'static str, class_name: String, count: u64, bytes: u64 }

    /// Containers of one kind, by its number: the bytes that their blocks can hold, those that hold something, the room of
    /// those with less than a page of it (`small`), resident bytes of the others' room (`pages`), what one of them has at
    /// `most`, and the address of its block, 0 without one.
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

impl From<structures::KindRow> for KindRow {
    fn from(row: structures::KindRow) -> KindRow {
        KindRow { family: row.family, class_name: row.class, count: row.count, bytes: row.bytes }
    }
}

/// The kinds of all used blocks, by the numbers that a graph of the same heaps gives them.
#[pyclass(frozen)]
pub struct Structures(pub(crate) structures::Structures);

/// Looks at all blocks but those of pools. `objects`: the memory of loaded objects, ascending, `code`: what of it can be
/// executed; `statics`, `stacks`: where else containers may lie; `named`: addresses of blocks with what they are known to be. Raises MemoryError, OverflowError where there are more than 2^30 blocks, KeyboardInterrupt and
/// whatever `progress(done, total)` raises.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (heaps, objects, code, statics, stacks, libraries, named, progress=None))]
pub fn find_structures(
    py: Python<'_>,
    heaps: &Heaps,
    objects: Vec<Range>,
    code: Vec<Range>,
    statics: Vec<Range>,
    stacks: Vec<Range>,
    libraries: Given<Libraries>,
    named: Vec<(u64, String)>,
    progress: Option<Report>,
) -> PyResult<Structures> {
    let heaps = heaps.0.clone();
    let find = |watcher: &dyn gdbheap_core::Watcher| {
        structures::find_structures(watcher, heaps, &objects, &code, &statics, &stacks, libraries.0, &named)
    };
    watched(py, progress, find).map(Structures)
}

/// The class of the C++ object that begins at each address, None where none with a vtable does. `objects`: the memory of
/// loaded objects, ascending.
#[pyfunction]
pub fn classes_at(space: &Space, objects: Vec<Range>, addresses: Vec<u64>) -> Vec<Option<String>> {
    structures::class_at(&space.0, &objects, &addresses)
}

/// The used blocks that have one of `words` among their first eight, as `(address, size, offset of the word)`.
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

/// The used blocks with the address of a page in `ranges`, which are ascending and disjoint, and a size beside it that ends
/// there too: `(block, place of the word, address, size)`.
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
    /// The kinds that are known, numbered from one on.
    fn rows(&self) -> Vec<KindRow> {
        all(self.0.rows().iter().cloned())
    }

    /// The number of each block's kind, four bytes each, in the order of the blocks; zero where none is known.
    fn by_block<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let numbers: Vec<u8> = self.0.by_block().iter().flat_map(|number| number.to_le_bytes()).collect();
        PyBytes::new(py, &numbers)
    }

    /// Whether what may be containers was left out, as it would have taken too much memory.
    #[getter]
    fn left_out(&self) -> bool {
        self.0.left_out()
    }

    /// All blocks that were looked at.
    fn all(&self) -> Tally {
        self.0.all().into()
    }

    /// The kind of the block that holds each address: zero where none is known, and where there is no used block.
    fn kinds_at(&self, addresses: Vec<u64>) -> Vec<u32> {
        addresses.into_iter().map(|address| self.0.kind_at(address)).collect()
    }

    /// The blocks of these kinds as `(address, size)`; of more than `most` the first.
    fn blocks_of(&self, kinds: HashSet<u32>, most: usize) -> Vec<Place> {
        self.0.blocks_of(&kinds, most)
    }

    /// What containers have room for and use, a row for each kind of them. Without `pages` all room counts as resident.
    #[pyo3(signature = (pages=None))]
    fn capacities(&self, pages: Option<&Pages>) -> Vec<Capacity> {
        all(self.0.capacities(pages.map(|pages| &*pages.0)))
    }

    /// The used chunks of these kinds that are wanted.
    fn chunks_of(&self, kinds: HashSet<u32>, wanted: Given<Wanted>) -> Vec<ListedChunk> {
        self.0.chunks_of(&kinds, &wanted.0).into_iter().map(listed).collect()
    }
}
