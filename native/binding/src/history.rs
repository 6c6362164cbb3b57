//! All blocks of a look, and two looks compared.

use crate::graph::{Graph, NodesRetained};
use crate::heaps::Heaps;
use crate::records::Given;
use crate::rows::{all, answers};
use crate::watch::{raised, watched, Report};
use gdbheap_core::history::{self, BlockSums, LabelledRange};
use gdbheap_core::python::TypeLayout;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

answers! {
    /// How many blocks of a kind (0 for no object, else the place of its type among `types` plus one) begin in the ranges
    /// with a label, and how many bytes of such blocks lie there.
    struct PlaceShare of history::PlaceShare { label: u32, kind: u16, count: u64, bytes: u64 }

    /// Blocks of one type (as the caller numbers them, 0 for no object) and size: how many are still there, came, and went.
    struct BlockChange of BlockSums { kind: u32, size: u64, kept: u64, new: u64, gone: u64 }

    /// Rows, the most new bytes first, and for each the addresses of some of the new blocks, and `(holder, blocks)` of all
    /// of them, the most first: 0 where no single one is known, 65,535 where nothing leads to them.
    struct BlockChanges { rows: Vec<BlockChange>, samples: Vec<Vec<u64>>, holders: Vec<Vec<(u16, u64)>> }
}

/// Rows of blocks of one store after one another, as plain columns: eight bytes each for addresses, sizes, objects (empty
/// unless those alone were wanted) and what they retain (empty unless that was), four for kinds: numbers of types from 1 on,
/// 0 for no living object.
#[pyclass(frozen)]
pub struct BlockBatch(history::BlockBatch);

#[pymethods]
impl BlockBatch {
    /// Whose they are.
    #[getter]
    fn store(&self) -> usize {
        self.0.store
    }

    /// The place of the first one among all blocks.
    #[getter]
    fn first(&self) -> usize {
        self.0.first
    }

    #[getter]
    fn count(&self) -> usize {
        self.0.count
    }

    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.addresses)
    }

    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.sizes)
    }

    #[getter]
    fn kinds<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.kinds)
    }

    #[getter]
    fn objects<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.objects)
    }

    #[getter]
    fn retained<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.retained)
    }
}

/// What each block of some columns retains.
#[pyclass(frozen)]
pub struct Retained(Arc<history::Retained>);

/// Reads the rows of columns once, from the first to the last.
#[pyclass]
pub struct BlockBatches(history::BlockBatches);

#[pymethods]
impl BlockBatches {
    /// The next rows, None after the last. Raises ValueError where the columns do not fit each other.
    fn read(&mut self) -> PyResult<Option<BlockBatch>> {
        Ok(self.0.read().map_err(raised)?.map(BlockBatch))
    }
}

/// The columns of a target's blocks; native/core/src/history/columns.rs says what each is.
#[pyclass(frozen)]
pub struct BlockColumns(Arc<history::BlockColumns>);

#[pymethods]
impl BlockColumns {
    /// `columns`: addresses, far, sizes, large, kinds, holders, offsets; `types`: how many types `kinds` counts. Raises
    /// ValueError where they do not fit each other.
    #[new]
    fn new(py: Python<'_>, counts: Vec<u64>, columns: [Vec<u8>; 7], types: usize) -> PyResult<BlockColumns> {
        let [addresses, far, sizes, large, kinds, holders, offsets] = columns;
        let all =
            history::BlockColumns { counts, addresses, far, sizes, large, kinds, holders, offsets, types: Vec::new() };
        py.detach(|| all.check(types)).map_err(raised)?;
        Ok(BlockColumns(Arc::new(all)))
    }

    /// Its rows, at most `most` at a time; `objects`: only those with living objects. Raises ValueError where the columns do
    /// not fit each other, or where that is not known of them.
    #[pyo3(signature = (most, objects=false, retained=None))]
    fn batches(&self, most: usize, objects: bool, retained: Option<&Retained>) -> PyResult<BlockBatches> {
        let form = history::BatchForm { most, objects, retained: retained.map(|retained| retained.0.clone()) };
        Ok(BlockBatches(history::BlockBatches::new(self.0.clone(), form).map_err(raised)?))
    }

    /// What each block retains by the graph of these blocks; `by_node`: what `graph.retained_of_all()` found.
    fn retained(&self, py: Python<'_>, graph: &Graph, by_node: &NodesRetained) -> PyResult<Retained> {
        let found = py.detach(|| self.0.retained(&graph.0, &by_node.0));
        Ok(Retained(Arc::new(found.map_err(raised)?)))
    }

    /// The same blocks with their holders: for each the innermost of `among` (numbers of the graph of these blocks) that
    /// alone leads to it. Raises ValueError for a number that is none.
    fn held(&self, py: Python<'_>, graph: &Graph, among: Vec<u32>) -> PyResult<BlockColumns> {
        let columns = history::BlockColumns::clone(&self.0);
        let hold = |watcher: &dyn gdbheap_core::Watcher| columns.held(watcher, &graph.0, &among);
        Ok(BlockColumns(Arc::new(watched(py, None, hold)?)))
    }

    /// What lies in `ranges`, by label and kind. Raises ValueError for ranges that do not ascend, and for blocks that
    /// overlap.
    fn shares(&self, py: Python<'_>, ranges: Vec<LabelledRange>) -> PyResult<Vec<PlaceShare>> {
        let columns = &self.0;
        let share = |watcher: &dyn gdbheap_core::Watcher| columns.shares(watcher, &ranges);
        Ok(all(watched(py, None, share)?))
    }

    /// How many blocks each store has.
    #[getter]
    fn counts(&self) -> Vec<u64> {
        self.0.counts.clone()
    }

    /// The addresses of the types.
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

/// All used blocks; without a layout none is an object. Raises
/// KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout=None, progress=None))]
pub fn list_blocks(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Option<Given<TypeLayout>>,
    progress: Option<Report>,
) -> PyResult<BlockColumns> {
    let heaps = heaps.0.lend();
    let layout = layout.map(|given| given.0);
    let list = |watcher: &dyn gdbheap_core::Watcher| history::list_blocks(watcher, heaps, layout.as_ref());
    Ok(BlockColumns(Arc::new(watched(py, progress, list)?)))
}

/// What came and went between two looks. `old_types`, `new_types`: the caller's number of each type of a look. At most
/// `most` addresses for each row. Raises ValueError for columns that do not fit each other.
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
