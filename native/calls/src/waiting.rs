//! Calls that a signal handler made in the middle of another call: kept in the header until that one is written down.

use crate::event::Event;
use crate::header::WAITING_WORDS;

/// Kind and one (0: no call), size or first argument, second argument, address, usable bytes and one.
pub type Waiting = [u64; WAITING_WORDS];

const KINDS: [fn(&Waiting) -> Event; 8] = [
    |words| Event::Malloc { size: words[1], result: words[3] },
    |words| Event::Calloc { size: words[1], result: words[3] },
    |words| Event::Realloc { size: words[1], old: words[2], result: words[3] },
    |words| Event::Memalign { size: words[1], alignment: words[2], result: words[3] },
    |words| Event::Free { address: words[3] },
    |words| Event::Mallopt { parameter: words[1] as i32, value: words[2] as i32 },
    |words| Event::Trim { pad: words[1] },
    |words| Event::Fork { number: words[1] },
];

/// A call as words; None for what is no call of the allocator.
pub fn to_words(event: Event, usable: Option<u64>) -> Option<Waiting> {
    let (kind, first, second, address) = match event {
        Event::Malloc { size, result } => (0, size, 0, result),
        Event::Calloc { size, result } => (1, size, 0, result),
        Event::Realloc { size, old, result } => (2, size, old, result),
        Event::Memalign { size, alignment, result } => (3, size, alignment, result),
        Event::Free { address } => (4, 0, 0, address),
        Event::Mallopt { parameter, value } => (5, parameter as u64, value as u64, 0),
        Event::Trim { pad } => (6, pad, 0, 0),
        Event::Fork { number } => (7, number, 0, 0),
        _ => return None,
    };
    Some([kind + 1, first, second, address, usable.map_or(0, |size| size.wrapping_add(1))])
}

/// The call, and the usable bytes of its block where they are not the usual ones; None for what is no call.
pub fn from_words(words: &Waiting) -> Option<(Event, Option<u64>)> {
    let kind = KINDS.get(usize::try_from(words[0]).ok()?.checked_sub(1)?)?;
    Some((kind(words), (words[4] != 0).then(|| words[4].wrapping_sub(1))))
}
