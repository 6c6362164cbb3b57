//! Recognize values of Arc and Rc by the two counts that precede them: the number of pointers to the block agrees with
//! these counts.

use crate::graph::ids::{Blocks, Node};
use crate::structures::kinds::{Family, UNKNOWN};
use crate::structures::search_input::{SearchInput, MANY};
use gdbheap_access::memory::reader::Reader;
use std::sync::atomic::Ordering;

/// The smallest number of pointers to a block that can prove that its first two words are reference counts. Fewer
/// pointers would prove nothing, because many blocks begin with small numbers.
const LEAST: u64 = 4;

/// Classify the blocks that begin with two counts, if these counts agree with the number of pointers to the block.
pub(crate) fn name(look: &SearchInput<'_>, reader: &mut Reader<'_>, from_stacks: impl Fn(u32) -> u32) {
    let blocks = Blocks { heaps: look.heaps, ids: look.ids };
    let kind = look.number(Family::RustShared, "");
    for (id, count) in (0u32..).zip(&look.references) {
        let in_memory = u64::from(count.load(Ordering::Relaxed));
        let most = in_memory + u64::from(from_stacks(id));
        if most < LEAST || in_memory >= u64::from(MANY) || look.kind(id) != UNKNOWN {
            continue;
        }
        let Node::Block { address, .. } = blocks.node(id) else { continue };
        let Some([strong, weak]) = reader.words::<2>(address) else { continue };
        let pointers = strong.saturating_add(weak).saturating_sub(1);
        if strong > 0
            && weak > 0
            && pointers >= LEAST
            && (in_memory..=most).contains(&pointers)
            && in_memory >= LEAST - 1
        {
            look.set_kind(id, kind);
        }
    }
}
