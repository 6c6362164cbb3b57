//! The reference graph of a target.

use crate::heaps::Heaps;
use crate::records::{records, Given};
use crate::watch::{raised, watched};
use gdbheap_core::graph::{self, Form, FrameLayout, GraphLayout, KeysLayout, Lost, RetainedByType, Root};
use gdbheap_core::python::TypeLayout;
use pyo3::prelude::*;
use std::collections::HashSet;

records! {
    Form {
        names, opaque, fields, skipped, items, frame, frame_state, frame_gone, frame_pointer, table, table_pointer,
        table_mask, table_step, table_first, table_words,
    }
    FrameLayout { fields, code, locals, top, top_is_pointer, stack, code_locals, tags }
    KeysLayout { kind, log2_index_bytes, size, entries, indices }
    GraphLayout {
        ob_size, set_key, tp_weaklistoffset, tp_dictoffset, sizeof_type, forms, frame, keys, flag_heap_type,
        flag_managed_dict, managed_dict, flag_inline_values, closed, closed_families,
    }
    Root { phase, pointers, ranges }
}

/// What a number stands for: `(place, address, size, type address, kind)`; see `Graph.node`.
type NodeRow = (&'static str, u64, u64, u64, &'static str);

/// `(type address, whether stray words lead there, size of a block, blocks, bytes, buffers, some of their addresses)`.
type LostRow = (u64, bool, u64, u64, u64, u64, Vec<u64>);

/// The references between all blocks of one target.
#[pyclass(frozen)]
pub struct Graph(graph::Graph);

/// The addresses of static types, ascending: what looks like one in the data of loaded objects.
#[pyfunction]
pub fn static_types(heaps: &Heaps, layout: Given<TypeLayout>) -> Vec<u64> {
    graph::static_types(heaps.0.lend(), &layout.0)
}

/// Reads all edges. `statics`: static types, ascending. Raises MemoryError,
/// OverflowError where there are more than 2^30 blocks or 2^32 edges, KeyboardInterrupt and whatever
/// `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, graph, statics, roots, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn draw_graph(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    graph: Given<GraphLayout>,
    statics: Vec<u64>,
    roots: Given<Vec<Root>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Graph> {
    let heaps = heaps.0.clone();
    let draw =
        |watcher: &dyn gdbheap_core::Watcher| graph::draw_graph(watcher, heaps, layout.0, &graph.0, statics, &roots.0);
    watched(py, progress, draw).map(Graph)
}

impl Graph {
    fn row(&self, id: u32) -> PyResult<NodeRow> {
        let row = self.0.node(id).map_err(raised)?;
        Ok((row.place, row.address, row.size, row.type_address, row.kind))
    }
}

#[pymethods]
impl Graph {
    #[getter]
    fn nodes(&self) -> usize {
        self.0.nodes()
    }

    #[getter]
    fn edge_count(&self) -> usize {
        self.0.edge_count()
    }

    /// The number of the block that holds `address`, or of the static type there; None elsewhere.
    fn find(&self, address: u64) -> Option<u32> {
        self.0.find(address)
    }

    /// `(place, address, size, type address, kind)`. Place: block, static or root. The address is a block's first byte,
    /// a static type's, or a root's place in the list that was given. Kind: object, idle (on a free list), buffer or
    /// unknown; the type address is 0 for what is no object.
    fn node(&self, id: u32) -> PyResult<NodeRow> {
        self.row(id)
    }

    /// What several numbers stand for; see `node`.
    fn nodes_of(&self, ids: Vec<u32>) -> PyResult<Vec<NodeRow>> {
        ids.into_iter().map(|id| self.row(id)).collect()
    }

    /// `(target, strength)` of the node's edges: 0 exact, 1 likely, 2 doubtful, 3 stray.
    fn edges(&self, id: u32) -> PyResult<Vec<(u32, u32)>> {
        self.0.edges(id).map_err(raised)
    }

