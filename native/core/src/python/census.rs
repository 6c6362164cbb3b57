//! Assign each used block to its owner: the block is an object of a type, a buffer that an object owns, an entry of a
//! free list, or unknown.
//!
//! One pass reads the blocks or their heads, classifies each block, and claims the buffers to which the object in it
//! points. A block is claimed once, by the first claimant. A claimed block is a buffer, whatever it looks like.
//! Afterwards chains of buffers are followed (reach.rs), and the graph, if there is one, assigns all other blocks
//! (graph/owning.rs). A block counts once, as the first of these that applies: free; claimed; live object; object on a
//! free list; unclassified.

use crate::allocators::block::{Block, BlockId, GroupBits};
use crate::allocators::heaps::Heaps;
use crate::allocators::store::Store;
use crate::allocators::tally::Tally;
use crate::allocators::walk::{Jobs, Visitor, Walk, HEAD_BYTES};
use crate::by_address::{Addresses, ByAddress};
use crate::python::claims::claimed_pointer;
use crate::python::layout::{TypeLayout, CLAIM, NOTHING};
use crate::python::marks::Marks;
use crate::python::owner::{Owner, Owners};
use crate::python::reach::{follow_links, Link};
use crate::python::types::Types;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::{Error, Result};
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::{Control, Watcher};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A census reads at most this many bytes at the start of each block.
const HEAD: usize = HEAD_BYTES;
/// The largest number of different roles that a buffer can have for its owner.
const MAX_ROLES: usize = 32;

/// The objects of one type, and the buffers that these objects own.
#[derive(Clone, Copy, Default)]
struct TypeCounts {
    live: Tally,
    idle: Tally,
    /// The buffers of the objects, by the role of the buffer.
    buffers: [Tally; MAX_ROLES],
}

impl TypeCounts {
    fn absorb(&mut self, other: &TypeCounts) {
        let mine = [&mut self.live, &mut self.idle].into_iter().chain(&mut self.buffers);
        let theirs = [&other.live, &other.idle].into_iter().chain(&other.buffers);
        mine.zip(theirs).for_each(|(mine, theirs)| *mine = mine.with(theirs));
    }
}

/// The blocks that one worker classifies, and what it has found so far.
struct Worker<'a> {
    heaps: Heaps<'a>,
    marks: &'a Marks<'a>,
    watched: &'a ByAddress<()>,
    refused: &'a RefusedClaims,
    types: Types<'a>,
    rows: Vec<TypeCounts>,
    tallies: Tallies,
    owners: Vec<(u64, u64, u64, u32)>,
    wanted: Vec<OpenClaim>,
    found: Vec<Option<Block>>,
    /// Links to further blocks of an object: fields of the object, and words of its buffers.
    links: Vec<Link>,
    /// The addresses of blocks that contain syntax trees.
    syntax: Vec<u64>,
    /// The slabs in which no int or float is alive (Python 2).
    idle_slabs: Tally,
    settling: Duration,
}

/// The counts of one store: its used blocks, and two parts of them, the blocks that look like objects and the claimed
/// blocks.
#[derive(Clone, Copy, Default)]
struct StoreCounts {
    used: Tally,
    objects: Tally,
    claimed: Tally,
}

impl StoreCounts {
    /// Return the used blocks that are neither objects nor claimed.
    fn unclassified(&self) -> Tally {
        let mut left = self.used;
        for part in [self.objects, self.claimed] {
            left.count = left.count.saturating_sub(part.count);
            left.bytes = left.bytes.saturating_sub(part.bytes);
        }
        left
    }
}

/// The counts of the blocks of each store.
struct Tallies(Vec<StoreCounts>);

impl Tallies {
    fn new(heaps: &Heaps<'_>) -> Tallies {
        Tallies(vec![StoreCounts::default(); heaps.stores.len()])
    }

    #[inline(always)]
    fn of(&mut self, place: BlockId) -> &mut StoreCounts {
        &mut self.0[place.store as usize]
    }

