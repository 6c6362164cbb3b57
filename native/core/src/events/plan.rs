//! Turn the calls of a log into a replayer's plan. In the plan, every block has a place in a table instead of an
//! address.
//!
//! The memory needed is proportional to the largest number of blocks that were in use at the same time.

use super::blocks::Blocks;
use super::frames::Stages;
use super::mappings::{MappingChange, Mappings};
use super::memory_limit::{AddressTable, LimitedTable, List, Room};
use super::python_blocks::{PythonBlocks, PythonCalls};
use gdbheap_access::error::{Error, Result};
use gdbheap_access::work::Watcher;
use gdbheap_calls::Event;
use gdbheap_plan::{header, kind, other, step, ARGUMENT_LIMIT, HEADER, MAGIC, PLACE_LIMIT, VERSION};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The number of the first thread of a process. A forked child's only thread gets this number, too.
const FIRST: u64 = 1;
/// The number of bytes that are written to the file at a time.
const PIECE: usize = 1 << 20;

/// Figures about a plan and its log. `live_bytes` and `peak_bytes` are requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The number of calls, including the `inherited` ones. Calls are numbered from 1.
    pub calls: u64,
    pub threads: u64,
    pub ended: u64,
    /// Whether the first thread ended before the process. This cannot be replayed.
    pub main_ended: bool,
    /// The number of calls that freed or resized a block whose allocation is not in the log. A parent process may have
    /// allocated it. In the plan, such a free does nothing, and such a realloc allocates a new block.
    pub unknown: u64,
    /// The number of calls that returned NULL for a size above 0.
    pub failed: u64,
    /// The number of blocks whose release is missing in the log: a later block has the same address.
    pub unseen: u64,
    /// The number of the program's own mappings that are replayed.
    pub mappings: u64,
    pub live_blocks: u64,
    pub live_bytes: u64,
    pub most_blocks: u64,
    /// The largest number of bytes in use at any time.
    pub peak_bytes: u64,
    /// The number of the first call after which `peak_bytes` were in use.
    pub peak_call: u64,
    /// The size of the plan in bytes.
    pub bytes: u64,
    /// Whether no part of the log was damaged.
    pub whole: bool,
    /// The number of calls that parents made before they forked.
    pub inherited: u64,
    /// The calls of Python's own allocator, which a plan leaves out.
    pub python: PythonCalls,
}

/// A process from which another one was forked: its log, and the number of the fork.
pub struct Parent<'a> {
    pub stages: Stages<'a>,
    pub fork: u64,
}

/// The empty file that becomes a plan, and the largest number of bytes that it may have.
#[derive(Clone, Copy)]
pub struct PlanFile<'a> {
    pub file: &'a File,
    pub most: u64,
}

/// The steps of a plan, which are written to a file. Without a file, they are only counted. `waiting`: the bytes of the
/// steps that are not written yet.
struct Out<'a> {
    file: Option<PlanFile<'a>>,
    room: &'a Room,
    waiting: Vec<u8>,
    written: u64,
    steps: u64,
    failure: Option<std::io::Error>,
}

impl Out<'_> {
    #[inline(always)]
    fn word(&mut self, word: u64) {
        self.waiting.extend_from_slice(&word.to_le_bytes());
        self.steps += 1;
        if self.waiting.len() >= PIECE {
            self.write();
        }
    }

    #[inline(always)]
    fn step(&mut self, kind: u64, place: u64, argument: u64) {
        if place >= PLACE_LIMIT || argument >= ARGUMENT_LIMIT {
            self.word(step(kind::WIDE, place / PLACE_LIMIT, argument / ARGUMENT_LIMIT));
        }
        self.word(step(kind, place, argument));
    }

    #[cold]
    fn write(&mut self) {
        if self.failure.is_none() {
            self.failure = self.write_at(&self.waiting, HEADER as u64 + self.written).err();
            // Stop reading events, because further steps could not be written either.
            if self.failure.is_some() {
                self.room.exceed();
            }
        }
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        match self.file {
            Some(PlanFile { most, .. }) if offset.saturating_add(bytes.len() as u64) > most => {
                Err(std::io::Error::from_raw_os_error(libc::ENOSPC))
            }
            Some(PlanFile { file, .. }) => file.write_all_at(bytes, offset),
            None => Ok(()),
        }
    }
}

struct PlannedThread {
    index: u64,
    has_ended: bool,
    /// The index of the step that will end the thread. It is reserved after each run of the thread's events once the
    /// thread has ended. None before that.
    end: Option<u64>,
}

