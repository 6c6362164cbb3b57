//! Single words of a space, here and there: the pages that were looked at last are kept, so that words that lie close
//! together cost one read.
#![forbid(unsafe_code)]

use crate::bytes::u64_at;
use crate::memory::space::Space;

/// Pages that are kept: a power of two.
const SLOTS: usize = 256;
const SIZE: usize = 4 << 10;
const WORD: usize = 8;

struct Slot {
    start: u64,
    /// What could be read of it.
    bytes: Vec<u8>,
}

pub(crate) struct Recent<'a> {
    space: &'a Space,
    slots: Vec<Option<Slot>>,
}

impl<'a> Recent<'a> {
    pub(crate) fn new(space: &'a Space) -> Recent<'a> {
        Recent { space, slots: (0..SLOTS).map(|_| None).collect() }
    }

    /// The word at `address`, None where it cannot be read.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        let (offset, start) = (address as usize % SIZE, address - address % SIZE as u64);
        if offset > SIZE - WORD {
            return self.space.word(address).ok();
        }
        let slot = self.slots[(start / SIZE as u64) as usize % SLOTS]
            .get_or_insert(Slot { start: u64::MAX, bytes: Vec::new() });
        if slot.start != start {
            slot.bytes.resize(SIZE, 0);
            let got = self.space.fill(start, &mut slot.bytes);
            slot.bytes.truncate(got);
            slot.start = start;
        }
        match offset + WORD <= slot.bytes.len() {
            true => Some(u64_at(&slot.bytes, offset)),
            // A mapping may begin inside what is a page here, where pages are larger or a core was cut.
            false => self.space.word(address).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Recent, SIZE, SLOTS, WORD};
    use crate::machine::Machine;
    use crate::memory::space::{Backing, Segment, Space};

    #[test]
    fn words_are_those_of_the_space() {
        let bytes: Vec<u8> = (0..3 * SIZE).map(|at| (at * 7 + at / 251) as u8).collect();
        let path = std::env::temp_dir().join(format!("gdbheap-recent-{}", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        // The second lies in the slot of the first, and begins and ends inside a page.
        let far = 0x10000 + (SLOTS * SIZE) as u64;
        let segments = vec![
            Segment { start: 0x10000, end: 0x10000 + 2 * SIZE as u64, backing: Backing::File { index: 0, offset: 0 } },
            Segment { start: far + 40, end: far + 1000, backing: Backing::File { index: 0, offset: 40 } },
        ];
        let space = Space::for_core(
            Machine::new(8, SIZE as u64, 1 << 47, u64::MAX).unwrap(),
            segments,
            &[path.to_string_lossy().into_owned()],
        )
        .unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut recent = Recent::new(&space);
        for round in 0..3 {
            for at in (0..3 * SIZE as u64).step_by(WORD - round) {
                for base in [0x10000, far] {
                    assert_eq!(recent.word(base + at), space.word(base + at).ok(), "{at}");
                }
            }
        }
    }
}
