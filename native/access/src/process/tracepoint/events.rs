//! The kernel's events of a tracepoint: one for each thread on each processor, with a ring of records for each
//! processor.
//!
//! A thread that starts later inherits the events of the thread that starts it. This requires one ring for each
//! processor (perf_event_open(2)). If a thread inherits events and also gets events of its own, two events report each
//! of its calls. A thread may start while its parent's events are being opened. It then inherits only some of these
//! events, or none, and may not be listed yet. Such a thread is the first that its parent starts after the parent's
//! events are open. A record reports this start, and gdbheap then opens the missing events.

use super::record::{Record, RecordEvent, RecordReader};
use crate::arch::registers::PERF_MASK;
use crate::folder::ProcessFolder;
use perf_event::events::Tracepoint;
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag, Sampler};
use perf_event_open_sys::ioctls;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The number of bytes of a stack that are copied; the other bytes of the stack are unknown.
const STACK_BYTES: u32 = 8 << 10;
const RING: usize = 1 << 20;
const RING_WITH_STACKS: usize = 4 << 20;
const ALL_RINGS: usize = 128 << 20;
const LEAST_RING: usize = 64 << 10;
/// The longest time that clone(2) may take. If a thread is started within this time after its parent's events were
/// opened, it may lack some of these events.
const START: Duration = Duration::from_secs(1);
/// The number of files that this process may have open for other purposes.
const OTHER_FILES: u64 = 256;

/// Features that only newer kernels have.
#[derive(Clone, Copy)]
struct Features {
    /// Whether threads inherit events, but processes do not (Linux 5.13).
    threads: bool,
    /// Whether events count all lost records (Linux 6.0). Otherwise, a loss is reported only by a later record.
    lost: bool,
}

const FEATURES: [Features; 3] = [
    Features { threads: true, lost: true },
    Features { threads: true, lost: false },
    Features { threads: false, lost: false },
];

/// A process to follow, the system calls to report, and whether to copy the stacks of these calls.
#[derive(Clone, Debug)]
pub struct TraceRequest {
    pub process: ProcessFolder,
    pub tracepoint: super::tracefs::Tracepoint,
    pub numbers: Vec<u32>,
    pub stacks: bool,
}

/// The perf events that report the system calls of a process, and the rings into which the kernel writes their records.
pub(super) struct Events {
    process: ProcessFolder,
    processors: Vec<usize>,
    builder: Builder<'static>,
    filter: CString,
    reader: RecordReader,
    ring_size: usize,
    counts_lost: bool,
    rings: BTreeMap<usize, Sampler>,
    others: Vec<Counter>,
    /// The threads that have events of their own.
    known: BTreeSet<i32>,
    /// The threads that have not been seen to start another thread since their own events were opened. The value is the
    /// time when the events were opened.
    fresh: HashMap<i32, Instant>,
    /// For each event, the thread and the processor for which it was opened.
    origins: HashMap<u64, (i32, usize)>,
    told_lost: u64,
    refused: u64,
}

