//! The groups of mallocng by address, and the used blocks in their slots.

use crate::allocators::block::Cell;
use crate::allocators::damage::Damage;
use crate::allocators::mallocng::layout::{IN_BAND, UNIT};
use crate::allocators::tally::Tally;
use crate::bits::{self, Bits};
use gdbheap_access::bytes::append;
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use std::cmp::Reverse;
use std::collections::BTreeMap;

const OBJECT_AT: u64 = 80;
/// Shown of a block at most.
const WINDOW: u64 = 256 << 10;
pub(super) const NOBODY: u32 = u32::MAX;

/// Equal slots behind a header.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its header.
    pub start: u64,
    /// The end of its mapping, else that of its last slot.
    pub end: u64,
    pub stride: u64,
    pub(crate) count: u32,
    /// A bit for each slot: ready to be handed out, freed, or with another group in it.
    pub(super) avail: u32,
    pub(super) freed: u32,
    pub(super) nested: u32,
    /// Whether it goes back when it is empty.
    pub(super) freeable: bool,
    /// The group that it lies in.
    pub(super) parent: u32,
    pub(super) meta: u64,
    /// The number of its first slot among all.
    pub(crate) first: u64,
}

impl Group {
    /// The first slot.
    pub(super) fn storage(&self) -> u64 {
        self.start + UNIT
    }

    pub(super) fn slot(&self, index: u64) -> u64 {
        self.storage() + index * self.stride
    }

    /// Where what may be used of a slot ends.
    pub(super) fn slot_end(&self, index: u64) -> u64 {
        self.slot(index) + self.stride - IN_BAND
    }

    pub(super) fn all(&self) -> u32 {
        u32::MAX >> (32 - self.count)
    }

    /// The slots that hold a block.
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

/// Something that does not fit; `transient` where a thread leaves it so that stands inside of mallocng.
#[derive(Clone, Debug)]
pub struct Misfit {
    pub damage: Damage,
    pub transient: bool,
}

/// The slots of one class in the groups that were walked, and as many as `usage_by_class` says.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub size: u64,
    pub walked: u64,
    pub said: u64,
}

/// Where in its slot a block begins, in units of 16 bytes, and how many bytes before the slot's end it ends; both `MOST` for
/// one that is told elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    skipped: u16,
    reserved: u16,
}

const MOST: u16 = u16::MAX;

impl Span {
    /// None where these are too many bytes.
    #[inline]
    pub(super) fn of(skipped: u64, reserved: u64) -> Option<Span> {
        let (skipped, reserved) = (u16::try_from(skipped / UNIT).ok()?, u16::try_from(reserved).ok()?);
        (reserved != MOST).then_some(Span { skipped, reserved })
    }
}

/// All that one mallocng has.
#[derive(Default)]
pub struct Mallocng {
    pub(crate) groups: Vec<Group>,
    /// The places of those that lie in no other.
    pub(super) outer: Vec<u32>,
    /// Of each slot what block it holds, by its number.
    pub(super) spans: Vec<Span>,
    /// Bytes before and behind the block, where they are many.
    pub(super) large: BTreeMap<u64, (u64, u64)>,
    pub(super) used: Bits,
    pub(super) areas: Vec<(u64, u64)>,
    /// What is wrong in groups and slots.
    pub damage: Vec<Damage>,
    /// What a thread leaves that stands inside of mallocng.
    pub misfits: Vec<Misfit>,
    /// Slots that are taken and not written yet, or on their way back.
    pub moving: u64,
    /// Of each class what was counted and what mallocng says.
    pub usage: Vec<Usage>,
}

impl Mallocng {
    /// Where a block is whose bytes before or behind it are many.
    pub(super) fn put_large(&mut self, number: u64, skipped: u64, reserved: u64) {
        if let Some(place) = self.spans.get_mut(number as usize) {
            *place = Span { skipped: MOST, reserved: MOST };
            self.large.insert(number, (skipped, reserved));
        }
    }

    /// Bytes of a slot before and behind its block.
    #[inline]
    fn span(&self, number: u64) -> (u64, u64) {
        let span = self.spans.get(number as usize).copied().unwrap_or_default();
        match span.reserved {
            MOST => self.large.get(&number).copied().unwrap_or_default(),
            reserved => (u64::from(span.skipped) * UNIT, u64::from(reserved)),
        }
    }

    /// [start, end) of the block in a slot.
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

    /// The innermost group that holds `address`.
    #[inline]
    pub(super) fn group_at(&self, address: u64) -> Option<usize> {
        let mut place = self.groups.partition_point(|group| group.start <= address).checked_sub(1)?;
        while address >= self.groups[place].end {
            place = self.groups[place].parent as usize;
            self.groups.get(place)?;
        }
        Some(place)
    }

    /// The innermost group's slot that holds `address`.
    #[inline]
    pub(super) fn slot_at(&self, address: u64) -> Option<(&Group, u64)> {
        let group = &self.groups[self.group_at(address)?];
        Some((group, group.index_at(address)?))
    }

    /// The used block that holds `address`; what is left of its slot behind it counts as its own.
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

    /// [start, end) of the slot of a block.
    pub(crate) fn slot_of(&self, number: u64) -> (u64, u64) {
        let place = self.groups.partition_point(|group| group.first <= number).saturating_sub(1);
        let group = &self.groups[place];
        let start = group.slot(number - group.first);
        (start, start + group.stride)
    }

