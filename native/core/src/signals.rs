//! Threads of ours must not run the signal handlers of the program that we run in, and wait for nobody for ever.

use std::io::Error;
use std::time::Duration;

/// Holds back all signals on this thread, so that the threads it starts never run a handler of gdb's or Python's.
pub(crate) struct SignalsHeld(libc::sigset_t);

impl SignalsHeld {
    pub(crate) fn new() -> SignalsHeld {
        // SAFETY: both sets are plain data that the calls fill in.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            SignalsHeld(before)
        }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: restores the mask that `new` got from the same call.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Has what this thread waits for in the kernel end by EINTR, from some moment on again and again: as long as this is held.
pub(crate) struct Alarm(libc::timer_t);

extern "C" fn nothing(_signal: libc::c_int) {}

impl Alarm {
    pub(crate) fn after(wait: Duration) -> Result<Alarm, Error> {
        const AGAIN: Duration = Duration::from_millis(50);
        let signal = libc::SIGRTMAX() - 3;
        let time = |time: Duration| libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(time.subsec_nanos()),
        };
        // A time of zero would set no timer.
        let times = libc::itimerspec { it_interval: time(AGAIN), it_value: time(wait.max(AGAIN)) };
        // SAFETY: all are plain data of this function; the handler does nothing; the thread is this one, and so is the mask.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            let mut heard = std::mem::zeroed();
            libc::sigemptyset(&mut heard);
            libc::sigaddset(&mut heard, signal);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::syscall(libc::SYS_gettid) as libc::c_int;
            let mut timer = std::mem::zeroed();
            let is_set = libc::sigaction(signal, &action, std::ptr::null_mut()) == 0
                && libc::pthread_sigmask(libc::SIG_UNBLOCK, &heard, std::ptr::null_mut()) == 0
                && libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0;
            if !is_set {
                return Err(Error::last_os_error());
            }
            let alarm = Alarm(timer);
            match libc::timer_settime(timer, 0, &times, std::ptr::null_mut()) {
                0 => Ok(alarm),
                _ => Err(Error::last_os_error()),
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: it was made by `after`, and nobody else has it.
        unsafe { libc::timer_delete(self.0) };
    }
}
