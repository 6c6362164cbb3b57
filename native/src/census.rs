//! Every used block gets its owner: an object of a type, a buffer that an object owns, a free-list entry, or unknown.
//!
//! One pass reads the pools' bytes and the heads of glibc's chunks, decides each block, and claims the buffers that
//! its object points to. A block is claimed once, by whoever comes first; a claimed block is a buffer, whatever it
//! looks like. What is left after it is claimed by whoever leads to it (reach.rs). The count of a block, in this order:
//! free; claimed; live object; object on a free list; unclassified.

use crate::chunks::{Chunks, State, Tally, HEAD_BYTES};
use crate::heaps::{Heaps, Place, CHUNK_HEADER, IN_CHUNK, IN_MAPPED, IN_POOL};
use crate::pools::{is_set, FreeBits, Pool, Pools, HEADER, MOST_BLOCKS};
use crate::reach::{Lead, Owner, Reach};
use crate::space::Space;
use crate::types::{Kind, PlacedClaim, TypeLayout, Types, ALL, CLAIM, NOTHING};
use crate::window::Window;
use crate::work::{self, Cancelled, Control};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use std::collections::HashMap;

/// So much of a chunk is looked at.
const HEAD: usize = HEAD_BYTES;
const SLICE: u64 = 64 << 20;
const ARENAS_IN_JOB: usize = 8;

#[derive(Clone, Copy, Default)]
struct Row {
    live: Tally,
    idle: Tally,
    buffers: Tally,
    /// Of the buffers, those that were reached by following pointers.
    reached: Tally,
}

impl Row {
    fn absorb(&mut self, other: &Row) {
        for (mine, theirs) in
            [(&mut self.live, other.live), (&mut self.idle, other.idle), (&mut self.buffers, other.buffers)]
        {
            mine.count += theirs.count;
            mine.bytes += theirs.bytes;
        }
    }
}

/// One worker's part of the census.
struct Worker<'a> {
    heaps: &'a Heaps<'a>,
    types: Types<'a>,
    rows: Vec<Row>,
    tallies: Domains,
    owners: Vec<(u64, u64, u64, u32)>,
    bytes: Vec<u8>,
    wanted: Vec<Wanted>,
    found: Vec<Option<(Place, u64, u64)>>,
    /// Objects that may hold pointers to structures of C: (block, number of the type).
    open: Vec<(u64, u32)>,
    /// Buffers that may.
    followed: Vec<Lead>,
}

/// By domain (pools, chunks, mmapped chunks): used blocks, those that look like objects, those that are claimed.
#[derive(Clone, Copy, Default)]
struct Domains {
    used: [Tally; 3],
    objects: [Tally; 3],
    claimed: [Tally; 3],
}

impl Domains {
    fn absorb(&mut self, other: &Domains) {
        let mine = self.used.iter_mut().chain(&mut self.objects).chain(&mut self.claimed);
        let theirs = other.used.iter().chain(&other.objects).chain(&other.claimed);
        for (mine, theirs) in mine.zip(theirs) {
            mine.count += theirs.count;
            mine.bytes += theirs.bytes;
        }
    }

    /// Used blocks less those that are objects or claimed.
    fn unclassified(&self) -> [Tally; 3] {
        let mut rest = self.used;
        for (domain, left) in rest.iter_mut().enumerate() {
            for part in [self.objects[domain], self.claimed[domain]] {
                left.count = left.count.saturating_sub(part.count);
                left.bytes = left.bytes.saturating_sub(part.bytes);
            }
        }
        rest
    }
}

enum Job {
    Arenas(usize, usize),
    Chunks(usize, u64, u64),
    Mapped,
}

