//! The whole reference graph of a target: numbers for blocks, edges in compressed rows, chains, dominators, garbage.

pub mod csr;
pub mod dominators;
pub mod edges;
pub mod garbage;
pub mod ids;
pub mod marks;
pub mod shapes;
pub mod together;
pub mod tree;

use crate::bits::SharedBits;
use crate::chunks::{Chunks, HEAD_BYTES};
use crate::heaps::{Heaps, Job, Walk};
use crate::pools::Pools;
use crate::space::Space;
use crate::types::{self, TypeLayout, Types};
use crate::work::{self, Control};
use csr::{split, Edges};
use dominators::Dominators;
use edges::{is_object, Drawer, Registry, Rows, Source, BUFFER, DOUBTFUL, EXACT, IDLE, KIND, LIKELY, STRAY};
use ids::{Blocks, Ids, Node};
use marks::{Claimed, Marker};
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyValueError};
use pyo3::prelude::*;
use shapes::GraphLayout;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, OnceLock};
use together::Together;
use tree::{Tree, BY_OTHERS, BY_REMAINS, BY_STACKS, NOT_REACHED, PHASES};

/// Something outside of the heaps that refers to objects: in which phase it is followed (tree.rs), references that are
/// known, and memory whose words may be references.
#[derive(FromPyObject)]
pub struct Root {
    phase: usize,
    pointers: Vec<u64>,
    ranges: Vec<(u64, u64)>,
}

/// The references between all blocks of one target.
#[pyclass(frozen)]
pub struct Graph {
    space: Py<Space>,
    chunks: Py<Chunks>,
    pools: Py<Pools>,
    layout: TypeLayout,
    ids: Ids,
    edges: Edges,
    kinds: Vec<u32>,
    types: Vec<u64>,
    phases: [Vec<u32>; PHASES],
    tree: OnceLock<Tree>,
    dominators: OnceLock<Dominators>,
}

/// The addresses of static types, ascending: what looks like one in the data of loaded objects.
#[pyfunction]
pub fn static_types(space: &Space, layout: TypeLayout) -> Vec<u64> {
    let mut types = Types::new(space, None, &layout);
    let mut found = Vec::new();
    let mut bytes = vec![0; 1 << 20];
    for (start, end) in &layout.data {
        space.show(*start, *end, &mut bytes, |at, bytes| {
            for (place, word) in bytes.chunks_exact(8).enumerate() {
                // An object's type is its second word.
                let address = (at + place as u64 * 8).wrapping_sub(layout.ob_type);
                let pointer = crate::u64_at(word, 0);
                if pointer > 4096 && types.is_metatype_at(pointer) && types.lookup(address).is_some() {
                    found.push(address);
                }
            }
        });
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Reads all edges. `mapped`: mmapped chunks `(chunk, end)`; `statics`: static types, ascending. Raises MemoryError, OverflowError where there are more
/// than 2^30 blocks or 2^32 edges, KeyboardInterrupt and whatever `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (space, chunks, pools, mapped, layout, graph, statics, roots, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn draw_graph(
    py: Python<'_>,
    space: Py<Space>,
    chunks: Py<Chunks>,
    pools: Py<Pools>,
    mut mapped: Vec<(u64, u64)>,
    layout: TypeLayout,
    graph: GraphLayout,
    statics: Vec<u64>,
    roots: Vec<Root>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Graph> {
    mapped.sort_unstable();
    if roots.iter().any(|root| root.phase >= PHASES) {
        return Err(PyValueError::new_err("there is no such phase"));
    }
    let (memory, handed, pooled) = (space.get(), chunks.get(), pools.get());
    let mimalloc = layout.mimalloc();
    let heaps = Heaps {
        space: memory,
        chunks: Some(handed),
        pools: Some(pooled),
        mapped: &mapped,
        mimalloc,
        claimed: layout.claimed(),
    };
    let used = SharedBits::new(pooled.block_numbers())
        .ok_or_else(|| PyMemoryError::new_err("not enough memory for a bit for each block"))?;
    let (jobs, total) = heaps.jobs();
    let passes = Passes { heaps, layout: &layout, graph: &graph, jobs: &jobs, total };
    let claimed = passes.mark(py, &used, progress.as_ref().map(|progress| progress.clone_ref(py)))?;
    let ids = Ids::new(handed, &used, mimalloc, mapped.clone(), layout.claimed(), statics, roots.len())
        .ok_or_else(|| PyOverflowError::new_err("more than 2^30 blocks"))?;
    drop(used);
    let blocks = Blocks { heaps, ids: &ids };
    let marks = marks::settle(&blocks, &layout, &claimed);
    let registry = Mutex::new(Registry::default());
    let source = Source { space: memory, blocks, types: &layout, layout: &graph, marks: &marks, registry: &registry };
    let mut parts = passes.draw(py, source, progress)?;
    parts.extend(outside(source, &roots));
    let (edges, kinds) =
        Edges::join(parts, ids.count()).ok_or_else(|| PyOverflowError::new_err("more than 2^32 edges"))?;
    drop(marks);
    let types = registry.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).addresses;
    let mut phases: [Vec<u32>; PHASES] = Default::default();
    roots.iter().zip(ids.first_root..).for_each(|(root, id)| phases[root.phase].push(id));
    Ok(Graph {
        space,
        chunks,
        pools,
        layout,
        ids,
        edges,
        kinds,
        types,
        phases,
        tree: OnceLock::new(),
        dominators: OnceLock::new(),
    })
}

struct Passes<'a> {
    heaps: Heaps<'a>,
    layout: &'a TypeLayout,
    graph: &'a GraphLayout,
    jobs: &'a [Job],
    total: u64,
}

