//! The classes and functions for the reference graph of a target that Python sees.

use crate::heaps::Heaps;
use crate::records::{records, Given};
use crate::rows::{all, answers, exports};
use crate::structures::Structures;
use crate::watch::{raised, watched, Report};
use gdbheap_core::graph::{self, CollectorFacts, Form, FrameLayout, GraphLayout, KeysLayout, NodeRow, Root, Tables};
use gdbheap_core::python::TypeLayout;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashSet;

records! {
    Form {
        names, opaque, fields, skipped, items, frame, frame_state, frame_gone, frame_pointer, table, table_pointer,
        table_mask, table_step, table_first, table_words, is_handle,
    }
    FrameLayout { fields, code, locals, top, top_is_pointer, executing, stack, code_locals, tags }
    KeysLayout { kind, log2_index_bytes, size, entries, indices }
    GraphLayout {
        ob_size, set_key, tp_weaklistoffset, tp_dictoffset, sizeof_type, forms, frame, keys, flag_heap_type,
        flag_managed_dict, managed_dict, flag_inline_values, closed, closed_families,
        interpreters,
    }
    Root { phase, pointers, ranges }
    Tables { data, code }
    CollectorFacts { frames, code, finalized, frozen }
}

answers! {
    /// A node of the graph. `place`: "block", "static" (a static type) or "root". `address`: the first byte of the
    /// block or of the static type; for a root, its index in the list that was passed in. `size`: the size of the block
    /// in bytes; 0 for other nodes. `kind`: "object", "idle" (an object on a free list), "buffer" or "unknown".
    /// `type_address`: 0 if the node is not an object.
    struct GraphNode of NodeRow { place: &'static str, address: u64, size: u64, type_address: u64, kind: &'static str }

    /// An edge to the node `target`. `strength`: 0 exact, 1 likely, 2 doubtful, 3 stray (possibly stale).
    struct Edge { target: u32, strength: u32 }

    /// An edge from the node `source` to the node `target`, which is one of the nodes that the caller asked about.
    /// `strength`: the same as in `Edge`.
    struct Referrer { source: u32, target: u32, strength: u32 }

    /// The number of a node, and a number of bytes: the node's own size, or the bytes that it retains.
    struct NodeBytes { id: u32, bytes: u64 }

    /// Blocks that match: their number, their bytes, and the largest of them.
    struct LargestBlocks { count: u64, bytes: u64, rows: Vec<NodeBytes> }

    /// The objects of one type: their number, their own bytes, and the bytes that removing all of them would free.
    struct RetainedByType of graph::RetainedByType { type_address: u64, count: u64, bytes: u64, retained: u64 }

    /// The reason why some blocks are not free.
    ///
    /// `group`: "cycles", "lost_references", "lost_blocks" or "doubtful". `kind`: for cycles "collectable", "likely",
    /// "hidden", "frozen", "untracked" or "finalizer"; for lost blocks "nothing" (nothing points to them) or "circle";
    /// else "reference" or "weak". `count`: the number of cycles or of heads. `nodes`: some objects of one of the
    /// cycles. `length`: the number of all objects of that cycle.
    struct Cause of graph::Cause {
        group: &'static str,
        kind: &'static str,
        count: u64,
        type_address: u64,
        nodes: Vec<u32>,
        length: u64,
    }

    /// Unreachable blocks of one type and size with the same cause. `cause`: the index of the cause in
    /// Unreachable.causes. `is_head`: True for the blocks that the cause is about, False for blocks that are reachable
    /// only from those blocks. `type_address`: 0 for blocks that are not objects. `bytes`: the bytes of the blocks
    /// themselves. `buffers`: the bytes of the buffers that belong to the blocks. `addresses`: the addresses of some of
    /// the blocks.
    struct Lost of graph::Lost {
        cause: u32,
        is_head: bool,
        type_address: u64,
        size: u64,
        count: u64,
        bytes: u64,
        buffers: u64,
        addresses: Vec<u64>,
    }

    /// The blocks that no root keeps alive, and the reasons for that.
    struct Unreachable { causes: Vec<Cause>, rows: Vec<Lost> }

    /// A lost block to which no other lost block points. If `in_circle` is true, it is one block of a cycle of lost
    /// blocks to which no other lost block points. `count` and `retained`: the number and the bytes of the blocks that
    /// would be freed with this block, including the block itself. `type_address`: 0 if unknown.
    struct Head of graph::Head {
        address: u64,
        size: u64,
        type_address: u64,
        count: u64,
        retained: u64,
        in_circle: bool,
    }

    /// The number of heads, and the heads that retain the most.
    struct Heads { count: u64, rows: Vec<Head> }

    /// Blocks of one type, or of one size if the type is unknown (`type_address` is 0). `kind`: as in GraphNode, or
    /// "structure" (a known structure of C code; `type_address` is then the number of its kind).
    struct Grouped of graph::Grouped { type_address: u64, kind: &'static str, size: u64, count: u64, bytes: u64 }

    /// A group of blocks, and the bytes that removing all of them would free.
    struct RetainedByGroup of graph::RetainedByGroup { group: Grouped, retained: u64 }

    /// A group of blocks with one label; the label is 2^32 - 1 for unreachable blocks.
    struct Labelled of graph::Labelled { label: u32, group: Grouped }

    /// Objects of one type that several objects keep alive together. `bytes`: the objects' own bytes. `retained`: the
    /// sum, over these objects, of the bytes that removing the object alone would free.
    struct Several of graph::Several { type_address: u64, count: u64, bytes: u64, retained: u64, examples: Vec<u32> }

    /// Blocks of C code of one owner, each of which several objects keep alive. `bytes`: the sum, over these blocks, of
    /// the bytes that removing the block alone would free. `examples`: the largest blocks.
    struct SharedBlocks of graph::SharedBlocks { owner: u32, bytes: u64, examples: Vec<u32> }

    /// A node `id`, outside a holder, from which memory of the holder is reached. `target`: the first of the holder's
    /// nodes to which the node points. `bytes`: the bytes of the holder's blocks that are reached from this node but
    /// not from the nodes before it in the list.
    struct Other of graph::Other { id: u32, target: u32, bytes: u64 }

    /// The memory that some nodes hold. `bytes`: all of this memory. `retained`: the part that removing the nodes would
    /// free. `others`: other nodes, which keep the remaining part alive. `aliases`: (referrer, node) for each reference
    /// to one of the nodes, except the reference on the node's chain.
    struct AlsoHeld { bytes: u64, retained: u64, others: Vec<Other>, aliases: Vec<(u32, u32)> }

    /// A branch: the node `id`, which is right below a labelled node. `bytes`: the bytes of the subtree of this node.
    /// `way`: the path from the node down to the node at which the subtree divides into several large parts.
    struct Branch of graph::Branch { id: u32, bytes: u64, way: Vec<u32> }

    /// Objects of one type with their buffers: the number of the objects, and the bytes of objects and buffers.
    struct KeptPart of graph::KeptPart { type_address: u64, count: u64, bytes: u64 }

    /// An object that keeps bytes alive, or points to an object that does.
    ///
    /// - `id`: the object's index among all nodes that were visited; the roots come first.
    /// - `above`: the nearest node that points to the object; for a root, its own `id`.
    /// - `bytes`, `count`: the bytes that are proven to be freed with the object, and the number of their blocks.
    /// - `holder`: the object that keeps this object alive; None if no single object is proven to do that.
    /// - `others`: the number of references to the object, without the reference from `above` and without references
    ///   from objects that it keeps alive itself.
    /// - `parts`: the types that these bytes belong to, largest first.
    /// - `large`: the large blocks among these bytes, as [start, end).
    struct KeptNode {
        id: u32,
        above: u32,
        address: u64,
        type_address: u64,
        bytes: u64,
        count: u64,
        holder: Option<u32>,
        others: u64,
        parts: Vec<KeptPart>,
        large: Vec<(u64, u64)>,
    }

    /// The objects that reference counts prove to keep memory alive, found by visiting `looked` blocks.
    ///
    /// `is_done`: whether no block is left to visit.
    struct Kept { nodes: Vec<KeptNode>, looked: u64, is_done: bool }

    /// The number of nodes that a node points to, and the largest of these nodes.
    struct Targets { count: u64, rows: Vec<NodeBytes> }
}

exports! {
    classes: NodesRetained, Graph, Hanging, NodeColumns, EdgeColumns;
    functions: static_types, draw_graph, find_kept, draw_blocks;
}

fn node_bytes((id, bytes): (u32, u64)) -> NodeBytes {
    NodeBytes { id, bytes }
}

/// Consecutive nodes as columns of little-endian numbers. `addresses` and `sizes`: 8 bytes each; an address is a
/// block's first byte, a static type's address, or a root's index. `types`: 4 bytes each, numbered from 1; 0 if the
/// node is not an object. `edges`: 4 bytes each, the number of edges of the node. `kinds`: 1 byte each (0 unknown, 1
/// object, 2 idle, 3 buffer).
#[pyclass(frozen)]
pub struct NodeColumns(graph::NodeColumns);

#[pymethods]
impl NodeColumns {
    #[getter]
    fn addresses<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.addresses)
    }

    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.sizes)
    }

    #[getter]
    fn types<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.types)
    }

    #[getter]
    fn kinds<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.kinds)
    }

    #[getter]
    fn edges<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.edges)
    }
}

