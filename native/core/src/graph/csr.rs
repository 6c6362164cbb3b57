//! All edges of a graph in compressed rows: the edges of node n lie between the end of row n - 1 and the end of row n.

use gdbheap_access::error::{Error, Result};
use gdbheap_access::memory::own::give_back;
use gdbheap_access::memory::prefetch::fetch;

/// The position of an edge's strength: the two highest bits of the edge. The strength says how certain the edge is.
const STRENGTH_SHIFT: u32 = 30;
const TARGET: u32 = (1 << STRENGTH_SHIFT) - 1;

/// The rows of consecutive nodes.
/// - `first`: the number of the first node.
/// - `ends`: for each node, the index in `targets` after its last edge.
/// - `kinds`: the kind of each node.
#[derive(Default)]
struct Rows {
    first: u32,
    ends: Vec<u32>,
    targets: Vec<u32>,
    kinds: Vec<u32>,
    /// The reference count of each object, or `MANY` for larger counts; 0 for a block without an object.
    counts: Vec<u8>,
}

/// The value that stands for this reference count and all larger ones.
pub(crate) const MANY: u8 = u8::MAX;

/// The rows that one worker has written, as several runs of rows for consecutive nodes.
#[derive(Default)]
pub(crate) struct WrittenRows {
    rows: Rows,
    done: Vec<Rows>,
    /// The reference count of the object whose row is being written.
    pub(crate) count: u8,
    /// The number of bytes that were needed for the references but could not be read.
    pub(crate) unread: u64,
}

impl WrittenRows {
    /// Begin a new run of rows, whose first row belongs to the node `first`.
    pub(crate) fn begin(&mut self, first: u32) {
        let rows = std::mem::replace(&mut self.rows, Rows { first, ..Rows::default() });
        if !rows.ends.is_empty() {
            self.done.push(rows);
        }
    }

    /// Add an edge of the node whose row is being written.
    #[inline(always)]
    pub(crate) fn edge(&mut self, target: u32, strength: u32) {
        self.rows.targets.push(joint(target, strength));
    }

    pub(crate) fn end_row(&mut self, kind: u32) {
        self.rows.kinds.push(kind);
        self.rows.counts.push(std::mem::take(&mut self.count));
        self.rows.ends.push(self.rows.targets.len() as u32);
    }

    /// Continue with the row of node `id`. Nodes that were skipped since the last row get empty rows.
    #[inline(always)]
    pub(crate) fn go_to(&mut self, id: u32) {
        while self.rows.first as usize + self.rows.ends.len() < id as usize {
            self.end_row(0);
        }
    }

    fn finish(mut self) -> Vec<Rows> {
        self.begin(0);
        self.done
    }

    /// Join the rows that all workers have written, for a graph of `nodes` nodes. Nodes without a row get no edges.
    /// Fails if there are more than 2^32 edges, or if memory does not suffice.
    pub(crate) fn join(written: Vec<WrittenRows>, nodes: usize) -> Result<NodeTables> {
        let unread = written.iter().map(|rows| rows.unread).sum();
        let parts = written.into_iter().flat_map(WrittenRows::finish).collect();
        let (edges, kinds, counts) = Edges::join(parts, nodes)?;
        Ok(NodeTables { edges, kinds, counts, unread })
    }
}

/// The edges of all nodes, the kind and the reference count of each node, and the number of bytes that could not be
/// read.
pub(crate) struct NodeTables {
    pub(crate) edges: Edges,
    pub(crate) kinds: Vec<u32>,
    pub(crate) counts: Vec<u8>,
    pub(crate) unread: u64,
}

/// Return an empty list that can take `count` elements without growing. Fails if memory does not suffice.
fn with_room<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| Error::Memory("not enough memory for all edges"))?;
    Ok(list)
}

#[derive(Default)]
pub(crate) struct Edges {
    ends: Vec<u32>,
    targets: Vec<u32>,
}