impl<'a> Passes<'a> {
    fn mark(
        &'a self,
        py: Python<'_>,
        used: &'a SharedBits,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<Vec<Claimed>>> {
        let init = || {
            let types = Types::new(self.heaps.space, self.heaps.chunks, self.layout);
            (Walk::new(self.heaps), Marker::new(types, self.graph.keys.as_ref(), used))
        };
        let work =
            |(walk, marker): &mut (Walk<'a>, Marker<'a>), job: &Job, control: &Control| walk.run(job, control, marker);
        let states = work::run(py, self.heaps.space, progress, self.total, self.jobs, init, work)?;
        Ok(states.into_iter().map(|(_, marker)| marker.claimed).collect())
    }

    fn draw(&self, py: Python<'_>, source: Source<'_>, progress: Option<Py<PyAny>>) -> PyResult<Vec<Rows>> {
        let init = || (Walk::new(self.heaps), Drawer::new(source));
        let work = |(walk, drawer): &mut (Walk<'_>, Drawer<'_>), job: &Job, control: &Control| {
            drawer.begin(source.blocks.ids.first_of(job, &self.heaps));
            walk.run(job, control, drawer)
        };
        let states = work::run(py, self.heaps.space, progress, self.total, self.jobs, init, work)?;
        let rows = |(_, mut drawer): (Walk<'_>, Drawer<'_>)| {
            drawer.begin(0);
            drawer.done
        };
        Ok(states.into_iter().flat_map(rows).collect())
    }
}

/// The rows of static types and of roots.
fn outside(source: Source<'_>, roots: &[Root]) -> Vec<Rows> {
    let mut drawer = Drawer::new(source);
    drawer.begin(source.blocks.ids.first_static);
    for address in &source.blocks.ids.statics {
        drawer.static_type(*address);
    }
    drawer.begin(source.blocks.ids.first_root);
    for root in roots {
        let known = if root.phase as u8 == BY_STACKS { STRAY } else { EXACT };
        root.pointers.iter().for_each(|pointer| drawer.reference(*pointer, known));
        let strength = match root.phase as u8 {
            BY_STACKS => STRAY,
            BY_REMAINS => DOUBTFUL,
            BY_OTHERS => LIKELY,
            _ => EXACT,
        };
        root.ranges.iter().for_each(|(start, end)| drawer.range(*start, *end, strength));
        drawer.end_row(0);
    }
    drawer.begin(0);
    drawer.done
}

