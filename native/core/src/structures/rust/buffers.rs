//! Find the buffers of String, Vec and VecDeque. A buffer shows little about its holder. So three words (a triple)
//! count as the holder of a buffer only if nothing else points to the buffer, and if there is a proof. There are three
//! proofs: the numbers in the words fit the block better than chance allows; the bytes of the block are text; several
//! triples of the same type, at different places, prove the type together.

use super::rows::BufferFacts;
use super::triples::{Triple, TripleShape, WordOrder};
use crate::by_address::{Addresses, ByAddress};
use crate::structures::capacity::ItemOrder;
use crate::structures::kinds::{Family, UNKNOWN};
use crate::structures::search_input::{SearchInput, MANY};
use gdbheap_access::memory::reader::Reader;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The largest number of item sizes that are tried. A block with more possible item sizes proves too little.
const STRIDES: usize = 16;
/// The number of times that all rows are examined. Several times are needed because a row may need what another row
/// proves.
const ROUNDS: usize = 3;
/// The evidence, in bits, that a single buffer needs to count as text, if other text proves the field in which its
/// triple lies.
const OWN_BITS: f32 = 12.0;
const PIECE: usize = 64 << 10;

/// The facts that the items of a buffer prove: that they lie as in a Vec, and that they lie as in a VecDeque.
#[derive(Clone, Copy, Default)]
struct BufferProof {
    as_vec: bool,
    as_deque: bool,
}

/// Find out for each triple, from the first bytes of its block, whether it points to text. Return the order that the
/// words of a Vec have in this program, and the triples with this order.
pub(crate) fn judged(reader: &mut Reader<'_>, mut triples: Vec<Triple>) -> (WordOrder, Vec<Triple>) {
    let ambiguous = triples.iter().filter(|triple| triple.is_ambiguous()).count();
    let mut votes = [0usize; 2];
    for triple in &mut triples {
        triple.judge(reader);
        triple.judge_among(ambiguous);
        if triple.shape() == Some(TripleShape::Text) {
            votes[triple.order as usize] += 1;
        }
    }
    let order = if votes[1] > votes[0] { WordOrder::PointerFirst } else { WordOrder::CapFirst };
    triples.retain(|triple| triple.order == order);
    (order, triples)
}

pub(crate) struct Buffers<'a, 'b> {
    pub(crate) look: &'a SearchInput<'a>,
    pub(crate) reader: &'b mut Reader<'a>,
    pub(crate) known: BufferFacts<'a>,
    /// The addresses of blocks that may just as well be tables.
    contested: Addresses,
    seen: ByAddress<BufferProof>,
}

impl<'a, 'b> Buffers<'a, 'b> {
    pub(crate) fn new(
        look: &'a SearchInput<'a>,
        reader: &'b mut Reader<'a>,
        known: BufferFacts<'a>,
        contested: Addresses,
    ) -> Buffers<'a, 'b> {
        Buffers { look, reader, known, contested, seen: ByAddress::default() }
    }

    /// Prove triples by other triples in the same field of equal structs: all must have the same type. `others`: fields
    /// in which some pointers cannot belong to a Vec, so these fields prove nothing.
    pub(crate) fn fields(&mut self, others: &Addresses) {
        let mut fields: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (index, triple) in (0u32..).zip(&self.known.triples) {
            if triple.field != 0 && !others.contains(&triple.field) {
                fields.entry(triple.field).or_default().push(index);
            }
        }
        for rows in fields.into_values() {
            let Some(shape) = self.known.field(&rows) else { continue };
            for index in rows {
                let triple = &mut self.known.triples[index as usize];
                // Blocks of the same size may have two types.
                if shape == TripleShape::Items || triple.text_bits >= OWN_BITS {
                    triple.prove(shape);
                }
            }
        }
    }

    /// Prove buffers by their items, if these form rows (see `BufferFacts::row`). `spend` is called with the number of
    /// words that are read.
    pub(crate) fn rows(&mut self, mut spend: impl FnMut(u64) -> Option<()>) {
        for _ in 0..ROUNDS {
            let mut found = 0;
            for index in 0..self.known.triples.len() {
                if spend(0).is_none() {
                    return;
                }
                let triple = &self.known.triples[index];
                if triple.shape() != Some(TripleShape::Text) && !self.seen.contains_key(&triple.at) {
                    found += u32::from(self.row(index, &mut spend).is_some());
                }
            }
            if found == 0 {
                break;
            }
        }
    }

