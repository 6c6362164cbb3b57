//! Group blocks by type or size. Compute how many bytes all blocks of a group retain together, and which single blocks
//! retain the most.

use super::edges::{BUFFER, IDLE, KIND, NAMED};
use super::queries::{is_equal, Graph};
use super::retained_set::{self, RetainedSet};
use super::tree::{NOBODY, NOT_REACHED};
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::cmp::Reverse;
use std::collections::HashMap;

/// The blocks of one type or, if their type is unknown, of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGroup {
    /// The address of the type; 0 if the type is unknown. For structures, the number of the kind of structure instead.
    pub type_address: u64,
    /// The kind of the blocks: object, idle (on a free list), buffer, structure (a block of C code of known kind, in a
    /// program with Python) or unknown.
    pub kind: &'static str,
    /// The size in bytes of each block, including its header; 0 if the type is known, because the sizes may differ
    /// then.
    pub size: u64,
    pub count: u64,
    pub bytes: u64,
}

/// The blocks of one group, and the bytes that would be freed if all of them were removed.
#[derive(Clone, Copy, Debug)]
pub struct RetainedByGroup {
    pub group: BlockGroup,
    pub retained: u64,
}

pub(super) type Key = (u32, u64);

impl Graph {
    pub(super) fn key(&self, id: u32, size: u64) -> Key {
        match self.kinds[id as usize] {
            0 => match self.named(id) {
                0 => (0, size),
                named => (NAMED | named, 0),
            },
            kind => (kind, 0),
        }
    }

    pub(super) fn grouped(&self, (kind, size): Key, (count, bytes): (u64, u64)) -> BlockGroup {
        if kind & (BUFFER | IDLE | NAMED) == NAMED {
            return BlockGroup { type_address: u64::from(kind & !NAMED), kind: "structure", size, count, bytes };
        }
        let name = match kind {
            kind if kind & BUFFER != 0 => "buffer",
            kind if kind & IDLE != 0 => "idle",
            0 => "unknown",
            _ => "object",
        };
        let type_address = match kind & KIND {
            0 => 0,
            number => self.types[number as usize - 1],
        };
        BlockGroup { type_address, kind: name, size, count, bytes }
    }

    /// Return, for each group, the bytes that would be freed if all its blocks were removed. If `top` is given, groups
    /// that cannot be among the `top` largest groups are left out.
    pub fn retained_by_group(&self, watcher: &dyn Watcher, top: Option<usize>) -> Result<Vec<RetainedByGroup>> {
        let (tree, found) = (self.tree(watcher)?, self.dominators(watcher)?);
        let sizes = self.sizes();
        let mut numbers: HashMap<Key, u32> = HashMap::new();
        let mut keys = Vec::new();
        let mut number = |id: u32| {
            let key = self.key(id, sizes[id as usize]);
            *numbers.entry(key).or_insert_with(|| {
                keys.push(key);
                keys.len() as u32
            })
        };
        let groups: Vec<u32> = (0..self.ids.first_static).map(&mut number).collect();
        let group_of = |node: u32| groups.get(node as usize).map_or(0, |number| *number as usize);
        let rows = self.alone(watcher, |control| {
            let mut together = RetainedSet::new(&self.edges, tree, found, &sizes, self.proof.is_cut, control)?;
            retained_set::by_kind(&mut together, found, keys.len(), group_of, top, control)
        })?;
        let named = |(group, count, bytes, retained): (usize, u64, u64, u64)| RetainedByGroup {
            group: self.grouped(keys[group], (count, bytes)),
            retained,
        };
        Ok(rows.into_iter().map(named).collect())
    }

    /// Return the blocks that a node retains, including the node itself, as groups. The groups with the most bytes come
    /// first.
    pub fn kept_by(&self, watcher: &dyn Watcher, id: u32) -> Result<Vec<BlockGroup>> {
        let id = self.check(id)?;
        let found = self.dominators(watcher)?;
        let sizes = self.sizes();
        let mut is_kept = vec![false; self.ids.count()];
        is_kept[id as usize] = true;
        let mut sums: HashMap<Key, (u64, u64)> = HashMap::new();
        let mut add = |node: u32| {
            let size = sizes[node as usize];
            let sum = sums.entry(self.key(node, size)).or_default();
            *sum = (sum.0 + 1, sum.1 + size);
        };
        if id < self.ids.first_static {
            add(id);
        }
        for node in found.order.iter().skip(1).filter(|node| **node != id) {
            let above = found.above[*node as usize];
            if above != NOBODY && is_kept[above as usize] {
                is_kept[*node as usize] = true;
                if *node < self.ids.first_static {
                    add(*node);
                }
            }
        }
        let mut rows: Vec<BlockGroup> = sums.into_iter().map(|(key, sum)| self.grouped(key, sum)).collect();
        rows.sort_unstable_by_key(|row| (Reverse(row.bytes), row.type_address, row.size));
        Ok(rows)
    }

    /// Return the blocks that retain the most, as `(id, bytes)`, largest first. A block has no row in these cases:
    /// - Its immediate dominator is a block of the same type. If the types are unknown, the sizes are compared instead.
    /// - Its immediate dominator is a block that retains nearly the same bytes (`is_equal`).
    /// - It retains only itself, and either a block dominates it, or it has fewer than `least` bytes.
    pub fn top_blocks(&self, watcher: &dyn Watcher, top: Option<usize>, least: u64) -> Result<Vec<(u32, u64)>> {
        let (tree, found) = (self.tree(watcher)?, self.dominators(watcher)?);
        let sizes = self.sizes();
        let key = |id: u32| self.key(id, sizes[id as usize]);
        let has_row = |id: u32| {
            let (above, retained) = (found.above[id as usize], found.retained[id as usize]);
            let retains = retained > sizes[id as usize];
            if above >= self.ids.first_static {
                return retains || retained >= least && tree.phases[id as usize] != NOT_REACHED;
            }
            retains && key(above) != key(id) && !is_equal(retained, found.retained[above as usize])
        };
        let wanted = (0..self.ids.first_static).filter(|id| has_row(*id));
        let mut rows: Vec<(u32, u64)> = wanted.map(|id| (id, found.retained[id as usize])).collect();
        let order = |row: &(u32, u64)| (Reverse(row.1), row.0);
        if let Some(top) = top.filter(|top| *top < rows.len()) {
            rows.select_nth_unstable_by_key(top, order);
            rows.truncate(top);
        }
        rows.sort_unstable_by_key(order);
        Ok(rows)
    }
}