/// What a number stands for: `(place, address, size, type address, kind)`; see `Graph.node`.
type NodeRow = (&'static str, u64, u64, u64, &'static str);
/// Blocks, their bytes, their buffers', and some of their addresses.
type Lost = (u64, u64, u64, Vec<u64>);
/// `(type address, whether stray words lead there, size of a block, blocks, bytes, buffers, some of their addresses)`.
type GarbageRow = (u64, bool, u64, u64, u64, u64, Vec<u64>);

impl Graph {
    fn blocks<'a>(&'a self) -> Blocks<'a> {
        let heaps = Heaps {
            space: self.space.get(),
            chunks: Some(self.chunks.get()),
            pools: Some(self.pools.get()),
            mapped: &self.ids.mapped,
            mimalloc: self.layout.mimalloc(),
            claimed: self.layout.claimed(),
        };
        Blocks { heaps, ids: &self.ids }
    }

    fn check(&self, id: u32) -> PyResult<u32> {
        match (id as usize) < self.ids.count() {
            true => Ok(id),
            false => Err(PyValueError::new_err("no such node")),
        }
    }

    fn type_of(&self, id: u32) -> u64 {
        match self.kinds[id as usize] & KIND {
            0 => 0,
            number => self.types[number as usize - 1],
        }
    }

    /// One piece of work on a thread of its own, so that Ctrl-C ends it.
    fn alone<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Fn(&Control) -> Result<T, work::Cancelled> + Sync,
    ) -> PyResult<T> {
        let job = |state: &mut Option<T>, _: &(), control: &Control| {
            *state = Some(work(control)?);
            Ok(())
        };
        let states = work::run(py, self.space.get(), None, 0, &[()], || None, job)?;
        states.into_iter().flatten().next().ok_or_else(|| PyMemoryError::new_err("the work was not done"))
    }

    fn tree(&self, py: Python<'_>) -> PyResult<&Tree> {
        if self.tree.get().is_none() {
            let tree = self.alone(py, |control| Tree::grow(&self.edges, &self.phases, control))?;
            let _ = self.tree.set(tree);
        }
        self.tree.get().ok_or_else(|| PyMemoryError::new_err("no tree"))
    }

    fn dominators(&self, py: Python<'_>) -> PyResult<&Dominators> {
        let tree = self.tree(py)?;
        if self.dominators.get().is_none() {
            let roots = self.phases.concat();
            let find = |control: &Control| Dominators::find(&self.edges, tree, &roots, || self.sizes(), control);
            let found = self.alone(py, find)?;
            let _ = self.dominators.set(found);
        }
        self.dominators.get().ok_or_else(|| PyMemoryError::new_err("no dominators"))
    }

    /// Bytes of each node, by number.
    fn sizes(&self) -> Vec<u64> {
        let mut sizes = Vec::with_capacity(self.ids.count());
        let (pools, chunks) = (self.pools.get(), self.chunks.get());
        for (ordinal, pool) in pools.pools.iter().enumerate().filter(|(_, pool)| !pool.is_free()) {
            let first = pools.first_block(ordinal);
            let behind = first + u64::from(pool.carved(pools.alignment)).next_multiple_of(64);
            let count = self.ids.pools.id_from(behind) - self.ids.pools.id_from(first);
            sizes.extend(std::iter::repeat_n(pool.block_size(pools.alignment), count as usize));
        }
        sizes.extend(self.layout.mimalloc().iter().flat_map(|mimalloc| mimalloc.used_blocks()).map(|(.., size)| size));
        for region in &chunks.regions {
            let used = region.all().filter(|(_, _, state)| *state == crate::chunks::State::Used);
            sizes.extend(used.map(|(start, end, _)| end - start));
        }
        sizes.extend(self.ids.mapped.iter().map(|(start, end)| end - start));
        sizes.extend(self.ids.claimed.iter().map(|(start, end)| end - start));
        sizes.resize(self.ids.count(), 0);
        sizes
    }

    /// The reference count of the object in a block.
    fn references_of(&self, types: &mut Types<'_>, id: u32) -> u64 {
        let Node::Block { address, size, .. } = self.blocks().node(id) else { return 0 };
        let mut head = [0; HEAD_BYTES];
        let wanted = head.len().min(size as usize);
        let got = types.space.fill(address, &mut head[..wanted]);
        let Some((number, _)) = types.object_in(&head[..got], size) else { return 0 };
        let at = types.layout.outer_hook(&head[..got]) + types.kinds[number as usize].pre as usize;
        if types.layout.is_free_threaded() {
            return types::shared_references(&head[at..]);
        }
        // Since 3.14 the upper half holds flags.
        u64::from(crate::u32_at(&head, at + types.layout.ob_refcnt as usize))
    }
}

