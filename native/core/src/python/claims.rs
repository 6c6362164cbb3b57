//! Read the pointer fields by which objects own blocks.

use crate::python::layout::{Claim, Extent, TypeLayout};
use gdbheap_access::bytes::{u32_at, u64_at};
use gdbheap_access::machine::LOWEST;
use gdbheap_access::memory::space::Space;

/// The rule for the extent of the items of a numpy array. Offsets in the array object: `at`, the number of dimensions
/// (32 bits); `unit`, the pointer to the dimensions; `more`, the pointer to the strides.
pub(crate) const STRIDES: u8 = 5;
/// The offset in bytes of the field `descr` in PyArrayObject_fields.
const DESCR: u64 = 56;

/// A claim whose offsets are counted from the start of the block.
#[derive(Clone, Copy)]
pub(crate) struct PlacedClaim {
    pub(crate) at: usize,
    pub(crate) test_at: usize,
    pub(crate) mask: u32,
    pub(crate) low: u32,
    pub(crate) high: u32,
    pub(crate) role: u8,
    pub(crate) follow: i32,
    /// The offset in bytes of the pointer to the last block of a chain; usize::MAX if the object has no such field.
    pub(crate) last_at: usize,
    pub(crate) contents: u32,
    pub(crate) count_at: i64,
    pub(crate) extent: Extent,
}

impl PlacedClaim {
    pub(crate) fn new(claim: &Claim, pre: u64) -> Option<PlacedClaim> {
        let place = |offset: i64| usize::try_from(pre as i64 + offset).ok();
        let (at, test_at) = (place(claim.offset)?, place(claim.test)?);
        let Claim { mask, low, high, role, follow, last, contents, count_at, extent, .. } = *claim;
        let last_at = if last == 0 { usize::MAX } else { place(last)? };
        Some(PlacedClaim { at, test_at, mask, low, high, role, follow, last_at, contents, count_at, extent })
    }
}

/// Return the pointer in the field of a claim; None if the field lies outside the block, or if the claim's condition
/// does not hold.
#[inline(always)]
pub(crate) fn claimed_pointer(space: &Space, claim: &PlacedClaim, address: u64, size: u64, head: &[u8]) -> Option<u64> {
    if claim.mask != 0 && !(claim.low..=claim.high).contains(&(u32_at(head, claim.test_at) & claim.mask)) {
        return None;
    }
    let pointer = match head.get(claim.at..claim.at + 8) {
        Some(bytes) => u64_at(bytes, 0),
        // Only type objects have such fields beyond the first bytes of a chunk, which were read.
        None if claim.at as u64 + 8 <= size => space.word(address + claim.at as u64).ok()?,
        None => return None,
    };
    Some(pointer).filter(|pointer| *pointer >= LOWEST)
}

/// Return the field `kind` of the PyArray_Descr of the numpy array at `object`: a letter, in the byte after the head
/// and a pointer. Return None if it cannot be read.
pub(crate) fn array_kind(space: &Space, layout: &TypeLayout, object: u64) -> Option<u8> {
    let mut byte = [0];
    let descr = space.word(object.wrapping_add(DESCR)).ok()?;
    space.exact(descr.wrapping_add(layout.head() + 8), &mut byte).ok().map(|()| byte[0])
}

/// Return whether items of this kind are numbers, times or characters, even if they look like pointers.
pub(crate) fn is_of_numbers(kind: u8) -> bool {
    b"biufcmMSU".contains(&kind)
}
