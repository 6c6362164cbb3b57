//! Follows a running process, and notices each thread that comes to one of the patched places.
//!
//! One thread of gdbheap has seized all threads of the target. A thread that comes to a patched place sends itself a
//! signal, and this signal stops it. From any other stop, a thread continues at once. The process keeps running in
//! every case: the kernel detaches when the tracer dies, the patches do nothing without a tracer, and a guard removes
//! them.
//!
//! Code is written only while every thread is stopped. A thread in uninterruptible sleep may not stop for a long time.
//! The other threads are then stopped only for moments, and only a limited number of times.
#![forbid(unsafe_code)]

use crate::arch::registers::{self, PROGRAM_COUNTER, STACK_POINTER};
use crate::arch::restarting::restart_interrupted;
use crate::arch::system_call;
use crate::folder::ProcessFolder;
use crate::memory::space::read_process;
use crate::process::guard::Guard;
use crate::process::patch::{self, text, Patch};
use crate::process::program_memory::ProgramMemory;
use crate::process::ptrace::{self, ThreadEvent};
use crate::process::sharers::{has_sharer, is_sharer};
use crate::process::telling::{Finish, Teller, Trace};
use crate::process::tracer::{raise_priority, restart_unhandled, Failure, Tracer, STUCK};
use crate::stat;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(5);
/// The time limit for all attempts to change the code, and for all attempts to restore it.
const PATIENCE: Duration = Duration::from_secs(2);
const OPTIONS: i32 = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEEXEC;

/// The request to follow a process.
///
/// It has the process, the patches, and the signal by which threads report that they reached a patched place. It also
/// has the memory of the program, which was opened before the code was searched for places to patch.
#[derive(Clone, Debug)]
pub struct FollowRequest {
    pub process: ProcessFolder,
    pub memory: ProgramMemory,
    pub patches: Vec<Patch>,
    pub signal: i32,
}

/// The tracer's thread: the request, the time limit for changes of the code, and the threads of the process.
pub(crate) struct Chase {
    course: FollowRequest,
    limit: Duration,
    threads: BTreeSet<i32>,
    /// The forked children that have not stopped yet.
    children: BTreeSet<i32>,
}

impl Chase {
    pub(crate) fn new(course: FollowRequest, limit: Duration) -> Chase {
        Chase { course, limit, threads: BTreeSet::new(), children: BTreeSet::new() }
    }
}

impl Trace for Chase {
    fn trace(mut self, teller: Teller, ready: &Sender<Result<(), Failure>>) -> Finish {
        raise_priority();
        let guard = match Guard::new(&self.course.process, &self.course.memory, &self.course.patches) {
            Ok(guard) => guard,
            Err(error) => {
                let _ = ready.send(Err(error.into()));
                return Finish::Asked;
            }
        };
        if let Err(failure) = self.begin(&teller) {
            guard.dismiss();
            let _ = ready.send(Err(failure));
            return Finish::Asked;
        }
        if ready.send(Ok(())).is_err() {
            teller.shared.ending.store(true, Ordering::SeqCst);
        }
        let finish = self.follow(&teller);
        let is_restored = finish != Finish::Asked || self.take_out(&teller);
        self.await_children();
        if is_restored {
            guard.dismiss();
        } else {
            teller.shared.is_unrestored.store(true, Ordering::SeqCst);
            guard.take_over();
        }
        finish
    }
}

impl Chase {
    /// Stop the process, insert the patches, and let it run while it is traced.
    fn begin(&mut self, teller: &Teller) -> Result<(), Failure> {
        let began = Instant::now();
        // All attempts use one tracer: a thread that did not stop in one attempt stays seized until it does, or until
        // this thread ends.
        let mut tracer = Tracer::new(&self.course.process, None);
        loop {
            tracer.stop(&teller.shared.cancelled)?;
            let put_in = self.put_in(&tracer);
            if matches!(put_in, Ok(None)) {
                teller.shared.note_maps(0, &self.course.process);
                self.take_over(&mut tracer, teller);
                return Ok(());
            }
            tracer.release();
            match put_in? {
                _ if teller.shared.cancelled.load(Ordering::SeqCst) => return Err(Failure::Cancelled),
                Some(in_the_way) if began.elapsed() > PATIENCE => return Err(Failure::Timeout(in_the_way)),
                _ => std::thread::sleep(NAP),
            }
        }
    }

