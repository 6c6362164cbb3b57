//! Waits with a time limit that a stop has ended and that start again: the limit goes on where it was.
//!
//! Nobody tells how long a wait had taken when it was met for the first time; from then on the time is known. A wait is the
//! same one if the half of the register that the kernel does not look at has the mark that was put there.

use crate::process::registers::{NO_CALL, ORIG_RAX, R10, RAX, RDI, RDX, RIP, RSI, RSP};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// epoll_wait and epoll_pwait: their limit is an `int` of milliseconds in r10, and there is none if it is negative.
const EPOLL: [u64; 2] = [232, 281];
const MOST: usize = 1 << 16;
const MARK: u64 = 0x6764_6270 << 32;

struct Wait {
    place: [u64; 6],
    end: Instant,
}

static WAITS: Mutex<Option<HashMap<i32, Wait>>> = Mutex::new(None);

/// Puts into the registers of a wait that is about to start again what is left of its limit. True if nothing is left: then
/// they are those of a wait that has ended by itself.
pub(crate) fn go_on(tid: i32, registers: &mut [u64], now: Instant) -> bool {
    let limit = registers[R10] as i32;
    if !EPOLL.contains(&registers[ORIG_RAX]) || limit <= 0 {
        return false;
    }
    let mut guard = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
    let waits = guard.get_or_insert_default();
    let places = |registers: &[u64]| [RIP, RSP, RDI, RSI, RDX, R10].map(|at| registers[at]);
    let known = waits.remove(&tid).filter(|wait| wait.place == places(registers));
    let end = known.map_or(now + Duration::from_millis(limit as u64), |wait| wait.end);
    let left = end.saturating_duration_since(now).as_millis() as u64;
    if left == 0 {
        (registers[RAX], registers[ORIG_RAX]) = (0, NO_CALL);
        return true;
    }
    registers[R10] = MARK | left;
    if waits.len() >= MOST {
        waits.clear();
    }
    waits.insert(tid, Wait { place: places(registers), end });
    false
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (start, mut registers) = (Instant::now(), waiting(3000, 232));
        assert!(!go_on(-1, &mut registers, start) && limit(&registers) == 3000);
        for second in 1..3 {
            assert!(!go_on(-1, &mut registers, start + Duration::from_secs(second)));
            assert_eq!(limit(&registers), 3000 - 1000 * second as i32);
        }
        assert!(go_on(-1, &mut registers, start + Duration::from_secs(3)));
        assert_eq!((registers[RAX], registers[ORIG_RAX]), (0, NO_CALL));
    }

    #[test]
    fn a_new_wait_has_its_own() {
        let (start, mut registers) = (Instant::now(), waiting(3000, 281));
        go_on(-2, &mut registers, start);
        let mut again = waiting(3000, 281);
        assert!(!go_on(-2, &mut again, start + Duration::from_secs(9)) && limit(&again) == 3000);
        let mut elsewhere = again.clone();
        elsewhere[RSP] += 8;
        assert!(!go_on(-2, &mut elsewhere, start + Duration::from_secs(10)) && limit(&elsewhere) == 3000);
    }

    #[test]
    fn no_limit_stays_none() {
        for (value, number) in [(-1, 232), (0, 232), (3000, 7)] {
            let mut registers = waiting(value, number);
            assert!(!go_on(-3, &mut registers, Instant::now()) && limit(&registers) == value);
            assert_eq!(registers[ORIG_RAX], number);
        }
    }
}