/// The bytes of each node's subtree in a graph: those of the node and of all nodes below it, without the subtrees of
/// seeds.
#[pyclass]
pub struct Hanging(graph::Hanging);

/// The edges of consecutive nodes as columns of little-endian numbers: `sources`, `targets` and `strengths`, 4 bytes
/// each. `next`: the first node whose edges are not included.
#[pyclass(frozen)]
pub struct EdgeColumns(graph::EdgeColumns);

#[pymethods]
impl EdgeColumns {
    #[getter]
    fn next(&self) -> u32 {
        self.0.next
    }

    #[getter]
    fn sources<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.sources)
    }

    #[getter]
    fn targets<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.targets)
    }

    #[getter]
    fn strengths<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.strengths)
    }
}

/// The bytes that each node of a graph retains.
#[pyclass(frozen)]
pub struct NodesRetained(pub(crate) Vec<u64>);

/// The references between all blocks of one target.
#[pyclass(frozen)]
pub struct Graph(pub(crate) graph::Graph);

/// Return the addresses in the data of loaded objects that look like static types, ascending.
#[pyfunction]
pub fn static_types(py: Python<'_>, heaps: &Heaps, layout: Given<TypeLayout>) -> PyResult<Vec<u64>> {
    watched(py, None, |watcher| graph::static_types(watcher, heaps.0.lend(), &layout.0))
}