    fn absorb(&mut self, other: &Tallies) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.used = mine.used.with(&theirs.used);
            mine.objects = mine.objects.with(&theirs.objects);
            mine.claimed = mine.claimed.with(&theirs.claimed);
        }
    }
}

impl Visitor for Worker<'_> {
    #[inline(always)]
    fn block_of_group(&mut self, block: Block, head: &[u8]) -> bool {
        self.take_block(block.address, block.size, head)
    }

    #[inline(always)]
    fn block(&mut self, block: Block, head: &[u8]) -> bool {
        if self.take_slab(&block) {
            return false;
        }
        let is_object = self.take_block(block.address, block.size, head);
        if is_object {
            self.tallies.of(block.place).objects.add(block.size);
            self.marks.note_object(block.place);
        }
        is_object
    }

    #[inline(always)]
    fn group(&mut self, first: BlockId, size: u64, used: &GroupBits, objects: &GroupBits) {
        let ones = |bits: &GroupBits| bits.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        let tallies = self.tallies.of(first);
        tallies.used.add_many(ones(used), size);
        tallies.objects.add_many(ones(objects), size);
        self.marks.note_group(first, used, objects);
    }
}

impl<'a> Worker<'a> {
    fn new(
        heaps: Heaps<'a>,
        marks: &'a Marks<'a>,
        watched: &'a ByAddress<()>,
        refused: &'a RefusedClaims,
        layout: &'a TypeLayout,
    ) -> Worker<'a> {
        Worker {
            heaps,
            marks,
            watched,
            refused,
            types: Types::new(heaps, layout),
            rows: Vec::new(),
            tallies: Tallies::new(&heaps),
            owners: Vec::new(),
            wanted: Vec::new(),
            found: Vec::new(),
            links: Vec::new(),
            syntax: Vec::new(),
            idle_slabs: Tally::default(),
            settling: Duration::ZERO,
        }
    }

    /// If the block is a slab, count its objects and return true. Places without a living object count as idle objects.
    #[inline(always)]
    fn take_slab(&mut self, block: &Block) -> bool {
        let Some(slab) = &self.types.layout.slab else { return false };
        let item = slab.item;
        let Some(filled) = self.types.slab_at(block.address, block.size) else {
            if self.types.is_idle_slab(block.address, block.size) {
                self.idle_slabs.add(block.size);
                self.syntax.push(block.address);
            }
            return false;
        };
        if self.marks.claim(block.place) {
            let row = self.row(filled.number as usize);
            row.live.add_many(filled.count(), item);
            row.idle.count += filled.places - filled.count();
            row.idle.bytes += block.size - filled.count() * item;
            self.tallies.of(block.place).claimed.add(block.size);
        }
        true
    }

    fn row(&mut self, number: usize) -> &mut TypeCounts {
        if self.rows.len() <= number {
            self.rows.resize(number + 1, TypeCounts::default());
        }
        &mut self.rows[number]
    }

    /// Classify one used block. Return true if the block looks like an object.
    #[inline(always)]
    fn take_block(&mut self, address: u64, size: u64, head: &[u8]) -> bool {
        let Some((number, alive)) = self.types.object_in(head, size) else {
            if self.types.layout.is_syntax(address, size, head) {
                self.syntax.push(address);
            }
            return false;
        };
        let number = number as usize;
        let row = self.row(number);
        if !alive {
            row.idle.add(size);
            return true;
        }
        row.live.add(size);
        let kind = &self.types.kinds[number];
        if !kind.claims.is_empty() && !self.refused.holds(address) {
            self.claim_unhooked(number, address, size, head);
        }
        true
    }

    /// Record the claims of an object. If the header of a second debug hook precedes the object's own, skip it first.
    #[inline(always)]
    fn claim_unhooked(&mut self, number: usize, address: u64, size: u64, head: &[u8]) {
        if self.types.layout.hook == 0 {
            return self.claim_buffers(number, address, size, head);
        }
        let outer = self.types.layout.outer_hook(head);
        self.claim_buffers(number, address + outer as u64, size.saturating_sub(outer as u64), &head[outer..]);
    }

    /// Record the claims of an object. `settle_claims` decides later whether the object gets the buffers.
    #[inline(always)]
    fn claim_buffers(&mut self, number: usize, address: u64, size: u64, head: &[u8]) {
        let kind = &self.types.kinds[number];
        for claim in &kind.claims {
            let Some(pointer) = claimed_pointer(self.heaps.space, claim, address, size, head) else { continue };
            if claim.follow == CLAIM {
                let (holder, at, owner) = (address + kind.pre, address + claim.at as u64, number as u32);
                self.links.push(Link { at, owner, holder, follow: NOTHING, role: claim.role, last: 0 });
            } else if pointer.wrapping_sub(address) >= size {
                self.wanted.push(OpenClaim {
                    pointer,
                    owner: address + kind.pre,
                    number: number as u32,
                    role: claim.role,
                    follow: claim.follow,
                    last: if claim.last_at == usize::MAX { 0 } else { u64_at(head, claim.last_at) },
                });
            }
        }
        if self.wanted.len() >= CLAIMS_AT_ONCE {
            self.settle_claims();
        }
    }

    /// Claim the blocks of many recorded claims at once. First look up all blocks, then claim them. In such short
    /// loops, the processor overlaps the cache misses of several look-ups.
    #[inline(never)]
    fn settle_claims(&mut self) {
        let (heaps, marks, begin) = (self.heaps, self.marks, Instant::now());
        self.found.clear();
        self.found.extend(self.wanted.iter().map(|wanted| heaps.block_at(wanted.pointer)));
        for (wanted, found) in self.wanted.iter().zip(&self.found) {
            let Some(block) = *found else { continue };
            if !marks.claim(block.place) {
                continue;
            }
            self.rows[wanted.number as usize].buffers[usize::from(wanted.role)].add(block.size);
            let next = u64::try_from(wanted.follow).ok().filter(|_| wanted.last != block.address);
            if let Some(at) = next.map(|offset| block.address + offset).filter(|at| at + 8 <= block.end) {
                let OpenClaim { number: owner, owner: holder, follow, role, last, .. } = *wanted;
                self.links.push(Link { at, owner, holder, follow, role, last });
            }
            self.tallies.of(block.place).claimed.add(block.size);
            if !self.watched.is_empty() && self.watched.contains_key(&block.address) {
                let owner_type = self.types.kinds[wanted.number as usize].address;
                self.owners.push((block.address, wanted.owner, owner_type, u32::from(wanted.role)));
            }
        }
        self.wanted.clear();
        self.settling += begin.elapsed();
    }
}

