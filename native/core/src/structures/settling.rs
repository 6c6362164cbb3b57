//! Classify the buffers of strings and vectors, and the objects of std::shared_ptr. A buffer shows nothing about its
//! holder. So words that look like the holder of a buffer count only if nothing else points to the buffer.

use super::capacity::ItemOrder;
use super::finding::{BufferHolder, HolderShape};
use super::kinds::{Family, UNKNOWN};
use super::proving::Prover;
use super::search_input::{SearchInput, MANY};
use crate::by_address::ByAddress;
use gdbheap_access::bytes::range_at;
use std::mem::discriminant;
use std::sync::atomic::Ordering;
use std::sync::PoisonError;

/// The largest number of rounds. If one round finds stale memory, the next round may be able to classify another
/// buffer, and so on. Strings in the old memory of a vector that grew make the longest chains of this kind.
const ROUNDS: usize = 64;
/// The offset, in a std::string of libstdc++, of the second half of the characters of a short string. In a long string,
/// a pointer, a size and a capacity lie before this offset.
const SHORT: u64 = 24;

/// The result of the last round. All lists are ascending.
/// - `left_over`: the parts of containers' blocks that contain no items.
/// - `vacant`: those that certainly contain no items.
/// - `holders`: the addresses of words that certainly point to buffers.
#[derive(Default)]
pub(crate) struct SettlingResult {
    pub(crate) left_over: Vec<(u64, u64)>,
    pub(crate) vacant: Vec<(u64, u64)>,
    pub(crate) holders: Vec<u64>,
}

/// A classifier of the buffers of strings and vectors.
pub(crate) struct Settler<'a, 'b> {
    pub(crate) look: &'a SearchInput<'a>,
    pub(crate) prover: &'b mut Prover<'a>,
    /// For each block, how many words on stacks point to it.
    pub(crate) from_stacks: ByAddress<u32>,
    /// For each block, how many words in `dead` point to its beginning.
    pub(crate) from_dead: ByAddress<u32>,
    /// For each block, how many words in `dead` point into it, after its beginning.
    pub(crate) inside_from_dead: ByAddress<u32>,
    /// Parts of blocks in which all words are stale or characters, ascending.
    pub(crate) dead: Vec<(u64, u64)>,
    /// The bytes after the characters in the buffers of strings. Also, in each string itself, the word that only a
    /// short string uses.
    pub(crate) behind_texts: Vec<(u64, u64)>,
    /// The addresses of words that point to the classified buffers.
    pub(crate) holders: Vec<u64>,
}

impl Settler<'_, '_> {
    /// Classify all buffers. `held`: all words that look like holders of a buffer.
    pub(crate) fn settle(mut self, mut held: Vec<BufferHolder>) -> SettlingResult {
        held.sort_unstable_by_key(|row| row.id);
        let (found, mut vacant) = (std::mem::take(&mut self.dead), std::mem::take(&mut self.prover.vacant));
        self.bury([&found[..], &vacant].concat());
        for _ in 0..ROUNDS {
            held.retain(|row| range_at(&self.dead, row.holder).is_none());
            let mut found = Vec::new();
            for rows in held.chunk_by(|one, other| one.id == other.id) {
                found.extend(self.buffer(rows).into_iter().flatten());
            }
            held.retain(|row| !self.is_settled(row.id));
            if found.is_empty() {
                break;
            }
            self.bury(found);
        }
        let Settler { look, mut dead, behind_texts, mut holders, .. } = self;
        // Words in a string's buffer do not count, because a string may contain any bytes.
        dead.retain(|(start, _)| look.block_with(*start).is_some_and(|(id, _)| !look.is_of(id, Family::String)));
        dead.extend(behind_texts);
        dead.sort_unstable();
        holders.sort_unstable();
        vacant.sort_unstable();
        SettlingResult { left_over: dead, vacant, holders }
    }

    fn is_settled(&self, id: u32) -> bool {
        let known = self.look.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.row(self.look.kind(id)).is_some_and(|(family, _)| *family != Family::Object)
    }

    /// Classify the buffer to which all these words point, if the words agree on its family and nothing else points to
    /// the buffer. Return the parts of the buffer and of its holders that have no content; None if the buffer was not
    /// classified.
    fn buffer(&mut self, rows: &[BufferHolder]) -> Option<Vec<(u64, u64)>> {
        let family = only_shape(rows).filter(|_| self.are_all(rows))?;
        let (id, block) = (rows[0].id, rows[0].block);
        if self.look.kind(id) != UNKNOWN && !(family == Family::Vector && self.is_row(id, rows)) {
            return None;
        }
        let reader = &mut self.prover.reader;
        let is_proven = rows.iter().any(|row| match row.shape {
            HolderShape::String(size) => block.checked_add(size).and_then(|end| reader.byte(end)) == Some(0),
            HolderShape::Vector(_) => true,
        });
        if !is_proven {
            return None;
        }
        let class = if family == Family::Vector { class_of(self.look, id) } else { String::new() };
        self.look.set_kind(id, self.look.number(family, &class));
        let lives = rows.iter().map(|row| if let HolderShape::Vector(end) = row.shape { end } else { block }).max()?;
        let (_, found) = self.look.block_from(block)?;
        let used = |row: &BufferHolder| match row.shape {
            HolderShape::String(size) => size.saturating_add(1),
            HolderShape::Vector(end) => end.saturating_sub(block),
        };
        let capacity = rows.iter().map(|row| row.capacity).max()?;
        let (most, end) = (rows.iter().map(used).max()?, found.end);
        self.look.fill(id, &found, capacity, most, ItemOrder::FromStart);
        self.holders.extend(rows.iter().map(|row| row.holder));
        let mut found = vec![(lives, end)];
        if family == Family::String {
            // The word with the NUL at the end of a string is no address either.
            let last = block.saturating_add((most - 1) / 8 * 8).min(end);
            let short =
                rows.iter().filter(|_| self.look.libraries.libstdcxx).map(|row| row.holder.saturating_add(SHORT));
            found.extend(short.map(|word| (word, word.saturating_add(8))));
            self.behind_texts.extend([&[(last, end)], &found[1..]].concat());
        }
        found.retain(|(start, end)| start < end);
        Some(found)
    }

