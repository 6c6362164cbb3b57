//! Record a stack of C and Python frames with each call that allocates, or with a random sample of these calls.
//!
//! The sample is a Poisson process along the requested bytes: a block of `s` bytes has a stack with probability 1 -
//! exp(-s / mean), independent of earlier requests. The calling thread does all the work. It has the lock, and uses at
//! most some KiB of its own stack. It allocates nothing, and calls no libc function that takes a lock. Memory that may
//! be absent is read by the kernel.

mod memory;
mod modules;
mod python;
mod settings;
mod unwind;

use crate::lock::HeldLock;
use crate::stage::{room, written};
use crate::state::LockedState;
use crate::system::KeptErrno;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use gdbheap_calls::other;
use gdbheap_calls::part::{flag, EventWriter};
use memory::Windows;
use modules::{Buffers, Module, Modules};
use python::{Python, PythonFrame, PythonWalk, MAX_CODE};
use unwind::{Frame, Registers, Rules, Step};

const MAX_NATIVE: usize = 512;
/// The largest number of bytes of a stack in the log. A C frame takes up to ten bytes, and a Python frame up to twenty.
const MAX_STACK: usize = 64 + 10 * MAX_NATIVE + 20 * python::MAX_FRAMES;
const MAX_LOADED: usize = 1 << 10;

/// Whether an object was unloaded since the list of objects was read. Another object may then be at its address.
pub(crate) static UNLOADED: AtomicBool = AtomicBool::new(false);

/// The frames of one stack, innermost first. C frames and Python frames are in separate lists.
struct StackRecord {
    native: [u64; MAX_NATIVE],
    native_count: usize,
    python: [PythonFrame; python::MAX_FRAMES],
    python_count: usize,
}

/// Data that is kept between two stacks, such as the list of loaded objects. `now` and `before`: the current and the
/// previous stack. A value whose bytes are all 0 is valid, as in a forked child.
pub(crate) struct Stacks {
    windows: Windows,
    modules: Modules,
    buffers: Buffers,
    rules: Rules,
    python: Python,
    now: StackRecord,
    before: StackRecord,
    /// The number of the stage into which `before` was written. A stack of another stage is not written as a difference
    /// from it.
    stage: u64,
    /// The number of the thread to which the stack `before` belongs.
    thread: u32,
}

/// Prepare the sampling of stacks in a process. Return the average number of bytes between two stacks, which the
/// settings contain.
pub(crate) fn begin(owned: &mut LockedState) -> u64 {
    owned.mean = settings::mean();
    let mut seed = 0u64;
    // SAFETY: writes into memory of this function. If it fails, the time and the process id are the seed.
    unsafe { libc::syscall(libc::SYS_getrandom, &mut seed, 8usize, libc::GRND_NONBLOCK) };
    owned.random = seed ^ owned.began ^ u64::from(owned.pid) << 32;
    owned.countdown = distance(owned);
    owned.mean
}

