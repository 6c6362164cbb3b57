//! The parts of a mapping of mallocng, and the unused bytes in it.

use crate::allocators::block_list::{BlockList, BlockQuery};
use crate::allocators::damage::Damage;
use crate::allocators::holes::{Hole, HoleFinder};
use crate::allocators::listing::BlockLister;
use crate::allocators::mallocng::groups::Mallocng;
use crate::allocators::part::Part;
use gdbheap_access::error::Result;
use gdbheap_access::work::Watcher;

impl Mallocng {
    /// Show the parts of the regions from `start` up to the first gap, in order. Return the start of that gap, or None
    /// if no region begins at `start`.
    pub(crate) fn show_parts(&self, start: u64, mut show: impl FnMut(u64, u64, Part)) -> Option<u64> {
        let (mut next, mut end) = (self.groups.binary_search_by_key(&start, |group| group.start).ok()?, start);
        while let Some(region) = self.groups.get(next).filter(|region| region.start == end) {
            end = region.end;
            self.parts_of(&mut next, &mut show);
        }
        Some(end)
    }

    /// Show the parts of the group with the index `next` and of the groups inside it, whose indices follow. Move `next`
    /// past these groups.
    fn parts_of(&self, next: &mut usize, show: &mut impl FnMut(u64, u64, Part)) {
        let group = &self.groups[*next];
        *next += 1;
        show(group.start, group.storage(), Part::Header);
        let mut index = 0;
        while index < u64::from(group.count) {
            let (bit, start) = (1u32 << index, group.slot(index));
            index += 1;
            if group.nested & bit != 0 {
                let end = self.groups[*next].end;
                self.parts_of(next, show);
                show_some(show, end, group.slot(index), Part::Padding);
            } else if group.free() & bit != 0 {
                while index < u64::from(group.count) && group.free() >> index & 1 == 1 {
                    index += 1;
                }
                show(start, group.slot(index), Part::Free);
            } else {
                let (block, end) = self.bounds(group, index - 1);
                show_some(show, start, block, Part::Padding);
                show_some(show, block, end, Part::Used);
                show_some(show, end, group.slot(index), Part::Padding);
            }
        }
        show_some(show, group.slot(index), group.end, Part::Header);
    }

    /// Return the block that contains `address`, as `(start, slot size, state, end, mask)`. The state is used or free.
    /// `mask` names the mask in which the slot of a free block is marked; None for a used block. None if no block
    /// contains `address`.
    pub fn find(&self, address: u64) -> Option<(u64, u64, &'static str, u64, Option<&'static str>)> {
        let (group, index) = self.slot_at(address)?;
        let bit = 1u32 << index;
        if group.nested & bit != 0 {
            return None;
        }
        if group.free() & bit != 0 {
            let list = if group.avail & bit != 0 { "avail_mask" } else { "freed_mask" };
            let start = group.slot(index);
            return Some((start, group.stride, "free", start + group.stride, Some(list)));
        }
        let (start, end) = self.bounds(group, index);
        let is_inside = start <= address && address < end.max(start + 1);
        is_inside.then_some((start, group.stride, "used", end, None))
    }

    /// Return the kind of an address that lies in no block: `slack` of a slot, `free`, or `header`. None outside all
    /// groups.
    pub fn own_part(&self, address: u64) -> Option<&'static str> {
        let (group, index) = match self.slot_at(address) {
            Some(found) => found,
            None => return self.group_at(address).map(|_| "header"),
        };
        Some(if group.used() >> index & 1 == 1 || group.nested >> index & 1 == 1 { "slack" } else { "free" })
    }
}

impl BlockLister for Mallocng {
    fn damage(&self) -> &[Damage] {
        &self.damage
    }

    fn holes(&self, watcher: &dyn Watcher, minimum: u64) -> Result<Vec<Hole>> {
        let mut found = HoleFinder::new(minimum);
        for (place, _) in self.outermost() {
            watcher.check()?;
            self.parts_of(&mut { place }, &mut |start, end, part| {
                found.add(start, end, part, |_| (start, end - start, word(part)));
            });
            found.end_region(|_, _| None);
        }
        Ok(found.holes)
    }

    /// List the blocks that pass the filter. A free block is a whole slot, including the header. No block counts as
    /// cached.
    fn list_blocks(&self, asked: &BlockQuery) -> BlockList {
        let meant = self.groups.iter().filter(|group| asked.takes(group.stride));
        if asked.used {
            return asked
                .without_arenas(meant.flat_map(|group| self.used_of(group)).map(|cell| (cell.address, cell.size)));
        }
        asked.without_arenas(meant.filter(|_| !asked.cached).flat_map(|group| {
            let is_free = |index: &u64| group.free() >> index & 1 == 1;
            (0..u64::from(group.count)).filter(is_free).map(|index| (group.slot(index), group.stride))
        }))
    }

    fn used_of_sizes(&self, least: u64, largest: u64) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        // A group may lie inside another group, so the blocks of a region are not in order.
        Box::new(self.outermost().flat_map(move |(place, next)| {
            let meant = self.groups[place..next].iter().filter(|group| (least..=largest).contains(&group.stride));
            let mut rows: Vec<(u64, u64)> =
                meant.flat_map(|group| self.used_of(group)).map(|cell| (cell.address, cell.size)).collect();
            rows.sort_unstable();
            rows
        }))
    }
}

fn show_some(show: &mut impl FnMut(u64, u64, Part), start: u64, end: u64, part: Part) {
    if start < end {
        show(start, end, part);
    }
}

/// Return mallocng's name for a kind of part.
fn word(part: Part) -> &'static str {
    match part {
        Part::Header => "group header",
        Part::Padding => "slack",
        other => other.name(),
    }
}
