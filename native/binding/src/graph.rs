//! The classes and functions for the reference graph of a target that Python sees.

use crate::detaching::detached;
use crate::heaps::Heaps;
use crate::records::{records, Argument};
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
    /// A node of the graph.
    ///
    /// - `place`: "block", "static" (a static type) or "root".
    /// - `address`: the first byte of the block or of the static type. For a root, its index in the list that was
    ///   passed in.
    /// - `size`: the size of the block in bytes; 0 for other nodes.
    /// - `kind`: "object", "idle" (an object on a free list), "buffer" or "unknown".
    /// - `type_address`: 0 if the node is not an object.
    struct GraphNode of NodeRow { place: &'static str, address: u64, size: u64, type_address: u64, kind: &'static str }

    /// An edge to the node `target`. `strength`: 0 exact, 1 likely, 2 doubtful, 3 stray (possibly stale).
    struct Edge { target: u32, strength: u32 }

    /// An edge from the node `source` to the node `target`, which is one of the nodes that the caller asked about.
    /// `strength`: the same as in `Edge`.
    struct Referrer { source: u32, target: u32, strength: u32 }

    /// The number of a node, and a number of bytes: the node's own size, or the bytes that it retains.
    struct NodeBytes { id: u32, bytes: u64 }

    /// The blocks of at least a minimum size: their number, their bytes, and the largest of them.
    struct LargestBlocks { count: u64, bytes: u64, rows: Vec<NodeBytes> }

    /// The objects of one type: their number, their own bytes, and the bytes that removing all of them would free.
    struct RetainedByType of graph::RetainedByType { type_address: u64, count: u64, bytes: u64, retained: u64 }

    /// The reason why the program has not freed some unreachable blocks.
    ///
    /// - `group`: "cycles", "lost_references", "lost_blocks" or "doubtful".
    /// - `kind`, for cycles: "collectable", "likely" (it is not certain that all words of the cycle are references), or
    ///   why the garbage collector does not free the cycles: "hidden" (references from memory that it does not
    ///   examine), "frozen", "untracked" or "finalizer".
    /// - `kind`, for lost blocks: "nothing" (nothing points to them) or "circle" (they point to one another).
    /// - `kind`, otherwise: "reference" for lost references, "weak" for doubtful blocks.
    /// - `count`: the number of cycles or, in the other groups, of heads (LostGroup.is_head).
    /// - `type_address`: for lost references, the type of the objects. For cycles that the collector does not free, the
    ///   type of the object that prevents it. Otherwise 0.
    /// - `nodes`: some objects of one of the cycles.
    /// - `length`: the number of all objects of that cycle.
    struct Cause of graph::Cause {
        group: &'static str,
        kind: &'static str,
        count: u64,
        type_address: u64,
        nodes: Vec<u32>,
        length: u64,
    }

    /// Unreachable blocks of one type and size with the same cause.
    ///
    /// - `cause`: the index of the cause in Unreachable.causes.
    /// - `is_head`: whether the cause concerns these blocks themselves. If not, they are reachable only from such
    ///   blocks.
    /// - `type_address`: 0 for blocks that are not objects.
    /// - `bytes`: the size of the blocks, without their buffers.
    /// - `buffers`: the size of the buffers that belong to the blocks.
    /// - `addresses`: the addresses of some of the blocks.
    struct LostGroup of graph::LostGroup {
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
    struct Unreachable { causes: Vec<Cause>, rows: Vec<LostGroup> }

    /// A lost block to which no other lost block points. Lost blocks that point to one another in a cycle count as one;
    /// any of them stands for the cycle.
    ///
    /// - `in_circle`: whether the block stands for such a cycle.
    /// - `count`, `retained`: how many blocks, and bytes, would be freed with this block. Both include the block
    ///   itself.
    /// - `type_address`: 0 if the type is unknown.
    struct LostHead of graph::LostHead {
        address: u64,
        size: u64,
        type_address: u64,
        count: u64,
        retained: u64,
        in_circle: bool,
    }

    /// The number of all lost blocks to which no other lost block points, and those that retain the most.
    struct Heads { count: u64, rows: Vec<LostHead> }

    /// Blocks of one type, or of one size if the type is unknown (`type_address` is 0). `kind`: as in GraphNode, or
    /// "structure" (a known structure of C code; `type_address` is then the number of its kind).
    struct BlockGroup of graph::BlockGroup { type_address: u64, kind: &'static str, size: u64, count: u64, bytes: u64 }

    /// A group of blocks, and the bytes that removing all of them would free.
    struct RetainedByGroup of graph::RetainedByGroup { group: BlockGroup, retained: u64 }

    /// A group of blocks with one label; the label is 2^32 - 1 for unreachable blocks.
    struct LabelledGroup of graph::LabelledGroup { label: u32, group: BlockGroup }

    /// Objects of one type that no single object keeps alive, such as the items of two lists.
    ///
    /// - `bytes`: the size of the objects.
    /// - `retained`: the sum of the bytes that each object retains.
    struct SharedType of graph::SharedType {
        type_address: u64,
        count: u64,
        bytes: u64,
        retained: u64,
        examples: Vec<u32>,
    }

    /// Blocks that C code allocated, that have one owner, and that no single object keeps alive.
    ///
    /// - `bytes`: the sum of the bytes that each block retains.
    /// - `examples`: the blocks that retain the most, at most 8.
    struct SharedBlocks of graph::SharedBlocks { owner: u32, bytes: u64, examples: Vec<u32> }

    /// A node outside a holder from which blocks of the holder are also reached.
    ///
    /// - `id`: the number of this node.
    /// - `target`: the first node of the holder to which it points.
    /// - `bytes`: the size of the holder's blocks that are reached from this node, but not from earlier nodes of the
    ///   list.
    struct OtherHolder of graph::OtherHolder { id: u32, target: u32, bytes: u64 }

    /// The memory that some nodes hold, and the other nodes that also hold it.
    ///
    /// - `bytes`: the size of all of this memory.
    /// - `retained`: how much of it would be freed if the nodes were removed.
    /// - `most`: how much of it would be freed if no uncertain word were a reference. A word is uncertain if it may be
    ///   stale or may not be a reference.
    /// - `others`: other nodes from which the rest is also reached.
    /// - `aliases`: some further references to the nodes, as (referrer, node). The reference on a node's shortest chain
    ///   is not among them.
    struct AlsoHeld { bytes: u64, retained: u64, most: u64, others: Vec<OtherHolder>, aliases: Vec<(u32, u32)> }

    /// A node right below a seed of `hanging`, with its subtree.
    ///
    /// - `id`: the number of the node.
    /// - `bytes`: the size of the subtree.
    /// - `way`: the path from the node down to the node at which the subtree divides into several large parts.
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
    struct KeptNodes { nodes: Vec<KeptNode>, looked: u64, is_done: bool }

    /// Consecutive nodes as columns of little-endian numbers.
    ///
    /// - `addresses`: 8 bytes each. The first byte of a block, the address of a static type, or the index of a root.
    /// - `sizes`: 8 bytes each.
    /// - `types`: 4 bytes each, numbered from 1; 0 if the node is not an object.
    /// - `edges`: 4 bytes each, the number of edges that begin at the node.
    /// - `kinds`: 1 byte each (0 unknown, 1 object, 2 idle, 3 buffer).
    struct NodeColumns of graph::NodeColumns {
        addresses: Vec<u8>,
        sizes: Vec<u8>,
        types: Vec<u8>,
        kinds: Vec<u8>,
        edges: Vec<u8>,
    }

    /// The edges of consecutive nodes as columns of little-endian numbers: `sources`, `targets` and `strengths`, 4
    /// bytes each. `next`: the first node whose edges are not included.
    struct EdgeColumns of graph::EdgeColumns { next: u32, sources: Vec<u8>, targets: Vec<u8>, strengths: Vec<u8> }
}

exports! {
    classes: NodesRetained, Graph, SubtreeBytes;
    functions: static_types, draw_graph, find_kept, draw_blocks;
}

fn node_bytes((id, bytes): (u32, u64)) -> NodeBytes {
    NodeBytes { id, bytes }
}

/// The bytes that each node of a graph retains.
#[pyclass(frozen)]
pub struct NodesRetained(pub(crate) Vec<u64>);

/// The references between all blocks of one target.
#[pyclass(frozen)]
pub struct Graph(pub(crate) graph::Graph);

/// The size of each node's subtree, which consists of the node and all nodes below it in the tree of shortest chains.
/// The subtrees of seeds count only for the seeds themselves, not for nodes above them.
#[pyclass]
pub struct SubtreeBytes(graph::SubtreeBytes);

/// Return the addresses in the data of loaded objects that look like static types, ascending.
#[pyfunction]
pub fn static_types(py: Python<'_>, heaps: &Heaps, layout: Argument<TypeLayout>) -> PyResult<Vec<u64>> {
    watched(py, None, |watcher| graph::static_types(watcher, heaps.0.lend(), &layout.0))
}

/// Read all edges of a target with Python objects.
///
/// - `statics`: the addresses of static types, ascending.
/// - `linked`: tables of the dynamic linker, ascending.
/// - `structures`: the kinds of the blocks of C code. Groups of such blocks have the kind "structure".
/// - `is_partial`: whether memory that may point to blocks is absent.
///
/// Raises OverflowError if there are more than 2^30 blocks or 2^32 edges. Also raises MemoryError, KeyboardInterrupt,
/// and any error of `progress(done, total)`.
#[pyfunction]
#[pyo3(signature = (heaps, layout, graph, statics, roots, linked, structures=None, progress=None, is_partial=false))]
pub fn draw_graph(
    py: Python<'_>,
    heaps: &Heaps,
    layout: Argument<TypeLayout>,
    graph: Argument<GraphLayout>,
    statics: Vec<u64>,
    roots: Argument<Vec<Root>>,
    linked: Vec<u64>,
    structures: Option<&Structures>,
    progress: Option<Report>,
    is_partial: bool,
) -> PyResult<Graph> {
    let heaps = heaps.0.clone();
    let draw = |watcher: &dyn gdbheap_core::Watcher| {
        let left_over = structures.map_or(&[][..], |structures| structures.0.left_over());
        let vacant = structures.map_or(&[][..], |structures| structures.0.vacant());
        let holders = structures.map_or(&[][..], |structures| structures.0.holders());
        let (layout, graph) = (layout.0, &graph.0);
        let drawn = graph::draw_graph(
            watcher, heaps, layout, graph, statics, &roots.0, &linked, left_over, vacant, holders, is_partial,
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
    layout: Argument<TypeLayout>,
    graph: Argument<GraphLayout>,
    roots: Argument<Vec<Root>>,
    most: u64,
    seconds: f64,
    minimum: u64,
    progress: Option<Report>,
) -> PyResult<KeptNodes> {
    let (heaps, bounds) = (heaps.0.clone(), graph::Bounds { blocks: most, seconds });
    let find = |watcher: &dyn gdbheap_core::Watcher| {
        graph::find_kept(watcher, &heaps, &layout.0, &graph.0, &roots.0, bounds, minimum)
    };
    let found = watched(py, progress, find)?;
    let nodes = found.nodes.into_iter().map(KeptNode::from).collect();
    Ok(KeptNodes { nodes, looked: found.looked, is_done: found.is_done })
}

impl From<graph::AlsoHeld> for AlsoHeld {
    fn from(found: graph::AlsoHeld) -> AlsoHeld {
        let graph::AlsoHeld { bytes, retained, most, others, aliases } = found;
        AlsoHeld { bytes, retained, most, others: all(others), aliases }
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
/// the word is the last word of its block, and doubtful otherwise.
///
/// - `roots`: the phase of a root is 0 for static data and for memory that belongs to threads, 1 for stacks and
///   registers.
/// - `structures`: the kinds of blocks. The type of a block is the number of its kind.
/// - `texts`: blocks that contain only text, ascending.
/// - `linked` and the exceptions are those of `draw_graph`.
#[pyfunction]
#[pyo3(signature = (
    heaps, tables, roots, linked, structures=None, progress=None, is_partial=false, hidden=Vec::new(), texts=Vec::new()
))]
pub fn draw_blocks(
    py: Python<'_>,
    heaps: &Heaps,
    tables: Argument<Tables>,
    roots: Argument<Vec<Root>>,
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
    let vacant = structures.map_or_else(Vec::new, |structures| structures.0.vacant().to_vec());
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
            &vacant,
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
        self.0.node_columns(start, most).into()
    }

    /// Return the edges of the nodes with the numbers [start, end). Stop after the node with which at least `least`
    /// edges are collected.
    fn edge_columns(&self, start: u32, end: u32, least: usize) -> EdgeColumns {
        self.0.edge_columns(start, end, least).into()
    }

    /// Return one byte for each of `edges`: 1 if the edge keeps its target alive in the computation of retained sizes,
    /// else 0.
    fn counted<'py>(&self, py: Python<'py>, edges: &EdgeColumns) -> PyResult<Bound<'py, PyBytes>> {
        let columns = [&edges.sources, &edges.targets, &edges.strengths].map(Vec::as_slice);
        Ok(PyBytes::new(py, &watched(py, None, |watcher| self.0.counted(watcher, columns))?))
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

    /// Return the node with the number `id`. Raises ValueError if there is no such node.
    fn node(&self, id: u32) -> PyResult<GraphNode> {
        self.row(id)
    }

    /// Return the nodes with the numbers `ids`. Raises ValueError if one of them does not exist.
    fn nodes_of(&self, ids: Vec<u32>) -> PyResult<Vec<GraphNode>> {
        ids.into_iter().map(|id| self.row(id)).collect()
    }

    /// Return the edges that begin at the node `id`, with their strengths. Raises ValueError if there is no such node.
    fn edges(&self, id: u32) -> PyResult<Vec<Edge>> {
        let edge = |(target, strength)| Edge { target, strength };
        Ok(self.0.edges(id).map_err(raised)?.into_iter().map(edge).collect())
    }

    /// Return the edges to any of the nodes `ids`, by source. This method visits all edges of the graph.
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
    /// An object has no row if the object that keeps it alive has a row, in three cases:
    ///
    /// - Both objects have the same type, and the outer object is not in `open`.
    /// - Both objects retain the same bytes.
    /// - The inner object retains only its own block.
    ///
    /// Any other object that retains only its own block has a row only if it has at least `least` bytes.
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

    /// Return, for each of the objects `ids`, the innermost object that it dominates and that retains the same bytes.
    /// All objects between the two must also retain the same bytes. If there is no such object, return the object
    /// itself.
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
        let (all, rows) = detached(py, || self.0.largest(minimum, top));
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
    fn unreachable(&self, py: Python<'_>, most: usize, facts: Argument<CollectorFacts>) -> PyResult<Unreachable> {
        let found = watched(py, None, |watcher| self.0.unreachable(watcher, most, &facts.0))?;
        Ok(Unreachable { causes: all(found.causes), rows: all(found.rows) })
    }

    /// Return the words that are addresses of unreachable blocks, but no edges of the graph, each as (address of the
    /// word, address of the block).
    ///
    /// - `inside`, `outside`: memory with and without blocks, in which the unaligned words are searched.
    /// - `files`: mapped files, in which all words are searched.
    /// - `least`: nothing is returned if the unreachable blocks have fewer bytes than this together.
    ///
    /// Words in unreachable or free blocks are left out. Nothing is returned if the graph is incomplete.
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

    /// Return at most `most` unreachable blocks to which no other unreachable block points, those that retain the most
    /// first. See LostHead for cycles. This method is for graphs without Python objects.
    fn lost_heads(&self, py: Python<'_>, most: usize) -> PyResult<Heads> {
        let (count, rows) = watched(py, None, |watcher| self.0.lost_heads(watcher, most))?;
        Ok(Heads { count, rows: all(rows) })
    }

    /// Return the blocks that a node retains, including its own block, in groups.
    fn kept_by(&self, py: Python<'_>, id: u32) -> PyResult<Vec<BlockGroup>> {
        Ok(all(watched(py, None, |watcher| self.0.kept_by(watcher, id))?))
    }

    /// Return, for each group of blocks, the bytes that removing all blocks of the group would free. `top`: return only
    /// this number of groups that retain the most, and groups that retain as much as the last of them.
    #[pyo3(signature = (top))]
    fn retained_by_group(&self, py: Python<'_>, top: Option<usize>) -> PyResult<Vec<RetainedByGroup>> {
        Ok(all(watched(py, None, |watcher| self.0.retained_by_group(watcher, top))?))
    }

    /// Return the blocks of at least `minimum` bytes, summed up by label and group. A block has the label of the
    /// nearest seed on its chain from a root. `seeds`: (number of a node, its label).
    fn shares(&self, py: Python<'_>, seeds: Vec<(u32, u32)>, minimum: u64) -> PyResult<Vec<LabelledGroup>> {
        Ok(all(watched(py, None, |watcher| self.0.shares(watcher, &seeds, minimum))?))
    }

    /// Add up the size of each node's subtree. The subtree of a node in `seeds` does not count for the nodes above it.
    ///
    /// The result also defines branches, for `branches`: a branch is a child of a seed, with its subtree. Two kinds of
    /// children are skipped, and their own children are branches instead: buffers, and children of a node in `open`
    /// whose type is in `through`.
    fn hanging(
        &self,
        py: Python<'_>,
        seeds: HashSet<u32>,
        open: HashSet<u32>,
        through: HashSet<u64>,
    ) -> PyResult<SubtreeBytes> {
        Ok(SubtreeBytes(watched(py, None, |watcher| self.0.hanging(watcher, &seeds, open, through))?))
    }

    /// Turn more nodes into seeds, and subtract their subtrees from the sums of the nodes above them in `hanging`.
    fn divide(&self, py: Python<'_>, hanging: &mut SubtreeBytes, seeds: HashSet<u32>) -> PyResult<()> {
        watched(py, None, |watcher| self.0.divide(watcher, &mut hanging.0, &seeds))
    }

    /// Return the branches of at least `minimum` bytes right below the seeds, largest first.
    fn branches(&self, py: Python<'_>, hanging: &SubtreeBytes, minimum: u64) -> PyResult<Vec<Branch>> {
        Ok(all(watched(py, None, |watcher| self.0.branches(watcher, &hanging.0, minimum))?))
    }

    /// Return (function, home) for the functions of a type that refer to one of the nodes `homes`, such as the dict of
    /// their module. If a function refers to several, the first reference decides.
    ///
    /// Closures are left out. `cells`: the addresses of the types of closure cells, by which closures are recognized.
    fn homes(&self, type_address: u64, homes: HashSet<u32>, cells: HashSet<u64>) -> Vec<(u32, u32)> {
        self.0.homes(type_address, &homes, &cells)
    }

    /// Return the objects that no single object keeps alive, by type, except objects that retain `large` bytes or more.
    /// The nodes in `without` are ignored as holders.
    fn kept_by_several(&self, py: Python<'_>, without: HashSet<u32>, large: u64) -> PyResult<Vec<SharedType>> {
        Ok(all(watched(py, None, |watcher| self.0.kept_by_several(watcher, &without, large))?))
    }

    /// Return the blocks of C code that no single object keeps alive, summed up by owner, largest first. At most `top`
    /// owners are returned, whose blocks retain at least `least` bytes together. The nodes in `without` do not count as
    /// holders.
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

    /// Return the blocks that retain the most, largest first.
    ///
    /// A block has no row if the block that keeps it alive has a row, in three cases:
    ///
    /// - Both blocks have the same type or size.
    /// - Both blocks retain the same bytes.
    /// - The inner block retains only itself.
    ///
    /// Any other block that retains only itself has a row only if it has at least `least` bytes.
    #[pyo3(signature = (top, least))]
    fn top_blocks(&self, py: Python<'_>, top: Option<usize>, least: u64) -> PyResult<Vec<NodeBytes>> {
        Ok(watched(py, None, |watcher| self.0.top_blocks(watcher, top, least))?.into_iter().map(node_bytes).collect())
    }
}