impl<'a> Worker<'a> {
    fn new(heaps: &'a Heaps<'a>, layout: &'a TypeLayout) -> Worker<'a> {
        let types = Types::new(heaps.space, heaps.chunks, layout);
        Worker {
            heaps,
            types,
            rows: Vec::new(),
            tallies: Domains::default(),
            owners: Vec::new(),
            bytes: Vec::new(),
            wanted: Vec::new(),
            found: Vec::new(),
            open: Vec::new(),
            followed: Vec::new(),
        }
    }

    fn do_job(&mut self, job: &Job, control: &Control) -> Result<(), Cancelled> {
        let done = match job {
            Job::Arenas(from, to) => (*from..*to).try_for_each(|arena| self.take_arena(arena, control)),
            Job::Chunks(region, from, to) => self.take_chunks(*region, *from, *to, control),
            Job::Mapped => self.take_mapped(control),
        };
        self.settle_claims();
        done
    }

    fn take_arena(&mut self, index: usize, control: &Control) -> Result<(), Cancelled> {
        let Some(pools) = self.heaps.pools else { return Ok(()) };
        let arena = &pools.arenas[index];
        let mut bytes = std::mem::take(&mut self.bytes);
        let in_window = ((256 << 10) / pools.pool_size).max(1) as usize;
        bytes.resize(in_window * pools.pool_size as usize, 0);
        for (batch, group) in pools.pools_of(arena).chunks(in_window).enumerate() {
            let window = &mut bytes[..group.len() * pools.pool_size as usize];
            let got = self.heaps.space.fill(group[0].address, window);
            window[got..].fill(0);
            for (place, pool) in group.iter().enumerate().filter(|(_, pool)| !pool.is_free()) {
                let start = place * pools.pool_size as usize;
                let ordinal = arena.first_pool + batch * in_window + place;
                self.take_pool(pools, ordinal, pool, &window[start..start + pools.pool_size as usize]);
            }
            control.advance(got as u64)?;
        }
        self.bytes = bytes;
        Ok(())
    }

    fn take_pool(&mut self, pools: &Pools, ordinal: usize, pool: &Pool, bytes: &[u8]) {
        let (size, carved) = (pool.block_size(pools.alignment), pool.carved(pools.alignment));
        let mut free = [0; MOST_BLOCKS / 64];
        if pool.used < carved {
            pools.free_blocks(pool, bytes, &mut free);
        }
        let mut objects: FreeBits = [0; MOST_BLOCKS / 64];
        let mut others: FreeBits = [0; MOST_BLOCKS / 64];
        for number in 0..carved {
            if is_set(&free, number) {
                continue;
            }
            let start = (HEADER + u64::from(number) * size) as usize;
            let Some(block) = bytes.get(start..start + size as usize) else { break };
            let is_object = self.take_block(pool.address + start as u64, size, block);
            let bits = if is_object { &mut objects } else { &mut others };
            bits[(number / 64) as usize] |= 1 << (number % 64);
        }
        let ones = |bits: &FreeBits| bits.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        self.tallies.used[IN_POOL].add_many(u64::from(carved).saturating_sub(ones(&free)), size);
        self.tallies.objects[IN_POOL].add_many(ones(&objects), size);
        let (first, words) = (pools.block_number(ordinal, 0), (pools.pool_size / pools.alignment / 64) as usize);
        self.heaps.pool_objects.put(first, &objects[..words]);
        self.heaps.pool_others.put(first, &others[..words]);
    }

    fn take_chunks(&mut self, region: usize, from: u64, to: u64, control: &Control) -> Result<(), Cancelled> {
        let Some(chunks) = self.heaps.chunks else { return Ok(()) };
        let region_of = &chunks.regions[region];
        let mut window = Window::new(self.heaps.space, region_of.stretch.end);
        let mut reported = from;
        let heads = region_of.heads(from, to);
        let kept = heads.is_some();
        for (start, end, _) in region_of.blocks(from, to).filter(|(_, _, state)| *state == State::Used) {
            if start - reported >= 1 << 20 {
                control.advance(start - reported)?;
                reported = start;
            }
            self.tallies.used[IN_CHUNK].add(end - start);
            if !kept {
                // A chunk's last eight bytes are the next one's prev_size.
                let usable = (end - start - 8) as usize;
                let head = window.available(start + CHUNK_HEADER, usable.min(HEAD));
                self.take_chunk(region, start, end - start, head);
            }
        }
        for head in heads.into_iter().flatten() {
            let Some((start, end, _)) = region_of.find(head.chunk) else { continue };
            self.take_chunk(region, start, end - start, &head.bytes[..head.size as usize]);
        }
        control.advance(to.saturating_sub(reported))
    }

    fn take_chunk(&mut self, region: usize, start: u64, size: u64, head: &[u8]) {
        let Some(chunks) = self.heaps.chunks else { return };
        let number = (start - chunks.regions[region].stretch.start) / 16;
        if self.take_slab(Place::Chunk(region, number), start + CHUNK_HEADER, size) {
            return;
        }
        if self.take_block(start + CHUNK_HEADER, size, head) {
            self.tallies.objects[IN_CHUNK].add(size);
            self.heaps.chunk_objects[region].claim(number);
        }
    }

    /// Counts the objects of a block that holds many; true if it is one. What no living object has counts as free.
    #[inline(always)]
    fn take_slab(&mut self, place: Place, address: u64, size: u64) -> bool {
        let Some(slab) = &self.types.layout.slab else { return false };
        let item = slab.item;
        let Some(filled) = self.types.slab_at(address, size) else { return false };
        if self.heaps.claim(place) {
            let row = self.row(filled.number as usize);
            row.live.add_many(filled.count(), item);
            row.idle.count += filled.places - filled.count();
            row.idle.bytes += size - filled.count() * item;
            self.tallies.claimed[place.domain()].add(size);
        }
        true
    }

    fn row(&mut self, number: usize) -> &mut Row {
        if self.rows.len() <= number {
            self.rows.resize(number + 1, Row::default());
        }
        &mut self.rows[number]
    }

    fn take_mapped(&mut self, control: &Control) -> Result<(), Cancelled> {
        for (index, (chunk, end)) in self.heaps.mapped.iter().enumerate() {
            let mut head = [0; HEAD];
            let size = end - chunk;
            let got = self.heaps.space.fill(chunk + CHUNK_HEADER, &mut head);
            self.tallies.used[IN_MAPPED].add(size);
            if self.take_block(chunk + CHUNK_HEADER, size, &head[..got]) {
                self.tallies.objects[IN_MAPPED].add(size);
                self.heaps.mapped_objects.claim(index as u64);
            }
            control.advance(0)?;
        }
        Ok(())
    }

    /// Decides one used block; true if it looks like an object.
    #[inline(always)]
    fn take_block(&mut self, address: u64, size: u64, head: &[u8]) -> bool {
        let Some((number, alive)) = self.types.object_in(head, size) else { return false };
        let number = number as usize;
        let row = self.row(number);
        if !alive {
            row.idle.add(size);
            return true;
        }
        row.live.add(size);
        let kind = &self.types.kinds[number];
        if kind.extent > OBJECT_HEAD {
            self.open.push((address, number as u32));
        }
        if !kind.claims.is_empty() {
            self.claim_unhooked(number, address, size, head);
        }
        true
    }

    /// The same without the debug hook that may stand before the object's own.
    #[inline(always)]
    fn claim_unhooked(&mut self, number: usize, address: u64, size: u64, head: &[u8]) {
        if self.types.layout.hook == 0 {
            return self.claim_buffers(number, address, size, head);
        }
        let outer = self.types.layout.outer_hook(head);
        self.claim_buffers(number, address + outer as u64, size.saturating_sub(outer as u64), &head[outer..]);
    }

    /// Notes what the object claims; whether it gets it is decided in `settle_claims`.
    #[inline(always)]
    fn claim_buffers(&mut self, number: usize, address: u64, size: u64, head: &[u8]) {
        let kind = &self.types.kinds[number];
        for claim in &kind.claims {
            let Some(pointer) = claimed_pointer(self.heaps.space, claim, address, size, head) else { continue };
            if claim.follow == CLAIM {
                let (holder, field) = (address + kind.pre, address + claim.at as u64);
                let owner = Owner::Type(number as u32);
                self.followed.push(Lead::from_block(field, field + 8, owner, holder, (NOTHING, claim.role)));
            } else if pointer.wrapping_sub(address) >= size {
                self.wanted.push(Wanted {
                    pointer,
                    owner: address + kind.pre,
                    number: number as u32,
                    role: claim.role,
                    follow: claim.follow,
                    last: if claim.last_at == usize::MAX { 0 } else { crate::u64_at(head, claim.last_at) },
                });
            }
        }
        if self.wanted.len() >= CLAIMS_AT_ONCE {
            self.settle_claims();
        }
    }

    /// Two short loops over many claims rather than one long chain for each: every claim waits for memory twice, and
    /// so the waits of many overlap.
    #[inline(never)]
    fn settle_claims(&mut self) {
        let heaps = self.heaps;
        self.found.clear();
        self.found.extend(self.wanted.iter().map(|wanted| heaps.block_at(wanted.pointer)));
        for (wanted, found) in self.wanted.iter().zip(&self.found) {
            let Some((place, block, size)) = *found else { continue };
            if !heaps.claim(place) {
                continue;
            }
            self.rows[wanted.number as usize].buffers.add(size);
            if wanted.follow != NOTHING && wanted.last != block {
                let (owner, end) = (Owner::Type(wanted.number), place.end(block, size));
                let role = if wanted.follow == ALL { self.types.layout.reached_role } else { wanted.role };
                let lead = Lead::from_block(block, end, owner, wanted.owner, (wanted.follow, role));
                self.followed.push(Lead { last: wanted.last, ..lead });
            }
            self.tallies.claimed[place.domain()].add(size);
            if !heaps.watched.is_empty() && heaps.watched.contains_key(&block) {
                let owner_type = self.types.kinds[wanted.number as usize].address;
                self.owners.push((block, wanted.owner, owner_type, u32::from(wanted.role)));
            }
        }
        self.wanted.clear();
    }
}

/// A buffer that an object points to, before it is known whether it is one.
struct Wanted {
    pointer: u64,
    owner: u64,
    number: u32,
    role: u8,
    follow: i32,
    last: u64,
}

/// ob_refcnt and ob_type.
const OBJECT_HEAD: u64 = 16;
const CLAIMS_AT_ONCE: usize = 512;

/// The pointer that a claim's field holds, if the field lies in the block and its condition holds.
#[inline(always)]
pub fn claimed_pointer(space: &Space, claim: &PlacedClaim, address: u64, size: u64, head: &[u8]) -> Option<u64> {
    if claim.mask != 0 && (crate::u32_at(head, claim.test_at) & claim.mask == claim.value) != claim.equal {
        return None;
    }
    let pointer = match head.get(claim.at..claim.at + 8) {
        Some(bytes) => crate::u64_at(bytes, 0),
        // Only types have such fields further in than what is looked at of each chunk.
        None if claim.at as u64 + 8 <= size => space.word(address + claim.at as u64).ok()?,
        None => return None,
    };
    Some(pointer).filter(|pointer| *pointer >= 4096)
}

type Four = (u64, u64, u64, u64);
/// `(type address, tp_flags, own, owned)`; own: live count and bytes, idle count and bytes; owned: buffers and their
/// bytes, and of these the ones that were reached by following pointers.
type FlatRow = (u64, u64, Four, Four);

/// The answer of a census; sizes in bytes.
#[pyclass(frozen, get_all)]
pub struct Census {
    /// One for each type that has objects.
    rows: Vec<FlatRow>,
    /// Used blocks `(count, bytes)` in pools, chunks and mmapped chunks.
    used: Vec<(u64, u64)>,
    /// Used blocks that are neither objects nor claimed, the same three.
    unclassified: Vec<(u64, u64)>,
    /// Of the watched blocks: `(block, owner's address, owner's type, role)`; for a block that a root leads to the
    /// type is 0, the role is the root's number, and the address is that of a word in the root.
    owners: Vec<(u64, u64, u64, u32)>,
    /// `(count, bytes)` of the blocks that each root leads to.
    roots: Vec<(u64, u64)>,
    /// The largest blocks of which nothing is known, largest first: `(user address, size)`.
    unknown: Vec<(u64, u64)>,
    /// Buffers that look like objects, by user address.
    contested: Vec<u64>,
}

fn jobs_for(heaps: &Heaps<'_>) -> (Vec<Job>, u64) {
    let mut jobs = Vec::new();
    let mut total = 0;
    let arenas = heaps.pools.map_or(0, |pools| pools.arenas.len());
    if let Some(pools) = heaps.pools {
        total += pools.arenas.iter().map(|arena| arena.carved.saturating_sub(arena.address)).sum::<u64>();
    }
    jobs.extend((0..arenas).step_by(ARENAS_IN_JOB).map(|from| Job::Arenas(from, (from + ARENAS_IN_JOB).min(arenas))));
    for (index, region) in heaps.chunks.iter().flat_map(|chunks| chunks.regions.iter().enumerate()) {
        let (start, end) = (region.stretch.start, region.stretch.end);
        total += end - start;
        jobs.extend((start..end).step_by(SLICE as usize).map(|from| Job::Chunks(index, from, (from + SLICE).min(end))));
    }
    jobs.push(Job::Mapped);
    (jobs, total)
}

/// What a census is told beside the heaps: `roots`, ranges of memory outside of them that hold pointers into them,
/// `(number, start, end)`, those of the interpreter with number 0; `last`, the number of those that are followed when all
/// others have been: a stack holds many pointers that are left over; `watched`, blocks whose owner is wanted, by user
/// address; `unknown`, how many of the blocks that nobody leads to are listed.
#[derive(FromPyObject)]
pub struct Question {
    roots: Vec<(u32, u64, u64)>,
    last: u32,
    watched: Vec<u64>,
    unknown: usize,
}

/// Classifies every used block. `mapped`: mmapped chunks `(chunk, end)`. Raises KeyboardInterrupt and whatever
/// `progress(done, total)` raises.
#[pyfunction]
#[pyo3(signature = (space, chunks, pools, mapped, layout, question, progress=None))]
#[allow(clippy::too_many_arguments)]
pub fn take_census(
    py: Python<'_>,
    space: &Space,
    chunks: Option<&Chunks>,
    pools: Option<&Pools>,
    mapped: Vec<(u64, u64)>,
    layout: TypeLayout,
    question: Question,
    progress: Option<Py<PyAny>>,
) -> PyResult<Census> {
    let heaps = Heaps::new(space, chunks, pools, mapped, question.watched.clone())
        .ok_or_else(|| PyMemoryError::new_err("not enough memory for a bit for each block"))?;
    let (jobs, total) = jobs_for(&heaps);
    let init = || Worker::new(&heaps, &layout);
    let workers =
        work::run(py, space, progress, total, &jobs, init, |worker, job, control| worker.do_job(job, control))?;
    let mut sums = Sums::new(workers, &question.roots);
    sums.follow(&heaps, &question);
    let contested = heaps.contested();
    settle_contested(&heaps, &contested, &layout, &mut sums);
    let contested = contested.into_iter().map(|(_, address, _)| address).collect();
    let unclassified = sums.tallies.unclassified();
    let pair = |tally: &Tally| (tally.count, tally.bytes);
    Ok(Census {
        rows: sums.types.iter().zip(&sums.rows).map(flat).collect(),
        used: sums.tallies.used.iter().map(pair).collect(),
        unclassified: unclassified.iter().map(pair).collect(),
        owners: sums.owners,
        roots: sums.roots.iter().map(pair).collect(),
        unknown: match unclassified.iter().any(|rest| rest.count > 0) && question.unknown > 0 {
            true => heaps.largest_unknown(question.unknown),
            false => Vec::new(),
        },
        contested,
    })
}

/// A type as all workers know it.
struct SharedKind {
    address: u64,
    flags: u64,
    pre: u64,
    extent: u64,
}

/// What the workers found, added up.
struct Sums {
    types: Vec<SharedKind>,
    rows: Vec<Row>,
    numbers: HashMap<u64, u32>,
    tallies: Domains,
    owners: Vec<(u64, u64, u64, u32)>,
    roots: Vec<Tally>,
    /// Of objects, and of buffers that objects claimed.
    objects: Vec<Lead>,
    buffers: Vec<Lead>,
}

impl Sums {
    fn new(workers: Vec<Worker<'_>>, roots: &[(u32, u64, u64)]) -> Sums {
        let count = roots.iter().map(|(number, _, _)| *number as usize + 1).max().unwrap_or(0);
        let mut sums = Sums {
            types: Vec::new(),
            rows: Vec::new(),
            numbers: HashMap::new(),
            tallies: Domains::default(),
            owners: Vec::new(),
            roots: vec![Tally::default(); count],
            objects: Vec::new(),
            buffers: Vec::new(),
        };
        workers.into_iter().for_each(|worker| sums.absorb(worker));
        sums.objects.sort_unstable_by_key(|lead| lead.start);
        sums.buffers.sort_unstable_by_key(|lead| lead.start);
        sums
    }