    /// How many bits a number for each slot takes.
    pub(crate) fn block_numbers(&self) -> u64 {
        self.spans.len() as u64
    }

    pub(crate) fn used_words(&self) -> &[u64] {
        self.used.words()
    }

    /// The used blocks of a group, ascending.
    pub(crate) fn used_of<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = Cell> + 'a {
        bits::members_of(u64::from(group.used())).map(|index| self.cell(group, index))
    }

    /// Every used block.
    pub(crate) fn used_blocks(&self) -> impl Iterator<Item = Cell> + '_ {
        self.groups.iter().flat_map(|group| self.used_of(group))
    }

    pub(crate) fn used(&self) -> Tally {
        let mut sum = Tally::default();
        self.groups.iter().for_each(|group| sum.add_many(u64::from(group.used().count_ones()), group.stride));
        sum
    }

    /// Bytes that a walk over all used blocks passes.
    pub(crate) fn bytes_shown(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.used().count_ones()) * group.stride).sum()
    }

    /// Shows the used blocks of a group, each with its address; what cannot be read is not there.
    pub(crate) fn show_used(&self, space: &Space, group: &Group, mut show: impl FnMut(u64, &[u8])) {
        let mut window = Window::new(space, group.end);
        for cell in self.used_of(group) {
            show(cell.address, window.available(cell.address, (cell.end - cell.address).min(WINDOW) as usize));
        }
    }

    /// The places of the groups that lie in no other, each with that of the next one.
    pub(super) fn outermost(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let ends = self.outer.iter().skip(1).map(|place| *place as usize).chain([self.groups.len()]);
        self.outer.iter().map(|place| *place as usize).zip(ends)
    }

    /// What goes back with the last block in it: [start, end) with the blocks in use there.
    pub(crate) fn wholes(&self) -> impl Iterator<Item = (u64, u64, Tally)> + '_ {
        self.outermost().filter(|(place, _)| self.groups[*place].freeable).map(|(place, next)| {
            let mut used = Tally::default();
            for group in &self.groups[place..next] {
                used.add_many(u64::from(group.used().count_ones()), group.stride);
            }
            (self.groups[place].start, self.groups[place].end, used)
        })
    }

    /// Whether a used block of at least `least` bytes has `address` at its start or at most 80 bytes in.
    pub(crate) fn holds_object(&self, address: u64, least: u64) -> bool {
        self.block_at(address)
            .is_some_and(|cell| address - cell.address <= OBJECT_AT && cell.end - cell.address >= least)
    }
}

/// Answers of their own.
impl Mallocng {
    /// [start, end) of the mappings and of what the dynamic linker gave, ascending; one such after the other.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.outer.iter().map(|place| &self.groups[*place as usize]).map(|group| (group.start, group.end)).collect()
    }

    /// The same, those that touch as one.
    pub fn stretches(&self) -> Vec<(u64, u64)> {
        let mut found: Vec<(u64, u64)> = Vec::new();
        self.regions().into_iter().for_each(|(start, end)| append(&mut found, start, end));
        found
    }

    /// [start, end) of the pages of metadata.
    pub fn areas(&self) -> &[(u64, u64)] {
        &self.areas
    }

    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// `(size, groups, used slots, free slots)` by the size of slots.
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

    /// `(size, used slots, bytes asked for)` by the size of slots.
    pub fn asked_by_class(&self) -> Vec<(u64, u64, u64)> {
        let mut sums: BTreeMap<u64, Tally> = BTreeMap::new();
        for group in &self.groups {
            let sum = sums.entry(group.stride).or_default();
            self.used_of(group).for_each(|cell| sum.add(cell.end - cell.address));
        }
        sums.into_iter().map(|(size, sum)| (size, sum.count, sum.bytes)).collect()
    }

    /// What went with its last block long ago, or never had one: [start, end) of mappings without a used block, ascending.
    pub fn empty(&self) -> Vec<(u64, u64)> {
        self.wholes().filter(|(_, _, used)| used.count == 0).map(|(start, end, _)| (start, end)).collect()
    }

    /// The used blocks `(address, size)` of the mapping that holds `address`.
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

    /// The first `most` used blocks `(address, size)` of `least` to `largest` bytes.
    pub fn first_used(&self, least: u64, largest: u64, most: usize) -> Vec<(u64, u64)> {
        let mut rows = Vec::new();
        for (place, next) in self.outermost() {
            let meant = self.groups[place..next].iter().filter(|group| (least..=largest).contains(&group.stride));
            let from = rows.len();
            rows.extend(meant.flat_map(|group| self.used_of(group)).map(|cell| (cell.address, cell.size)));
            rows[from..].sort_unstable();
            if rows.len() >= most {
                break;
            }
        }
        rows.truncate(most);
        rows
    }

    /// The `most` largest used blocks `(address, size)` of at least `least` bytes, largest first.
    pub fn largest_used(&self, least: u64, most: usize) -> Vec<(u64, u64)> {
        let large = self.groups.iter().filter(|group| group.stride >= least);
        let blocks = large.flat_map(|group| self.used_of(group)).map(|cell| (cell.address, cell.size));
        let mut rows: Vec<(u64, u64)> = blocks.collect();
        rows.sort_unstable_by_key(|&(address, size)| (Reverse(size), address));
        rows.truncate(most);
        rows
    }
}
