//! Classify unidentified blocks by their first bytes.

use gdbheap_access::bytes::{range_at, u64_at};
use gdbheap_access::error::Result;
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::Watcher;

const LOOK: u64 = 64;
const SHORTEST_TEXT: usize = 8;
const CHECK_SIGNALS: usize = 1 << 16;

/// Return, for each block `(user address, size)`, what its first bytes look like: "zeros", "text", "pointers", "data",
/// or "absent bytes". `mapped`: the ranges in which the target of a pointer must lie, ascending.
pub fn look_at(
    watcher: &dyn Watcher,
    space: &Space,
    blocks: &[(u64, u64)],
    mapped: &[(u64, u64)],
) -> Result<Vec<&'static str>> {
    let mut looks = vec![""; blocks.len()];
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    // The blocks are sorted, so that one read serves many of them.
    order.sort_unstable_by_key(|place| blocks[*place].0);
    let mut window = Window::new(space, u64::MAX);
    for (done, place) in order.into_iter().enumerate() {
        if done % CHECK_SIGNALS == 0 {
            watcher.check()?;
        }
        let (address, size) = blocks[place];
        let wanted = size.saturating_sub(16).clamp(8, LOOK) as usize;
        let bytes = window.available(address, wanted);
        looks[place] = if bytes.len() == wanted { looks_like(bytes, mapped) } else { "absent bytes" };
    }
    Ok(looks)
}

fn looks_like(bytes: &[u8], mapped: &[(u64, u64)]) -> &'static str {
    if bytes.iter().all(|byte| *byte == 0) {
        return "zeros";
    }
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.len() >= SHORTEST_TEXT && text.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 32..=126 | 128..)) {
        return "text";
    }
    let is_pointer = |word: u64| word > LOWEST && range_at(mapped, word).is_some();
    let words = bytes.chunks_exact(8);
    let count = words.len();
    let pointers = words.filter(|word| is_pointer(u64_at(word, 0))).count();
    match pointers * 2 >= count {
        true => "pointers",
        false => "data",
    }
}