    fn absorb(&mut self, mut worker: Worker<'_>) {
        worker.rows.resize(worker.types.kinds.len(), Row::default());
        let numbers: Vec<u32> = worker.types.kinds.iter().map(|kind| self.number_of(kind)).collect();
        for (number, row) in numbers.iter().zip(&worker.rows) {
            self.rows[*number as usize].absorb(row);
        }
        self.tallies.absorb(&worker.tallies);
        self.owners.append(&mut worker.owners);
        let (types, reached_role) = (&self.types, worker.types.layout.reached_role);
        let objects = worker.open.iter().map(|(block, number)| {
            let number = numbers[*number as usize];
            let (pre, extent) = (types[number as usize].pre, types[number as usize].extent);
            let holder = block + pre;
            Lead::from_block(holder + OBJECT_HEAD, holder + extent, Owner::Type(number), holder, (ALL, reached_role))
        });
        self.objects.extend(objects);
        self.buffers.extend(worker.followed.iter().map(|lead| lead.renumbered(&numbers)));
    }

    fn number_of(&mut self, kind: &Kind) -> u32 {
        *self.numbers.entry(kind.address).or_insert_with(|| {
            self.rows.push(Row::default());
            let Kind { address, flags, pre, extent, .. } = *kind;
            self.types.push(SharedKind { address, flags, pre, extent });
            self.types.len() as u32 - 1
        })
    }

