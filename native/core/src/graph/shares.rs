//! Blocks shared out: each is of the nearest node on its chain that has a label.

use super::csr::split;
use super::edges::{is_object, BUFFER, KIND};
use super::groups::{Grouped, Key};
use super::tree::{BY_PADDING, NOBODY, NOT_REACHED};
use super::whole::Graph;
use crate::error::Result;
use crate::work::Watcher;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// A way down goes on as long as one branch has so much of what its parent has.
const MOST: (u64, u64) = (4, 5);
const MAX_WAY: usize = 32;
const MAX_EXAMPLES: usize = 8;

/// Blocks of one group with one label, u32::MAX for what nothing leads to.
#[derive(Clone, Copy, Debug)]
pub struct Labelled {
    pub label: u32,
    pub group: Grouped,
}

/// A node right below a labelled one, that has many bytes with all below it that has no label of its own.
#[derive(Clone, Debug)]
pub struct Branch {
    pub id: u32,
    pub bytes: u64,
    /// From it on down to where the bytes part, itself included.
    pub way: Vec<u32>,
}

/// Objects of one type that several hold, and what would be free without each of them, added up.
#[derive(Clone, Debug)]
pub struct Several {
    pub type_address: u64,
    pub count: u64,
    pub bytes: u64,
    pub retained: u64,
    pub examples: Vec<u32>,
}

/// Blocks of C code that an owner has, and what would be free without each of them, added up.
#[derive(Clone, Debug)]
pub struct SharedBlocks {
    pub owner: u32,
    pub bytes: u64,
    /// The largest of them.
    pub examples: Vec<u32>,
}

/// What hangs on each node of the tree, without what has another label.
struct Sums {
    bytes: Vec<u64>,
    /// The child with most of them.
    largest: Vec<u32>,
}

impl Graph {
    /// Of each label the blocks of at least `minimum` bytes that are its own, by group. `seeds`: nodes and their labels.
    /// The bytes of a buffer count for what owns it.
    pub fn shares(&self, watcher: &dyn Watcher, seeds: &[(u32, u32)], minimum: u64) -> Result<Vec<Labelled>> {
        let before = self.above(watcher)?;
        let sizes = self.sizes();
        let mut labels = vec![NOBODY; self.ids.count()];
        for (node, label) in seeds {
            labels[self.check(*node)? as usize] = *label;
        }
        let is_buffer = |id: u32| self.kinds[id as usize] & BUFFER != 0;
        let mut owners: Vec<u32> = (0..self.ids.count() as u32).collect();
        let mut sums: HashMap<(u32, Key), (u64, u64)> = HashMap::new();
        let mut way = Vec::new();
        let mut is_known = vec![false; self.ids.count()];
        for node in 0..self.ids.first_static {
            let mut at = node;
            while at != NOBODY && !is_known[at as usize] {
                way.push(at);
                at = before[at as usize];
            }
            for passed in way.drain(..).rev() {
                let (place, above) = (passed as usize, before[passed as usize]);
                if above != NOBODY {
                    labels[place] = if labels[place] == NOBODY { labels[above as usize] } else { labels[place] };
                    owners[place] = if is_buffer(passed) { owners[above as usize] } else { passed };
                }
                is_known[place] = true;
            }
            let (size, owner) = (sizes[node as usize], owners[node as usize]);
            if size < minimum {
                continue;
            }
            let counted = u64::from(!is_buffer(node) || owner == node);
            let own = if counted == 1 { size } else { sizes.get(owner as usize).copied().unwrap_or(0) };
            let sum = sums.entry((labels[node as usize], self.key(owner, own))).or_default();
            *sum = (sum.0 + counted, sum.1 + size);
        }
        let row = |((label, key), sum)| Labelled { label, group: self.grouped(key, sum) };
        let mut rows: Vec<Labelled> = sums.into_iter().map(row).collect();
        rows.sort_unstable_by_key(|row| {
            (row.label, Reverse(row.group.bytes), row.group.type_address, row.group.kind, row.group.size)
        });
        Ok(rows)
    }

