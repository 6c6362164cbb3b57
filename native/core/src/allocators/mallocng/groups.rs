//! The groups of mallocng by address, and the used blocks in their slots.

use crate::allocators::block::Cell;
use crate::allocators::damage::Damage;
use crate::allocators::mallocng::layout::{IN_BAND, UNIT};
use crate::allocators::tally::Tally;
use crate::bits::{self, Bits};
use gdbheap_access::bytes::append;
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use std::collections::BTreeMap;

const OBJECT_AT: u64 = 80;
/// The largest number of bytes that `show_used` passes on of one block.
const WINDOW: u64 = 256 << 10;
pub(super) const NOBODY: u32 = u32::MAX;

/// A group of mallocng: equal slots after a header.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The address of the group's header.
    pub start: u64,
    /// The end of the group's mapping, or of its last slot if the group has no mapping of its own.
    pub end: u64,
    pub stride: u64,
    pub(crate) count: u32,
    /// A bit for each slot, set if the slot is ready to be handed out.
    pub(super) avail: u32,
    /// A bit for each slot, set if the slot was freed.
    pub(super) freed: u32,
    /// A bit for each slot, set if the slot contains another group.
    pub(super) nested: u32,
    /// Whether the group is freed when it is empty.
    pub(super) freeable: bool,
    /// The index of the group in whose slot this group lies; NOBODY if it lies in none.
    pub(super) parent: u32,
    pub(super) meta: u64,
    /// The number of the group's first slot among the slots of all groups.
    pub(crate) first: u64,
}

impl Group {
    /// Return the address of the first slot.
    pub(super) fn storage(&self) -> u64 {
        self.start + UNIT
    }

    pub(super) fn slot(&self, index: u64) -> u64 {
        self.storage() + index * self.stride
    }

    /// Return the end of the usable bytes of a slot.
    pub(super) fn slot_end(&self, index: u64) -> u64 {
        self.slot(index) + self.stride - IN_BAND
    }

    pub(super) fn all(&self) -> u32 {
        u32::MAX >> (32 - self.count)
    }

    /// Return the mask of those slots that contain a used block.
    pub(super) fn used(&self) -> u32 {
        self.all() & !(self.avail | self.freed | self.nested)
    }

    pub(super) fn free(&self) -> u32 {
        (self.avail | self.freed) & !self.nested
    }

    #[inline]
    fn index_at(&self, address: u64) -> Option<u64> {
        let inside = address.checked_sub(self.storage())?;
        // Dividing 32 bits takes half as long, and most groups are small.
        let index = match (u32::try_from(inside), u32::try_from(self.stride)) {
            (Ok(inside), Ok(stride)) => u64::from(inside / stride),
            _ => inside / self.stride,
        };
        (index < u64::from(self.count)).then_some(index)
    }
}

/// An inconsistency in mallocng's data. `transient`: whether it may only be an unfinished change by a thread inside
/// mallocng.
#[derive(Clone, Debug)]
pub struct Misfit {
    pub damage: Damage,
    pub transient: bool,
}

/// The number of slots of one size class, used or free. `walked`: the number counted in the groups. `said`: the number
/// that `usage_by_class` states.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub size: u64,
    pub walked: u64,
    pub said: u64,
}

/// The position of a block in its slot. `skipped`: the offset of the block's start, in units of 16 bytes. `reserved`:
/// the number of bytes between the block's end and the slot's end. Both are `MOST` if the position is recorded in
/// `large`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    skipped: u16,
    reserved: u16,
}

const MOST: u16 = u16::MAX;

impl Span {
    /// Make a position; None if the numbers are too large for a `Span`.
    #[inline]
    pub(super) fn of(skipped: u64, reserved: u64) -> Option<Span> {
        let (skipped, reserved) = (u16::try_from(skipped / UNIT).ok()?, u16::try_from(reserved).ok()?);
        (reserved != MOST).then_some(Span { skipped, reserved })
    }
}

