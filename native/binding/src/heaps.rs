//! The blocks of all allocators of one target.

use crate::detaching::detached;
use crate::memory::Space;
use crate::records::Argument;
use crate::rows::{
    all, answers, damage_rows, exports, size_class, used, BlockList, Damage, Hole, Member, Place, Range, SizeClass,
};
use crate::watch::watched;
use gdbheap_core::allocators::{self, BlockLister, BlockQuery, Extents, SharedHeaps, Store};
use pyo3::prelude::*;
use pyo3::PyClass;
use std::sync::Arc;

answers! {
    /// The number of blocks into which some words point, with the addresses and sizes of the largest of these blocks.
    struct LedTo { count: u64, rows: Vec<Place> }

    /// An area [start, end) of one allocator, without gaps. `root`: the index of the allocator among several.
    struct ExtentArea of allocators::Area { start: u64, end: u64, root: u32 }

    /// The part of an allocator's memory that contains an address.
    ///
    /// - `state`: "used", "free", "metadata", "padding", "unexplained", or one of the allocator's names for unused
    ///   pages.
    /// - `list`: the list or cache that contains a free block.
    /// - `root`: the index of the block's allocator among several.
    /// - `arena`: the number of the block's arena; None if the allocator has no arenas.
    struct ExtentPart of allocators::ExtentPart {
        address: u64,
        size: u64,
        state: &'static str,
        list: Option<&'static str>,
        root: u32,
        arena: Option<u32>,
    }
}

exports! {
    classes: BlockStore, ListedStore, ExtentStore, Heaps;
}

/// A source of blocks: all blocks of one allocator.
#[pyclass(frozen, subclass)]
pub struct BlockStore(pub Store);

impl BlockStore {
    /// Make a Python object of a subclass of BlockStore. Its blocks are those of `store`.
    pub fn with<T: PyClass<BaseType = BlockStore>>(py: Python<'_>, store: Store, value: T) -> PyResult<Py<T>> {
        Py::new(py, PyClassInitializer::from(BlockStore(store)).add_subclass(value))
    }
}

/// An allocator that lists its blocks and its holes.
#[pyclass(frozen, subclass, extends = BlockStore)]
pub struct ListedStore(Arc<dyn BlockLister>);

impl ListedStore {
    /// Return the initializer for a subclass of ListedStore: the object's BlockStore, and the lister of its blocks.
    pub fn base(store: Store, listing: Arc<dyn BlockLister>) -> PyClassInitializer<ListedStore> {
        PyClassInitializer::from(BlockStore(store)).add_subclass(ListedStore(listing))
    }
}

#[pymethods]
impl ListedStore {
    /// Return the blocks that match the request `asked`.
    fn list_blocks(&self, py: Python<'_>, asked: Argument<BlockQuery>) -> BlockList {
        detached(py, || self.0.list_blocks(&asked.0)).into()
    }

    /// Return the first `most` used blocks of `least` to `largest` bytes, ascending.
    fn first_used(&self, py: Python<'_>, least: u64, largest: u64, most: usize) -> Vec<Member> {
        detached(py, || self.0.first_used(least, largest, most)).into_iter().map(used).collect()
    }

    /// Return the `most` largest used blocks of at least `least` bytes, largest first.
    fn largest_used(&self, py: Python<'_>, least: u64, most: usize) -> Vec<Member> {
        detached(py, || self.0.largest_used(least, most)).into_iter().map(used).collect()
    }

    /// The damage that was found while the memory was read.
    #[getter]
    fn damage(&self) -> Vec<Damage> {
        damage_rows(self.0.damage())
    }

    /// Return the maximal runs of unused bytes, of at least `minimum` bytes.
    fn holes(&self, py: Python<'_>, minimum: u64) -> PyResult<Vec<Hole>> {
        Ok(all(watched(py, None, |watcher| self.0.holes(watcher, minimum))?))
    }
}

/// One or more allocators of one kind, which cut extents of pages into runs of equal blocks.
#[pyclass(frozen, subclass, extends = ListedStore)]
pub struct ExtentStore(Arc<Extents>);

impl ExtentStore {
    /// Make a Python object of a subclass of ExtentStore. Its blocks are those of `extents`.
    pub fn with<T: PyClass<BaseType = ExtentStore>>(
        py: Python<'_>,
        extents: Arc<Extents>,
        value: T,
    ) -> PyResult<Py<T>> {
        let base = ListedStore::base(Store::Extents(extents.clone()), extents.clone());
        Py::new(py, base.add_subclass(ExtentStore(extents)).add_subclass(value))
    }
}

#[pymethods]
impl ExtentStore {
    /// Return the areas of the allocators, ascending. An area has no gaps.
    fn areas(&self) -> Vec<ExtentArea> {
        all(self.0.areas().iter().copied())
    }

    /// Return the numbers of blocks of each size, for the allocator with the index `root`. If `root` is None, return
    /// those of all allocators. Blocks in any cache count as free.
    #[pyo3(signature = (root=None))]
    fn classes(&self, root: Option<u32>) -> Vec<SizeClass> {
        self.0.classes(root).into_iter().map(size_class).collect()
    }

    /// Return [start, end) of the blocks in caches, ascending; adjacent blocks are merged.
    fn waiting(&self) -> Vec<Range> {
        self.0.waiting()
    }

    /// The number of runs, such as slabs and large blocks.
    #[getter]
    fn run_count(&self) -> usize {
        self.0.run_count()
    }

    /// Return the part that contains `address`; None outside all areas.
    fn find(&self, address: u64) -> Option<ExtentPart> {
        self.0.find(address).map(ExtentPart::from)
    }

    /// Return the used blocks of the run that contains `address`.
    fn used_in_run(&self, address: u64) -> Vec<Member> {
        self.0.used_in_run(address).into_iter().map(used).collect()
    }
}

/// The stores (BlockStore) of all allocators of one target. An address that is in several stores belongs to the first
/// of them.
#[pyclass(frozen)]
pub struct Heaps(pub SharedHeaps);

#[pymethods]
impl Heaps {
    #[new]
    fn new(space: &Space, stores: Vec<Py<BlockStore>>) -> Heaps {
        Heaps(SharedHeaps {
            space: space.0.clone(),
            stores: stores.iter().map(|store| store.get().0.clone()).collect(),
        })
    }

    /// Return the blocks that words in [start, end) point into, each block once, largest first, at most `top` blocks.
    fn led_to(&self, py: Python<'_>, start: u64, end: u64, top: usize) -> LedTo {
        let mut rows = detached(py, || self.0.lend().led_to(start, end));
        let count = rows.len() as u64;
        rows.truncate(top);
        LedTo { count, rows }
    }
}
