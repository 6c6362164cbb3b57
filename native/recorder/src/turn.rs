//! Whose turn it is: one call at a time is made and written down, so that the log has the order in which they were made.

use crate::real;
use crate::state::{self, Process, State, NEW, OFF, RECORDING};
use crate::{log, system};
use core::sync::atomic::{compiler_fence, Ordering};

/// How long a thread pauses before it looks again whether the lock is free.
const PAUSES: [u32; 8] = [1, 1, 2, 2, 3, 3, 4, 4];
/// So many turns of others while one waited mean that the lock is hardly ever free: taking it in turn would cost each call
/// more than the call itself, as all that is written moves from one processor to the other. One thread sleeps, and the other
/// goes on for a while.
const MANY_TURNS: u64 = 4;
const BURST: u64 = 3000;

/// What is to become of a call.
pub(crate) enum Turn {
    /// It is recorded.
    Own(Own),
    /// A signal handler makes it in the middle of another call of this thread: it waits to be written down.
    Nested(&'static State),
    /// It is not recorded.
    Off,
}

/// The lock, until this goes.
pub(crate) struct Own {
    pub(crate) state: &'static State,
    pub(crate) me: u64,
    is_alone: bool,
}

#[inline(always)]
pub(crate) fn take() -> Turn {
    let Some(process) = state::process() else { return first() };
    let me = system::thread_pointer();
    if log::is_by_time() {
        return take_lane(process, me);
    }
    let state = process.state();
    let is_alone = real::is_single_threaded();
    if is_alone {
        if !take_alone(state, me) {
            return nested(state);
        }
    } else if state.lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() && !wait(state, me) {
        return nested(state);
    }
    begun(Own { state, me, is_alone })
}

/// The lock of a state that no other thread uses; false where this thread has it.
#[inline(always)]
fn take_alone(state: &State, me: u64) -> bool {
    if system::get(&state.lock) == me {
        return false;
    }
    system::set(&state.lock, me);
    // A signal handler may come between any two instructions.
    compiler_fence(Ordering::SeqCst);
    true
}

/// Nobody waits for anybody: what each thread does is written down by itself, with the time.
fn take_lane(process: &'static Process, me: u64) -> Turn {
    match process.lane_of(me) {
        Some(state) if take_alone(state, me) => begun(Own { state, me, is_alone: true }),
        Some(state) => nested(state),
        None => Turn::Off,
    }
}

#[inline(always)]
fn begun(own: Own) -> Turn {
    if system::get(&own.state.mode) == RECORDING {
        log::settle(&own);
        // What a handler did between the end of the last call and the lock.
        log::write_waiting(&own);
        return Turn::Own(own);
    }
    begin(own)
}

fn nested(state: &'static State) -> Turn {
    match system::get(&state.mode) {
        RECORDING => Turn::Nested(state),
        _ => Turn::Off,
    }
}

/// The first call of a program.
#[cold]
fn first() -> Turn {
    log::learn();
    match state::make() {
        Some(_) => take(),
        None => Turn::Off,
    }
}

/// The first call of a process, or of a thread in its lane, which has the lock.
#[cold]
fn begin(own: Own) -> Turn {
    if system::get(&own.state.mode) == NEW && !log::begin(&own) {
        system::set(&own.state.mode, OFF);
    }
    match system::get(&own.state.mode) {
        RECORDING => Turn::Own(own),
        _ => Turn::Off,
    }
}

/// Waits for the lock; false where this thread has it.
#[cold]
fn wait(state: &State, me: u64) -> bool {
    if system::get(&state.lock) == me {
        return false;
    }
    loop {
        let before = system::get(&state.turns);
        for pauses in PAUSES {
            (0..pauses).for_each(|_| core::hint::spin_loop());
            if system::get(&state.lock) == 0
                && state.lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return true;
            }
        }
        let is_crowded = system::get(&state.turns).wrapping_sub(before) >= MANY_TURNS;
        sleep(state, if is_crowded { BURST } else { 0 });
    }
}

/// Until somebody who has let go of the lock so many times wakes this thread, or for a moment: whoever lets go of it may not
/// have seen yet that somebody sleeps, or make no more calls.
fn sleep(state: &State, turns: u64) {
    if state.sleepers.fetch_add(1, Ordering::SeqCst) == 0 {
        system::set(&state.wake_in, turns);
    }
    let owner = state.lock.load(Ordering::SeqCst);
    if owner != 0 {
        system::wait(&state.lock, owner);
    }
    state.sleepers.fetch_sub(1, Ordering::SeqCst);
}

/// Somebody sleeps.
#[cold]
fn wake(state: &State) {
    match system::get(&state.wake_in) {
        0 => {
            system::set(&state.wake_in, BURST);
            system::wake(&state.lock);
        }
        left => system::set(&state.wake_in, left - 1),
    }
}

impl Drop for Own {
    #[inline(always)]
    fn drop(&mut self) {
        let state = self.state;
        if self.is_alone {
            compiler_fence(Ordering::SeqCst);
            return system::set(&state.lock, 0);
        }
        system::set(&state.turns, system::get(&state.turns).wrapping_add(1));
        state.lock.store(0, Ordering::Release);
        if system::get(&state.sleepers) != 0 {
            wake(state);
        }
    }
}
