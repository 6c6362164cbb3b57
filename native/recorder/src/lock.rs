//! The lock that a thread holds while it makes and records a call.

use crate::state::State;
use crate::system;
use core::sync::atomic::{compiler_fence, Ordering};

/// How often a waiting thread pauses before each check whether the lock is free. After the last check it sleeps.
const PAUSES: [u32; 8] = [1, 1, 2, 2, 3, 3, 4, 4];
/// The lock counts as contended if other threads acquire it this many times while one thread waits.
///
/// Taking turns would then cost each call more than the call itself: all data that is written moves from one processor
/// to the other. So the waiting thread sleeps, and the other thread continues for BURST calls.
const MANY_TURNS: u64 = 4;
const BURST: u64 = 3000;

/// The lock, which is held until this value is dropped.
pub(crate) struct HeldLock {
    pub(crate) state: &'static State,
    pub(crate) me: u64,
    pub(crate) is_alone: bool,
}

/// Take the lock of a state that no other thread uses. Return false if the calling thread already has the lock.
#[inline(always)]
pub(crate) fn take_alone(state: &State, me: u64) -> bool {
    if system::get(&state.lock) == me {
        return false;
    }
    system::set(&state.lock, me);
    // A signal handler may run between any two instructions.
    compiler_fence(Ordering::SeqCst);
    true
}

/// Wait for the lock and take it. Return false if the calling thread already has the lock.
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

/// Sleep until the owner of the lock has released it `turns` times and wakes this thread, but for at most 500 us. The
/// owner may not have noticed yet that a thread sleeps, or may make no more calls.
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

/// Wake a sleeping thread if `wake_in` is 0, else decrease `wake_in`. The owner of the lock calls this function each
/// time that it releases the lock.
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

impl Drop for HeldLock {
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
