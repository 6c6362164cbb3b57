//! Find the blocks in use after given calls, grouped by the stacks that allocated them.
//!
//! The memory needed is proportional to the number of blocks in use that have a stack, and to the number of different
//! stacks.

use super::frames::Stages;
use super::memory_limit::{AddressTable, Claim, LimitedTable, Room};
use crate::by_address::{Addresses, ByAddress};
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use gdbheap_calls::part::{flag, Content};
use gdbheap_calls::{Event, EventReader, StageError};
use std::collections::{BTreeMap, HashMap};

/// A placeholder for an unknown number: for an address outside all loaded objects, or for a code object that is not in
/// the log.
const NOBODY: u64 = u32::MAX as u64;
/// The largest number of frames of a stack: twice as many as are recorded. Without a limit, a short event that repeats
/// the frames of the previous stack could take much time and memory.
const MAX_FRAMES: u64 = 1024;
/// The memory in bytes that is claimed for each stack. It covers the stack here, and its copy in the answer.
const STACK: u64 = 2 << 10;
/// The memory in bytes that is claimed for each frame, code object or loaded object. A frame that several stacks share
/// is claimed once.
const NAMED: u64 = 1 << 10;
/// The memory in bytes that is claimed for each byte of a name, a path or a line table.
const TEXT: u64 = 8;

/// A loaded object: the program or a library.
///
/// - `start`, `end`: its address range.
/// - `bias`: the difference between its addresses in memory and those at which it was linked.
/// - `build_id`: its build-id; empty if it has none.
/// - `path`: its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedObject {
    pub start: u64,
    pub end: u64,
    pub bias: u64,
    pub build_id: Vec<u8>,
    pub path: Vec<u8>,
}

/// A Python code object.
///
/// - `release`: the release of Python (0x0309 is 3.9).
/// - `first_line`: the line number at which the code begins.
/// - `name`, `file`: a string each, as (number of bytes per character, characters).
/// - `lines`: the line table (`co_linetable` or `co_lnotab`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    pub release: u64,
    pub first_line: u64,
    pub name: (u64, Vec<u8>),
    pub file: (u64, Vec<u8>),
    pub lines: Vec<u8>,
}

/// A call stack, innermost frame first.
///
/// - `native`: the C frames, each as (number of the loaded object, address).
/// - `python`: the Python frames, in one group for each evaluator. Each frame is (number of the code object, offset in
///   bytes).
/// - `cut`: outer C frames are missing.
/// - `torn`: outer Python frames are missing.
/// - `is_python`: the thread runs Python.
///
/// A number is None if the log does not contain the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallStack {
    pub native: Vec<(Option<u32>, u64)>,
    pub python: Vec<Vec<(Option<u32>, i64)>>,
    pub cut: bool,
    pub torn: bool,
    pub is_python: bool,
}

/// The memory that one stack allocated, estimated from the sampled blocks with this stack.
///
/// - `stack`: the number of the stack.
/// - `bytes`, `blocks`: the memory in use.
/// - `allocated_bytes`, `allocated_blocks`: all memory that the stack ever allocated.
///
/// A sampled block stands for several blocks: for 1 / p of them, if a block of its size has a stack with probability p.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    pub stack: u32,
    pub bytes: f64,
    pub blocks: f64,
    pub allocated_bytes: f64,
    pub allocated_blocks: f64,
}

/// The state after a call. `call`: the number of the call. `shares`: the memory of each stack. `sampled_blocks`: the
/// number of blocks in use from which the shares are estimated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackMoment {
    pub call: u64,
    pub shares: Vec<Share>,
    pub sampled_blocks: u64,
}

/// The block in use at the end that contains the address `wanted`, and the number of the stack that allocated it. If
/// the log lacks calls that freed blocks, several blocks may contain the address. The smallest one is then used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maker {
    pub wanted: u64,
    pub address: u64,
    pub size: u64,
    pub stack: u32,
}

/// The number of a call for which a stack was requested, and the number of this stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub call: u64,
    pub stack: u32,
}

/// The stacks of a process, and the memory that each of them allocated. `without`: the number of allocating calls
/// without a stack.
#[derive(Clone, Debug, Default)]
pub struct LiveStacks {
    pub objects: Vec<LoadedObject>,
    pub codes: Vec<Code>,
    pub stacks: Vec<CallStack>,
    pub moments: Vec<StackMoment>,
    pub makers: Vec<Maker>,
    pub callers: Vec<Caller>,
    pub calls: u64,
    pub without: u64,
    pub whole: bool,
}