    /// The branches of at least `minimum` bytes right below `seeds`, the largest first. Buffers are passed through, and
    /// right below those of `open` objects of the types in `through`, such as the dict of a class.
    pub fn branches(
        &self,
        watcher: &dyn Watcher,
        seeds: &HashSet<u32>,
        open: &HashSet<u32>,
        through: &HashSet<u64>,
        minimum: u64,
    ) -> Result<Vec<Branch>> {
        let (tree, before) = (self.tree(watcher)?, self.above(watcher)?);
        let sums = self.sums(before, &tree.phases, seeds);
        let mut rows = Vec::new();
        for node in (0..self.ids.first_static).filter(|node| sums.bytes[*node as usize] >= minimum.max(1)) {
            let is_passed = |id: u32| {
                let above = before[id as usize];
                self.kinds[id as usize] & BUFFER != 0 || open.contains(&above) && through.contains(&self.type_of(id))
            };
            if seeds.contains(&node) || is_passed(node) || tree.phases[node as usize] == NOT_REACHED {
                continue;
            }
            let mut above = before[node as usize];
            while above != NOBODY && !seeds.contains(&above) && is_passed(above) {
                above = before[above as usize];
            }
            if above != NOBODY && seeds.contains(&above) {
                rows.push(Branch { id: node, bytes: sums.bytes[node as usize], way: self.way(node, &sums, seeds) });
            }
        }
        rows.sort_unstable_by_key(|row| (Reverse(row.bytes), row.id));
        Ok(rows)
    }

    /// The objects of a type that lead to one of `homes`, each with the first of these in the order of its references.
    pub fn homes(&self, type_address: u64, homes: &HashSet<u32>) -> Vec<(u32, u32)> {
        let home =
            |id: &u32| self.edges.of(*id).iter().map(|edge| split(*edge).0).find(|target| homes.contains(target));
        self.objects_of(type_address).into_iter().filter_map(|id| home(&id).map(|found| (id, found))).collect()
    }

    /// Objects that none of the others keeps alone, such as the items of two lists: by type, without those that retain
    /// `large` bytes or more. `without`: nodes that count for nobody. The rows that retain most first.
    pub fn kept_by_several(&self, watcher: &dyn Watcher, without: &HashSet<u32>, large: u64) -> Result<Vec<Several>> {
        let (tree, found) = (self.tree(watcher)?, self.dominators(watcher)?);
        let is_several = |id: &u32| {
            let is_reached = tree.phases[*id as usize] != NOT_REACHED;
            let is_object = is_object(self.kinds[*id as usize]) && !without.contains(id);
            is_reached && is_object && self.is_open(&found.above, without, *id)
        };
        let sizes = self.sizes();
        let mut rows: HashMap<u32, Several> = HashMap::new();
        for id in (0..self.ids.first_static).filter(is_several) {
            let retained = found.retained[id as usize];
            if retained >= large {
                continue;
            }
            let row = rows.entry(self.kinds[id as usize]).or_insert_with(|| Several {
                type_address: self.type_of(id),
                count: 0,
                bytes: 0,
                retained: 0,
                examples: Vec::new(),
            });
            row.count += 1;
            row.bytes += sizes[id as usize];
            row.retained += retained;
            // The first, and then ever rarer ones: some of each stretch of memory.
            if row.count.is_power_of_two() {
                row.examples.push(id);
            }
        }
        let mut rows: Vec<Several> = rows.into_values().collect();
        rows.sort_unstable_by_key(|row| (Reverse(row.retained), row.type_address));
        Ok(rows)
    }

    /// Whether only a root, or what counts for nobody, keeps a node: no object that is not in `without`. `above`: what keeps each.
    fn is_open(&self, above: &[u32], without: &HashSet<u32>, id: u32) -> bool {
        let mut keeper = above[id as usize];
        while keeper < self.ids.first_static && self.kinds[keeper as usize] & BUFFER != 0 {
            keeper = above[keeper as usize];
        }
        keeper == NOBODY || keeper >= self.ids.first_root || without.contains(&keeper)
    }

