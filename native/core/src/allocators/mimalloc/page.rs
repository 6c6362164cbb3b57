//! A page of mimalloc: blocks of one size, and the lists of those that are free.
//!
//! A page counts blocks on `xthread_free`, and those that wait on their heap's `thread_delayed_free`, as used; here these
//! are free.

use crate::allocators::damage::Damage;
use crate::allocators::runs::Run;
use crate::bits;
use gdbheap_access::bytes::{u64_at, word_at};
use gdbheap_access::memory::space::Space;

/// A list is followed in a copy of the page if that is worth it: blocks of at most this size.
const MAX_BULK: u64 = 1024;
/// Bytes behind what was asked for, where a block tells that.
const PADDING: u64 = 8;

/// A page: blocks of one size in a span of slices.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    /// The first slice's and the last one's bounds.
    pub(super) start: u64,
    pub(super) end: u64,
    /// The first block.
    pub(crate) blocks: u64,
    pub(crate) size: u64,
    /// Blocks that were handed out at least once, and for how many there is room.
    pub(crate) capacity: u64,
    pub(crate) reserved: u64,
    /// What the page says of its used blocks.
    pub(super) counted: u64,
    /// The three lists' heads.
    pub(super) lists: [u64; 3],
    /// Which heap of a thread: 0 PyMem, 1 objects, 2 objects of the collector, 3 the same with a pre-header.
    pub(crate) tag: u8,
    pub(super) heap: u64,
    pub(super) entry: u64,
    /// By which words of its lists are encoded, and what is behind its blocks.
    pub(super) keys: [u64; 2],
    pub(super) encoded: bool,
    /// The place of its mimalloc among several.
    pub(super) root: u32,
    /// Number of the first block among all; pages begin at multiples of 64.
    pub(crate) first: u64,
}

/// A count of a page that does not agree with its lists.
#[derive(Clone, Debug)]
pub struct Miscounted {
    pub damage: Damage,
    /// It is off by one block.
    pub by_one: bool,
    /// It is as a thread may leave it that stands inside mimalloc: the count is another one, as that of a list which the thread has
    /// in its hands, or has put back and not counted; or a list runs into another one's first block, as it does while the two are made
    /// one (`_mi_page_free_collect`), or to blocks that were never handed out, just before the capacity has them too
    /// (`mi_page_extend_free`).
    pub passing: bool,
}

pub(crate) const LISTS: [&str; 3] = ["free", "local_free", "xthread_free"];

impl Page {
    /// What is wrong with the page's own fields, if anything.
    pub(super) fn fault(&self) -> Option<Damage> {
        let damage =
            |what, expected: String, found: u64| Some(Damage::new(self.entry, what, expected, found.to_string()));
        let room = (self.end - self.blocks) / self.size.max(1);
        if self.size < 8 || self.size % 8 != 0 {
            return damage("xblock_size of a page", "a multiple of 8".into(), self.size);
        }
        if self.reserved > room {
            return damage("reserved blocks of a page", format!("at most {room}"), self.reserved);
        }
        if self.capacity > self.reserved {
            return damage("capacity of a page", format!("at most {}", self.reserved), self.capacity);
        }
        match self.counted > self.capacity {
            true => damage("used blocks of a page", format!("at most {}", self.capacity), self.counted),
            false => None,
        }
    }

    #[inline]
    pub(super) fn number_at(&self, address: u64) -> Option<u64> {
        let inside = address.checked_sub(self.blocks)?;
        // Dividing 32 bits takes half as long, and most pages are small.
        let number = match (u32::try_from(inside), u32::try_from(self.size)) {
            (Ok(inside), Ok(size)) => u64::from(inside / size),
            _ => inside / self.size,
        };
        (number < self.capacity).then_some(number)
    }

    /// Whether a block begins there that was never handed out.
    fn is_new(&self, address: u64) -> bool {
        let inside = address.wrapping_sub(self.blocks);
        inside % self.size == 0 && (self.capacity..self.reserved).contains(&(inside / self.size))
    }

    /// The slices of the page.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// The blocks that were handed out at least once.
    pub(crate) fn run(&self) -> Run {
        Run { start: self.blocks, stride: self.size, count: self.capacity }
    }

    pub(crate) fn block(&self, number: u64) -> u64 {
        self.blocks + number * self.size
    }

    /// What a word of its lists says: an address, 0 at the end. In secure builds that is `rotr(word - k0, k0) ^ k1`, and the
    /// page's own address at the end (`mi_ptr_decode`).
    #[inline]
    fn link(&self, word: u64) -> u64 {
        if !self.encoded {
            return word;
        }
        match decoded(word, self.keys) {
            end if end == self.entry => 0,
            link => link,
        }
    }

    /// The bytes that were asked for of a block, by the words at its end: `{u32 canary, u32 delta}` (`mi_padding_t`). The canary
    /// is the block's address, encoded, without its lowest byte in newer releases. None where it is not.
    fn asked_by(&self, number: u64, end: u64) -> Option<u64> {
        let word =
            (self.block(number) ^ self.keys[1]).rotate_left((self.keys[0] % 64) as u32).wrapping_add(self.keys[0]);
        let delta = end >> 32;
        let is_canary = (end as u32 ^ word as u32) & 0xffff_ff00 == 0;
        self.size.checked_sub(PADDING + delta).filter(|_| is_canary)
    }

