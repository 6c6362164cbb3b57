//! Make the calls of a plan.

use crate::growth::Growth;
use crate::output;
use crate::real::{Address, Real};
use crate::steps::Steps;
use crate::threads::{NoThread, Threads};
use core::ptr::null_mut;
use gdbheap_plan::{argument_of, kind, kind_of, other, place_of, wide_argument, wide_place};

const PAGE: usize = 4096;
/// A size far above the memory of any machine. A request of at least this size fails by itself, as it did when it was
/// recorded.
const IMPOSSIBLE: u64 = 1 << 46;
/// The parameter of mallopt that makes glibc fill all blocks that it returns (malloc.h). It does not change where
/// blocks lie.
const M_PERTURB: i32 = -6;

/// The reason why the replay stops.
pub(crate) enum StopReason {
    AtCall,
    AtEnd,
    Damaged,
    NoThread(i32),
    /// The plan needs more threads than may exist at once. The value is the largest number that may exist.
    TooManyThreads(u64),
}

pub(crate) struct Run {
    pub(crate) real: Real,
    pub(crate) steps: Steps,
    pub(crate) threads: Threads,
    /// For each place of the plan, the address of its block; NULL for a place without a block.
    pub(crate) blocks: &'static mut [Address],
    /// For each place, the requested size of its block. Empty if the replay touches no memory, because it then needs no
    /// sizes.
    pub(crate) sizes: &'static mut [u64],
    pub(crate) mappings: &'static mut [Address],
    /// The observer of growing arenas; None if growth is not reported.
    pub(crate) growth: Option<Growth>,
    /// The number of calls of the plan that were made so far.
    pub(crate) calls: u64,
    /// The number of calls that failed here but not when they were recorded.
    pub(crate) failures: u64,
}

/// The values that earlier steps have set for the next call.
#[derive(Clone, Copy, Default)]
struct NextCall {
    place: u64,
    argument: u64,
    alignment: u64,
    fails: bool,
    is_unseen: bool,
}

/// Touch one byte of each page between the offsets `from` and `to` of a block.
#[inline(always)]
fn touch(block: Address, from: usize, to: usize) {
    let mut at = block as usize + from;
    let end = block as usize + to;
    while at < end {
        // SAFETY: within the block.
        unsafe { (at as *mut u8).write_volatile(1) };
        at = (at | (PAGE - 1)) + 1;
    }
}

impl Run {
    /// Make calls of the plan until `limit` calls were made in all, or to the plan's end. Return why the calls stopped.
    pub(crate) fn until<const FILL: bool>(&mut self, limit: u64) -> StopReason {
        self.threads.resume();
        while self.calls < limit {
            let Some(step) = self.steps.next() else {
                self.threads.become_main();
                return if self.steps.is_done() { StopReason::AtEnd } else { StopReason::Damaged };
            };
            let (place, argument) = (place_of(step), argument_of(step));
            let kind = kind_of(step);
            let done = if kind <= kind::NOTHING {
                self.calls += 1;
                self.call::<FILL>(kind, place as usize, argument as usize, 0)
            } else {
                self.rare::<FILL>(step)
            };
            if let Err(stop) = done {
                self.threads.become_main();
                return stop;
            }
        }
        self.threads.become_main();
        StopReason::AtCall
    }

    #[inline(always)]
    fn call<const FILL: bool>(
        &mut self,
        kind: u64,
        place: usize,
        size: usize,
        alignment: usize,
    ) -> Result<(), StopReason> {
        if kind == kind::NOTHING {
            return Ok(());
        }
        let block = self.blocks.get_mut(place).ok_or(StopReason::Damaged)?;
        if let Some(growth) = &mut self.growth {
            growth.before();
        }
        // SAFETY: functions of the allocator, with one of its blocks or NULL.
        let found = unsafe {
            match kind {
                kind::MALLOC => (self.real.malloc)(size),
                kind::FREE => {
                    (self.real.free)(*block);
                    *block = null_mut();
                    return Ok(());
                }
                kind::REALLOC => (self.real.realloc)(*block, size),
                kind::CALLOC => (self.real.calloc)(1, size),
                kind::MEMALIGN => (self.real.memalign)(alignment, size),
                kind::RELEASE => {
                    let left = (self.real.realloc)(*block, 0);
                    (self.real.free)(left);
                    *block = null_mut();
                    return Ok(());
                }
                _ => return Err(StopReason::Damaged),
            }
        };
        if found.is_null() {
            self.failures += u64::from(size != 0);
            if kind == kind::REALLOC && size != 0 {
                return Ok(());
            }
        }
        if let Some(growth) = &mut self.growth {
            // SAFETY: the block is one of glibc's.
            if let Some(grown) = (!found.is_null()).then(|| unsafe { growth.after(found) }).flatten() {
                output::write_growth(self.calls, size as u64, alignment as u64, &grown);
            }
        }
        if FILL && !found.is_null() {
            let before = self.sizes.get_mut(place).ok_or(StopReason::Damaged)?;
            let from = if kind == kind::REALLOC && !block.is_null() { (*before as usize).min(size) } else { 0 };
            *before = size as u64;
            if kind != kind::CALLOC {
                touch(found, from, size);
            }
        }
        *block = found;
        Ok(())
    }

