//! Record calls, including the calls that signal handlers make in the middle of another call.

use crate::lock::HeldLock;
use crate::order::{is_by_time, ticks};
use crate::stacks;
use crate::stage::{append, has_room, lose, put, settle, usable};
use crate::state::State;
use crate::system;
use core::ptr::copy_nonoverlapping;
use core::sync::atomic::{compiler_fence, Ordering};
use gdbheap_calls::header::{self, word};
use gdbheap_calls::waiting::{self, WaitingCall};
use gdbheap_calls::Event;

/// Record a call. Calls that signal handlers made before it ended come before it in the log; calls that they made later
/// come after it.
#[inline(always)]
pub(crate) fn write(own: &HeldLock, event: Event, begun: u64) {
    write_block(own, event, begun, 0, false);
}

/// Record a call that returned a block of `size` bytes.
///
/// malloc stores the usable size of a block just before the block. Reading the size right after malloc wrote there
/// would stall the processor. So the size is read at the next call, or now if `at_once` is true.
#[inline(always)]
pub(crate) fn write_block(own: &HeldLock, event: Event, begun: u64, size: u64, at_once: bool) {
    compiler_fence(Ordering::SeqCst);
    let before = waiting_count(own);
    write_waiting_until(own, before);
    let block = event.block();
    if block != 0 {
        stacks::count(own, size);
    }
    append_timed(own, event, begun);
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    (owned.given, owned.given_size) = (block, size);
    if at_once {
        settle(own);
    }
    write_waiting(own);
}

/// Append an event. If calls are ordered by time, append before it:
///
/// - for a call that allocates, the time when it ended.
/// - for a call that frees, the time when it began.
/// - for a realloc that moves a block, both times.
#[inline(always)]
fn append_timed(own: &HeldLock, event: Event, begun: u64) {
    if !is_by_time() {
        return append(own, event);
    }
    if !has_room(own, 0) {
        return;
    }
    // SAFETY: `own` has the lock.
    let owned = unsafe { own.state.own() };
    let is_moved = matches!(event, Event::Realloc { old, result, .. } if old != 0 && old != result);
    if event.block() == 0 || is_moved {
        put(owned, Event::Tick { ticks: begun });
    }
    if event.block() != 0 {
        put(owned, Event::Tick { ticks: ticks() });
    }
    owned.events += 1;
    put(owned, event);
}

/// Read the usable size of the last returned block now, because the signal handler that is running may free the block.
/// The handler interrupted an allocator call of this thread.
#[cold]
pub(crate) fn settle_for_owner(state: &State) {
    // SAFETY: the thread has the lock, and continues after the handler.
    let owned = unsafe { state.own() };
    if owned.given != 0 && owned.settled == 0 {
        owned.settled = usable(owned.given);
    }
}

/// Write all calls of signal handlers that wait in the header to the stage.
#[inline(always)]
pub(crate) fn write_waiting(own: &HeldLock) {
    write_waiting_until(own, u64::MAX);
}

#[inline(always)]
fn waiting_count(own: &HeldLock) -> u64 {
    // SAFETY: `own` has the lock; the header stays mapped.
    system::get(unsafe { &*own.state.own().word_at(word::WAITING) })
}

/// Write those calls of signal handlers in the header that have a number below `end`.
#[inline(always)]
fn write_waiting_until(own: &HeldLock, end: u64) {
    compiler_fence(Ordering::SeqCst);
    if end != 0 && waiting_count(own) != 0 {
        settle(own);
        write_each_waiting(own, end);
    }
}

#[cold]
fn write_each_waiting(own: &HeldLock, end: u64) {
    // SAFETY: `own` has the lock; the header stays mapped.
    let (waiting, written, base) = unsafe {
        let owned = own.state.own();
        (&*owned.word_at(word::WAITING), &*owned.word_at(word::WRITTEN), owned.header.byte_add(header::WAITING_AT))
    };
    loop {
        let (done, count) = (system::get(written), system::get(waiting));
        if done < count.min(end).min(header::MAX_WAITING as u64) {
            // SAFETY: the number is below MAX_WAITING, whatever others may have written into the file.
            let words = unsafe { &mut *(base.add(done as usize * header::WAITING_WORDS) as *mut WaitingCall) };
            if let Some((event, usable)) = waiting::from_words(words) {
                append_timed(own, event, ticks());
                if let Some(size) = usable {
                    append(own, Event::Usable { size });
                }
            }
            system::set(written, done + 1);
            words[0] = 0;
        } else if done < count && count <= header::MAX_WAITING as u64 {
            return;
        } else if waiting.compare_exchange(count, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            compiler_fence(Ordering::SeqCst);
            system::set(written, 0);
            return;
        }
    }
}

/// Store a call of a signal handler in the header, because it interrupts another call of this thread. The interrupted
/// call may be one of a signal handler, too.
#[cold]
pub(crate) fn keep_waiting(state: &State, event: Event, usable: Option<u64>) {
    let Some(words) = waiting::to_words(event, usable) else { return };
    // SAFETY: the header's address does not change while a call is recorded; other threads wait for the lock.
    let (count, base) = unsafe {
        let owned = state.own();
        (&*owned.word_at(word::WAITING), owned.header.byte_add(header::WAITING_AT))
    };
    let place = count.fetch_add(1, Ordering::Relaxed);
    if place >= header::MAX_WAITING as u64 {
        count.fetch_sub(1, Ordering::Relaxed);
        return lose();
    }
    // SAFETY: `place` is below MAX_WAITING. The first word is written last: without it, the place has no call yet.
    unsafe {
        let kept = base.add(place as usize * header::WAITING_WORDS);
        copy_nonoverlapping(words[1..].as_ptr(), kept.add(1), header::WAITING_WORDS - 1);
        compiler_fence(Ordering::SeqCst);
        kept.write_volatile(words[0]);
    }
}