/// All memory of one mallocng.
#[derive(Default)]
pub struct Mallocng {
    pub(crate) groups: Vec<Group>,
    /// The indices of those groups that lie in no other group.
    pub(super) outer: Vec<u32>,
    /// For each slot, by its number, the position of its block.
    pub(super) spans: Vec<Span>,
    /// The positions of blocks that are too large for a `Span`, by slot number: the bytes before and after the block in
    /// its slot.
    pub(super) large: BTreeMap<u64, (u64, u64)>,
    pub(super) used: Bits,
    pub(super) areas: Vec<(u64, u64)>,
    /// Damage in groups and slots.
    pub damage: Vec<Damage>,
    /// Inconsistencies that a thread inside mallocng may have left.
    pub misfits: Vec<Misfit>,
    /// The number of slots that are taken but not written yet, or that are being freed.
    pub moving: u64,
    /// For each size class, the number of slots that was counted, and the number that mallocng states.
    pub usage: Vec<Usage>,
}

impl Mallocng {
    /// Record the position of a block that has many bytes before or after it in its slot.
    pub(super) fn put_large(&mut self, number: u64, skipped: u64, reserved: u64) {
        if let Some(place) = self.spans.get_mut(number as usize) {
            *place = Span { skipped: MOST, reserved: MOST };
            self.large.insert(number, (skipped, reserved));
        }
    }

    /// Return how many bytes of a slot lie before its block and after it.
    #[inline]
    fn span(&self, number: u64) -> (u64, u64) {
        let span = self.spans.get(number as usize).copied().unwrap_or_default();
        match span.reserved {
            MOST => self.large.get(&number).copied().unwrap_or_default(),
            reserved => (u64::from(span.skipped) * UNIT, u64::from(reserved)),
        }
    }

    /// Return [start, end) of the block in a slot.
    #[inline]
    pub(super) fn bounds(&self, group: &Group, index: u64) -> (u64, u64) {
        let (skipped, reserved) = self.span(group.first + index);
        (group.slot(index) + skipped, group.slot_end(index) - reserved)
    }

    #[inline]
    fn cell(&self, group: &Group, index: u64) -> Cell {
        let (address, end) = self.bounds(group, index);
        Cell { number: group.first + index, address, size: group.stride, end }
    }

    /// Return the index of the innermost group that contains `address`; None if there is none.
    #[inline]
    pub(super) fn group_at(&self, address: u64) -> Option<usize> {
        let mut place = self.groups.partition_point(|group| group.start <= address).checked_sub(1)?;
        while address >= self.groups[place].end {
            place = self.groups[place].parent as usize;
            self.groups.get(place)?;
        }
        Some(place)
    }

    /// Return the innermost group that contains `address`, and the index of the slot there. None if no slot contains
    /// `address`.
    #[inline]
    pub(super) fn slot_at(&self, address: u64) -> Option<(&Group, u64)> {
        let group = &self.groups[self.group_at(address)?];
        Some((group, group.index_at(address)?))
    }

    /// Return the used block that contains `address`; None if there is none. The bytes after a block in its slot count
    /// as part of the block.
    #[inline]
    pub(crate) fn block_at(&self, address: u64) -> Option<Cell> {
        let (group, index) = self.slot_at(address)?;
        if !self.used.get(group.first + index) {
            return None;
        }
        let cell = self.cell(group, index);
        (cell.address <= address && address < group.slot_end(index)).then_some(cell)
    }

    pub(crate) fn block_of(&self, number: u64) -> Cell {
        let place = self.groups.partition_point(|group| group.first <= number).saturating_sub(1);
        let group = &self.groups[place];
        self.cell(group, number - group.first)
    }

    /// Return [start, end) of the slot that contains the block with this number.
    pub(crate) fn slot_of(&self, number: u64) -> (u64, u64) {
        let place = self.groups.partition_point(|group| group.first <= number).saturating_sub(1);
        let group = &self.groups[place];
        let start = group.slot(number - group.first);
        (start, start + group.stride)
    }

    /// Return the limit of slot numbers: the number of every slot is smaller. A bitmap with one bit for each slot has
    /// this many bits.
    pub(crate) fn block_numbers(&self) -> u64 {
        self.spans.len() as u64
    }

    pub(crate) fn used_words(&self) -> &[u64] {
        self.used.words()
    }