/// A claim that is not settled yet: an object points to a buffer.
struct OpenClaim {
    pointer: u64,
    owner: u64,
    number: u32,
    role: u8,
    follow: i32,
    last: u64,
}

const CLAIMS_AT_ONCE: usize = 512;

/// The buffers of one role that the objects of a type own.
#[derive(Clone, Copy, Debug)]
pub struct OwnedBuffers {
    pub role: u8,
    pub buffers: Tally,
}

/// The row of one type: its objects and their buffers.
#[derive(Clone, Debug)]
pub struct TypeRow {
    /// The address of the type.
    pub kind: u64,
    /// The `tp_flags` of the type.
    pub flags: u64,
    pub live: Tally,
    /// The objects of the type that are on free lists.
    pub idle: Tally,
    pub owned: Vec<OwnedBuffers>,
}

/// The used blocks of one store, and those of these blocks that are neither objects nor claimed.
#[derive(Clone, Copy, Debug)]
pub struct StoreRow {
    pub name: &'static str,
    pub used: Tally,
    pub unclassified: Tally,
}

/// The result of a census. Sizes are in bytes.
pub struct Census {
    /// A row for each type that has objects.
    pub rows: Vec<TypeRow>,
    /// For each store, its used blocks and those of them that are unclassified.
    pub stores: Vec<StoreRow>,
    /// The owners of the watched blocks: `(block, owner's address, owner's type, role)`. If a root owns the block, the
    /// type is 0, the role is the root's number, and the address is the address of a word in the root.
    pub owners: Vec<(u64, u64, u64, u32)>,
    /// The blocks that each root owns.
    pub roots: Vec<Tally>,
    /// The largest unidentified blocks, largest first: `(user address, size)`.
    pub unknown: Vec<(u64, u64)>,
    /// Buffers that look like objects, by user address.
    pub contested: Vec<u64>,
    /// The slabs (blocks for many objects) in which no object is alive.
    pub idle_slabs: Tally,
    /// The time that it took to find the owners of buffers during the walk: the mean of all workers.
    pub settling: Duration,
    /// The time that it took to follow the pointers to the other buffers.
    pub following: Duration,
}

