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
/// or if the object is immortal, the result is larger than any possible count. None if the head is cut off, or if the
/// sum is negative.
fn shared_references(words: &[u8]) -> Option<u64> {
    let (bits, local, shared) = (*words.get(11)?, half_at(words, 12)?, word_at(words, 16)? as i64);
    if local == LOCAL_IMMORTAL {
        return Some(u64::MAX);
    }
    // Up to 3.13, deferred counting adds one reference.
    let own = u64::from(bits & GC_DEFERRED != 0);
    let sum = i64::from(local) + (shared >> SHARED_FLAGS);
    Some(u64::try_from(sum).ok()?.saturating_sub(own))
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
/// An object with this count or a larger one is immortal. The fields since 3.14 (Include/refcount.h) are ob_refcnt
/// (u32), ob_overflow (u16) and ob_flags (u16).
const IMMORTAL: u32 = 1 << 31;
const MAX_FLAGS: u64 = 1 << 4;

/// Return whether a word is the reference count of an immortal object, together with flags.
pub(crate) fn is_immortal(word: u64) -> bool {
    let (overflow, flags) = (word >> 32 & 0xFFFF, word >> 48);
    word as u32 >= IMMORTAL && overflow == 0 && (1..MAX_FLAGS).contains(&flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return the head of an object of a free-threaded build: its thread, bits of the collector, and the two counts.
    fn head(thread: u64, bits: u8, local: u32, shared: i64) -> Vec<u8> {
        let mut head = thread.to_le_bytes().to_vec();
        head.extend([0, 0, 0, bits]);
        head.extend(local.to_le_bytes());
        head.extend(shared.to_le_bytes());
        head
    }

    #[test]
    fn counts_of_two_threads_add_up() {
        for (local, others) in [(1u32, 0i64), (0, 3), (5, -2), (1, -1), (7, 1 << 20)] {
            let sum = u64::try_from(i64::from(local) + others).expect("not below 0");
            for flags in 0..4 {
                let words = |bits| head(1, bits, local, (others << 2) | flags);
                assert_eq!(shared_references(&words(0)), Some(sum));
                assert_eq!(
                    shared_references(&words(GC_DEFERRED)),
                    Some(sum.saturating_sub(1)),
                    "deferred counting adds one"
                );
                let alive = sum > 0 || flags == QUEUED;
                assert_eq!(shared_count(&words(0), u64::MAX), Some(alive), "{local} {others} {flags}");
            }
        }
        assert_eq!(shared_references(&head(1, 0, u32::MAX, 0)), Some(u64::MAX), "immortal");
        assert_eq!(shared_references(&head(1, 0, 1, 0)[..20]), None, "cut off");
        assert_eq!(shared_references(&head(1, 0, 1, -2 << 2)), None, "below 0");
    }

    #[test]
    fn words_that_are_no_counts() {
        let end = 1 << 47;
        assert_eq!(shared_count(&head(end, 0, 1, 0), end), None, "no thread");
        assert_eq!(shared_count(&head(end - 1, 0, 1, 0), end), Some(true));
        for others in [LARGEST_COUNT as i64, -(LARGEST_COUNT as i64)] {
            assert_eq!(shared_count(&head(1, 0, 1, others << 2), end), None, "more than memory can have");
        }
        assert_eq!(shared_count(&head(1, 0, 0, (LARGEST_COUNT as i64 - 1) << 2), end), Some(true));
        assert_eq!(shared_count(&head(1, 0, 0, (i64::MAX / 8 + 5) << 2), end), Some(true), "deferred since 3.14");
        let mut locked = head(1, 0, 1, 0);
        locked[10] = MAX_MUTEX + 1;
        assert_eq!(shared_count(&locked, end), None, "no mutex");
    }

    #[test]
    fn immortal_words() {
        let word = |count: u64, overflow: u64, flags: u64| count | overflow << 32 | flags << 48;
        for (count, overflow, flags, expected) in [
            (1 << 31, 0, 1, true),
            (3 << 30, 0, MAX_FLAGS - 1, true),
            ((1 << 31) - 1, 0, 1, false),
            (1 << 31, 1, 1, false),
            (1 << 31, 0, 0, false),
            (1 << 31, 0, MAX_FLAGS, false),
        ] {
            assert_eq!(is_immortal(word(count, overflow, flags)), expected, "{count:#x} {overflow} {flags}");
        }
    }
}
