//! Find arrays of heads of circular lists: malloc's bins, pymalloc's `usedpools`.

use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::words::Words;

/// Return the runs of at least `least` consecutive list heads in [start, end), as `(address of the first pair of
/// pointers, number of pairs)`. Some pairs inside a run may be broken: damage must not hide the whole run.
pub fn find_list_heads(space: &Space, start: u64, end: u64, least: usize) -> Vec<(u64, usize)> {
    let words = Words::read(space, start, end);
    let mut found = Vec::new();
    for parity in 0..2 {
        runs_of_heads(space, &words, parity, least, &mut found);
    }
    found
}

/// Return whether the pair of words at `index` is the head of a circular list. The elements of such a list have their
/// links at offsets 16 (next) and 24 (previous).
fn heads_list(space: &Space, words: &Words, index: usize) -> bool {
    let link = |address| words.at(space, address);
    heads(space, words.start + index as u64 * 8, words.words[index], words.words[index + 1], link)
}

/// Return whether the pair of words at `address` is the head of a circular list. The words are read again, because a
/// running program may have changed the list since all words were read.
fn heads_list_now(space: &Space, address: u64) -> bool {
    let link = |address| space.word(address).ok();
    let is_head = || Some(heads(space, address, link(address)?, link(address + 8)?, link));
    (0..TRIES).any(|_| is_head() == Some(true))
}

fn heads(space: &Space, address: u64, next: u64, previous: u64, link: impl Fn(u64) -> Option<u64>) -> bool {
    let head = address.wrapping_sub(16);
    if next == head && previous == head {
        return true;
    }
    let plausible = |pointer: u64| pointer % 16 == 0 && pointer > LOWEST && space.covers(pointer, 32);
    plausible(next) && plausible(previous) && link(next + 24) == Some(head) && link(previous + 16) == Some(head)
}

fn runs_of_heads(space: &Space, words: &Words, parity: usize, least: usize, found: &mut Vec<(u64, usize)>) {
    let pairs = words.words.len().saturating_sub(parity) / 2;
    let is_head = |pair: usize| heads_list(space, words, parity + 2 * pair);
    let mut pair = 0;
    while pair < pairs {
        if !is_head(pair) {
            pair += 1;
            continue;
        }
        let (first, mut last, mut broken) = (pair, pair, 0);
        pair += 1;
        while pair < pairs && pair - last <= MAX_BROKEN_TOGETHER && broken <= MAX_BROKEN {
            match is_head(pair) || heads_list_now(space, words.start + (parity + 2 * pair) as u64 * 8) {
                true => last = pair,
                false => broken += 1,
            }
            pair += 1;
        }
        if last + 1 - first >= least {
            found.push((words.start + (parity + 2 * first) as u64 * 8, last + 1 - first));
        }
        pair = last + 1;
    }
}

/// The largest number of broken lists in a run. Lists may be broken by damage, or because the process was stopped while
/// malloc was linking them.
const MAX_BROKEN: usize = 24;
/// The largest number of broken lists in a row.
const MAX_BROKEN_TOGETHER: usize = 4;
/// The number of times that a pair is read. If a thread is always inside malloc, one list in ten changes while its four
/// words are read.
const TRIES: usize = 8;
