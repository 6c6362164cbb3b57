//! Measure the unused room of containers: a container says how many bytes of its block hold items.

use crate::allocators::block::Block;
use gdbheap_access::machine::PageSize;
use gdbheap_access::memory::pages::Pages;
use std::collections::HashMap;

/// The containers of one kind. `count`: how many there are; `capacity`: the bytes of their blocks that can hold items;
/// `used`: the bytes that do.
#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    count: u64,
    capacity: u64,
    used: u64,
    /// The unused bytes of containers that have less than a page of them each.
    small: u64,
}

/// malloc rounds sizes to multiples of this.
const UNIT: u64 = 16;

/// Where in its block a container keeps its items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    FromStart,
    Scattered,
}

/// A container with a page or more of unused room.
struct Roomy {
    kind: u32,
    start: u64,
    end: u64,
    used: u64,
    order: Order,
}

/// All containers whose blocks are classified. Those with a page or more of unused room are kept one by one.
#[derive(Default)]
pub(crate) struct Rooms {
    by_kind: HashMap<u32, Filled>,
    roomy: Vec<Roomy>,
}

/// The containers of one kind and their unused room, in bytes. `small`: the unused room of containers that have less
/// than a page of it each; `pages`: the resident unused room of the others; `most`, `address`: the largest such room in
/// one container, and the address of its block.
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

impl Roomy {
    /// Return the resident bytes of whole pages without items. If items are scattered, return the resident bytes that a
    /// compact copy would not need.
    fn resident(&self, pages: &Pages, page: PageSize) -> u64 {
        match self.order {
            Order::FromStart => {
                page.inside(self.start + self.used, self.end).map_or(0, |(from, to)| pages.count(from, to).0)
            }
            Order::Scattered => pages.count(self.start, self.end).0.saturating_sub(self.used),
        }
    }
}

impl Rooms {
    /// Record the capacity of a container's block and how much of it is used.
    pub(crate) fn add(&mut self, kind: u32, block: &Block, (capacity, used): (u64, u64), order: Order, page: PageSize) {
        let capacity = capacity.min(block.end - block.address);
        let used = used.min(capacity);
        let sum = self.by_kind.entry(kind).or_default();
        sum.count += 1;
        sum.capacity += capacity;
        sum.used += used;
        if capacity - used >= page.bytes() {
            self.roomy.push(Roomy { kind, start: block.address, end: block.address + capacity, used, order });
        } else {
            // A block shrinks by whole units.
            sum.small += (capacity - used) / UNIT * UNIT;
        }
    }

    /// Return a row for each kind of container that has blocks. Without `pages`, all unused room counts as resident.
    pub(crate) fn rows(&self, pages: Option<&Pages>, page: PageSize) -> Vec<Capacity> {
        let row = |(kind, sum): (&u32, &Filled)| {
            let Filled { count, capacity, used, small } = *sum;
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