/// The input of a census, besides the heaps.
pub struct CensusRequest {
    /// For each root of the graph, by its index, the number of the root's owner; 0 for the interpreter.
    pub roots: Vec<u32>,
    /// The user addresses of the blocks whose owners are added to `Census::owners`.
    pub watched: Vec<u64>,
    /// The largest number of unidentified blocks that are listed.
    pub unknown: usize,
}

/// Classify every used block. `graph`: a graph of the same heaps. Without a graph, blocks of C code have no owner.
pub fn take_census(
    watcher: &dyn Watcher,
    heaps: Heaps<'_>,
    layout: &TypeLayout,
    question: &CensusRequest,
    graph: Option<&dyn Owners>,
) -> Result<Census> {
    let watched = question.watched.iter().map(|address| (*address, ())).collect();
    let mut refused = RefusedClaims::default();
    let (marks, mut sums) = loop {
        let (marks, sums) = classify(watcher, heaps, &refused, &watched, layout, question)?;
        let next = RefusedClaims { passes: refused.passes + 1, ..RefusedClaims::after(&marks, &heaps, layout) };
        if next.passes == MAX_PASSES || next.free == refused.free && next.claimants == refused.claimants {
            break (marks, sums);
        }
        refused = next;
    };
    let known = heaps.stores.iter().zip(&mut sums.tallies.0).filter(|(store, _)| !store.is_told_by_walk());
    known.for_each(|(store, sorted)| sorted.used = store.used());
    let walked = Instant::now();
    sums.follow(watcher, &heaps, &marks, &watched)?;
    if let Some(graph) = graph {
        sums.share_out(watcher, &heaps, graph, &marks, &watched, question, layout)?;
    }
    let following = walked.elapsed();
    let contested = marks.contested();
    settle_contested(&heaps, &contested, layout, &mut sums);
    let stores: Vec<StoreRow> = heaps.stores.iter().zip(&sums.tallies.0).map(store_row).collect();
    Ok(Census {
        rows: sums.types.iter().zip(&sums.rows).map(row).collect(),
        owners: sums.owners,
        roots: sums.roots,
        unknown: match stores.iter().any(|store| store.unclassified.count > 0) && question.unknown > 0 {
            true => marks.largest_unknown(question.unknown),
            false => Vec::new(),
        },
        stores,
        contested: contested.into_iter().map(|block| block.address).collect(),
        idle_slabs: sums.idle_slabs,
        settling: sums.settling,
        following,
    })
}

fn store_row((store, sorted): (&Store, &StoreCounts)) -> StoreRow {
    StoreRow { name: store.name(), used: sorted.used, unclassified: sorted.unclassified() }
}

/// The claims that a pass over all used blocks found to be wrong. The next pass must not make these claims.
#[derive(Default)]
struct RefusedClaims {
    /// Blocks that must not be claimed, because they are free.
    free: Vec<BlockId>,
    /// Blocks that must not claim anything: they look like objects, but are claimed as buffers themselves. For example,
    /// the items of a list look like an object if a class follows a possible count, such as an address below 4 GiB. The
    /// blocks to which such items point are not buffers of an object.
    claimants: Addresses,
    passes: u32,
}

