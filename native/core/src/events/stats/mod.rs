//! Statistics of recorded calls in one pass: sizes, lifetimes, and bytes in use over time.
//!
//! The memory needed is proportional to the largest number of blocks that were in use at the same time. Everything else
//! has a fixed size, however many calls there are. A block's life begins with the call that allocated it and ends with
//! its release. realloc continues the life of the block, wherever it moves the block, unless the block is unknown.

mod curve;
mod lifetimes;
mod sizes;

use super::blocks::Blocks;
use super::frames::Stages;
use super::memory_limit::{AddressTable, LimitedTable, Room};
use curve::Curve;
pub use curve::Point;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;
use gdbheap_calls::{usual_size, Event};
use lifetimes::Histogram;
pub use lifetimes::{Lives, Span};
pub use sizes::SizeRow;
use sizes::Sizes;

/// The initial width of the buckets of the curve over time, in nanoseconds.
const FIRST_TICK: u64 = 1000;

/// The number of calls of each kind. Only malloc, calloc, realloc, memalign and free have call numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub malloc: u64,
    pub calloc: u64,
    pub realloc: u64,
    pub memalign: u64,
    pub free: u64,
    pub mmap: u64,
    pub munmap: u64,
    pub mremap: u64,
    pub mallopt: u64,
    pub malloc_trim: u64,
    pub fork: u64,
}

/// The blocks in use. `bytes`: the sum of their requested sizes. `usable`: the sum of their usable sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    pub blocks: u64,
    pub bytes: u64,
    pub usable: u64,
}

/// The blocks in use after a call. `call`: the number of the call, from 1. `nanoseconds`: the time of the call, since
/// the first time in the log. It is the last time that the log states before the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    pub call: u64,
    pub nanoseconds: u64,
    pub in_use: InUse,
}

/// The results of realloc for known blocks: how many blocks grew, shrank and moved. `copied`: the number of bytes that
/// had to be copied for moved blocks. For each block this is the smaller of its old and its new size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResizeCounts {
    pub grown: u64,
    pub shrunk: u64,
    pub moved: u64,
    pub copied: u64,
}

/// The statistics of one process. Each allocated block was released, is in use at the end (`live`), or is `unseen`.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// The number of calls that have a call number.
    pub calls: u64,
    pub kinds: Calls,
    pub threads: u64,
    /// The number of blocks that were allocated.
    pub blocks: u64,
    pub released: u64,
    /// The number of blocks whose release is missing in the log: a later block has the same address.
    pub unseen: u64,
    /// The number of calls that returned NULL for a size above 0.
    pub failed: u64,
    /// The number of calls of free with NULL, which have no effect.
    pub nothing: u64,
    /// The number of calls that freed or resized a block whose allocation is not in the log.
    pub unknown: u64,
    pub live: InUse,
    /// The first moment with the most bytes in use.
    pub peak: Moment,
    /// The first moment with the most blocks in use.
    pub most: Moment,
    /// The sum of the requested sizes of all successful requests. A realloc counts with its whole new size, as if it
    /// always moved the block.
    pub upper: u64,
    /// The sum of the usable sizes of the blocks of all successful requests.
    pub usable: u64,
    /// The sum of the requested sizes of all successful requests. A realloc counts only with the bytes that it adds, as
    /// if it never moved the block.
    pub lower: u64,
    pub resized: ResizeCounts,
    /// The number of blocks that were released by the next call of the thread that allocated them.
    pub temporary: u64,
    pub temporary_bytes: u64,
    /// The time from the first time in the log to the last one.
    pub nanoseconds: u64,
    /// The number of time stamps in the log. The exact times of the calls between two time stamps are unknown.
    pub ticks: u64,
    pub lives_in_calls: Lives,
    pub lives_in_nanoseconds: Lives,
    pub sizes: Vec<SizeRow>,
    pub by_call: Vec<Point>,
    pub by_time: Vec<Point>,
    /// Whether no part of the log was damaged.
    pub whole: bool,
}