    /// Blocks of C code that no object keeps alone, such as an allocator that two sessions share, by their owners: of each
    /// owner with `least` bytes and more, first the most, at most `top`. `without` as in `kept_by_several`.
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

    /// Down the largest branches. It ends where a chain of objects of one type begins, such as a linked list.
    fn way(&self, node: u32, sums: &Sums, seeds: &HashSet<u32>) -> Vec<u32> {
        let mut way = vec![node];
        let mut at = node;
        while way.len() < MAX_WAY {
            let next = sums.largest[at as usize];
            if next == NOBODY || seeds.contains(&next) || !is_most(sums.bytes[next as usize], sums.bytes[at as usize]) {
                break;
            }
            let kind = self.kinds[next as usize];
            if kind & BUFFER == 0 && kind & KIND != 0 && self.kinds[at as usize] == kind {
                break;
            }
            way.push(next);
            at = next;
        }
        way
    }

    fn sums(&self, before: &[u32], phases: &[u8], seeds: &HashSet<u32>) -> Sums {
        let mut bytes = self.sizes();
        bytes.resize(before.len(), 0);
        bytes[self.ids.first_static as usize..].fill(0);
        let mut largest = vec![NOBODY; before.len()];
        for node in by_depth(before, phases).into_iter().rev().filter(|node| !seeds.contains(node)) {
            let (above, own) = (before[node as usize] as usize, bytes[node as usize]);
            if above == NOBODY as usize {
                continue;
            }
            bytes[above] += own;
            let best = largest[above];
            if best == NOBODY || bytes[best as usize] < own {
                largest[above] = node;
            }
        }
        Sums { bytes, largest }
    }
}

fn is_most(part: u64, whole: u64) -> bool {
    u128::from(part) * u128::from(MOST.1) >= u128::from(whole) * u128::from(MOST.0)
}

/// The nodes that are reached, those nearer to a root first.
fn by_depth(before: &[u32], phases: &[u8]) -> Vec<u32> {
    const UNKNOWN: u32 = u32::MAX;
    let mut depths = vec![UNKNOWN; before.len()];
    let mut way = Vec::new();
    let mut counts: Vec<usize> = vec![0];
    for node in (0..before.len() as u32).filter(|node| phases[*node as usize] != NOT_REACHED) {
        let mut at = node;
        while at != NOBODY && depths[at as usize] == UNKNOWN {
            way.push(at);
            at = before[at as usize];
        }
        let mut depth = if at == NOBODY { 0 } else { depths[at as usize] + 1 };
        for passed in way.drain(..).rev() {
            depths[passed as usize] = depth;
            depth += 1;
            if counts.len() < depth as usize + 1 {
                counts.resize(depth as usize + 1, 0);
            }
            counts[depth as usize] += 1;
        }
    }
    for depth in 1..counts.len() {
        counts[depth] += counts[depth - 1];
    }
    let mut order = vec![0; counts.last().copied().unwrap_or(0)];
    for (node, depth) in depths.iter().enumerate().filter(|(_, depth)| **depth != UNKNOWN) {
        let place = &mut counts[*depth as usize];
        order[*place] = node as u32;
        *place += 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::{by_depth, is_most, NOBODY};
    use crate::graph::tree::NOT_REACHED;

    #[test]
    fn parents_come_first() {
        // 3 is a root, over it 1 and over that 0 and 4; 5 is another root; 2 is not reached.
        let before = [1, 3, NOBODY, NOBODY, 1, NOBODY];
        let phases = [0, 0, NOT_REACHED, 0, 0, 0];
        assert_eq!(by_depth(&before, &phases), [3, 5, 1, 0, 4]);
        assert!(by_depth(&[], &[]).is_empty());
        assert!(by_depth(&[NOBODY], &[NOT_REACHED]).is_empty());
    }

    #[test]
    fn four_fifths_are_most() {
        assert!(is_most(80, 100) && !is_most(79, 100) && is_most(0, 0) && is_most(u64::MAX, u64::MAX));
    }
}