    /// Return whether the block begins with an object that has a vtable, and contains another object of this class
    /// after it.
    fn is_row(&mut self, id: u32, rows: &[BufferHolder]) -> bool {
        let block = rows[0].block;
        let end = rows.iter().map(|row| if let HolderShape::Vector(end) = row.shape { end } else { block }).min();
        let Some(first) = self.prover.reader.word(block).filter(|_| self.prover.is_object(id)) else { return false };
        let mut rest = (block..end.unwrap_or(block)).step_by(8).skip(1);
        rest.any(|at| self.prover.reader.word(at) == Some(first))
    }

    /// Return whether these words are the only ones that point to the block or into it. Words on stacks are compared
    /// only if no word in blocks or static data points to the block.
    fn are_all(&self, rows: &[BufferHolder]) -> bool {
        let id = rows[0].id;
        let sum = |on_stack: bool| rows.iter().filter(|row| row.on_stack == on_stack).map(|row| row.pointers).sum();
        let counted = self.look.references[id as usize].load(Ordering::Relaxed);
        let count = |of: &ByAddress<u32>| of.get(&u64::from(id)).copied().unwrap_or(0);
        let living = u32::from(counted).saturating_sub(count(&self.from_dead));
        let (in_memory, on_stacks): (u32, u32) = (sum(false), sum(true));
        // An owner may also point into its own block, to a base that is not the first part of an object.
        let inside = self.look.inside[id as usize].load(Ordering::Relaxed);
        let own: u32 = rows.iter().filter(|row| !row.on_stack).map(|row| row.inside).sum();
        let nobody_else = inside < MANY && own == u32::from(inside).saturating_sub(count(&self.inside_from_dead));
        let all_held = in_memory == living && (living > 0 || on_stacks == count(&self.from_stacks));
        counted < MANY && nobody_else && all_held
    }

    /// Add the parts `found`, which have no content, to `dead`. From then on, the words in these parts do not count as
    /// pointers to blocks.
    fn bury(&mut self, found: Vec<(u64, u64)>) {
        for (start, end) in &found {
            for at in (start.next_multiple_of(8)..*end).step_by(8) {
                // A word counts once, even if two containers say that it is stale.
                if range_at(&self.dead, at).is_some() {
                    continue;
                }
                let word = self.prover.reader.word(at).unwrap_or(0);
                let found = self.look.block_with(word);
                // Words of a block that point to the same block were never counted.
                if let Some((id, block)) = found.filter(|(_, block)| !(block.address..block.end).contains(&at)) {
                    let counts = if block.address == word { &mut self.from_dead } else { &mut self.inside_from_dead };
                    *counts.entry(u64::from(id)).or_default() += u32::from(word >= block.address);
                }
            }
        }
        let known = |part: &(u64, u64)| range_at(&self.dead, part.0).is_some_and(|place| part.1 <= self.dead[place].1);
        let new: Vec<_> = found.into_iter().filter(|part| !known(part)).collect();
        self.dead.extend(new);
        self.dead.sort_unstable();
    }
}

/// Return the family on which all these words agree; None if they do not agree.
fn only_shape(rows: &[BufferHolder]) -> Option<Family> {
    let first = rows.first()?;
    let family = match first.shape {
        HolderShape::String(_) => Family::String,
        HolderShape::Vector(_) => Family::Vector,
    };
    rows.iter().all(|row| discriminant(&row.shape) == discriminant(&first.shape)).then_some(family)
}

fn class_of(look: &SearchInput<'_>, id: u32) -> String {
    let known = look.known.lock().unwrap_or_else(PoisonError::into_inner);
    known.row(look.kind(id)).map(|(_, class)| class.clone()).unwrap_or_default()
}

/// Classify the objects to which std::shared_ptr counts point. `controls`: the blocks with such counts.
pub(crate) fn settle_pointees(look: &SearchInput<'_>, prover: &mut Prover<'_>, controls: &[(u32, u64)]) {
    for (id, address) in controls {
        let class = class_of(look, *id);
        // libstdc++ counts owners from one, in 32 bits. libc++ counts them from zero, in 64 bits.
        let Some([counts, third, fourth]) = address.checked_add(8).and_then(|at| prover.reader.words::<3>(at)) else {
            continue;
        };
        let pointer = if look.libraries.libcxx { fourth } else { third };
        let is_held = look.libraries.libcxx || counts as u32 > 0;
        let Some((object, _)) = look.block_from(pointer).filter(|_| is_held && class != "void" && !class.is_empty())
        else {
            continue;
        };
        if look.kind(object) == UNKNOWN {
            look.set_kind(object, look.number(Family::Object, &class));
        }
    }
}
