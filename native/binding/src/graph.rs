//! The reference graph of a target.

use crate::heaps::Heaps;
use crate::records::{records, Given};
use crate::rows::{all, answers};
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
    /// What a number stands for. Place: block, static or root. The address is a block's first byte, a static type's, or a
    /// root's place in the list that was given. Kind: object, idle (on a free list), buffer or unknown; the type address is
    /// 0 for what is no object.
    struct GraphNode of NodeRow { place: &'static str, address: u64, size: u64, type_address: u64, kind: &'static str }

    /// An edge of a node. Strength: 0 exact, 1 likely, 2 doubtful, 3 stray.
    struct Edge { target: u32, strength: u32 }

    /// An edge to one of several nodes.
    struct Referrer { source: u32, target: u32, strength: u32 }

    /// A node by number, and bytes: its own, or those that it retains.
    struct NodeBytes { id: u32, bytes: u64 }

    /// How many blocks match and their bytes, and the largest of them.
    struct LargestBlocks { count: u64, bytes: u64, rows: Vec<NodeBytes> }

    /// The objects of one type, their bytes, and what would be free if all of them went.
    struct RetainedByType of graph::RetainedByType { type_address: u64, count: u64, bytes: u64, retained: u64 }

    /// Why some blocks are not free. Group: cycles, lost_references, lost_blocks or doubtful. Kind: of cycles collectable,
    /// likely, frozen, untracked or finalizer; of lost blocks nothing or circle; else reference or weak. `count`: how many
    /// cycles or heads; `nodes`: some objects of one cycle, which has `length`.
    struct Cause of graph::Cause {
        group: &'static str,
        kind: &'static str,
        count: u64,
        type_address: u64,
        nodes: Vec<u32>,
        length: u64,
    }

    /// Blocks of one type and size with one cause, by its place; the type is 0 for what is no object. `is_head`: whether
    /// these are what the cause is about, and not what hangs on it; `bytes` are their own, `buffers` those that belong to
    /// them, `addresses` some of theirs.
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

    /// What no root keeps alive, and why.
    struct Unreachable { causes: Vec<Cause>, rows: Vec<Lost> }

    /// A lost block to which no other lost block leads, or one of a circle to which nothing else does; how many blocks
    /// would be free with it, itself included, and their bytes. The type is 0 where it is not known.
    struct Head of graph::Head {
        address: u64,
        size: u64,
        type_address: u64,
        count: u64,
        retained: u64,
        in_circle: bool,
    }

    /// How many heads there are, and those that retain most.
    struct Heads { count: u64, rows: Vec<Head> }

    /// Blocks of one type, or of one size where the type is 0. Kind: as of a GraphNode.
    struct Grouped of graph::Grouped { type_address: u64, kind: &'static str, size: u64, count: u64, bytes: u64 }

    /// A group of blocks, and what would be free if all of them went.
    struct RetainedByGroup of graph::RetainedByGroup { group: Grouped, retained: u64 }

    /// A group of blocks with one label, 2^32 - 1 for what nothing leads to.
    struct Labelled of graph::Labelled { label: u32, group: Grouped }

    /// Objects of one type that several hold, their bytes, and what would be free without each of them, added up.
    struct Several of graph::Several { type_address: u64, count: u64, bytes: u64, retained: u64, examples: Vec<u32> }

    /// Blocks of C code that an owner has, what would be free without each of them, added up, and the largest of them.
    struct SharedBlocks of graph::SharedBlocks { owner: u32, bytes: u64, examples: Vec<u32> }

    /// A node that leads to what a holder has, the first node there, and the bytes that are reached so.
    struct Other of graph::Other { id: u32, target: u32, bytes: u64 }

    /// What some nodes hold, how much of it would be free without them, who else leads to the rest, and who refers to one
    /// of the nodes beside the one before it on its chain: (referrer, node).
    struct AlsoHeld { bytes: u64, retained: u64, others: Vec<Other>, aliases: Vec<(u32, u32)> }

    /// A node right below a labelled one, with what hangs on it, and the way down to where the bytes part.
    struct Branch of graph::Branch { id: u32, bytes: u64, way: Vec<u32> }

    /// Objects of one type, with their buffers.
    struct KeptPart of graph::KeptPart { type_address: u64, count: u64, bytes: u64 }

    /// An object that keeps bytes alive, or leads to one that does, by its place among all that were looked at, the roots
    /// first. `above`: the nearest that leads to it, itself for a root; bytes that are proven to go with it, in so many
    /// blocks; `holder`: the object without which it would go, where one is proven; `others`: references to it beside one of
    /// `above` and those of what it keeps itself; the types that have the bytes, most first; the large blocks among them,
    /// [start, end).
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

    /// What reference counts prove, once `looked` blocks were looked at. `is_done`: nothing is left to be looked at.
    struct Kept { nodes: Vec<KeptNode>, looked: u64, is_done: bool }

    /// How many nodes a node leads to, and the largest of them.
    struct Targets { count: u64, rows: Vec<NodeBytes> }
}

