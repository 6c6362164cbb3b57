//! Read all of one mallocng: its areas of metadata, the groups, and the headers of the slots.

use crate::allocators::damage::{hex, Damage};
use crate::allocators::mallocng::groups::{Group, Mallocng, Misfit, Span, Usage, NOBODY};
use crate::allocators::mallocng::layout::{
    metas, Meta, AREA, AREA_CHAIN, CLASSES, CONTEXT, MAPPED_CLASS, METAS_IN_AREA, UNIT, USAGE,
};
use crate::allocators::mallocng::slots::{Content, Slot};
use crate::bits::Bits;
use crate::by_address::Addresses;
use gdbheap_access::bytes::{range_at, u32_at, u64_at};
use gdbheap_access::error::{Error, Result};
use gdbheap_access::memory::space::Space;
use gdbheap_access::memory::window::Window;
use gdbheap_access::work::{self, Control, Watcher};
use std::sync::Mutex;

const MAX_DAMAGE: usize = 1000;
/// The number of groups that one worker walks at a time.
const GROUPS_IN_JOB: usize = 1024;
/// The largest number of slots of a group. While a thread makes or frees a group, the count of the group's class may be
/// wrong by up to this number.
const SLOTS: u64 = 32;

/// The groups with indices [from, to), which one worker walks. `first`: the number of their first slot.
struct Job<'a> {
    from: usize,
    to: usize,
    first: u64,
    spans: Mutex<Option<&'a mut [Span]>>,
}

/// The data that a worker found in the slots of the groups of its job.
#[derive(Default)]
struct SlotContent {
    /// The blocks whose position is too large for a `Span`, as `(slot number, bytes before the block, bytes after it)`.
    large: Vec<(u64, u64, u64)>,
    damage: Vec<Damage>,
    misfits: Vec<Misfit>,
    moving: u64,
}

struct Walker<'a> {
    first: u64,
    /// The position of each block in its slot.
    spans: &'a mut [Span],
    found: SlotContent,
}

/// Read all memory of a mallocng. `context`: the address of its `__malloc_context`, which `find_contexts` found. Fails
/// if the context cannot be read, or if there is too little memory for the number of slots.
pub fn read_mallocng(watcher: &dyn Watcher, space: &Space, context: u64) -> Result<Mallocng> {
    let mut head = [0; CONTEXT];
    space.exact(context, &mut head)?;
    let mut found = Mallocng::default();
    let metas = read_areas(watcher, space, &head, &mut found)?;
    let donated = place_groups(space, metas, &mut found);
    found.count_usage(&head, context, &donated);
    found.number()?;
    found.walk_slots(watcher, space)?;
    found.damage.truncate(MAX_DAMAGE);
    found.misfits.truncate(MAX_DAMAGE);
    Ok(found)
}

/// Return those `struct meta`s that are in use, from all areas of metadata. The areas form a chain.
fn read_areas(watcher: &dyn Watcher, space: &Space, head: &[u8], found: &mut Mallocng) -> Result<Vec<Meta>> {
    let (secret, mut at) = (u64_at(head, 0), u64_at(head, AREA_CHAIN));
    let (mut all, mut seen, mut window) = (Vec::new(), Addresses::default(), Window::new(space, u64::MAX));
    while at != 0 {
        if at % AREA != 0 || !seen.insert(at) {
            found.damage.push(Damage::new(
                at,
                "area of metadata",
                "a chain without loops",
                "an area that was already read, or is not aligned",
            ));
            break;
        }
        let Ok(area) = window.bytes(at, AREA as usize) else {
            found.damage.push(Damage::absent(at, "area of metadata"));
            break;
        };
        if u64_at(area, 0) != secret {
            found.damage.push(Damage::new(at, "secret of an area of metadata", hex(secret), hex(u64_at(area, 0))));
            break;
        }
        let count = u32_at(area, 16);
        if count as usize > METAS_IN_AREA {
            let most = format!("at most {METAS_IN_AREA}");
            found.damage.push(Damage::new(at + 16, "nslots of an area of metadata", most, count.to_string()));
        }
        all.extend(metas(at, area));
        found.areas.push((at, at + AREA));
        at = u64_at(area, 8);
        watcher.check()?;
    }
    found.areas.sort_unstable();
    Ok(all)
}

