//! List the nodes and the edges of a graph as plain columns, for tables and other programs. The rows are in the order
//! of the nodes' numbers.

use super::csr::split;
use super::edges::{BUFFER, IDLE, KIND};
use super::queries::Graph;
use gdbheap_access::bytes::u32_at;
use gdbheap_access::error::{Error, Result};
use gdbheap_access::work::Watcher;

const UNKNOWN: u8 = 0;
const OF_OBJECT: u8 = 1;
const OF_IDLE: u8 = 2;
const OF_BUFFER: u8 = 3;

/// Columns for consecutive nodes. All numbers are little-endian.
/// - `addresses`, 8 bytes each: the first byte of a block, the address of a static type, or the index of a root.
/// - `sizes`, 8 bytes each.
/// - `types`, 4 bytes each: the number of the type, counted from 1; 0 for a node that is not an object.
/// - `kinds`, 1 byte each: 0 unknown, 1 object, 2 idle, 3 buffer.
/// - `edges`, 4 bytes each: how many edges the node has.
#[derive(Default)]
pub struct NodeColumns {
    pub addresses: Vec<u8>,
    pub sizes: Vec<u8>,
    pub types: Vec<u8>,
    pub kinds: Vec<u8>,
    pub edges: Vec<u8>,
}

/// Columns for consecutive edges: the number of the source node, the number of the target node, and the strength. All
/// numbers are little-endian, with 4 bytes each. `next`: the first node whose edges are not included.
#[derive(Default)]
pub struct EdgeColumns {
    pub next: u32,
    pub sources: Vec<u8>,
    pub targets: Vec<u8>,
    pub strengths: Vec<u8>,
}

impl Graph {
    /// Return the addresses of all nodes, by the nodes' numbers.
    fn addresses(&self) -> &[u64] {
        self.places.get_or_init(|| {
            let mut found = Vec::with_capacity(self.ids.count());
            for (store, ranked) in self.heaps.stores.iter().zip(&self.ids.stores) {
                found.extend(ranked.members().map(|number| store.block_of(number).address));
            }
            found.extend_from_slice(&self.ids.statics);
            found.extend(0..u64::from(self.ids.roots));
            found
        })
    }

    /// Return at most `most` consecutive nodes, the first of them with the number `from`.
    pub fn node_columns(&self, from: u32, most: usize) -> NodeColumns {
        let (places, end) = (self.addresses(), self.ids.count().min((from as usize).saturating_add(most)));
        let mut found = NodeColumns::default();
        for id in from..end as u32 {
            let size = match id < self.ids.first_static {
                true => self.blocks().node(id).size(),
                false => 0,
            };
            found.addresses.extend_from_slice(&places[id as usize].to_le_bytes());
            found.sizes.extend_from_slice(&size.to_le_bytes());
            let kind = self.kinds[id as usize];
            found.types.extend_from_slice(&(kind & KIND).to_le_bytes());
            found.kinds.push(match kind {
                0 => UNKNOWN,
                kind if kind & BUFFER != 0 => OF_BUFFER,
                kind if kind & IDLE != 0 => OF_IDLE,
                _ => OF_OBJECT,
            });
            found.edges.extend_from_slice(&(self.edges.of(id).len() as u32).to_le_bytes());
        }
        found
    }

    /// Return all edges of consecutive nodes, beginning with the node `from`. Stop before the node `end`, or after the
    /// node with which at least `least` edges are collected.
    pub fn edge_columns(&self, from: u32, end: u32, least: usize) -> EdgeColumns {
        let mut found = EdgeColumns { next: from, ..EdgeColumns::default() };
        while found.next < end.min(self.ids.count() as u32) && found.strengths.len() < 4 * least.max(1) {
            for edge in self.edges.of(found.next) {
                let (target, strength) = split(*edge);
                found.sources.extend_from_slice(&found.next.to_le_bytes());
                found.targets.extend_from_slice(&target.to_le_bytes());
                found.strengths.extend_from_slice(&strength.to_le_bytes());
            }
            found.next += 1;
        }
        found
    }

    /// Return one byte for each edge: 1 if the edge keeps its target alive according to the rules for retained sizes,
    /// else 0. `columns`: the sources, targets and strengths of the edges, as in `EdgeColumns`.
    pub fn counted(&self, watcher: &dyn Watcher, columns: [&[u8]; 3]) -> Result<Vec<u8>> {
        let tree = self.tree(watcher)?;
        let mut found = Vec::with_capacity(columns[2].len() / 4);
        let cells = columns.map(|column| column.chunks_exact(4));
        let [sources, targets, strengths] = cells.map(|cells| cells.map(|cell| u32_at(cell, 0)));
        for ((source, target), strength) in sources.zip(targets).zip(strengths) {
            let (source, target) = (self.check(source)?, self.check(target)?);
            found.push(u8::from(tree.counts(source, target, strength)));
        }
        Ok(found)
    }

    /// Return the addresses of the nodes with these numbers. A number has 4 bytes and an address 8, both little-endian.
    /// Fails for an invalid number.
    pub fn addresses_of(&self, numbers: &[u8]) -> Result<Vec<u8>> {
        let places = self.addresses();
        let mut found = Vec::with_capacity(2 * numbers.len());
        for number in numbers.chunks_exact(4) {
            let number = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
            let place = places.get(number as usize).ok_or(Error::invalid("no such node"))?;
            found.extend_from_slice(&place.to_le_bytes());
        }
        Ok(found)
    }

    /// Return the number of the first node that is not a block. It is one more than the number of the last block.
    pub fn blocks_end(&self) -> u32 {
        self.ids.first_static
    }
}