    /// Follows pointers from the interpreter's data, from objects and from other roots, in this order.
    fn follow(&mut self, heaps: &Heaps<'_>, question: &Question) {
        let roots = &question.roots;
        let is_claimed = |lead: &Lead| heaps.block_at(lead.start).is_some_and(|(place, ..)| heaps.is_claimed(place));
        let objects = std::mem::take(&mut self.objects).into_iter().filter(|lead| !is_claimed(lead));
        let (chains, states): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.buffers).into_iter().partition(|lead| lead.follow != ALL);
        let lead =
            |(number, start, end): &(u32, u64, u64)| Lead::from_block(*start, *end, Owner::Root(*number), 0, (ALL, 0));
        let of =
            |wanted: &dyn Fn(u32) -> bool| roots.iter().filter(|root| wanted(root.0)).map(lead).collect::<Vec<_>>();
        let (interpreter, others) = (of(&|root| root == 0), of(&|root| root != 0 && root != question.last));
        let mut reach = Reach::new(heaps);
        reach.run(chains);
        reach.run(interpreter.into_iter().chain(objects).chain(states).chain(others).collect());
        reach.run(of(&|root| root == question.last));
        for reached in &reach.reached {
            let (type_address, role) = match reached.owner {
                Owner::Type(number) => (self.types[number as usize].address, u32::from(reached.role)),
                Owner::Root(number) => (0, number),
            };
            match reached.owner {
                Owner::Type(number) => {
                    self.rows[number as usize].buffers.add(reached.size);
                    // A chain is as known as the field that leads to it.
                    if !reached.is_linked() {
                        self.rows[number as usize].reached.add(reached.size);
                    }
                }
                Owner::Root(number) => self.roots[number as usize].add(reached.size),
            }
            self.tallies.claimed[reached.place.domain()].add(reached.size);
            if heaps.watched.contains_key(&reached.address) {
                self.owners.push((reached.address, reached.holder, type_address, role));
            }
        }
    }
}