/// Compute the statistics of recorded calls. If a stage is damaged, `whole` is false, and calls are missing. Fails if
/// the log states a compressed size that no stage can have.
pub fn stats(watcher: &dyn Watcher, stages: &Stages<'_>) -> Result<Stats> {
    let mut counter = Counter::new(stages.room);
    let whole = stages.show(watcher, |event| counter.add(event))?;
    Ok(counter.finish(whole))
}

struct AllocatedBlock {
    size: u64,
    usable: u64,
    /// The number of the call that allocated the block.
    call: u64,
    /// The time of the call that allocated the block, in nanoseconds since the first time in the log.
    nanoseconds: u64,
}

struct Counter<'a> {
    found: Stats,
    blocks: Blocks<'a, AllocatedBlock>,
    /// The address of the block that was allocated last, and the number of the call that allocated it.
    given: (u64, u64),
    /// The number of the current thread's last call if that call allocated a block, else 0. A block that the thread's
    /// next call releases is temporary.
    fresh: u64,
    current: u64,
    /// The value of `fresh` of each other thread.
    threads: AddressTable<'a, u64>,
    /// The first time in the log, in nanoseconds.
    began: Option<u64>,
    /// The current time, in nanoseconds since the first time in the log.
    now: u64,
    /// The largest number of bytes in use since the last point of the curves.
    most_bytes: u64,
    /// The number of calls at the last point of the curves.
    told: u64,
    next_told: u64,
    by_call: Curve,
    by_time: Curve,
    sizes: Sizes,
    in_calls: Histogram,
    in_nanoseconds: Histogram,
}

