//! Calls that a signal handler made in the middle of another call. They wait in the header until that other call is
//! written.

use crate::event::Event;
use crate::header::WAITING_WORDS;

/// A waiting call as five words:
///
/// - its kind plus one; 0 for no call.
/// - its size or first argument.
/// - its second argument.
/// - its address.
/// - the usable size of its block plus one; 0 for the usual size.
pub type WaitingCall = [u64; WAITING_WORDS];

const KINDS: [fn(&WaitingCall) -> Event; 8] = [
    |words| Event::Malloc { size: words[1], result: words[3] },
    |words| Event::Calloc { size: words[1], result: words[3] },
    |words| Event::Realloc { size: words[1], old: words[2], result: words[3] },
    |words| Event::Memalign { size: words[1], alignment: words[2], result: words[3] },
    |words| Event::Free { address: words[3] },
    |words| Event::Mallopt { parameter: words[1] as i32, value: words[2] as i32 },
    |words| Event::Trim { pad: words[1] },
    |words| Event::Fork { number: words[1] },
];

/// Encode a call as words; None if the event is not an allocator call.
pub fn to_words(event: Event, usable: Option<u64>) -> Option<WaitingCall> {
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

/// Decode a call. Return the event, and the usable size of its block if that is not the usual size. None if the words
/// are not a call.
pub fn from_words(words: &WaitingCall) -> Option<(Event, Option<u64>)> {
    let kind = KINDS.get(usize::try_from(words[0]).ok()?.checked_sub(1)?)?;
    Some((kind(words), (words[4] != 0).then(|| words[4].wrapping_sub(1))))
}
