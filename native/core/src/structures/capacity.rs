//! Room that containers have allocated and do not use: what of each block holds something, as its container says.

use crate::allocators::block::Block;
use gdbheap_access::machine::PageSize;
use gdbheap_access::memory::pages::Pages;
use std::collections::HashMap;

/// Containers of one kind, the bytes that their blocks can hold, and those that hold something.
#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    count: u64,
    capacity: u64,
    used: u64,
    /// Room of those that have less than a page of it.
    small: u64,
}

/// malloc rounds sizes to this.
const UNIT: u64 = 16;

/// The place in its block where a container keeps its items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    FromStart,
    Scattered,
}

/// A container with a page or more of room.
struct Roomy {
    kind: u32,
    start: u64,
    end: u64,
    used: u64,
    order: Order,
}

/// All containers whose blocks are named: those with much room one by one.
#[derive(Default)]
pub(crate) struct Rooms {
    by_kind: HashMap<u32, Filled>,
    roomy: Vec<Roomy>,
}

/// The room of containers of one kind: of those with less than a page of it, and resident bytes of the others; what one of
/// them has at most, and the address of its block.
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
    /// The resident bytes of whole pages that hold nothing; of what is scattered those that a copy would not have.
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
    /// Notes what a container of a kind has room for in its block, and how much of that it uses.
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

    /// A row for each kind of container that has blocks. Without `pages` all room counts as resident.
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
