//! Keeps the time limits of system calls that wait. If a stop interrupts such a wait and the wait is restarted, the
//! limit must continue instead of starting again.
//!
//! The duration of a wait before its first stop is unknown. At the first stop, the time when the wait must end is
//! stored in the half of the register that the kernel ignores. Later stops find this time there, even if another
//! process makes them.
#![forbid(unsafe_code)]

use crate::arch::registers::{NO_CALL, ORIG_RAX, R10, RAX, RDI, RDX, RIP, RSI, RSP};
use crate::memory::own::monotonic_time;

/// epoll_wait and epoll_pwait: the limit is an `int` of milliseconds in r10; a negative one means no limit.
const EPOLL: [u64; 2] = [232, 281];
/// The number of lower bits of a mark that hold the end of the wait, in milliseconds modulo ENDS. The upper bits of the
/// mark hold a checksum. The checksum covers the end and the registers of the call. It is never 0, because programs
/// leave zeros there.
const END_BITS: u32 = 24;
const ENDS: u64 = 1 << END_BITS;
/// The longest limit that continues, in milliseconds. A longer limit starts again from the beginning.
const LONGEST: u64 = ENDS / 4;

/// Return the time of CLOCK_MONOTONIC in milliseconds.
pub(super) fn now() -> u64 {
    monotonic_time().as_millis() as u64
}

/// In the registers of a wait that is about to be restarted, replace the limit by the time that is left. Return true if
/// no time is left; the registers are then those of a wait that has ended by itself.
pub(super) fn go_on(registers: &mut [u64], now: u64) -> bool {
    let limit = registers[R10] as i32;
    if !EPOLL.contains(&registers[ORIG_RAX]) || limit <= 0 || limit as u64 > LONGEST {
        return false;
    }
    let limit = limit as u64;
    let end = known_end(registers, now, limit);
    // A new end is one millisecond later, for the millisecond that has begun, because no wait may end early.
    let left = end.map_or(limit, |end| end - now);
    if left == 0 {
        (registers[RAX], registers[ORIG_RAX]) = (0, NO_CALL);
        return true;
    }
    let end = end.unwrap_or(now + 1 + limit) % ENDS;
    registers[R10] = (check(registers, end) << END_BITS | end) << 32 | left;
    false
}

/// Return the time at which a wait with a mark ends; None if the wait has no mark.
///
/// `limit`: the limit with which the wait was restarted when it got the mark. If the end has passed, return `now`.
fn known_end(registers: &[u64], now: u64, limit: u64) -> Option<u64> {
    let mark = registers[R10] >> 32;
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

fn check(registers: &[u64], end: u64) -> u64 {
    let places = [RIP, RSP, RDI, RSI, RDX].map(|at| registers[at]);
    let mixed =
        places.iter().fold(end + 1, |sum, word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    1 + mixed % 255
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 5 * ENDS - 2000;

    fn waiting(limit: i32, number: u64) -> Vec<u64> {
        let mut registers = vec![7; 27];
        (registers[ORIG_RAX], registers[R10]) = (number, limit as u64);
        registers
    }

    fn limit(registers: &[u64]) -> i32 {
        registers[R10] as i32
    }

    #[test]
    fn the_limit_goes_on() {
        let mut registers = waiting(3000, 232);
        assert!(!go_on(&mut registers, NOW) && limit(&registers) == 3000);
        for second in 1..4 {
            assert!(!go_on(&mut registers, NOW + 1000 * second));
            assert_eq!(limit(&registers), 3001 - 1000 * second as i32);
        }
        assert!(go_on(&mut registers, NOW + 3001));
        assert_eq!((registers[RAX], registers[ORIG_RAX]), (0, NO_CALL));
    }

    #[test]
    fn one_that_is_late_is_over() {
        for late in [3001, 3002, 60_000, LONGEST] {
            let mut registers = waiting(3000, 232);
            go_on(&mut registers, NOW);
            assert!(go_on(&mut registers, NOW + late), "{late}");
        }
    }

    #[test]
    fn a_new_wait_has_its_own() {
        let mut registers = waiting(3000, 281);
        go_on(&mut registers, NOW);
        let mut again = waiting(3000, 281);
        assert!(!go_on(&mut again, NOW + 9000) && limit(&again) == 3000);
        // The rest that another wait has left in the register is mistaken for a mark once in 255 times.
        let new = |other: u64| {
            let mut elsewhere = again.clone();
            elsewhere[RSP] += 8 * other;
            !go_on(&mut elsewhere, NOW + 10_000) && limit(&elsewhere) == 3000
        };
        assert!((1..256).filter(|other| new(*other)).count() >= 250);
    }

    #[test]
    fn what_is_no_mark_changes_nothing() {
        for half in [1, 0x7fff, 0x5555, 0xffff_ffff, NOW % ENDS + 1] {
            let mut registers = waiting(3000, 232);
            registers[R10] |= half << 32;
            assert!(!go_on(&mut registers, NOW) && limit(&registers) == 3000, "{half:#x}");
        }
    }

    #[test]
    fn no_limit_stays_none() {
        for (value, number) in [(-1, 232), (0, 232), (3000, 7), (LONGEST as i32 + 1, 232)] {
            let mut registers = waiting(value, number);
            let before = registers.clone();
            assert!(!go_on(&mut registers, NOW) && registers == before);
        }
    }
}
