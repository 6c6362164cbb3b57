//! A limit on the blocks that an allocator claims in memory that the target never wrote to.
//!
//! A target can reserve any amount of address space, and describe it as blocks. A bit for each of these blocks would
//! take more memory than the target itself has.

use gdbheap_access::memory::space::Space;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest number of blocks that are accepted in memory that the target never wrote to. Real allocators have few
/// such blocks, because an allocator writes to each block that it hands out, or to the block's neighbours.
const UNBACKED: u64 = 1 << 27;
/// Runs of at most this many blocks are always accepted: the bits of such a run take less memory than its description.
const FEW: u64 = 64;

/// The number of blocks that are still accepted in memory that the target never wrote to. Several threads may share
/// this limit.
pub(crate) struct Evidence {
    left: AtomicU64,
}

impl Default for Evidence {
    fn default() -> Evidence {
        Evidence { left: AtomicU64::new(UNBACKED) }
    }
}

impl Evidence {
    /// Return whether to accept that [start, end) has `blocks` blocks. Few blocks are always accepted. Any number is
    /// accepted if the target or its core has the bytes of at least half of the range. Otherwise the limit is reduced
    /// by `blocks`, and the blocks are accepted if the limit allows them.
    pub(crate) fn allows(&self, space: &Space, (start, end): (u64, u64), blocks: u64) -> bool {
        if blocks <= FEW || space.backed_bytes(start, end) >= (end - start) / 2 {
            return true;
        }
        let taken = |left: u64| left.checked_sub(blocks);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdbheap_access::machine::{Machine, EM_X86_64};
    use gdbheap_access::memory::space::{Backing, Segment};

    /// Check that blocks in unwritten memory are accepted up to the limit, and that all other blocks are always
    /// accepted.
    #[test]
    fn limit() {
        let path = std::env::temp_dir().join(format!("gdbheap-evidence-{}", std::process::id()));
        std::fs::write(&path, vec![1; 1 << 16]).expect("room for a file");
        let file =
            Segment { start: 1 << 20, end: (1 << 20) + (1 << 16), backing: Backing::File { index: 0, offset: 0 } };
        let zeros = Segment { start: 1 << 30, end: 1 << 40, backing: Backing::Zeros };
        let machine = Machine::new(EM_X86_64, 8, 4096, 1 << 47, u64::MAX).expect("a machine");
        let space = Space::for_core(machine, vec![file, zeros], &[path.to_string_lossy().into_owned()]);
        std::fs::remove_file(&path).expect("the file");
        let (space, evidence) = (space.expect("disjoint segments"), Evidence::default());
        let reserved = (1 << 30, 1 << 40);
        assert!(evidence.allows(&space, reserved, UNBACKED - 1) && !evidence.allows(&space, reserved, FEW + 1));
        assert!(evidence.allows(&space, reserved, FEW) && !evidence.allows(&space, reserved, u64::MAX));
        assert!(evidence.allows(&space, (1 << 20, (1 << 20) + (1 << 17)), 1 << 14));
        assert!(!evidence.allows(&space, (1 << 20, (1 << 20) + (1 << 18)), 1 << 15));
    }
}