    /// Who points to any of `ids`: `(source, target, strength)`, by source. Looks at all edges.
    fn referrers(&self, py: Python<'_>, ids: HashSet<u32>) -> PyResult<Vec<(u32, u32, u32)>> {
        watched(py, None, |watcher| self.0.referrers(watcher, &ids))
    }

    /// A shortest chain from a root to the node, the node last; empty where nothing leads there.
    fn chain(&self, py: Python<'_>, id: u32) -> PyResult<Vec<u32>> {
        watched(py, None, |watcher| self.0.chain(watcher, id))
    }

    /// In which phase each of `ids` was reached; 5: in none.
    fn phases(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<u8>> {
        watched(py, None, |watcher| self.0.phases(watcher, &ids))
    }

    /// The nodes without which the node would not be reached, the outermost first, the node last; of many the first and
    /// the last `ends`.
    #[pyo3(signature = (id, ends=None))]
    fn dominator_chain(&self, py: Python<'_>, id: u32, ends: Option<usize>) -> PyResult<Vec<u32>> {
        watched(py, None, |watcher| self.0.dominator_chain(watcher, id, ends))
    }

    /// Bytes that each of `ids` retains: its own and those of all that it dominates.
    fn retained(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<u64>> {
        watched(py, None, |watcher| self.0.retained(watcher, &ids))
    }

    /// The objects that retain most, `(id, bytes)`, first the most; those in `without`, those that retain no more than
    /// their own block, and the inner ones of nested objects of one type are left out.
    #[pyo3(signature = (top, without))]
    fn top_retained(&self, py: Python<'_>, top: Option<usize>, without: HashSet<u32>) -> PyResult<Vec<(u32, u64)>> {
        watched(py, None, |watcher| self.0.top_retained(watcher, top, &without))
    }

    /// Of each type `(type address, objects, bytes, retained)`: what would be free if all objects of the type went. Of
    /// more than `top` types those that retain most, and others that retain as much.
    #[pyo3(signature = (top))]
    fn retained_by_type(&self, py: Python<'_>, top: Option<usize>) -> PyResult<Vec<(u64, u64, u64, u64)>> {
        let row = |row: RetainedByType| (row.type_address, row.count, row.bytes, row.retained);
        let found = watched(py, None, |watcher| self.0.retained_by_type(watcher, top))?;
        Ok(found.into_iter().map(row).collect())
    }

    /// Bytes that would be free if all of a set of nodes went, for each set.
    fn retained_together(&self, py: Python<'_>, sets: Vec<Vec<u32>>) -> PyResult<Vec<u64>> {
        watched(py, None, |watcher| self.0.retained_together(watcher, &sets))
    }

    /// The largest blocks of at least `minimum` bytes, `(id, bytes)`, largest first, and before them how many there are
    /// and their bytes.
    #[pyo3(signature = (minimum, top))]
    fn largest(&self, py: Python<'_>, minimum: u64, top: Option<usize>) -> (u64, u64, Vec<(u32, u64)>) {
        let (all, rows) = py.detach(|| self.0.largest(minimum, top));
        (all.count, all.bytes, rows)
    }

    /// The objects of a type, by number.
    fn objects_of(&self, type_address: u64) -> Vec<u32> {
        self.0.objects_of(type_address)
    }

    /// The addresses of all types that have objects.
    fn type_addresses(&self) -> Vec<u64> {
        self.0.type_addresses().to_vec()
    }

    /// What nothing keeps alive, and blocks to which only stray words lead, by type and size, with at most `most`
    /// addresses (of blocks) in each row. `counted`: of objects only what the collector would free.
    #[pyo3(signature = (most, counted=false))]
    fn unreachable(&self, py: Python<'_>, most: usize, counted: bool) -> PyResult<Vec<LostRow>> {
        let row = |lost: Lost| {
            let Lost { type_address, by_stray, size, count, bytes, buffers, addresses } = lost;
            (type_address, by_stray, size, count, bytes, buffers, addresses)
        };
        let found = watched(py, None, |watcher| self.0.unreachable(watcher, most, counted))?;
        Ok(found.into_iter().map(row).collect())
    }
}
