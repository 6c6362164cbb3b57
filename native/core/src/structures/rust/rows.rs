//! Prove types by rows of equal items, and by fields of equal structs. The words at the same offset of all items have
//! the same type, so together they can prove what one of them cannot prove.

use super::triples::{may_be_size, Triple, TripleShape, WordOrder, SURE};
use crate::by_address::{Addresses, ByAddress};
use crate::structures::search_input::SearchInput;
use gdbheap_access::memory::reader::Reader;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// The evidence, in bits, that several buffers together need to count as text.
const SURE_OF_MANY: f32 = 30.0;
/// The smallest number of triples that prove anything.
const LEAST: usize = 3;
/// How many different block sizes the same item size must fit to be proven. It must fit SIZES in a row. In fields,
/// which may have many types, it must fit SIZES_OF_FIELDS.
const SIZES: usize = 3;
const SIZES_OF_FIELDS: usize = 5;
/// The smallest number of items that prove a row by plain pointers. At one offset, each of them must point to a
/// different block.
const POINTERS: usize = 6;
/// The largest alignment of items. The pointer of an empty Vec is the alignment of its items, not an address.
const LARGEST_ALIGN: u64 = 64;
/// The largest capacity. A larger number there is the None of an Option<Vec>.
const LARGEST_CAPACITY: u64 = i64::MAX as u64;

/// The facts that are known so far about words that may hold buffers.
pub(crate) struct BufferFacts<'a> {
    pub(crate) look: &'a SearchInput<'a>,
    pub(crate) order: WordOrder,
    pub(crate) triples: Vec<Triple>,
    /// A map from the address of a pointer to the index of the triple with this pointer.
    pub(crate) by_holder: ByAddress<u32>,
    /// The addresses of those pointers that were proven to belong to other containers, or to point to objects.
    pub(crate) holders: Addresses,
}

/// The words at one offset of all items, sorted by what they may be.
/// - `triples`: the indices of triples that may be Vecs.
/// - `holders`: the number of proven pointers of other kinds.
/// - `pointers`: all other pointers to blocks.
#[derive(Default)]
struct Column {
    triples: Vec<u32>,
    holders: usize,
    pointers: HashSet<u64>,
}

