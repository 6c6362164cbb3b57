//! Fake blocks for tests. Each block points to the next one.

use super::claimed_blocks::ClaimedBlocks;
use super::store::Store;
use gdbheap_access::machine::{Machine, EM_X86_64};
use gdbheap_access::memory::space::{Source, Space};
use std::sync::Arc;

/// The address of the first fake block.
pub(crate) const START: u64 = 0x10000;

/// A fake memory of blocks of `size` bytes. Each block has the address of the next block at offset `link`. All other
/// bytes are zero.
struct LinkedMemory {
    size: u64,
    link: u64,
}

impl Source for LinkedMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        for (at, byte) in (address..).zip(buffer.iter_mut()) {
            let (block, inside) = ((at - START) / self.size, (at - START) % self.size);
            let next = (START + (block + 1) * self.size).to_le_bytes();
            let place = inside.checked_sub(self.link).map(|place| place as usize);
            *byte = place.and_then(|place| next.get(place)).copied().unwrap_or(0);
        }
        buffer.len()
    }
}

/// Return a fake memory of `blocks` blocks that begins at START, and a store of these blocks. All blocks except the
/// first `first` ones are used.
pub(crate) fn linked(size: u64, link: u64, blocks: u64, first: u64) -> (Space, [Store; 1]) {
    let machine = Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).expect("a machine");
    let source = Box::new(LinkedMemory { size, link });
    let space = Space::for_remote(machine, &[(START, START + blocks * size)], source).expect("one range");
    let places = (first..blocks).map(|block| (START + block * size, START + (block + 1) * size)).collect();
    (space, [Store::Claimed(Arc::new(ClaimedBlocks { places, closed: false }))])
}
