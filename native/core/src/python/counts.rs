//! Decode the words that contain reference counts.

use crate::python::layout::TypeLayout;
use gdbheap_access::bytes::{half_at, u32_at, u64_at, word_at};

/// Return the reference count of the object whose head is `words`; for free-threaded builds, see `shared_references`.
/// None if the head is cut off.
#[inline(always)]
pub(crate) fn references(layout: &TypeLayout, words: &[u8]) -> Option<u64> {
    if layout.is_free_threaded() {
        return shared_references(words);
    }
    // Since 3.14 the upper half of the word contains flags.
    half_at(words, layout.ob_refcnt as usize).map(u64::from)
}

/// Return the reference count of the object whose head is `words`: the sum over all threads. If counting is deferred,
/// or if the object is immortal, the result is larger than any possible count. None if the head is cut off.
fn shared_references(words: &[u8]) -> Option<u64> {
    let (bits, local, shared) = (*words.get(11)?, half_at(words, 12)?, word_at(words, 16)? as i64);
    if local == LOCAL_IMMORTAL {
        return Some(u64::MAX);
    }
    // Up to 3.13, deferred counting adds one reference.
    let own = u64::from(bits & GC_DEFERRED != 0);
    let sum = i64::from(local) + (shared >> SHARED_FLAGS);
    Some(u64::try_from(sum).unwrap_or(0).saturating_sub(own))
}

/// Return whether the object whose head is `words` has references, in its own thread or in others; None if the words
/// cannot be counts. An object without references is on a free list, unless its thread has yet to free it.
pub(crate) fn shared_count(words: &[u8], user_end: u64) -> Option<bool> {
    let (thread, local, shared) = (u64_at(words, 0), u32_at(words, 12), u64_at(words, 16) as i64);
    let others = shared >> SHARED_FLAGS;
    let is_count = |count: i64| count.unsigned_abs() < LARGEST_COUNT;
    // Since 3.14, deferred counting adds PY_SSIZE_T_MAX / 8.
    let plausible = is_count(others) || is_count(others - i64::MAX / 8);
    let fits = thread < user_end && words.get(10).is_some_and(|mutex| *mutex <= MAX_MUTEX) && plausible;
    let alive = local == LOCAL_IMMORTAL || i64::from(local) + others > 0 || shared & QUEUED_FLAGS == QUEUED;
    fits.then_some(alive)
}

const SHARED_FLAGS: i64 = 2;
const QUEUED_FLAGS: i64 = 3;
const QUEUED: i64 = 2;
const MAX_MUTEX: u8 = 3;
const LOCAL_IMMORTAL: u32 = u32::MAX;
const GC_DEFERRED: u8 = 1 << 6;

/// The limit below which a number is surely a count. A larger number may be an address in the data of a program.
pub(crate) const SMALL_COUNT: u64 = 1 << 20;
/// The limit of counts: memory cannot contain that many references. A pointer instead of a count is larger, unless the
/// program lies in the lowest 4 GiB, where a pointer to the program's data may be smaller.
pub(crate) const LARGEST_COUNT: u64 = 1 << 32;
/// The count from which an object is immortal. Include/refcount.h since 3.14: ob_refcnt (u32), ob_overflow (u16),
/// ob_flags (u16).
const IMMORTAL: u32 = 1 << 31;
const MAX_FLAGS: u64 = 1 << 4;

/// Return whether a word is the reference count of an immortal object, together with flags.
pub(crate) fn is_immortal(word: u64) -> bool {
    let (overflow, flags) = (word >> 32 & 0xFFFF, word >> 48);
    word as u32 >= IMMORTAL && overflow == 0 && (1..MAX_FLAGS).contains(&flags)
}