/// The largest number of passes. A wrong claim may have been made on a block that rightly claims other blocks, so that
/// this block was refused too. A few passes settle this. Usually there are no such claims, and one pass suffices.
const MAX_PASSES: u32 = 4;

impl RefusedClaims {
    fn after(marks: &Marks<'_>, heaps: &Heaps<'_>, layout: &TypeLayout) -> RefusedClaims {
        let mut types = Types::new(*heaps, layout);
        let mut has_claimed = |block: &Block| {
            let head = &mut [0; HEAD];
            let head = head_of(heaps, block, head);
            let Some((number, true)) = types.object_in(head, block.size) else { return false };
            let outer = layout.outer_hook(head);
            let (start, size) = (block.address + outer as u64, block.size.saturating_sub(outer as u64));
            let claims = &types.kinds[number as usize].claims;
            let of = |claim| claimed_pointer(heaps.space, claim, start, size, &head[outer..]);
            let mut pointers = claims.iter().filter_map(of);
            pointers.any(|pointer| pointer.wrapping_sub(start) >= size && heaps.block_at(pointer).is_some())
        };
        let claimants = marks.contested().into_iter().filter(&mut has_claimed).map(|block| block.address);
        RefusedClaims { free: marks.claimed_but_free(), claimants: claimants.collect(), passes: 0 }
    }

    #[inline(always)]
    fn holds(&self, address: u64) -> bool {
        !self.claimants.is_empty() && self.claimants.contains(&address)
    }
}

/// Classify each used block once: it is an object, a buffer that an object claims, or unknown. Claims that `refused`
/// contains are not made.
fn classify<'a>(
    watcher: &dyn Watcher,
    heaps: Heaps<'a>,
    refused: &RefusedClaims,
    watched: &ByAddress<()>,
    layout: &TypeLayout,
    question: &CensusRequest,
) -> Result<(Marks<'a>, CensusSums)> {
    let marks = Marks::new(heaps).ok_or(Error::Memory("not enough memory for a bit for each block"))?;
    refused.free.iter().for_each(|place| _ = marks.claim(*place));
    let Jobs { jobs, total } = heaps.jobs();
    let init = || (Walk::new(heaps), Worker::new(heaps, &marks, watched, refused, layout));
    let work = |(walk, worker): &mut (Walk<'_>, Worker<'_>), job: &_, control: &Control| {
        let done = walk.run(job, control, worker);
        worker.settle_claims();
        done
    };
    let workers = heaps.space.task(watcher, Some(total)).run(&jobs, init, work)?;
    let workers = workers.into_iter().map(|(_, worker)| worker).collect();
    let sums = CensusSums::new(workers, Tallies::new(&heaps), &question.roots);
    Ok((marks, sums))
}

/// A type, as its address and its `tp_flags`. Its index in `types` is the same for all workers.
struct SharedKind {
    address: u64,
    flags: u64,
}

/// The sums over the results of all workers.
struct CensusSums {
    types: Vec<SharedKind>,
    rows: Vec<TypeCounts>,
    numbers: HashMap<u64, u32>,
    tallies: Tallies,
    owners: Vec<(u64, u64, u64, u32)>,
    roots: Vec<Tally>,
    links: Vec<Link>,
    /// The addresses of blocks that contain syntax trees.
    syntax: Vec<u64>,
    idle_slabs: Tally,
    /// The time that it took to find the owners of buffers: the mean of all workers.
    settling: Duration,
}

impl CensusSums {
    fn new(workers: Vec<Worker<'_>>, tallies: Tallies, roots: &[u32]) -> CensusSums {
        let count = roots.iter().map(|number| *number as usize + 1).max().unwrap_or(1);
        let mut sums = CensusSums {
            types: Vec::new(),
            rows: Vec::new(),
            numbers: HashMap::new(),
            tallies,
            owners: Vec::new(),
            roots: vec![Tally::default(); count],
            links: Vec::new(),
            syntax: Vec::new(),
            idle_slabs: Tally::default(),
            settling: Duration::ZERO,
        };
        sums.settling = workers.iter().map(|worker| worker.settling).sum::<Duration>() / workers.len().max(1) as u32;
        workers.into_iter().for_each(|worker| sums.absorb(worker));
        sums.links.sort_unstable_by_key(|link| link.at);
        sums
    }

