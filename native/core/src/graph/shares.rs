//! Label each block with the label of the nearest labelled node above it, or with its own label, and sum up the blocks
//! by label.

use super::csr::split;
use super::edges::{is_object, BUFFER};
use super::groups::{BlockGroup, Key};
use super::queries::Graph;
use super::tree::{BY_PADDING, NOBODY, NOT_REACHED};
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

const MAX_EXAMPLES: usize = 8;
const RECENT: usize = 1 << 13;

/// Blocks that have the same label and the same type (or size, if their type is unknown). Unreachable blocks have the
/// label u32::MAX.
#[derive(Clone, Copy, Debug)]
pub struct LabelledGroup {
    pub label: u32,
    pub group: BlockGroup,
}

/// The objects of one type that have several holders each, and the sum of their retained sizes.
#[derive(Clone, Debug)]
pub struct SharedType {
    pub type_address: u64,
    pub count: u64,
    pub bytes: u64,
    pub retained: u64,
    pub examples: Vec<u32>,
}

/// The blocks of C code of one owner, and the sum of their retained sizes.
#[derive(Clone, Debug)]
pub struct SharedBlocks {
    pub owner: u32,
    pub bytes: u64,
    /// The blocks of the owner that retain the most.
    pub examples: Vec<u32>,
}

/// The counts and bytes of blocks, by label and by type (or size, if their type is unknown).
struct LabelSums {
    places: HashMap<(u32, Key), usize>,
    rows: Vec<((u32, Key), (u64, u64))>,
    /// A cache of the indices of recently used keys, addressed by a few bits of the key. It helps because neighbouring
    /// blocks have few types.
    recent: Vec<usize>,
}

impl LabelSums {
    fn new() -> LabelSums {
        LabelSums { places: HashMap::new(), rows: Vec::new(), recent: vec![0; RECENT] }
    }

    #[inline]
    fn add(&mut self, key: (u32, Key), count: u64, bytes: u64) {
        let (label, (kind, size)) = key;
        let slot = (label ^ kind.wrapping_mul(61) ^ (size >> 4) as u32) as usize % RECENT;
        let known = self.recent[slot];
        let place = match self.rows.get(known) {
            Some((other, _)) if *other == key => known,
            _ => *self.places.entry(key).or_insert_with(|| {
                self.rows.push((key, (0, 0)));
                self.rows.len() - 1
            }),
        };
        self.recent[slot] = place;
        let sum = &mut self.rows[place].1;
        *sum = (sum.0 + count, sum.1 + bytes);
    }
}

impl Graph {
    /// Return the blocks of at least `minimum` bytes, summed up by label and group. `seeds`: nodes, each with its
    /// label. A block has the label of the nearest seed above it. The bytes of a buffer count for the buffer's owner.
    pub fn shares(&self, watcher: &dyn Watcher, seeds: &[(u32, u32)], minimum: u64) -> Result<Vec<LabelledGroup>> {
        let before = self.above(watcher)?;
        let sizes = self.sizes();
        let mut labels = vec![NOBODY; self.ids.count()];
        for (node, label) in seeds {
            labels[self.check(*node)? as usize] = *label;
        }
        let is_buffer = |id: u32| self.kinds[id as usize] & BUFFER != 0;
        let mut owners: Vec<u32> = (0..self.ids.count() as u32).collect();
        let mut sums = LabelSums::new();
        for node in self.downwards(watcher)?.iter().copied() {
            let above = before[node as usize];
            if above != NOBODY {
                if labels[node as usize] == NOBODY {
                    labels[node as usize] = labels[above as usize];
                }
                if is_buffer(node) {
                    owners[node as usize] = owners[above as usize];
                }
            }
            if node >= self.ids.first_static {
                continue;
            }
            let (size, owner) = (sizes[node as usize], owners[node as usize]);
            if size < minimum {
                continue;
            }
            let counted = u64::from(!is_buffer(node) || owner == node);
            let own = if counted == 1 { size } else { sizes.get(owner as usize).copied().unwrap_or(0) };
            sums.add((labels[node as usize], self.key(owner, own)), counted, size);
        }
        let row = |((label, key), sum)| LabelledGroup { label, group: self.grouped(key, sum) };
        let mut rows: Vec<LabelledGroup> = sums.rows.into_iter().map(row).collect();
        rows.sort_unstable_by_key(|row| {
            (row.label, Reverse(row.group.bytes), row.group.type_address, row.group.kind, row.group.size)
        });
        Ok(rows)
    }

