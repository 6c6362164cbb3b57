//! Classify the blocks of a Rust program. The surest proofs come first.

use super::buffers::{judged, Buffers};
use super::candidates::{Candidates, WidePointer};
use super::channels::{self, Channel};
use super::objects::Objects;
use super::rows::BufferFacts;
use super::tables::ProvenTable;
use super::triples::WordOrder;
use super::{counts, tables, trees};
use crate::by_address::{Addresses, ByAddress};
use crate::structures::capacity::ItemOrder;
use crate::structures::finding;
use crate::structures::kinds::Family;
use crate::structures::search_input::SearchInput;
use gdbheap_access::error::Cancellation;
use gdbheap_access::memory::reader::Reader;
use gdbheap_access::work::Control;

/// The number of words that all proofs together may read for each block of the target, in addition to FIRST_WORDS. The
/// limit makes the time proportional to the size of the target.
const WORDS_FOR_EACH: u64 = 256;
/// The number of words that all proofs together may read in a target of any size.
const FIRST_WORDS: u64 = 1 << 20;
/// The number of words between two checks for cancellation.
const WORDS_UNHEARD: u64 = 64 << 10;

/// Classify all blocks whose kind can be proven from the candidates that all workers have found.
pub(crate) fn prove_rust(
    look: &SearchInput<'_>,
    found: &mut [finding::Candidates],
    control: &Control<'_>,
) -> Result<(), Cancellation> {
    let parts: Vec<Candidates> = found.iter_mut().map(|part| std::mem::take(&mut part.of_rust)).collect();
    let mut from_stacks: ByAddress<u32> = ByAddress::default();
    for (id, count) in found.iter().flat_map(|part| &part.from_stacks) {
        *from_stacks.entry(*id).or_default() += count;
    }
    let on_stacks = |id: u32| from_stacks.get(&u64::from(id)).copied().unwrap_or(0);
    let mut reader = Reader::large(look.heaps.space);
    let mut left = (look.ids.count() as u64).saturating_mul(WORDS_FOR_EACH).saturating_add(FIRST_WORDS);
    let mut unheard = 0;
    let mut spend = |words: u64| {
        unheard += words + 1;
        if unheard >= WORDS_UNHEARD {
            unheard = 0;
            left = control.advance(0).map_or(0, |()| left);
        }
        left = left.checked_sub(words + 1)?;
        Some(())
    };

    let mut holders = Addresses::default();
    let (mut all_tables, mut contested): (Vec<ProvenTable>, _) = (Vec::new(), Addresses::default());
    for at in parts.iter().flat_map(|part| &part.tables) {
        let Some(table) = tables::prove(look, &mut reader, *at, &mut spend) else { continue };
        if !table.is_sole {
            contested.insert(table.block);
        } else {
            look.set_kind(table.id, look.number(Family::RustTable, ""));
            fill(look, &table);
            holders.insert(*at);
            all_tables.push(table);
        }
    }
    control.advance(0)?;
    for root in parts.iter().flat_map(|part| &part.roots) {
        if let Some(nodes) = trees::prove(look, &mut reader, root, &mut spend) {
            let kind = look.number(Family::RustTree, "");
            nodes.iter().for_each(|id| look.set_kind(*id, kind));
            holders.insert(root.at);
        }
    }
    control.advance(0)?;
    let mut all_channels: Vec<Channel> = Vec::new();
    for at in parts.iter().flat_map(|part| &part.channels) {
        let Some(channel) = channels::prove(look, &mut reader, *at, &mut spend) else { continue };
        let waiting = channel.messages.len().to_string();
        look.set_kind(channel.own, look.number(Family::RustChannel, &waiting));
        let kind = look.number(Family::RustMessages, &waiting);
        channel.blocks.iter().for_each(|id| look.set_kind(*id, kind));
        all_channels.push(channel);
    }
    control.advance(0)?;
    let (mut wide, mut triples, mut others) = (Vec::new(), Vec::new(), [Addresses::default(), Addresses::default()]);
    for part in parts {
        wide.extend(part.wide);
        match triples.is_empty() {
            true => triples = part.triples,
            false => triples.extend(part.triples),
        }
        others.iter_mut().zip(part.others).for_each(|(all, some)| all.extend(some));
    }
    name_objects(look, &mut reader, wide, &mut holders, on_stacks);
    control.advance(0)?;

    let (order, triples) = judged(&mut reader, triples);
    control.advance(0)?;
    let by_holder = (0u32..).zip(&triples).map(|(index, triple)| (triple.at, index)).collect();
    let known = BufferFacts { look, order, triples, by_holder, holders };
    let mut buffers = Buffers::new(look, &mut reader, known, contested);
    buffers.fields(&others[usize::from(order == WordOrder::PointerFirst)]);
    for table in &all_tables {
        for stride in table.strides() {
            let items: Vec<u64> = table.filled.iter().map(|slot| table.control - (slot + 1) * stride).collect();
            buffers.known.row(buffers.reader, &items, stride, &mut spend);
        }
    }
    for channel in &all_channels {
        buffers.known.row(buffers.reader, &channel.messages, channel.slot, &mut spend);
    }
    control.advance(0)?;
    buffers.rows(&mut spend);
    control.advance(0)?;
    buffers.name(on_stacks);
    counts::name(look, &mut reader, on_stacks);
    Ok(())
}

/// Record how many bytes of a table's block are in use: as many as the smallest table for its items would need.
fn fill(look: &SearchInput<'_>, table: &ProvenTable) {
    let Some((_, block)) = look.block_from(table.block) else { return };
    let wanted = (table.filled.len() as u64 * 8).div_ceil(7).next_power_of_two().max(4);
    let capacity = table.control - table.block + table.buckets + tables::GROUP;
    look.fill(table.id, &block, capacity, capacity / table.buckets * wanted.min(table.buckets), ItemOrder::Scattered);
}

/// Classify the objects to which trait pointers point.
fn name_objects<'a>(
    look: &'a SearchInput<'a>,
    reader: &mut Reader<'a>,
    mut wide: Vec<WidePointer>,
    holders: &mut Addresses,
    on_stacks: impl Fn(u32) -> u32,
) {
    wide.sort_unstable_by_key(|row| row.id);
    let mut objects = Objects::new(look, reader);
    for rows in wide.chunk_by(|one, other| one.id == other.id) {
        if let Some((family, vtable)) = objects.family(rows, on_stacks(rows[0].id)) {
            let class = vtable.map(|vtable| format!("{vtable:#x}")).unwrap_or_default();
            look.set_kind(rows[0].id, look.number(family, &class));
            holders.extend(rows.iter().map(|row| row.at));
        }
    }
}