    fn absorb(&mut self, mut worker: Worker<'_>) {
        worker.rows.resize(worker.types.kinds.len(), TypeCounts::default());
        let numbers: Vec<u32> =
            worker.types.kinds.iter().map(|kind| self.number_of(kind.address, kind.flags)).collect();
        for (number, row) in numbers.iter().zip(&worker.rows) {
            self.rows[*number as usize].absorb(row);
        }
        self.tallies.absorb(&worker.tallies);
        self.owners.append(&mut worker.owners);
        self.syntax.append(&mut worker.syntax);
        self.idle_slabs = self.idle_slabs.with(&worker.idle_slabs);
        let renumbered = |link: &Link| Link { owner: numbers[link.owner as usize], ..*link };
        self.links.extend(worker.links.iter().map(renumbered));
    }

    /// Return the number of the type at this address. A new type gets the next number, and `flags` are its `tp_flags`.
    fn number_of(&mut self, address: u64, flags: u64) -> u32 {
        *self.numbers.entry(address).or_insert_with(|| {
            self.rows.push(TypeCounts::default());
            self.types.push(SharedKind { address, flags });
            self.types.len() as u32 - 1
        })
    }

    /// Claim the blocks of all chains of buffers, such as those of a deque. Count each for the type of its owner.
    fn follow(
        &mut self,
        watcher: &dyn Watcher,
        heaps: &Heaps<'_>,
        marks: &Marks<'_>,
        watched: &ByAddress<()>,
    ) -> Result<()> {
        let may_claim = |link: &Link| heaps.block_at(link.holder).is_some_and(|block| !marks.is_claimed(block.place));
        let mut links = std::mem::take(&mut self.links);
        links.retain(|link| link.follow != NOTHING || may_claim(link));
        for reached in follow_links(watcher, heaps, marks, &links)? {
            let (block, Link { owner, holder, role, .. }) = (reached.block, reached.link);
            self.rows[owner as usize].buffers[usize::from(role)].add(block.size);
            self.tallies.of(block.place).claimed.add(block.size);
            if watched.contains_key(&block.address) {
                self.owners.push((block.address, holder, self.types[owner as usize].address, u32::from(role)));
            }
        }
        Ok(())
    }

    /// Assign the blocks of C code to the objects and roots that own them in the graph.
    #[allow(clippy::too_many_arguments)]
    fn share_out(
        &mut self,
        watcher: &dyn Watcher,
        heaps: &Heaps<'_>,
        graph: &dyn Owners,
        marks: &Marks<'_>,
        watched: &ByAddress<()>,
        question: &CensusRequest,
        layout: &TypeLayout,
    ) -> Result<()> {
        self.give_syntax(heaps, marks, watched);
        let (role, known) = (layout.reached_role, self.owners.len());
        graph.each_owner(watcher, &mut |block, owner| {
            // The graph also contains memory that objects mapped, which is in none of these heaps.
            let is_here = (block.place.store as usize) < heaps.stores.len();
            if !is_here || !marks.is_unknown(block.place) || !marks.claim(block.place) {
                return;
            }
            let (holder, type_address, role) = match owner {
                Owner::Object { address, type_address } => {
                    let number = self.number_of(type_address, 0);
                    self.rows[number as usize].buffers[usize::from(role)].add(block.size);
                    (address, type_address, u32::from(role))
                }
                Owner::Root(place) => self.give_to_root(question.roots.get(place as usize).copied(), block.size),
            };
            self.tallies.of(block.place).claimed.add(block.size);
            if watched.contains_key(&block.address) {
                self.owners.push((block.address, holder, type_address, role));
            }
        })?;
        // An object may begin after the first byte of its block.
        let place = |holder: u64| (holder, heaps.block_at(holder).map_or(0, |block| block.size), holder);
        let blocks: Vec<_> = self.owners[known..].iter().map(|row| place(row.1)).collect();
        for (row, object) in self.owners[known..].iter_mut().zip(objects_in(*heaps, layout, &blocks)) {
            row.1 = object.map_or(row.1, |(address, _, _)| address);
        }
        Ok(())
    }

