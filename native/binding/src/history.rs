//! All blocks of a snapshot, and the comparison of two snapshots.

use crate::detaching::detached;
use crate::graph::{Graph, NodesRetained};
use crate::heaps::Heaps;
use crate::records::Argument;
use crate::rows::{all, answers, exports};
use crate::watch::{raised, watched, Report};
use gdbheap_core::history::{self, BlockSums, LabelledRange};
use gdbheap_core::python::TypeLayout;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

answers! {
    /// The blocks of a kind in the ranges with one label. `kind`: 0 for blocks that are not objects, else the index of
    /// the type in `types` plus one. `count`: the number of blocks that begin in the ranges. `bytes`: the bytes of such
    /// blocks that are inside the ranges.
    struct PlaceShare of history::PlaceShare { label: u32, kind: u16, count: u64, bytes: u64 }

    /// The blocks of one type and size: how many of them are in both snapshots, only in the new one, and only in the
    /// old one. `kind`: the caller's number of the type, 0 for blocks that are not objects.
    struct BlockChange of BlockSums { kind: u32, size: u64, kept: u64, new: u64, gone: u64 }

    /// The changes, those with the most new bytes first. For each row, `samples` has the addresses of some of the new
    /// blocks, and `holders` has `(holder, blocks)` for all new blocks, most blocks first. Holder 0: no single holder
    /// is known. Holder 65,535: unreachable.
    struct BlockChanges { rows: Vec<BlockChange>, samples: Vec<Vec<u64>>, holders: Vec<Vec<(u16, u64)>> }

    /// Consecutive blocks of one store as columns of little-endian numbers.
    ///
    /// - `store`: the index of the store.
    /// - `first`: the index of the first of these blocks in the list of all blocks.
    /// - `addresses`, `sizes`: 8 bytes each.
    /// - `objects`: 8 bytes each; empty unless only objects were requested.
    /// - `retained`: 8 bytes each; empty unless requested.
    /// - `kinds`: 4 bytes each, the number of the type, counted from 1; 0 for a block without a living object.
    struct BlockBatch of history::BlockBatch {
        store: usize,
        first: usize,
        count: usize,
        addresses: Vec<u8>,
        sizes: Vec<u8>,
        kinds: Vec<u8>,
        objects: Vec<u8>,
        retained: Vec<u8>,
    }
}

exports! {
    classes: BlockColumns, BlockBatches, RetainedBytes;
    functions: list_blocks, compare_blocks;
}

/// The bytes that each block of a BlockColumns retains.
#[pyclass(frozen)]
pub struct RetainedBytes(Arc<history::RetainedBytes>);

/// A reader that goes through the rows of block columns once, from the first row to the last.
#[pyclass]
pub struct BlockBatches(history::BlockBatches);

#[pymethods]
impl BlockBatches {
    /// Return the next rows; None after the last row. Raises ValueError if the columns contradict each other.
    fn read(&mut self) -> PyResult<Option<BlockBatch>> {
        Ok(self.0.read().map_err(raised)?.map(BlockBatch::from))
    }
}

/// The columns of the blocks of a target; see native/core/src/history/columns.rs for the meaning of each column.
#[pyclass(frozen)]
pub struct BlockColumns(Arc<history::BlockColumns>);

#[pymethods]
impl BlockColumns {
    /// Create the object from columns that were stored earlier. Raises ValueError if the columns contradict each other.
    ///
    /// - `counts`: the number of blocks in each store.
    /// - `columns`: addresses, far, sizes, large, kinds, holders and offsets, as native/core/src/history/columns.rs
    ///   explains them.
    /// - `types`: the number of types to which `kinds` may refer.
    #[new]
    fn new(py: Python<'_>, counts: Vec<u64>, columns: [Vec<u8>; 7], types: usize) -> PyResult<BlockColumns> {
        let [addresses, far, sizes, large, kinds, holders, offsets] = columns;
        let all =
            history::BlockColumns { counts, addresses, far, sizes, large, kinds, holders, offsets, types: Vec::new() };
        detached(py, || all.check(types)).map_err(raised)?;
        Ok(BlockColumns(Arc::new(all)))
    }