/// Return the blocks in use after each call in `moments`, grouped by stack.
///
/// - `rest`: stages that are not in the log yet.
/// - `mean`: the average number of bytes between two recorded stacks.
/// - `moments`: call numbers from 1, ascending. A number beyond the last call means the end.
/// - `wanted`: addresses. For each, the block that contains it at the end is returned.
/// - `asked`: the numbers of calls whose stacks are requested, ascending.
pub fn live_stacks(
    watcher: &dyn Watcher,
    stages: &Stages<'_>,
    rest: &[Vec<u8>],
    mean: u64,
    moments: &[u64],
    wanted: &[u64],
    asked: &[u64],
) -> Result<LiveStacks> {
    let mut following = StackFollower { mean, moments, asked, ..StackFollower::new(stages.room) };
    let mut failed = false;
    let mut visit = |event, content: &[u8]| failed |= following.take(event, content).is_err();
    let mut whole = stages.show_all(watcher, &mut visit)?;
    for stage in rest {
        let mut reader = EventReader::new(stage);
        while whole {
            match reader.next_event() {
                Ok(Some(event)) => visit(event, reader.content()),
                Ok(None) => break,
                Err(_) => whole = false,
            }
        }
        watcher.check()?;
        stages.room.check()?;
    }
    Ok(following.finish(whole && !failed, wanted))
}

#[derive(Clone, Copy)]
struct LiveBlock {
    size: u64,
    stack: u32,
}

/// The objects that are loaded now, without overlap: the end and the number of each, by its start.
#[derive(Default)]
struct LoadedNow(BTreeMap<u64, (u64, u32)>);

impl LoadedNow {
    /// Add an object. Objects that it overlaps are no longer loaded.
    fn add(&mut self, start: u64, end: u64, number: u32) {
        if start >= end {
            return;
        }
        while let Some((at, _)) = self.0.range(..end).next_back().filter(|(_, (end, _))| *end > start) {
            let at = *at;
            self.0.remove(&at);
        }
        self.0.insert(start, (end, number));
    }

    /// Return the number of the object that contains `address`; None if there is none.
    fn at(&self, address: u64) -> Option<u32> {
        let (_, (end, number)) = self.0.range(..=address).next_back()?;
        (address < *end).then_some(*number)
    }
}

struct StackFollower<'a> {
    /// The part of the memory limit that stacks, code objects and loaded objects take.
    claim: Claim<'a>,
    mean: u64,
    moments: &'a [u64],
    asked: &'a [u64],
    /// The number of the stack that the current call took; None if the call does not allocate or has no stack.
    taken: Option<u32>,
    found: LiveStacks,
    live: AddressTable<'a, LiveBlock>,
    shares: Vec<Share>,
    /// The number of the thread whose events follow.
    thread: u32,
    /// The state of the thread whose events follow.
    last: ThreadStacks,
    /// The states of the other threads.
    others: AddressTable<'a, ThreadStacks>,
    loaded: LoadedNow,
    /// The numbers of Python's code objects, by their current addresses.
    codes: ByAddress<u32>,
    known: HashMap<Vec<u64>, u32>,
    /// The frames of all known stacks, each as a number. Memory is claimed only for a frame that is not in the set yet.
    places: Addresses,
}

/// The last stack of a thread, and the stack of its next call.
#[derive(Default)]
struct ThreadStacks {
    /// The number of the stack that belongs to the thread's next allocating call.
    next: Option<u32>,
    /// The frames of the thread's last stack in this stage, outermost first.
    native: Vec<u64>,
    python: Vec<(u64, i64, bool)>,
}

