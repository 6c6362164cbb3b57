//! Build the reference graph of a program with Python. A first walk over the blocks marks the buffers of objects, a
//! second walk finds the edges.

use super::counted::CountedObjects;
use super::csr::{NodeTables, WrittenRows};
use super::edges::{Drawer, Registry, Round, Source, DOUBTFUL, EXACT, LIKELY, STRAY};
use super::ids::{Blocks, Ids};
use super::marks::{self, BufferClaim, Marker};
use super::padding::Padding;
use super::proof::Proof;
use super::queries::Graph;
use super::rounds;
use super::shapes::GraphLayout;
use super::tree::{BY_OTHERS, BY_REMAINS, BY_STACKS, PHASES};
use crate::allocators::heaps::{Heaps, SharedHeaps};
use crate::allocators::store::Store;
use crate::allocators::walk::{Job, Jobs, Walk};
use crate::bits::SharedBits;
use crate::python::layout::TypeLayout;
use crate::python::types::Types;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::{Cancellation, Error, Result};
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{Control, Watcher};
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::Mutex;

/// The number of bytes outside the heaps that are read between two checks for cancellation.
const PIECE: u64 = 16 << 20;

/// A root: something outside the heaps that refers to objects.
#[derive(Clone, Debug)]
pub struct Root {
    /// The phase of the search in which this root is followed (tree.rs).
    pub phase: usize,
    /// Addresses to which the root refers.
    pub pointers: Vec<u64>,
    /// Ranges of memory whose words may be references.
    pub ranges: Vec<(u64, u64)>,
}

