//! The kernel's events of a tracepoint, one for each thread on each processor, and a ring of records for each processor.
//!
//! Threads that start later inherit the events of those that start them, which takes one ring for each processor
//! (perf_event_open(2)). A thread may be listed and inherit: then two events tell of it. One that is being started while its
//! parent's are opened inherits some of them, or none, and may not be listed yet: it is the first that its parent starts
//! once they are open, which a record tells.

use super::record::{Reader, Record, What};
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

/// Of a stack; what lies further out is not known.
const STACK_BYTES: u32 = 8 << 10;
const RING: usize = 1 << 20;
const RING_WITH_STACKS: usize = 4 << 20;
const ALL_RINGS: usize = 128 << 20;
const LEAST_RING: usize = 64 << 10;
/// For how long a thread may be on its way to start another one, at most.
const START: Duration = Duration::from_secs(1);
/// What else is open.
const OTHER_FILES: u64 = 256;

/// What only newer kernels can do.
#[derive(Clone, Copy)]
struct Features {
    /// Events are inherited by threads, and not by processes (Linux 5.13).
    threads: bool,
    /// They count what was lost (6.0), also what no record tells of because none came after it.
    lost: bool,
}

const FEATURES: [Features; 3] = [
    Features { threads: true, lost: true },
    Features { threads: true, lost: false },
    Features { threads: false, lost: false },
];

/// A process, the system calls that are to be seen, and whether their stacks are wanted.
#[derive(Clone, Debug)]
pub struct Traced {
    pub process: ProcessFolder,
    pub tracepoint: super::tracefs::Tracepoint,
    pub numbers: Vec<u32>,
    pub stacks: bool,
}

/// The events of a process, and their rings.
pub(super) struct Events {
    process: ProcessFolder,
    processors: Vec<usize>,
    builder: Builder<'static>,
    filter: CString,
    reader: Reader,
    ring_size: usize,
    counts_lost: bool,
    rings: BTreeMap<usize, Sampler>,
    others: Vec<Counter>,
    /// Threads that have events of their own.
    known: BTreeSet<i32>,
    /// Those of which none was seen to start another one since, and when that was.
    fresh: HashMap<i32, Instant>,
    /// The thread and the processor that each event was opened for.
    origins: HashMap<u64, (i32, usize)>,
    told_lost: u64,
    refused: u64,
}

impl Events {
    /// Of all threads of a process, from now on.
    pub(super) fn open(traced: &Traced) -> Result<Events, Error> {
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

    fn open_with(traced: &Traced, features: Features) -> Result<Events, Error> {
        let processors = processors();
        let most = if traced.stacks { RING_WITH_STACKS } else { RING };
        let terms: Vec<String> = traced.numbers.iter().map(|number| format!("id == {number}")).collect();
        let mut events = Events {
            process: traced.process.clone(),
            builder: builder(traced, features),
            filter: CString::new(terms.join(" || "))?,
            reader: Reader { number_at: traced.tracepoint.number_at },
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
        // Else they may be those of another process that has its number.
        if events.rings.is_empty() || !traced.process.is_there() {
            return Err(Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(events)
    }

    /// Of all threads that have none of their own, until none is new: whoever starts one by then has it inherit.
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

    /// Opens those of threads that may lack some, where `parent` has started one that was on its way when its own were opened.
    /// What it does where that is refused counts as one call that is lost.
    pub(super) fn see_start(&mut self, parent: i32) {
        let opened = self.fresh.remove(&parent);
        if opened.is_some_and(|opened| opened.elapsed() < START) && self.open_threads().is_err() {
            self.refused += 1;
        }
    }

    fn open_thread(&mut self, tid: i32) -> Result<(), Error> {
        for number in 0..self.processors.len() {
            match self.open_event(tid, self.processors[number]) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                // Somebody has switched the processor off.
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

    /// As large as this user may have it.
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

    /// The thread that an event was opened for, which may have handed it on, and the processor.
    pub(super) fn origin(&self, event: u64) -> Option<(i32, usize)> {
        self.origins.get(&event).copied()
    }

    /// All records that are in the rings now.
    pub(super) fn drain(&mut self, mut to: impl FnMut(Record)) {
        for ring in self.rings.values_mut() {
            let config = ring.config().clone();
            while let Some(record) = ring.next_record() {
                let found = self.reader.read(&record, config.clone());
                drop(record);
                let Some(found) = found else { continue };
                if let What::Lost(count) = found.what {
                    self.told_lost += count;
                }
                to(found);
            }
        }
    }

    /// How many records found no room, as far as that is known.
    pub(super) fn lost(&mut self) -> u64 {
        if !self.counts_lost {
            return self.told_lost + self.refused;
        }
        let counters = self.rings.values_mut().map(Sampler::as_counter_mut).chain(&mut self.others);
        let counted = counters.filter_map(|counter| counter.read_full().ok()?.lost()).sum();
        self.told_lost.max(counted) + self.refused
    }

    /// Until a ring is filled to a quarter, a signal comes, or for as long as `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        let poll = |ring: &Sampler| libc::pollfd { fd: ring.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<libc::pollfd> = self.rings.values().map(poll).collect();
        // SAFETY: as many as the kernel is told.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit.as_millis() as libc::c_int) };
        // Of a thread that has ended: at once, for ever, while others write to its ring.
        if polled.iter().any(|polled| polled.revents & libc::POLLHUP != 0) {
            std::thread::sleep(limit / 4);
        }
    }
}

fn builder(traced: &Traced, features: Features) -> Builder<'static> {
    let mut builder = Builder::new(Tracepoint::with_id(traced.tracepoint.id));
    let fields = [SampleFlag::TID, SampleFlag::TIME, SampleFlag::ID, SampleFlag::RAW, SampleFlag::REGS_USER];
    for field in fields {
        builder.sample(field);
    }
    if traced.stacks {
        builder.sample(SampleFlag::STACK_USER).sample_stack_user(STACK_BYTES);
    }
    builder.sample_period(1).sample_regs_user(PERF_MASK).clockid(Clock::MONOTONIC).sample_id_all(true);
    // The tracepoint is the kernel's code.
    builder.exclude_kernel(false).exclude_hv(false);
    builder.inherit(true).inherit_thread(features.threads).task(true).comm(true).comm_exec(true);
    builder.read_format(if features.lost { ReadFormat::LOST } else { ReadFormat::empty() });
    builder
}

/// The processors that are switched on: of `0-3,8` five.
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

/// As far as this user may; opening says if it is not enough.
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
