//! Classify each block of a C++ or Rust program: which container or class it belongs to.

use super::capacity::{Capacity, Rooms};
use super::finding::{Candidates, Finder};
use super::kinds::{Family, KindRow, Kinds, UNKNOWN};
use super::proving::Prover;
use super::rust::classification::prove_rust;
use super::search_input::{Libraries, SearchInput, WordPlace};
use super::settling::{settle_pointees, Settler, SettlingResult};
use super::vtables::{Vtables, ROOM_FOR_NAMES};
use crate::allocators::heaps::{Heaps, SharedHeaps};
use crate::allocators::tally::Tally;
use crate::allocators::walk::{Job, Walk};
use crate::bits::SharedBits;
use crate::by_address::ByAddress;
use crate::graph::ids::{Blocks, Ids, Node};
use gdbheap_access::error::{Cancellation, Error, Result};
use gdbheap_access::memory::pages::Pages;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::{take, Control, Watcher};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8};
use std::sync::{Mutex, PoisonError};

/// Return, for each address, the class of the object that begins there, if the object has a vtable; else None.
/// `objects`: the memory of loaded objects (programs and libraries), as ascending ranges.
pub fn class_at(space: &Space, objects: &[(u64, u64)], addresses: &[u64]) -> Vec<Option<String>> {
    let left = AtomicU64::new(ROOM_FOR_NAMES);
    let mut vtables = Vtables::new(space, objects, &left);
    let mut class = |address: &u64| {
        let vtable = vtables.at(space.word(*address).ok()?)?;
        (vtable.to_top == 0).then(|| vtable.class.to_string())
    };
    addresses.iter().map(&mut class).collect()
}

/// The kinds of all used blocks. The numbers of blocks are the same as in the graph of the same heaps.
pub struct Structures {
    pub(crate) shared: SharedHeaps,
    pub(crate) ids: Ids,
    pub(crate) kinds: Vec<u32>,
    rooms: Rooms,
    held_inside: HashSet<u32>,
    left_over: Vec<(u64, u64)>,
    vacant: Vec<(u64, u64)>,
    left_out: bool,
    holders: Vec<u64>,
    rows: Vec<KindRow>,
    all: Tally,
}

#[allow(clippy::too_many_arguments)]
/// Classify all blocks. Stores that do not know their own used blocks are left out. All ranges must be ascending.
/// - `objects`: the memory of loaded objects (programs and libraries), in which vtables lie.
/// - `code`: the executable part of this memory.
/// - `statics`, `stacks`: other memory in which containers may lie.
/// - `named`: the addresses and the names of blocks that the caller knows.
///
/// Fails if there are more than 2^30 blocks, or if memory runs out.
pub fn find_structures(
    watcher: &dyn Watcher,
    shared: SharedHeaps,
    objects: &[(u64, u64)],
    code: &[(u64, u64)],
    statics: &[(u64, u64)],
    stacks: &[(u64, u64)],
    libraries: Libraries,
    named: &[(u64, String)],
) -> Result<Structures> {
    let heaps = shared.lend();
    let nothing = || SharedBits::new(0).ok_or(Error::Memory("not enough memory for a block's kind"));
    let used: Vec<SharedBits> = heaps.stores.iter().map(|_| nothing()).collect::<Result<_>>()?;
    let ids = Ids::new(heaps, &used, Vec::new(), 0).ok_or(Error::Overflow("more than 2^30 blocks"))?;
    let look = SearchInput {
        heaps,
        ids: &ids,
        bounds: heaps.bounds(),
        objects,
        code,
        libraries,
        kinds: filled(ids.count(), AtomicU32::default)?,
        references: filled(if libraries.any() { ids.count() } else { 0 }, AtomicU8::default)?,
        inside: filled(if libraries.any() { ids.count() } else { 0 }, AtomicU8::default)?,
        names: AtomicU64::new(ROOM_FOR_NAMES),
        votes: Default::default(),
        left_out: AtomicBool::new(false),
        known: Mutex::default(),
        rooms: Mutex::default(),
    };
    for (address, name) in named {
        if let Some((id, _)) = look.block_from(*address) {
            look.set_kind(id, look.number(Family::Named, name));
        }
    }
    let SettlingResult { left_over, vacant, holders } = match libraries.any() {
        true => {
            let found = Mutex::new(Some(pass::<true>(watcher, &look, statics, stacks)?));
            let prove = |control: &Control<'_>| prove(&look, take(&found).unwrap_or_default(), control);
            heaps.space.task(watcher, None).alone(prove)?
        }
        false => {
            pass::<false>(watcher, &look, &[], &[])?;
            SettlingResult::default()
        }
    };
    let left_out = look.left_out.into_inner();
    let rooms = look.rooms.into_inner().unwrap_or_else(PoisonError::into_inner);
    let known = look.known.into_inner().unwrap_or_else(PoisonError::into_inner);
    let kinds: Vec<u32> = look.kinds.into_iter().map(AtomicU32::into_inner).collect();
    let (rows, all) = tally(heaps, &ids, &kinds, &known);
    let numbered = (1u32..).zip(&known.rows);
    let held_inside = numbered.filter(|(_, (family, _))| family.is_held_inside()).map(|(number, _)| number).collect();
    Ok(Structures { shared, ids, kinds, rooms, held_inside, left_over, vacant, left_out, holders, rows, all })
}

