//! Prove hashbrown tables, as in HashMap and HashSet. In the single block of a table, the slots precede the control
//! bytes.

use super::candidates::is_table;
use crate::structures::kinds::UNKNOWN;
use crate::structures::search_input::SearchInput;
use gdbheap_access::memory::reader::Reader;
use std::sync::atomic::Ordering;

/// The number of control bytes that are compared at once (SSE2). The first GROUP control bytes are repeated after the
/// last one.
pub(crate) const GROUP: u64 = 16;
const EMPTY: u8 = 0xff;
const DELETED: u8 = 0x80;

/// A proven table.
/// - `id`, `block`: the number and the address of its block.
/// - `control`: the address at which its slots end and its control bytes begin.
/// - `buckets`: the number of slots.
/// - `filled`: the indices of the filled slots.
pub(crate) struct ProvenTable {
    pub(crate) id: u32,
    pub(crate) block: u64,
    pub(crate) control: u64,
    pub(crate) buckets: u64,
    pub(crate) filled: Vec<u64>,
    /// Whether nothing points to the beginning of the block, where the slots lie. If a word points there, either this
    /// word is stale, or the table gave up the block and the block has a new owner. The bytes do not show which of the
    /// two it is.
    pub(crate) is_sole: bool,
}

/// Prove the table whose pointer is at `at`. The control bytes must contain as many filled and free slots as the table
/// states, and the first control bytes must be repeated at the end. None if it is not a table. `spend` is called with
/// the number of bytes that are read.
pub(crate) fn prove(
    look: &SearchInput<'_>,
    reader: &mut Reader<'_>,
    at: u64,
    mut spend: impl FnMut(u64) -> Option<()>,
) -> Option<ProvenTable> {
    let control = reader.word(at)?;
    let forms = [
        reader.words::<4>(at).map(|[_, mask, left, items]| (mask, left, items)),
        at.checked_sub(8).and_then(|at| reader.words::<4>(at)).map(|[mask, _, left, items]| (mask, left, items)),
    ];
    for (mask, left, items) in forms.into_iter().flatten().filter(|(mask, left, items)| is_table(*mask, *left, *items))
    {
        let buckets = mask + 1;
        let Some((id, block)) = look.block_with(control) else { continue };
        let size = (control - block.address).checked_add(buckets)?.checked_add(GROUP)?;
        let begins = look.references[id as usize].load(Ordering::Relaxed);
        if look.kind(id) != UNKNOWN || !look.fits(&block, size) {
            continue;
        }
        spend(buckets)?;
        let mut bytes = vec![0; (buckets + GROUP) as usize];
        if look.heaps.space.fill(control, &mut bytes) != bytes.len() {
            continue;
        }
        if let Some(filled) = filled(&bytes, buckets, left, items) {
            let is_sole = begins == 0 || control == block.address;
            return Some(ProvenTable { id, block: block.address, control, buckets, filled, is_sole });
        }
    }
    None
}

/// Return the indices of the filled slots, if the control bytes can be those of a table with these counts; else None.
fn filled(bytes: &[u8], buckets: u64, left: u64, items: u64) -> Option<Vec<u64>> {
    let (own, again) = bytes.split_at(buckets as usize);
    let known = |byte: &u8| *byte < DELETED || matches!(*byte, EMPTY | DELETED);
    let capacity = if buckets <= 8 { buckets - 1 } else { buckets / 8 * 7 };
    let count = |wanted: fn(&u8) -> bool| own.iter().filter(|byte| wanted(byte)).count() as u64;
    let (full, deleted) = (count(|byte| *byte < DELETED), count(|byte| *byte == DELETED));
    let is_whole =
        bytes.iter().all(known) && full == items && left.checked_add(full)?.checked_add(deleted)? == capacity;
    // In a table smaller than a group, empty bytes lie between the first bytes and their repetition.
    let is_mirrored = match buckets < GROUP {
        true => {
            again[..(GROUP - buckets) as usize].iter().all(|byte| *byte == EMPTY)
                && again[(GROUP - buckets) as usize..] == *own
        }
        false => again == &own[..GROUP as usize],
    };
    (is_whole && is_mirrored).then(|| (0..buckets).filter(|slot| own[*slot as usize] < DELETED).collect())
}

impl ProvenTable {
    /// Return the possible sizes of a slot: multiples of eight, because slots that contain pointers have such sizes.
    pub(crate) fn strides(&self) -> impl Iterator<Item = u64> {
        let (bytes, buckets) = (self.control - self.block, self.buckets);
        let most = bytes / buckets;
        (most.saturating_sub(16)..=most)
            .filter(move |stride| stride % 8 == 0 && *stride > 0 && (stride * buckets).next_multiple_of(GROUP) == bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(own: &[u8]) -> Vec<u8> {
        let gap = GROUP as usize - own.len().min(GROUP as usize);
        [own, &vec![EMPTY; gap], &own[..GROUP as usize - gap]].concat()
    }

    #[test]
    fn control_bytes() {
        let own = [EMPTY, 5, EMPTY, 0x7f, DELETED, EMPTY, EMPTY, EMPTY];
        assert_eq!(filled(&control(&own), 8, 4, 2), Some(vec![1, 3]));
        assert_eq!(filled(&control(&own), 8, 5, 2), None);
        assert_eq!(filled(&control(&own), 8, 3, 3), None);
        let mut wrong = control(&own);
        wrong[17] = 9;
        assert_eq!(filled(&wrong, 8, 4, 2), None);
        let large: Vec<u8> = (0..32).map(|place| if place % 2 == 0 { place } else { EMPTY }).collect();
        assert_eq!(filled(&control(&large), 32, 12, 16).map(|found| found.len()), Some(16));
    }
}