#[pymethods]
impl Graph {
    #[getter]
    fn nodes(&self) -> usize {
        self.ids.count()
    }

    #[getter]
    fn edge_count(&self) -> usize {
        self.edges.count()
    }

    /// The number of the block that holds `address`, or of the static type there; None elsewhere.
    fn find(&self, address: u64) -> Option<u32> {
        self.blocks().find(address).map(|found| found.id)
    }

    /// `(place, address, size, type address, kind)`. Place: block, static or root. The address is a block's first byte,
    /// a static type's, or a root's place in the list that was given. Kind: object, idle (on a free list), buffer or
    /// unknown; the type address is 0 for what is no object.
    fn node(&self, id: u32) -> PyResult<NodeRow> {
        let id = self.check(id)?;
        let kind = match self.kinds[id as usize] {
            kind if kind & BUFFER != 0 => "buffer",
            kind if kind & IDLE != 0 => "idle",
            0 => "unknown",
            _ => "object",
        };
        Ok(match self.blocks().node(id) {
            Node::Block { address, size, .. } => ("block", address, size, self.type_of(id), kind),
            Node::Static(address) => ("static", address, 0, self.type_of(id), "object"),
            Node::Root(place) => ("root", u64::from(place), 0, 0, "unknown"),
        })
    }

    /// The same for several.
    fn nodes_of(&self, ids: Vec<u32>) -> PyResult<Vec<NodeRow>> {
        ids.into_iter().map(|id| self.node(id)).collect()
    }

    /// `(target, strength)` of the node's edges: 0 exact, 1 likely, 2 doubtful, 3 stray.
    fn edges(&self, id: u32) -> PyResult<Vec<(u32, u32)>> {
        Ok(self.edges.of(self.check(id)?).iter().map(|edge| split(*edge)).collect())
    }

    /// Who points to any of `ids`: `(source, target, strength)`, by source. Looks at all edges.
    fn referrers(&self, py: Python<'_>, ids: HashSet<u32>) -> PyResult<Vec<(u32, u32, u32)>> {
        let (low, high) = (ids.iter().min().copied().unwrap_or(1), ids.iter().max().copied().unwrap_or(0));
        self.alone(py, |control| {
            let mut found = Vec::new();
            for source in 0..self.ids.count() as u32 {
                for edge in self.edges.of(source) {
                    let (target, strength) = split(*edge);
                    if target >= low && target <= high && ids.contains(&target) {
                        found.push((source, target, strength));
                    }
                }
                if source % (1 << 20) == 0 {
                    control.advance(0)?;
                }
            }
            Ok(found)
        })
    }

    /// A shortest chain from a root to the node, the node last; empty where nothing leads there.
    fn chain(&self, py: Python<'_>, id: u32) -> PyResult<Vec<u32>> {
        let id = self.check(id)?;
        Ok(self.tree(py)?.chain(id))
    }