fn filled<T>(count: usize, make: fn() -> T) -> Result<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| Error::Memory("not enough memory for a block's kind"))?;
    all.resize_with(count, make);
    Ok(all)
}

/// Search all blocks, static data and stacks for candidates. Each worker thread has its own finder.
fn pass<const SHAPES: bool>(
    watcher: &dyn Watcher,
    look: &SearchInput<'_>,
    statics: &[(u64, u64)],
    stacks: &[(u64, u64)],
) -> Result<Vec<Candidates>> {
    let heaps = look.heaps;
    let jobs = heaps.jobs_of(|store| !store.is_told_by_walk());
    let init = || (Walk::new(heaps), Finder::<SHAPES>::new(look));
    let work = |(walk, finder): &mut (Walk<'_>, Finder<'_, SHAPES>), job: &Job, control: &Control| {
        walk.run(job, control, finder)
    };
    let states = heaps.space.task(watcher, Some(jobs.total)).run(&jobs.jobs, init, work)?;
    let mut found: Vec<Candidates> = states.into_iter().map(|(_, finder)| finder.found).collect();
    let mut outside = Finder::<SHAPES>::new(look);
    statics.iter().for_each(|(start, end)| outside.range(*start, *end, WordPlace::Static));
    stacks.iter().for_each(|(start, end)| outside.range(*start, *end, WordPlace::Stack));
    found.push(outside.found);
    Ok(found)
}

/// Prove containers from the candidates. The surest proofs come first.
fn prove(
    look: &SearchInput<'_>,
    mut found: Vec<Candidates>,
    control: &Control<'_>,
) -> std::result::Result<SettlingResult, Cancellation> {
    let mut prover = Prover::new(look);
    let each = |part: &Candidates| settle_pointees(look, &mut prover, &part.controls);
    found.iter().for_each(each);
    all(control, found.iter().flat_map(|part| &part.trees), |(header, form)| prover.tree(*header, *form))?;
    all(control, found.iter().flat_map(|part| &part.tables), |table| prover.table(*table))?;
    all(control, found.iter().flat_map(|part| &part.deques), |deque| prover.deque(*deque))?;
    all(control, found.iter().flat_map(|part| &part.split_deques), |deque| prover.split_deque(*deque))?;
    all(control, found.iter().flat_map(|part| &part.rings), |(id, block)| prover.ring(*id, *block))?;
    if look.libraries.rust {
        prove_rust(look, &mut found, control)?;
    }
    let from_stacks = found.iter_mut().flat_map(|part| part.from_stacks.drain()).collect();
    let held: Vec<_> = found.iter_mut().flat_map(|part| part.held.drain(..)).collect();
    let dead = std::mem::take(&mut prover.dead);
    let settler = Settler {
        look,
        prover: &mut prover,
        from_stacks,
        from_dead: ByAddress::default(),
        inside_from_dead: ByAddress::default(),
        dead,
        behind_texts: Vec::new(),
        holders: Vec::new(),
    };
    Ok(settler.settle(held))
}