/// Write the plan of a process's calls into an empty file. Without a file, only compute what the plan would contain.
/// `mappings`: whether to repeat the program's own mappings too. `parents`: the processes from which this process was
/// forked, the eldest first. The plan includes the parents' calls before the fork, if their logs contain the fork.
pub fn plan(
    watcher: &dyn Watcher,
    parents: &[Parent<'_>],
    stages: &Stages<'_>,
    file: Option<PlanFile<'_>>,
    mappings: bool,
) -> Result<Plan> {
    let mut planner = Planner::new(stages.room, file, mappings);
    for parent in parents {
        if !planner.inherit(watcher, parent)? {
            planner = Planner::new(stages.room, file, mappings);
        }
    }
    planner.plan.inherited = planner.plan.calls;
    let shown = stages.show(watcher, |event| planner.add(event));
    let whole = planner.unless_failed(shown)?;
    planner.finish(whole)
}

/// A builder of a plan. It gets the events of the log in their order.
struct Planner<'a> {
    out: Out<'a>,
    plan: Plan,
    places: Blocks<'a, u64>,
    free_places: List<'a, u64>,
    /// For each place, the requested size of the block at this place.
    sizes: List<'a, u64>,
    threads: AddressTable<'a, PlannedThread>,
    /// Threads that a forked child does not have. The plan already contains their end.
    gone: List<'a, PlannedThread>,
    python: PythonBlocks<'a>,
    /// The number, in the log, of the thread whose events follow.
    current: u64,
    /// The number of the thread whose calls the plan contains at this point; None if the next call needs a step that
    /// names its thread.
    planned: Option<u64>,
    has_called_since_end: bool,
    mappings: Option<Mappings<'a>>,
    /// The lowest address of any block. The heap at the program break lies below all mappings, and sooner or later a
    /// block lies on its first page.
    lowest: u64,
}