/// Read all edges of a target with Python objects.
///
/// `statics`: the addresses of static types, ascending. `linked`: tables of the dynamic linker, ascending.
/// `structures`: the kinds of the blocks of C code; groups of such blocks have the kind "structure". `is_partial`:
/// whether memory that may point to blocks is absent. Raises MemoryError, OverflowError for more than 2^30 blocks or
/// 2^32 edges, KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, graph, statics, roots, linked, structures=None, progress=None, is_partial=false))]
pub fn draw_graph(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    graph: Given<GraphLayout>,
    statics: Vec<u64>,
    roots: Given<Vec<Root>>,
    linked: Vec<u64>,
    structures: Option<&Structures>,
    progress: Option<Report>,
    is_partial: bool,
) -> PyResult<Graph> {
    let heaps = heaps.0.clone();
    let draw = |watcher: &dyn gdbheap_core::Watcher| {
        let left_over = structures.map_or(&[][..], |structures| structures.0.left_over());
        let holders = structures.map_or(&[][..], |structures| structures.0.holders());
        let (layout, graph) = (layout.0, &graph.0);
        let drawn = graph::draw_graph(
            watcher, heaps, layout, graph, statics, &roots.0, &linked, left_over, holders, is_partial,
        )?;
        if let Some(structures) = structures {
            drawn.name_blocks(|address| structures.0.kind_at(address));
        }
        Ok(drawn)
    };
    watched(py, progress, draw).map(Graph)
}

/// Return the memory that the objects of modules and frames keep alive, as far as reference counts prove that without
/// the whole graph.
///
/// Only the known references (`pointers`) of `roots` are followed. The search visits about `most` blocks, and takes at
/// most `seconds` of CPU time. The nodes that keep at least `minimum` bytes alive are returned. Raises MemoryError,
/// KeyboardInterrupt, and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, graph, roots, most, seconds, minimum, progress=None))]
pub fn find_kept(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Given<TypeLayout>,
    graph: Given<GraphLayout>,
    roots: Given<Vec<Root>>,
    most: u64,
    seconds: f64,
    minimum: u64,
    progress: Option<Report>,
) -> PyResult<Kept> {
    let (heaps, bounds) = (heaps.0.clone(), graph::Bounds { blocks: most, seconds });
    let find = |watcher: &dyn gdbheap_core::Watcher| {
        graph::find_kept(watcher, &heaps, &layout.0, &graph.0, &roots.0, bounds, minimum)
    };
    let found = watched(py, progress, find)?;
    let nodes = found.nodes.into_iter().map(KeptNode::from).collect();
    Ok(Kept { nodes, looked: found.looked, is_done: found.is_done })
}

