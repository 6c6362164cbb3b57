//! Reports the system calls of a process when they end. It uses a tracepoint of the kernel, and does not stop threads.
//!
//! At the tracepoint, a thread's registers still contain the arguments and the result. The kernel copies them into a
//! ring buffer, with the bytes at the stack pointer if stacks are wanted. The records from the rings of several
//! processors are sorted by time.

mod events;
mod record;
mod tracefs;

use crate::memory::own::monotonic_time;
use crate::process::telling::{Finish, Hit, Teller, Trace, WAKE};
use crate::process::tracer::{raise_priority, Failure};
use crate::stat::has_ended;
use crate::tables::read_table;
use events::Events;
pub use events::TraceRequest;
use record::{Record, RecordEvent};
use std::collections::{BTreeMap, HashMap};
use std::io::Error;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;
pub use tracefs::{tracepoint, Tracepoint};

/// The largest number of attempts to read the mappings while the process makes no call.
const ATTEMPTS: usize = 10;
const NAP: Duration = Duration::from_millis(1);
/// The longest time that a system call may take after it has changed the mappings, until it reaches the tracepoint at
/// its end.
const SETTLED: Duration = Duration::from_millis(1);
/// The largest number of hits that may wait to be fetched. If there are more, further hits stay in the rings, whose
/// size is limited.
const MAX_WAITING: usize = 5000;

/// The work of the thread that reads the rings of a process's tracepoint events and reports the hits.
pub(crate) struct RingReader(TraceRequest);

impl RingReader {
    pub(crate) fn new(traced: TraceRequest) -> RingReader {
        RingReader(traced)
    }
}

impl Trace for RingReader {
    fn trace(self, teller: Teller, ready: &Sender<Result<(), Failure>>) -> Finish {
        raise_priority();
        let opened = Events::open(&self.0).map(|events| View::new(self.0, events));
        let mut view = match opened.and_then(|mut view| view.begin(&teller).map(|()| view)) {
            Ok(view) => view,
            Err(error) => {
                let _ = ready.send(Err(error.into()));
                return Finish::Asked;
            }
        };
        if ready.send(Ok(())).is_err() {
            teller.shared.ending.store(true, Ordering::SeqCst);
        }
        let finish = view.follow(&teller);
        teller.shared.lost.store(view.lost(), Ordering::SeqCst);
        finish
    }
}

/// The mappings of a process. They include every change made before `from`, and no change made after `until`. They may
/// or may not include changes made between these times.
#[derive(Default)]
struct Mappings {
    from: u64,
    until: u64,
    text: Vec<u8>,
}

struct View {
    traced: TraceRequest,
    events: Events,
    /// The records that were read but not reported yet, by time. The second number of a key distinguishes records with
    /// equal times.
    order: BTreeMap<(u64, u64), Record>,
    read: u64,
    /// For each thread and each processor, the thread for which the reporting event was opened. It is the thread
    /// itself, or a thread that started it.
    tellers: HashMap<i32, BTreeMap<usize, i32>>,
    /// The time during which the mappings were read at the beginning.
    first: Range<u64>,
    /// The number of records that were lost before the mappings were read at the beginning.
    lost_before: u64,
}

impl View {
    fn new(traced: TraceRequest, events: Events) -> View {
        View { traced, events, order: BTreeMap::new(), read: 0, tellers: HashMap::new(), first: 0..0, lost_before: 0 }
    }

    /// Read the mappings. Only calls made after the start of this reading are reported.
    fn begin(&mut self, teller: &Teller) -> Result<(), Error> {
        self.lost_before = self.events.lost();
        let found = self.mappings()?;
        self.first = found.from..found.until;
        teller.shared.keep_maps(0, found.text);
        Ok(())
    }

    fn lost(&mut self) -> u64 {
        self.events.lost() - self.lost_before
    }