    fn row(&mut self, index: usize, mut spend: impl FnMut(u64) -> Option<()>) -> Option<()> {
        let triple = self.known.triples[index].clone();
        let strides: Vec<u64> =
            (triple.least().next_multiple_of(8)..=triple.most()).step_by(8).take(STRIDES + 1).collect();
        if strides.len() > STRIDES {
            return None;
        }
        let mut seen = BufferProof::default();
        for stride in strides {
            spend(triple.len)?;
            let items = triple.items(stride, 0, triple.len);
            seen.as_vec |= !self.known.row(self.reader, &items, stride, &mut spend).is_empty();
            if let Some(length) = triple.next().filter(|_| triple.order == WordOrder::CapFirst && triple.may_be_deque())
            {
                spend(length)?;
                let others = triple.items(stride, triple.len, length);
                let offsets = self.known.row(self.reader, &others, stride, &mut spend);
                seen.as_deque |= !offsets.is_empty()
                    && self.known.is_sole(self.reader, &others, stride)
                    && self.known.is_refuted(self.reader, &items, &offsets);
            }
        }
        if !seen.as_vec && !seen.as_deque {
            return None;
        }
        self.known.triples[index].prove(TripleShape::Items);
        self.seen.insert(triple.at, seen);
        Some(())
    }

    /// Assign a kind to each buffer whose kind is proven. `from_stacks` returns how many words on stacks point to a
    /// block.
    pub(crate) fn name(&mut self, from_stacks: impl Fn(u32) -> u32) {
        let mut triples = std::mem::take(&mut self.known.triples);
        triples.sort_unstable_by_key(|triple| triple.id);
        for rows in triples.chunk_by(|one, other| one.id == other.id) {
            if let Some(family) = self.family(rows, from_stacks(rows[0].id)) {
                self.look.set_kind(rows[0].id, self.look.number(family, ""));
                self.fill(rows, family);
            }
        }
    }

    /// Record how many bytes of a classified buffer are in use. The largest item size that fits is assumed.
    fn fill(&self, rows: &[Triple], family: Family) {
        let Some((_, block)) = self.look.block_from(rows[0].block) else { return };
        let Some(best) = rows.iter().find(|row| row.shape().is_some()) else { return };
        let items = rows.iter().map(|row| match (family, row.next()) {
            (Family::RustDeque, Some(length)) => length,
            // A holder that is not a Vec may have its length in another word. Room that may be in use must not be
            // reported.
            _ => row.len.max(row.other),
        });
        let each = if family == Family::RustString { 1 } else { best.most() };
        let used = items.max().unwrap_or(0).saturating_mul(each);
        self.look.fill(rows[0].id, &block, best.cap.saturating_mul(each), used, ItemOrder::FromStart);
    }

    fn family(&mut self, rows: &[Triple], from_stacks: u32) -> Option<Family> {
        let id = rows[0].id;
        let (best, shape) = rows.iter().find_map(|row| Some((row, row.shape()?)))?;
        // Words that were moved may still be in their old place. The buffer may have grown or been freed since.
        let agrees = |row: &Triple| row.cap == best.cap && row.shape() == Some(shape);
        let is_contested = self.contested.contains(&rows[0].block);
        if self.look.kind(id) != UNKNOWN || is_contested || !rows.iter().all(agrees) {
            return None;
        }
        let counted = self.look.references[id as usize].load(Ordering::Relaxed);
        let inside = self.look.inside[id as usize].load(Ordering::Relaxed);
        let in_memory = rows.iter().filter(|row| !row.on_stack).count() as u32;
        let on_stacks = rows.len() as u32 - in_memory;
        let nobody_else = u32::from(counted) == in_memory && counted < MANY;
        if !nobody_else || (on_stacks < from_stacks && shape != TripleShape::Text) {
            return None;
        }
        let is_bytes = best.least() == 1 && best.most() == 1;
        if (shape == TripleShape::Text || is_bytes) && self.is_text(rows) {
            return Some(Family::RustString);
        }
        let proven: Vec<BufferProof> = rows.iter().filter_map(|row| self.seen.get(&row.at).copied()).collect();
        if shape == TripleShape::Text || (inside > 0 && proven.is_empty()) {
            return None;
        }
        let (as_vec, as_deque) = (proven.iter().any(|seen| seen.as_vec), proven.iter().any(|seen| seen.as_deque));
        Some(match rows.iter().any(Triple::may_be_deque) {
            true if as_deque && !as_vec => Family::RustDeque,
            true => Family::RustVecOrDeque,
            false => Family::RustVec,
        })
    }

    /// Return whether the longest text that these triples describe is valid UTF-8 from beginning to end.
    fn is_text(&mut self, rows: &[Triple]) -> bool {
        let Some(longest) = rows.iter().max_by_key(|row| row.len) else { return false };
        let mut bytes = vec![0; PIECE.min(longest.len as usize)];
        let (mut at, end, mut kept) = (longest.block, longest.block + longest.len, 0);
        while at < end {
            let wanted = ((end - at) as usize).min(bytes.len() - kept);
            if self.reader.fill(at, &mut bytes[kept..kept + wanted]) != wanted {
                return false;
            }
            at += wanted as u64;
            let known = kept + wanted;
            kept = match std::str::from_utf8(&bytes[..known]) {
                Ok(_) => 0,
                Err(error) if error.error_len().is_none() && at < end => known - error.valid_up_to(),
                Err(_) => return false,
            };
            bytes.copy_within(known - kept..known, 0);
        }
        true
    }
}