    /// Assign to the interpreter all blocks that contain syntax trees, and all slabs without a living int or float.
    /// Objects may point to these blocks, but do not own them.
    fn give_syntax(&mut self, heaps: &Heaps<'_>, marks: &Marks<'_>, watched: &ByAddress<()>) {
        for address in std::mem::take(&mut self.syntax) {
            let is_free = |block: &Block| marks.is_unknown(block.place) && marks.claim(block.place);
            let Some(block) = heaps.block_at(address).filter(is_free) else { continue };
            let (_, kind, role) = self.give_to_root(Some(0), block.size);
            self.tallies.of(block.place).claimed.add(block.size);
            if watched.contains_key(&address) {
                self.owners.push((address, address, kind, role));
            }
        }
    }

    fn give_to_root(&mut self, number: Option<u32>, size: u64) -> (u64, u64, u32) {
        let number = number.unwrap_or(0);
        self.roots[number as usize].add(size);
        (0, 0, number)
    }
}

fn row((kind, counted): (&SharedKind, &TypeCounts)) -> TypeRow {
    let owned = counted.buffers.iter().zip(0..).filter(|(tally, _)| tally.count > 0);
    let owned = owned.map(|(buffers, role)| OwnedBuffers { role, buffers: *buffers }).collect();
    TypeRow { kind: kind.address, flags: kind.flags, live: counted.live, idle: counted.idle, owned }
}

/// Return the first bytes of a block, as many as a census reads.
fn head_of<'a>(heaps: &Heaps<'_>, block: &Block, head: &'a mut [u8; HEAD]) -> &'a [u8] {
    let got = heaps.space.fill(block.address, &mut head[..HEAD.min(block.size as usize)]);
    &head[..got]
}

/// Correct the sums for blocks that look like objects but are buffers: these blocks no longer count as objects.
fn settle_contested(heaps: &Heaps<'_>, contested: &[Block], layout: &TypeLayout, sums: &mut CensusSums) {
    let mut types = Types::new(*heaps, layout);
    for block in contested {
        sums.tallies.of(block.place).objects.take(block.size);
        let head = &mut [0; HEAD];
        let Some((number, alive)) = types.object_in(head_of(heaps, block, head), block.size) else { continue };
        let Some(number) = sums.numbers.get(&types.kinds[number as usize].address) else { continue };
        let row = &mut sums.rows[*number as usize];
        let tally = if alive { &mut row.live } else { &mut row.idle };
        tally.take(block.size);
    }
}

/// Return the object in each block `(user address, size, address inside it)`, as `(object address, type address,
/// alive)`, or None. In a block with many objects, return the object at the address inside, or else the first living
/// object.
pub fn objects_in(heaps: Heaps<'_>, layout: &TypeLayout, blocks: &[(u64, u64, u64)]) -> Vec<Option<(u64, u64, bool)>> {
    let mut types = Types::new(heaps, layout);
    let mut window = Window::new(heaps.space, u64::MAX);
    let look = |(address, size, inside): &(u64, u64, u64)| {
        if let (Some(slab), Some(filled)) = (&layout.slab, types.slab_at(*address, *size)) {
            let (object, alive) = filled.object(slab, *inside);
            return Some((object, types.kinds[filled.number as usize].address, alive));
        }
        let head = window.available(*address, HEAD.min(*size as usize));
        let (number, alive) = types.object_in(head, *size)?;
        let kind = &types.kinds[number as usize];
        let before = layout.outer_hook(head) as u64 + kind.pre;
        Some((address.wrapping_add(before), kind.address, alive))
    };
    blocks.iter().map(look).collect()
}
