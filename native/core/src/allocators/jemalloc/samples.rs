//! The stacks of blocks in use that a sampling jemalloc (`prof:true`) recorded.
//!
//! A sampled block has an extent of its own, however small the block is. After the extent's links there is a pointer to
//! a `prof_tctx_t`, the counts of one stack in one thread. The `prof_tctx_t` points to a `prof_gctx_t`, which ends with
//! the stack: `{void **vec; unsigned len; void *vec[]}`, where `vec` is the address of the array after it. The place of
//! the pointer in an extent, and the offset of the counts in a `prof_tctx_t`, differ by release (5.1, 5.2, 5.3). All
//! possible places are tried. At the right ones, the counts equal the number and the bytes of the blocks that point
//! there.

use crate::allocators::jemalloc::layout::{LargeBlock, SAMPLE_WORDS};
use crate::allocators::jemalloc::tree::words_from;
use crate::allocators::jemalloc::walk::Jemalloc;
use gdbheap_access::bytes::words;
use gdbheap_access::error::Result;
use gdbheap_access::memory::space::Space;
use gdbheap_access::work::Watcher;
use std::collections::BTreeMap;

/// Positions of fields in a `prof_tctx_t`, in words. The first two are `curobjs` and `curbytes`. The third is a pair:
/// the estimates for all blocks that these samples represent (`curobjs_shifted_unbiased`, `curbytes_unbiased`), None
/// before 5.3. The last is the address of the `prof_gctx_t`.
type Fields = (usize, usize, Option<(usize, usize)>, usize);
const FIELDS: [Fields; 2] = [(4, 6, Some((5, 7)), 12), (3, 4, None, 7)];
const CONTEXT_WORDS: usize = 13;
/// jemalloc shifts its estimates of object counts left by this number before it rounds them (`SC_LG_TINY_MIN`).
const SHIFT: u32 = 3;
/// The last word of a `prof_gctx_t` at which the array of frames may begin.
const MAX_STACK_AT: usize = 40;
/// The largest number of frames of a stack (`PROF_BT_MAX` is 128; newer releases have an option for it).
const MAX_FRAMES: u64 = 4 << 10;
/// At least this many of ten stacks must have counts that match the blocks. The other stacks may differ, because
/// threads may be changing their counts.
const ENOUGH: usize = 9;

/// A stack at which sampled blocks in use were allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledStack {
    /// The number of the jemalloc that recorded the stack.
    pub root: u32,
    /// The return addresses, innermost first.
    pub frames: Vec<u64>,
    /// The number of sampled blocks in use that were allocated at this stack. `bytes` is their total size.
    pub blocks: u64,
    pub bytes: u64,
    /// jemalloc's own estimate for all blocks that these samples represent; None before 5.3.
    pub likely_blocks: Option<u64>,
    pub likely_bytes: Option<u64>,
    /// The address of the first sampled block.
    pub first: u64,
}

/// For each `prof_tctx_t`, by its address, the blocks that point to it: their number, their total size, and the address
/// of the first block.
type SampleSums = BTreeMap<u64, (u64, u64, u64)>;

impl Jemalloc {
    /// Return the stacks of sampled blocks in use, those with the most bytes first; none for a jemalloc that does not
    /// sample.
    pub fn samples(&self, watcher: &dyn Watcher, space: &Space) -> Result<Vec<SampledStack>> {
        let mut found = Vec::new();
        for root in 0..self.caches.len() as u32 {
            watcher.check()?;
            let own = || self.larges.iter().filter(move |large| large.root == root && self.is_used(large));
            let (mut best, mut most) = (Vec::new(), 0);
            for word in 0..SAMPLE_WORDS {
                let counted = counted(own().map(|large| (large.words[word], large.address, large.size)));
                for fields in FIELDS {
                    let (stacks, right) = stacks_of(watcher, space, root, &counted, fields)?;
                    if right > most {
                        (best, most) = (stacks, right);
                    }
                }
            }
            found.extend(best);
        }
        found.sort_by(|one, two| two.bytes.cmp(&one.bytes).then_with(|| one.frames.cmp(&two.frames)));
        Ok(found)
    }

    fn is_used(&self, large: &LargeBlock) -> bool {
        self.extents.runs.block_at(large.address).is_some_and(|cell| cell.address == large.address)
    }
}

/// Group blocks by the address to which a word of their extents points. The values 0 and 1 of that word are not
/// addresses.
fn counted(blocks: impl Iterator<Item = (u64, u64, u64)>) -> SampleSums {
    let mut found = SampleSums::new();
    for (to, address, size) in blocks.filter(|(to, ..)| *to > 1 && to % 8 == 0) {
        let row = found.entry(to).or_insert((0, 0, address));
        *row = (row.0 + 1, row.1.saturating_add(size), row.2.min(address));
    }
    found
}

/// Read the stacks of contexts (`prof_tctx_t`) whose fields are at the given positions. Return the stacks, and the
/// number of contexts whose counts equal those of the blocks. No stacks are returned if the counts of too few contexts
/// are equal.
fn stacks_of(
    watcher: &dyn Watcher,
    space: &Space,
    root: u32,
    counted: &SampleSums,
    (objects, bytes, likely, stack): Fields,
) -> Result<(Vec<SampledStack>, usize)> {
    let (mut rows, mut right): (BTreeMap<Vec<u64>, SampledStack>, usize) = (BTreeMap::new(), 0);
    for (context, (count, size, first)) in counted {
        watcher.check()?;
        let Some(fields) = words_from::<CONTEXT_WORDS>(space, *context) else { continue };
        let Some(frames) = frames_of(space, fields[stack]) else { continue };
        right += usize::from((fields[objects], fields[bytes]) == (*count, *size));
        let new = SampledStack {
            root,
            frames: frames.clone(),
            blocks: 0,
            bytes: 0,
            likely_blocks: likely.map(|_| 0),
            likely_bytes: likely.map(|_| 0),
            first: *first,
        };
        let row = rows.entry(frames).or_insert(new);
        (row.blocks, row.bytes) = (row.blocks + count, row.bytes.saturating_add(*size));
        let add = |sum: Option<u64>, value: u64| sum.map(|sum| sum.saturating_add(value));
        if let Some((blocks, bytes)) = likely {
            row.likely_blocks = add(row.likely_blocks, fields[blocks]);
            row.likely_bytes = add(row.likely_bytes, fields[bytes]);
        }
        row.first = row.first.min(*first);
    }
    if right == 0 || right * 10 < counted.len() * ENOUGH {
        return Ok((Vec::new(), 0));
    }
    let whole = |mut row: SampledStack| {
        row.likely_blocks = row.likely_blocks.map(|shifted| shifted.saturating_add(1 << (SHIFT - 1)) >> SHIFT);
        row
    };
    Ok((rows.into_values().map(whole).collect(), right))
}

/// Return the stack in the `prof_gctx_t` at `at`; None if no `prof_gctx_t` is there.
fn frames_of(space: &Space, at: u64) -> Option<Vec<u64>> {
    let head = words_from::<MAX_STACK_AT>(space, at).filter(|_| at % 8 == 0)?;
    let place = (0..MAX_STACK_AT - 1).find(|place| {
        let behind = at.wrapping_add(8 * (*place as u64 + 2));
        head[*place] == behind && (1..=MAX_FRAMES).contains(&(head[*place + 1] & 0xffff_ffff))
    })?;
    let mut bytes = vec![0; 8 * (head[place + 1] & 0xffff_ffff) as usize];
    let got = space.fill(head[place], &mut bytes);
    (got == bytes.len()).then(|| words(&bytes))
}