    /// Insert the patches. Return None on success. Otherwise return the id of a thread that is inside the code to be
    /// changed, or that cannot be stopped. EBUSY if another process shares the memory; EOPNOTSUPP if a thread redirects
    /// its system calls to a handler.
    fn put_in(&self, tracer: &Tracer) -> Result<Option<i32>, Failure> {
        let patches = &self.course.patches;
        let in_the_way = tracer
            .threads
            .iter()
            .find(|(_, thread)| !thread.stopped || text::is_inside(patches, thread.registers.program_counter));
        if let Some((tid, _)) = in_the_way {
            return Ok(Some(*tid));
        }
        if tracer.threads.is_empty() {
            return Ok(Some(tracer.pid));
        }
        if has_sharer(tracer.pid)? {
            return Err(io::Error::from_raw_os_error(libc::EBUSY).into());
        }
        // The patches make system calls, which the program's handler would take for its own.
        if tracer.threads.keys().any(|tid| ptrace::is_dispatched(*tid)) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP).into());
        }
        text::put_in(&self.course.memory, patches)?;
        Ok(None)
    }

    fn take_over(&mut self, tracer: &mut Tracer, teller: &Teller) {
        let stood = tracer.since().map_or(Duration::ZERO, |since| since.elapsed());
        for (tid, thread) in std::mem::take(&mut tracer.threads) {
            let _ = ptrace::set_options(tid, OPTIONS);
            let _ = if thread.group_stop == 0 { ptrace::go_on(tid, 0) } else { ptrace::listen(tid) };
            self.threads.insert(tid);
        }
        teller.shared.held.fetch_add(stood.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Follow the process until asked to end, or until there is nothing more to follow.
    fn follow(&mut self, teller: &Teller) -> Finish {
        loop {
            if teller.shared.is_ending() {
                return Finish::Asked;
            }
            if self.threads.is_empty() {
                return Finish::Gone;
            }
            match ptrace::peek_any(0) {
                Ok((tid, ThreadEvent::Stopped { event: libc::PTRACE_EVENT_EXEC, .. })) => {
                    let _ = ptrace::detach(tid, 0);
                    return Finish::Exec;
                }
                Ok((tid, waited)) => self.attend(tid, waited, teller),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Finish::Gone,
            }
        }
    }

    /// Handle an event of a thread. Let the thread continue if it is stopped.
    fn attend(&mut self, tid: i32, waited: ThreadEvent, teller: &Teller) {
        match waited {
            ThreadEvent::Running => {}
            ThreadEvent::Gone => self.forget(tid),
            ThreadEvent::Stopped { event: ptrace::EVENT_STOP, .. } if !self.is_known(tid) => self.free_child(tid),
            ThreadEvent::Stopped { signal: libc::SIGTRAP, event: ptrace::EVENT_STOP } => {
                // This is the late stop of an interrupt that was requested twice.
                restart_interrupted(tid);
                let _ = ptrace::go_on(tid, 0);
            }
            ThreadEvent::Stopped { event: ptrace::EVENT_STOP, .. } => {
                ptrace::wait(tid, false);
                let _ = ptrace::listen(tid);
            }
            ThreadEvent::Stopped { event: libc::PTRACE_EVENT_FORK, .. } => {
                // The child stops by itself, but perhaps only much later: the kernel first writes to a page that may
                // be slow to arrive. Nothing waits for that.
                // Its stop may have come before this event.
                let child = ptrace::event_message(tid).map(|child| child as i32);
                self.children.extend(child.ok().filter(|child| !matches!(ptrace::peek(*child), ThreadEvent::Gone)));
                let _ = ptrace::go_on(tid, 0);
            }
            ThreadEvent::Stopped { signal, event: 0 } => {
                let passed = if signal == self.course.signal && self.meet(tid, teller) { 0 } else { signal };
                restart_unhandled(tid, passed);
                if passed != 0 && stat::ignores(&self.course.process.path("status"), passed) {
                    self.have_others_stop(tid);
                }
                let _ = ptrace::go_on(tid, passed);
            }
            ThreadEvent::Stopped { .. } => {
                let _ = ptrace::go_on(tid, 0);
            }
        }
    }

    /// Interrupt all threads except `tid`, which gets a signal that the process ignores.
    ///
    /// If the signal comes a second time, it may wake another thread from its system call, although `tid` takes the
    /// signal. The call would then end with EINTR. After an interrupt, the kernel restarts the call instead.
    fn have_others_stop(&self, tid: i32) {
        for other in self.threads.iter().filter(|other| **other != tid) {
            let _ = ptrace::interrupt(*other);
        }
    }

    /// Return whether `tid` is a thread of the process. A new thread is added to the known threads.
    fn is_known(&mut self, tid: i32) -> bool {
        let is_thread = || std::path::Path::new(&self.course.process.path(&format!("task/{tid}"))).exists();
        self.threads.contains(&tid) || (is_thread() && self.threads.insert(tid))
    }

    /// Remove the patches from a child that has stopped, and release it. It has inherited the patches, but is not
    /// followed. A child that shares the memory of the process (clone with CLONE_VM) keeps them: they are the process's
    /// own, whose threads run. In a process that is not followed, the patches do nothing.
    fn free_child(&mut self, child: i32) {
        self.children.remove(&child);
        if matches!(is_sharer(self.course.process.pid(), child), Ok(false)) {
            if let Ok(memory) = ProgramMemory::of_thread(child) {
                text::take_out(&memory, &self.course.patches);
            }
        }
        let _ = ptrace::detach(child, 0);
    }

    /// If the thread is at a trap, report the hit, wait for the answer if answers are expected, and return true.
    /// Otherwise return false.
    fn meet(&self, tid: i32, teller: &Teller) -> bool {
        let Ok(found) = registers::read(tid) else { return false };
        let Some(place) = self.course.patches.iter().position(|patch| patch.trap == found[PROGRAM_COUNTER]) else {
            return false;
        };
        let mut frame = vec![0u8; patch::frame_size()];
        if read_process(self.course.process.pid(), found[STACK_POINTER], &mut frame) == frame.len() {
            let (registers, _) = patch::original_registers(&found, &frame, self.course.patches[place].seen_at);
            teller.tell(self.course.process.pid(), tid, Some(place), registers);
        }
        true
    }

    /// Forget a thread that has ended, and fetch its exit status from the kernel. If gdbheap started the process, the
    /// kernel also reports the end of the first thread.
    fn forget(&mut self, tid: i32) {
        self.threads.remove(&tid);
        self.children.remove(&tid);
        ptrace::wait(tid, false);
    }

    /// Stop all threads, restore the code and release them. Return whether that succeeded. Between two attempts all
    /// threads run; the next attempt begins when a stuck thread stops.
    fn take_out(&mut self, teller: &Teller) -> bool {
        let began = Instant::now();
        let mut nap = STUCK;
        loop {
            let since = Instant::now();
            let standing = self.stop_all(teller);
            let stuck: Vec<i32> = self.threads.iter().copied().filter(|tid| !standing.contains_key(tid)).collect();
            // Another process that shares the memory may run the code, and may keep the memory map locked.
            let has_no_sharer = || matches!(has_sharer(self.course.process.pid()), Ok(false));
            let is_free = stuck.is_empty() && (self.threads.is_empty() || has_no_sharer());
            let is_last = is_free || began.elapsed() + nap > PATIENCE;
            if is_free {
                text::take_out(&self.course.memory, &self.course.patches);
                // The maps are read only now: a sleeping thread may hold the lock that reading them waits for.
                teller.shared.note_maps(1, &self.course.process);
            }
            for (tid, signal) in standing {
                let _ = match signal {
                    _ if is_last => ptrace::detach(tid, 0),
                    libc::SIGTRAP => ptrace::go_on(tid, 0),
                    _ => ptrace::listen(tid),
                };
            }
            teller.shared.held.fetch_add(since.elapsed().as_nanos() as u64, Ordering::SeqCst);
            if is_last {
                return is_free;
            }
            self.attend_all(&stuck, nap, teller);
            nap *= 2;
        }
    }

    /// Wait a moment for the forked children that have not stopped yet, and release each one. The kernel releases the
    /// others when this thread ends; the patches that they keep do nothing.
    fn await_children(&mut self) {
        let began = Instant::now();
        loop {
            for child in std::mem::take(&mut self.children) {
                match ptrace::wait(child, false) {
                    ThreadEvent::Running => {
                        self.children.insert(child);
                    }
                    ThreadEvent::Gone => {}
                    ThreadEvent::Stopped { .. } => self.free_child(child),
                }
            }
            if self.children.is_empty() || began.elapsed() >= STUCK {
                return;
            }
            std::thread::sleep(NAP / 5);
        }
    }

    /// Let each thread that stops continue, until one of the `stuck` threads stops or the time `wait` is over.
    fn attend_all(&mut self, stuck: &[i32], wait: Duration, teller: &Teller) {
        let began = Instant::now();
        while began.elapsed() < wait && !self.threads.is_empty() {
            match ptrace::peek_any(libc::WNOHANG) {
                Ok((_, ThreadEvent::Running)) => std::thread::sleep(NAP / 5),
                Ok((tid, ThreadEvent::Stopped { event: ptrace::EVENT_STOP, .. })) if stuck.contains(&tid) => return,
                Ok((tid, ThreadEvent::Stopped { event: libc::PTRACE_EVENT_EXEC, .. })) => self.leave_to_exec(tid),
                Ok((tid, waited)) => self.attend(tid, waited, teller),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.threads.clear(),
            }
        }
    }

    /// Detach after exec(2): all other threads are gone, and so is the patched code.
    fn leave_to_exec(&mut self, tid: i32) {
        let _ = ptrace::detach(tid, 0);
        self.threads.clear();
    }

    /// Stop all threads. Return each stopped thread and the signal that the kernel reported for its stop. It is SIGTRAP
    /// for an interrupt, or the signal of a group stop.
    ///
    /// Threads that did not stop in time are missing, usually because of uninterruptible sleep. After exec(2) the
    /// result is empty.
    fn stop_all(&mut self, teller: &Teller) -> BTreeMap<i32, i32> {
        let began = Instant::now();
        let mut standing: BTreeMap<i32, i32> = BTreeMap::new();
        for tid in &self.threads {
            let _ = ptrace::interrupt(*tid);
        }
        while standing.len() < self.threads.len() && began.elapsed() < self.limit {
            let running: Vec<i32> = self.threads.iter().copied().filter(|tid| !standing.contains_key(tid)).collect();
            if began.elapsed() > STUCK && running.iter().all(|tid| self.sleeps_uninterruptibly(*tid)) {
                break;
            }
            for tid in running {
                match ptrace::peek(tid) {
                    ThreadEvent::Running => {}
                    ThreadEvent::Stopped { signal, event: ptrace::EVENT_STOP } => {
                        ptrace::wait(tid, false);
                        restart_interrupted(tid);
                        standing.insert(tid, signal);
                    }
                    ThreadEvent::Stopped { event: libc::PTRACE_EVENT_EXEC, .. } => {
                        self.leave_to_exec(tid);
                        return BTreeMap::new();
                    }
                    ThreadEvent::Stopped { event: libc::PTRACE_EVENT_CLONE, .. } => {
                        // The new thread stops by itself before its first instruction.
                        self.threads.extend(ptrace::event_message(tid).map(|new| new as i32));
                        let _ = ptrace::interrupt(tid);
                        let _ = ptrace::go_on(tid, 0);
                    }
                    waited => {
                        // Any other stop that the thread has entered has cancelled the interrupt.
                        let _ = ptrace::interrupt(tid);
                        self.attend(tid, waited, teller);
                    }
                }
            }
            std::thread::yield_now();
        }
        standing
    }

    fn sleeps_uninterruptibly(&self, tid: i32) -> bool {
        stat::sleeps_uninterruptibly(&self.course.process.path(&format!("task/{tid}/status")))
    }
}

/// Let a thread leave a trap: set it back to `address`, its place before the trap, with its registers and signal mask
/// of that moment.
///
/// The thread must be stopped at the trap, and traced by the calling thread.
pub fn return_from_trap(tid: i32, address: u64) -> Result<(), io::Error> {
    let found = registers::read(tid)?;
    let mut frame = vec![0u8; patch::frame_size()];
    if read_process(tid, found[STACK_POINTER], &mut frame) != frame.len() {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    let (mut registers, mask) = patch::original_registers(&found, &frame, address);
    system_call::leave_out(tid, &mut registers);
    ptrace::set_general_registers(tid, &registers)?;
    ptrace::set_signal_mask(tid, mask)
}