    /// In which phase each of `ids` was reached; 5: in none.
    fn phases(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<u8>> {
        let tree = self.tree(py)?;
        ids.into_iter().map(|id| Ok(tree.phases[self.check(id)? as usize])).collect()
    }

    /// The nodes without which the node would not be reached, the outermost first, the node last; of many the first and
    /// the last `ends`.
    #[pyo3(signature = (id, ends=None))]
    fn dominator_chain(&self, py: Python<'_>, id: u32, ends: Option<usize>) -> PyResult<Vec<u32>> {
        let id = self.check(id)?;
        let mut chain = self.dominators(py)?.chain(id);
        if let Some(ends) = ends.filter(|ends| chain.len() / 2 > *ends) {
            chain.drain(ends..chain.len() - ends);
        }
        Ok(chain)
    }

    /// Bytes that each of `ids` retains: its own and those of all that it dominates.
    fn retained(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<u64>> {
        let found = self.dominators(py)?;
        ids.into_iter().map(|id| Ok(found.retained[self.check(id)? as usize])).collect()
    }

    /// The objects that retain most, `(id, bytes)`, first the most; those in `without`, those that retain no more than
    /// their own block, and the inner ones of nested objects of one type are left out.
    #[pyo3(signature = (top, without))]
    fn top_retained(&self, py: Python<'_>, top: Option<usize>, without: HashSet<u32>) -> PyResult<Vec<(u32, u64)>> {
        let found = self.dominators(py)?;
        let blocks = self.blocks();
        let is_inner = |id: u32| {
            let mut above = found.above[id as usize];
            while above != tree::NOBODY && self.kinds[above as usize] & BUFFER != 0 {
                above = found.above[above as usize];
            }
            above != tree::NOBODY && self.kinds[above as usize] == self.kinds[id as usize]
        };
        py.detach(|| {
            let wanted = |id: &u32| is_object(self.kinds[*id as usize]) && !is_inner(*id) && !without.contains(id);
            let ids = (0..self.ids.first_static).filter(wanted);
            let mut rows: Vec<(u32, u64)> = ids.map(|id| (id, found.retained[id as usize])).collect();
            let order = |row: &(u32, u64)| (std::cmp::Reverse(row.1), row.0);
            if let Some(top) = top.filter(|top| *top < rows.len()) {
                rows.select_nth_unstable_by_key(top, order);
                rows.truncate(top);
            }
            rows.retain(|(id, retained)| *retained > blocks.node(*id).size());
            rows.sort_unstable_by_key(order);
            Ok(rows)
        })
    }

    /// Of each type `(type address, objects, bytes, retained)`: what would be free if all objects of the type went. Of
    /// more than `top` types those that retain most, and others that retain as much.
    #[pyo3(signature = (top))]
    fn retained_by_type(&self, py: Python<'_>, top: Option<usize>) -> PyResult<Vec<(u64, u64, u64, u64)>> {
        let (tree, found) = (self.tree(py)?, self.dominators(py)?);
        let kind_of = |node: u32| match self.kinds[node as usize] {
            kind if is_object(kind) => (kind & KIND) as usize,
            _ => 0,
        };
        let rows = self.alone(py, |control| {
            let sizes = self.sizes();
            let mut together = Together::new(&self.edges, tree, found, &sizes, control)?;
            together::by_kind(&mut together, found, self.types.len(), kind_of, top, control)
        })?;
        let named = |(kind, count, bytes, retained): (usize, u64, u64, u64)| (self.types[kind], count, bytes, retained);
        Ok(rows.into_iter().map(named).collect())
    }

    /// Bytes that would be free if all of a set of nodes went, for each set.
    fn retained_together(&self, py: Python<'_>, sets: Vec<Vec<u32>>) -> PyResult<Vec<u64>> {
        for id in sets.iter().flatten() {
            self.check(*id)?;
        }
        let (tree, found) = (self.tree(py)?, self.dominators(py)?);
        self.alone(py, |control| {
            let sizes = self.sizes();
            let mut together = Together::new(&self.edges, tree, found, &sizes, control)?;
            let one = |set: &Vec<u32>| {
                let members: HashSet<u32> =
                    set.iter().copied().filter(|id| tree.phases[*id as usize] != NOT_REACHED).collect();
                let is_inner = |id: u32| found.chain(id).iter().any(|above| *above != id && members.contains(above));
                let certain = members.iter().filter(|id| !is_inner(**id)).map(|id| found.retained[*id as usize]).sum();
                let all: Vec<u32> = members.iter().copied().collect();
                together.retained(&all, |node| members.contains(&node), certain, control)
            };
            sets.iter().map(one).collect()
        })
    }

    /// The largest blocks of at least `minimum` bytes, `(id, bytes)`, largest first, and before them how many there are
    /// and their bytes.
    #[pyo3(signature = (minimum, top))]
    fn largest(&self, py: Python<'_>, minimum: u64, top: Option<usize>) -> (u64, u64, Vec<(u32, u64)>) {
        py.detach(|| {
            let sizes = self.sizes();
            let large = sizes.iter().copied().zip(0..self.ids.first_static).filter(|(size, _)| *size >= minimum);
            let mut rows: Vec<(u32, u64)> = large.map(|(size, id)| (id, size)).collect();
            rows.sort_unstable_by_key(|(id, size)| (std::cmp::Reverse(*size), *id));
            let (count, bytes) = (rows.len() as u64, rows.iter().map(|(_, size)| size).sum());
            rows.truncate(top.unwrap_or(usize::MAX));
            (count, bytes, rows)
        })
    }

    /// The objects of a type, by number.
    fn objects_of(&self, type_address: u64) -> Vec<u32> {
        let Some(place) = self.types.iter().position(|address| *address == type_address) else { return Vec::new() };
        let wanted = |id: &u32| self.kinds[*id as usize] == place as u32 + 1;
        (0..self.ids.first_static).filter(wanted).collect()
    }

    /// The addresses of all types that have objects.
    fn type_addresses(&self) -> Vec<u64> {
        self.types.clone()
    }

    /// What nothing keeps alive, and blocks to which only stray words lead, by type and size, with up to `most`
    /// addresses (of blocks) in each row. `counted`: of objects only what the collector would free.
    #[pyo3(signature = (most, counted=false))]
    fn unreachable(&self, py: Python<'_>, most: usize, counted: bool) -> PyResult<Vec<GarbageRow>> {
        let tree = self.tree(py)?;
        let found = self.alone(py, |control| {
            let mut types = Types::new(self.space.get(), Some(self.chunks.get()), &self.layout);
            let count_of = |id| self.references_of(&mut types, id);
            garbage::find(&self.edges, tree, &self.kinds, self.ids.first_static, count_of, counted, control)
        })?;
        let blocks = self.blocks();
        let mut rows: HashMap<(u64, bool, u64), Lost> = HashMap::new();
        let owned: HashSet<u32> = found.buffers.iter().copied().collect();
        for id in found.objects.iter().chain(&found.blocks) {
            let Node::Block { address, size, .. } = blocks.node(*id) else { continue };
            let by_stray = tree.phases[*id as usize] == BY_STACKS && self.kinds[*id as usize] & KIND == 0;
            let row = rows.entry((self.type_of(*id), by_stray, size)).or_default();
            row.0 += 1;
            row.1 += size;
            if self.kinds[*id as usize] & KIND != 0 {
                row.2 += self.owned_bytes(*id, &owned);
            }
            if row.3.len() < most {
                row.3.push(address);
            }
        }
        let flat = |((kind, by_stray, size), (count, bytes, buffers, some))| {
            (kind, by_stray, size, count, bytes, buffers, some)
        };
        Ok(rows.into_iter().map(flat).collect())
    }
}

impl Graph {
    /// Bytes of the buffers among `owned` to which an object leads.
    fn owned_bytes(&self, id: u32, owned: &HashSet<u32>) -> u64 {
        let blocks = self.blocks();
        let targets = self.edges.of(id).iter().map(|edge| split(*edge).0).filter(|target| owned.contains(target));
        targets.map(|target| blocks.node(target).size()).sum()
    }
}
