//! Keeps the time limits of epoll_wait(2) and epoll_pwait(2). If a stop interrupts such a wait and the wait is
//! restarted, the limit must continue instead of starting again.
//!
//! The duration of a wait before its first stop is unknown. At the first stop, the time when the wait must end is
//! stored in the half of the register that the kernel ignores: the limit is an `int` of milliseconds. Later stops find
//! this time there, even if another process makes them.
#![forbid(unsafe_code)]

use crate::memory::own::monotonic_time;

/// The number of bits for the end of a wait, in the half of the limit's register that the kernel ignores. They contain
/// the end in milliseconds, modulo ENDS.
///
/// The bits above them contain a checksum of the end and the call's registers. It distinguishes a stored end from other
/// data of the program. The checksum is never 0, because programs leave zeros there.
const END_BITS: u32 = 24;
const ENDS: u64 = 1 << END_BITS;
/// The longest limit that continues, in milliseconds. A longer limit starts again from the beginning.
const LONGEST: u64 = ENDS / 4;

/// The registers that are included in the checksum of a wait: the program counter, the stack pointer, and the first
/// three arguments.
pub(crate) type WaitRegisters = [u64; 5];

/// Return the time of CLOCK_MONOTONIC in milliseconds.
pub(crate) fn now() -> u64 {
    monotonic_time().as_millis() as u64
}

/// Return the new value of the limit's register for a wait that is about to be restarted. Its lower half is the time
/// left, its upper half the stored end with a checksum. None if no time is left, and the wait has therefore ended.
///
/// `register`: the present value of the limit's register. A negative limit means no limit.
pub(crate) fn rest(register: u64, registers: &WaitRegisters, now: u64) -> Option<u64> {
    let limit = register as i32;
    if limit <= 0 || limit as u64 > LONGEST {
        return Some(register);
    }
    let limit = limit as u64;
    let end = known_end(register, registers, now, limit);
    // A new end is one millisecond later, for the millisecond that has begun, because no wait may end early.
    let left = end.map_or(limit, |end| end - now);
    let end = end.unwrap_or(now + 1 + limit) % ENDS;
    (left > 0).then(|| (check(registers, end) << END_BITS | end) << 32 | left)
}

/// Return the time at which a wait ends, as stored in the upper half of `register`. None if no end is stored there. If
/// the end has passed, return `now`.
///
/// `limit`: the limit with which the wait was last restarted, in milliseconds.
fn known_end(register: u64, registers: &WaitRegisters, now: u64, limit: u64) -> Option<u64> {
    let mark = register >> 32;
    let end = mark % ENDS;
    if mark >> END_BITS != check(registers, end) {
        return None;
    }
    let ahead = (end + ENDS - now % ENDS) % ENDS;
    if ahead <= limit + 1 {
        return Some(now + ahead);
    }
    // No thread of a busy machine is late by a quarter of the clock's period.
    (ENDS - ahead <= LONGEST).then_some(now)
}

fn check(registers: &WaitRegisters, end: u64) -> u64 {
    let mixed =
        registers.iter().fold(end + 1, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    1 + mixed % 255
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 5 * ENDS - 2000;
    const WAIT: WaitRegisters = [7; 5];

    #[test]
    fn the_limit_goes_on() {
        let mut register = rest(3000, &WAIT, NOW).unwrap();
        assert_eq!(register as i32, 3000);
        for second in 1..4 {
            register = rest(register, &WAIT, NOW + 1000 * second).unwrap();
            assert_eq!(register as i32, 3001 - 1000 * second as i32);
        }
        assert_eq!(rest(register, &WAIT, NOW + 3001), None);
    }

    #[test]
    fn one_that_is_late_is_over() {
        for late in [3001, 3002, 60_000, LONGEST] {
            let register = rest(3000, &WAIT, NOW).unwrap();
            assert_eq!(rest(register, &WAIT, NOW + late), None, "{late}");
        }
    }

    #[test]
    fn a_new_wait_has_its_own() {
        let first = rest(3000, &WAIT, NOW).unwrap();
        assert_ne!(first, rest(3000, &WAIT, NOW + 9000).unwrap());
        // The mark that another wait has left in the register is mistaken for a mark of this wait once in 255 times.
        let new = |other: u64| {
            let elsewhere = [7, 7 + 8 * other, 7, 7, 7];
            rest(first, &elsewhere, NOW + 10_000).is_some_and(|register| register as i32 == 3000)
        };
        assert!((1..256).filter(|other| new(*other)).count() >= 250);
    }

    #[test]
    fn what_is_no_mark_changes_nothing() {
        for half in [1, 0x7fff, 0x5555, 0xffff_ffff, NOW % ENDS + 1] {
            assert_eq!(rest(3000 | half << 32, &WAIT, NOW).map(|register| register as i32), Some(3000), "{half:#x}");
        }
    }

    #[test]
    fn no_limit_stays_none() {
        for value in [-1i64 as u64, 0, LONGEST + 1] {
            assert_eq!(rest(value, &WAIT, NOW), Some(value));
        }
    }
}