impl<'a> StackFollower<'a> {
    fn new(room: &'a Room) -> StackFollower<'a> {
        StackFollower {
            claim: Claim::new(room),
            mean: 0,
            moments: &[],
            asked: &[],
            taken: None,
            found: LiveStacks::default(),
            live: LimitedTable::new(room),
            shares: Vec::new(),
            thread: 0,
            last: ThreadStacks::default(),
            others: LimitedTable::new(room),
            loaded: LoadedNow::default(),
            codes: ByAddress::default(),
            known: HashMap::new(),
            places: Addresses::default(),
        }
    }

    fn switch(&mut self, thread: u32) {
        if thread != self.thread {
            let last = self.others.remove(&thread.into()).unwrap_or_default();
            self.others.insert(self.thread.into(), std::mem::replace(&mut self.last, last));
            self.thread = thread;
        }
    }

    fn take(&mut self, event: Event, content: &[u8]) -> std::result::Result<(), StageError> {
        match event {
            Event::Malloc { size, result } | Event::Calloc { size, result } | Event::Memalign { size, result, .. } => {
                self.allocate(size, result);
                self.count();
            }
            Event::Free { address } => {
                self.free(address);
                self.count();
            }
            Event::Realloc { size, old, result } => {
                if result != 0 || size == 0 {
                    self.free(old);
                }
                self.allocate(size, result);
                self.count();
            }
            Event::Stack => self.last.next = Some(self.stack(content)?),
            Event::Code => self.code(content)?,
            Event::Loaded => self.loaded(content)?,
            Event::Switch { thread } | Event::Thread { thread, .. } => self.switch(thread),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self) {
        self.found.calls += 1;
        let taken = self.taken.take();
        if self.asked.first() == Some(&self.found.calls) {
            self.asked = &self.asked[1..];
            self.found.callers.extend(taken.map(|stack| Caller { call: self.found.calls, stack }));
        }
        if self.moments.first() == Some(&self.found.calls) {
            self.keep_moment();
        }
    }

    fn keep_moment(&mut self) {
        let shares = self.shares.iter().filter(|share| share.allocated_blocks > 0.0).copied().collect();
        self.found.moments.push(StackMoment { call: self.found.calls, shares, sampled_blocks: self.live.len() as u64 });
        self.moments = &self.moments[1..];
    }

    /// Return how many blocks of this size are represented by one block that has a stack.
    fn weight(&self, size: u64) -> f64 {
        match self.mean {
            0 | 1 => 1.0,
            mean => -1.0 / (-(size as f64) / mean as f64).exp_m1(),
        }
    }

    fn allocate(&mut self, size: u64, result: u64) {
        if result == 0 {
            return;
        }
        // The old block was freed by a call that is not in the log.
        self.free(result);
        let Some(stack) = self.last.next.take() else {
            self.found.without += 1;
            return;
        };
        self.taken = Some(stack);
        self.live.insert(result, LiveBlock { size, stack });
        let weight = self.weight(size);
        if let Some(share) = self.shares.get_mut(stack as usize) {
            share.bytes += weight * size as f64;
            share.blocks += weight;
            share.allocated_bytes += weight * size as f64;
            share.allocated_blocks += weight;
        }
    }

    fn free(&mut self, address: u64) {
        if self.live.is_empty() {
            return;
        }
        let Some(block) = self.live.remove(&address) else { return };
        let weight = self.weight(block.size);
        if let Some(share) = self.shares.get_mut(block.stack as usize) {
            share.bytes -= weight * block.size as f64;
            share.blocks -= weight;
        }
    }

    fn loaded(&mut self, content: &[u8]) -> std::result::Result<(), StageError> {
        self.claim_named(content)?;
        let mut content = Content(content);
        let (start, end, bias) = (content.number()?, content.number()?, content.number()?);
        let object =
            LoadedObject { start, end, bias, build_id: content.bytes()?.to_vec(), path: content.bytes()?.to_vec() };
        self.loaded.add(start, end, self.found.objects.len() as u32);
        self.found.objects.push(object);
        Ok(())
    }

    fn code(&mut self, content: &[u8]) -> std::result::Result<(), StageError> {
        self.claim_named(content)?;
        let mut content = Content(content);
        let (address, release, first_line) = (content.number()?, content.number()?, content.number()?);
        let mut text = || Ok((content.number()?, content.bytes()?.to_vec()));
        let (name, file) = (text()?, text()?);
        let code = Code { release, first_line, name, file, lines: content.bytes()?.to_vec() };
        self.codes.insert(address, self.found.codes.len() as u32);
        self.found.codes.push(code);
        Ok(())
    }

    /// Claim memory for a code object or a loaded object, including its strings. Fails if the memory limit is reached.
    fn claim_named(&mut self, content: &[u8]) -> std::result::Result<(), StageError> {
        self.claim.take(NAMED + TEXT * content.len() as u64).then_some(()).ok_or(StageError)
    }

    /// Return the number of the stack in an event's content. A new stack gets the next number.
    fn stack(&mut self, content: &[u8]) -> std::result::Result<u32, StageError> {
        let before = self.last.bytes();
        let read = self.read_stack(&mut Content(content));
        self.claim.take(self.last.bytes() - before);
        read?;
        let flags = Content(content).number()?;
        let mut key = vec![flags, self.last.native.len() as u64];
        for address in &self.last.native {
            key.extend([self.object_at(*address), *address]);
        }
        for (code, offset, ends) in &self.last.python {
            let number = if *code == 0 { 0 } else { self.codes.get(code).map_or(NOBODY, |at| u64::from(*at)) };
            key.extend([number, *offset as u64, u64::from(*code == 0) << 1 | u64::from(*ends)]);
        }
        if let Some(number) = self.known.get(&key) {
            return Ok(*number);
        }
        let number = self.found.stacks.len() as u32;
        self.claim_stack(&key)?;
        self.found.stacks.push(readable(&key));
        self.shares.push(Share { stack: number, ..Share::default() });
        self.known.insert(key, number);
        Ok(number)
    }

    /// Read a stack. The stack was written as its difference from the thread's last stack: the outermost frames of that
    /// stack stay, and the frames in `content` replace the others.
    fn read_stack(&mut self, content: &mut Content) -> std::result::Result<(), StageError> {
        let _flags = content.number()?;
        let mut last = 0u64;
        let new = kept_and_new(content, &mut self.last.native)?;
        for _ in 0..new {
            last = last.wrapping_add(content.signed()? as u64);
            self.last.native.push(last);
        }
        last = 0;
        let new = kept_and_new(content, &mut self.last.python)?;
        for _ in 0..new {
            last = last.wrapping_add(content.signed()? as u64);
            let word = content.signed()?;
            self.last.python.push((last, word >> 1, word & 1 != 0));
        }
        Ok(())
    }

    /// Claim memory for a new stack, and for those of its frames that are in no other stack. Fails if the memory limit
    /// is reached.
    fn claim_stack(&mut self, key: &[u64]) -> std::result::Result<(), StageError> {
        let (natives, pythons) = key[2..].split_at(2 * key[1] as usize);
        let frames = natives.chunks_exact(2).chain(pythons.chunks_exact(3));
        let new = frames.filter(|frame| self.places.insert(frame[0].rotate_left(40) ^ frame[1])).count() as u64;
        // The claim covers the key, the stack that is made of the key, a copy of this stack, and Python's objects for
        // it.
        let bytes = STACK + 4 * 8 * key.len() as u64 + new * NAMED;
        self.claim.take(bytes).then_some(()).ok_or(StageError)
    }

    fn object_at(&self, address: u64) -> u64 {
        self.loaded.at(address).map_or(NOBODY, u64::from)
    }

    fn finish(mut self, whole: bool, wanted: &[u64]) -> LiveStacks {
        while !self.moments.is_empty() {
            self.keep_moment();
        }
        let mut makers: Vec<Option<Maker>> = vec![None; wanted.len()];
        for (address, block) in self.live.iter().filter(|_| !wanted.is_empty()) {
            for (one, maker) in wanted.iter().zip(&mut makers) {
                let holds = one == address || one.checked_sub(*address).is_some_and(|at| at < block.size);
                if holds && maker.is_none_or(|other| block.size < other.size) {
                    *maker = Some(Maker { wanted: *one, address: *address, size: block.size, stack: block.stack });
                }
            }
        }
        self.found.makers = makers.into_iter().flatten().collect();
        self.found.makers.sort_by_key(|maker| maker.wanted);
        self.found.whole = whole;
        self.found
    }
}

impl ThreadStacks {
    /// Return the number of bytes that the frames take in memory.
    fn bytes(&self) -> u64 {
        (self.native.capacity() * size_of::<u64>() + self.python.capacity() * size_of::<(u64, i64, bool)>()) as u64
    }
}

/// Keep only the outermost frames that a stack has in common with the previous stack. Return how many new frames follow
/// in `content`.
fn kept_and_new<T>(content: &mut Content, frames: &mut Vec<T>) -> std::result::Result<u64, StageError> {
    let (kept, new) = (content.number()?, content.number()?);
    if kept > frames.len() as u64 || new > MAX_FRAMES - kept.min(MAX_FRAMES) {
        return Err(StageError);
    }
    frames.truncate(kept as usize);
    Ok(new)
}

/// Return the call stack for a key: the flags, the number of C frames, and the words of all frames.
fn readable(key: &[u64]) -> CallStack {
    let number = |word: u64| (word != NOBODY).then_some(word as u32);
    let (flags, natives) = (key[0], 2 + 2 * key[1] as usize);
    let mut stack = CallStack {
        native: key[2..natives].chunks_exact(2).rev().map(|pair| (number(pair[0]), pair[1])).collect(),
        cut: flags & flag::CUT != 0,
        torn: flags & flag::TORN != 0,
        is_python: flags & flag::PYTHON != 0,
        ..CallStack::default()
    };
    let mut group = Vec::new();
    for row in key[natives..].chunks_exact(3).rev() {
        if row[2] & 2 == 0 {
            group.push((number(row[0]), row[1] as i64));
        }
        if row[2] & 1 != 0 {
            stack.python.push(std::mem::take(&mut group));
        }
    }
    if !group.is_empty() {
        stack.python.push(group);
    }
    stack
}

#[cfg(test)]
mod tests {
    use super::super::testing::random;
    use super::*;
    use gdbheap_calls::other;
    use gdbheap_calls::part::{EventWriter, HEAD};

    /// Check that random objects, which may overlap earlier ones, are found as in a plain list.
    #[test]
    fn objects_that_replace_others() {
        for seed in 1..50u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (mut loaded, mut plain) = (LoadedNow::default(), Vec::<(u64, u64, u32)>::new());
            for number in 0..100 {
                let (start, size) = (random(&mut state) % 1000, random(&mut state) % 60);
                loaded.add(start, start + size, number);
                if size > 0 {
                    plain.retain(|one| one.1 <= start || one.0 >= start + size);
                    plain.push((start, start + size, number));
                }
                let address = random(&mut state) % 1100;
                let wanted = plain.iter().find(|one| one.0 <= address && address < one.1).map(|one| one.2);
                assert_eq!(loaded.at(address), wanted, "seed {seed}");
            }
        }
    }

    /// Check that random stacks, each written as its difference from the previous one, are read back unchanged.
    #[test]
    fn stacks_are_read_as_they_were_written() {
        for seed in 1..50u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let room = Room::new(1 << 30);
            let mut following = StackFollower { mean: 1, moments: &[1], ..StackFollower::new(&room) };
            let (mut before, mut room): (Vec<u64>, Vec<u8>) = (Vec::new(), vec![0; 1 << 12]);
            for _ in 0..100 {
                let kept = random(&mut state) as usize % (before.len() + 1);
                let mut now = before[..kept].to_vec();
                now.extend((0..random(&mut state) % 20).map(|_| random(&mut state) >> (random(&mut state) % 60)));
                let common = now.iter().zip(&before).take_while(|(one, other)| one == other).count();
                room.fill(0);
                let mut part = EventWriter::new(&mut room);
                part.number(flag::CUT);
                part.number(common as u64);
                part.number((now.len() - common) as u64);
                let mut last = 0u64;
                for address in &now[common..] {
                    part.signed(address.wrapping_sub(last) as i64);
                    last = *address;
                }
                part.number(0);
                part.number(0);
                let (first, used) = part.finish(other::STACK).unwrap();
                room[0] = first;
                let mut reader = EventReader::new(&room[..used]);
                assert_eq!(reader.next_event(), Ok(Some(Event::Stack)));
                assert_eq!(reader.content().len(), used - HEAD);
                let number = following.stack(reader.content()).unwrap();
                let found: Vec<u64> = following.found.stacks[number as usize].native.iter().map(|one| one.1).collect();
                assert_eq!(found, now.iter().rev().copied().collect::<Vec<u64>>(), "seed {seed}");
                before = now;
            }
        }
    }

    /// Check that a damaged log gives an error or other stacks, never a panic.
    #[test]
    fn damaged_content_is_refused() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let room = Room::new(1 << 30);
        let mut following = StackFollower { mean: 1000, moments: &[], ..StackFollower::new(&room) };
        for _ in 0..20_000 {
            let size = random(&mut state) % 40;
            let bytes: Vec<u8> = (0..size).map(|_| (random(&mut state) % 6) as u8 * 43).collect();
            let event = [Event::Stack, Event::Code, Event::Loaded][random(&mut state) as usize % 3];
            let _ = following.take(event, &bytes);
            let _ = following.take(Event::Malloc { size: random(&mut state), result: 16 }, &[]);
        }
        following.finish(true, &[16]);
    }
}