impl<'a> Counter<'a> {
    fn new(room: &'a Room) -> Counter<'a> {
        Counter {
            found: Stats {
                calls: 0,
                kinds: Calls::default(),
                threads: 0,
                blocks: 0,
                released: 0,
                unseen: 0,
                failed: 0,
                nothing: 0,
                unknown: 0,
                live: InUse::default(),
                peak: Moment::default(),
                most: Moment::default(),
                upper: 0,
                usable: 0,
                lower: 0,
                resized: ResizeCounts::default(),
                temporary: 0,
                temporary_bytes: 0,
                nanoseconds: 0,
                ticks: 0,
                lives_in_calls: Lives::default(),
                lives_in_nanoseconds: Lives::default(),
                sizes: Vec::new(),
                by_call: Vec::new(),
                by_time: Vec::new(),
                whole: false,
            },
            blocks: Blocks::new(room),
            given: (0, 0),
            fresh: 0,
            current: 0,
            threads: LimitedTable::new(room),
            began: None,
            now: 0,
            most_bytes: 0,
            told: 0,
            next_told: 1,
            by_call: Curve::new(1),
            by_time: Curve::new(FIRST_TICK),
            sizes: Sizes::default(),
            in_calls: Histogram::default(),
            in_nanoseconds: Histogram::default(),
        }
    }

    #[inline(always)]
    fn add(&mut self, event: Event) {
        match event {
            Event::Malloc { size, result } => {
                self.begin_call();
                self.found.kinds.malloc += 1;
                self.allocate(size, result);
            }
            Event::Free { address } => {
                self.begin_call();
                self.found.kinds.free += 1;
                self.free(address);
            }
            Event::Calloc { size, result } => {
                self.begin_call();
                self.found.kinds.calloc += 1;
                self.allocate(size, result);
            }
            Event::Realloc { size, old, result } => {
                self.begin_call();
                self.found.kinds.realloc += 1;
                self.resize(size, old, result);
            }
            Event::Usable { size } => self.correct(size),
            event => self.rare(event),
        }
    }

    fn rare(&mut self, event: Event) {
        let kinds = &mut self.found.kinds;
        match event {
            Event::Memalign { size, result, .. } => {
                self.begin_call();
                self.found.kinds.memalign += 1;
                self.allocate(size, result);
            }
            Event::Switch { thread } | Event::Thread { thread, .. } => self.switch(thread.into()),
            Event::Time { nanoseconds } => self.tick(nanoseconds),
            Event::Mmap { .. } => kinds.mmap += 1,
            Event::Munmap { .. } => kinds.munmap += 1,
            Event::Mremap { .. } => kinds.mremap += 1,
            Event::Mallopt { .. } => kinds.mallopt += 1,
            Event::Trim { .. } => kinds.malloc_trim += 1,
            Event::Fork { .. } => kinds.fork += 1,
            _ => {}
        }
    }

    fn switch(&mut self, thread: u64) {
        if let Some(fresh) = self.threads.get_mut(&self.current) {
            *fresh = self.fresh;
        }
        self.fresh = self.threads.get_or_insert(thread, || 0).map_or(0, |fresh| *fresh);
        self.current = thread;
    }

    /// Set the time. A clock never goes back, but the times in a damaged log may go back.
    fn tick(&mut self, nanoseconds: u64) {
        self.tell();
        self.found.ticks += 1;
        let since = nanoseconds.saturating_sub(*self.began.get_or_insert(nanoseconds));
        self.now = self.now.max(since);
    }

    #[inline(always)]
    fn begin_call(&mut self) {
        if self.found.calls >= self.next_told {
            self.tell();
        }
        self.found.calls += 1;
    }

    /// Add a point to each of the two curves, for the calls since their last point.
    #[cold]
    fn tell(&mut self) {
        let (calls, live) = (self.found.calls, self.found.live);
        if calls > self.told {
            let most_bytes = self.most_bytes.max(live.bytes);
            let point = Point { calls, nanoseconds: self.now, blocks: live.blocks, bytes: live.bytes, most_bytes };
            self.by_call.add(calls - 1, point);
            self.by_time.add(self.now, point);
            self.told = calls;
            self.most_bytes = live.bytes;
        }
        self.next_told = (calls / self.by_call.width() + 1) * self.by_call.width();
    }

    /// Set the usable size of the block that was allocated last. The log states the usable size only if it differs from
    /// the usual one for the requested size.
    fn correct(&mut self, usable: u64) {
        let (address, call) = self.given;
        let Some(block) = self.blocks.get_mut(address) else { return };
        let more = usable.wrapping_sub(std::mem::replace(&mut block.usable, usable));
        let found = &mut self.found;
        found.usable = found.usable.wrapping_add(more);
        found.live.usable = found.live.usable.wrapping_add(more);
        for moment in [&mut found.peak, &mut found.most] {
            if moment.call == call {
                moment.in_use.usable = moment.in_use.usable.wrapping_add(more);
            }
        }
    }

    #[inline(always)]
    fn allocate(&mut self, size: u64, result: u64) {
        let usable = usual_size(size);
        if result == 0 {
            self.found.failed += u64::from(size != 0);
            self.fresh = 0;
            return;
        }
        let call = self.found.calls;
        self.fresh = call;
        self.given = (result, call);
        self.found.blocks += 1;
        self.give(size, usable);
        self.found.lower = self.found.lower.saturating_add(size);
        let block = AllocatedBlock { size, usable, call, nanoseconds: self.now };
        if let Some(before) = self.blocks.insert(result, block) {
            self.found.unseen += 1;
            self.leave(&before);
        }
        self.enter(size, usable);
    }

    /// Add a successful request to the sums of requested and usable sizes, and to the size distribution.
    #[inline(always)]
    fn give(&mut self, size: u64, usable: u64) {
        self.found.upper = self.found.upper.saturating_add(size);
        self.found.usable = self.found.usable.saturating_add(usable);
        self.sizes.add(size);
    }

    #[inline(always)]
    fn enter(&mut self, size: u64, usable: u64) {
        let live = &mut self.found.live;
        live.blocks += 1;
        live.bytes = live.bytes.wrapping_add(size);
        live.usable = live.usable.wrapping_add(usable);
        let live = *live;
        self.most_bytes = self.most_bytes.max(live.bytes);
        let moment = Moment { call: self.found.calls, nanoseconds: self.now, in_use: live };
        if live.bytes > self.found.peak.in_use.bytes {
            self.found.peak = moment;
        }
        if live.blocks > self.found.most.in_use.blocks {
            self.found.most = moment;
        }
    }

    #[inline(always)]
    fn leave(&mut self, block: &AllocatedBlock) {
        let live = &mut self.found.live;
        live.blocks -= 1;
        live.bytes = live.bytes.wrapping_sub(block.size);
        live.usable = live.usable.wrapping_sub(block.usable);
    }

    #[inline(always)]
    fn free(&mut self, address: u64) {
        match self.blocks.remove(address) {
            Some(block) => self.release(&block),
            None if address == 0 => self.found.nothing += 1,
            None => self.found.unknown += 1,
        }
        self.fresh = 0;
    }

    #[inline(always)]
    fn release(&mut self, block: &AllocatedBlock) {
        self.leave(block);
        self.found.released += 1;
        self.in_calls.add(self.found.calls - block.call - 1);
        self.in_nanoseconds.add(self.now - block.nanoseconds);
        if block.call == self.fresh {
            self.found.temporary += 1;
            self.found.temporary_bytes = self.found.temporary_bytes.saturating_add(block.size);
        }
    }

    #[inline(always)]
    fn resize(&mut self, size: u64, old: u64, result: u64) {
        if old == 0 || result == 0 {
            return self.resize_rarely(size, old, result);
        }
        // Most often the block stays at its address, or no other block is at its new address.
        let Some(mut block) = self.blocks.remove(old) else {
            self.found.unknown += 1;
            return self.allocate(size, result);
        };
        self.fresh = 0;
        let usable = usual_size(size);
        self.given = (result, self.found.calls);
        self.leave(&block);
        let resized = &mut self.found.resized;
        resized.grown += u64::from(size > block.size);
        resized.shrunk += u64::from(size < block.size);
        if result != old {
            resized.moved += 1;
            resized.copied = resized.copied.saturating_add(size.min(block.size));
        }
        self.found.lower = self.found.lower.saturating_add(size.saturating_sub(block.size));
        self.give(size, usable);
        (block.size, block.usable) = (size, usable);
        if let Some(before) = self.blocks.insert(result, block) {
            self.found.unseen += 1;
            self.leave(&before);
        }
        self.enter(size, usable);
    }

    /// Handle a realloc of NULL or of an unknown block, and a realloc that returns NULL. If a realloc with the size 0
    /// returns NULL, the block is released; with any other size the block stays as it was.
    #[cold]
    fn resize_rarely(&mut self, size: u64, old: u64, result: u64) {
        let is_known = self.blocks.get(old).is_some();
        if old == 0 || !is_known {
            self.found.unknown += u64::from(old != 0);
            return self.allocate(size, result);
        }
        if size != 0 {
            self.found.failed += 1;
        } else if let Some(block) = self.blocks.remove(old) {
            self.release(&block);
        }
        self.fresh = 0;
    }

    fn finish(mut self, whole: bool) -> Stats {
        self.tell();
        self.blocks.values().for_each(|block| self.sizes.remains(block.size));
        Stats {
            threads: self.threads.len() as u64,
            nanoseconds: self.now,
            lives_in_calls: self.in_calls.lives(),
            lives_in_nanoseconds: self.in_nanoseconds.lives(),
            sizes: self.sizes.rows(),
            by_call: self.by_call.points(),
            by_time: self.by_time.points(),
            whole,
            ..self.found
        }
    }
}

#[cfg(test)]
mod tests;