fn node_bytes((id, bytes): (u32, u64)) -> NodeBytes {
    NodeBytes { id, bytes }
}

/// Nodes after one another, as plain columns: eight bytes each for addresses (a block's first byte, a static type's, a root's
/// place) and sizes, four for the numbers of types from 1 on (0 for what is no object) and for how many edges each has, one
/// for kinds: unknown, object, idle, buffer.
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

/// The bytes that hang on each node of a graph, without those of the seeds below it.
#[pyclass]
pub struct Hanging(graph::Hanging);

/// Edges after one another, as plain columns: four bytes each for the numbers of both nodes and for the strength. `next`: the
/// first node whose edges are not among them.
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

/// What each node of a graph retains.
#[pyclass(frozen)]
pub struct NodesRetained(pub(crate) Vec<u64>);

/// The references between all blocks of one target.
#[pyclass(frozen)]
pub struct Graph(pub(crate) graph::Graph);

/// The addresses of static types, ascending: what looks like one in the data of loaded objects.
#[pyfunction]
pub fn static_types(py: Python<'_>, heaps: &Heaps, layout: Given<TypeLayout>) -> PyResult<Vec<u64>> {
    watched(py, None, |watcher| graph::static_types(watcher, heaps.0.lend(), &layout.0))
}

/// Reads all edges. `statics`: static types, and `linked`: tables of the dynamic linker, both ascending; `structures`: what
/// blocks of C code are (a group of these has the kind `structure`); `is_partial`: memory that may lead to blocks is not there. Raises MemoryError,
/// OverflowError where there are more than 2^30 blocks or 2^32 edges, KeyboardInterrupt and whatever
/// `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, graph, statics, roots, linked, structures=None, progress=None, is_partial=false))]
#[allow(clippy::too_many_arguments)]
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

/// What the objects that modules and frames lead to keep alive, as far as reference counts prove it without the whole graph.
/// Of `roots` those with addresses are followed. About `most` blocks are looked at, in so many `seconds` of CPU time at most;
/// returned are nodes with at least `minimum` bytes. Raises MemoryError, KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (heaps, layout, graph, roots, most, seconds, minimum, progress=None))]
#[allow(clippy::too_many_arguments)]
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