impl BufferFacts<'_> {
    /// Return the offsets at which the words of all items prove that the items have the same type and form a row; empty
    /// if no words prove it. Mark the triples at these offsets as proven. `spend` is called with the number of words
    /// that are read.
    pub(crate) fn row(
        &mut self,
        reader: &mut Reader<'_>,
        items: &[u64],
        stride: u64,
        mut spend: impl FnMut(u64) -> Option<()>,
    ) -> Vec<u64> {
        let mut proven = Vec::new();
        for offset in (0..stride).step_by(8) {
            let Some(column) = self.column(reader, items, offset, &mut spend) else { continue };
            let (triples, pointers) = (column.triples.len(), column.pointers.len());
            if triples > 0 && pointers == 0 && column.holders == 0 {
                if let Some(shape) = self.agree(&column.triples, SIZES) {
                    column.triples.iter().for_each(|index| self.triples[*index as usize].prove(shape));
                    proven.push(offset);
                }
            }
            let all = triples == 0 && column.holders + pointers == items.len();
            if all && (column.holders >= LEAST || (pointers >= POINTERS && pointers == items.len())) {
                proven.push(offset);
            }
        }
        proven
    }

    /// Return whether a proven type is refuted at one of these offsets: whether the word of some item cannot be a value
    /// of the type.
    pub(crate) fn is_refuted(&self, reader: &mut Reader<'_>, items: &[u64], offsets: &[u64]) -> bool {
        let mut any = |offset: &u64| self.column(reader, items, *offset, |_| Some(())).is_none();
        offsets.iter().any(&mut any)
    }

    /// Return the content of the buffers whose triples lie in the same field of equal structs: text or items. None if
    /// the content is not proven.
    pub(crate) fn field(&self, triples: &[u32]) -> Option<TripleShape> {
        self.agree(triples, SIZES_OF_FIELDS)
    }

    /// Return whether the items are the only owners of the blocks to which they point: no block has a second pointer.
    /// A second pointer means that the item was moved or copied, and that an old copy of its words may be here.
    pub(crate) fn is_sole(&self, reader: &mut Reader<'_>, items: &[u64], stride: u64) -> bool {
        let begins = |id: u32| self.look.references[id as usize].load(Ordering::Relaxed);
        items.iter().all(|item| {
            (*item..item + stride).step_by(8).all(|at| {
                let found = reader.word(at).and_then(|word| self.look.block_from(word));
                found.is_none_or(|(id, _)| begins(id) == 1)
            })
        })
    }

    /// Return the words at `offset` of all items; None if one of them cannot be a value of a type that has a pointer
    /// there.
    fn column(
        &self,
        reader: &mut Reader<'_>,
        items: &[u64],
        offset: u64,
        mut spend: impl FnMut(u64) -> Option<()>,
    ) -> Option<Column> {
        let mut column = Column::default();
        for item in items {
            spend(1)?;
            let at = item.checked_add(offset)?;
            if let Some(index) = self.by_holder.get(&at) {
                column.triples.push(*index);
            } else if self.holders.contains(&at) {
                column.holders += 1;
            } else if !self.is_empty(reader, at) {
                let word = reader.word(at)?;
                self.look.block_from(word)?;
                column.pointers.insert(word);
            }
        }
        Some(column)
    }

    /// Return whether the words at `at` are an empty Vec (no block), or a None where an Option<Vec> is allowed.
    fn is_empty(&self, reader: &mut Reader<'_>, at: u64) -> bool {
        let Some(pointer) = reader.word(at) else { return false };
        let cap = match self.order {
            WordOrder::CapFirst => at.checked_sub(8),
            WordOrder::PointerFirst => at.checked_add(8),
        };
        let cap = cap.and_then(|at| reader.word(at));
        let dangles = pointer.is_power_of_two() && pointer <= LARGEST_ALIGN;
        match self.order {
            WordOrder::CapFirst => cap == Some(0) && dangles || cap.is_some_and(|cap| cap > LARGEST_CAPACITY),
            WordOrder::PointerFirst => cap == Some(0) && dangles || pointer == 0,
        }
    }

    /// Return what the buffers of several triples of one type contain, if chance is ruled out; otherwise None. Either
    /// all contain text, or all contain items of the same size, which fits several block sizes.
    fn agree(&self, triples: &[u32], least_sizes: usize) -> Option<TripleShape> {
        let all = || triples.iter().map(|index| &self.triples[*index as usize]);
        if triples.len() < LEAST {
            return None;
        }
        let mut seen = HashSet::new();
        if all().all(|triple| triple.is_text || (triple.least() == 1 && triple.len == 0)) {
            let texts = all().filter(|triple| triple.is_text && seen.insert(triple.block));
            return (texts.map(|triple| triple.text_bits).sum::<f32>() >= SURE_OF_MANY).then_some(TripleShape::Text);
        }
        // Bytes that are not text prove too little here: nearly every small number is the capacity of some small block.
        let least = all().map(|triple| triple.least()).max().unwrap_or(0).max(2);
        let most = all().map(|triple| triple.most()).min().unwrap_or(0);
        if !may_be_size(least, most) {
            return None;
        }
        let sizes: HashSet<u64> = all().map(|triple| triple.usable).collect();
        let different: HashSet<(u64, u64)> = all().map(|triple| (triple.cap, triple.len)).collect();
        let bits = all().filter(|triple| seen.insert(triple.block)).map(|triple| triple.bits).sum::<f32>();
        (sizes.len() >= least_sizes && (different.len() > least_sizes || bits >= SURE)).then_some(TripleShape::Items)
    }
}
