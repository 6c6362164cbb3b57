//! Find words that point to unreached blocks but are not edges of the graph: words at unaligned addresses, as in packed
//! structs, and words in mapped files.

use super::drawing::in_pieces;
use super::ids::Node;
use super::queries::Graph;
use super::tree::NOT_REACHED;
use crate::by_address::Addresses;
use gdbheap_access::bytes::u64_at;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;

const WORD: u64 = 8;
/// The number of words that one loop compares. The compiler vectorizes this loop.
const AT_ONCE: usize = 256;

/// The addresses of unreached blocks, and the address range in which all of them lie.
struct LostAddresses {
    addresses: Addresses,
    low: u64,
    span: u64,
}

impl Graph {
    /// Return `(address, word)` for each word that is the address of an unreached block but no edge of the graph. The
    /// words of `inside` (memory with blocks) and of `outside` are examined at unaligned addresses, the words of
    /// `files` at all addresses. Words in unreached or free blocks are left out. Nothing is returned if the graph is
    /// incomplete, or if the unreached blocks have fewer than `least` bytes together.
    pub fn hidden_words(
        &self,
        watcher: &dyn Watcher,
        inside: &[(u64, u64)],
        outside: &[(u64, u64)],
        files: &[(u64, u64)],
        least: u64,
    ) -> Result<Vec<(u64, u64)>> {
        let tree = self.tree(watcher)?;
        let blocks = self.blocks();
        let (mut addresses, mut bytes) = (Addresses::default(), 0);
        for id in (0..self.ids.first_static).filter(|id| tree.phases[*id as usize] == NOT_REACHED) {
            if let Node::Block { address, size, .. } = blocks.node(id) {
                addresses.insert(address);
                bytes += size;
            }
        }
        if self.is_cut() || bytes < least.max(1) {
            return Ok(Vec::new());
        }
        let low = addresses.iter().copied().min().unwrap_or(0);
        let lost = LostAddresses { span: addresses.iter().copied().max().unwrap_or(0) - low + 1, low, addresses };
        let heaps = self.heaps.lend();
        let space = heaps.space;
        // A word in a heap counts only if a root reaches the block that contains the word.
        let is_alive = |at: u64, is_inside: bool| {
            let id = heaps.block_at(at).and_then(|block| self.ids.id_of(block.place));
            id.map_or(!is_inside, |id| tree.phases[id as usize] != NOT_REACHED)
        };
        let all = inside.iter().map(|range| (range, 1, true));
        let all =
            all.chain(outside.iter().map(|range| (range, 1, false))).chain(files.iter().map(|range| (range, 0, false)));
        let all: Vec<_> = all.collect();
        let mut found = self.alone(watcher, |control| {
            let (mut found, mut bytes): (Vec<(u64, u64)>, Vec<u8>) = Default::default();
            for (range, first, is_inside) in &all {
                let before = found.len();
                in_pieces(control, space, **range, |start, end| {
                    bytes.resize((range.1.min(end + WORD - 1) - start) as usize, 0);
                    let got = space.fill_words(start, &mut bytes);
                    (*first..WORD).for_each(|shift| lost.words(&bytes[..got], start, shift, &mut found));
                })?;
                let mut place = 0;
                found.retain(|(at, _)| {
                    place += 1;
                    place <= before || is_alive(*at, *is_inside)
                });
            }
            Ok(found)
        })?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

impl LostAddresses {
    /// Append `(address, word)` to `found` for each word of `bytes` that is the address of an unreached block and
    /// begins `shift` bytes after a multiple of eight. `base`: the address of `bytes` in the target.
    fn words(&self, bytes: &[u8], base: u64, shift: u64, found: &mut Vec<(u64, u64)>) {
        let bytes = bytes.get(shift as usize..).unwrap_or_default();
        for (piece, words) in bytes.chunks(AT_ONCE * WORD as usize).enumerate() {
            let words = words.chunks_exact(WORD as usize);
            let is_near = |word: &[u8]| u64_at(word, 0).wrapping_sub(self.low) < self.span;
            if !words.clone().fold(false, |any, word| any | is_near(word)) {
                continue;
            }
            for (place, word) in words.enumerate() {
                let value = u64_at(word, 0);
                if is_near(word) && self.addresses.contains(&value) {
                    found.push((base + shift + (piece * AT_ONCE + place) as u64 * WORD, value));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_at_any_place() {
        let lost = LostAddresses { addresses: [0x5000, 0x7000].into_iter().collect(), low: 0x5000, span: 0x2001 };
        let mut bytes = vec![0; 3 * AT_ONCE * 8];
        for (at, value) in [(3, 0x5000u64), (AT_ONCE * 8 - 5, 0x7000), (4000, 0x6000), (4096, 0x7000)] {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        let mut found = Vec::new();
        (1..8).for_each(|shift| lost.words(&bytes, 0x100, shift, &mut found));
        found.sort_unstable();
        assert_eq!(found, [(0x103, 0x5000), (0x100 + AT_ONCE as u64 * 8 - 5, 0x7000)]);
        lost.words(&bytes, 0x100, 0, &mut found);
        assert_eq!(found.last(), Some(&(0x1100, 0x7000)));
    }
}
