//! Measure the unused room of containers: the part of their blocks that contains no items.

use crate::allocators::block::Block;
use gdbheap_access::machine::PageSize;
use gdbheap_access::memory::pages::Pages;
use std::collections::HashMap;

/// The containers of one kind.
/// - `count`: how many they are.
/// - `capacity`: how many bytes of their blocks can contain items.
/// - `used`: how many bytes contain items.
#[derive(Clone, Copy, Debug, Default)]
struct ContainerSums {
    count: u64,
    capacity: u64,
    used: u64,
    /// The unused bytes of those containers that each have less than a page of unused room.
    small: u64,
}

/// The unit in bytes to which malloc rounds sizes.
const UNIT: u64 = 16;

/// The way in which a container places items in its block: without gaps from the start, or scattered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ItemOrder {
    FromStart,
    Scattered,
}

/// A container with a page or more of unused room.
struct RoomyContainer {
    kind: u32,
    start: u64,
    end: u64,
    used: u64,
    order: ItemOrder,
}

/// The unused room of all containers whose blocks are classified. Containers with a page or more of unused room are
/// kept one by one.
#[derive(Default)]
pub(crate) struct Rooms {
    by_kind: HashMap<u32, ContainerSums>,
    roomy: Vec<RoomyContainer>,
}

/// The containers of one kind and their unused room, in bytes.
/// - `small`: the unused room of containers that have less than a page of it each.
/// - `pages`: the resident unused room of all other containers.
/// - `most`, `address`: the largest resident unused room of one container, and the address of its block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacity {
    pub kind: u32,
    pub count: u64,
    pub capacity: u64,
    pub used: u64,
    pub small: u64,
    pub pages: u64,
    pub most: u64,
    pub address: u64,
}

impl RoomyContainer {
    /// Return the resident bytes of the whole pages without items. If the items are scattered, return instead the
    /// resident bytes that a compact copy would not need.
    fn resident(&self, pages: &Pages, page: PageSize) -> u64 {
        match self.order {
            ItemOrder::FromStart => {
                page.inside(self.start + self.used, self.end).map_or(0, |(from, to)| pages.count(from, to).0)
            }
            ItemOrder::Scattered => pages.count(self.start, self.end).0.saturating_sub(self.used),
        }
    }
}

impl Rooms {
    /// Record the capacity of a container's block, and how many bytes of it are used.
    pub(crate) fn add(
        &mut self,
        kind: u32,
        block: &Block,
        (capacity, used): (u64, u64),
        order: ItemOrder,
        page: PageSize,
    ) {
        let capacity = capacity.min(block.end - block.address);
        let used = used.min(capacity);
        let sum = self.by_kind.entry(kind).or_default();
        sum.count += 1;
        sum.capacity += capacity;
        sum.used += used;
        if capacity - used >= page.bytes() {
            self.roomy.push(RoomyContainer { kind, start: block.address, end: block.address + capacity, used, order });
        } else {
            // A block can shrink only by whole units.
            sum.small += (capacity - used) / UNIT * UNIT;
        }
    }

    /// Return a row for each kind of container that occurs. Without `pages`, all unused room counts as resident.
    pub(crate) fn rows(&self, pages: Option<&Pages>, page: PageSize) -> Vec<Capacity> {
        let row = |(kind, sum): (&u32, &ContainerSums)| {
            let ContainerSums { count, capacity, used, small } = *sum;
            (*kind, Capacity { kind: *kind, count, capacity, used, small, ..Capacity::default() })
        };
        let mut rows: HashMap<u32, Capacity> = self.by_kind.iter().map(row).collect();
        for one in &self.roomy {
            let Some(row) = rows.get_mut(&one.kind) else { continue };
            let room = one.end - one.start - one.used;
            let resident = pages.map_or(room, |pages| one.resident(pages, page));
            row.pages += resident;
            if resident > row.most {
                (row.most, row.address) = (resident, one.start);
            }
        }
        let mut rows: Vec<Capacity> = rows.into_values().collect();
        rows.sort_unstable_by_key(|row| row.kind);
        rows
    }
}