    /// Read the mappings, if possible at a time when the process makes no call during the reading and shortly after it.
    fn mappings(&mut self) -> Result<Mappings, Error> {
        let mut found = Mappings::default();
        for _ in 0..ATTEMPTS {
            // Make room in the rings.
            self.drain();
            found.from = now();
            found.text = read_table(self.traced.process.path("maps").as_ref(), u64::MAX)?;
            std::thread::sleep(SETTLED);
            found.until = now();
            self.drain();
            if !self.order.range((found.from, 0)..).any(|(_, record)| self.may_map(record)) {
                break;
            }
            std::thread::sleep(NAP);
        }
        Ok(found)
    }

    fn may_map(&self, record: &Record) -> bool {
        match record.what {
            RecordEvent::Call { .. } => record.pid == self.traced.process.pid(),
            RecordEvent::Lost(_) => true,
            RecordEvent::Started { .. } | RecordEvent::Exec => false,
        }
    }

    fn drain(&mut self) {
        let View { traced, events, order, read, .. } = self;
        let mut starters = Vec::new();
        events.drain(|record| {
            *read += 1;
            starters.extend(record.starter().filter(|_| record.pid == traced.process.pid()));
            order.insert((record.time, *read), record);
        });
        starters.into_iter().for_each(|parent| events.see_start(parent));
    }

    /// Report hits until asked to end, or until there is nothing more to see. Each record is reported one round of the
    /// loop after it was read, because another ring may contain an earlier record.
    fn follow(&mut self, teller: &Teller) -> Finish {
        let mut last = now();
        while !teller.shared.is_ending() {
            self.events.wait(WAKE);
            let gone = has_ended(&self.traced.process.path("status"));
            if !gone && teller.shared.waiting.load(Ordering::SeqCst) > MAX_WAITING {
                std::thread::sleep(NAP);
                continue;
            }
            let round = now();
            self.drain();
            if self.tell(teller, if gone { u64::MAX } else { last }, u64::MAX) {
                return Finish::Exec;
            }
            if gone {
                return Finish::Gone;
            }
            last = round;
        }
        self.end(teller)
    }

    /// Read the mappings once more, and report the calls before the end of this reading.
    fn end(&mut self, teller: &Teller) -> Finish {
        let unread = Mappings { from: u64::MAX, until: u64::MAX, text: Vec::new() };
        let found = self.mappings().unwrap_or(unread);
        teller.shared.keep_maps(1, found.text);
        if self.tell(teller, found.until, found.from) {
            return Finish::Exec;
        }
        Finish::Asked
    }

    /// Report all calls before the time `until`. Calls at or after the time `last` are doubtful. Return true if the
    /// process runs another program after these calls.
    fn tell(&mut self, teller: &Teller, until: u64, last: u64) -> bool {
        let later = self.order.split_off(&(until, 0));
        for record in std::mem::replace(&mut self.order, later).into_values() {
            if record.time < self.first.start {
                continue;
            }
            match record.what {
                RecordEvent::Exec if record.pid == self.traced.process.pid() => return true,
                RecordEvent::Started { .. } => {
                    self.tellers.remove(&record.tid);
                }
                RecordEvent::Call { .. } if record.pid == self.traced.process.pid() => {
                    self.tell_call(teller, record, last)
                }
                _ => {}
            }
        }
        false
    }

    /// Report a call once, even if two events report its thread on a processor.
    ///
    /// Both events report all later calls of the thread on that processor. So the reports of the event that was first
    /// are used, and those of the other event are ignored. A thread that starts while its parent's events are being
    /// opened inherits these events on some processors only.
    fn tell_call(&mut self, teller: &Teller, record: Record, last: u64) {
        let (pid, tid) = (record.pid, record.tid);
        let doubtful = self.first.contains(&record.time) || record.time >= last;
        let RecordEvent::Call { event, number, registers, stack } = record.what else { return };
        let Some((origin, processor)) = self.events.origin(event) else { return };
        let place = self.traced.numbers.iter().position(|wanted| u64::from(*wanted) == number);
        let teller_here = self.tellers.entry(tid).or_default().entry(processor).or_insert(origin);
        if place.is_some() && *teller_here == origin {
            teller.pass_on(Hit { pid, tid, place, registers, stack, doubtful });
        }
    }
}

/// Return the time of the clock that records use, in nanoseconds.
fn now() -> u64 {
    monotonic_time().as_nanos() as u64
}
