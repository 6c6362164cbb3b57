//! Prove types by rows of equal items, and by fields of equal structs. The words at the same offset of all items have
//! the same type, so together they can prove what one of them cannot prove.

use super::triples::{may_be_size, Order, Shape, Triple, SURE};
use crate::by_address::{Addresses, ByAddress};
use crate::structures::look::Look;
use gdbheap_access::memory::reader::Reader;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// The evidence, in bits, that several texts need together (SURE_OF_MANY), and the least number of triples that prove
/// anything (LEAST).
const SURE_OF_MANY: f32 = 30.0;
const LEAST: usize = 3;
/// The number of different block sizes that the same item size must fit: SIZES in a row, SIZES_OF_FIELDS in fields,
/// which may have many types.
const SIZES: usize = 3;
const SIZES_OF_FIELDS: usize = 5;
/// The number of plain pointers, one in each item, that are needed to prove a row.
const POINTERS: usize = 6;
/// The largest alignment of items. The pointer of an empty Vec is no address but the alignment of its items.
const LARGEST_ALIGN: u64 = 64;
/// The largest capacity. A larger number there is the None of an Option<Vec>.
const LARGEST_CAPACITY: u64 = i64::MAX as u64;

/// The facts that are known so far about words that may hold buffers.
pub(crate) struct Known<'a> {
    pub(crate) look: &'a Look<'a>,
    pub(crate) order: Order,
    pub(crate) triples: Vec<Triple>,
    /// A map from the address of a pointer to the index of the triple with this pointer.
    pub(crate) by_holder: ByAddress<u32>,
    /// The addresses of those pointers that were proven to belong to other containers, or to point to objects.
    pub(crate) holders: Addresses,
}

/// The words at one offset of all items. `triples`: the indices of triples that may be Vecs; `holders`: the number of
/// words that are proven pointers of other kinds; `pointers`: all other pointers to blocks.
#[derive(Default)]
struct Column {
    triples: Vec<u32>,
    holders: usize,
    pointers: HashSet<u64>,
}

impl Known<'_> {
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

    /// Return whether an item has a word, at one of these offsets, that cannot be a value of the type that was proven
    /// for the offset.
    pub(crate) fn is_refuted(&self, reader: &mut Reader<'_>, items: &[u64], offsets: &[u64]) -> bool {
        let mut any = |offset: &u64| self.column(reader, items, *offset, |_| Some(())).is_none();
        offsets.iter().any(&mut any)
    }

    /// Return what the buffers of the triples in the same field of equal structs contain: a text, or items. None if it
    /// is not proven.
    pub(crate) fn field(&self, triples: &[u32]) -> Option<Shape> {
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
            Order::CapFirst => at.checked_sub(8),
            Order::PointerFirst => at.checked_add(8),
        };
        let cap = cap.and_then(|at| reader.word(at));
        let dangles = pointer.is_power_of_two() && pointer <= LARGEST_ALIGN;
        match self.order {
            Order::CapFirst => cap == Some(0) && dangles || cap.is_some_and(|cap| cap > LARGEST_CAPACITY),
            Order::PointerFirst => cap == Some(0) && dangles || pointer == 0,
        }
    }

    /// Return what the buffers of several triples of one type contain, if chance is ruled out: all contain texts, or
    /// all contain items of the same size, which fits several block sizes. Else None.
    fn agree(&self, triples: &[u32], least_sizes: usize) -> Option<Shape> {
        let all = || triples.iter().map(|index| &self.triples[*index as usize]);
        if triples.len() < LEAST {
            return None;
        }
        let mut seen = HashSet::new();
        if all().all(|triple| triple.is_text || (triple.least() == 1 && triple.len == 0)) {
            let texts = all().filter(|triple| triple.is_text && seen.insert(triple.block));
            return (texts.map(|triple| triple.text_bits).sum::<f32>() >= SURE_OF_MANY).then_some(Shape::Text);
        }
        // Bytes that are not a text prove too little here: nearly every small number is the capacity of some small
        // block.
        let least = all().map(|triple| triple.least()).max().unwrap_or(0).max(2);
        let most = all().map(|triple| triple.most()).min().unwrap_or(0);
        if !may_be_size(least, most) {
            return None;
        }
        let sizes: HashSet<u64> = all().map(|triple| triple.usable).collect();
        let different: HashSet<(u64, u64)> = all().map(|triple| (triple.cap, triple.len)).collect();
        let bits = all().filter(|triple| seen.insert(triple.block)).map(|triple| triple.bits).sum::<f32>();
        (sizes.len() >= least_sizes && (different.len() > least_sizes || bits >= SURE)).then_some(Shape::Items)
    }
}