/// Make a group from its `struct meta`, or return the damage in the `struct meta`.
fn group_of(meta: &Meta) -> std::result::Result<Group, Damage> {
    let damage = |what, expected: &str, found: u64| Err(Damage::new(meta.address, what, expected, hex(found)));
    let Some(stride) = meta.stride().filter(|_| meta.class != MAPPED_CLASS || meta.pages > 0 && meta.count == 1) else {
        return damage("sizeclass of a group", "a class of mallocng", u64::from(meta.class));
    };
    let masks = meta.avail | meta.freed;
    if masks & !meta.all() != 0 || meta.avail & meta.freed != 0 {
        return damage("masks of a group", "a bit of each slot once at most", u64::from(masks));
    }
    let alignment = if meta.pages > 0 { AREA } else { UNIT };
    let size = UNIT + u64::from(meta.count) * stride;
    let whole = if meta.pages > 0 { meta.pages * AREA } else { size };
    match meta.mem.checked_add(whole) {
        Some(end) if meta.mem % alignment == 0 && size <= whole => Ok(Group {
            start: meta.mem,
            end,
            stride,
            count: meta.count,
            avail: meta.avail,
            freed: meta.freed,
            nested: 0,
            freeable: meta.freeable,
            parent: NOBODY,
            meta: meta.address,
            first: 0,
        }),
        _ => damage("memory of a group", "room for its slots", meta.mem),
    }
}

/// Put the groups in order of address. A group that lies in a slot of another group is put into that slot. Return the
/// class and the number of slots of each group that `usage_by_class` counts.
fn place_groups(space: &Space, mut metas: Vec<Meta>, found: &mut Mallocng) -> Vec<(u8, u32)> {
    metas.sort_unstable_by_key(|meta| (meta.mem, meta.address));
    let (mut inside, mut classes): (Vec<usize>, Vec<(u8, u32)>) = (Vec::new(), Vec::new());
    for (index, meta) in metas.iter().enumerate() {
        let group = match group_of(meta) {
            Ok(group) => group,
            Err(damage) => {
                let transient = !meta.freeable || meta.class == MAPPED_CLASS && meta.pages == 0;
                found.misfits.push(Misfit { damage, transient });
                continue;
            }
        };
        while inside.last().is_some_and(|place| found.groups[*place].end <= group.start) {
            inside.pop();
        }
        let place = found.groups.len();
        let next = metas.get(index + 1);
        if meta.class == MAPPED_CLASS && has_moved(space, &found.areas, &group, !inside.is_empty(), next) {
            found.misfits.push(misplaced(space, &group, true));
            continue;
        }
        match inside.last() {
            Some(parent) => match found.groups[*parent].take_in(&group, meta) {
                true => found.groups.push(Group { parent: *parent as u32, ..group }),
                false => {
                    // A nested group gives its slot back, and the first word of the slot is cleared, before the group's
                    // structure is freed.
                    let leaving = meta.pages == 0 && space.word(group.start).ok() == Some(0);
                    found.misfits.push(misplaced(space, &group, !meta.freeable || leaving));
                    continue;
                }
            },
            None if meta.freeable == (meta.pages > 0) && space.covers(group.start, group.end - group.start) => {
                found.outer.push(place as u32);
                found.groups.push(group);
            }
            None => {
                found.misfits.push(misplaced(space, &group, !meta.freeable || meta.pages == 0));
                continue;
            }
        }
        inside.push(place);
        // `usage_by_class` counts neither groups that the dynamic linker donated nor mappings with a single block.
        if meta.freeable && meta.class < CLASSES.len() as u8 {
            classes.push((meta.class, meta.count));
        }
    }
    classes
}