impl From<graph::AlsoHeld> for AlsoHeld {
    fn from(found: graph::AlsoHeld) -> AlsoHeld {
        let graph::AlsoHeld { bytes, retained, others, aliases } = found;
        AlsoHeld { bytes, retained, others: all(others), aliases }
    }
}

impl From<graph::KeptNode> for KeptNode {
    fn from(node: graph::KeptNode) -> KeptNode {
        let graph::KeptNode { id, above, address, type_address, bytes, count, holder, others, parts, large } = node;
        KeptNode { id, above, address, type_address, bytes, count, holder, others, parts: all(parts), large }
    }
}

/// Build the graph of a target without Python objects: every word of a block that points into another block is an edge.
///
/// An edge is exact if the word points to the beginning of a block, or of another node of the graph. It is likely if
/// the word is the last word of its block, and doubtful otherwise. The phase of each of `roots` is 0 for static data
/// and for memory that belongs to threads, 1 for stacks and registers. The type of a block is the number of its kind in
/// `structures`. `texts`: blocks that contain only text, ascending. For `linked` and the exceptions, see `draw_graph`.
#[pyfunction]
#[pyo3(signature = (
    heaps, tables, roots, linked, structures=None, progress=None, is_partial=false, hidden=Vec::new(), texts=Vec::new()
))]
pub fn draw_blocks(
    py: Python<'_>,
    heaps: &Heaps,
    tables: Given<Tables>,
    roots: Given<Vec<Root>>,
    linked: Vec<u64>,
    structures: Option<&Structures>,
    progress: Option<Report>,
    is_partial: bool,
    hidden: Vec<(u64, u64)>,
    texts: Vec<(u64, u64)>,
) -> PyResult<Graph> {
    let heaps = heaps.0.clone();
    let kinds = structures.map_or_else(Vec::new, |structures| structures.0.kinds().to_vec());
    let held_inside = structures.map_or_else(Default::default, |structures| structures.0.held_inside().clone());
    let left_over = structures.map_or_else(Vec::new, |structures| structures.0.left_over().to_vec());
    let draw = |watcher: &dyn gdbheap_core::Watcher| {
        graph::draw_blocks(
            watcher,
            heaps,
            &tables.0,
            &roots.0,
            kinds,
            &held_inside,
            &linked,
            &left_over,
            &texts,
            is_partial,
            &hidden,
        )
    };
    watched(py, progress, draw).map(Graph)
}