/// The graph of a target without objects: every word of a block that leads into another one is an edge, exact where
/// something begins there, likely in the last word of a block, doubtful elsewhere. Of `roots` the phase is 0 for static data
/// and what belongs to threads, 1 for stacks and registers. A block's type is the number of its kind among those of
/// `structures`. `linked` and what it raises: as `draw_graph`.
#[pyfunction]
#[pyo3(signature = (heaps, tables, roots, linked, structures=None, progress=None, is_partial=false, hidden=Vec::new()))]
#[allow(clippy::too_many_arguments)]
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

    /// Whether something is missing from the graph, so that what nodes retain is the least that is proven.
    #[getter]
    fn is_cut(&self) -> bool {
        self.0.is_cut()
    }

    /// Bytes that were wanted while it was drawn, and could not be read.
    #[getter]
    fn unread(&self) -> u64 {
        self.0.unread()
    }

    /// Bytes of the blocks that nothing is proven to hold and that hold nothing; 0 where the graph is whole.
    fn not_examined(&self, py: Python<'_>) -> PyResult<u64> {
        watched(py, None, |watcher| self.0.not_examined(watcher))
    }

    /// The number of the first node that is no block.
    #[getter]
    fn blocks_end(&self) -> u32 {
        self.0.blocks_end()
    }

    /// The nodes from a number on, at most `most`.
    fn node_columns(&self, start: u32, most: usize) -> NodeColumns {
        NodeColumns(self.0.node_columns(start, most))
    }

    /// The edges of the nodes [start, end), all of each node, until there are at least `least` or none are left.
    fn edge_columns(&self, start: u32, end: u32, least: usize) -> EdgeColumns {
        EdgeColumns(self.0.edge_columns(start, end, least))
    }

    /// Whether each of these edges keeps its target alive, as what nodes retain is counted: a byte each, 0 or 1.
    fn counted<'py>(&self, py: Python<'py>, edges: &EdgeColumns) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &watched(py, None, |watcher| self.0.counted(watcher, &edges.0))?))
    }

    /// The addresses of nodes, eight bytes each, by their numbers, four bytes each. Raises ValueError for a number that is
    /// none.
    fn addresses_of<'py>(&self, py: Python<'py>, numbers: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.addresses_of(numbers).map_err(raised)?))
    }

    /// The number of the block that holds `address`, or of the static type there; None elsewhere.
    fn find(&self, address: u64) -> Option<u32> {
        self.0.find(address)
    }

    /// What a number stands for.
    fn node(&self, id: u32) -> PyResult<GraphNode> {
        self.row(id)
    }

    /// What several numbers stand for.
    fn nodes_of(&self, ids: Vec<u32>) -> PyResult<Vec<GraphNode>> {
        ids.into_iter().map(|id| self.row(id)).collect()
    }

    /// The node's edges.
    fn edges(&self, id: u32) -> PyResult<Vec<Edge>> {
        let edge = |(target, strength)| Edge { target, strength };
        Ok(self.0.edges(id).map_err(raised)?.into_iter().map(edge).collect())
    }

    /// Who points to any of `ids`, by source. Looks at all edges.
    fn referrers(&self, py: Python<'_>, ids: HashSet<u32>) -> PyResult<Vec<Referrer>> {
        let row = |(source, target, strength)| Referrer { source, target, strength };
        Ok(watched(py, None, |watcher| self.0.referrers(watcher, &ids))?.into_iter().map(row).collect())
    }

    /// A shortest chain from a root to the node, the node last, or the `last` nodes of it; empty if it is unreachable.
    #[pyo3(signature = (id, last=None))]
    fn chain(&self, py: Python<'_>, id: u32, last: Option<usize>) -> PyResult<Vec<u32>> {
        watched(py, None, |watcher| self.0.chain(watcher, id, last))
    }

    /// The owner of each of `ids`: the number of an object or a root, its own where it is one; 2^32 - 1: nobody's.
    #[pyo3(signature = (ids, progress=None))]
    fn owners_of(&self, py: Python<'_>, ids: Vec<u32>, progress: Option<Report>) -> PyResult<Vec<u32>> {
        watched(py, progress, |watcher| self.0.owners_of(watcher, &ids))
    }

    /// In which phase each of `ids` was reached (native/core/src/graph/tree.rs); 7: in none.
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

    /// Bytes that each node retains, where nothing else is asked: what is found on the way is let go.
    fn retained_of_all(&self, py: Python<'_>) -> PyResult<NodesRetained> {
        Ok(NodesRetained(watched(py, None, |watcher| self.0.retained_of_all(watcher))?))
    }

    /// The objects that retain most, first the most, without those in `without`. One of the same type as the object that keeps
    /// it (unless that is in `open`), that retains as much, or only its own block, is folded into that one where it has a row;
    /// others that retain their own block alone have rows from `least` bytes on.
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

    /// From each of `ids` the innermost object of the chain below it in which each retains what the one above it does.
    fn innermost_equal(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<u32>> {
        watched(py, None, |watcher| self.0.innermost_equal(watcher, &ids))
    }

    /// Of each type what would be free if all objects of the type went. Of more than `top` types those that retain most, and others that retain as much.
    #[pyo3(signature = (top))]
    fn retained_by_type(&self, py: Python<'_>, top: Option<usize>) -> PyResult<Vec<RetainedByType>> {
        Ok(all(watched(py, None, |watcher| self.0.retained_by_type(watcher, top))?))
    }

    /// Bytes that would be free if all of a set of nodes went, for each set.
    fn retained_together(&self, py: Python<'_>, sets: Vec<Vec<u32>>) -> PyResult<Vec<u64>> {
        watched(py, None, |watcher| self.0.retained_together(watcher, &sets))
    }

    /// The blocks of at least `minimum` bytes, largest first.
    #[pyo3(signature = (minimum, top))]
    fn largest(&self, py: Python<'_>, minimum: u64, top: Option<usize>) -> LargestBlocks {
        let (all, rows) = py.detach(|| self.0.largest(minimum, top));
        LargestBlocks { count: all.count, bytes: all.bytes, rows: rows.into_iter().map(node_bytes).collect() }
    }

    /// The objects of a type, by number.
    fn objects_of(&self, type_address: u64) -> Vec<u32> {
        self.0.objects_of(type_address)
    }

    /// The addresses of all types that have objects.
    fn type_addresses(&self) -> Vec<u64> {
        self.0.type_addresses().to_vec()
    }

    /// What nothing keeps alive, and blocks to which only weak words point, by cause, type and size, with at most `most`
    /// addresses (of blocks) in each row.
    fn unreachable(&self, py: Python<'_>, most: usize, facts: Given<CollectorFacts>) -> PyResult<Unreachable> {
        let found = watched(py, None, |watcher| self.0.unreachable(watcher, most, &facts.0))?;
        Ok(Unreachable { causes: all(found.causes), rows: all(found.rows) })
    }

    /// Where words lead to blocks that no root reaches, and to which: at odd places of `inside` (where blocks lie) and
    /// `outside`, anywhere in `files`. None where such blocks have less than `least` bytes.
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

    /// The heads of what no root reaches, those first that retain most, at most `most` of them. None are told where there
    /// are objects.
    fn lost_heads(&self, py: Python<'_>, most: usize) -> PyResult<Heads> {
        let (count, rows) = watched(py, None, |watcher| self.0.lost_heads(watcher, most))?;
        Ok(Heads { count, rows: all(rows) })
    }

    /// What is in the retained set of a node, itself included, in groups.
    fn kept_by(&self, py: Python<'_>, id: u32) -> PyResult<Vec<Grouped>> {
        Ok(all(watched(py, None, |watcher| self.0.kept_by(watcher, id))?))
    }

    /// Of each group what would be free if all of its blocks went. Of more than `top` groups those that retain most, and
    /// others that retain as much.
    #[pyo3(signature = (top))]
    fn retained_by_group(&self, py: Python<'_>, top: Option<usize>) -> PyResult<Vec<RetainedByGroup>> {
        Ok(all(watched(py, None, |watcher| self.0.retained_by_group(watcher, top))?))
    }

    /// All blocks of at least `minimum` bytes, each with the label of the nearest node on its chain that has one: `seeds`,
    /// (node, label).
    fn shares(&self, py: Python<'_>, seeds: Vec<(u32, u32)>, minimum: u64) -> PyResult<Vec<Labelled>> {
        Ok(all(watched(py, None, |watcher| self.0.shares(watcher, &seeds, minimum))?))
    }

    /// Adds up the bytes that hang on each node, without those of `seeds`. Branches pass through buffers, and right below `open` nodes
    /// through objects of the types `through`.
    fn hanging(
        &self,
        py: Python<'_>,
        seeds: HashSet<u32>,
        open: HashSet<u32>,
        through: HashSet<u64>,
    ) -> PyResult<Hanging> {
        Ok(Hanging(watched(py, None, |watcher| self.0.hanging(watcher, &seeds, open, through))?))
    }

    /// Makes more nodes seeds.
    fn divide(&self, py: Python<'_>, hanging: &mut Hanging, seeds: HashSet<u32>) -> PyResult<()> {
        watched(py, None, |watcher| self.0.divide(watcher, &mut hanging.0, &seeds))
    }

    /// The branches of at least `minimum` bytes right below the seeds, the largest first.
    fn branches(&self, py: Python<'_>, hanging: &Hanging, minimum: u64) -> PyResult<Vec<Branch>> {
        Ok(all(watched(py, None, |watcher| self.0.branches(watcher, &hanging.0, minimum))?))
    }

    /// The objects of a type that lead to one of the nodes `homes`, each with the first of these.
    fn homes(&self, type_address: u64, homes: HashSet<u32>) -> Vec<(u32, u32)> {
        self.0.homes(type_address, &homes)
    }

    /// Objects that none of the others keeps alone, by type, without those that retain `large` bytes or more; nodes in
    /// `without` count for nobody.
    fn kept_by_several(&self, py: Python<'_>, without: HashSet<u32>, large: u64) -> PyResult<Vec<Several>> {
        Ok(all(watched(py, None, |watcher| self.0.kept_by_several(watcher, &without, large))?))
    }

    /// Blocks of C code that no object keeps alone, by their owners, with what goes with them, of at least `least` bytes,
    /// first the most; nodes in `without` count for nobody.
    fn shared_blocks(
        &self,
        py: Python<'_>,
        without: HashSet<u32>,
        least: u64,
        top: usize,
    ) -> PyResult<Vec<SharedBlocks>> {
        Ok(all(watched(py, None, |watcher| self.0.shared_blocks(watcher, &without, least, top))?))
    }

    /// What would be free without all of `members`, and at most `most` others who lead to the rest of what they hold, the
    /// most first.
    fn also_held(&self, py: Python<'_>, members: HashSet<u32>, most: usize) -> PyResult<AlsoHeld> {
        Ok(watched(py, None, |watcher| self.0.also_held(watcher, &members, most))?.into())
    }

    /// The blocks that retain most. One of the same type, or size, as the block that keeps it, that retains as much, or only
    /// itself, is folded into that one; others that retain themselves alone have rows from `least` bytes on.
    #[pyo3(signature = (top, least))]
    fn top_blocks(&self, py: Python<'_>, top: Option<usize>, least: u64) -> PyResult<Vec<NodeBytes>> {
        Ok(watched(py, None, |watcher| self.0.top_blocks(watcher, top, least))?.into_iter().map(node_bytes).collect())
    }

    /// The nodes to which a node leads, each once, the largest first.
    fn largest_targets(&self, id: u32, top: usize) -> PyResult<Targets> {
        let (count, rows) = self.0.largest_targets(id, top).map_err(raised)?;
        Ok(Targets { count, rows: rows.into_iter().map(node_bytes).collect() })
    }
}