/// Return the addresses of static types, ascending. A static type is everything that looks like a type in the data of
/// programs and libraries (`layout.data`).
pub fn static_types(watcher: &dyn Watcher, heaps: Heaps<'_>, layout: &TypeLayout) -> Result<Vec<u64>> {
    let mut types = Types::new(heaps, layout);
    let mut found = Vec::new();
    let mut bytes = vec![0; 1 << 20];
    for (start, end) in &layout.data {
        heaps.space.try_show(*start, *end, &mut bytes, |at, bytes| {
            for (place, word) in bytes.chunks_exact(8).enumerate() {
                // An object's type is its second word.
                let address = (at + place as u64 * 8).wrapping_sub(layout.ob_type);
                let pointer = u64_at(word, 0);
                if pointer > LOWEST && types.is_metatype_at(pointer) && types.lookup(address).is_some() {
                    found.push(address);
                }
            }
            watcher.check()
        })?;
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Number all used blocks, and find all edges between them. Lists of addresses and of ranges must be ascending.
/// - `statics`: the addresses of static types.
/// - `linked`: the addresses of the dynamic linker's tables.
/// - `left_over`: the unused parts of blocks of C code.
/// - `vacant`: the parts of `left_over` in which no word is a reference.
/// - `holders`: the addresses of words that are certainly references.
/// - `is_partial`: whether memory that may contain references is missing.
///
/// Fails if a root has an invalid phase, if there are more than 2^30 blocks, or if memory runs out.
#[allow(clippy::too_many_arguments)]
pub fn draw_graph(
    watcher: &dyn Watcher,
    shared: SharedHeaps,
    layout: TypeLayout,
    graph: &GraphLayout,
    statics: Vec<u64>,
    roots: &[Root],
    linked: &[u64],
    left_over: &[(u64, u64)],
    vacant: &[(u64, u64)],
    holders: &[u64],
    is_partial: bool,
) -> Result<Graph> {
    if roots.iter().any(|root| root.phase >= PHASES) {
        return Err(Error::invalid("there is no such phase"));
    }
    let heaps = shared.lend();
    let used = walked_bits(heaps).ok_or(Error::Memory("not enough memory for a bit for each block"))?;
    let jobs = heaps.jobs();
    let passes = Passes { watcher, heaps, layout: &layout, graph, jobs: &jobs };
    let claimed = passes.mark(&used)?;
    let ids = Ids::new(heaps, &used, statics, roots.len()).ok_or(Error::Overflow("more than 2^30 blocks"))?;
    drop(used);
    let blocks = Blocks { heaps, ids: &ids };
    let marks = marks::settle(&blocks, &layout, &claimed);
    let registry = Mutex::new(Registry::default());
    let space = heaps.space;
    let source = Source {
        space,
        blocks,
        types: &layout,
        layout: graph,
        marks: &marks,
        registry: &registry,
        linked,
        left_over,
        vacant,
        holders,
    };
    let DrawingResult { mut written, fields, syntax, rounds, handles } = passes.draw(source)?;
    written.push(space.task(watcher, None).alone(|control| outside(control, source, roots))?);
    let NodeTables { mut edges, kinds, counts, unread } = WrittenRows::join(written, ids.count())?;
    drop(marks);
    let numbers = match rounds.is_empty() {
        true => HashSet::new(),
        false => space.task(watcher, None).alone(|control| rounds::numbers(&blocks, &kinds, &rounds, control))?,
    };
    if !fields.is_empty() {
        edges.judge(|source, _, strength| match strength {
            DOUBTFUL if fields.contains(&source) => LIKELY,
            _ => strength,
        });
    }
    let counted = CountedObjects::find(&edges, &kinds, &counts);
    edges.judge(|source, target, strength| match strength {
        LIKELY if !numbers.is_empty() && numbers.contains(&(source, target)) => STRAY,
        LIKELY if counted.as_ref().is_some_and(|counted| counted.is_stale(kinds[source as usize], target)) => STRAY,
        _ => strength,
    });
    let types = registry.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).addresses;
    let phases = root_phases(roots, ids.first_root);
    let proof = Proof::of(unread, is_partial, counts);
    Ok(Graph::new(shared, Some(layout), ids, edges, kinds, types, phases, proof, syntax, handles))
}

/// Return the numbers of the roots, grouped by phase. `first` is the number of the first root.
pub(super) fn root_phases(roots: &[Root], first: u32) -> [Vec<u32>; PHASES] {
    let mut phases: [Vec<u32>; PHASES] = Default::default();
    roots.iter().zip(first..).for_each(|(root, id)| phases[root.phase].push(id));
    phases
}

/// Return an empty bitmap for each store, to mark its used blocks. The bitmap has no bits if the store itself knows
/// which of its blocks are used. None if memory does not suffice.
pub(super) fn walked_bits(heaps: Heaps<'_>) -> Option<Vec<SharedBits>> {
    let numbers = |store: &Store| if store.is_told_by_walk() { store.block_numbers() } else { 0 };
    heaps.stores.iter().map(|store| SharedBits::new(numbers(store))).collect()
}

/// The result of the second walk.
/// - `written`: the rows of all blocks.
/// - `fields`: the numbers of the blocks of C code whose last word is a field.
/// - `syntax`: the blocks that contain syntax trees.
/// - `rounds`: words that may be references or round numbers.
/// - `handles`: objects such as PyCapsules (`Form::is_handle`).
struct DrawingResult {
    written: Vec<WrittenRows>,
    fields: HashSet<u32>,
    syntax: Vec<u32>,
    rounds: Vec<Round>,
    handles: Vec<u32>,
}

struct Passes<'a> {
    watcher: &'a dyn Watcher,
    heaps: Heaps<'a>,
    layout: &'a TypeLayout,
    graph: &'a GraphLayout,
    jobs: &'a Jobs,
}

impl<'a> Passes<'a> {
    fn mark(&'a self, used: &'a [SharedBits]) -> Result<Vec<Vec<BufferClaim>>> {
        let deque_blocks = AtomicU64::new(marks::most_deque_blocks(self.heaps));
        let init = || {
            let types = Types::new(self.heaps, self.layout);
            (Walk::new(self.heaps), Marker::new(types, self.graph.keys.as_ref(), used, &deque_blocks))
        };
        let work = |(walk, marker): &mut (Walk<'_>, Marker<'_>), job: &Job, control: &Control| {
            walk.run(job, control, marker)?;
            marker.follow_deques(control)
        };
        let states = self.heaps.space.task(self.watcher, Some(self.jobs.total)).run(&self.jobs.jobs, init, work)?;
        Ok(states.into_iter().map(|(_, marker)| marker.claimed).collect())
    }