    /// Carry out a step that is not a call, or that belongs to a call with several steps.
    #[cold]
    fn rare<const FILL: bool>(&mut self, mut step: u64) -> Result<(), StopReason> {
        let mut said = NextCall::default();
        loop {
            let (place, argument) = (place_of(step), argument_of(step));
            match kind_of(step) {
                kind::WIDE => (said.place, said.argument) = (place, argument),
                kind::ALIGNMENT => {
                    said.alignment = wide_argument(said.argument, argument);
                    (said.place, said.argument) = (0, 0);
                }
                kind::FAILED => said.fails = true,
                kind::OTHER if place == other::UNSEEN => said.is_unseen = true,
                kind::OTHER => return self.other::<FILL>(place),
                kind::THREAD => {
                    let started =
                        self.threads.become_thread(wide_place(said.place, place)).ok_or(StopReason::Damaged)?;
                    return started.map_err(|failure| match failure {
                        NoThread::Refused(number) => StopReason::NoThread(number),
                        NoThread::TooMany(most) => StopReason::TooManyThreads(most),
                    });
                }
                kind::END => {
                    self.threads.end(wide_place(said.place, place));
                    return Ok(());
                }
                kind::MALLOPT => {
                    let parameter = ((place << 36) as i64 >> 36) as i32;
                    if let Some(mallopt) = self.real.mallopt.filter(|_| parameter != M_PERTURB) {
                        // SAFETY: the function is glibc's.
                        unsafe { mallopt(parameter, argument as i32) };
                    }
                    return Ok(());
                }
                kind::TRIM => {
                    if let Some(trim) = self.real.trim {
                        // SAFETY: the function is glibc's.
                        unsafe { trim(wide_argument(said.argument, argument) as usize) };
                    }
                    return Ok(());
                }
                kind => {
                    let place = wide_place(said.place, place) as usize;
                    return self.told::<FILL>(kind, place, wide_argument(said.argument, argument), said);
                }
            }
            step = self.steps.next().ok_or(StopReason::Damaged)?;
        }
    }

    fn told<const FILL: bool>(&mut self, kind: u64, place: usize, size: u64, said: NextCall) -> Result<(), StopReason> {
        self.calls += u64::from(!said.is_unseen);
        if !said.fails {
            return self.call::<FILL>(kind, place, size as usize, said.alignment as usize);
        }
        let block =
            if kind == kind::REALLOC { *self.blocks.get(place).ok_or(StopReason::Damaged)? } else { null_mut() };
        let _limit = (size < IMPOSSIBLE).then(NoMemory::new);
        // SAFETY: as in `call`. If a block is returned nevertheless, it is freed at once; an old block is kept.
        unsafe {
            let found = match kind {
                kind::CALLOC => (self.real.calloc)(1, size as usize),
                kind::MEMALIGN => (self.real.memalign)(said.alignment as usize, size as usize),
                kind::REALLOC if !block.is_null() => null_mut(),
                _ => (self.real.malloc)(size as usize),
            };
            (self.real.free)(found);
        }
        Ok(())
    }

    #[cold]
    fn other<const FILL: bool>(&mut self, what: u64) -> Result<(), StopReason> {
        if what == other::NONE {
            return Ok(());
        }
        let mut word = || self.steps.next().ok_or(StopReason::Damaged);
        let (place, first, second) = (word()? as usize, word()?, word()?);
        let mapping = self.mappings.get_mut(place).ok_or(StopReason::Damaged)?;
        // SAFETY: mappings that are created here and used nowhere else.
        unsafe {
            match what {
                other::MMAP => {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
                    let found = libc::mmap(null_mut(), first as usize, second as i32, flags, -1, 0);
                    *mapping = if found == libc::MAP_FAILED { null_mut() } else { found };
                    if FILL && !mapping.is_null() && second as i32 & libc::PROT_WRITE != 0 {
                        touch(*mapping, 0, first as usize);
                    }
                }
                other::MUNMAP if !mapping.is_null() => {
                    libc::munmap(mapping.byte_add(first as usize), second as usize);
                }
                other::MUNMAP => {}
                _ => return Err(StopReason::Damaged),
            }
        }
        Ok(())
    }
}

/// A guard that makes requests for new memory fail, as they did when the call was recorded. The limit of address space
/// is 1 byte until the guard is dropped.
struct NoMemory(libc::rlimit);

impl NoMemory {
    fn new() -> NoMemory {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a limit of this process, which is restored.
        unsafe {
            libc::getrlimit(libc::RLIMIT_AS, &mut before);
            libc::setrlimit(libc::RLIMIT_AS, &libc::rlimit { rlim_cur: 1, rlim_max: before.rlim_max });
        }
        NoMemory(before)
    }
}

impl Drop for NoMemory {
    fn drop(&mut self) {
        // SAFETY: restores the limit.
        unsafe { libc::setrlimit(libc::RLIMIT_AS, &self.0) };
    }
}