/// Call `proof` for each candidate. A candidate that is not proven is no error: it is just no container.
fn all<'a, T: 'a>(
    control: &Control<'_>,
    candidates: impl Iterator<Item = &'a T>,
    mut proof: impl FnMut(&T) -> Option<()>,
) -> std::result::Result<(), Cancellation> {
    const AT_ONCE: usize = 1 << 10;
    for (place, candidate) in candidates.enumerate() {
        // A candidate that fails is not a container.
        let _is_proven = proof(candidate).is_some();
        if place % AT_ONCE == 0 {
            control.advance(0)?;
        }
    }
    Ok(())
}

/// Return the number of blocks and their bytes for each kind, and for all blocks.
fn tally(heaps: Heaps<'_>, ids: &Ids, kinds: &[u32], known: &Kinds) -> (Vec<KindRow>, Tally) {
    let mut all = Tally::default();
    let row = |(family, class): &(Family, String)| KindRow {
        family: family.name(),
        class: class.clone(),
        count: 0,
        bytes: 0,
    };
    let mut rows: Vec<KindRow> = known.rows.iter().map(row).collect();
    for (store, ranked) in heaps.stores.iter().zip(&ids.stores).filter(|(store, _)| !store.is_told_by_walk()) {
        let mut id = ranked.first as usize;
        store.show_blocks(|cell| {
            let kind = kinds.get(id).copied().unwrap_or(UNKNOWN);
            id += 1;
            all.count += 1;
            all.bytes += cell.size;
            if let Some(row) = (kind as usize).checked_sub(1).and_then(|place| rows.get_mut(place)) {
                row.count += 1;
                row.bytes += cell.size;
            }
        });
    }
    (rows, all)
}

impl Structures {
    /// Return a row for each kind that occurs. The number of a kind is the index of its row plus one.
    pub fn rows(&self) -> &[KindRow] {
        &self.rows
    }

    /// Return the capacity of containers and how much of it is used, in one row for each kind. Without `pages`, all
    /// unused room counts as resident.
    pub fn capacities(&self, pages: Option<&Pages>) -> Vec<Capacity> {
        self.rooms.rows(pages, self.shared.lend().space.machine.page)
    }

    /// Return the number and the bytes of all blocks that were examined.
    pub fn all(&self) -> Tally {
        self.all
    }

    /// Return the kind of each block, by the block's number; zero for a block of unknown kind.
    pub fn kinds(&self) -> &[u32] {
        &self.kinds
    }

    /// Return the kinds of blocks whose holders point to the middle of the block.
    pub fn held_inside(&self) -> &HashSet<u32> {
        &self.held_inside
    }

    /// Return the parts of containers' blocks that contain no items, ascending. The words in these parts are stale.
    pub fn left_over(&self) -> &[(u64, u64)] {
        &self.left_over
    }

    /// Return those parts of `left_over` that certainly contain no items, ascending. No word in them is a reference.
    pub fn vacant(&self) -> &[(u64, u64)] {
        &self.vacant
    }

    /// Return whether possible containers were left out because they would have taken too much memory.
    pub fn left_out(&self) -> bool {
        self.left_out
    }

    /// Return the addresses of words that point to proven buffers of strings and vectors, ascending.
    pub fn holders(&self) -> &[u64] {
        &self.holders
    }

    /// Return the kind of the block that contains an address; zero if the kind is unknown, or if no used block contains
    /// the address.
    pub fn kind_at(&self, address: u64) -> u32 {
        let blocks = Blocks { heaps: self.shared.lend(), ids: &self.ids };
        blocks.find(address).map_or(UNKNOWN, |found| self.kinds[found.id as usize])
    }

    /// Return at most `most` blocks that have one of these kinds, as `(address, size)`, ascending in each store.
    pub fn blocks_of(&self, kinds: &HashSet<u32>, most: usize) -> Vec<(u64, u64)> {
        let blocks = Blocks { heaps: self.shared.lend(), ids: &self.ids };
        let place = |id: u32| match blocks.node(id) {
            Node::Block { address, size, .. } => Some((address, size)),
            _ => None,
        };
        let ids = (0u32..).zip(&self.kinds).filter(|(_, kind)| kinds.contains(kind));
        ids.filter_map(|(id, _)| place(id)).take(most).collect()
    }
}