    /// Return the used blocks of a group, ascending.
    pub(crate) fn used_of<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = Cell> + 'a {
        bits::members_of(u64::from(group.used())).map(|index| self.cell(group, index))
    }

    /// Return the used blocks of all groups, ascending.
    pub(crate) fn used_blocks(&self) -> impl Iterator<Item = Cell> + '_ {
        self.groups.iter().flat_map(|group| self.used_of(group))
    }

    pub(crate) fn used(&self) -> Tally {
        let mut sum = Tally::default();
        self.groups.iter().for_each(|group| sum.add_many(u64::from(group.used().count_ones()), group.stride));
        sum
    }

    /// Return the total number of bytes of all slots with a used block.
    pub(crate) fn bytes_shown(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.used().count_ones()) * group.stride).sum()
    }

    /// Show each used block of a group as its address and its bytes. Bytes that cannot be read are cut off.
    pub(crate) fn show_used(&self, space: &Space, group: &Group, mut show: impl FnMut(u64, &[u8])) {
        let mut window = Window::new(space, group.end);
        for cell in self.used_of(group) {
            show(cell.address, window.available(cell.address, (cell.end - cell.address).min(WINDOW) as usize));
        }
    }

    /// Return the indices of those groups that lie in no other group, each with the index of the next such group.
    pub(super) fn outermost(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let ends = self.outer.iter().skip(1).map(|place| *place as usize).chain([self.groups.len()]);
        self.outer.iter().map(|place| *place as usize).zip(ends)
    }

    /// Return each range [start, end) that is freed when the last block in it is freed. Also return the number and the
    /// total size of the blocks in use there.
    pub(crate) fn wholes(&self) -> impl Iterator<Item = (u64, u64, Tally)> + '_ {
        self.outermost().filter(|(place, _)| self.groups[*place].freeable).map(|(place, next)| {
            let mut used = Tally::default();
            for group in &self.groups[place..next] {
                used.add_many(u64::from(group.used().count_ones()), group.stride);
            }
            (self.groups[place].start, self.groups[place].end, used)
        })
    }

    /// Return whether an object may begin at `address`: at most 80 bytes after the start of a used block. The block
    /// must have at least `least` bytes.
    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        self.block_at(address)
            .is_some_and(|cell| address - cell.address <= OBJECT_AT && cell.end - cell.address >= least)
    }
}

impl Mallocng {
    /// Return [start, end) of the mappings and of the ranges that the dynamic linker donated to mallocng, ascending.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.outer.iter().map(|place| &self.groups[*place as usize]).map(|group| (group.start, group.end)).collect()
    }

    /// Return the same ranges as `regions`, with adjacent ones joined.
    pub fn stretches(&self) -> Vec<(u64, u64)> {
        let mut found: Vec<(u64, u64)> = Vec::new();
        self.regions().into_iter().for_each(|(start, end)| append(&mut found, start, end));
        found
    }

    /// Return [start, end) of the pages that contain metadata.
    pub fn areas(&self) -> &[(u64, u64)] {
        &self.areas
    }

    /// Return `(size, groups, used slots, free slots)` of each slot size, by ascending size.
    pub fn classes(&self) -> Vec<(u64, u64, u64, u64)> {
        let mut sums: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
        for group in &self.groups {
            let sum = sums.entry(group.stride).or_default();
            sum.0 += 1;
            sum.1 += u64::from(group.used().count_ones());
            sum.2 += u64::from(group.free().count_ones());
        }
        sums.into_iter().map(|(size, (groups, used, free))| (size, groups, used, free)).collect()
    }

    /// Return `(size, used slots, requested bytes)` of each slot size, by ascending size.
    pub fn asked_by_class(&self) -> Vec<(u64, u64, u64)> {
        let mut sums: BTreeMap<u64, Tally> = BTreeMap::new();
        for group in &self.groups {
            let sum = sums.entry(group.stride).or_default();
            self.used_of(group).for_each(|cell| sum.add(cell.end - cell.address));
        }
        sums.into_iter().map(|(size, sum)| (size, sum.count, sum.bytes)).collect()
    }

    /// Return [start, end) of mappings without a used block, ascending. mallocng keeps them although they are empty.
    pub fn empty(&self) -> Vec<(u64, u64)> {
        self.wholes().filter(|(_, _, used)| used.count == 0).map(|(start, end, _)| (start, end)).collect()
    }

    /// Return the used blocks `(address, size)` of the mapping that contains `address`.
    pub fn used_with(&self, address: u64) -> Vec<(u64, u64)> {
        let found = self.outermost().find(|(place, _)| {
            let group = &self.groups[*place];
            (group.start..group.end).contains(&address)
        });
        let Some((place, next)) = found else { return Vec::new() };
        let blocks = self.groups[place..next].iter().flat_map(|group| self.used_of(group));
        let mut rows: Vec<(u64, u64)> = blocks.map(|cell| (cell.address, cell.size)).collect();
        rows.sort_unstable();
        rows
    }
}
