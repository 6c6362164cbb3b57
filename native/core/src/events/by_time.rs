//! Merge the stages of several threads into one sequence of events, by the time of each call.

use super::memory_limit::{Claim, Room};
use gdbheap_access::error::Result;
use gdbheap_calls::{Event, EventReader, LastValues};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

/// The number of events that are read between two checks for cancellation: the events of a few stages.
const UNWATCHED: u64 = 1 << 20;

/// A stage (a part of a log) that is being read, and the position in it.
struct OpenStage<'a> {
    stage: Vec<u8>,
    /// The part of the memory limit that the stage takes.
    _claim: Claim<'a>,
    at: usize,
    last: LastValues,
    /// The thread that makes the next calls in the stage.
    thread: u32,
    /// The next event, if it was already read to learn its time.
    next: Option<Event>,
    /// The position in `stage` of the last event's content, for an event that has content (a stack, a code object or a
    /// loaded object).
    content: Range<usize>,
    is_whole: bool,
}

impl<'a> OpenStage<'a> {
    /// Open a stage; None if its memory would exceed the limit of `room`.
    fn new(stage: Vec<u8>, room: &'a Room) -> Option<OpenStage<'a>> {
        let mut claim = Claim::new(room);
        let fits = claim.take(stage.capacity() as u64);
        fits.then_some(OpenStage {
            stage,
            _claim: claim,
            at: 0,
            last: LastValues::default(),
            thread: 0,
            next: None,
            content: 0..0,
            is_whole: true,
        })
    }

    fn read(&mut self) -> Option<Event> {
        let mut reader = EventReader::resumed(&self.stage[self.at..], self.last);
        let event = reader.next_event();
        (self.at, self.last) = (self.stage.len() - reader.rest(), reader.last());
        self.content = self.at - reader.content().len()..self.at;
        self.is_whole &= event.is_ok();
        let event = event.ok().flatten();
        if let Some(Event::Thread { thread, .. } | Event::Switch { thread }) = event {
            self.thread = thread;
        }
        event
    }
}

/// Stages that overlap in time and are read in parallel.
struct StageMerger<'a, V> {
    room: &'a Room,
    open: Vec<Option<OpenStage<'a>>>,
    /// A queue with the time of the next call of each stage, and the index of the stage.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    /// The calls of realloc in progress: a map from the address of the old block, which the call frees, to the index of
    /// the call's stage.
    moving: HashMap<u64, usize>,
    thread: u32,
    is_whole: bool,
    /// The number of events that were read, to decide when to check for cancellation.
    read: u64,
    /// Whether `visit` wants more events.
    is_wanted: bool,
    visit: V,
}

impl<V: FnMut(Event, &[u8]) -> bool> StageMerger<'_, V> {
    fn begin(&mut self, stage: Vec<u8>, tick: u64) {
        let place = self.open.iter().position(Option::is_none).unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() - 1
        });
        self.open[place] = OpenStage::new(stage, self.room);
        self.order.push(Reverse((tick, place)));
    }

    /// Pass an event to `visit`. `place`: the index of the event's stage. If the thread changes, pass a Switch event
    /// first, unless the event itself names the thread.
    fn show(&mut self, place: usize, event: Event) {
        let Some(stage) = &self.open[place] else { return };
        let (thread, content) = (stage.thread, stage.stage.get(stage.content.clone()).unwrap_or_default());
        if self.thread != thread && thread != 0 {
            self.thread = thread;
            if !matches!(event, Event::Thread { .. } | Event::Switch { .. }) {
                self.is_wanted = self.is_wanted && (self.visit)(Event::Switch { thread }, &[]);
            }
        }
        self.is_wanted = self.is_wanted && (self.visit)(event, content);
    }

    /// Pass the events of a stage up to the time `until` to `visit`. Return the time of the stage's next call; None at
    /// the end of the stage.
    fn follow(&mut self, place: usize, until: u64) -> Option<u64> {
        while self.is_wanted {
            let stage = self.open[place].as_mut()?;
            self.read += 1;
            let kept = stage.next.take();
            let event = match kept {
                Some(event) => event,
                None => stage.read()?,
            };
            match event {
                Event::Tick { ticks } if ticks > until => {
                    stage.next = Some(event);
                    return Some(ticks);
                }
                Event::Tick { .. } => {
                    // Two Tick events in a row give the times at which one call began and ended.
                    let end = stage.read()?;
                    let Event::Tick { ticks } = end else {
                        stage.next = Some(end);
                        continue;
                    };
                    let call = stage.read()?;
                    stage.next = Some(call);
                    if let (Event::Realloc { old, .. }, true) = (call, ticks > until) {
                        self.moving.insert(old, place);
                        return Some(ticks);
                    }
                }
                // This size belongs to a block that was allocated in the previous stage. Calls of other threads have
                // come in between, so the size is ignored.
                Event::Usable { .. } if stage.last.ticks == 0 => {}
                event => {
                    if let (Event::Realloc { old, .. }, false) = (event, self.moving.is_empty()) {
                        self.moving.remove(&old);
                    }
                    self.make_room(event.block());
                    self.show(place, event);
                }
            }
        }
        None
    }

    /// If `block` is the old block of a realloc in progress, show this realloc first. The allocator had already freed
    /// the old block there, because the current call gets its address.
    fn make_room(&mut self, block: u64) {
        if self.moving.is_empty() {
            return;
        }
        let Some(place) = self.moving.remove(&block) else { return };
        let Some(stage) = &mut self.open[place] else { return };
        if let Some(event) = stage.next.take() {
            self.show(place, event);
        }
    }
}