/// Return a random number of bytes until the next sample. It is exponentially distributed with the mean `owned.mean`.
fn distance(owned: &mut LockedState) -> u64 {
    if owned.mean <= 1 {
        return 0;
    }
    // splitmix64 of Steele, Lea and Flood.
    owned.random = owned.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = owned.random;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    // In (0, 1].
    let uniform = ((mixed >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let bytes = -logarithm(uniform) * owned.mean as f64;
    // A block is sampled if it reaches this far. A fraction of a byte counts as a whole byte.
    (bytes as u64).saturating_add(1)
}

/// Return the natural logarithm by the series of the inverse hyperbolic tangent. libm is not used, because a program
/// need not have loaded it.
fn logarithm(value: f64) -> f64 {
    let bits = value.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut fraction = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if fraction > core::f64::consts::SQRT_2 {
        fraction /= 2.0;
        exponent += 1;
    }
    let base = (fraction - 1.0) / (fraction + 1.0);
    let (square, mut power, mut sum) = (base * base, base, 0.0);
    for divisor in (1..24).step_by(2) {
        sum += power / f64::from(divisor);
        power *= square;
    }
    2.0 * sum + exponent as f64 * core::f64::consts::LN_2
}

/// Count the bytes of a call that has allocated `size` bytes and will be recorded next. Record its stack if the call is
/// sampled.
#[inline(always)]
pub(crate) fn count(own: &HeldLock, size: u64) {
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    if owned.mean == 0 {
        return;
    }
    if owned.countdown > size {
        owned.countdown -= size;
        return;
    }
    take(own);
}

#[cold]
#[inline(never)]
fn take(own: &HeldLock) {
    let _kept = KeptErrno::new();
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    owned.countdown = distance(owned);
    if owned.stacks.is_null() {
        let Some(found) = modules::new_memory(core::mem::size_of::<Stacks>(), libc::MADV_WIPEONFORK) else { return };
        owned.stacks = found as *mut c_void;
    }
    // SAFETY: the memory belongs to this process, and only the owner of the lock uses it.
    let stacks = unsafe { &mut *(owned.stacks as *mut Stacks) };
    stacks.windows.begin(owned.pid);
    let registers = Registers::here();
    let mut frame = Frame::new(registers);
    let cut = stacks.follow(own, &mut frame);
    stacks.windows.remember(registers.stack_pointer(), frame.registers.stack_pointer());
    let walked = stacks.python.walk(&mut stacks.windows, &stacks.modules, own.me, &mut stacks.now.python);
    stacks.now.python_count = walked.count;
    stacks.write_codes(own);
    stacks.write(own, cut, &walked);
}

impl Stacks {
    /// Collect the C frames outside this library into `now`. Return whether outer frames are missing, because there are
    /// too many frames or the stack cannot be followed.
    fn follow(&mut self, own: &HeldLock, frame: &mut Frame) -> bool {
        self.now.native_count = 0;
        self.windows.read_ahead(frame.registers.stack_pointer());
        if self.modules.count == 0 || UNLOADED.swap(false, Ordering::Relaxed) {
            self.renew(own, 0);
        }
        let (mut is_inside, mut is_renewed) = (true, false);
        loop {
            if is_inside && !self.is_our_own(frame) {
                is_inside = false;
            }
            if !is_inside {
                let Some(place) = self.now.native.get_mut(self.now.native_count) else { return true };
                *place = frame.place();
                self.now.native_count += 1;
            }
            let before = (frame.place(), self.modules.age);
            match frame.step(&mut self.windows, &mut self.modules, &mut self.rules) {
                Step::On => continue,
                Step::Outermost => return false,
                Step::Unknown => {}
            }
            let is_held = self.modules.find(before.0).is_some();
            if is_held || is_renewed || !self.modules.may_be_new(before.0) {
                return true;
            }
            self.renew(own, before.0);
            is_renewed = true;
            if self.modules.find(before.0).is_none() {
                return true;
            }
            if !is_inside {
                self.now.native_count -= 1;
            }
        }
    }

    fn is_our_own(&mut self, frame: &Frame) -> bool {
        let own = take as fn(&HeldLock) as usize as u64;
        self.modules.find(frame.place()).is_some_and(|module| module.holds(own))
    }

    #[inline(never)]
    fn renew(&mut self, own: &HeldLock, wanted: u64) {
        self.modules.read(&mut self.windows, &mut self.buffers, wanted, |module| write_loaded(own, module));
    }

    #[inline(never)]
    fn write_codes(&mut self, own: &HeldLock) {
        for place in 0..self.now.python_count {
            let Some(frame) = self.now.python.get(place) else { return };
            // An inner frame with the same code was handled just before.
            let is_known = frame.code == 0
                || self
                    .now
                    .python
                    .get(..place)
                    .is_some_and(|some| some.iter().rev().take(8).any(|other| other.code == frame.code));
            if is_known {
                continue;
            }
            let Some(room) = room(own, MAX_CODE) else { return };
            if let Some(found) = self.python.new_code(&mut self.windows, frame.code, room, other::CODE) {
                written(own, found);
            }
        }
    }

    #[inline(never)]
    fn write(&mut self, own: &HeldLock, cut: bool, walked: &PythonWalk) {
        let Some(room) = room(own, MAX_STACK) else { return };
        // SAFETY: `own` has the lock.
        let owned = unsafe { own.state.own() };
        let thread = owned.thread_of(own.me).map_or(0, |thread| thread.number);
        if (self.stage, self.thread) != (owned.stages, thread) {
            (self.before.native_count, self.before.python_count) = (0, 0);
            (self.stage, self.thread) = (owned.stages, thread);
        }
        let mut part = EventWriter::new(room);
        let flags = [(cut, flag::CUT), (walked.is_torn, flag::TORN), (walked.is_python, flag::PYTHON)];
        part.number(flags.iter().map(|(is_set, bit)| if *is_set { *bit } else { 0 }).sum());
        let (now, before) = (&self.now, &self.before);
        let native = now.native.get(..now.native_count).unwrap_or_default();
        let new = differ(native, before.native.get(..before.native_count).unwrap_or_default(), &mut part);
        let mut last = 0u64;
        for address in new.iter().rev() {
            part.signed(address.wrapping_sub(last) as i64);
            last = *address;
        }
        let python = now.python.get(..now.python_count).unwrap_or_default();
        let new = differ(python, before.python.get(..before.python_count).unwrap_or_default(), &mut part);
        last = 0;
        for frame in new.iter().rev() {
            part.signed(frame.code.wrapping_sub(last) as i64);
            part.signed(frame.offset << 1 | i64::from(frame.ends));
            last = frame.code;
        }
        if let Some(found) = part.finish(other::STACK) {
            written(own, found);
            core::mem::swap(&mut self.now, &mut self.before);
        }
    }
}

/// Write how many outermost frames are the same as in the previous stack, and how many other frames the stack has.
/// Return these other frames.
fn differ<'a, T: PartialEq>(now: &'a [T], before: &[T], part: &mut EventWriter) -> &'a [T] {
    let common = now.iter().rev().zip(before.iter().rev()).take_while(|(one, other)| one == other).count();
    let new = now.get(..now.len() - common).unwrap_or_default();
    part.number(common as u64);
    part.number(new.len() as u64);
    new
}

fn write_loaded(own: &HeldLock, module: &Module) {
    let Some(room) = room(own, MAX_LOADED) else { return };
    let mut part = EventWriter::new(room);
    part.number(module.start);
    part.number(module.end);
    part.number(module.bias);
    part.bytes(module.build_id());
    part.bytes(module.path());
    if let Some(found) = part.finish(other::LOADED) {
        written(own, found);
    }
}