/// Return whether realloc has moved a mapping with a single block, so that the group's structure still has the old
/// address or size. realloc does not hold the lock while it moves the mapping. The old address then has no group, or it
/// has another group. The structure of that other group may not point to the address yet, or may no longer point to it.
fn has_moved(space: &Space, areas: &[(u64, u64)], group: &Group, is_inside: bool, next: Option<&Meta>) -> bool {
    let names = |start: u64, meta: u64| space.word(start).ok() == Some(meta);
    let is_there = || names(group.start, group.meta);
    let is_another = || space.word(group.start).is_ok_and(|meta| meta != group.meta && range_at(areas, meta).is_some());
    !space.covers(group.start, group.end - group.start)
        || is_inside && !is_there()
        || is_another()
        || next.is_some_and(|next| next.mem < group.end && (!is_there() || names(next.mem, next.address)))
}

/// Report a group at a place where no group can be. While a thread makes a group, it sets `freeable` and then the size
/// of the mapping last.
fn misplaced(space: &Space, group: &Group, transient: bool) -> Misfit {
    let expected = "a mapping, or a used slot of a larger group";
    let damage = Damage::new(group.meta, "memory of a group", expected, hex(group.start));
    let is_absent = !space.covers(group.start, group.end - group.start);
    Misfit { damage: Damage { is_absent, ..damage }, transient }
}

impl Group {
    /// If `group` lies in one of the slots of this group, mark the slot as nested: it contains no block. Return whether
    /// `group` lies in one of the slots.
    fn take_in(&mut self, group: &Group, meta: &Meta) -> bool {
        let Some(inside) = group.start.checked_sub(self.storage()) else { return false };
        let index = inside / self.stride;
        let fits = meta.pages == 0
            && meta.freeable
            && inside % self.stride == 0
            && index < u64::from(self.count)
            && group.end <= self.slot(index + 1)
            && self.used() >> index & 1 == 1;
        self.nested |= u32::from(fits) << (index & 31);
        fits
    }
}

impl Mallocng {
    /// Compare the number of slots in each class with the context's counts.
    fn count_usage(&mut self, head: &[u8], context: u64, groups: &[(u8, u32)]) {
        let mut walked = [0; CLASSES.len()];
        groups.iter().for_each(|(class, count)| walked[usize::from(*class)] += u64::from(*count));
        for (class, walked) in walked.into_iter().enumerate() {
            let (said, size) = (u64_at(head, USAGE + 8 * class), CLASSES[class] * UNIT);
            self.usage.push(Usage { size, walked, said });
            if walked != said {
                let address = context + (USAGE + 8 * class) as u64;
                let damage =
                    Damage::new(address, "usage_by_class", format!("{walked} slots of {size} bytes"), said.to_string());
                self.misfits.push(Misfit { damage, transient: walked.abs_diff(said) <= SLOTS });
            }
        }
    }

    /// Number the slots of all groups, in address order, and mark the used ones in a bitmap. Fails if
    /// memory does not suffice for all slots.
    fn number(&mut self) -> Result<()> {
        let mut numbers = 0;
        for group in &mut self.groups {
            group.first = numbers;
            numbers += u64::from(group.count);
        }
        if !Bits::fits(numbers) || self.spans.try_reserve_exact(numbers as usize).is_err() {
            return Err(Error::Memory("there is no memory for so many slots"));
        }
        self.spans.resize(numbers as usize, Default::default());
        self.used = Bits::new(numbers);
        for group in &self.groups {
            let (place, shift) = ((group.first / 64) as usize, group.first % 64);
            let bits = u128::from(group.used()) << shift;
            for (word, bits) in self.used.words_mut()[place..].iter_mut().zip([bits as u64, (bits >> 64) as u64]) {
                *word |= bits;
            }
        }
        Ok(())
    }

