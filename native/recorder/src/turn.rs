//! Whose turn it is: one call at a time is made and written down, so that the log has the order in which they were made.

use crate::real;
use crate::state::{self, State, NEW, OFF, RECORDING};
use crate::{log, system};
use core::sync::atomic::{compiler_fence, Ordering};

const SPINS: u32 = 100;
const WAITED_FOR: u64 = 1;

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
    let Some(state) = state::state() else { return first() };
    let me = system::thread_pointer();
    let is_alone = real::is_single_threaded();
    if is_alone {
        if system::get(&state.lock) & !WAITED_FOR == me {
            return nested(state);
        }
        system::set(&state.lock, me);
        // A signal handler may come between any two instructions.
        compiler_fence(Ordering::SeqCst);
    } else if state.lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() && !wait(state, me) {
        return nested(state);
    }
    let own = Own { state, me, is_alone };
    if system::get(&state.mode) == RECORDING {
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

/// The first call of a program: false while the functions are looked up.
#[cold]
fn first() -> Turn {
    match state::make() {
        Some(_) => take(),
        None => Turn::Off,
    }
}

/// The first call of a process, which has the lock.
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
    let mut spins = 0;
    let mut mine = me;
    loop {
        let owner = state.lock.load(Ordering::Relaxed);
        if owner & !WAITED_FOR == me {
            return false;
        }
        if owner == 0 {
            if state.lock.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return true;
            }
        } else if spins < SPINS {
            spins += 1;
            core::hint::spin_loop();
        } else {
            let marked = owner | WAITED_FOR;
            let is_marked = owner == marked
                || state.lock.compare_exchange(owner, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if is_marked {
                system::wait(&state.lock, marked);
                // Others may wait too: whoever lets go of it next has to wake them.
                mine = me | WAITED_FOR;
            }
        }
    }
}

impl Drop for Own {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_alone {
            compiler_fence(Ordering::SeqCst);
            system::set(&self.state.lock, 0);
        } else if self.state.lock.swap(0, Ordering::Release) & WAITED_FOR != 0 {
            system::wake(&self.state.lock);
        }
    }
}