impl Edges {
    /// Join runs of rows, for a graph of `nodes` nodes. Nodes without a row get no edges. Also return the kinds and the
    /// reference counts of the nodes.
    fn join(mut parts: Vec<Rows>, nodes: usize) -> Result<(Edges, Vec<u32>, Vec<u8>)> {
        parts.sort_unstable_by_key(|part| part.first);
        let all: usize = parts.iter().map(|part| part.targets.len()).sum();
        u32::try_from(all).map_err(|_| Error::Overflow("more than 2^32 edges"))?;
        let mut edges = Edges { ends: with_room(nodes)?, targets: with_room(all)? };
        let (mut kinds, mut counts) = (with_room(nodes)?, with_room(nodes)?);
        for part in parts {
            // If a pool could not be read, its blocks have no rows.
            let before = edges.targets.len() as u32;
            edges.ends.resize(part.first as usize, before);
            kinds.resize(part.first as usize, 0);
            counts.resize(part.first as usize, 0);
            edges.ends.extend(part.ends.iter().map(|end| before + end));
            edges.targets.extend(part.targets);
            kinds.extend(part.kinds);
            counts.extend(part.counts);
        }
        edges.ends.resize(nodes, edges.targets.len() as u32);
        kinds.resize(nodes, 0);
        counts.resize(nodes, 0);
        give_back();
        Ok((edges, kinds, counts))
    }

    /// Make the edges of all nodes from rows: one row for each node, beginning with node 0. Each element of a row is an
    /// edge that `joint` made.
    pub(crate) fn of_rows<R: IntoIterator<Item = u32>>(rows: impl IntoIterator<Item = R>) -> Edges {
        let mut edges = Edges::default();
        for row in rows {
            edges.targets.extend(row);
            edges.ends.push(edges.targets.len() as u32);
        }
        edges
    }

    /// Call `show(target, strength)` for each edge.
    pub(crate) fn each(&self, mut show: impl FnMut(u32, u32)) {
        for edge in &self.targets {
            let (target, strength) = split(*edge);
            show(target, strength);
        }
    }

    /// Replace the strength of each edge by the result of `judge` for the edge's source, target and strength.
    pub(crate) fn judge(&mut self, judge: impl Fn(u32, u32, u32) -> u32) {
        let mut start = 0;
        for (source, end) in (0u32..).zip(&self.ends) {
            for edge in &mut self.targets[start..*end as usize] {
                let (target, strength) = split(*edge);
                *edge = target | judge(source, target, strength) << STRENGTH_SHIFT;
            }
            start = *end as usize;
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn count(&self) -> usize {
        self.targets.len()
    }

    /// Return the edges of a node. Each edge is the number of the target node, with the strength in the two highest
    /// bits.
    #[inline(always)]
    pub(crate) fn of(&self, node: u32) -> &[u32] {
        let (start, end) = self.row(node);
        &self.targets[start as usize..end as usize]
    }

    /// Return where the edges of a node are in the list of all edges: (index of the first edge, index after the last
    /// one).
    #[inline(always)]
    pub(crate) fn row(&self, node: u32) -> (u32, u32) {
        let node = node as usize;
        (if node == 0 { 0 } else { self.ends[node - 1] }, self.ends[node])
    }

    /// Prefetch the two words that say where the edges of a node begin and end.
    #[inline(always)]
    pub(crate) fn fetch_row(&self, node: u32) {
        fetch(&self.ends, node as usize);
    }

    /// Prefetch the edges of a node. Its row must have been prefetched before (`fetch_row`).
    #[inline(always)]
    pub(crate) fn fetch_edges(&self, node: u32) {
        fetch(&self.targets, self.row(node).0 as usize);
    }

    /// Return the edge at index `place` in the list of all edges.
    #[inline(always)]
    pub(crate) fn at(&self, place: u32) -> u32 {
        self.targets[place as usize]
    }
}

#[inline(always)]
pub(crate) fn split(edge: u32) -> (u32, u32) {
    (edge & TARGET, edge >> STRENGTH_SHIFT)
}

/// Combine the number of a target node and a strength in one word: an edge.
#[inline(always)]
pub(crate) fn joint(target: u32, strength: u32) -> u32 {
    target | strength << STRENGTH_SHIFT
}

/// Put pairs `(row, value)` into compressed rows, and return the rows as `(starts, values)`. The values of a row keep
/// their order. The pairs are iterated twice.
pub(crate) fn in_rows(rows: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; rows + 1];
    pairs.clone().for_each(|(row, _)| starts[row as usize + 1] += 1);
    for place in 1..starts.len() {
        starts[place] += starts[place - 1];
    }
    let mut next = starts.clone();
    let mut values = vec![0; starts.last().copied().unwrap_or(0) as usize];
    pairs.for_each(|(row, value)| {
        let place = &mut next[row as usize];
        values[*place as usize] = value;
        *place += 1;
    });
    (starts, values)
}

#[cfg(test)]
mod tests {
    use super::{Error, WrittenRows};

    #[test]
    fn too_many_nodes_are_an_error() {
        for nodes in [1 << 46, 1 << 56, usize::MAX] {
            assert!(matches!(WrittenRows::join(Vec::new(), nodes), Err(Error::Memory(_))));
        }
    }
}