    /// Read the headers of every used slot.
    fn walk_slots(&mut self, watcher: &dyn Watcher, space: &Space) -> Result<()> {
        let mut spans = std::mem::take(&mut self.spans);
        let jobs = self.jobs(&mut spans);
        let walk = |all: &mut Vec<SlotContent>, job: &Job<'_>, control: &Control<'_>| {
            let Some(spans) = work::take(&job.spans) else { return Ok(()) };
            let mut walker = Walker { first: job.first, spans, found: SlotContent::default() };
            let (mut next, mut window) = (job.from, Window::new(space, u64::MAX));
            while next < job.to {
                self.walk_group(&mut next, &mut window, &mut walker);
            }
            all.push(walker.found);
            control.advance(0)
        };
        let found: Vec<SlotContent> =
            space.task(watcher, None).run(&jobs, Vec::new, walk)?.into_iter().flatten().collect();
        drop(jobs);
        let mut large = Vec::new();
        for walked in found {
            large.extend(walked.large);
            self.damage.extend(walked.damage);
            self.misfits.extend(walked.misfits);
            self.moving += walked.moving;
        }
        self.spans = spans;
        large.into_iter().for_each(|(number, skipped, reserved)| self.put_large(number, skipped, reserved));
        self.damage.sort_by_key(|damage| damage.address);
        self.misfits.sort_by_key(|misfit| misfit.damage.address);
        Ok(())
    }

    /// Divide the groups into jobs, in order. A group and the groups inside it are in the same job. Each job gets its
    /// part of `spans`.
    fn jobs<'a>(&self, mut spans: &'a mut [Span]) -> Vec<Job<'a>> {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for (place, next) in self.outermost() {
            match ranges.last_mut() {
                Some(range) if next - range.0 <= GROUPS_IN_JOB => range.1 = next,
                _ => ranges.push((place, next)),
            }
        }
        let mut jobs = Vec::with_capacity(ranges.len());
        for (from, to) in ranges {
            let (first, last) = (self.groups[from].first, &self.groups[to - 1]);
            let (own, rest) =
                std::mem::take(&mut spans).split_at_mut((last.first + u64::from(last.count) - first) as usize);
            spans = rest;
            jobs.push(Job { from, to, first, spans: Mutex::new(Some(own)) });
        }
        jobs
    }

    /// Walk the slots of the group with the index `next` and of the groups in it, in address order.
    fn walk_group(&self, next: &mut usize, window: &mut Window<'_>, walker: &mut Walker<'_>) {
        let group = &self.groups[*next];
        *next += 1;
        walker.check_header(group, window);
        for index in 0..u64::from(group.count) {
            if group.nested >> index & 1 == 1 {
                self.walk_group(next, window, walker);
            } else if group.used() >> index & 1 == 1 {
                let slot = Slot {
                    storage: group.storage(),
                    index: index as u32,
                    start: group.slot(index),
                    end: group.slot_end(index),
                };
                walker.add(group.first + index, &slot, slot.read(window));
            }
        }
    }
}

impl Walker<'_> {
    fn check_header(&mut self, group: &Group, window: &mut Window<'_>) {
        match window.bytes(group.start, 8).map(|bytes| u64_at(bytes, 0)) {
            Ok(meta) if meta == group.meta => (),
            Ok(meta) => {
                let damage = Damage::new(group.start, "meta of a group", hex(group.meta), hex(meta));
                self.found.misfits.push(Misfit { damage, transient: meta == 0 });
            }
            Err(_) => self.found.damage.push(Damage::absent(group.start, "header of a group")),
        }
    }

    fn add(&mut self, number: u64, slot: &Slot, content: Content) {
        let mut report = |damage| {
            if self.found.damage.len() < MAX_DAMAGE {
                self.found.damage.push(damage);
            }
        };
        let wrong = |what, expected: &str, found: &str| Damage::new(slot.start, what, expected, found);
        match content {
            Content::Block { skipped, reserved, intact } => {
                if !intact {
                    let found = "something else: more was written than was asked for";
                    report(wrong("byte behind a block", "0", found));
                }
                match Span::of(skipped, reserved) {
                    Some(span) => self.spans[(number - self.first) as usize] = span,
                    None => self.found.large.push((number, skipped, reserved)),
                }
            }
            // A thread is making a group in the slot. The group's structure does not point to the slot yet.
            Content::Moving | Content::Group => self.found.moving += 1,
            Content::Broken => {
                report(wrong("header of a slot in use", "its number and its place", "something else"));
            }
            Content::Absent => report(Damage::absent(slot.start, "header of a slot in use")),
        }
    }
}