fn flat((kind, row): (&SharedKind, &Row)) -> FlatRow {
    let Row { live, idle, buffers, reached } = row;
    let own = (live.count, live.bytes, idle.count, idle.bytes);
    (kind.address, kind.flags, own, (buffers.count, buffers.bytes, reached.count, reached.bytes))
}

/// What looked like an object but is a buffer stops being one.
fn settle_contested(heaps: &Heaps<'_>, contested: &[(usize, u64, u64)], layout: &TypeLayout, sums: &mut Sums) {
    let mut types = Types::new(heaps.space, heaps.chunks, layout);
    for &(domain, address, size) in contested {
        sums.tallies.objects[domain].take(size);
        let mut head = [0; HEAD];
        let got = heaps.space.fill(address, &mut head[..HEAD.min(size as usize)]);
        let Some((number, alive)) = types.object_in(&head[..got], size) else { continue };
        let Some(number) = sums.numbers.get(&types.kinds[number as usize].address) else { continue };
        let row = &mut sums.rows[*number as usize];
        let tally = if alive { &mut row.live } else { &mut row.idle };
        tally.take(size);
    }
}

/// The object in each block `(user address, size, address inside it)`: `(object address, type address, alive)` or None.
/// Of a block that holds many the one at that address, else the first.
#[pyfunction]
pub fn objects_in(
    space: &Space,
    chunks: Option<&Chunks>,
    layout: TypeLayout,
    blocks: Vec<(u64, u64, u64)>,
) -> Vec<Option<(u64, u64, bool)>> {
    let mut types = Types::new(space, chunks, &layout);
    let look = |(address, size, inside): &(u64, u64, u64)| {
        if let (Some(slab), Some(filled)) = (&layout.slab, types.slab_at(*address, *size)) {
            let (object, alive) = filled.object(slab, *address, *inside);
            return Some((object, types.kinds[filled.number as usize].address, alive));
        }
        let mut head = vec![0; HEAD.min(*size as usize)];
        let got = space.fill(*address, &mut head);
        let (number, alive) = types.object_in(&head[..got], *size)?;
        let kind = &types.kinds[number as usize];
        let before = layout.outer_hook(&head[..got]) as u64 + kind.pre;
        Some((address.wrapping_add(before), kind.address, alive))
    };
    blocks.iter().map(look).collect()
}

/// Reads every byte of the ranges once, on all cores, in windows of `window` bytes: the limit to compare with.
#[pyfunction]
#[pyo3(signature = (space, ranges, window=256 << 10))]
pub fn read_once(py: Python<'_>, space: &Space, ranges: Vec<(u64, u64)>, window: u64) -> PyResult<u64> {
    let window = window.max(4096);
    let jobs: Vec<(u64, u64)> = ranges
        .iter()
        .flat_map(|(start, end)| (*start..*end).step_by(8 << 20).map(|from| (from, (from + (8 << 20)).min(*end))))
        .collect();
    let total = ranges.iter().map(|(start, end)| end - start).sum();
    let work = |state: &mut (Vec<u8>, u64), job: &(u64, u64), control: &Control| {
        state.0.resize(window as usize, 0);
        for from in (job.0..job.1).step_by(window as usize) {
            let size = (job.1 - from).min(window) as usize;
            state.1 += space.fill(from, &mut state.0[..size]) as u64;
            control.advance(size as u64)?;
        }
        Ok(())
    };
    let states = work::run(py, space, None, total, &jobs, || (Vec::new(), 0), work)?;
    Ok(states.iter().map(|state| state.1).sum())
}