impl<'a> Planner<'a> {
    fn new(room: &'a Room, file: Option<PlanFile<'a>>, mappings: bool) -> Planner<'a> {
        Planner {
            out: Out { file, room, waiting: Vec::with_capacity(PIECE + 64), written: 0, steps: 0, failure: None },
            plan: Plan::default(),
            places: Blocks::new(room),
            free_places: List::new(room),
            sizes: List::new(room),
            threads: LimitedTable::new(room),
            gone: List::new(room),
            python: PythonBlocks::new(room),
            current: 0,
            planned: None,
            has_called_since_end: false,
            mappings: mappings.then(|| Mappings::new(room)),
            lowest: u64::MAX,
        }
    }

    /// Add the events of a parent's log up to the fork. Return whether the log contains the fork.
    fn inherit(&mut self, watcher: &dyn Watcher, parent: &Parent<'_>) -> Result<bool> {
        let mut is_there = false;
        let shown = parent.stages.show_while(watcher, |event, _| {
            is_there |= event == Event::Fork { number: parent.fork };
            self.add(event);
            !is_there
        });
        self.unless_failed(shown)?;
        if is_there {
            self.become_child();
        }
        Ok(is_there)
    }

    /// Return an earlier error of the file system, or else `shown`, the result of reading the log. The file system's
    /// error counts, because it also made the reading end.
    fn unless_failed(&mut self, shown: Result<bool>) -> Result<bool> {
        self.out.failure.take().map_or(shown, |failure| Err(Error::Io(failure)))
    }

    /// Continue as the child of a fork. The child has only the thread that forked, which now has the number 1. The
    /// blocks of the other threads remain.
    fn become_child(&mut self) {
        self.leave_room();
        let was_planned = self.planned == Some(self.current);
        let forked = self.threads.remove(&self.current);
        let others = self.threads.drain().map(|(_, thread)| thread);
        for thread in others.filter(|thread| thread.end.is_some()) {
            self.gone.push(thread);
        }
        self.planned = (was_planned && forked.is_some()).then_some(FIRST);
        if let Some(thread) = forked {
            self.threads.insert(FIRST, thread);
        }
        self.current = FIRST;
        self.has_called_since_end = false;
    }

    /// Add the next event of the log.
    #[inline(always)]
    fn add(&mut self, event: Event) {
        match event {
            Event::Malloc { size, result } => {
                self.begin_call();
                self.allocate(kind::MALLOC, size, result);
            }
            Event::Calloc { size, result } => {
                self.begin_call();
                self.allocate(kind::CALLOC, size, result);
            }
            Event::Free { address } => {
                self.begin_call();
                self.free(address);
            }
            Event::Realloc { size, old, result } => {
                self.begin_call();
                self.resize(size, old, result);
            }
            event => self.rare(event),
        }
    }

    fn rare(&mut self, event: Event) {
        match event {
            Event::Memalign { size, alignment, result } => {
                self.begin_call();
                self.align(alignment, size, result);
            }
            Event::Switch { thread } | Event::Thread { thread, .. } => self.switch(thread.into()),
            Event::End => self.end(),
            Event::Mallopt { parameter, value } => {
                self.become_current();
                self.out.word(step(kind::MALLOPT, parameter as u64, value as u32 as u64));
            }
            Event::Trim { pad } => {
                self.become_current();
                self.out.step(kind::TRIM, 0, pad);
            }
            Event::Mmap { size, protection, flags, result } => {
                self.map(|mappings| mappings.add(result, size, protection, flags));
            }
            Event::Munmap { address, size } => self.map(|mappings| mappings.remove(address, size)),
            Event::Mremap { old, old_size, size, result } => {
                self.map(|mappings| mappings.replace(old, old_size, result, size));
            }
            event => self.python.add(event),
        }
    }

    #[inline(always)]
    fn begin_call(&mut self) {
        self.plan.calls += 1;
        self.become_current();
        self.has_called_since_end = true;
    }

    #[inline(always)]
    fn become_current(&mut self) {
        if self.planned != Some(self.current) {
            let Some(index) = self.thread(self.current).map(|thread| thread.index) else { return };
            self.out.step(kind::THREAD, index, 0);
            self.planned = Some(self.current);
        }
    }

    /// Return the thread with this number. A new thread is added; None if the memory limit is reached.
    fn thread(&mut self, number: u64) -> Option<&mut PlannedThread> {
        let next = &mut self.plan.threads;
        self.threads.get_or_insert(number, || {
            *next += 1;
            PlannedThread { index: *next - 1, has_ended: false, end: None }
        })
    }

    /// Switch to a thread. In the log, the last calls of a thread may come after the thread's end, in several runs of
    /// events. After each of these runs, a step is reserved that can end the thread.
    fn switch(&mut self, number: u64) {
        self.leave_room();
        self.current = number;
        self.has_called_since_end = false;
    }

    fn leave_room(&mut self) {
        let (current, at) = (self.current, self.out.steps);
        let Some(thread) = self.threads.get_mut(&current) else { return };
        if thread.has_ended && self.has_called_since_end {
            thread.end = Some(at);
            self.out.word(step(kind::OTHER, other::NONE, 0));
            self.planned = None;
        }
    }

    fn end(&mut self) {
        let Some(thread) = self.thread(self.current) else { return };
        let is_first = thread.index == 0;
        thread.has_ended = true;
        self.plan.main_ended |= is_first;
        self.plan.ended += 1;
        self.has_called_since_end = true;
        self.leave_room();
        self.has_called_since_end = false;
    }

    #[inline(always)]
    fn allocate(&mut self, kind: u64, size: u64, result: u64) {
        if result == 0 {
            return self.fail(kind, 0, size);
        }
        if let Some(place) = self.take_place(result, size) {
            self.out.step(kind, place, size);
        }
    }

    fn align(&mut self, alignment: u64, size: u64, result: u64) {
        let place = if result == 0 { None } else { self.take_place(result, size) };
        self.out.step(kind::ALIGNMENT, 0, alignment);
        match place {
            Some(place) => self.out.step(kind::MEMALIGN, place, size),
            None => self.fail(kind::MEMALIGN, 0, size),
        }
    }

    #[cold]
    fn fail(&mut self, kind: u64, place: u64, size: u64) {
        self.plan.failed += u64::from(size != 0);
        self.out.word(step(kind::FAILED, 0, 0));
        self.out.step(kind, place, size);
    }

    /// Choose a place in the table for the block at `address`, and return the place; None if the memory limit is
    /// reached.
    #[inline(always)]
    fn take_place(&mut self, address: u64, size: u64) -> Option<u64> {
        let place = match self.free_places.pop() {
            Some(place) => place,
            None => self.sizes.push(0).then(|| self.sizes.len() as u64 - 1)?,
        };
        if let Some(before) = self.places.insert(address, place) {
            self.free_unseen(before);
        }
        self.lowest = self.lowest.min(address);
        self.resized(place, size);
        Some(place)
    }

    /// Free the block at `place`, because its address is being given to a new block: its release is missing in the log.
    /// It must be freed before the new block is allocated.
    #[cold]
    fn free_unseen(&mut self, place: u64) {
        self.plan.unseen += 1;
        self.out.word(step(kind::OTHER, other::UNSEEN, 0));
        self.out.step(kind::FREE, place, 0);
        self.leave_place(place);
    }

    #[inline(always)]
    fn leave_place(&mut self, place: u64) {
        self.plan.live_bytes = self.plan.live_bytes.saturating_sub(self.sizes[place as usize]);
        self.sizes[place as usize] = 0;
        self.free_places.push(place);
    }

    #[inline(always)]
    fn resized(&mut self, place: u64, size: u64) {
        let known = &mut self.sizes[place as usize];
        self.plan.live_bytes = self.plan.live_bytes.saturating_sub(*known).saturating_add(size);
        *known = size;
        if self.plan.live_bytes > self.plan.peak_bytes {
            (self.plan.peak_bytes, self.plan.peak_call) = (self.plan.live_bytes, self.plan.calls);
        }
    }

    #[inline(always)]
    fn free(&mut self, address: u64) {
        match self.places.remove(address) {
            Some(place) => {
                self.out.step(kind::FREE, place, 0);
                self.leave_place(place);
            }
            None => {
                self.plan.unknown += u64::from(address != 0);
                self.out.word(step(kind::NOTHING, 0, 0));
            }
        }
    }

    #[inline(always)]
    fn resize(&mut self, size: u64, old: u64, result: u64) {
        let Some(place) = self.places.get(old).copied() else { return self.resize_unknown(size, old, result) };
        if result == 0 {
            match size {
                0 => {
                    self.places.remove(old);
                    self.out.step(kind::RELEASE, place, 0);
                    self.leave_place(place);
                }
                _ => self.fail(kind::REALLOC, place, size),
            }
            return;
        }
        if result != old {
            self.lowest = self.lowest.min(result);
            self.places.remove(old);
            if let Some(before) = self.places.insert(result, place) {
                self.free_unseen(before);
            }
        }
        self.out.step(kind::REALLOC, place, size);
        self.resized(place, size);
    }

    /// Handle a realloc of NULL or of an unknown block: the result is a new block.
    #[cold]
    fn resize_unknown(&mut self, size: u64, old: u64, result: u64) {
        self.plan.unknown += u64::from(old != 0);
        match result {
            0 if size == 0 && old != 0 => self.out.word(step(kind::NOTHING, 0, 0)),
            _ => self.allocate(kind::MALLOC, size, result),
        }
    }

    fn map(&mut self, change: impl FnOnce(&mut Mappings) -> Vec<MappingChange>) {
        let Some(mappings) = &mut self.mappings else { return };
        for part in change(mappings) {
            self.plan.mappings += u64::from(part.kind == other::MMAP);
            self.out.word(step(kind::OTHER, part.kind, 0));
            [part.place, part.first, part.second].into_iter().for_each(|word| self.out.word(word));
        }
    }

    /// Write the remaining steps and the header of the plan. `whole`: whether the log was whole. Fails with the error
    /// of the file system, or if there are more threads than a plan can have.
    fn finish(mut self, whole: bool) -> Result<Plan> {
        self.leave_room();
        self.out.write();
        if let Some(failure) = self.out.failure.take() {
            return Err(Error::Io(failure));
        }
        for thread in self.threads.values().chain(self.gone.iter()) {
            let Some(at) = thread.end else { continue };
            if thread.index >= PLACE_LIMIT {
                return Err(Error::Overflow("more threads than a plan can have"));
            }
            let word = step(kind::END, thread.index, 0);
            self.out.write_at(&word.to_le_bytes(), HEADER as u64 + 8 * at)?;
        }
        self.write_header()?;
        Ok(Plan {
            live_blocks: self.places.len() as u64,
            most_blocks: self.sizes.len() as u64,
            bytes: HEADER as u64 + self.out.written,
            whole,
            python: self.python.calls,
            ..self.plan
        })
    }

    fn write_header(&self) -> Result<()> {
        let mut words = [0u64; header::WORDS];
        words[header::MAGIC] = MAGIC;
        words[header::VERSION] = VERSION;
        words[header::STEPS] = self.out.steps;
        words[header::BLOCKS] = self.sizes.len() as u64;
        words[header::MAPPINGS] = self.mappings.as_ref().map_or(0, Mappings::places);
        words[header::THREADS] = self.plan.threads;
        words[header::LOWEST] = if self.lowest == u64::MAX { 0 } else { self.lowest };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(self.out.write_at(&bytes, 0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::random;
    use super::*;
    use gdbheap_plan::{argument_of, kind_of, place_of, wide_argument, wide_place};
    use std::collections::{BTreeMap, HashMap};

    /// Return a new file without a name.
    fn unnamed() -> File {
        let thread = std::thread::current().id();
        let path = std::env::temp_dir().join(format!("gdbheap-plan-{}-{thread:?}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    /// Simulate a program with several threads that allocates at random. Return the events of the program, and the
    /// blocks that remain at the end (size by address).
    fn program(state: &mut u64, count: usize) -> (Vec<Event>, BTreeMap<u64, u64>) {
        let (mut events, mut live) = (vec![Event::Thread { thread: 1, tid: 1 }], BTreeMap::new());
        let mut next = 1u64 << 20;
        for _ in 0..count {
            let size = random(state) % if random(state) % 50 == 0 { 1 << 40 } else { 5000 };
            let chosen = live.keys().nth(random(state) as usize % (live.len() + 1)).copied();
            next += 16;
            match (random(state) % 9, chosen) {
                (0, _) => events.push(Event::Switch { thread: 1 + random(state) as u32 % 3 }),
                (1..=3, _) => {
                    events.push(match random(state) % 3 {
                        0 => Event::Malloc { size, result: next },
                        1 => Event::Calloc { size, result: next },
                        _ => Event::Memalign { size, alignment: 1 << (random(state) % 36), result: next },
                    });
                    live.insert(next, size);
                }
                (4..=5, Some(address)) => {
                    events.push(Event::Free { address });
                    live.remove(&address);
                }
                (6, Some(old)) => {
                    let result = if random(state) % 2 == 0 { old } else { next };
                    events.push(Event::Realloc { size, old, result });
                    live.remove(&old);
                    live.insert(result, size);
                }
                (7, Some(old)) => match random(state) % 3 {
                    0 => {
                        events.push(Event::Realloc { size: 0, old, result: 0 });
                        live.remove(&old);
                    }
                    1 => events.push(Event::Realloc { size: size + 1, old, result: 0 }),
                    _ => {
                        // The block was freed by a call that was not recorded, and is handed out again.
                        events.push(Event::Malloc { size, result: old });
                        live.insert(old, size);
                    }
                },
                _ => events.push(Event::Free { address: if random(state) % 2 == 0 { 0 } else { 8 } }),
            }
        }
        (events, live)
    }

    /// Apply the steps of a plan as a replayer does. Return the size of the block at each place, and the number of
    /// calls.
    fn follow(words: &[u64]) -> (HashMap<u64, u64>, u64) {
        let (mut places, mut calls, mut wide, mut alignment) = (HashMap::new(), 0, (0, 0), None);
        let (mut fails, mut is_unseen) = (false, false);
        for word in words {
            let (place, argument) = (wide_place(wide.0, place_of(*word)), wide_argument(wide.1, argument_of(*word)));
            let kind = kind_of(*word);
            match kind {
                kind::WIDE => {
                    wide = (place, argument);
                    continue;
                }
                kind::ALIGNMENT => {
                    alignment = Some(argument);
                    wide = (0, 0);
                    continue;
                }
                kind::FAILED => {
                    fails = true;
                    continue;
                }
                kind::OTHER if place == other::UNSEEN => {
                    is_unseen = true;
                    continue;
                }
                _ if kind > kind::NOTHING => {}
                _ => calls += u64::from(!is_unseen),
            }
            match kind {
                _ if fails => {}
                kind::MALLOC | kind::CALLOC | kind::MEMALIGN => {
                    assert_eq!(kind == kind::MEMALIGN, alignment.is_some());
                    assert!(places.insert(place, argument).is_none(), "the place was taken");
                }
                kind::REALLOC => assert!(places.insert(place, argument).is_some(), "nothing to resize"),
                kind::FREE | kind::RELEASE => assert!(places.remove(&place).is_some(), "nothing to free"),
                _ => {}
            }
            (wide, alignment, fails, is_unseen) = ((0, 0), None, false, false);
        }
        (places, calls)
    }

    #[test]
    fn a_plan_has_the_program_s_blocks() {
        for seed in 1..100u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (events, live) = program(&mut state, 2000);
            let file = unnamed();
            let room = Room::new(u64::MAX);
            let mut planner = Planner::new(&room, Some(PlanFile { file: &file, most: u64::MAX }), false);
            events.iter().for_each(|event| planner.add(*event));
            let plan = planner.finish(true).unwrap();
            let mut bytes = vec![0; plan.bytes as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            let words: Vec<u64> =
                bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
            assert_eq!(words[header::STEPS] as usize, words.len() - header::WORDS);
            let (places, calls) = follow(&words[header::WORDS..]);
            let (mut found, mut wanted): (Vec<u64>, Vec<u64>) =
                (places.into_values().collect(), live.into_values().collect());
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "seed {seed}");
            let counted = events.iter().filter(|event| !matches!(event, Event::Switch { .. } | Event::Thread { .. }));
            assert_eq!((calls, plan.calls), (counted.count() as u64, calls), "seed {seed}");
            assert_eq!(plan.live_bytes, wanted.iter().sum::<u64>());
            assert!(plan.most_blocks >= wanted.len() as u64);
        }
    }

    /// Check that a child continues with the thread that forked, whichever of the parent's threads that was, and with
    /// the parent's blocks.
    #[test]
    fn a_child_goes_on_where_its_parent_forked() {
        let file = unnamed();
        let room = Room::new(u64::MAX);
        let mut planner = Planner::new(&room, Some(PlanFile { file: &file, most: u64::MAX }), false);
        let malloc = |result| Event::Malloc { size: 8, result };
        for event in [
            Event::Thread { thread: 1, tid: 1 },
            malloc(0x1000),
            Event::Thread { thread: 2, tid: 2 },
            malloc(0x2000),
            Event::Fork { number: 1 },
        ] {
            planner.add(event);
        }
        planner.become_child();
        for event in [
            Event::Thread { thread: 1, tid: 3 },
            Event::Free { address: 0x1000 },
            Event::Thread { thread: 2, tid: 4 },
            malloc(0x3000),
            Event::PythonMalloc { size: 8, result: 0x9000 },
            Event::PythonFree { address: 0x9010 },
        ] {
            planner.add(event);
        }
        let plan = planner.finish(true).unwrap();
        let mut bytes = vec![0; plan.bytes as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let words = bytes[HEADER..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let steps: Vec<(u64, u64)> = words.map(|word| (kind_of(word), place_of(word))).collect();
        let thread = |index| (kind::THREAD, index);
        let wanted =
            [thread(0), (kind::MALLOC, 0), thread(1), (kind::MALLOC, 1), (kind::FREE, 0), thread(2), (kind::MALLOC, 0)];
        assert_eq!(steps, wanted);
        assert_eq!((plan.calls, plan.unknown, plan.live_blocks, plan.threads), (4, 0, 2, 3));
        let python = PythonCalls { calls: 2, unknown: 1, live_blocks: 1, live_bytes: 8, peak_bytes: 8 };
        assert_eq!(plan.python, python);
    }

    /// Check that each thread ends after its last call, wherever the log says that it ended.
    #[test]
    fn a_thread_ends_after_its_last_call() {
        let file = unnamed();
        let room = Room::new(u64::MAX);
        let mut planner = Planner::new(&room, Some(PlanFile { file: &file, most: u64::MAX }), false);
        let call = Event::Malloc { size: 8, result: 0x1000 };
        let free = Event::Free { address: 0 };
        for event in [
            Event::Thread { thread: 1, tid: 1 },
            call,
            Event::Thread { thread: 2, tid: 2 },
            free,
            Event::End,
            Event::Switch { thread: 1 },
            free,
            Event::Switch { thread: 2 },
            free,
            Event::Switch { thread: 1 },
            free,
        ] {
            planner.add(event);
        }
        let plan = planner.finish(true).unwrap();
        let mut bytes = vec![0; plan.bytes as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let words = bytes[HEADER..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let kinds: Vec<(u64, u64)> = words.map(|word| (kind_of(word), place_of(word))).collect();
        let thread = |index| (kind::THREAD, index);
        let nothing = (kind::NOTHING, 0);
        let wanted = [
            thread(0),
            (kind::MALLOC, 0),
            thread(1),
            nothing,
            (kind::OTHER, other::NONE),
            thread(0),
            nothing,
            thread(1),
            nothing,
            (kind::END, 1),
            thread(0),
            nothing,
        ];
        assert_eq!(kinds, wanted);
        assert_eq!((plan.threads, plan.ended, plan.main_ended), (2, 1, false));
    }
}
