//! A page of mimalloc: blocks of one size, and the lists of its free blocks.
//!
//! mimalloc counts blocks on `xthread_free`, and blocks on a heap's `thread_delayed_free`, as used; here both count as
//! free.

use crate::allocators::damage::{hex, Damage};
use crate::allocators::evidence::Evidence;
use crate::allocators::runs::Run;
use crate::bits;
use gdbheap_access::bytes::{u64_at, word_at};
use gdbheap_access::memory::space::Space;

/// The largest size in bytes of blocks whose lists are followed in a copy of the page.
const MAX_BULK: u64 = 1024;
/// The size in bytes of `mi_padding_t`, the record of the requested size at the end of a block.
const PADDING: u64 = 8;

/// A page of mimalloc: blocks of one size in a span of slices.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    /// The start of the page's first slice.
    pub(super) start: u64,
    /// The end of the page's last slice.
    pub(super) end: u64,
    /// The address of the first block.
    pub(crate) blocks: u64,
    pub(crate) size: u64,
    /// The number of blocks that were handed out at least once.
    pub(crate) capacity: u64,
    /// The number of blocks for which the page has space.
    pub(crate) reserved: u64,
    /// The number of used blocks according to the page's own count.
    pub(super) counted: u64,
    /// The heads of the page's three lists of free blocks.
    pub(super) lists: [u64; 3],
    /// The tag of the thread's heap that owns the page. 0 is for PyMem, 1 for objects. 2 is for objects of the garbage
    /// collector, 3 for those of them with a pre-header.
    pub(crate) tag: u8,
    pub(super) heap: u64,
    pub(super) entry: u64,
    /// The keys with which list links, and the words after blocks, are encoded.
    pub(super) keys: [u64; 2],
    pub(super) encoded: bool,
    /// The index of the mimalloc that owns the page, if the target has several.
    pub(super) root: u32,
    /// The number of the page's first block among all blocks: a multiple of 64.
    pub(crate) first: u64,
}

/// A page's count of used blocks that contradicts the page's lists.
#[derive(Clone, Debug)]
pub struct CountMismatch {
    pub damage: Damage,
    /// Whether the count is off by one block.
    pub by_one: bool,
    /// Whether a thread inside mimalloc may leave a page in this state for a moment. There are three such states. The
    /// count may differ, for example because the thread has taken a list, or has put it back but not counted its blocks
    /// yet. A list may continue with the first block of another list, because the two are being joined
    /// (`_mi_page_free_collect`). A list may contain blocks that were never handed out, just before the capacity
    /// includes them (`mi_page_extend_free`).
    pub passing: bool,
}

/// A bitmap of a page's blocks, in which the bits of used blocks are set. With it, the contradiction between the page's
/// count and its lists, or None.
pub(super) type UsedBits = (Vec<u64>, Option<CountMismatch>);

pub(crate) const LISTS: [&str; 3] = ["free", "local_free", "xthread_free"];

impl Page {
    /// Return the damage in the page's own fields, if there is any.
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

    /// Return whether a block that was never handed out begins at `address`.
    fn is_new(&self, address: u64) -> bool {
        let inside = address.wrapping_sub(self.blocks);
        inside % self.size == 0 && (self.capacity..self.reserved).contains(&(inside / self.size))
    }

    /// Return the address range [start, end) of the page's slices.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Return the blocks that were handed out at least once, as a run.
    pub(crate) fn run(&self) -> Run {
        Run { start: self.blocks, stride: self.size, count: self.capacity }
    }

    pub(crate) fn block(&self, number: u64) -> u64 {
        self.blocks + number * self.size
    }

    /// Decode a list link: an address, or 0 at the end of the list. In secure builds the address is `rotr(word - k0,
    /// k0) ^ k1`, and the page's own address marks the end (`mi_ptr_decode`).
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

    /// Return the requested size of the block with this number. `end` is the last word of the block: `{u32 canary, u32
    /// delta}` (`mi_padding_t`). The canary is the encoded address of the block, in newer releases without its lowest
    /// byte. None if the canary is wrong.
    fn asked_by(&self, number: u64, end: u64) -> Option<u64> {
        let word =
            (self.block(number) ^ self.keys[1]).rotate_left((self.keys[0] % 64) as u32).wrapping_add(self.keys[0]);
        let delta = end >> 32;
        let is_canary = (end as u32 ^ word as u32) & 0xffff_ff00 == 0;
        self.size.checked_sub(PADDING + delta).filter(|_| is_canary)
    }

    /// Return the requested size of a block; None if the block does not record it.
    pub(super) fn asked(&self, space: &Space, number: u64) -> Option<u64> {
        let end = self.block(number) + self.size.checked_sub(PADDING)?;
        self.asked_by(number, space.word(end).ok()?)
    }

    /// Show the number and the requested size of each used block that records its requested size, in order.
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

    /// Call `visit` for each block of a list. Fails with the address at which the list leaves the page. Also fails with
    /// the address at which `visit` returns false, for example because the list runs into itself.
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

    /// Return the used blocks as `used_bits` does. Fails with damage if the page claims too many blocks in memory that
    /// the target never wrote to (`Evidence`).
    pub(super) fn proven_bits(
        &self,
        space: &Space,
        evidence: &Evidence,
        bytes: &mut Vec<u8>,
    ) -> Result<UsedBits, Damage> {
        let run = self.run();
        if evidence.allows(space, (run.start, run.end()), run.count) {
            return Ok(self.used_bits(space, bytes));
        }
        Err(Damage::new(self.entry, "memory of a page with blocks", "resident memory", hex(self.start)))
    }

    /// Return the used blocks as a bitmap, and the contradiction between the page's count and its lists, if there is
    /// one. `bytes` is a scratch buffer.
    pub(super) fn used_bits(&self, space: &Space, bytes: &mut Vec<u8>) -> UsedBits {
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
                let found = format!("a list that leaves the page or repeats a block after {count} blocks");
                let expected = format!("a list {name} that ends with 0");
                let damage = Damage::new(self.entry, "list of free blocks of a page", expected, found);
                let others = self.lists.iter().enumerate().filter(|(other, _)| *other != list);
                let passing = others.into_iter().any(|(_, head)| *head == at) || self.is_new(at);
                fault = fault.or(Some(CountMismatch { damage, by_one: false, passing }));
            }
            waiting = count;
        }
        let left = used.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() + waiting;
        if left != self.counted {
            let found = format!("{} blocks that are on no list except xthread_free", left);
            let damage = Damage::new(self.entry, "used blocks of a page", self.counted.to_string(), found);
            fault = fault.or(Some(CountMismatch { damage, by_one: left.abs_diff(self.counted) == 1, passing: true }));
        }
        (used, fault)
    }
}

/// Decode a list link of a secure build.
pub(super) fn decoded(word: u64, keys: [u64; 2]) -> u64 {
    word.wrapping_sub(keys[0]).rotate_right((keys[0] % 64) as u32) ^ keys[1]
}

/// Return the name of the list that contains the free block with the number `wanted`. If no list of the page contains
/// the block, it is taken to be on the heap's list `thread_delayed_free`.
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