    /// Return the module of each function, as `(function, home)`. `type_address`: the type of the functions. `homes`:
    /// nodes such as the dicts of modules; the first one to which a function refers is its home. Closures are left out.
    /// They are recognized by a tuple of cells, whose types are `cells`.
    pub fn homes(&self, type_address: u64, homes: &HashSet<u32>, cells: &HashSet<u64>) -> Vec<(u32, u32)> {
        let targets = |id: u32| self.edges.of(id).iter().map(|edge| split(*edge).0);
        let is_cell = |id: u32| is_object(self.kinds[id as usize]) && cells.contains(&self.type_of(id));
        let is_closure = |id: u32| targets(id).any(|target| targets(target).next().is_some_and(is_cell));
        let home = |id: u32| targets(id).find(|target| homes.contains(target)).filter(|_| !is_closure(id));
        self.objects_of(type_address).into_iter().filter_map(|id| home(id).map(|found| (id, found))).collect()
    }

    /// Return the objects that no other object dominates, such as the items of two lists, summed up by type. Objects
    /// that retain `large` bytes or more are left out. `without`: nodes that do not count as holders and are not summed
    /// up. The types that retain the most come first.
    pub fn kept_by_several(
        &self,
        watcher: &dyn Watcher,
        without: &HashSet<u32>,
        large: u64,
    ) -> Result<Vec<SharedType>> {
        let (tree, found) = (self.tree(watcher)?, self.dominators(watcher)?);
        let is_several = |id: &u32| {
            let is_reached = tree.phases[*id as usize] != NOT_REACHED;
            let is_object = is_object(self.kinds[*id as usize]) && !without.contains(id);
            is_reached && is_object && self.is_open(&found.above, without, *id)
        };
        let sizes = self.sizes();
        let mut rows: HashMap<u32, SharedType> = HashMap::new();
        for id in (0..self.ids.first_static).filter(is_several) {
            let retained = found.retained[id as usize];
            if retained >= large {
                continue;
            }
            let row = rows.entry(self.kinds[id as usize]).or_insert_with(|| SharedType {
                type_address: self.type_of(id),
                count: 0,
                bytes: 0,
                retained: 0,
                examples: Vec::new(),
            });
            row.count += 1;
            row.bytes += sizes[id as usize];
            row.retained += retained;
            // The first, the second, the fourth, the eighth object and so on are examples, which come from all parts of
            // memory.
            if row.count.is_power_of_two() {
                row.examples.push(id);
            }
        }
        let mut rows: Vec<SharedType> = rows.into_values().collect();
        rows.sort_unstable_by_key(|row| (Reverse(row.retained), row.type_address));
        Ok(rows)
    }

    /// Return whether no object dominates a node: whether its immediate dominator is missing, a root, or in `without`.
    /// Buffers among the dominators are skipped. `above`: the immediate dominator of each node.
    fn is_open(&self, above: &[u32], without: &HashSet<u32>, id: u32) -> bool {
        let mut keeper = above[id as usize];
        while keeper < self.ids.first_static && self.kinds[keeper as usize] & BUFFER != 0 {
            keeper = above[keeper as usize];
        }
        keeper == NOBODY || keeper >= self.ids.first_root || without.contains(&keeper)
    }

    /// Return the blocks of C code that no object dominates, such as an allocator that two sessions share, summed up by
    /// owner. Only owners whose blocks retain at least `least` bytes are returned, at most `top` of them, the largest
    /// first. `without`: nodes that do not count as holders.
    pub fn shared_blocks(
        &self,
        watcher: &dyn Watcher,
        without: &HashSet<u32>,
        least: u64,
        top: usize,
    ) -> Result<Vec<SharedBlocks>> {
        let (tree, found, owners) = (self.tree(watcher)?, self.dominators(watcher)?, self.owners(watcher)?);
        let is_shared = |id: &u32| {
            let is_reached = tree.phases[*id as usize] < BY_PADDING;
            self.kinds[*id as usize] == 0 && is_reached && self.is_open(&found.above, without, *id)
        };
        let mut blocks: HashMap<u32, Vec<u32>> = HashMap::new();
        for id in (0..self.ids.first_static).filter(is_shared) {
            blocks.entry(owners[id as usize]).or_default().push(id);
        }
        let retained = |id: &u32| found.retained[*id as usize];
        let mut rows = Vec::new();
        for (owner, mut blocks) in blocks {
            let bytes = blocks.iter().map(retained).sum();
            if owner != NOBODY && bytes >= least {
                blocks.sort_unstable_by_key(|id| (Reverse(retained(id)), *id));
                blocks.truncate(MAX_EXAMPLES);
                rows.push(SharedBlocks { owner, bytes, examples: blocks });
            }
        }
        rows.sort_unstable_by_key(|row| (Reverse(row.bytes), row.owner));
        rows.truncate(top);
        Ok(rows)
    }
}