    /// The bytes that were asked for of a block.
    pub(super) fn asked(&self, space: &Space, number: u64) -> Option<u64> {
        let end = self.block(number) + self.size.checked_sub(PADDING)?;
        self.asked_by(number, space.word(end).ok()?)
    }

    /// Shows, in order, the used blocks that say what was asked for, by number, with those bytes.
    pub(super) fn show_asked(&self, space: &Space, used: &[u64], mut show: impl FnMut(u64, u64)) {
        if self.size > MAX_BULK {
            let told = bits::members(used).filter_map(|number| Some((number, self.asked(space, number)?)));
            told.for_each(|(number, asked)| show(number, asked));
            return;
        }
        let mut bytes = vec![0; (self.capacity * self.size) as usize];
        let got = space.fill(self.blocks, &mut bytes);
        for number in bits::members(used) {
            let end = ((number + 1) * self.size - PADDING) as usize;
            let told = bytes[..got].get(end..).and_then(|rest| self.asked_by(number, word_at(rest, 0)?));
            told.into_iter().for_each(|asked| show(number, asked));
        }
    }

    /// Calls `visit` for each block of a list. Where the list leaves the page, or `visit` has enough, as where a list meets itself: at
    /// which address.
    fn follow(
        &self,
        list: usize,
        link: impl Fn(u64) -> Option<u64>,
        mut visit: impl FnMut(u64) -> bool,
    ) -> Result<(), u64> {
        let mut at = self.lists[list];
        while at != 0 {
            match self.number_at(at).filter(|number| self.block(*number) == at) {
                Some(number) if visit(number) => {}
                _ => return Err(at),
            }
            at = self.link(link(at).ok_or(at)?);
        }
        Ok(())
    }

    /// The used blocks as bits, and what is wrong with the lists, if anything.
    /// `bytes` is scratch.
    pub(super) fn used_bits(&self, space: &Space, bytes: &mut Vec<u8>) -> (Vec<u64>, Option<Miscounted>) {
        let mut used = vec![u64::MAX; self.capacity.div_ceil(64) as usize];
        bits::clear_range(&mut used, self.capacity, self.capacity.next_multiple_of(64));
        let mut there: &[u8] = &[];
        if self.size <= MAX_BULK && self.lists.iter().any(|list| *list != 0) {
            let size = (self.capacity * self.size) as usize;
            bytes.resize(bytes.len().max(size), 0);
            let got = space.fill(self.blocks, &mut bytes[..size]);
            there = &bytes[..got];
        }
        let link = |at: u64| match there.get((at - self.blocks) as usize..) {
            Some(rest) if rest.len() >= 8 => Some(u64_at(rest, 0)),
            _ => space.word(at).ok(),
        };
        let (mut fault, mut waiting) = (None, 0);
        for (list, name) in LISTS.iter().enumerate() {
            let mut count = 0;
            let followed = self.follow(list, link, |number| {
                let (word, bit) = (&mut used[(number / 64) as usize], 1 << (number % 64));
                let is_new = *word & bit != 0;
                *word &= !bit;
                count += u64::from(is_new);
                is_new
            });
            if let Err(at) = followed {
                let found = format!("it leaves the page or meets itself after {count}");
                let expected = format!("{name} ends with zero");
                let damage = Damage::new(self.entry, "list of free blocks of a page", expected, found);
                let others = self.lists.iter().enumerate().filter(|(other, _)| *other != list);
                let passing = others.into_iter().any(|(_, head)| *head == at) || self.is_new(at);
                fault = fault.or(Some(Miscounted { damage, by_one: false, passing }));
            }
            waiting = count;
        }
        let left = used.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() + waiting;
        if left != self.counted {
            let found = format!("{} on no list but xthread_free", left);
            let damage = Damage::new(self.entry, "used blocks of a page", self.counted.to_string(), found);
            fault = fault.or(Some(Miscounted { damage, by_one: left.abs_diff(self.counted) == 1, passing: true }));
        }
        (used, fault)
    }
}

/// A word of a list of a secure build.
pub(super) fn decoded(word: u64, keys: [u64; 2]) -> u64 {
    word.wrapping_sub(keys[0]).rotate_right((keys[0] % 64) as u32) ^ keys[1]
}

/// The list that holds the free block of that number.
pub(super) fn list_of(space: &Space, page: &Page, wanted: u64) -> Option<&'static str> {
    let mut left = page.capacity;
    for (list, name) in LISTS.iter().enumerate() {
        let mut found = false;
        let _ = page.follow(
            list,
            |at| space.word(at).ok(),
            |number| {
                found |= number == wanted;
                left = left.saturating_sub(1);
                !found && left > 0
            },
        );
        if found {
            return Some(name);
        }
    }
    Some("thread_delayed_free")
}
