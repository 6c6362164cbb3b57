//! The lock under which a call is made and written down.

use crate::state::State;
use crate::system;
use core::sync::atomic::{compiler_fence, Ordering};

/// How long a thread pauses before it looks again whether the lock is free.
const PAUSES: [u32; 8] = [1, 1, 2, 2, 3, 3, 4, 4];
/// So many turns of others while one waited mean that the lock is hardly ever free: taking it in turn would cost each call
/// more than the call itself, as all that is written moves from one processor to the other. One thread sleeps, and the other
/// goes on for a while.
const MANY_TURNS: u64 = 4;
const BURST: u64 = 3000;

/// The lock, until this goes.
pub(crate) struct Own {
    pub(crate) state: &'static State,
    pub(crate) me: u64,
    pub(crate) is_alone: bool,
}

/// The lock of a state that no other thread uses; false where this thread has it.
#[inline(always)]
pub(crate) fn take_alone(state: &State, me: u64) -> bool {
    if system::get(&state.lock) == me {
        return false;
    }
    system::set(&state.lock, me);
    // A signal handler may come between any two instructions.
    compiler_fence(Ordering::SeqCst);
    true
}

/// Waits for the lock; false where this thread has it.
#[cold]
pub(crate) fn wait(state: &State, me: u64) -> bool {
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