impl Events {
    /// Open the events of all threads of a process.
    pub(super) fn open(traced: &TraceRequest) -> Result<Events, Error> {
        let mut refused = Error::from_raw_os_error(libc::EINVAL);
        for features in FEATURES {
            match Events::open_with(traced, features) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) || error.kind() == ErrorKind::Unsupported => {
                    refused = error;
                }
                answer => return answer,
            }
        }
        Err(refused)
    }

    fn open_with(traced: &TraceRequest, features: Features) -> Result<Events, Error> {
        let processors = processors();
        let most = if traced.stacks { RING_WITH_STACKS } else { RING };
        let terms: Vec<String> = traced.numbers.iter().map(|number| format!("id == {number}")).collect();
        let mut events = Events {
            process: traced.process.clone(),
            builder: builder(traced, features),
            filter: CString::new(terms.join(" || "))?,
            reader: RecordReader { number_at: traced.tracepoint.number_at },
            ring_size: (ALL_RINGS / processors.len().max(1)).clamp(LEAST_RING, most),
            processors,
            counts_lost: features.lost,
            rings: BTreeMap::new(),
            others: Vec::new(),
            known: BTreeSet::new(),
            fresh: HashMap::new(),
            origins: HashMap::new(),
            told_lost: 0,
            refused: 0,
        };
        events.open_threads()?;
        // Otherwise the events may belong to another process that has the id now.
        if events.rings.is_empty() || !traced.process.is_there() {
            return Err(Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(events)
    }

    /// Open events for all threads that have none of their own, until no thread is new. Threads that are started after
    /// that inherit these events.
    fn open_threads(&mut self) -> Result<(), Error> {
        loop {
            let threads: BTreeSet<i32> = self.process.tasks().unwrap_or_default().into_iter().collect();
            let new: Vec<i32> = threads.difference(&self.known).copied().collect();
            if new.is_empty() {
                return Ok(());
            }
            let files = self.others.len() + self.rings.len() + new.len() * self.processors.len();
            raise_file_limit(files as u64 + OTHER_FILES);
            self.open_each(&new)?;
        }
    }

    fn open_each(&mut self, new: &[i32]) -> Result<(), Error> {
        let enabled = self.others.len();
        for tid in new {
            self.open_thread(*tid)?;
        }
        let rings = self.rings.values_mut().map(Sampler::as_counter_mut);
        for counter in rings.chain(&mut self.others[enabled..]) {
            counter.enable()?;
        }
        self.known.extend(new);
        self.fresh.extend(new.iter().map(|tid| (*tid, Instant::now())));
        Ok(())
    }

    /// Record that `parent` has started a thread. If the parent's events were opened shortly before, the thread may
    /// lack some of them: open events for all threads that have none of their own. If that fails, count one lost call.
    pub(super) fn see_start(&mut self, parent: i32) {
        let opened = self.fresh.remove(&parent);
        if opened.is_some_and(|opened| opened.elapsed() < START) && self.open_threads().is_err() {
            self.refused += 1;
        }
    }

    fn open_thread(&mut self, tid: i32) -> Result<(), Error> {
        for number in 0..self.processors.len() {
            match self.open_event(tid, self.processors[number]) {
                // The thread has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                // The processor was switched off.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                answer => answer?,
            }
        }
        Ok(())
    }

    fn open_event(&mut self, tid: i32, processor: usize) -> Result<(), Error> {
        self.builder.observe_pid(tid).one_cpu(processor);
        let event = match self.rings.get(&processor) {
            Some(ring) => {
                let counter = self.counter()?;
                // SAFETY: both descriptors are open.
                check(unsafe { ioctls::SET_OUTPUT(counter.as_raw_fd(), ring.as_raw_fd()) })?;
                let event = counter.id();
                self.others.push(counter);
                event
            }
            None => {
                let ring = self.ring()?;
                let event = ring.id();
                self.rings.insert(processor, ring);
                event
            }
        };
        self.origins.insert(event, (tid, processor));
        Ok(())
    }

    fn counter(&self) -> Result<Counter, Error> {
        let counter = self.builder.build()?;
        // SAFETY: the kernel reads a text that ends with a null byte.
        check(unsafe { ioctls::SET_FILTER(counter.as_raw_fd(), self.filter.as_ptr().cast_mut()) })?;
        Ok(counter)
    }

    /// Open an event with the largest ring that this user may have.
    fn ring(&mut self) -> Result<Sampler, Error> {
        loop {
            self.ring_size = 1 << self.ring_size.ilog2();
            self.builder.wakeup_watermark(self.ring_size / 4);
            match self.counter()?.sampled(self.ring_size) {
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM))
                        && self.ring_size > LEAST_RING =>
                {
                    self.ring_size /= 2;
                }
                answer => return answer,
            }
        }
    }

    /// Return the thread and the processor for which an event was opened; None if the event is unknown. Threads that
    /// inherited the event do not change the result.
    pub(super) fn origin(&self, event: u64) -> Option<(i32, usize)> {
        self.origins.get(&event).copied()
    }

    /// Pass all records that are in the rings now to the function `to`, and remove them from the rings.
    pub(super) fn drain(&mut self, mut to: impl FnMut(Record)) {
        for ring in self.rings.values_mut() {
            let config = ring.config().clone();
            while let Some(record) = ring.next_record() {
                let found = self.reader.read(&record, config.clone());
                drop(record);
                let Some(found) = found else { continue };
                if let RecordEvent::Lost(count) = found.what {
                    self.told_lost += count;
                }
                to(found);
            }
        }
    }

    /// Return the number of records that were lost because a ring was full. Some losses may not be known yet.
    pub(super) fn lost(&mut self) -> u64 {
        if !self.counts_lost {
            return self.told_lost + self.refused;
        }
        let counters = self.rings.values_mut().map(Sampler::as_counter_mut).chain(&mut self.others);
        let counted = counters.filter_map(|counter| counter.read_full().ok()?.lost()).sum();
        self.told_lost.max(counted) + self.refused
    }

    /// Wait until a ring is filled to a quarter, a signal comes, or `limit` is over.
    pub(super) fn wait(&self, limit: Duration) {
        let poll = |ring: &Sampler| libc::pollfd { fd: ring.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<libc::pollfd> = self.rings.values().map(poll).collect();
        // SAFETY: the kernel is told the length of the vector.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit.as_millis() as libc::c_int) };
        // Once a thread has ended, poll always returns at once for its ring, although other threads still write to it.
        if polled.iter().any(|polled| polled.revents & libc::POLLHUP != 0) {
            std::thread::sleep(limit / 4);
        }
    }
}

fn builder(traced: &TraceRequest, features: Features) -> Builder<'static> {
    let mut builder = Builder::new(Tracepoint::with_id(traced.tracepoint.id));
    let fields = [SampleFlag::TID, SampleFlag::TIME, SampleFlag::ID, SampleFlag::RAW, SampleFlag::REGS_USER];
    for field in fields {
        builder.sample(field);
    }
    if traced.stacks {
        builder.sample(SampleFlag::STACK_USER).sample_stack_user(STACK_BYTES);
    }
    builder.sample_period(1).sample_regs_user(PERF_MASK).clockid(Clock::MONOTONIC).sample_id_all(true);
    // The tracepoint is in kernel code.
    builder.exclude_kernel(false).exclude_hv(false);
    builder.inherit(true).inherit_thread(features.threads).task(true).comm(true).comm_exec(true);
    builder.read_format(if features.lost { ReadFormat::LOST } else { ReadFormat::empty() });
    builder
}

/// Return the numbers of the processors that are online. The kernel's text `0-3,8` stands for five numbers.
fn processors() -> Vec<usize> {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let ranges = listed.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    let found: Vec<usize> = ranges.flatten().collect();
    if !found.is_empty() {
        return found;
    }
    // SAFETY: takes a number.
    (0..unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize).collect()
}

/// Raise the limit of open files as far as this user may. If that is not enough, opening will fail.
fn raise_file_limit(wanted: u64) {
    // SAFETY: plain data of this function.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < wanted {
            limit.rlim_cur = wanted.min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

fn check(answer: libc::c_int) -> Result<(), Error> {
    match answer {
        ..0 => Err(Error::last_os_error()),
        _ => Ok(()),
    }
}
