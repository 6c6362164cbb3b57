//! Find a shortest chain from a root to each node. The search is breadth first, and begins with the most reliable roots
//! and the strongest edges.

use super::csr::{split, Edges};
use super::edges::{DOUBTFUL, EXACT, LIKELY, STRAY};
use crate::bits::Bits;
use gdbheap_access::error::Cancellation;
use gdbheap_access::memory::prefetch::{fetch, SOON};
use gdbheap_access::work::Control;

pub(crate) const NOBODY: u32 = u32::MAX;
/// A phase of the search, which says how reliable the chain to a node is. A node has the phase in which it was reached
/// first.
/// - BY_MODULES: from modules, over EXACT edges.
/// - BY_FRAMES: from frames and static types, over EXACT edges.
/// - BY_OTHERS: from data of libraries, and over LIKELY edges.
/// - BY_REMAINS: from data of the interpreter and of threads.
/// - BY_PADDING: over words that may be older than their block.
/// - BY_INNER: over words of reached blocks that point to the middle of other blocks.
/// - BY_STACKS: from stacks and registers, whose words may be stale.
/// - NOT_REACHED: no phase reached the node.
///
/// From BY_PADDING on, there is only weak evidence that a node is alive. Stacks come last, because a thread may have
/// left old words there.
pub(crate) const BY_MODULES: u8 = 0;
pub(crate) const BY_FRAMES: u8 = 1;
pub(crate) const BY_OTHERS: u8 = 2;
pub(crate) const BY_REMAINS: u8 = 3;
pub(crate) const BY_PADDING: u8 = 4;
pub(crate) const BY_INNER: u8 = 5;
pub(crate) const BY_STACKS: u8 = 6;
pub(crate) const NOT_REACHED: u8 = 7;
pub(crate) const PHASES: usize = NOT_REACHED as usize;
const STRENGTHS: [u32; PHASES] = [EXACT, EXACT, LIKELY, LIKELY, DOUBTFUL, STRAY, STRAY];
const OFTEN: usize = 1 << 20;

/// The phases of the search in a graph without objects, where no layout says which words are references.
/// - 0: from static data and data of threads, over words that point to the start of a block or of a structure in it.
/// - BY_LIVE_STACKS: from stacks and registers, over such words.
/// - BY_LAST_WORDS: over words that may be older than their block.
/// - BY_PADDING: over words that point to the middle of a block.
/// - BY_INNER and later: over words that may be leftover links of a free chunk.
///
/// From BY_LAST_WORDS on, there is only weak evidence that a node is alive.
pub(crate) const BY_LIVE_STACKS: u8 = 1;
pub(crate) const BY_LAST_WORDS: u8 = 2;

/// The rules that decide which unproven edges keep their targets alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Rules {
    /// The graph contains Python objects. A word that may be stale counts only if no better word points to its target.
    #[default]
    Objects,
    /// The graph contains only blocks without known layout. Every word in a block is a reference, unless its edge is
    /// STRAY. STRAY edges and words on stacks count only if no better word points to their target.
    Blocks,
}

/// The tree of shortest chains. `before`: for each node, the previous node on its chain. `phases`: for each node, the
/// phase in which it was reached.
pub(crate) struct Tree {
    pub(crate) before: Vec<u32>,
    pub(crate) phases: Vec<u8>,
    /// Every node once. Each node comes after the previous node on its chain.
    pub(crate) order: Vec<u32>,
    rules: Rules,
    /// The blocks of C code. They have no reference count that says how many references keep them alive.
    raw: Option<Bits>,
}

impl Tree {
    /// Grow the tree of shortest chains. `roots`: the numbers of the roots, by phase. `handles`: objects such as
    /// PyCapsules (`Form::is_handle`). In the phase BY_OTHERS their edges are followed last, so that they reach only
    /// nodes that nothing else reaches.
    pub(crate) fn grow(
        edges: &Edges,
        roots: &[Vec<u32>; PHASES],
        rules: Rules,
        handles: &[u32],
        control: &Control,
    ) -> Result<Tree, Cancellation> {
        let nodes = edges.nodes();
        let handles = bits_of(nodes, handles);
        let is_handle = |node: u32| handles.as_ref().is_some_and(|handles| handles.get(node.into()));
        let mut tree =
            Tree { before: vec![NOBODY; nodes], phases: vec![NOT_REACHED; nodes], order: Vec::new(), rules, raw: None };
        let mut queue: Vec<u32> = Vec::with_capacity(nodes);
        // The nodes that have edges which were not followed yet, because these edges are weak.
        let mut weak: Vec<u32> = Vec::new();
        for (phase, strength) in STRENGTHS.into_iter().enumerate() {
            let mut next = queue.len();
            for root in &roots[phase] {
                tree.reach(*root, NOBODY, phase as u8, &mut queue);
            }
            let mut waiting = std::mem::take(&mut weak).into_iter().peekable();
            let (mut late, mut is_late) = (Vec::new(), phase as u8 != BY_OTHERS);
            loop {
                // In a graph of blocks, words of nodes that static data reached are followed before words of nodes that
                // a stack reached. Then a list whose links point to the middle of its blocks belongs to one variable,
                // even if a stack points to one of its blocks.
                let first = waiting.peek().map(|node| tree.phases[*node as usize]);
                let is_like =
                    |tree: &Tree, node: u32| rules == Rules::Objects || Some(tree.phases[node as usize]) == first;
                while let Some(node) = waiting.next_if(|node| is_like(&tree, *node)) {
                    if !is_late && is_handle(node) {
                        late.push(node);
                        continue;
                    }
                    tree.follow(edges, node, phase as u8, strength, &mut queue, &mut weak);
                }
                while let Some(node) = queue.get(next).copied() {
                    tree.look_ahead(edges, &queue[next..]);
                    next += 1;
                    if next % OFTEN == 0 {
                        control.advance(0)?;
                    }
                    if !is_late && is_handle(node) {
                        late.push(node);
                        continue;
                    }
                    tree.follow(edges, node, phase as u8, strength, &mut queue, &mut weak);
                }
                if waiting.peek().is_none() && is_late {
                    break;
                } else if waiting.peek().is_none() {
                    (waiting, is_late) = (std::mem::take(&mut late).into_iter().peekable(), true);
                }
            }
        }
        let phases = &tree.phases;
        queue.extend((0..nodes as u32).filter(|node| phases[*node as usize] == NOT_REACHED));
        tree.order = queue;
        Ok(tree)
    }