    /// Return a reader of the rows, which returns at most `most` rows at a time. `objects`: whether to read only blocks
    /// with living objects. Raises ValueError if the columns contradict each other, or if they lack requested data:
    /// columns of older files do not say where the objects are.
    #[pyo3(signature = (most, objects=false, retained=None))]
    fn batches(&self, most: usize, objects: bool, retained: Option<&RetainedBytes>) -> PyResult<BlockBatches> {
        let form = history::BatchForm { most, objects, retained: retained.map(|retained| retained.0.clone()) };
        Ok(BlockBatches(history::BlockBatches::new(self.0.clone(), form).map_err(raised)?))
    }

    /// Return the bytes that each block retains, according to the graph of these blocks. `by_node`: the result of
    /// `graph.retained_of_all()`.
    fn retained(&self, py: Python<'_>, graph: &Graph, by_node: &NodesRetained) -> PyResult<RetainedBytes> {
        let found = detached(py, || self.0.retained(&graph.0, &by_node.0));
        Ok(RetainedBytes(Arc::new(found.map_err(raised)?)))
    }

    /// Return the same blocks with their holders. The holder of a block is the innermost of the nodes `among` that
    /// dominates it. `among`: numbers of nodes in the graph of these blocks. Raises ValueError for an invalid number.
    fn held(&self, py: Python<'_>, graph: &Graph, among: Vec<u32>) -> PyResult<BlockColumns> {
        let columns = history::BlockColumns::clone(&self.0);
        let hold = |watcher: &dyn gdbheap_core::Watcher| columns.held(watcher, &graph.0, &among);
        Ok(BlockColumns(Arc::new(watched(py, None, hold)?)))
    }

    /// Return the number and the bytes of the blocks in `ranges`, by label and kind. Raises ValueError if the ranges
    /// are not ascending, or blocks overlap.
    fn shares(&self, py: Python<'_>, ranges: Vec<LabelledRange>) -> PyResult<Vec<PlaceShare>> {
        let columns = &self.0;
        let share = |watcher: &dyn gdbheap_core::Watcher| columns.shares(watcher, &ranges);
        Ok(all(watched(py, None, share)?))
    }

    /// The number of blocks in each store (each allocator's memory), in the order of the stores.
    #[getter]
    fn counts(&self) -> Vec<u64> {
        self.0.counts.clone()
    }

    /// The addresses of the types. The column `kinds` contains their indices plus one. Empty if the columns were
    /// created from stored ones.
    #[getter]
    fn types(&self) -> Vec<u64> {
        self.0.types.clone()
    }

    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.addresses)
    }

    #[getter]
    fn far<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.far)
    }

    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.sizes)
    }

    #[getter]
    fn large<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.large)
    }

    #[getter]
    fn kinds<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.kinds)
    }

    #[getter]
    fn holders<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.holders)
    }

    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.offsets)
    }
}

/// Return all used blocks. If `layout` is None, no block is treated as an object. Raises KeyboardInterrupt, and any
/// error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout=None, progress=None))]
pub fn list_blocks(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Option<Argument<TypeLayout>>,
    progress: Option<Report>,
) -> PyResult<BlockColumns> {
    let heaps = heaps.0.lend();
    let layout = layout.map(|given| given.0);
    let list = |watcher: &dyn gdbheap_core::Watcher| history::list_blocks(watcher, heaps, layout.as_ref());
    Ok(BlockColumns(Arc::new(watched(py, progress, list)?)))
}

/// Compare the blocks of two snapshots. `old_types`, `new_types`: the caller's number for each type of a snapshot.
/// `most`: the largest number of addresses in each row. Raises ValueError if the columns of a snapshot contradict each
/// other.
#[pyfunction]
pub fn compare_blocks(
    py: Python<'_>,
    before: &BlockColumns,
    old_types: Vec<u32>,
    after: &BlockColumns,
    new_types: Vec<u32>,
    most: usize,
) -> PyResult<BlockChanges> {
    let compare = |watcher: &dyn gdbheap_core::Watcher| {
        history::compare_blocks(watcher, (&before.0, &old_types), (&after.0, &new_types), most)
    };
    let found = watched(py, None, compare)?;
    Ok(BlockChanges { rows: all(found.rows), samples: found.samples, holders: found.holders })
}