impl Graph {
    fn row(&self, id: u32) -> PyResult<GraphNode> {
        self.0.node(id).map(GraphNode::from).map_err(raised)
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

    /// Whether part of the graph is missing. The bytes that a node retains are then only a lower bound.
    #[getter]
    fn is_cut(&self) -> bool {
        self.0.is_cut()
    }

    /// The bytes that could not be read while the graph was built.
    #[getter]
    fn unread(&self) -> u64 {
        self.0.unread()
    }

    /// Return the bytes of the blocks about which an incomplete graph proves nothing: blocks that no root reaches, and
    /// blocks without a proven holder that retain only themselves. Return 0 if the graph is complete.
    fn not_examined(&self, py: Python<'_>) -> PyResult<u64> {
        watched(py, None, |watcher| self.0.not_examined(watcher))
    }

    /// The number of the first node that is not a block.
    #[getter]
    fn blocks_end(&self) -> u32 {
        self.0.blocks_end()
    }

    /// Return at most `most` consecutive nodes, beginning with the node with the number `start`.
    fn node_columns(&self, start: u32, most: usize) -> NodeColumns {
        NodeColumns(self.0.node_columns(start, most))
    }

    /// Return the edges of the nodes with the numbers [start, end). Stop after the node with which at least `least`
    /// edges are collected.
    fn edge_columns(&self, start: u32, end: u32, least: usize) -> EdgeColumns {
        EdgeColumns(self.0.edge_columns(start, end, least))
    }

    /// Return one byte for each of `edges`: 1 if the edge keeps its target alive in the computation of retained sizes,
    /// else 0.
    fn counted<'py>(&self, py: Python<'py>, edges: &EdgeColumns) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &watched(py, None, |watcher| self.0.counted(watcher, &edges.0))?))
    }

    /// Return the addresses (8 bytes each) of the nodes with these numbers (4 bytes each). Raises ValueError for an
    /// invalid number.
    fn addresses_of<'py>(&self, py: Python<'py>, numbers: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.addresses_of(numbers).map_err(raised)?))
    }

    /// Return the number of the block that contains `address`, or of the static type at `address`; None if there is
    /// neither.
    fn find(&self, address: u64) -> Option<u32> {
        self.0.find(address)
    }

    /// Return the node with this number.
    fn node(&self, id: u32) -> PyResult<GraphNode> {
        self.row(id)
    }

    /// Return the nodes with these numbers.
    fn nodes_of(&self, ids: Vec<u32>) -> PyResult<Vec<GraphNode>> {
        ids.into_iter().map(|id| self.row(id)).collect()
    }

    /// Return the edges that begin at a node.
    fn edges(&self, id: u32) -> PyResult<Vec<Edge>> {
        let edge = |(target, strength)| Edge { target, strength };
        Ok(self.0.edges(id).map_err(raised)?.into_iter().map(edge).collect())
    }

    /// Return the edges to any of the nodes `ids`, by source. Goes through all edges of the graph.
    fn referrers(&self, py: Python<'_>, ids: HashSet<u32>) -> PyResult<Vec<Referrer>> {
        let row = |(source, target, strength)| Referrer { source, target, strength };
        Ok(watched(py, None, |watcher| self.0.referrers(watcher, &ids))?.into_iter().map(row).collect())
    }

    /// Return a shortest chain from a root to the node, with the node last. `last`: return only this many nodes from
    /// the end of the chain. The chain is empty if the node is unreachable.
    #[pyo3(signature = (id, last=None))]
    fn chain(&self, py: Python<'_>, id: u32, last: Option<usize>) -> PyResult<Vec<u32>> {
        watched(py, None, |watcher| self.0.chain(watcher, id, last))
    }

    /// Return the number of the owner of each of the nodes `ids`. The owner is an object or a root; an object or a root
    /// owns itself. 2^32 - 1 means that the node has no owner.
    #[pyo3(signature = (ids, progress=None))]
    fn owners_of(&self, py: Python<'_>, ids: Vec<u32>, progress: Option<Report>) -> PyResult<Vec<u32>> {
        watched(py, progress, |watcher| self.0.owners_of(watcher, &ids))
    }

    /// Return the phase in which each of the nodes `ids` was reached (see native/core/src/graph/tree.rs); 7 for an
    /// unreachable node.
    fn phases(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<u8>> {
        watched(py, None, |watcher| self.0.phases(watcher, &ids))
    }

    /// Return the dominators of a node, outermost first, with the node last. `ends`: of a long chain, return only this
    /// many nodes from each end.
    #[pyo3(signature = (id, ends=None))]
    fn dominator_chain(&self, py: Python<'_>, id: u32, ends: Option<usize>) -> PyResult<Vec<u32>> {
        watched(py, None, |watcher| self.0.dominator_chain(watcher, id, ends))
    }

    /// Return the bytes that each of the nodes `ids` retains: its own bytes and those of all nodes that it dominates.
    fn retained(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<u64>> {
        watched(py, None, |watcher| self.0.retained(watcher, &ids))
    }

    /// Return the bytes that each node retains, without keeping intermediate results in memory. This method is meant
    /// for a graph that is not used afterwards.
    fn retained_of_all(&self, py: Python<'_>) -> PyResult<NodesRetained> {
        Ok(NodesRetained(watched(py, None, |watcher| self.0.retained_of_all(watcher))?))
    }

    /// Return the objects that retain the most, largest first, except the objects in `without`.
    ///
    /// An object has no row of its own if the object that keeps it alive has a row and one of three things holds: both
    /// objects have the same type (unless the outer object is in `open`); both retain the same bytes; the inner object
    /// retains only its own block. Any other object that retains only its own block has a row from `least` bytes on.
    #[pyo3(signature = (top, without, open, least))]
    fn top_retained(
        &self,
        py: Python<'_>,
        top: Option<usize>,
        without: HashSet<u32>,
        open: HashSet<u32>,
        least: u64,
    ) -> PyResult<Vec<NodeBytes>> {
        let found = watched(py, None, |watcher| self.0.top_retained(watcher, top, &without, &open, least))?;
        Ok(found.into_iter().map(node_bytes).collect())
    }

    /// Return, for each of the objects `ids`, the innermost object below it that retains as much and is reached only
    /// through objects that also retain as much.
    fn innermost_equal(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<u32>> {
        watched(py, None, |watcher| self.0.innermost_equal(watcher, &ids))
    }

    /// Return, for each type, the bytes that removing all objects of the type would free. `top`: return only this
    /// number of types that retain the most, and types that retain as much as the last of them.
    #[pyo3(signature = (top))]
    fn retained_by_type(&self, py: Python<'_>, top: Option<usize>) -> PyResult<Vec<RetainedByType>> {
        Ok(all(watched(py, None, |watcher| self.0.retained_by_type(watcher, top))?))
    }

    /// Return, for each set, the bytes that removing all of its nodes would free.
    fn retained_together(&self, py: Python<'_>, sets: Vec<Vec<u32>>) -> PyResult<Vec<u64>> {
        watched(py, None, |watcher| self.0.retained_together(watcher, &sets))
    }

    /// Return the blocks of at least `minimum` bytes, largest first, at most `top` blocks.
    #[pyo3(signature = (minimum, top))]
    fn largest(&self, py: Python<'_>, minimum: u64, top: Option<usize>) -> LargestBlocks {
        let (all, rows) = py.detach(|| self.0.largest(minimum, top));
        LargestBlocks { count: all.count, bytes: all.bytes, rows: rows.into_iter().map(node_bytes).collect() }
    }

    /// Return the numbers of the objects of a type.
    fn objects_of(&self, type_address: u64) -> Vec<u32> {
        self.0.objects_of(type_address)
    }

    /// Return the addresses of all types that have objects in the graph.
    fn type_addresses(&self) -> Vec<u64> {
        self.0.type_addresses().to_vec()
    }

    /// Return the blocks that nothing keeps alive, or that only weak evidence keeps alive, by cause, type and size.
    /// Each row has the addresses of at most `most` blocks.
    fn unreachable(&self, py: Python<'_>, most: usize, facts: Given<CollectorFacts>) -> PyResult<Unreachable> {
        let found = watched(py, None, |watcher| self.0.unreachable(watcher, most, &facts.0))?;
        Ok(Unreachable { causes: all(found.causes), rows: all(found.rows) })
    }

    /// Return (address of the word, address of the unreachable block) for each word that points to an unreachable
    /// block. The unaligned words of `inside` (memory of heaps) and `outside` are searched, and every word of `files`.
    /// Nothing is returned if the unreachable blocks have less than `least` bytes together, or if the graph is
    /// incomplete.
    fn hidden_words(
        &self,
        py: Python<'_>,
        inside: Vec<(u64, u64)>,
        outside: Vec<(u64, u64)>,
        files: Vec<(u64, u64)>,
        least: u64,
    ) -> PyResult<Vec<(u64, u64)>> {
        watched(py, None, |watcher| self.0.hidden_words(watcher, &inside, &outside, &files, least))
    }

    /// Return at most `most` heads among the blocks that no root reaches, those that retain the most first. This method
    /// is for graphs without Python objects.
    fn lost_heads(&self, py: Python<'_>, most: usize) -> PyResult<Heads> {
        let (count, rows) = watched(py, None, |watcher| self.0.lost_heads(watcher, most))?;
        Ok(Heads { count, rows: all(rows) })
    }

    /// Return the blocks that a node retains, including its own, in groups.
    fn kept_by(&self, py: Python<'_>, id: u32) -> PyResult<Vec<Grouped>> {
        Ok(all(watched(py, None, |watcher| self.0.kept_by(watcher, id))?))
    }

    /// Return, for each group of blocks, the bytes that removing all blocks of the group would free. `top`: return only
    /// this number of groups that retain the most, and groups that retain as much as the last of them.
    #[pyo3(signature = (top))]
    fn retained_by_group(&self, py: Python<'_>, top: Option<usize>) -> PyResult<Vec<RetainedByGroup>> {
        Ok(all(watched(py, None, |watcher| self.0.retained_by_group(watcher, top))?))
    }

    /// Return all blocks of at least `minimum` bytes in groups. The chains of a group's blocks have the same nearest
    /// node with a label; the group has this label. `seeds`: (node, label).
    fn shares(&self, py: Python<'_>, seeds: Vec<(u32, u32)>, minimum: u64) -> PyResult<Vec<Labelled>> {
        Ok(all(watched(py, None, |watcher| self.0.shares(watcher, &seeds, minimum))?))
    }

    /// Add up the bytes of each node's subtree, without the subtrees of the nodes in `seeds`. A branch is a child of a
    /// seed with everything below it. Two kinds of children are skipped, and their own children are branches instead:
    /// buffers, and children of a node in `open` whose type is in `through`.
    fn hanging(
        &self,
        py: Python<'_>,
        seeds: HashSet<u32>,
        open: HashSet<u32>,
        through: HashSet<u64>,
    ) -> PyResult<Hanging> {
        Ok(Hanging(watched(py, None, |watcher| self.0.hanging(watcher, &seeds, open, through))?))
    }

    /// Add more seeds, and subtract their subtrees from the sums of `hanging`.
    fn divide(&self, py: Python<'_>, hanging: &mut Hanging, seeds: HashSet<u32>) -> PyResult<()> {
        watched(py, None, |watcher| self.0.divide(watcher, &mut hanging.0, &seeds))
    }

    /// Return the branches of at least `minimum` bytes right below the seeds, largest first.
    fn branches(&self, py: Python<'_>, hanging: &Hanging, minimum: u64) -> PyResult<Vec<Branch>> {
        Ok(all(watched(py, None, |watcher| self.0.branches(watcher, &hanging.0, minimum))?))
    }

    /// Return (function, home) for each function of a type that points to one of the nodes `homes`. If a function points
    /// to several of them, its home is the first. Closures are left out: `cells` are the addresses of their cells' types.
    fn homes(&self, type_address: u64, homes: HashSet<u32>, cells: HashSet<u64>) -> Vec<(u32, u32)> {
        self.0.homes(type_address, &homes, &cells)
    }

    /// Return the objects that no single object keeps alive, by type, except objects that retain `large` bytes or more.
    /// The nodes in `without` are ignored as holders.
    fn kept_by_several(&self, py: Python<'_>, without: HashSet<u32>, large: u64) -> PyResult<Vec<Several>> {
        Ok(all(watched(py, None, |watcher| self.0.kept_by_several(watcher, &without, large))?))
    }

    /// Return the blocks of C code that no single object keeps alive, by owner, largest first: at most `top` owners,
    /// each with at least `least` bytes. The bytes of a block include those that would be freed with it. The nodes in
    /// `without` are ignored as holders.
    fn shared_blocks(
        &self,
        py: Python<'_>,
        without: HashSet<u32>,
        least: u64,
        top: usize,
    ) -> PyResult<Vec<SharedBlocks>> {
        Ok(all(watched(py, None, |watcher| self.0.shared_blocks(watcher, &without, least, top))?))
    }

    /// Return the memory that removing all of the nodes `members` would free. Also return at most `most` of the other
    /// nodes that keep the members' remaining memory alive, largest first.
    fn also_held(&self, py: Python<'_>, members: HashSet<u32>, most: usize) -> PyResult<AlsoHeld> {
        Ok(watched(py, None, |watcher| self.0.also_held(watcher, &members, most))?.into())
    }

    /// Return the blocks that retain the most, largest first. A block has no row of its own if the block that keeps it
    /// alive has a row and one of three things holds: both blocks have the same type or size; both retain the same
    /// bytes; the inner block retains only itself. Any other block that retains only itself has a row from `least`
    /// bytes on.
    #[pyo3(signature = (top, least))]
    fn top_blocks(&self, py: Python<'_>, top: Option<usize>, least: u64) -> PyResult<Vec<NodeBytes>> {
        Ok(watched(py, None, |watcher| self.0.top_blocks(watcher, top, least))?.into_iter().map(node_bytes).collect())
    }

    /// Return the nodes that a node points to, each node once, largest first.
    fn largest_targets(&self, id: u32, top: usize) -> PyResult<Targets> {
        let (count, rows) = self.0.largest_targets(id, top).map_err(raised)?;
        Ok(Targets { count, rows: rows.into_iter().map(node_bytes).collect() })
    }
}