    /// Return the tree with the set `raw` of all blocks of C code. These blocks have no reference count, so `counts`
    /// treats edges to them differently.
    pub(crate) fn with_raw(self, raw: impl Iterator<Item = u32>) -> Tree {
        let mut bits = Bits::new(self.phases.len() as u64);
        raw.for_each(|node| bits.set(node.into()));
        Tree { raw: Some(bits), ..self }
    }

    /// Prefetch the edges of the next nodes in the queue of the search.
    #[inline(always)]
    fn look_ahead(&self, edges: &Edges, queue: &[u32]) {
        if let Some(nodes) = queue.get(..=SOON) {
            edges.fetch_row(nodes[SOON]);
            edges.fetch_edges(nodes[SOON * 2 / 3]);
            if let Some(edge) = edges.of(nodes[SOON / 3]).first() {
                fetch(&self.phases, split(*edge).0 as usize);
            }
        }
    }

    #[inline(always)]
    fn follow(&mut self, edges: &Edges, node: u32, phase: u8, limit: u32, queue: &mut Vec<u32>, weak: &mut Vec<u32>) {
        let mut is_weak = false;
        for edge in edges.of(node) {
            let (target, strength) = split(*edge);
            if strength > limit {
                is_weak = true;
            } else {
                self.reach(target, node, phase, queue);
            }
        }
        if is_weak {
            weak.push(node);
        }
    }

    #[inline(always)]
    fn reach(&mut self, node: u32, before: u32, phase: u8, queue: &mut Vec<u32>) {
        if self.phases[node as usize] == NOT_REACHED {
            self.phases[node as usize] = phase;
            self.before[node as usize] = before;
            queue.push(node);
        }
    }

    /// Return the chain from a root to the node, or only its last `most` nodes if it is longer; empty if the node is
    /// not reached.
    pub(crate) fn chain(&self, node: u32, most: usize) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = node;
        while found.len() < most && at != NOBODY && self.phases[at as usize] != NOT_REACHED {
            found.push(at);
            at = self.before[at as usize];
        }
        found.reverse();
        found
    }

    /// Prefetch the phase of a node, and the previous node on its chain.
    #[inline(always)]
    pub(crate) fn fetch(&self, node: u32) {
        fetch(&self.phases, node as usize);
        fetch(&self.before, node as usize);
    }

    /// Return whether the references from a node may be stale: there is only weak evidence that the node is alive, or the
    /// node belongs to the data of the interpreter or of threads.
    pub(crate) fn is_weak(&self, node: u32) -> bool {
        let weak = if self.rules == Rules::Blocks { BY_LAST_WORDS } else { BY_REMAINS };
        self.phases[node as usize] >= weak
    }

    /// Return whether all edges of a node, except stray ones, keep their targets alive, whatever the targets are.
    #[inline(always)]
    pub(crate) fn counts_all(&self, from: u32) -> bool {
        let phase = self.phases[from as usize];
        self.rules == Rules::Blocks && (phase != BY_LIVE_STACKS || self.before[from as usize] != NOBODY)
    }

    /// Return the same result as `counts`, but faster. `all`: the result of `counts_all` for the node `from`.
    #[inline(always)]
    pub(crate) fn counts_among(&self, all: bool, from: u32, to: u32, strength: u32) -> bool {
        all && strength != STRAY || self.counts(from, to, strength)
    }

    /// Return whether an edge keeps its target alive, as far as is known. A word that may be stale keeps its target
    /// alive only in two cases: no better word points to the target; or the target is a block of C code, and a word of
    /// a used block points to the start of the target or of a structure in it.
    #[inline(always)]
    pub(crate) fn counts(&self, from: u32, to: u32, strength: u32) -> bool {
        let is_root = || self.before[from as usize] == NOBODY;
        let node = to;
        let (from, to) = (self.phases[from as usize], self.phases[to as usize]);
        if self.rules == Rules::Blocks {
            let is_left_over = strength == STRAY && to < BY_INNER;
            return !is_left_over && (to >= BY_LIVE_STACKS || from != BY_LIVE_STACKS || !is_root());
        }
        let needed = match strength {
            STRAY => from.max(BY_INNER),
            DOUBTFUL => from.max(BY_PADDING),
            _ => from,
        };
        // Any number may happen to be an address in the middle of a large block.
        let is_reference = strength != STRAY && from < BY_PADDING;
        let may_hold = || is_reference && self.raw.as_ref().is_some_and(|raw| raw.get(node.into()));
        needed < BY_REMAINS || to >= needed || may_hold()
    }
}

/// Return a bit for each node, which is set for `members`; None if there are no members.
fn bits_of(nodes: usize, members: &[u32]) -> Option<Bits> {
    let mut bits = (!members.is_empty()).then(|| Bits::new(nodes as u64))?;
    members.iter().for_each(|node| bits.set((*node).into()));
    Some(bits)
}
