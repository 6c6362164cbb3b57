//! Find tcmalloc's own memory: chunks of 8 MiB with spans, leaves of the map and threads' caches (`MetaDataAlloc`,
//! common.cc). Nothing points to a chunk itself. It is found through the addresses of the metadata in it.

use gdbheap_access::bytes::{append, outside};
use gdbheap_access::machine::PageSize;

const CHUNK: u64 = 8 << 20;

/// Return the chunks of metadata as ranges, ascending. They lie in `anonymous` memory outside `taken` (both ascending
/// and disjoint), and contain the `known` metadata ([start, end), ascending).
pub(crate) fn chunks(
    page: PageSize,
    anonymous: &[(u64, u64)],
    taken: &[(u64, u64)],
    known: &[(u64, u64)],
) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    anonymous.iter().for_each(|(start, end)| outside(*start, *end, taken, |from, to| gaps.push((from, to))));
    let mut found = Vec::new();
    for (from, to) in gaps {
        let first = known.partition_point(|(start, _)| *start < from);
        let last = known.partition_point(|(start, _)| *start < to);
        match known.get(first..last) {
            // A gap that contains metadata and is not longer than a chunk is one chunk.
            Some(inside) if !inside.is_empty() && to - from <= CHUNK => found.push((from, to)),
            Some(inside) => add_chunks(page, (from, to), inside, &mut found),
            None => (),
        }
    }
    found
}

fn add_chunks(page: PageSize, (from, to): (u64, u64), known: &[(u64, u64)], found: &mut Vec<(u64, u64)>) {
    let mut behind = from;
    for (start, end) in known.iter().filter(|(_, end)| *end <= to) {
        if *end > behind {
            let start = if *start < behind { behind } else { page.down(*start).max(from) };
            behind = start.saturating_add(CHUNK).max(page.up(*end).unwrap_or(*end)).min(to);
            append(found, start, behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn around_what_is_known() {
        let page = PageSize::new(4096).expect("a power of two");
        let (mib, anonymous) = (1u64 << 20, [(0x1000_0000, 0x4000_0000)]);
        let taken = [(0x1000_0000, 0x1010_0000), (0x1010_0000 + 8 * mib, 0x2000_0000)];
        let known =
            [(0x1018_0000, 0x1018_0030), (0x3000_0010, 0x3000_0040), (0x3000_0010 + 9 * mib, 0x3000_0040 + 9 * mib)];
        let found = chunks(page, &anonymous, &taken, &known);
        let far = 0x3000_0000 + 9 * mib;
        assert_eq!(
            found,
            [(0x1010_0000, 0x1010_0000 + 8 * mib), (0x3000_0000, 0x3000_0000 + 8 * mib), (far, far + 8 * mib)]
        );
    }
}