    fn draw(&self, source: Source<'_>) -> Result<DrawingResult> {
        let init = || (Walk::new(self.heaps), Drawer::new(source));
        let work = |(walk, drawer): &mut (Walk<'_>, Drawer<'_>), job: &Job, control: &Control| {
            drawer.rows.begin(source.blocks.ids.id_from(job.first));
            walk.run(job, control, drawer)
        };
        let states = self.heaps.space.task(self.watcher, Some(self.jobs.total)).run(&self.jobs.jobs, init, work)?;
        let (mut written, mut lasts, mut padding): (Vec<WrittenRows>, Vec<(u32, u32)>, Padding) = Default::default();
        let (mut syntax, mut rounds, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        for (_, drawer) in states {
            padding.absorb(drawer.padding);
            lasts.extend(drawer.lasts);
            syntax.extend(drawer.syntax);
            rounds.extend(drawer.rounds);
            handles.extend(drawer.handles);
            written.push(drawer.rows);
        }
        let fields = padding.fields();
        let fields = lasts.into_iter().filter(|(_, group)| fields.contains(group)).map(|(id, _)| id).collect();
        Ok(DrawingResult { written, fields, syntax, rounds, handles })
    }
}

/// Write the edges of the static types and of the roots. Both lie outside the heaps.
fn outside(control: &Control, source: Source<'_>, roots: &[Root]) -> Result<WrittenRows, Cancellation> {
    let mut drawer: Drawer<'_> = Drawer::new(source);
    drawer.rows.begin(source.blocks.ids.first_static);
    for address in &source.blocks.ids.statics {
        drawer.static_type(*address);
    }
    drawer.rows.begin(source.blocks.ids.first_root);
    for root in roots {
        let known = if root.phase as u8 == BY_STACKS { STRAY } else { EXACT };
        root.pointers.iter().for_each(|pointer| drawer.reference(*pointer, known));
        let strength = match root.phase as u8 {
            BY_STACKS => STRAY,
            BY_OTHERS | BY_REMAINS => LIKELY,
            _ => EXACT,
        };
        let has_lists = root.phase as u8 == BY_REMAINS;
        for range in &root.ranges {
            in_pieces(control, source.space, *range, |start, end| drawer.range(start, end, strength, has_lists))?;
        }
        drawer.rows.end_row(0);
    }
    Ok(drawer.rows)
}

/// Call `show(start, end)` for each readable part of a range. Longer parts are divided, so that each call gets at most
/// PIECE bytes. Before each call, check for cancellation.
pub(super) fn in_pieces(
    control: &Control,
    space: &Space,
    (start, end): (u64, u64),
    mut show: impl FnMut(u64, u64),
) -> Result<(), Cancellation> {
    let mut at = start;
    while let Some(next) = space.next_backed(at).and_then(|next| next.checked_next_multiple_of(8)) {
        if next >= end {
            break;
        }
        control.advance(0)?;
        at = end.min(next.saturating_add(PIECE));
        show(next, at);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{in_pieces, PIECE};
    use gdbheap_access::error::Error;
    use gdbheap_access::machine::{Machine, EM_X86_64};
    use gdbheap_access::memory::space::{Backing, Segment, Space};
    use gdbheap_access::testing::{CancellingWatcher, NoWatcher};
    use gdbheap_access::work::{Task, Watcher};
    use std::sync::Mutex;

    const START: u64 = 1 << 32;

    /// Make a core with 2^46 bytes of memory. Its file contains only the first three times PIECE bytes, less 16.
    fn space() -> Space {
        let path = std::env::temp_dir().join(format!("gdbheap-pieces-{}", std::process::id()));
        let size = 3 * PIECE - 16;
        std::fs::write(&path, vec![1; size as usize]).expect("room for a file");
        let file = Segment { start: START, end: START + size, backing: Backing::File { index: 0, offset: 0 } };
        let zeros = Segment { start: START + size, end: 1 << 46, backing: Backing::Zeros };
        let machine = Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).expect("a machine");
        let space = Space::for_core(machine, vec![file, zeros], &[path.to_string_lossy().into_owned()]);
        std::fs::remove_file(&path).expect("the file");
        space.expect("disjoint segments")
    }

    #[test]
    fn what_is_outside_is_shown_until_the_end() {
        let (space, shown) = (space(), Mutex::new(Vec::new()));
        let show = |start, end| shown.lock().expect("no panic").push((start, end));
        let found = |watcher: &dyn Watcher| {
            let task = Task { watcher, total: None, inline: true };
            task.alone(|control| in_pieces(control, &space, (START + 3, 1 << 46), show))
        };
        assert!(
            matches!(found(&CancellingWatcher), Err(Error::Cancelled)) && shown.lock().expect("no panic").is_empty()
        );
        found(&NoWatcher).expect("not cancelled");
        let (first, second) = (START + 8, START + 8 + PIECE);
        let expected = [(first, second), (second, second + PIECE), (second + PIECE, second + 2 * PIECE)];
        assert_eq!(*shown.lock().expect("no panic"), expected);
    }
}