/// Call `visit` for the events of all stages, in the order of their times, as long as `visit` returns true. Return
/// whether all stages were whole.
///
/// - `ticks`: the time of the first call of each stage.
/// - `attend` fails if the work has to stop.
/// - `unpack` returns the stage with the given index; None if the stage is damaged.
pub(super) fn show(
    ticks: &[u64],
    room: &Room,
    mut attend: impl FnMut() -> Result<()>,
    mut unpack: impl FnMut(usize) -> Result<Option<Vec<u8>>>,
    visit: impl FnMut(Event, &[u8]) -> bool,
) -> Result<bool> {
    let mut waiting: Vec<(u64, usize)> = ticks.iter().copied().zip(0..).collect();
    waiting.sort_unstable();
    let mut waiting = waiting.into_iter().peekable();
    let (open, order, moving) = (Vec::new(), BinaryHeap::new(), HashMap::new());
    let mut course =
        StageMerger { room, open, order, moving, thread: 0, is_whole: true, read: 0, is_wanted: true, visit };
    let mut attended = 0;
    while course.is_wanted {
        let first = course.order.peek().map_or(u64::MAX, |Reverse((tick, _))| *tick);
        if let Some((tick, number)) = waiting.next_if(|(tick, _)| *tick <= first) {
            attend()?;
            match unpack(number)? {
                Some(stage) => course.begin(stage, tick),
                None => course.is_whole = false,
            }
            continue;
        }
        if course.read - attended >= UNWATCHED {
            attend()?;
            attended = course.read;
        }
        let Some(Reverse((_, place))) = course.order.pop() else { break };
        let others = course.order.peek().map_or(u64::MAX, |Reverse((tick, _))| *tick);
        let until = others.min(waiting.peek().map_or(u64::MAX, |(tick, _)| *tick));
        match course.follow(place, until) {
            Some(tick) => course.order.push(Reverse((tick, place))),
            None => {
                let ended = course.open[place].take();
                course.is_whole &= ended.is_none_or(|stage| stage.is_whole);
            }
        }
    }
    attend()?;
    Ok(course.is_whole)
}

#[cfg(test)]
mod tests {
    use super::super::testing::random;
    use super::*;
    use gdbheap_calls::{encode, MAX_EVENT};

    fn stage_of(events: &[Event]) -> Vec<u8> {
        let (mut bytes, mut last) = (Vec::new(), LastValues::default());
        for event in events {
            let mut room = [0; MAX_EVENT];
            let (first, used) = encode(*event, &mut last, &mut room);
            room[0] = first;
            bytes.extend_from_slice(&room[..used]);
        }
        bytes
    }

    /// Check that calls of several threads come in the order of their times. Each call must be shown with its own
    /// thread, whatever the sizes of the stages.
    #[test]
    fn calls_come_in_the_order_of_time() {
        for seed in 1..50u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut threads = vec![Vec::new(); 4];
            let mut wanted = Vec::new();
            for tick in 1..500u64 {
                let thread = random(&mut state) as usize % threads.len();
                threads[thread].push(tick);
                wanted.push((thread as u32 + 1, tick));
            }
            let (mut ticks, mut stages) = (Vec::new(), Vec::new());
            for (thread, all) in threads.iter().enumerate() {
                for part in all.chunks(1 + random(&mut state) as usize % 90) {
                    let mut events =
                        vec![Event::Time { nanoseconds: part[0] }, Event::Switch { thread: thread as u32 + 1 }];
                    for tick in part {
                        events.extend([Event::Tick { ticks: *tick }, Event::Malloc { size: *tick, result: 16 * tick }]);
                    }
                    ticks.push(part[0]);
                    stages.push(stage_of(&events));
                }
            }
            let (mut found, mut current) = (Vec::new(), 0);
            let unpack = |number: usize| Ok(Some(stages[number].clone()));
            let whole = show(
                &ticks,
                &Room::new(1 << 30),
                || Ok(()),
                unpack,
                |event, _| {
                    match event {
                        Event::Switch { thread } => current = thread,
                        Event::Malloc { size, .. } => found.push((current, size)),
                        _ => {}
                    }
                    true
                },
            );
            assert!(whole.unwrap());
            assert_eq!(found, wanted, "seed {seed}");
        }
    }

    /// Check the order of a realloc that moves a block, and of a call that then gets the block's old address. The
    /// realloc must come first, even if it returned later.
    #[test]
    fn a_block_is_given_back_in_the_middle_of_a_call() {
        let tick = |ticks| Event::Tick { ticks };
        let (first, second) = (Event::Thread { thread: 1, tid: 1 }, Event::Thread { thread: 2, tid: 2 });
        let given = Event::Malloc { size: 8, result: 0x10 };
        let moved = Event::Realloc { size: 80, old: 0x10, result: 0x90 };
        let freed = Event::Free { address: 0x90 };
        let mover = stage_of(&[first, tick(1), given, tick(3), tick(9), moved, tick(10), freed]);
        let stages = [mover, stage_of(&[second, tick(7), given])];
        let mut found = Vec::new();
        let unpack = |number: usize| Ok(Some(stages[number].clone()));
        let whole = show(
            &[1, 7],
            &Room::new(1 << 30),
            || Ok(()),
            unpack,
            |event, _| {
                found.push(event);
                true
            },
        );
        assert!(whole.unwrap());
        let switch = |thread| Event::Switch { thread };
        assert_eq!(found, [first, given, second, switch(1), moved, switch(2), given, switch(1), freed]);
    }
}
